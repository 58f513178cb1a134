"""The plan of a judging: built in one place, frozen, and carried out by few files."""

import ast
import json
import subprocess
import sys
from dataclasses import FrozenInstanceError

import pytest
from helpers import ROOT, fails, make_cases, run_here
from slow import slow

from hw4cli.errors import InputError, MachineError
from hw4cli.judge.plan import JudgeOptions, Program, plan_of

# Files of ours of which a function is called, in the order of the first call; a class's body is no function.
ENTERED = """
import json, sys
files, FUNCTION = {}, 0x1
def seen(frame, event, _):
    code = frame.f_code
    if event == "call" and code.co_flags & FUNCTION and "/hw4cli/" in code.co_filename and code.co_name[0] != "<":
        files.setdefault(code.co_filename.rpartition("/hw4cli/")[2])
from hw4cli.cli import run_command
sys.setprofile(seen)
run_command(sys.argv[2:])
sys.setprofile(None)
open(sys.argv[1], "w").write(json.dumps(list(files)))
"""
ROOMS = ("cli/", "judge/", "sandbox/")  # the rest is ground: words, processes, files, the problem


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return make_cases(tmp_path_factory.mktemp("cases"), "t01")


def test_judging_one_program_enters_about_twenty_five_files_of_the_judge(folder, tmp_path):
    program = tmp_path / "program"
    program.write_text(f'#!/bin/sh\ncp {folder}/t01.out "$2"\n')
    program.chmod(0o755)
    found = tmp_path / "files.json"
    command = [sys.executable, "-c", ENTERED, found, "judge", "t01", "--dir", folder, "--program", program]
    subprocess.run([*map(str, command), "-o", str(tmp_path / "out")], check=True, cwd=ROOT, capture_output=True)
    files = [name for name in json.loads(found.read_text()) if name.startswith(ROOMS)]
    assert "judge/plan.py" in files and "sandbox/confine.py" in files
    assert len(files) <= 28, files
    assert len([name for name in files if not name.startswith("cli/")]) <= 21, files


def calls(path, name):
    """The calls of a function of this name in a file, each with its first argument's name."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Call) and ast.unparse(node.func).rpartition(".")[2] == name:
            yield ast.unparse(node.args[0]) if node.args else ""


@slow
def test_a_plan_is_put_together_in_one_file():
    files = sorted((ROOT / "hw4cli").rglob("*.py"))
    for name in ("Plan", "RunSettings"):
        makers = [path for path in files if path.parts[-2] in ("judge", "cli", "terminal") and any(calls(path, name))]
        assert makers in ([], [ROOT / "hw4cli/judge/plan.py"]), name
    changers = [path.name for path in files if any("plan" in words for words in calls(path, "replace"))]
    assert set(changers) & {path.name for path in (ROOT / "hw4cli/judge").glob("*.py")} <= {"session.py"}


def test_a_plan_is_frozen_and_says_what_its_options_say(folder, tmp_path):
    options = JudgeOptions(folder, ("t01",), limits={"t01": 7.0}, penalty=3.0, launcher=("env",), output=tmp_path)
    plan = plan_of(options)
    assert [case.limit for case in plan.cases] == [7.0]
    assert (plan.rules.penalty, plan.settings.launcher, plan.settings.parent) == (3.0, ("env",), tmp_path)
    with pytest.raises(FrozenInstanceError):
        plan.repeat = 2
    with pytest.raises(FrozenInstanceError):
        Program("ann", ["hw4"]).user = "bob"


def test_what_cannot_be_judged_is_found_while_the_plan_is_made(folder, tmp_path):
    for options, error, words in (
        (JudgeOptions(folder, ("t99",)), InputError, "no case 't99'"),
        (JudgeOptions(folder, ("t02",)), MachineError, "hw4 gen t02"),
        (JudgeOptions(folder / "t01", ("t01",)), InputError, "is a file"),
        (JudgeOptions(folder, ("t01",), launcher=("/no/such",)), InputError, "the launcher"),
    ):
        with pytest.raises(error, match=words):
            plan_of(options)
    fails(
        run_here("judge", "t01", "--dir", folder, "--program", "true", "--pass-env", "NOT_SET_HERE"), 2, "NOT_SET_HERE"
    )

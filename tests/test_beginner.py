"""A beginner's tasks, each done by the command that the first help page suggests; and the README's first commands."""

import json
import re
import shlex
import sys

import pytest
from boards import RIGHT, write
from helpers import OPEN, ROOT, make_cases
from student import student

from hw4cli.commands import COMMANDS

NO_GPU = {"CUDA_VISIBLE_DEVICES": "-1"}
PAGE = (ROOT / "docs/commands.md").read_text()
TABLE = PAGE[PAGE.index("## In a beginner's words") : PAGE.index("## Exit status")]
TASKS = re.findall(r"^\| ([^|`]+) \| `hw4 ([^`]+)` \|$", TABLE, re.MULTILINE)
NEED_A_GPU = {"time flash on t12"}
FILLING = {"a", "an", "and", "or", "the", "of", "on", "for", "in", "is", "you", "your", "it", "its", "by", "to", "what"}


def stems(text):
    """The words of a text without their endings."""
    words = re.findall(r"[a-z]+", text.lower())
    return {re.sub(r"(ing|s|e)$", "", word) for word in words if word not in FILLING}


def suggested(task):
    """The command whose line of the first help page has most words of the task; of several, the first."""
    return max(COMMANDS, key=lambda name: len(stems(task) & stems(f"{name} {COMMANDS[name]}")))


def test_there_are_ten_tasks_and_more():
    assert len(TASKS) >= 10
    assert len({words.split()[0] for _, words in TASKS}) >= 9


@pytest.mark.parametrize(("task", "line"), TASKS)
def test_the_first_help_page_suggests_the_command(task, line):
    name = line.split()[0]
    assert suggested(task) == (name if name in COMMANDS else "run")


def right_program(path):
    path.write_text(f'#!/bin/sh\nPYTHONPATH={ROOT} exec {sys.executable} -m hw4cli "$1" "$2" --quiet --device cpu\n')
    path.chmod(0o755)


@pytest.fixture(scope="module")
def desk(tmp_path_factory):
    """A folder as a student has it after the first commands: cases, an output, a program, a class, records."""
    folder = tmp_path_factory.mktemp("desk")
    (folder / "testcases").mkdir()
    make_cases(folder / "testcases", "t01", "t02")
    (folder / "my.out").write_bytes((folder / "testcases/t01.out").read_bytes())
    right_program(folder / "mine")
    submission = folder / "submissions/ann"
    submission.mkdir(parents=True)
    (submission / "hw4").write_text(f"#!/bin/sh\ncp {folder}/testcases/t01.out $2\n")
    (submission / "hw4").chmod(0o755)
    write(folder / "results/ann", RIGHT, user="ann")
    student(folder / "records")
    (folder / "times.json").write_bytes((ROOT / "benchmarks/h200-end-to-end.json").read_bytes())
    return folder


@pytest.mark.parametrize(("task", "line"), TASKS)
def test_the_command_does_the_task(task, line, desk, hw4):
    if line.startswith("new-kernel"):
        (desk / "mine.cu").unlink(missing_ok=True)
    elif "./mine.cu" in line and not (desk / "mine.cu").exists():
        assert hw4("new-kernel", "mine", cwd=desk).returncode == 0
    words = shlex.split(line)
    if "--class" in words:  # in place of bubblewrap, which not every machine has
        words = [*words[:-1], "graded", *OPEN]
    if words[0] == "judge":  # whatever else the machine does meanwhile
        words += ["--limit", "t01-t02=60"]
    if words[0] == "bench":
        words += ["--samples", "1"]
    result = hw4(*words, cwd=desk, env=NO_GPU)
    expected = 3 if task in NEED_A_GPU else 0
    assert result.returncode == expected, result.stdout + result.stderr
    if expected:
        assert result.stderr.startswith("hw4: no GPU can be used")


def test_the_readmes_first_commands_work_one_after_the_other(hw4, tmp_path):
    """On a small case in the place of t12, and with a program that is right."""
    readme = (ROOT / "README.md").read_text()
    first = readme[readme.index("## First commands") : readme.index("Judge a class")]
    lines = [line.replace("t12", "t01") for line in re.findall(r"^\$ hw4 (.+)$", first, re.MULTILINE)]
    assert [line.split()[0] for line in lines] == ["gen", "testcases/t01", "gen", "judge"]
    right_program(tmp_path / "mine")
    for line in lines:
        result = hw4(*shlex.split(line), *(["--limit", "t01-t02=60"] if "judge" in line else []), cwd=tmp_path)
        assert result.returncode == 0, result.stderr
    assert "2 of 2 cases AC" in result.stdout


def test_after_the_demo_a_case_that_is_not_made_yet_is_named_with_the_command_that_makes_it(hw4_here):
    result = hw4_here("testcases/t12", "my.out")
    assert (result.returncode, result.stdout) == (2, "")
    assert result.stderr == "hw4: testcases/t12 does not exist: `hw4 gen t12` makes it\n"
    assert "`hw4 gen t12 --dir /cases` makes it" in hw4_here("info", "/cases/t12").stderr
    assert hw4_here("info", "nothing").stderr == "hw4: nothing does not exist\n"


def test_the_table_of_hw4_itself_says_what_computed(hw4, tmp_path):
    (tmp_path / "testcases").mkdir()
    make_cases(tmp_path / "testcases", "t01")
    result = hw4("judge", "t01", "--limit", "t01=60", cwd=tmp_path, env=NO_GPU)
    assert result.returncode == 0, result.stderr
    assert result.stdout.splitlines()[-1].startswith("hw4 computed on the CPU by NumPy: ")
    shown = json.loads(hw4("judge", "t01", "--limit", "t01=60", "--json", cwd=tmp_path, env=NO_GPU).stdout)
    assert shown["kind"] == "hw4-results"
    assert "computed on" not in hw4("judge", "t01", "--program", "false", cwd=tmp_path, env=NO_GPU).stdout

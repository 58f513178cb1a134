"""The rooms of the house: every module imports only from lower floors, and a run imports nothing it does not need."""

import ast
import json
import os
import resource
import subprocess
import sys

import pytest
from helpers import ROOT, random_block, write_case

FLOORS = [
    {"", "errors", "resources", "owner", "progress", "interrupts", "words", "dates", "page", "sharedmemory", "gpus"},
    {"commands", "context", "cpu", "cupyparts", "measured"},
    {"importing", "stopwatch", "newfile", "shape", "finding", "exits", "gpuwatch", "nvrtc"},
    {"casefile", "plan", "drivers", "machinecode", "errormap", "account", "quota", "selfguard", "sweep"},
    {"variants", "checksums", "process", "sandbox"},
    {"environment", "staging", "verdict", "suite", "reference", "gpu", "stream", "diagnosis", "diagnosis.evidence"},
    {"diagnosis.sample", "diagnosis.size", "confine"},
    {"diagnosis.formulas", "diagnosis.placing", "diagnosis.rounding", "diagnosis.overflow"},
    {"diagnosis.tiles", "diagnosis.reading"},
    {"diagnosis.explain"},
    {"record", "step", "caserecord"},
    {"journalfields", "slurm", "submission"},
    {"journal", "casewatch"},
    {"standings", "scoreboard", "pseudonyms", "reasons"},
    {"accuracy", "generate", "judge", "meter", "probe", "surroundings", "tables"},
    {"choice", "trial"},
    {"devices", "selftest"},
    {"pipeline", "doctor", "identity", "results", "handout"},
    {"bench", "session"},
    {"peers", "endtoend", "grading", "changes"},
    {"classroom"},
    {"classarray"},
    {"cli.console", "cli.around", "cli.params", "cli.sections", "cli.errorview"},
    {"cli.options", "cli.view", "cli.board", "cli.bar"},
    {
        "cli.run",
        "cli.doctor",
        "cli.gen",
        "cli.judge",
        "cli.rescore",
        "cli.scoreboard",
        "cli.verify",
        "cli.info",
        "cli.kernels",
        "cli.bench",
        "cli.selftest",
        "cli.completion",
    },
    {"cli"},
    {"entry"},
    {"__main__"},
]
FLOOR = {module: floor for floor, modules in enumerate(FLOORS) for module in modules}


def room(path):
    """hw4cli/cli/run.py -> cli.run, hw4cli/cli/__init__.py -> cli"""
    parts = path.relative_to(ROOT / "hw4cli").with_suffix("").parts
    return ".".join(part for part in parts if part != "__init__")


def imports(path):
    """The rooms that a file imports, inside functions too."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("hw4cli"):
            module = node.module.removeprefix("hw4cli").removeprefix(".")
            for alias in node.names:
                inner = f"{module}.{alias.name}".lstrip(".")
                yield inner if inner in FLOOR else module
        elif isinstance(node, ast.Import):
            yield from (a.name.removeprefix("hw4cli.") for a in node.names if a.name.startswith("hw4cli"))


def test_every_module_imports_only_from_lower_floors():
    files = sorted((ROOT / "hw4cli").rglob("*.py"))
    assert {room(path) for path in files} == set(FLOOR), "a module has no floor yet"
    for path in files:
        for imported in imports(path):
            assert FLOOR[imported] < FLOOR[room(path)], f"{room(path)} imports {imported}"


def modules_after(*args, tmp_path, **env):
    """The modules that a command has imported when it ends."""
    script = (
        "import sys, json, atexit\n"
        "atexit.register(lambda: json.dump(sorted(sys.modules), open(sys.argv[-1], 'w')))\n"
        f"from hw4cli.cli import run_command\nassert run_command({list(map(str, args))!r}) == 0"
    )
    found = tmp_path / "modules.json"
    subprocess.run(
        [sys.executable, "-c", script, str(found)],
        check=True,
        cwd=ROOT,
        env={**os.environ, **env},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
    )
    return set(json.loads(found.read_text()))


THIRD_PARTY_WE_KNOW = {"numpy", "click", "rich", "psutil", "cupy", "hypothesis", "pytest", "torch", "scipy"}


def commands_of(modules):
    return {name.removeprefix("hw4cli.cli.") for name in modules if name.startswith("hw4cli.cli.")}


WITHOUT_A_COMMAND = {
    "--help": (["--help"], {}),
    "--version": (["--version"], {}),
    "completion": ([], {"_HW4_COMPLETE": "bash_complete", "COMP_WORDS": "hw4 ju", "COMP_CWORD": "1"}),
}


@pytest.mark.parametrize("name", WITHOUT_A_COMMAND)
def test_what_calls_no_command_imports_none_and_nothing_heavy_but_click(tmp_path, name):
    args, env = WITHOUT_A_COMMAND[name]
    found = modules_after(*args, tmp_path=tmp_path, **env)
    assert commands_of(found) == set()
    assert found & THIRD_PARTY_WE_KNOW == {"click"}


def test_a_command_imports_no_other_command(tmp_path):
    found = modules_after("judge", "--help", tmp_path=tmp_path)
    assert {f"cli.{name}" for name in commands_of(found)} & FLOORS[FLOOR["cli.run"]] == {"cli.judge"}


def test_a_run_imports_click_and_numpy_and_nothing_else_heavy(tmp_path):
    source = write_case(tmp_path / "in", random_block(1, 8, 4))
    found = modules_after("--device", "cpu", source, tmp_path / "out", tmp_path=tmp_path)
    assert found & THIRD_PARTY_WE_KNOW == {"click", "numpy"}
    assert not found & {"tomllib", "asyncio", "importlib_metadata", "sqlite3", "unittest"}


def test_help_answers_at_once():
    """0.15 s on a machine that imports click in 0.06 s of processor time: told as a ratio, for slow and busy ones."""

    def seconds(*command):
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        subprocess.run([sys.executable, *command], check=True, cwd=ROOT, stdout=subprocess.DEVNULL)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime

    # Side by side: a processor's clock may change by half from one second to the next.
    ratios = [seconds("-m", "hw4cli", "--help") / seconds("-c", "import click") for _ in range(10)]
    assert min(ratios) < 2.5

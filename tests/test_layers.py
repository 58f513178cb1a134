"""The order of the packages, and that a command imports nothing it does not need."""

import ast
import json
import os
import re
import resource
import subprocess
import sys
from functools import cache
from graphlib import TopologicalSorter
from importlib.util import find_spec

import pytest
from helpers import ROOT, random_block, write_case

from hw4cli.commands import COMMANDS

# The packages, and the folders within some of them, in their order: each imports only what stands before it. "" stands
# for a package's own modules.
PACKAGES = {
    "text": ("",),
    "system": ("",),
    "problem": ("",),
    "plans": ("",),
    "device": ("hip", "", "tuning"),
    "sandbox": ("",),
    "emulator": ("", "program"),
    "stream": ("", "nodes"),
    "arrays": ("", "gradients", "autograd", "shards"),
    "judge": ("diagnosis", "scoring", "", "similarity"),
    "lab": ("arrays", "", "handin", "stepper", "measure"),
    "show": ("", "leaderboard", "report"),
    "doctor": ("",),
    "cli": ("terminal", "benchcommand", ""),
}
ORDER = [(package, folder) for package, folders in PACKAGES.items() for folder in folders]
ROOTS = {"errors", "resources", "commands"}  # what every package may import


def parts(path):
    """hw4cli/cli/run.py -> ("cli", "run"), hw4cli/cli/__init__.py -> ("cli",)"""
    found = path.relative_to(ROOT / "hw4cli").with_suffix("").parts
    return tuple(part for part in found if part != "__init__")


MODULES = {parts(path): path for path in sorted((ROOT / "hw4cli").rglob("*.py"))}


@cache
def imports(path):
    """The modules that a file imports, inside functions too."""
    return list(_imports(path))


def _imports(path):
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] == "hw4cli":
            module = tuple(node.module.split(".")[1:])
            for alias in node.names:
                yield (*module, alias.name) if (*module, alias.name) in MODULES else module
        elif isinstance(node, ast.Import):
            names = (alias.name.split(".") for alias in node.names)
            yield from (tuple(name[1:]) for name in names if name[0] == "hw4cli")


def place(module):
    """("judge", "scoring", "record") -> ("judge", "scoring"), ("judge", "session") -> ("judge", "")"""
    folders = module if (ROOT / "hw4cli").joinpath(*module).is_dir() else module[:-1]
    return (*folders, "")[:2]


def test_a_package_imports_only_packages_before_it():
    within = {module: place(module) for module in MODULES if len(module) > 1}
    assert set(within.values()) == set(ORDER)
    for module, own in within.items():
        for other in imports(MODULES[module]):
            if other and other[0] not in ROOTS and place(other) != own:
                assert ORDER.index(place(other)) < ORDER.index(own), f"{'.'.join(module)} imports {'.'.join(other)}"


def test_no_modules_import_each_other_in_a_circle():
    TopologicalSorter({module: set(imports(path)) - {module} for module, path in MODULES.items()}).prepare()


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


THIRD_PARTY_WE_KNOW = {"numpy", "click", "rich", "psutil", "cupy"} | {
    *("hypothesis", "pytest", "torch", "scipy", "matplotlib")
}


def commands_of(modules):
    return {name for name in COMMANDS if f"hw4cli.cli.{name.replace('-', '_')}" in modules}


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
    assert commands_of(found) == {"judge"}


def test_a_run_imports_click_and_numpy_and_nothing_else_heavy(tmp_path):
    source = write_case(tmp_path / "in", random_block(1, 8, 4))
    found = modules_after("--device", "cpu", source, tmp_path / "out", tmp_path=tmp_path)
    assert found & THIRD_PARTY_WE_KNOW == {"click", "numpy"}
    assert not found & {"tomllib", "asyncio", "importlib_metadata", "sqlite3", "unittest"}


@pytest.mark.skipif(find_spec("cupy") is not None, reason="cupy is installed: whether it finds a GPU, it says itself")
def test_a_run_without_cupy_imports_nothing_that_computes_on_a_gpu(tmp_path):
    source = write_case(tmp_path / "in", random_block(1, 8, 4))
    found = modules_after(source, tmp_path / "out", tmp_path=tmp_path)
    assert {name for name in found if name.startswith("hw4cli.device.")} == {
        "hw4cli.device.driver",  # makes a GPU's context meanwhile, where there is one
        "hw4cli.device.presence",
    }
    assert not found & {"hw4cli.stream.cudadevice", "hw4cli.plans.columns"}


def test_help_answers_at_once():
    """0.15 s on a machine that imports click in 0.06 s of processor time: as a ratio, for slow and busy ones."""

    def seconds(*command):
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        subprocess.run([sys.executable, *command], check=True, cwd=ROOT, stdout=subprocess.DEVNULL)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime

    # Side by side: a processor's clock may change by half from one second to the next.
    ratios = [seconds("-m", "hw4cli", "--help") / seconds("-c", "import click") for _ in range(10)]
    assert min(ratios) < 2.5


def test_the_readme_lists_every_package_with_what_it_is_for():
    text = (ROOT / "README.md").read_text()
    missing = [name for name in PACKAGES if not re.search(rf"  {name} +\w", text)]
    assert not missing

"""Fixtures for tests of sessions: three cases of the suite, and programs that log their runs."""

import sys

import pytest
from helpers import make_cases


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A folder with t01 to t03 and their answers."""
    return make_cases(tmp_path_factory.mktemp("cases"), "t01", "t02", "t03")


# A program that looks up the answer of its input, logs each run, and first runs `body`.
CONTESTANT = """#!{python}
import os, pathlib, sys, time, hashlib
folder, log = pathlib.Path({folder!r}), {log!r}
data = pathlib.Path(sys.argv[1]).read_bytes()
[case] = [p for p in folder.iterdir() if p.suffix != ".out" and p.read_bytes() == data]
runs = pathlib.Path(log).read_text().split().count(case.name) if os.path.exists(log) else 0
with open(log, "a") as file:
    file.write(case.name + "\\n")
{body}
pathlib.Path(sys.argv[2]).write_bytes((folder / (case.name + ".out")).read_bytes())
"""


@pytest.fixture
def contestant(tmp_path):
    """Makes such a program for a folder of cases: its path, and a function that returns the cases it ran, in order."""

    def write(folder, body="", name="program"):
        path, log = tmp_path / name, tmp_path / f"{name}.log"
        path.write_text(CONTESTANT.format(python=sys.executable, folder=str(folder), log=str(log), body=body))
        path.chmod(0o755)
        return path, lambda: log.read_text().split() if log.exists() else []

    return write


def judge_args(folder, path, *more):
    """The arguments of hw4 that judge the three cases; no program is too slow for a machine that is busy."""
    limit = ("--limit", "t01-t03=120")
    return ["judge", "t01-t03", *limit, "--dir", str(folder), "--program", str(path), *map(str, more)]

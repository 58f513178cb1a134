"""Fixtures for tests of whole programs: a small case, and programs written for it."""

import sys
from dataclasses import replace

import psutil
import pytest
from helpers import make_cases, tiny_case

from hw4cli.judge.plan import RunSettings
from hw4cli.judge.runcase import judge_case

PLAIN = RunSettings()

START = """#!{python} -S
import ctypes, os, signal, subprocess, sys, time
source, output = sys.argv[1:]
answer = {answer!r}
def right(path=output):
    with open(path, "wb") as file:
        file.write({bytes!r})
def daemon(work):
    "A process in a session of its own whose parents have ended."
    if os.fork() == 0:
        os.setsid()
        if os.fork() == 0:
            signal.signal(signal.SIGTERM, signal.SIG_IGN)
            work()
        os._exit(0)
"""


@pytest.fixture(scope="module")
def cases(tmp_path_factory):
    case = tiny_case()
    return case, make_cases(tmp_path_factory.mktemp("testcases"), case)


@pytest.fixture
def contestant(cases, tmp_path):
    """Makes an executable program with a body, in which `right()` writes the right output and `answer` is its path."""
    case, folder = cases
    answer = case.answer_path(folder)

    def write(body):
        path = tmp_path / "contestant"
        head = START.format(python=sys.executable, answer=str(answer), bytes=answer.read_bytes())
        path.write_text(f"{head}{body}\n")
        path.chmod(0o755)
        return path

    return write


@pytest.fixture(autouse=True)
def nothing_is_left(cases, tmp_path, monkeypatch):
    """After the test no process and no private folder is left, and the cases' files are unchanged."""
    _, folder = cases
    private = tmp_path / "private"
    private.mkdir()
    monkeypatch.setattr("hw4cli.sandbox.staging.MEMORY", private)
    before = {path.name: path.read_bytes() for path in folder.iterdir()}
    yield
    alive = [p.info["cmdline"] for p in psutil.process_iter(["cmdline"]) if names(p, tmp_path)]
    assert not alive
    assert list(private.iterdir()) == []
    assert {path.name: path.read_bytes() for path in folder.iterdir()} == before


def names(process, folder):
    """Whether a folder is in a process's command line."""
    return any(str(folder) in argument for argument in process.info["cmdline"] or [])


def judged(cases, command, settings=PLAIN, limit=30.0):
    case, folder = cases
    return judge_case(replace(case, limit=limit), [str(argument) for argument in command], folder, settings)


def cheat(guesses):
    """The body of a program that copies a file of the answer's size from one of these paths."""
    return (
        f"for guess in {guesses}:\n"
        " try:\n"
        "  data = os.path.isfile(guess) and open(guess, 'rb').read()\n"
        "  if data and len(data) == 2560: open(output, 'wb').write(data)\n"
        " except OSError: pass\n"
    )

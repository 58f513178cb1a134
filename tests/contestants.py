"""What the tests of whole programs share: a small case, and programs written for it."""

import sys
from dataclasses import replace

import psutil
import pytest

from hw4cli.judge.runcase import Settings, judge_case
from hw4cli.problem.generate import Job, make
from hw4cli.problem.oracle import exact_attention
from hw4cli.problem.shape import Shape
from hw4cli.problem.suite import Case

SHAPE = Shape(2, 40, 8)
PLAIN = Settings()

START = """#!{python} -S
import ctypes, os, signal, subprocess, sys, time
source, output = sys.argv[1:]
answer = {answer!r}
def right(path=output):
    with open(path, "wb") as file:
        file.write({bytes!r})
def daemon(work):
    "A process in a session of its own whose parents have gone."
    if os.fork() == 0:
        os.setsid()
        if os.fork() == 0:
            signal.signal(signal.SIGTERM, signal.SIG_IGN)
            work()
        os._exit(0)
"""


@pytest.fixture(scope="module")
def cases(tmp_path_factory):
    folder = tmp_path_factory.mktemp("testcases")
    case = Case("tiny", SHAPE, 1, 30.0, "")
    make(Job(case.input_path(folder), case.answer_path(folder), SHAPE, 1), exact_attention, lambda _: None)
    return case, folder


@pytest.fixture
def contestant(cases, tmp_path):
    """Makes an executable program of a body; `right()` in it writes the right output, `answer` is where that lies."""
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
    """No process, no folder, and the cases' files byte by byte as before."""
    _, folder = cases
    private = tmp_path / "private"
    private.mkdir()
    monkeypatch.setattr("hw4cli.runner.staging.MEMORY", private)
    before = {path.name: path.read_bytes() for path in folder.iterdir()}
    yield
    alive = [p.info["cmdline"] for p in psutil.process_iter(["cmdline"]) if lives(p, tmp_path)]
    assert not alive
    assert list(private.iterdir()) == []
    assert {path.name: path.read_bytes() for path in folder.iterdir()} == before


def lives(process, folder):
    return any(str(folder) in word for word in process.info["cmdline"] or [])


def judged(cases, command, settings=PLAIN, limit=30.0, monkeypatch=None):
    case, folder = cases
    if monkeypatch:
        for module in ("judge.runcase", "scoring.record"):
            monkeypatch.setattr(f"hw4cli.{module}.KILL_AFTER", 0.5)
    return judge_case(replace(case, limit=limit), [str(word) for word in command], folder, settings)


def cheat(guesses):
    return (
        f"for guess in {guesses}:\n"
        " try:\n"
        "  data = os.path.isfile(guess) and open(guess, 'rb').read()\n"
        "  if data and len(data) == 2560: open(output, 'wb').write(data)\n"
        " except OSError: pass\n"
    )

"""Fixtures for tests of attacks: an arena with a small case, adversarial programs, and the users that judge them."""

import os
import pickle
import shutil
import subprocess
import sys
import tempfile
import time
import traceback
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import psutil
import pytest
from helpers import make_cases, tiny_case

from hw4cli.errors import MachineError
from hw4cli.judge.plan import RunSettings
from hw4cli.judge.runcase import judge_case
from hw4cli.judge.scoring.record import decide
from hw4cli.sandbox import sandbox
from hw4cli.system.account import account

IS_ROOT = os.geteuid() == 0
NOBODY = 65534
# Root's tests judge as root and as an ordinary user; those of an ordinary user cannot become root.
JUDGES = ["root", "a user"] if IS_ROOT else ["a user"]

# `answer` is the answer's path; `right()` writes the right output without reading it; `steal()` copies a file of its
# size from one of several paths.
HEAD = """#!{python} -S
import ctypes, fcntl, os, resource, signal, socket, struct, subprocess, sys, time
source, output = sys.argv[1:]
answer, base, libc = {answer!r}, {base!r}, ctypes.CDLL(None, use_errno=True)
def right(path=output):
    with open(path, "wb") as file:
        file.write({bytes!r})
def steal(*places):
    for place in places:
        try:
            with open(place, "rb") as file:
                data = file.read()
        except OSError:
            continue
        if len(data) == {size}:
            with open(output, "wb") as file:
                file.write(data)
def daemon(work):
    "A process in a session of its own whose parents have ended."
    if os.fork() == 0:
        os.setsid()
        if os.fork() == 0:
            work()
        os._exit(0)
"""
# Overwrites, removes and opens up all files of the course that it finds, the answer and others' results first.
OVERWRITES = """
paths = [os.path.join(f, n) for f, _, names in os.walk(base) for n in names if not f.startswith(os.getcwd())]
for path in [answer, base + '/results/right0/journal.jsonl', *paths]:
    for attack in (lambda: open(path, 'wb').write(b'mine'), lambda: os.remove(path), lambda: os.chmod(path, 0o777)):
        try: attack()
        except OSError: pass
"""


def system_python():
    """A Python that every user may run, and that a sandbox shows."""
    for name in (os.path.realpath(sys.executable), "/usr/local/bin/python3", "/usr/bin/python3"):
        if os.access(name, os.X_OK) and any(Path(name).is_relative_to(folder) for folder in ("/usr", "/opt")):
            return name
    return pytest.skip("there is no Python in /usr or /opt")


def needs_bwrap(user=""):
    """Skip a test where there is no sandbox."""
    sandbox.privilege_options.cache_clear()
    try:
        sandbox.privilege_options(account(user))
    except MachineError as error:
        pytest.skip(str(error))


def has_capability(number):
    """Whether this process has a capability; root in a container often lacks some."""
    [line] = [line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith("CapEff")]
    return bool(int(line.split()[1], 16) >> number & 1)


def done_by(judge, work, apart=False):
    """The result of `work()`, in this process or, for an ordinary user, in a child process. With `apart` always in a
    child, so that changes of the process do not affect the tests."""
    is_user = judge == "a user" and IS_ROOT
    if not is_user and not apart:
        return work()
    reader, writer = os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            if is_user:
                os.setgroups([])
                os.setresgid(NOBODY, NOBODY, NOBODY)
                os.setresuid(NOBODY, NOBODY, NOBODY)
            sandbox.privilege_options.cache_clear()
            found = work()
        except BaseException:
            found = traceback.format_exc()
        with os.fdopen(writer, "wb") as file:
            pickle.dump(found, file)
        os._exit(0)
    os.close(writer)
    with os.fdopen(reader, "rb") as file:
        found = pickle.load(file)
    os.waitpid(pid, 0)
    assert not (isinstance(found, str) and found.startswith("Traceback")), found
    return found


def processes_naming(text, seconds=5):
    """The command lines with this text of processes that have not ended within so many seconds."""
    deadline = time.monotonic() + seconds
    while True:
        found = []
        for process in psutil.process_iter(["cmdline", "status"]):
            command = process.info["cmdline"] or ()
            if process.info["status"] != psutil.STATUS_ZOMBIE and any(text in argument for argument in command):
                found.append(command)
        if not found or time.monotonic() > deadline:
            return found
        time.sleep(0.05)


class Arena:
    """A folder that every user may enter, with a case and programs; `judge` is the user who judges them."""

    def __init__(self, base, judge):
        self.base, self.judge = base, judge
        self.users = ["", "nobody"] if judge == "root" else [""]  # the users that programs can run as
        self.cases, self.private, self.programs = (base / name for name in ("cases", "private", "programs"))
        for folder in (self.cases, self.private, self.programs):
            folder.mkdir()
        self.case = tiny_case()
        self.answer = self.case.answer_path(make_cases(self.cases, self.case))
        (base / "outside").write_text("ours")
        if judge == "a user" and IS_ROOT:
            subprocess.run(["chown", "-R", f"{NOBODY}:{NOBODY}", base], check=True)
        self._before = self._files()

    def _files(self):
        paths = [self.base / "outside", *sorted(self.cases.iterdir())]
        return {str(path): (path.read_bytes(), path.stat().st_mode, path.stat().st_uid) for path in paths}

    def program(self, body, name="program"):
        """An executable program in a folder of its own."""
        folder = self.programs / name
        folder.mkdir(exist_ok=True)
        data = self.answer.read_bytes()
        names = {"python": system_python(), "answer": str(self.answer), "base": str(self.base)}
        path = folder / "hw4"
        path.write_text(f"{HEAD.format(bytes=data, size=len(data), **names)}{body}\n")
        path.chmod(0o755)
        if self.judge == "a user" and IS_ROOT:
            subprocess.run(["chown", "-R", f"{NOBODY}:{NOBODY}", folder], check=True)
        return path

    def attempt(self, body, sandbox="none", user="", limit=30.0, command=None, **settings):
        """The attempt of a program with this body."""
        command = command or [str(self.program(body))]
        kind = {"sandbox": "none", "contained": True} if sandbox == "processes" else {"sandbox": sandbox}
        settings = RunSettings(**kind, run_as=user, **settings)
        case = replace(self.case, limit=limit)
        return done_by(self.judge, lambda: judge_case(case, command, self.cases, settings))

    def judged(self, *args, **kwargs):
        """The verdict and the reason of a program with this body."""
        return decide(self.attempt(*args, **kwargs))

    def check(self):
        """No process and no private folder is left, and all other files are unchanged."""
        assert processes_naming(str(self.base)) == []
        assert list(self.private.iterdir()) == []
        assert self._files() == self._before


@pytest.fixture(params=JUDGES)
def arena(request, monkeypatch):
    """An arena for root and one for a user; after the test it is checked that nothing in it has changed."""
    base = Path(tempfile.mkdtemp(prefix="hw4-arena-", dir="/tmp"))
    base.chmod(0o755)
    try:
        arena = Arena(base, request.param)
        monkeypatch.setattr("hw4cli.sandbox.staging.MEMORY", arena.private)
        monkeypatch.setattr("tempfile.tempdir", str(arena.private))
        sandbox.privilege_options.cache_clear()
        yield arena
        arena.check()
    finally:
        with suppress(OSError):
            shutil.rmtree(base)

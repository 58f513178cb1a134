"""What the tests of attacks share: an arena with a small case, adversarial programs, and the users that judge them."""

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
from hw4cli.judge.runcase import Settings, judge_case
from hw4cli.runner import sandbox
from hw4cli.scoring.record import decide
from hw4cli.system.account import account

IS_ROOT = os.geteuid() == 0
NOBODY = 65534
# Root's tests judge as root and as an ordinary user; an ordinary user's cannot be root.
JUDGES = ["root", "a user"] if IS_ROOT else ["a user"]

# `answer` is where the answer lies, `right()` writes it without looking there, `steal()` writes what a place holds.
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
    "A process in a session of its own whose parents have gone."
    if os.fork() == 0:
        os.setsid()
        if os.fork() == 0:
            work()
        os._exit(0)
"""
# Writes into whatever it finds of the course, the answer and the others' results before all.
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
    sandbox.privileges.cache_clear()
    try:
        sandbox.privileges(account(user))
    except MachineError as error:
        pytest.skip(str(error))


def has_capability(number):
    """Whether root may here what root may elsewhere: in a container, often not."""
    [line] = [line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith("CapEff")]
    return bool(int(line.split()[1], 16) >> number & 1)


def done_by(judge, work, apart=False):
    """What `work()` gives, done by this process or, as an ordinary user, by a child of it. With `apart` always by a
    child: what happens to it does not happen to us."""
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
            sandbox.privileges.cache_clear()
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


def lives(word):
    """The processes with this word in their command, but for zombies, after they had some time to die."""
    deadline = time.monotonic() + 5
    while True:
        found = []
        for process in psutil.process_iter(["cmdline", "status"]):
            words = process.info["cmdline"] or ()
            if process.info["status"] != psutil.STATUS_ZOMBIE and any(word in one for one in words):
                found.append(words)
        if not found or time.monotonic() > deadline:
            return found
        time.sleep(0.05)


class Arena:
    """A folder that everyone may enter, with a case in it; programs are judged there, by `judge`."""

    def __init__(self, base, judge):
        self.base, self.judge = base, judge
        self.users = ["", "nobody"] if judge == "root" else [""]  # whom programs can run as
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
        places = [self.base / "outside", *sorted(self.cases.iterdir())]
        return {str(path): (path.read_bytes(), path.stat().st_mode, path.stat().st_uid) for path in places}

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
        """What is seen of a program of this body."""
        command = command or [str(self.program(body))]
        kind = {"sandbox": "none", "contained": True} if sandbox == "processes" else {"sandbox": sandbox}
        settings = Settings(**kind, run_as=user, **settings)
        case = replace(self.case, limit=limit)
        return done_by(self.judge, lambda: judge_case(case, command, self.cases, settings))

    def judged(self, *args, **kwargs):
        """The verdict and the reason of a program of this body."""
        return decide(self.attempt(*args, **kwargs))

    def check(self):
        """Nothing lives on, nothing is left, and what was there is as it was."""
        assert lives(str(self.base)) == []
        assert list(self.private.iterdir()) == []
        assert self._files() == self._before


@pytest.fixture(params=JUDGES)
def arena(request, monkeypatch):
    """An arena, judged in by root and by a user; whatever is tried in it, it is as before in the end."""
    base = Path(tempfile.mkdtemp(prefix="hw4-arena-", dir="/tmp"))
    base.chmod(0o755)
    try:
        arena = Arena(base, request.param)
        monkeypatch.setattr("hw4cli.runner.staging.MEMORY", arena.private)
        monkeypatch.setattr("tempfile.tempdir", str(arena.private))
        sandbox.privileges.cache_clear()
        yield arena
        arena.check()
    finally:
        with suppress(OSError):
            shutil.rmtree(base)

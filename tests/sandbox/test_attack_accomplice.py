"""Attacks with an accomplice: another local user of the judging machine, who takes over or hands in files."""

import json
import os
import stat
import subprocess
import sys
from contextlib import contextmanager
from pathlib import Path

import pytest
from attacks import arena, needs_bwrap, system_python

from hw4cli import resources
from hw4cli.problem.verdict import Verdict

__all__ = ["arena"]
AC, NA, JE = Verdict.AC, Verdict.NA, Verdict.JE

# Looks at all below a folder until its input ends, and prints the permissions of each path that it has seen.
WATCHER = """
import json, os, select, sys
seen = {}
while not select.select([sys.stdin], [], [], 0.002)[0]:
    for folder, folders, files in os.walk(sys.argv[1]):
        for path in (folder, *(os.path.join(folder, name) for name in files)):
            try: mode = os.lstat(path).st_mode
            except OSError: continue
            seen[path] = [*seen.get(path, ()), mode][-1:] if mode & 0o6000 == 0 else [mode]
print(json.dumps(seen))
"""


@contextmanager
def watched(folder):
    """Within the block a process watches a folder; then the permissions that paths below it had, by path."""
    command = [sys.executable, "-c", WATCHER, str(folder)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        seen = {}
        try:
            yield seen
        finally:
            printed, _ = process.communicate()
        seen.update({path: modes[0] for path, modes in json.loads(printed).items()})


def open_to_others(seen, folder):
    """The paths below a folder that another user can reach, and those that run as their owner."""
    for path, mode in seen.items():
        between = [above for above in Path(path).parents if above.is_relative_to(folder) and above != folder]
        is_open = all(seen.get(str(above), 0) & 0o001 for above in between) and mode & 0o007
        if (is_open and not stat.S_ISDIR(mode)) or mode & 0o6000:
            yield path, oct(mode)


LEAVES_SETUID = """
os.chmod(".", 0o777)
with open("/bin/true", "rb") as file: data = file.read()
for place in (".", "/tmp"):
    with open(f"{place}/rootshell", "wb") as file: file.write(data)
    for change in (lambda: os.chmod(f"{place}/rootshell", 0o4755), lambda: os.chmod(f"{place}/rootshell", 0o755)):
        try: change()
        except PermissionError: pass
mine = socket.socket(socket.AF_UNIX); mine.bind("door"); mine.listen(); os.chmod("door", 0o777)
time.sleep(0.3)
right()
"""


@pytest.mark.parametrize("arena", ["root", "a user"], indirect=True)
def test_no_other_user_reaches_what_a_program_in_the_sandbox_writes(arena):
    """Neither a program that would run as its owner, nor a socket, nor a plain file."""
    for user in arena.users:
        needs_bwrap(user)
        with watched(arena.private) as seen:
            assert arena.judged(LEAVES_SETUID, "bwrap", user) == (AC, "")
        assert list(open_to_others(seen, arena.private)) == [], user


@pytest.fixture
def environment(arena, monkeypatch):
    """An activated virtual environment in which hw4 is installed, and another package."""
    site = arena.base / "venv" / "lib" / "python3.11" / "site-packages"
    for name in ("hw4cli", "numpy"):
        (site / name).mkdir(parents=True)
        (site / name / "kernels.py").write_text("")
    monkeypatch.setenv("VIRTUAL_ENV", str(arena.base / "venv"))
    resources.installations.cache_clear()
    yield arena.base / "venv"
    resources.installations.cache_clear()


IMPORTS = """
import glob
sys.path[:0] = glob.glob(os.environ["VIRTUAL_ENV"] + "/lib/python3*/site-packages")
import {module}.kernels
right()
"""


def test_the_judges_own_package_is_hidden_though_its_environment_is_visible(arena, environment):
    for user in arena.users:
        needs_bwrap(user)
        verdict, reason = arena.judged(IMPORTS.format(module="hw4cli"), "bwrap", user)
        assert (verdict, "hw4cli" in reason) == (NA, True), reason
        assert arena.judged(IMPORTS.format(module="numpy"), "bwrap", user) == (AC, "")
        assert arena.judged(IMPORTS.format(module="hw4cli"), "bwrap", user, own=True) == (AC, "")


def test_a_mounted_path_is_visible_and_read_only(arena):
    data = arena.base / "data" / "table"
    data.parent.mkdir()
    data.write_text("ours")
    body = f"assert open({str(data)!r}).read() == 'ours'\ntry: open({str(data)!r}, 'w')\nexcept OSError: right()"
    for user in arena.users:
        needs_bwrap(user)
        assert arena.judged(body, "bwrap", user)[0] is NA
        for path in (data, data.parent):
            assert arena.judged(body, "bwrap", user, mounts=(str(path),)) == (AC, "")


KEYS = """
for path in ("/proc/keys", "/proc/key-users"):
    try: assert open(path).read() == "", path
    except OSError: pass
assert system_keyctl(0, -3, 1) == -1 and system_keyctl(6, -3) == -1, "the session keyring is there"
right()
""".replace("system_keyctl", "(lambda *words: libc.syscall({keyctl}, *map(ctypes.c_long, words)))")


def test_no_key_is_in_reach(arena):
    keyctl = {"x86_64": 250, "aarch64": 219}[os.uname().machine]
    for user in arena.users:
        needs_bwrap(user)
        assert arena.judged(KEYS.replace("{keyctl}", str(keyctl)), "bwrap", user) == (AC, "")


HIDDEN = """
for path in os.listdir("/proc"):
    if path.isdigit():
        for name in ("cmdline", "environ"):
            try: text = open(f"/proc/{path}/{name}", "rb").read()
            except OSError: continue
            assert os.fsencode(os.path.dirname(answer)) not in text, (path, name)
right()
"""


def test_no_command_line_names_the_hidden_folders(arena):
    body = HIDDEN.replace("answer)", repr(str(arena.answer)) + ")")
    for user in arena.users:  # the folder of the cases lies in one that the sandbox shows, so that bwrap has to hide it
        needs_bwrap(user)
        assert arena.judged(body, "bwrap", user, mounts=(str(arena.base),)) == (AC, "")


ROOTS_FILES = """
for path in ("/etc/shadow", "/etc/gshadow", {secret!r}):
    try: assert open(path).read() == "", path
    except OSError: pass
right()
"""


@pytest.mark.parametrize("arena", ["root"], indirect=True)
def test_root_without_privileges_reads_no_file_of_the_system_that_only_root_may_read(arena):
    needs_bwrap()
    assert system_python()
    assert arena.judged(ROOTS_FILES.format(secret="/etc/shadow-"), "bwrap") == (AC, "")

"""The sandbox: what right programs find in it, and the messages where it is missing or does not work."""

import os
import shutil
import time
from pathlib import Path

import pytest
from attacks import arena, needs_bwrap
from helpers import set_kill_after

from hw4cli.problem.verdict import Verdict
from hw4cli.sandbox import sandbox

__all__ = ["arena"]
AC, TLE_PLUS, NA, JE = Verdict.AC, Verdict.TLE_PLUS, Verdict.NA, Verdict.JE

ACCEPTED = {
    "is right": "right()",
    "finds its own folder": (
        "here = os.getcwd()\n"
        "assert os.listdir('.') == [os.path.basename(source)] and os.path.dirname(source) == here, os.listdir('.')\n"
        "assert os.environ['HOME'] == os.environ['PWD'] == here; right()"
    ),
    "finds its own files": (
        "assert os.listdir(os.path.dirname(sys.argv[0])) == ['hw4'], os.listdir(os.path.dirname(sys.argv[0])); right()"
    ),
    "writes temporary files": (
        "import tempfile; tempfile.TemporaryFile(dir='/tmp'); tempfile.TemporaryFile(dir='/dev/shm'); right()"
    ),
    "looks for other processes": "assert len([p for p in os.listdir('/proc') if p.isdigit()]) < 5; right()",
    "may start thousands of processes, and no more": (
        "assert 0 < resource.getrlimit(resource.RLIMIT_NPROC)[1] <= 4096; subprocess.run(['/bin/true']); right()"
    ),
    "leaves a daemon": "daemon(lambda: time.sleep(300)); right()",
}
REFUSED = {
    "writes into the system": ("open('/usr/mine', 'w')", "Read-only file system"),
    "is larger than its file may be": ("open('big', 'wb').truncate(1 << 30)", "File too large"),
}


@pytest.mark.parametrize("name", ACCEPTED)
def test_a_right_program_finds_its_files_and_no_other_process(arena, name):
    for user in arena.users:
        needs_bwrap(user)
        assert arena.judged(ACCEPTED[name], "bwrap", user) == (AC, "")


@pytest.mark.parametrize("name", REFUSED)
def test_a_program_that_exceeds_its_bounds_is_refused(arena, name):
    body, words = REFUSED[name]
    for user in arena.users:
        needs_bwrap(user)
        verdict, reason = arena.judged(body, "bwrap", user)
        assert (verdict, words in reason) == (NA, True), (user, reason)


def test_a_program_that_does_not_end_is_killed_with_all_its_processes(arena, monkeypatch):
    set_kill_after(monkeypatch, 0.5)
    for user in arena.users:
        needs_bwrap(user)
        verdict, reason = arena.judged("daemon(lambda: time.sleep(300)); time.sleep(300)", "bwrap", user, limit=0.3)
        assert (verdict, "killed after" in reason) == (TLE_PLUS, True), (user, reason)


@pytest.fixture
def another_bwrap(arena, monkeypatch):
    """Replaces bwrap by a script; in it, $real is the path of bwrap."""

    def install(body):
        path = arena.base / "bin" / "bwrap"
        path.parent.mkdir()
        path.write_text(f"#!/bin/sh\nreal={shutil.which('bwrap')}\n{body}\n")
        path.chmod(0o755)
        monkeypatch.setenv("PATH", f"{path.parent}:{os.environ['PATH']}")

    return install


def test_the_sandbox_is_not_timed(arena, another_bwrap):
    """The clock starts when the sandbox is ready."""
    needs_bwrap()
    another_bwrap('sleep 0.7\nexec $real "$@"')
    start = time.monotonic()
    attempt = arena.attempt("right()", "bwrap")
    assert time.monotonic() - start >= 0.7 + attempt.wall


def test_a_program_that_cannot_be_started_in_the_sandbox_is_refused_with_the_cause(arena):
    needs_bwrap()
    program = arena.program("")
    for text, reason in (
        ("#!/usr/bin/python9\n", "its first line names the interpreter /usr/bin/python9, which cannot be run here"),
        ("#!/bin/sh\r\n", "its first line ends as Windows ends lines (\\r\\n): save it with plain \\n"),
        (
            "echo hello\n",
            "it is not a program for this machine (a script needs a first line such as #!/usr/bin/env python3)",
        ),
    ):
        program.write_text(text)
        assert arena.judged("", "bwrap", command=[str(program)]) == (NA, f"{program} cannot be started: {reason}")


def test_without_bubblewrap_the_judge_says_what_to_install(arena, monkeypatch):
    program = arena.program("right()")
    monkeypatch.setenv("PATH", "/nowhere")
    sandbox.privilege_options.cache_clear()
    verdict, reason = arena.judged("", "bwrap", command=[str(program)])
    assert (verdict, "apt install bubblewrap" in reason) == (JE, True)


def test_a_bubblewrap_that_does_not_work_is_the_judges_failure(arena, another_bwrap):
    another_bwrap("echo 'bwrap: No permissions to create new namespace' >&2; exit 1")
    sandbox.privilege_options.cache_clear()
    verdict, reason = arena.judged("right()", "bwrap")
    assert (verdict, "user namespaces" in reason) == (JE, True)


@pytest.mark.parametrize("sandbox", ["processes", "bwrap"])
def test_a_failure_of_bwrap_itself_is_the_judges_failure(arena, another_bwrap, sandbox):
    """It is distinguished from a program's failure by whether the gate process started, not by the message."""
    needs_bwrap()
    another_bwrap('case "$*" in *shift*exec*) echo "no luck" >&2; exit 1;; esac\nexec $real "$@"')
    assert arena.judged("right()", sandbox) == (JE, "the sandbox cannot be made: no luck")


def test_a_program_in_the_sandbox_ends_as_it_does_outside(arena):
    needs_bwrap()
    for body, reason in (
        ("ctypes.string_at(0)", "ended by signal 11 (SIGSEGV)"),
        ("os.abort()", "ended by signal 6 (SIGABRT)"),
        ("sys.exit(3)", "exit code 3"),
        ("sys.exit(-1)", "exit code 255"),
        ("assert sys.stdin.read() == ''; assert os.getsid(0) in (1, os.getpid()); right()", ""),
        ("assert signal.getsignal(signal.SIGINT) is not signal.SIG_IGN; right()", ""),
    ):
        for kind in ("none", "processes", "bwrap"):
            assert arena.judged(body, kind)[1] == reason, kind


def test_of_two_mounts_in_one_place_the_one_above_is_what_a_hidden_folder_lies_in():
    mounts = [
        ("8:1", Path("/"), Path("/")),
        ("8:2", Path("/"), Path("/cases")),
        ("8:3", Path("/exports"), Path("/cases")),
        ("8:2", Path("/"), Path("/usr/old")),
        ("8:3", Path("/"), Path("/usr/all")),
    ]
    assert [*sandbox._aliases(Path("/cases/kept"), mounts)] == [Path("/cases/kept"), Path("/usr/all/exports/kept")]

"""One run of a program: what it finds, which facts are recorded, and why it could not be started."""

import os
import platform
import resource
import struct
import subprocess
import sys
import time
from pathlib import Path

import pytest
from contestants import cases, cheat, contestant, judged, nothing_is_left
from helpers import holds_once
from slow import slow

from hw4cli.judge.plan import RunSettings
from hw4cli.judge.scoring.record import decide
from hw4cli.problem.verdict import Verdict
from hw4cli.system.exits import MACHINES

__all__ = ["cases", "contestant", "nothing_is_left"]
AC, NA = Verdict.AC, Verdict.NA


def test_a_program_sees_a_new_folder_with_only_its_input(cases, contestant):
    body = (
        "here = os.getcwd()\n"
        "assert os.listdir('.') == [os.path.basename(source)], os.listdir('.')\n"
        "assert os.path.dirname(source) == os.path.dirname(output) == here\n"
        "assert os.environ['HOME'] == os.environ['TMPDIR'] == os.environ['PWD'] == here\n"
        "assert os.getsid(0) == os.getpid()\n"
        "right()"
    )
    for _ in range(2):
        assert decide(judged(cases, [contestant(body)]))[0] is AC


GUESSES = {
    "beside the input": "[source + '.out', os.path.dirname(source) + '/tiny.out', '../tiny.out', 'tiny.out']",
    "in the environment": "[v for v in os.environ.values()] + [v + '/tiny.out' for v in os.environ.values()]",
    "among the judge's open files": "['/proc/%d/fd/%d' % (os.getppid(), n) for n in range(64)]",
    "in its own open files": "['/proc/self/fd/%d' % n for n in range(3, 64)]",
}


@pytest.mark.parametrize("where", GUESSES)
def test_the_answer_cannot_be_found(cases, contestant, where, monkeypatch):
    case, folder = cases
    monkeypatch.chdir(folder)
    for name, value in (("CASES", folder), ("ANSWER", case.answer_path(folder)), ("OLDPWD", folder)):
        monkeypatch.setenv(name, str(value))
    assert decide(judged(cases, [contestant(cheat(GUESSES[where]))])) == (NA, "no output file")


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read every process's files outside the sandbox")
def test_the_judges_working_directory_cannot_be_found_through_proc(cases, contestant, monkeypatch):
    monkeypatch.chdir(cases[1])
    body = cheat("['/proc/%d/cwd/tiny.out' % os.getppid()]")
    assert decide(judged(cases, [contestant(body)])) == (NA, "no output file")


def test_a_path_relative_to_the_callers_folder_is_found(cases, contestant, monkeypatch, tmp_path):
    contestant("sys.exit(source)")
    monkeypatch.chdir(tmp_path)
    assert "exit code 1: " in decide(judged(cases, ["./contestant"]))[1]
    assert decide(judged(cases, [sys.executable, "contestant"]))[1].startswith("exit code 1: /")


HERE = {name: number for number, name in MACHINES.items()}.get(platform.machine(), 62)


def elf_program(loader):
    """A program for this machine that names a loader; nothing else is in it."""
    head = struct.pack("<16sHHIQQQIHHHHHH", b"\x7fELF\x02\x01\x01", 2, HERE, 1, 120, 64, 0, 0, 64, 56, 1, 0, 0, 0)
    place = struct.pack("<IIQQQQQQ", 3, 4, 120, 0, 0, len(loader), len(loader), 1)
    return head + place + loader


NOT_STARTED = {
    "missing": (None, 0o755, "there is no such file"),
    "not a program": (b"hello", 0o644, "it is not executable"),
    "not executable": (b"#!/bin/sh\n", 0o644, "it is not executable (chmod +x program)"),
    "empty": (b"", 0o755, "it is an empty file"),
    "no first line": (b"echo hello", 0o755, "a script needs a first line such as #!"),
    "no interpreter": (b"#!/usr/bin/python9\n", 0o755, "the interpreter /usr/bin/python9, which cannot be run here"),
    "from Windows": (b"#!/bin/sh\r\necho\r\n", 0o755, "as Windows ends lines"),
    "from Windows, by env": (b"#!/usr/bin/env python3\r\nprint()\r\n", 0o755, "as Windows ends lines"),
    "without its loader": (
        elf_program(b"/lib/ld-none.so.9\0"),
        0o755,
        "the loader that it was built for (ld.so) is not",
    ),
    "for a SPARC": (b"\x7fELF\x02\x01\x01" + bytes(9) + b"\x02\x00\x02\x00", 0o755, "it was built for"),
}


@pytest.mark.parametrize("name", NOT_STARTED)
def test_a_program_that_cannot_be_started_is_refused_with_the_cause(cases, tmp_path, name):
    content, mode, words = NOT_STARTED[name]
    path = tmp_path / "program"
    if content is not None:
        path.write_bytes(content)
        path.chmod(mode)
    verdict, reason = decide(judged(cases, [path]))
    assert verdict is NA
    assert reason.startswith(f"{path} cannot be started: ")
    assert words in reason


def test_a_folder_is_not_a_program(cases, tmp_path):
    assert decide(judged(cases, [tmp_path])) == (NA, f"{tmp_path} cannot be started: it is a folder")


def test_the_last_line_of_a_long_stderr_is_kept(cases, contestant):
    body = "os.write(2, b'x\\n' * 500_000); os.write(2, b'the end\\n'); sys.exit(3)"
    assert decide(judged(cases, [contestant(body)])) == (NA, "exit code 3: the end")


def test_processor_time_memory_and_staging_are_recorded(cases, contestant):
    size = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss << 10) + (1 << 28)  # more than this process ever had
    hungry = f"block = b'x' * {size}\nwhile time.process_time() < 0.2: pass\nright()"
    attempt = judged(cases, [contestant(hungry)])
    assert attempt.user + attempt.system >= 0.2
    assert size <= attempt.peak_rss < size + (1 << 30)
    assert attempt.staged == "memory"


def test_files_are_staged_on_disk_when_memory_is_short(cases, contestant, monkeypatch, tmp_path):
    monkeypatch.setattr("hw4cli.sandbox.staging.free_memory", lambda: 1000)
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    attempt = judged(cases, [contestant("right()")])
    assert (attempt.staged, decide(attempt)[0]) == ("disk", AC)


def test_deep_and_unreadable_folders_are_removed(cases, contestant, tmp_path):
    parent = tmp_path / "parent"
    parent.mkdir()
    dig = "for _ in range(3000): os.mkdir('d'); os.chdir('d')\n"
    close = "os.chdir(os.environ['HOME']); os.makedirs('a/b'); os.chmod('a/b', 0); os.chmod('a', 0); os.chmod('.', 0)"
    judged(cases, [contestant(dig + close)], settings=RunSettings(parent=parent))
    assert list(parent.iterdir()) == []


def test_core_files_are_not_written_and_files_are_limited(cases, contestant):
    body = (
        "import resource\n"
        "assert resource.getrlimit(resource.RLIMIT_CORE) == (0, 0)\n"
        "assert resource.getrlimit(resource.RLIMIT_FSIZE)[0] == 2560 + (64 << 20)\n"
        "assert resource.getrlimit(resource.RLIMIT_AS)[0] == resource.RLIM_INFINITY\n"
        "right()"
    )
    assert decide(judged(cases, [contestant(body)])) == (AC, "")


@slow
def test_the_judge_adds_less_to_a_small_case_than_five_starts_of_its_program(cases, tmp_path):
    """Compared with starts between them, as milliseconds alone would say how fast this machine is, and how busy."""
    program = tmp_path / "copy"
    program.write_text(f"#!/bin/sh\ncp {cases[0].answer_path(cases[1])} $2\n")
    program.chmod(0o755)
    alone, judges = [], []

    def added():
        start = time.monotonic()
        subprocess.run([program, cases[0].input_path(cases[1]), tmp_path / "output"], check=True)
        alone.append(time.monotonic() - start)
        start = time.monotonic()
        attempt = judged(cases, [program])
        judges.append(time.monotonic() - start - attempt.wall)
        assert decide(attempt)[0] is AC
        return len(alone) >= 5 and min(judges) < 5 * min(alone)

    assert holds_once(added, tries=100)


def test_a_programs_limits_do_not_stay_on_the_judge(cases, contestant):
    import resource

    before = [resource.getrlimit(limit) for limit in (resource.RLIMIT_CORE, resource.RLIMIT_FSIZE)]
    judged(cases, [contestant("right()")])
    assert [resource.getrlimit(limit) for limit in (resource.RLIMIT_CORE, resource.RLIMIT_FSIZE)] == before
    assert Path("/proc/self/fd").is_dir()

"""A zoo of contestants: each gets its verdict and reason; nothing of it lives on, and no file of ours is touched."""

import fcntl
import os
import stat
import sys
import time
from dataclasses import replace
from pathlib import Path

import psutil
import pytest

from hw4cli import sandbox
from hw4cli.errors import MachineError
from hw4cli.generate import Job, make
from hw4cli.judge import Settings, judge_case
from hw4cli.record import decide
from hw4cli.reference import exact_attention
from hw4cli.shape import Shape
from hw4cli.suite import Case
from hw4cli.verdict import Verdict

SHAPE = Shape(2, 40, 8)
AC, TLE, TLE_PLUS, NA, JE = Verdict.AC, Verdict.TLE, Verdict.TLE_PLUS, Verdict.NA, Verdict.JE

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
    monkeypatch.setattr("hw4cli.staging.MEMORY", private)
    before = {path.name: path.read_bytes() for path in folder.iterdir()}
    yield
    alive = [p.info["cmdline"] for p in psutil.process_iter(["cmdline"]) if lives(p, tmp_path)]
    assert not alive
    assert list(private.iterdir()) == []
    assert {path.name: path.read_bytes() for path in folder.iterdir()} == before


def lives(process, folder):
    return any(str(folder) in word for word in process.info["cmdline"] or [])


PLAIN = Settings()


def judged(cases, command, settings=PLAIN, limit=30.0, monkeypatch=None):
    case, folder = cases
    if monkeypatch:
        for module in ("judge", "record"):
            monkeypatch.setattr(f"hw4cli.{module}.KILL_AFTER", 0.5)
    return judge_case(replace(case, limit=limit), [str(word) for word in command], folder, settings)


ZOO = {
    "right": ("right()", AC, ""),
    "forks a daemon that keeps writing": (
        "def work():\n while True: right('log'); time.sleep(0.001)\ndaemon(work); right()",
        AC,
        "",
    ),
    "leaves a grandchild in another session": ("os.fork() or (os.setsid(), time.sleep(300)); right()", AC, ""),
    "leaves children that flee, each from the last": (
        "def work():\n"
        " end = time.monotonic() + 60\n"
        " while time.monotonic() < end:\n  if os.fork(): os._exit(0)\n  os.setsid()\n"
        "for _ in range(4): daemon(work)\nright()",
        AC,
        "",
    ),
    "multiplies": (
        "for _ in range(5): os.fork()\n"
        "end = time.monotonic() + 60\n"
        "while time.monotonic() < end:\n if os.fork(): time.sleep(0.01); os._exit(0)\n os.setsid()",
        NA,
        "no output file",
    ),
    "writes after its exit": ("daemon(lambda: (time.sleep(0.3), right()))", NA, "no output file"),
    "leaves a child that holds its stderr": ("daemon(lambda: time.sleep(300)); right()", AC, ""),
    "fills the disk": (
        "signal.signal(signal.SIGXFSZ, signal.SIG_DFL)\n"
        "file = open('big', 'wb')\nwhile True: file.seek(1 << 22, 1); file.write(b'x')",
        NA,
        "writing a file of more than",
    ),
    "fills the disk, and does not die of the signal": (
        "signal.signal(signal.SIGXFSZ, signal.SIG_IGN)\n"
        "file = open(output, 'wb', buffering=0)\nwhile True: file.seek(1 << 22, 1); file.write(b'x')",
        NA,
        "exit code 1: OSError: [Errno 27] File too large",
    ),
    "prints 1 GB to stdout and to stderr": (
        "data = bytes(1 << 20)\nfor _ in range(1024): os.write(1, data); os.write(2, data)\nright()",
        AC,
        "",
    ),
    "crashes": ("ctypes.string_at(0)", NA, "ended by signal 11 (SIGSEGV)"),
    "ends by a signal without a name": ("os.kill(os.getpid(), 35)", NA, "ended by signal 35"),
    "writes to the terminal": (r"sys.exit('\x1b]0;mine\x07')", NA, "exit code 1: ?]0;mine?"),
    "exits with 139 by itself": ("right(); sys.exit(139)", NA, "exit code 139"),
    "fails in CUDA": (
        "print('CUDA error: an illegal memory access was encountered', file=sys.stderr)\n"
        "print('cleaning up', file=sys.stderr); sys.exit(1)",
        NA,
        "an illegal memory access was encountered (a kernel went outside its arrays",
    ),
    "fails in CUDA and does not look": (
        "right(); open(output, 'r+b').write(bytes(2560)); print('CUDA_ERROR_INVALID_VALUE', file=sys.stderr)",
        NA,
        "it said: CUDA_ERROR_INVALID_VALUE (a size or a pointer is wrong",
    ),
    "writes NaN": ("open(output, 'wb').write(b'\\xff' * 2560)", NA, "640 of 640 elements are NaN or Inf"),
    "writes zeros": ("open(output, 'wb').write(bytes(2560))", NA, "the whole output is zeros"),
    "writes float64": (
        "from array import array; right(); values = array('d', array('f', open(output, 'rb').read()))\n"
        "open(output, 'wb').write(values)",
        NA,
        "its numbers are right if they are read as float64",
    ),
    "copies its input": ("open(output, 'wb').write(open(source, 'rb').read())", NA, "it is as long as the input"),
    "copies V": (
        "data = open(source, 'rb').read()[12:]; open(output, 'wb').write(data[2560:3840] + data[-1280:])",
        NA,
        "the wrong rows are what comes out with V copied to O",
    ),
    "writes too little": ("right(); os.truncate(output, 2528)", NA, "1 row too short: 2,528 bytes instead of 2,560"),
    "writes too much": ("right(); open(output, 'ab').write(b'.')", NA, "1 byte too long"),
    "writes nothing": ("pass", NA, "no output file"),
    "writes an empty file": ("open(output, 'wb')", NA, "80 rows too short"),
    "writes to the wrong place": ("right('out'); right(os.environ['HOME'] + '/out')", NA, "no output file"),
    "exchanges its arguments": ("source, output = output, source; right(output)", NA, "no output file"),
    "replaces its input by a link to the answer": (
        "os.remove(source); os.symlink(answer, source); open(output, 'wb').write(bytes(2560))",
        NA,
        "zeros",
    ),
    "writes through its input": ("open(source, 'r+b').write(b'mine'); right()", AC, ""),
    "links the answer": ("os.symlink(answer, output)", NA, "not a regular file of its own"),
    "makes a pipe of its output": ("os.mkfifo(output)", NA, "not a regular file of its own"),
    "makes a folder of its output": ("os.mkdir(output)", NA, "not a regular file of its own"),
    "deletes its folder": (
        "right(); os.remove(source); os.remove(output); os.rmdir(os.getcwd())",
        NA,
        "no output file",
    ),
    "replaces its folder by a link": (
        "here = os.getcwd(); os.remove(source); os.rmdir(here); os.symlink(os.path.dirname(answer), here)",
        NA,
        "no output file",
    ),
    "makes its output unreadable": ("right(); os.chmod(output, 0)", NA, "the output cannot be read"),
    "makes its folder unreadable": (
        "right(); os.mkdir('deep'); os.mkdir('deep/er'); os.chmod('deep', 0); os.chmod('.', 0)",
        NA,
        "the output cannot be read",
    ),
    "digs deeper than Python can count": ("right()\nfor _ in range(3000): os.mkdir('d'); os.chdir('d')", AC, ""),
    "waits for words on stdin": ("assert sys.stdin.read() == ''; right()", AC, ""),
    "sleeps past the limit": ("right(); time.sleep(0.4)", TLE, "output correct"),
    "sleeps past the limit, and is wrong": ("time.sleep(0.4)", TLE, "output wrong: no output file"),
    "sleeps past the kill": ("right(); time.sleep(300)", TLE_PLUS, "killed after"),
    "ignores SIGTERM": ("signal.signal(signal.SIGTERM, signal.SIG_IGN); time.sleep(300)", TLE_PLUS, "killed after"),
    "stops itself": ("os.kill(os.getpid(), signal.SIGSTOP)", TLE_PLUS, "killed after"),
    "flees and stops its parent": (
        "daemon(lambda: time.sleep(300)); os.kill(os.getpid(), signal.SIGSTOP)",
        TLE_PLUS,
        "killed after",
    ),
    "talks for ever": ("data = bytes(1 << 16)\nwhile True: os.write(2, data)", TLE_PLUS, "killed after"),
}


@pytest.mark.parametrize("name", ZOO)
def test_each_gets_its_verdict_and_reason(cases, contestant, monkeypatch, name):
    body, verdict, words = ZOO[name]
    late = verdict in (TLE, TLE_PLUS)
    attempt = judged(cases, [contestant(body)], limit=0.3 if late else 30.0, monkeypatch=monkeypatch if late else None)
    found, reason = decide(attempt)
    if verdict is TLE and found is TLE_PLUS:
        pytest.skip("this machine is too busy for a program to end within half a second of its limit")
    assert (found, words in reason) == (verdict, True), attempt


def test_a_program_sees_a_fresh_folder_with_its_input_alone(cases, contestant):
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


@pytest.mark.parametrize("place", GUESSES)
def test_the_answer_is_out_of_reach(cases, contestant, place, monkeypatch):
    case, folder = cases
    monkeypatch.chdir(folder)
    for name, value in (("CASES", folder), ("ANSWER", case.answer_path(folder)), ("OLDPWD", folder)):
        monkeypatch.setenv(name, str(value))
    assert decide(judged(cases, [contestant(cheat(GUESSES[place]))])) == (NA, "no output file")


def cheat(guesses):
    return (
        f"for guess in {guesses}:\n"
        " try:\n"
        "  data = os.path.isfile(guess) and open(guess, 'rb').read()\n"
        "  if data and len(data) == 2560: open(output, 'wb').write(data)\n"
        " except OSError: pass\n"
    )


@pytest.mark.skipif(os.geteuid() == 0, reason="nothing is hidden from root, but in the sandbox")
def test_the_judges_own_folder_is_not_to_be_found_through_proc(cases, contestant, monkeypatch):
    monkeypatch.chdir(cases[1])
    body = cheat("['/proc/%d/cwd/tiny.out' % os.getppid()]")
    assert decide(judged(cases, [contestant(body)])) == (NA, "no output file")


def test_a_path_by_the_callers_folder_is_found(cases, contestant, monkeypatch, tmp_path):
    contestant("sys.exit(source)")
    monkeypatch.chdir(tmp_path)
    assert "exit code 1: " in decide(judged(cases, ["./contestant"]))[1]
    assert decide(judged(cases, [sys.executable, "contestant"]))[1].startswith("exit code 1: /")


NOT_STARTED = {
    "missing": (None, 0o755, "there is no such file"),
    "not a program": (b"hello", 0o644, "it is not executable"),
    "not executable": (b"#!/bin/sh\n", 0o644, "it is not executable (chmod +x program)"),
    "empty": (b"", 0o755, "it is an empty file"),
    "no first line": (b"echo hello", 0o755, "a script needs a first line such as #!"),
    "no interpreter": (b"#!/usr/bin/python9\n", 0o755, "the interpreter /usr/bin/python9, which cannot be run here"),
    "from Windows": (b"#!/bin/sh\r\necho\r\n", 0o755, "as Windows ends lines"),
    "for a SPARC": (b"\x7fELF\x02\x01\x01" + bytes(9) + b"\x02\x00\x02\x00", 0o755, "it was built for"),
}


@pytest.mark.parametrize("name", NOT_STARTED)
def test_what_cannot_be_started_is_told_why(cases, tmp_path, name):
    content, mode, words = NOT_STARTED[name]
    path = tmp_path / "program"
    if content is not None:
        path.write_bytes(content)
        path.chmod(mode)
    verdict, reason = decide(judged(cases, [path]))
    assert verdict is NA
    assert reason.startswith(f"{path} cannot be started: ")
    assert words in reason


def test_a_folder_is_no_program(cases, tmp_path):
    assert decide(judged(cases, [tmp_path])) == (NA, f"{tmp_path} cannot be started: it is a folder")


def test_a_talkative_programs_last_words_are_kept(cases, contestant):
    body = "os.write(2, b'x\\n' * 500_000); os.write(2, b'the end\\n'); sys.exit(3)"
    assert decide(judged(cases, [contestant(body)])) == (NA, "exit code 3: the end")


def test_processor_time_memory_and_place_are_told(cases, contestant):
    hungry = "block = b'x' * (1 << 30)\nwhile time.process_time() < 0.2: pass\nright()"
    attempt = judged(cases, [contestant(hungry)])
    assert attempt.user + attempt.system >= 0.2
    assert 1 << 30 <= attempt.peak_rss < 2 << 30
    assert attempt.staged == "memory"
    assert judged(cases, [contestant("right()")]).peak_rss is None, "less than the judge's own"


def test_where_memory_is_short_files_lie_on_the_disk(cases, contestant, monkeypatch, tmp_path):
    monkeypatch.setattr("hw4cli.staging.free_memory", lambda: 1000)
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    attempt = judged(cases, [contestant("right()")])
    assert (attempt.staged, decide(attempt)[0]) == ("disk", AC)


def test_what_a_killed_judge_left_is_removed_by_the_next(cases, contestant, tmp_path):
    orphan, alive = (tmp_path / "private" / f"hw4-judge-{name}" for name in ("orphan", "alive"))
    for folder in (orphan, alive):
        folder.mkdir()
        (folder / "input").touch()
        os.utime(folder, (0, 0))
    mark = os.open(alive, os.O_RDONLY)
    fcntl.flock(mark, fcntl.LOCK_EX)
    judged(cases, [contestant("right()")])
    assert (orphan.exists(), alive.exists()) == (False, True)
    os.close(mark)
    judged(cases, [contestant("right()")])


def test_nothing_that_a_program_makes_keeps_its_folder_from_being_removed(cases, contestant, tmp_path):
    place = tmp_path / "place"
    place.mkdir()
    dig = "for _ in range(3000): os.mkdir('d'); os.chdir('d')\n"
    hide = "os.chdir(os.environ['HOME']); os.makedirs('a/b'); os.chmod('a/b', 0); os.chmod('a', 0); os.chmod('.', 0)"
    judged(cases, [contestant(dig + hide)], settings=Settings(parent=place))
    assert list(place.iterdir()) == []


def test_core_files_are_not_written_and_files_are_limited(cases, contestant):
    body = (
        "import resource\n"
        "assert resource.getrlimit(resource.RLIMIT_CORE) == (0, 0)\n"
        "assert resource.getrlimit(resource.RLIMIT_FSIZE)[0] == 2560 + (64 << 20)\n"
        "assert resource.getrlimit(resource.RLIMIT_AS)[0] == resource.RLIM_INFINITY\n"
        "right()"
    )
    assert decide(judged(cases, [contestant(body)])) == (AC, "")


def test_the_judge_adds_little_to_a_short_program(cases, tmp_path):
    """Below 30 ms on an idle machine; here the bound is one that a busy one keeps."""
    program = tmp_path / "copy"
    program.write_text(f"#!/bin/sh\ncp {cases[0].answer_path(cases[1])} $2\n")
    program.chmod(0o755)
    added = []
    for _ in range(20):
        start = time.monotonic()
        attempt = judged(cases, [program])
        added.append(time.monotonic() - start - attempt.wall)
        assert decide(attempt)[0] is AC
    assert sorted(added)[10] < 0.06


@pytest.fixture
def bwrap():
    sandbox.check.cache_clear()
    try:
        sandbox.check()
    except MachineError as error:
        pytest.skip(str(error))
    finally:
        sandbox.check.cache_clear()
    return Settings(sandbox="bwrap")


SANDBOXED = {
    "right": ("right()", AC, ""),
    "looks for the answer": (cheat("[answer, '/proc/%d/cwd/tiny.out' % os.getppid()]"), NA, "no output file"),
    "looks for other processes": ("assert len([p for p in os.listdir('/proc') if p.isdigit()]) < 5; right()", AC, ""),
    "goes on line": ("import socket; socket.create_connection(('127.0.0.1', 9))", NA, "exit code 1"),
    "writes into the system": ("open('/usr/mine', 'w')", NA, "Read-only file system"),
    "leaves a daemon": ("daemon(lambda: time.sleep(300)); right()", AC, ""),
    "sleeps past the kill": ("daemon(lambda: time.sleep(300)); time.sleep(300)", TLE_PLUS, "killed after"),
    "crashes": ("ctypes.string_at(0)", NA, "SIGSEGV"),
}


@pytest.mark.parametrize("name", SANDBOXED)
def test_in_the_sandbox_a_program_sees_the_system_and_itself_alone(cases, contestant, bwrap, monkeypatch, name):
    body, verdict, words = SANDBOXED[name]
    late = verdict is TLE_PLUS
    attempt = judged(cases, [contestant(body)], bwrap, 0.3 if late else 30.0, monkeypatch if late else None)
    found, reason = decide(attempt)
    assert (found, words in reason) == (verdict, True), attempt


def test_in_the_sandbox_answers_beside_the_program_are_empty(cases, contestant, bwrap, monkeypatch):
    _, folder = cases
    program = contestant(cheat("[answer]"))
    beside = folder / "contestant"
    program.rename(beside)
    try:
        assert decide(judged(cases, [beside], bwrap)) == (NA, "no output file")
    finally:
        beside.unlink()


def test_a_program_that_cannot_be_started_in_the_sandbox_is_told(cases, tmp_path, bwrap):
    program = tmp_path / "program"
    program.write_text("#!/usr/bin/python9\n")
    program.chmod(0o755)
    verdict, reason = decide(judged(cases, [program], bwrap))
    assert (verdict, "cannot be started" in reason) == (NA, True), reason


def test_without_bubblewrap_the_judge_says_what_to_install(cases, contestant, monkeypatch):
    sandbox.check.cache_clear()
    program = contestant("right()")
    monkeypatch.setenv("PATH", "/nowhere")
    verdict, reason = decide(judged(cases, [program], Settings(sandbox="bwrap")))
    assert (verdict, "apt install bubblewrap" in reason) == (JE, True)


def test_a_bubblewrap_that_does_not_work_is_told(cases, contestant, monkeypatch, tmp_path):
    sandbox.check.cache_clear()
    fake = tmp_path / "bin" / "bwrap"
    fake.parent.mkdir()
    fake.write_text("#!/bin/sh\necho 'bwrap: No permissions to create new namespace' >&2; exit 1\n")
    fake.chmod(fake.stat().st_mode | stat.S_IXUSR)
    monkeypatch.setenv("PATH", f"{fake.parent}:{os.environ['PATH']}")
    verdict, reason = decide(judged(cases, [contestant("right()")], Settings(sandbox="bwrap")))
    assert (verdict, "user namespaces" in reason) == (JE, True)


def test_the_zoo_has_no_cage_for_the_judge_itself(cases, contestant):
    """The limits that a program gets are not left on the judge."""
    import resource

    before = [resource.getrlimit(limit) for limit in (resource.RLIMIT_CORE, resource.RLIMIT_FSIZE)]
    judged(cases, [contestant("right()")])
    assert [resource.getrlimit(limit) for limit in (resource.RLIMIT_CORE, resource.RLIMIT_FSIZE)] == before
    assert Path("/proc/self/fd").is_dir()

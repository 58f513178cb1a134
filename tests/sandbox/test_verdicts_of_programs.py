"""Right, wrong, late and adversarial programs: each gets its verdict and reason, and leaves no process and no file."""

import pytest
from contestants import cases, contestant, judged, nothing_is_left
from helpers import set_kill_after

from hw4cli.judge.scoring.record import decide
from hw4cli.problem.verdict import Verdict

__all__ = ["cases", "contestant", "nothing_is_left"]
AC, TLE, TLE_PLUS, NA = Verdict.AC, Verdict.TLE, Verdict.TLE_PLUS, Verdict.NA

ACCEPTED = {
    "right": "right()",
    "forks a daemon that keeps writing": (
        "def work():\n while True: right('log'); time.sleep(0.001)\ndaemon(work); right()"
    ),
    "leaves a grandchild in another session": "os.fork() or (os.setsid(), time.sleep(300)); right()",
    "leaves children that flee, each from the last": (
        "def work():\n"
        " end = time.monotonic() + 60\n"
        " while time.monotonic() < end:\n  if os.fork(): os._exit(0)\n  os.setsid()\n"
        "for _ in range(4): daemon(work)\nright()"
    ),
    "leaves a child that holds its stderr": "daemon(lambda: time.sleep(300)); right()",
    "prints 1 GB to stdout and to stderr": (
        "data = bytes(1 << 20)\nfor _ in range(1024): os.write(1, data); os.write(2, data)\nright()"
    ),
    "writes through its input": "open(source, 'r+b').write(b'mine'); right()",
    "digs deeper than Python can count": "right()\nfor _ in range(3000): os.mkdir('d'); os.chdir('d')",
    "waits for words on stdin": "assert sys.stdin.read() == ''; right()",
}
REFUSED = {
    "multiplies": (
        "for _ in range(5): os.fork()\n"
        "end = time.monotonic() + 60\n"
        "while time.monotonic() < end:\n if os.fork(): time.sleep(0.01); os._exit(0)\n os.setsid()",
        "no output file",
    ),
    "writes after its exit": ("daemon(lambda: (time.sleep(0.3), right()))", "no output file"),
    "fills the disk": (
        "signal.signal(signal.SIGXFSZ, signal.SIG_DFL)\n"
        "file = open('big', 'wb')\nwhile True: file.seek(1 << 22, 1); file.write(b'x')",
        "writing a file of more than",
    ),
    "fills the disk, and does not die of the signal": (
        "signal.signal(signal.SIGXFSZ, signal.SIG_IGN)\n"
        "file = open(output, 'wb', buffering=0)\nwhile True: file.seek(1 << 22, 1); file.write(b'x')",
        "exit code 1: OSError: [Errno 27] File too large",
    ),
    "crashes": ("ctypes.string_at(0)", "ended by signal 11 (SIGSEGV)"),
    "ends by a signal without a name": ("os.kill(os.getpid(), 35)", "ended by signal 35"),
    "writes to the terminal": (r"sys.exit('\x1b]0;mine\x07')", "exit code 1: ?]0;mine?"),
    "exits with 139 by itself": ("right(); sys.exit(139)", "exit code 139"),
    "fails in CUDA": (
        "print('CUDA error: an illegal memory access was encountered', file=sys.stderr)\n"
        "print('cleaning up', file=sys.stderr); sys.exit(1)",
        "an illegal memory access was encountered (a kernel went outside its arrays",
    ),
    "fails in CUDA and does not look": (
        "right(); open(output, 'r+b').write(bytes(2560)); print('CUDA_ERROR_INVALID_VALUE', file=sys.stderr)",
        "it said: CUDA_ERROR_INVALID_VALUE (a size or a pointer is wrong",
    ),
    "writes NaN": ("open(output, 'wb').write(b'\\xff' * 2560)", "640 of 640 elements are NaN or Inf"),
    "writes zeros": ("open(output, 'wb').write(bytes(2560))", "the whole output is zeros"),
    "writes float64": (
        "from array import array; right(); values = array('d', array('f', open(output, 'rb').read()))\n"
        "open(output, 'wb').write(values)",
        "its numbers are right if they are read as float64",
    ),
    "copies its input": ("open(output, 'wb').write(open(source, 'rb').read())", "it is as long as the input"),
    "copies V": (
        "data = open(source, 'rb').read()[12:]; open(output, 'wb').write(data[2560:3840] + data[-1280:])",
        "the wrong rows equal attention computed with V copied to O",
    ),
    "writes too little": ("right(); os.truncate(output, 2528)", "1 row too short: 2,528 bytes instead of 2,560"),
    "writes too much": ("right(); open(output, 'ab').write(b'.')", "1 byte too long"),
    "writes nothing": ("pass", "no output file"),
    "writes an empty file": ("open(output, 'wb')", "80 rows too short"),
    "writes to the wrong place": ("right('out'); right(os.environ['HOME'] + '/out')", "no output file"),
    "exchanges its arguments": ("source, output = output, source; right(output)", "no output file"),
    "replaces its input by a link to the answer": (
        "os.remove(source); os.symlink(answer, source); open(output, 'wb').write(bytes(2560))",
        "zeros",
    ),
    "links the answer": ("os.symlink(answer, output)", "not a regular file of its own"),
    "makes a pipe of its output": ("os.mkfifo(output)", "not a regular file of its own"),
    "makes a folder of its output": ("os.mkdir(output)", "not a regular file of its own"),
    "deletes its folder": ("right(); os.remove(source); os.remove(output); os.rmdir(os.getcwd())", "no output file"),
    "replaces its folder by a link": (
        "here = os.getcwd(); os.remove(source); os.rmdir(here); os.symlink(os.path.dirname(answer), here)",
        "no output file",
    ),
    "makes its output unreadable": ("right(); os.chmod(output, 0)", "the output cannot be read"),
    "makes its folder unreadable": (
        "right(); os.mkdir('deep'); os.mkdir('deep/er'); os.chmod('deep', 0); os.chmod('.', 0)",
        "the output cannot be read",
    ),
}
LATE = {
    "sleeps past the limit": ("right(); time.sleep(0.4)", "output correct"),
    "sleeps past the limit, and is wrong": ("time.sleep(0.4)", "output wrong: no output file"),
}
KILLED = {
    "sleeps past the kill": "right(); time.sleep(300)",
    "ignores SIGTERM": "signal.signal(signal.SIGTERM, signal.SIG_IGN); time.sleep(300)",
    "stops itself": "os.kill(os.getpid(), signal.SIGSTOP)",
    "flees and stops its parent": "daemon(lambda: time.sleep(300)); os.kill(os.getpid(), signal.SIGSTOP)",
    "talks for ever": "data = bytes(1 << 16)\nwhile True: os.write(2, data)",
}


@pytest.mark.parametrize("name", ACCEPTED)
def test_a_right_program_is_accepted_whatever_else_it_does(cases, contestant, name):
    assert decide(judged(cases, [contestant(ACCEPTED[name])])) == (AC, "")


@pytest.mark.parametrize("name", REFUSED)
def test_a_wrong_program_is_refused_with_its_reason(cases, contestant, name):
    body, words = REFUSED[name]
    verdict, reason = decide(judged(cases, [contestant(body)]))
    assert (verdict, words in reason) == (NA, True), reason


@pytest.mark.parametrize("name", LATE)
def test_a_late_program_is_tle_whether_right_or_wrong(cases, contestant, monkeypatch, name):
    body, words = LATE[name]
    set_kill_after(monkeypatch, 0.5)
    verdict, reason = decide(judged(cases, [contestant(body)], limit=0.3))
    if verdict is TLE_PLUS:
        pytest.skip("this machine is too busy for a program to end within half a second of its limit")
    assert (verdict, words in reason) == (TLE, True), reason


@pytest.mark.parametrize("name", KILLED)
def test_a_program_that_does_not_end_is_killed(cases, contestant, monkeypatch, name):
    set_kill_after(monkeypatch, 0.5)
    verdict, reason = decide(judged(cases, [contestant(KILLED[name])], limit=0.3))
    assert (verdict, "killed after" in reason) == (TLE_PLUS, True), reason

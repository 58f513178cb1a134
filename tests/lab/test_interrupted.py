"""SIGTERM and SIGINT end every command that measures, and what it has started: real processes, whatever their main
thread does, on a GPU that there is not."""

import os
import signal
import subprocess
import sys

import pytest
from helpers import HANGS, ROOT, all_threads_wait, hw4_env, wait_until
from slow import quick_of_each

START = """
import ctypes, os, subprocess, sys
from types import SimpleNamespace
import fakegpu, hw4cli.device.gpu, hw4cli.device.timing
fakegpu.install(hw4cli.device.gpu), fakegpu.install(hw4cli.device.timing)
def begin(child="300"):
    process = subprocess.Popen(["sleep", child], stdin=subprocess.DEVNULL, start_new_session=True)
    os.write(1, b"%d\\n" % process.pid)  # a line at once: several threads begin children
    return process
{before}
from hw4cli.entry import main
sys.argv[0] = "hw4"
main()
"""
# A call into a library that does not return, and goes on when a signal comes: a mutex that is locked already.
STUCK = """
mutex = ctypes.create_string_buffer(64)
def stuck(self, *_):
    begin()
    lock = ctypes.CDLL(None).pthread_mutex_lock
    lock(mutex), lock(mutex)
fakegpu.FakeGpu.compute = stuck
"""
# The interrupt is raised, and the clean-up makes such a call.
CLEANING_UP = STUCK.replace("begin()", "child = begin()").replace(
    "lock(mutex), lock(mutex)", "try: child.wait()\n    finally: lock(mutex), lock(mutex)"
)
COMPILING = """
init = fakegpu.FakeGpu.__init__
def compiling(self, *words, **named):
    init(self, *words, **named)
    self.code = SimpleNamespace(missing=lambda kernels: [*range(40)], start=lambda kernel: begin())
fakegpu.FakeGpu.__init__ = compiling
"""
# An interrupt comes in a finaliser, where Python drops all exceptions; what follows would never end.
DROPPED = """
class Finalised:
    def __del__(self):
        os.kill(os.getpid(), NUMBER)
        for _ in range(1000): pass
def goes_on(self, *_):
    begin(child="0").wait()
    Finalised()
    while True: pass
fakegpu.FakeGpu.compute = goes_on
"""
COMMANDS = {
    "tune": ("tune", "flash", "1,16,8", "--no-keep"),
    "bench": ("bench", "flash", "1,16,8"),
    "selftest": ("selftest", "flash", "--minutes", "1"),
}


def start(command, before, **more):
    env = hw4_env(**more)
    env["PYTHONPATH"] = os.pathsep.join([str(ROOT / "tests/support"), env["PYTHONPATH"]])
    return subprocess.Popen(
        [sys.executable, "-c", START.format(before=before), *command],
        env=env,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )


def is_running(pid):
    try:
        return (ROOT / f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def ends_soon(process, number, at_once=1):
    """The process, which prints its children, gets a signal when it has so many; all end, and it says one word."""
    children = [int(process.stdout.readline()) for _ in range(at_once)]
    if number:
        wait_until(lambda: all_threads_wait(process.pid), process)
        process.send_signal(number)
    try:
        _, stderr = process.communicate(timeout=HANGS)
    finally:
        process.kill()
    assert (process.returncode, stderr.splitlines()[-1]) == (130, "hw4: interrupted")
    wait_until(lambda: not any(map(is_running, children)))


@quick_of_each(1)
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
@pytest.mark.parametrize("command", COMMANDS)
def test_a_kernel_that_never_ends_does_not_keep_the_command(command, number):
    ends_soon(start(COMMANDS[command], STUCK), number)


def test_a_clean_up_that_never_ends_does_not_keep_the_command_either():
    ends_soon(start(COMMANDS["tune"], CLEANING_UP), signal.SIGTERM)


@pytest.mark.parametrize("command", ["tune", "bench"])
def test_compilers_end_with_the_command_and_no_further_one_starts(command):
    ends_soon(start(COMMANDS[command], COMPILING), signal.SIGTERM, len(os.sched_getaffinity(0)))


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_an_interrupt_that_python_drops_comes_again(number):
    ends_soon(start(COMMANDS["tune"], DROPPED.replace("NUMBER", str(int(number)))), 0)


def test_a_signal_that_is_ignored_ends_no_command_that_is_stuck():
    process = start(COMMANDS["tune"], "import signal; signal.signal(signal.SIGINT, signal.SIG_IGN)" + STUCK)
    child = int(process.stdout.readline())
    wait_until(lambda: all_threads_wait(process.pid), process)
    process.send_signal(signal.SIGINT)
    with pytest.raises(subprocess.TimeoutExpired):
        process.wait(2.5)
    process.send_signal(signal.SIGTERM)
    assert process.wait(HANGS) == 130
    wait_until(lambda: not is_running(child))


PROFILER = """#!/bin/sh
trap "" TERM
sleep 300 &
echo $! >"$CHILD"
wait
sleep 300
"""


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_profiler_and_what_it_profiles_end_with_the_command(tmp_path, number):
    process, child = profiling(tmp_path)
    wait_until(child, process)
    process.send_signal(number)
    _, stderr = process.communicate(timeout=HANGS)
    assert (process.returncode, stderr.strip()) == (130, "hw4: interrupted")
    wait_until(lambda: not is_running(int(child())))


# The signal comes while Popen, which has started the profiler, has not returned yet.
BEFORE_POPEN_RETURNS = """
real = subprocess.Popen.__init__
def starts(self, *words, **named):
    real(self, *words, **named)
    if named.get("start_new_session"):
        while not os.path.getsize(os.environ["CHILD"]): pass
        os.kill(os.getpid(), NUMBER)
        for _ in range(1000): pass
subprocess.Popen.__init__ = starts
"""


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_profiler_ends_with_the_command_however_early_the_signal_comes(tmp_path, number):
    (tmp_path / "child").touch()
    process, child = profiling(tmp_path, BEFORE_POPEN_RETURNS.replace("NUMBER", str(int(number))))
    _, stderr = process.communicate(timeout=HANGS)
    assert (process.returncode, stderr.strip()) == (130, "hw4: interrupted")
    wait_until(lambda: not is_running(int(child())))


def profiling(folder, before=""):
    """`hw4 profile` with PROFILER in ncu's place; and a function that returns the process id of what that profiles, or
    nothing yet."""
    for name, text in (("ncu", PROFILER), ("nvidia-smi", "#!/bin/sh\necho 'NVIDIA H200, 9.0'\n")):
        (folder / name).write_text(text)
        (folder / name).chmod(0o755)
    path = folder / "child"
    env = {"PATH": f"{folder}:{os.environ['PATH']}", "CHILD": str(path), "CUDA_VISIBLE_DEVICES": "0"}
    process = start(("profile", "flash", "1,128,64"), before, **env)
    return process, lambda: path.exists() and path.read_text().strip()

"""One child process: started, timed from outside, held to limits; and nothing of it lives on.

Whatever a program leaves behind falls to this process (a "child subreaper", prctl(2)), whatever session it fled to, and
is killed before anyone looks at its files.
"""

import ctypes
import fcntl
import os
import resource
import select
import signal
import subprocess
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from hw4cli.errors import MachineError
from hw4cli.exits import StartError, start_problem

STDERR_TAIL = 64 << 10  # bytes of the program's stderr that are kept
PIPE_BYTES = 1 << 20  # of the pipe for it: the more, the fewer turns a talkative program waits
SWEEP_SECONDS = 10.0  # after which a process that does not die is given up
PR_GET_DUMPABLE, PR_SET_DUMPABLE, PR_SET_CHILD_SUBREAPER, F_SETPIPE_SZ = 3, 4, 36, 1031


@dataclass(frozen=True)
class Run:
    """How a program ended. Times in seconds: on the wall, and of the processors (its children's too); `exit_code` -n
    is signal n; `peak_rss` in bytes, None where it is below what this process takes itself (the kernel cannot tell);
    `stderr` is the end of what it said."""

    wall: float
    killed: bool = False
    exit_code: int = 0
    user: float = 0.0
    system: float = 0.0
    peak_rss: int | None = None
    stderr: str = ""


def run_program(
    arguments: Sequence[str],
    kill_at: float,
    env: Mapping[str, str] | None = None,
    cwd: Path | None = None,
    max_file: int | None = None,
) -> Run:
    """Run a program to its end, or kill it `kill_at` seconds after its start; nothing of it lives on either way.

    No file that it writes can grow beyond `max_file` bytes. Raises StartError if it cannot be started, MachineError if
    something of it cannot be killed.
    """
    reader, writer = os.pipe()
    os.set_blocking(reader, False)
    with suppress(OSError):
        fcntl.fcntl(reader, F_SETPIPE_SZ, PIPE_BYTES)
    words = bytearray()
    own_peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    try:
        with _subreaper() as before:
            try:
                start = time.monotonic()
                process = _start(arguments, writer, env, cwd, max_file)
                ended = _ends_by(process.pid, start + kill_at, reader, words)
                wall = time.monotonic() - start
            finally:
                reaped = _sweep(before)
            _drain(reader, words)
    finally:
        os.close(reader)
    process.returncode = os.waitstatus_to_exitcode(reaped[process.pid][0])
    usages = [usage for _, usage in reaped.values()]
    peak_rss = max(usage.ru_maxrss for usage in usages)
    return Run(
        wall=wall,
        killed=not ended,
        exit_code=process.returncode,
        user=sum(usage.ru_utime for usage in usages),
        system=sum(usage.ru_stime for usage in usages),
        # A child starts in our memory, and its peak with ours.
        peak_rss=peak_rss << 10 if peak_rss > own_peak else None,
        stderr=words.decode(errors="replace"),
    )


def _start(
    arguments: Sequence[str], stderr: int, env: Mapping[str, str] | None, cwd: Path | None, max_file: int | None
) -> subprocess.Popen[bytes]:
    """Start a process with limits: soft ones inherited from its first instant, then hard ones. `stderr` is closed here.

    Raises StartError if it cannot be started.
    """
    limits = {resource.RLIMIT_CORE: 0}
    if max_file is not None:
        limits[resource.RLIMIT_FSIZE] = max_file
    old = {limit: resource.getrlimit(limit) for limit in limits}
    try:
        for limit, value in limits.items():
            hard = old[limit][1]
            limits[limit] = value if hard == resource.RLIM_INFINITY else min(value, hard)
            resource.setrlimit(limit, (limits[limit], hard))
        process = subprocess.Popen(
            arguments,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=stderr,
            env=env,
            cwd=cwd,
            start_new_session=True,
        )
    except OSError as error:
        raise StartError(start_problem(arguments[0], error)) from None
    finally:
        os.close(stderr)
        for limit, pair in old.items():
            resource.setrlimit(limit, pair)
    for limit, value in limits.items():
        with suppress(OSError):  # it has ended, or is a setuid program
            resource.prlimit(process.pid, limit, (value, value))
    return process


def _ends_by(pid: int, deadline: float, reader: int, words: bytearray) -> bool:
    """Wait for a process and listen to its stderr. A pidfd wakes at once, where Popen.wait(timeout) looks at times."""
    descriptor = os.pidfd_open(pid)
    try:
        poll = select.poll()
        poll.register(descriptor, select.POLLIN)
        poll.register(reader, select.POLLIN)
        while (left := deadline - time.monotonic()) > 0:
            ready = {number for number, _ in poll.poll(left * 1000)}
            if descriptor in ready:
                return True
            if reader in ready and not _read(reader, words):
                poll.unregister(reader)
        return False
    finally:
        os.close(descriptor)


def _read(reader: int, words: bytearray) -> bool:
    """Take what a pipe holds, and keep the end of it; False at the end of the pipe, or if it is empty."""
    try:
        data = os.read(reader, PIPE_BYTES)
    except BlockingIOError:
        return False
    words += data[-STDERR_TAIL:]
    del words[:-STDERR_TAIL]
    return bool(data)


def _drain(reader: int, words: bytearray) -> None:
    """Take what is left in a pipe whose writers are dead, or cannot be killed: then it may never end."""
    for _ in range(16):
        if not _read(reader, words):
            return


@contextmanager
def _subreaper() -> Iterator[frozenset[int]]:
    """Let orphaned descendants fall to this process, and keep its open files and folder from them while they live (a
    process that is not "dumpable" has them to itself); gives the children that it had before."""
    libc = ctypes.CDLL(None)
    dumpable = libc.prctl(PR_GET_DUMPABLE, 0, 0, 0, 0)
    libc.prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    libc.prctl(PR_SET_DUMPABLE, 0, 0, 0, 0)
    try:
        yield frozenset(_children())
    finally:
        libc.prctl(PR_SET_CHILD_SUBREAPER, 0, 0, 0, 0)
        libc.prctl(PR_SET_DUMPABLE, int(dumpable == 1), 0, 0, 0)


def _sweep(before: frozenset[int]) -> dict[int, tuple[int, resource.struct_rusage]]:
    """Kill all descendants but those that were there before, until two looks in a row find none; their wait statuses
    and what they used.

    Children alone need to be looked for: whoever's parent dies becomes one. A process that always forks and ends can
    only be met by looking often, so nothing here takes long. MachineError if some do not die.
    """
    deadline, clean, last = time.monotonic() + SWEEP_SECONDS, 0, set[int]()
    reaped = {}
    while clean < 2:
        found = _children() - before
        for pid in found:
            for kill in (os.killpg, os.kill):  # the group that it leads, at a stroke, if it leads one
                with suppress(ProcessLookupError, PermissionError):
                    kill(pid, signal.SIGKILL)
        for pid in found:
            with suppress(ChildProcessError):
                ended, status, usage = os.wait4(pid, os.WNOHANG)
                if ended:
                    reaped[pid] = status, usage
        clean = 0 if found else clean + 1
        if found == last and found:  # killed already, and dying
            time.sleep(0.0005)
        if found and time.monotonic() > deadline:
            raise MachineError(f"process {min(found)} of the program cannot be killed: end it by hand")
        last = found
    return reaped


def _children() -> set[int]:
    """Our children, zombies too: from each thread's list, or where the kernel keeps none, from psutil."""
    found: set[int] = set()
    try:
        for task in os.listdir("/proc/self/task"):  # noqa: PTH208
            with open(f"/proc/self/task/{task}/children", "rb") as file:  # noqa: PTH123
                found.update(map(int, file.read().split()))
    except FileNotFoundError:
        import psutil

        found.update(child.pid for child in psutil.Process().children())
    return found

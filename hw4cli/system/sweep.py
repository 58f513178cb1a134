"""What a program leaves: processes and shared memory.

This process adopts the processes (as a "child subreaper", prctl(2)) and kills them, those in sessions of their own,
too: none is left when the program's files are examined. System V shared memory outlives its processes: the segments
that they made are removed.
"""

import ctypes
import os
import resource
import signal
import time
from collections.abc import Container, Iterable, Iterator
from contextlib import ExitStack, contextmanager, suppress

from hw4cli.errors import MachineError
from hw4cli.system.exits import ProgramError

SWEEP_SECONDS = 30.0  # after which processes are given up that do not die, or multiply faster than they are killed
ROUNDS = 3  # of killing, after which this process runs with real-time priority, where it may
PAGE = 4096
IPC_RMID = 0
PR_GET_DUMPABLE, PR_SET_DUMPABLE, PR_SET_CHILD_SUBREAPER = 3, 4, 36

Reaped = dict[int, tuple[int, resource.struct_rusage]]  # wait statuses and usages, by process id

# If processes of an earlier program still live: the children that are this process's own.
_given_up: frozenset[int] | None = None


class Descendants:
    """This process's children but those that were there before: a program, and its descendants without a parent."""

    def __init__(self, files: Iterable[int], spared: Iterable[int] = ()) -> None:
        """`files` are those in which the kernel lists the children of this process's threads; without any, psutil finds
        them."""
        self._files = list(files)
        self.spared = frozenset(spared)
        self.reaped: Reaped = {}
        self.last_end = 0.0  # by time.monotonic(): when the last of them was found ended

    def members(self) -> set[int]:
        """Their process ids now, zombies included."""
        if not self._files:
            import psutil

            return {child.pid for child in psutil.Process().children()} - self.spared
        return {pid for file in self._files for pid in _numbers(file)} - self.spared

    def reap(self, pids: Iterable[int]) -> None:
        """Reap those of these processes that have ended, and note how they did."""
        for pid in pids:
            with suppress(ChildProcessError):
                ended, status, usage = os.wait4(pid, os.WNOHANG)
                if ended:
                    self.reaped[pid] = status, usage
                    self.last_end = time.monotonic()

    def sweep(self) -> None:
        """Kill all, until two searches in a row find none.

        Only children must be searched for: a process whose parent dies becomes one. A process that forks and ends all
        the time is only found by frequent searches, so nothing here takes long. Raises ProgramError if there are always
        new ones, MachineError if one does not die.
        """
        global _given_up
        deadline, clean, rounds, last = time.monotonic() + SWEEP_SECONDS, 0, 0, set[int]()
        with ExitStack() as stack:
            while clean < 2:
                found = self.members()
                for kill in (os.kill, os.killpg):  # also the group that it leads, if it leads one, at a stroke
                    for pid in found:
                        with suppress(ProcessLookupError, PermissionError):
                            kill(pid, signal.SIGKILL)
                self.reap(found)
                clean, rounds = 0 if found else clean + 1, rounds + 1
                if rounds == ROUNDS:
                    stack.enter_context(_precedence())
                if found == last and found:  # killed already, and dying
                    time.sleep(0.0005)
                if found and time.monotonic() > deadline:
                    _given_up = self.spared
                    if found == last:
                        raise MachineError(f"process {min(found)} of the program cannot be killed: end it by hand")
                    raise ProgramError("it leaves processes that multiply faster than they can be killed")
                last = found
        _given_up = None


@contextmanager
def adopted_descendants() -> Iterator[Descendants]:
    """The processes that are started in this block, and their descendants, which this process adopts. Meanwhile they
    cannot reach this process's open files and folder (because it is not "dumpable").

    Raises MachineError if processes of an earlier program still live.
    """
    libc = ctypes.CDLL(None)
    dumpable = libc.prctl(PR_GET_DUMPABLE, 0, 0, 0, 0)
    libc.prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    libc.prctl(PR_SET_DUMPABLE, 0, 0, 0, 0)
    files = _lists_of_children()
    try:
        if _given_up is not None:
            _sweep_again(Descendants(files, _given_up))
        yield Descendants(files, Descendants(files).members())
    finally:
        for file in files:
            os.close(file)
        # Otherwise init would adopt the processes that were given up.
        libc.prctl(PR_SET_CHILD_SUBREAPER, int(_given_up is not None), 0, 0, 0)
        libc.prctl(PR_SET_DUMPABLE, int(dumpable == 1), 0, 0, 0)


def _sweep_again(left: Descendants) -> None:
    try:
        left.sweep()
    except (MachineError, ProgramError):
        raise MachineError("processes of an earlier program still live: end them by hand, and judge again") from None


def _lists_of_children() -> list[int]:
    """The open files in which the kernel lists the threads' children; none if it has no such lists."""
    files = []
    for task in os.listdir("/proc/self/task"):  # noqa: PTH208
        with suppress(FileNotFoundError):
            files.append(os.open(f"/proc/self/task/{task}/children", os.O_RDONLY | os.O_CLOEXEC))
    return files


def _numbers(file: int) -> list[int]:
    """The numbers in a file of the kernel. It stays open: the program may lower the limit of open files."""
    text, piece = b"", b" "
    with suppress(ProcessLookupError):  # the thread has ended
        while piece:
            piece = os.pread(file, PAGE, len(text))
            text += piece
    return list(map(int, text.split()))


@contextmanager
def _precedence() -> Iterator[None]:
    """Run with real-time priority, where that is permitted: among hundreds of forking processes, this one would be
    late."""
    before = os.sched_getscheduler(0), os.sched_getparam(0)
    try:
        os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(1))
    except PermissionError:
        yield
        return
    try:
        yield
    finally:
        os.sched_setscheduler(0, *before)


def shared_segments() -> dict[int, int]:
    """The segments of shared memory, and the process id of the maker of each. Empty if the kernel has none."""
    found = {}
    with suppress(OSError), open("/proc/sysvipc/shm", encoding="ascii") as file:  # noqa: PTH123
        for line in file.read().splitlines()[1:]:
            words = line.split()
            found[int(words[1])] = int(words[4])
    return found


def remove_new_segments(before: Container[int], makers: Container[int]) -> None:
    """Remove the segments that were not there before and that one of these processes, which have ended, made."""
    for segment, maker in shared_segments().items():
        if segment not in before and maker in makers:
            ctypes.CDLL(None).shmctl(segment, IPC_RMID, None)

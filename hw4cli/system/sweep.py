"""What a program leaves behind falls to this process (a "child subreaper", prctl(2)), and is killed.

Whatever session it fled to: no process outlives the look at its files.
"""

import ctypes
import os
import resource
import signal
import time
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager, suppress

from hw4cli.errors import MachineError
from hw4cli.system.exits import ProgramError

SWEEP_SECONDS = 30.0  # after which what does not die, or multiplies faster than it is killed, is given up
ROUNDS = 3  # of killing, after which this process takes precedence over those that are to die, where it may
PAGE = 4096
PR_GET_DUMPABLE, PR_SET_DUMPABLE, PR_SET_CHILD_SUBREAPER = 3, 4, 36

Reaped = dict[int, tuple[int, resource.struct_rusage]]  # wait statuses and usages, by process id

_given_up: frozenset[int] | None = None  # if something of an earlier program still lives: the children that are ours


class Family:
    """Our children but those that were there before: what a program started, and all of it that has lost its parent."""

    def __init__(self, files: Iterable[int], spared: Iterable[int] = ()) -> None:
        """`files` are those of our threads in which the kernel lists children; without any, psutil finds them."""
        self._files = list(files)
        self.spared = frozenset(spared)
        self.reaped: Reaped = {}

    def members(self) -> set[int]:
        """Those that there are now, zombies too."""
        if not self._files:
            import psutil

            return {child.pid for child in psutil.Process().children()} - self.spared
        return {pid for file in self._files for pid in _numbers(file)} - self.spared

    def reap(self, pids: Iterable[int]) -> None:
        """Note of those that have ended how they did; there may be more of them than a machine has numbers."""
        for pid in pids:
            with suppress(ChildProcessError):
                ended, status, usage = os.wait4(pid, os.WNOHANG)
                if ended:
                    self.reaped[pid] = status, usage

    def sweep(self) -> None:
        """Kill all, until two looks in a row find none.

        Children alone need to be looked for: whoever's parent dies becomes one. A process that always forks and ends
        can only be met by looking often, so nothing here takes long. Raises ProgramError if new ones come for ever,
        MachineError if one does not die.
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
def descendants() -> Iterator[Family]:
    """What is started in this block, and falls to us. Meanwhile, who falls to us cannot reach our open files and folder
    (a process that is not "dumpable" has them to itself).

    Raises MachineError where something of an earlier program still lives.
    """
    libc = ctypes.CDLL(None)
    dumpable = libc.prctl(PR_GET_DUMPABLE, 0, 0, 0, 0)
    libc.prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    libc.prctl(PR_SET_DUMPABLE, 0, 0, 0, 0)
    files = _lists_of_children()
    try:
        if _given_up is not None:
            _sweep_again(Family(files, _given_up))
        yield Family(files, Family(files).members())
    finally:
        for file in files:
            os.close(file)
        # What is given up would fall to init, and never be seen again.
        libc.prctl(PR_SET_CHILD_SUBREAPER, int(_given_up is not None), 0, 0, 0)
        libc.prctl(PR_SET_DUMPABLE, int(dumpable == 1), 0, 0, 0)


def _sweep_again(left: Family) -> None:
    try:
        left.sweep()
    except (MachineError, ProgramError):
        raise MachineError("processes of an earlier program still live: end them by hand, and judge again") from None


def _lists_of_children() -> list[int]:
    """The files, open, in which the kernel lists our threads' children; none where it keeps no such lists."""
    files = []
    for task in os.listdir("/proc/self/task"):  # noqa: PTH208
        with suppress(FileNotFoundError):
            files.append(os.open(f"/proc/self/task/{task}/children", os.O_RDONLY | os.O_CLOEXEC))
    return files


def _numbers(file: int) -> list[int]:
    """The numbers in a file of the kernel's. It stays open: the program may take our right to open files."""
    text, piece = b"", b" "
    with suppress(ProcessLookupError):  # the thread has ended
        while piece:
            piece = os.pread(file, PAGE, len(text))
            text += piece
    return list(map(int, text.split()))


@contextmanager
def _precedence() -> Iterator[None]:
    """Run before all others, where we may: among hundreds that fork, our turn would come too late to meet them."""
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

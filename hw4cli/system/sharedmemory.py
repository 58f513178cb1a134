"""System V shared memory outlives its processes: the segments of a program are removed when it has ended."""

import ctypes
from collections.abc import Container
from contextlib import suppress

IPC_RMID = 0


def segments() -> dict[int, int]:
    """The segments, and the process id of the maker of each. Empty if the kernel has none."""
    found = {}
    with suppress(OSError), open("/proc/sysvipc/shm", encoding="ascii") as file:  # noqa: PTH123
        for line in file.read().splitlines()[1:]:
            words = line.split()
            found[int(words[1])] = int(words[4])
    return found


def remove_new(before: Container[int], makers: Container[int]) -> None:
    """Remove the segments that were not there before and that one of these processes, which have ended, made."""
    for segment, maker in segments().items():
        if segment not in before and maker in makers:
            ctypes.CDLL(None).shmctl(segment, IPC_RMID, None)

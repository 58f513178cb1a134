"""A bound on all that a program or a build writes: measured while it runs, since few systems can enforce one."""

import errno
import os
import shutil
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path

from hw4cli.errors import MachineError

FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
TRIES = 3  # to look into folders that are moved meanwhile
RESERVE = 64 << 20  # bytes that stay free on a file system, for everyone else's files


def describe_excess(total: int, files: int, max_bytes: int, max_files: int) -> str | None:
    """Which bound so many bytes and files exceed, as a sentence about the program; None if they exceed none."""
    if files > max_files:
        return f"it wrote more than {max_files:,} files"
    if total > max_bytes:
        return f"it wrote more than {max_bytes >> 20:,} MB"
    return None


@dataclass(frozen=True)
class Quota:
    """How many bytes and files the folders may hold together."""

    folders: tuple[Path, ...]
    max_bytes: int
    max_files: int

    def excess(self) -> str | None:
        """Which bound is exceeded, as a sentence about the program; None if none is. Visits at most max_files files."""
        try:
            return describe_excess(*self.usage(), self.max_bytes, self.max_files)
        except OSError as error:
            return f"it made a folder that cannot be looked into ({error.strerror})"

    def usage(self) -> tuple[int, int]:
        """The bytes and the files in the folders; counting stops where a bound is exceeded. OSError if a folder is
        closed to its owner, or moved again and again: its files would not count."""
        for _ in range(TRIES):
            total, files = 0, 0
            try:
                for size in (size for folder in self.folders for size in _sizes(folder)):
                    total, files = total + size, files + 1
                    if files > self.max_files or total > self.max_bytes:
                        break
                return total, files
            except _MovedError as error:
                moved = error
        raise moved


class _MovedError(OSError):
    """A folder is not where it was when it was entered."""


def _sizes(top: Path) -> Iterator[int]:
    """The bytes of each file in a folder, 0 for a folder, however deep they lie: a path would be too long, and that
    many open folders too many. What is removed meanwhile is skipped."""
    try:
        here = os.open(top, FOLDER)
    except (FileNotFoundError, NotADirectoryError):
        return
    try:
        above: list[tuple[os.stat_result, list[str]]] = []
        pending: list[str] | None = None  # of the folders in the present one, those still to enter; None: not looked at
        while True:
            if pending is None:
                pending = []
                with os.scandir(here) as entries:
                    for entry in entries:
                        if entry.is_dir(follow_symlinks=False):
                            pending.append(entry.name)
                            yield 0
                        else:
                            with suppress(FileNotFoundError):
                                yield entry.stat(follow_symlinks=False).st_blocks * 512
            if pending:
                try:
                    there = os.open(pending.pop(), FOLDER, dir_fd=here)
                except (FileNotFoundError, NotADirectoryError):
                    continue
                above.append((os.fstat(here), pending))
                pending = None
            elif above:
                status, pending = above.pop()
                there = os.open("..", FOLDER, dir_fd=here)
                if not os.path.samestat(status, os.fstat(there)):
                    os.close(there)
                    raise _MovedError(errno.ESTALE, os.strerror(errno.ESTALE))
            else:
                return
            here, there = there, here
            os.close(there)  # after that an interrupt may come, behind which `here` is closed
    finally:
        os.close(here)


class QuotaMonitor:
    """Checks a quota while a program runs, and the free space of the disk: a file that was removed while it is open
    takes space, but is in no folder."""

    def __init__(self, quota: Quota) -> None:
        self._quota = quota
        free = self._free()
        self._reserve = min(RESERVE, free // 8)
        self._quota = replace(quota, max_bytes=min(quota.max_bytes, quota.usage()[0] + free - self._reserve))
        self._free_at_excess: int | None = None

    def excess(self) -> str | None:
        """Why the program must be ended; None if it need not be."""
        if sentence := self._quota.excess():
            return sentence
        free = self._free()
        if free >= self._reserve:
            return None
        self._free_at_excess = free
        return "it filled the disk with files that it had removed"

    def final_excess(self) -> str | None:
        """As `excess`, after the program has ended. MachineError if it was ended for a disk that others filled."""
        if self._free_at_excess is not None and self._free() - self._free_at_excess < self._reserve:
            raise MachineError(
                f"the disk of {self._quota.folders[0]} is full: free some space, or set TMPDIR elsewhere"
            )
        return self._quota.excess()

    def _free(self) -> int:
        free = [1 << 60]
        for folder in self._quota.folders:
            with suppress(OSError):  # the program has removed it
                free.append(shutil.disk_usage(folder).free)
        return min(free)

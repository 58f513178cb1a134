"""What a program or a build has written in all: looked at while it runs, since few systems can set a bound to it."""

import os
import shutil
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path

from hw4cli.errors import MachineError

RESERVE = 64 << 20  # bytes that should stay free on a file system: less, and everyone's files are in danger


@dataclass(frozen=True)
class Quota:
    """Bytes and files that the folders may hold in all."""

    folders: tuple[Path, ...]
    max_bytes: int
    max_files: int

    def excess(self) -> str | None:
        """What there is too much of, in words; None if all is well. Takes no longer than max_files files do."""
        total, files = self.taken()
        if files > self.max_files:
            return f"it wrote more than {self.max_files:,} files"
        if total > self.max_bytes:
            return f"it wrote more than {self.max_bytes >> 20:,} MB"
        return None

    def taken(self) -> tuple[int, int]:
        """The bytes and the files in the folders; when there are too many, those that were found until then."""
        total, files = 0, 0
        places = [str(folder) for folder in self.folders]
        while places:
            with suppress(OSError), os.scandir(places.pop()) as entries:
                for entry in entries:
                    files += 1
                    if entry.is_dir(follow_symlinks=False):
                        places.append(entry.path)
                    else:
                        total += entry.stat(follow_symlinks=False).st_blocks * 512
                    if files > self.max_files or total > self.max_bytes:
                        return total, files
        return total, files


class Look:
    """Looks at a quota while a program runs, and at whether the disk is full all the same: a file that was removed
    while it is open takes room, and is in no folder."""

    def __init__(self, quota: Quota) -> None:
        self._quota = quota
        free = self._free()
        self._reserve = min(RESERVE, free // 8)
        self._quota = replace(quota, max_bytes=min(quota.max_bytes, quota.taken()[0] + free - self._reserve))
        self._left: int | None = None

    def excess(self) -> str | None:
        """What the program must be ended for."""
        if words := self._quota.excess():
            return words
        free = self._free()
        if free >= self._reserve:
            return None
        self._left = free
        return "it filled the disk with files that it had removed"

    def last(self) -> str | None:
        """As `excess`, when the program has ended. MachineError if it was ended for a disk that others filled."""
        if self._left is not None and self._free() - self._left < self._reserve:
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

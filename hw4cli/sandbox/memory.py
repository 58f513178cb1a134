"""The private folder of a run in the sandbox: file systems in memory that only the sandbox mounts.

They are no larger than what the run may write, whatever its files are called or however deep they lie, and removed
files count as long as they are open. No path of this machine leads to them: the judge holds descriptors of their
folders, by which it hands in the input, watches the space, and reads the output after all processes have ended.
"""

import os
import secrets
from collections.abc import Callable
from pathlib import Path
from typing import Self

from hw4cli.errors import os_error
from hw4cli.sandbox.quota import FOLDER, describe_excess
from hw4cli.system.account import Account

TEMPORARY, SHARED = "/tmp", "/dev/shm"
MARGIN = 16 << 20  # bytes beyond those allowed that there is space for: a program is ended rather than has none left


class PrivateMemory:
    """A run's `folder`, /tmp and /dev/shm, by their paths in the sandbox. Together they may hold so many bytes and
    files; each of the last two has space for `shared_bytes`. `user` becomes the owner. `fill` gets a descriptor of the
    folder when the sandbox stands."""

    def __init__(
        self,
        max_bytes: int,
        max_files: int,
        shared_bytes: int,
        fill: Callable[[int], None],
        user: Account | None = None,
        folder: Path | None = None,
    ) -> None:
        self.folder = folder or Path(f"/hw4-{secrets.token_hex(4)}")
        self.held = -1  # a descriptor of the folder, from `enter` on
        self._max_bytes, self._max_files, self._fill, self._user = max_bytes, max_files, fill, user
        self._shared_bytes = shared_bytes
        self._mounts: list[int] = []
        self._files_before = 0

    def options(self) -> list[str]:
        """bwrap's options that mount /tmp and /dev/shm."""
        return [*_mounted(TEMPORARY, self._shared_bytes), *_mounted(SHARED, self._shared_bytes)]

    def folder_options(self) -> list[str]:
        """Those that mount the folder."""
        return _mounted(str(self.folder), self._max_bytes)

    def enter(self, first: int) -> None:
        """Open the folders of the sandbox whose first process this is, and hand them to the user. Nothing runs in it
        yet. MachineError if that fails."""
        try:
            for path in (TEMPORARY, SHARED, str(self.folder)):
                mount = os.open(f"/proc/{first}/root{path}", FOLDER)
                self._mounts.append(mount)
                if path == str(self.folder):
                    self.held = mount
                elif _is_same(mount, path):  # a program in /tmp itself shows it, read-only
                    os.close(self._mounts.pop())
                else:
                    os.fchmod(mount, 0o1777)
            os.fchmod(self.held, 0o700)
            if self._user:
                os.fchown(self.held, self._user.uid, self._user.gid)
            self._files_before = self._usage()[1]
            self._fill(self.held)
        except OSError as error:
            raise os_error(error, "enter the sandbox") from None

    def _usage(self) -> tuple[int, int]:
        """The bytes and the files in the file systems."""
        total, files = 0, 0
        for mount in self._mounts:
            status = os.fstatvfs(mount)
            total += (status.f_blocks - status.f_bfree) * status.f_frsize
            files += status.f_files - status.f_ffree
        return total, files - self._files_before

    def excess(self) -> str | None:
        """Which bound is exceeded, as a sentence about the program; None if none is."""
        return describe_excess(*self._usage(), self._max_bytes, self._max_files) if self.held >= 0 else None

    final_excess = excess  # of what is left, after the program has ended

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for mount in self._mounts:
            os.close(mount)
        self._mounts, self.held = [], -1


def _mounted(path: str, size: int) -> list[str]:
    return ["--size", str(size + MARGIN), "--tmpfs", path]


def _is_same(descriptor: int, path: str) -> bool:
    try:
        return os.path.samestat(os.fstat(descriptor), os.stat(path))  # noqa: PTH116
    except OSError:
        return False

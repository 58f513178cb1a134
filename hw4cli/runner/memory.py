"""The private folder of a run in the sandbox: file systems in memory that only the sandbox mounts.

They are no larger than what the run may write, whatever its files are called or however deep they lie, and removed
files count as long as they are open. No path of this machine leads to them: the judge holds descriptors of their
folders, by which it hands in the input, watches the space, and reads the output after all processes have ended.
"""

import os
import secrets
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Self

from hw4cli.errors import os_error
from hw4cli.runner.quota import describe_excess
from hw4cli.system.account import Account

TEMPORARY, SHARED = "/tmp", "/dev/shm"
MARGIN = 16 << 20  # bytes beyond those allowed that there is space for: a program is ended rather than has none left


class PrivateMemory:
    """A run's `folder`, by its path in the sandbox, /tmp and /dev/shm. Together they may hold so many bytes and files;
    /dev/shm holds `shared_bytes`. `user` becomes the owner. `fill` gets a descriptor of the folder when the sandbox
    stands; the folder is a new one in /tmp, or the one that is given, which then is a file system of its own."""

    def __init__(
        self,
        max_bytes: int,
        max_files: int,
        shared_bytes: int,
        fill: Callable[[int], None],
        user: Account | None = None,
        folder: Path | None = None,
    ) -> None:
        self.folder = folder or Path(TEMPORARY, f"hw4-{secrets.token_hex(4)}")
        self.held = -1  # a descriptor of the folder, from `enter` on
        self._max_bytes, self._max_files, self._fill, self._user = max_bytes, max_files, fill, user
        self._sizes = {TEMPORARY: max_bytes, SHARED: shared_bytes}
        if folder:
            self._sizes = {TEMPORARY: shared_bytes, SHARED: shared_bytes, str(folder): max_bytes}
        self._mounts: list[int] = []
        self._files_before = 0

    def options(self) -> list[str]:
        """bwrap's options that mount the file systems, for those before the folder's parents are mounted."""
        return [
            word
            for path, size in self._sizes.items()
            if path != str(self.folder)
            for word in ("--size", str(size + MARGIN), "--tmpfs", path)
        ]

    def folder_options(self) -> list[str]:
        """Those that make the folder."""
        if str(self.folder) not in self._sizes:
            return ["--dir", str(self.folder)]
        return ["--size", str(self._sizes[str(self.folder)] + MARGIN), "--tmpfs", str(self.folder)]

    def enter(self, first: int) -> None:
        """Open the folders of the sandbox whose first process this is, and hand them to the user. Nothing runs in it
        yet. MachineError if that fails."""
        try:
            flags = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
            for path in self._sizes:
                self._mounts.append(os.open(f"/proc/{first}/root{path}", flags))
                os.fchmod(self._mounts[-1], 0o1777)
            self.held = os.open(f"/proc/{first}/root{self.folder}", flags)
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
        for descriptor in (*self._mounts, self.held):
            with suppress(OSError):
                os.close(descriptor)
        self._mounts, self.held = [], -1

"""A share of the output that several processes write together, as one of them writes it."""

import os
import threading
import time
from contextlib import suppress
from types import TracebackType
from typing import Any, Self

from hw4cli.errors import MachineError
from hw4cli.stream.nodes.jointfile import JointFile, Range, line
from hw4cli.system.files import write_all_at, write_error

SYNC_SECONDS = 2.0  # between two times that data, and then the list, are made safe


class Writer:
    """The part as one process writes it, and that process's list. A context manager; any thread may write."""

    def __init__(self, joint: JointFile) -> None:
        self._joint = joint
        self._pending: list[Range] = []
        self._synced, self._lock = -SYNC_SECONDS, threading.Lock()  # when data and list were last made safe
        self._file, self._list = joint.joined()
        try:
            os.ftruncate(self._file, joint.size)
        except OSError as error:
            self._close_files()
            raise write_error(error, joint.path) from None

    def write_at(self, data: Any, offset: int) -> None:
        """Write the bytes of a contiguous array at an offset."""
        write_all_at(self._file, data, offset, self._joint.path)

    def note(self, begin: int, end: int) -> None:
        """All bytes from `begin` on, up to before `end`, are written."""
        with self._lock:
            self._pending.append((begin, end))
            if time.monotonic() - self._synced > SYNC_SECONDS:
                self._sync()

    def _sync(self) -> None:
        """Let the disk have what is written, and only then the list: called with the lock."""
        path = self._joint.path
        try:
            os.fdatasync(self._file)
            if not os.fstat(self._list).st_nlink:
                raise MachineError(
                    f"another run of hw4 has begun {path} anew, or completed it: this one's share is lost"
                )
            lines = memoryview(b"".join(map(line, self._pending)))
            while lines:
                lines = lines[os.write(self._list, lines) :]
        except OSError as error:
            raise write_error(error, path) from None
        self._pending.clear()
        self._synced = time.monotonic()

    def close(self) -> None:
        """Close the part; what is noted is in the list then. MachineError if it cannot be written."""
        with self._lock:
            try:
                if self._pending:
                    self._sync()
            finally:
                self._close_files()

    def _close_files(self) -> None:
        os.close(self._list)
        os.close(self._file)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, _error: BaseException | None, _trace: TracebackType | None
    ) -> None:
        if kind is None:
            self.close()
        else:
            with suppress(MachineError):
                self.close()

"""An output that several processes write together, each its own ranges, and that a later run can complete.

Beside the output lies a folder, .NAME.KEY.hw4-part, with the output as far as it is written, lists of the ranges that
are (each process adds to a list of its own), and one of what was written before they began. KEY stands for the input as
it is now, the output, and all that decides about its bytes: only the same work goes on with it. Processes on any number
of nodes need the file system alone.
"""

import fcntl
import hashlib
import os
import re
import stat
import threading
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from hw4cli.errors import BusyError, InputError, MachineError, os_error
from hw4cli.system.files import HEAD_BYTES, NULL, PART_SUFFIX, NewFile, write_all_at, write_error

SYNC_SECONDS = 2.0  # between two times that data, and then the list, are made safe
LIST = "written-"  # the first letters of a list's name
LINE = re.compile(r"^(\d+) (\d+);$", re.MULTILINE)
Range = tuple[int, int]  # bytes of the output: from, and up to before


def key_of(source: Path, target: Path, options: Sequence[object]) -> str:
    """What stands for an input as it is now, an output, and options that decide about its bytes."""
    status = source.stat()
    facts = (str(source.resolve()), status.st_size, status.st_mtime_ns, str(target.absolute()), *options)
    return hashlib.sha256(repr(facts).encode(errors="surrogateescape")).hexdigest()[:16]


class JointFile:
    """An output of so many bytes, as all of its writers and the one that completes it see it.

    Raises InputError where a NewFile does.
    """

    def __init__(self, path: Path, size: int, key: str) -> None:
        self.path, self.size = path, size
        self.target = NewFile(path).target
        if self.target == NULL:
            raise InputError(f"several processes write a file together, but {path} is none")
        head = os.fsencode(self.target.name)[:HEAD_BYTES].decode(errors="ignore")
        self.folder = self.target.with_name(f".{head}.{key}{PART_SUFFIX}")
        self.part, self._before = self.folder / "output", self.folder / "before"

    def _lists(self) -> list[Path]:
        """The lists of single processes."""
        return list(self.folder.glob(f"{LIST}*"))

    def written_before(self) -> list[Range]:
        """The ranges that were written when this run began: the same for all of its processes."""
        return _merged(_read(self._before)) if self.part.exists() else []

    def written(self) -> list[Range]:
        """The ranges that are written by now."""
        lists = [self._before, *self._lists()] if self.part.exists() else []
        return _merged(line for path in lists for line in _read(path))

    @contextmanager
    def begun(self, go_on: bool) -> Iterator[None]:
        """A block in which processes write: before it, what was written is kept, if they are to go on with it, or else
        thrown away. After it, nothing stays if nothing is written. BusyError if another run is at the same output.

        Where the file system knows no locks, nobody is kept out.
        """
        file = self._locked()
        try:
            known = self.written() if go_on else []
            if not known:
                os.ftruncate(file, 0)
            with NewFile(self._before) as before:
                before.write(memoryview(b"".join(map(_line, known))))
            for path in self._lists():
                path.unlink(missing_ok=True)
            yield
        finally:
            if not self.written():
                self.remove()
            os.close(file)

    def _locked(self) -> int:
        """The part, open and locked."""
        while True:
            file = self.opened()
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                os.close(file)
                raise BusyError(f"another run of hw4 is writing {self.path}: wait for its end") from None
            except OSError:
                return file
            with suppress(FileNotFoundError):  # it may have been completed, or removed, in this moment
                if os.path.samestat(os.fstat(file), self.part.stat()):
                    return file
            os.close(file)

    def opened(self) -> int:
        """The part's descriptor; it is made if it is not there. MachineError if that cannot be."""
        mode, flags = 0o600 if self.target.exists() else 0o666, os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW
        try:
            self.folder.mkdir(mode=0o700, exist_ok=True)
            try:
                file = os.open(self.part, flags | os.O_CREAT | os.O_EXCL, mode)
                for path in (*self._lists(), self._before):  # of a part that is gone
                    path.unlink(missing_ok=True)
            except FileExistsError:
                file = os.open(self.part, flags)
        except OSError as error:
            raise write_error(error, self.path) from None
        status = os.fstat(file)
        if not stat.S_ISREG(status.st_mode) or status.st_uid != os.geteuid():
            os.close(file)
            raise MachineError(f"{self.part} is in the way: it is not this user's file")
        return file

    def list_of_this_process(self) -> Path:
        """A new name for a list."""
        return self.folder / f"{LIST}{os.urandom(8).hex()}"

    @property
    def share(self) -> float:
        """How much of the output is written, from 0 to 1."""
        return sum(end - begin for begin, end in self.written()) / self.size

    def complete(self) -> None:
        """Bring the part to the output's place, and remove the lists. MachineError if that cannot be."""
        try:
            with suppress(FileNotFoundError):
                self.part.chmod(stat.S_IMODE(self.target.stat().st_mode))
            self.part.replace(self.target)
        except OSError as error:
            raise write_error(error, self.path) from None
        self.remove()

    def remove(self) -> None:
        """Remove the part and the lists."""
        for path in (*self._lists(), self._before, self.part):
            path.unlink(missing_ok=True)
        with suppress(OSError):  # it is not there, or holds what is not ours
            self.folder.rmdir()


class Writer:
    """The part as one process writes it, and that process's list. A context manager; any thread may write."""

    def __init__(self, joint: JointFile) -> None:
        self._joint, self._list = joint, joint.list_of_this_process()
        self._pending: list[Range] = []
        self._synced, self._lock = -SYNC_SECONDS, threading.Lock()  # when data and list were last made safe
        self._file = joint.opened()
        try:
            os.ftruncate(self._file, joint.size)
        except OSError as error:
            os.close(self._file)
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
        try:
            os.fdatasync(self._file)
            with self._list.open("ab", buffering=0) as file:
                file.write(b"".join(_line(one) for one in self._pending))
        except OSError as error:
            raise write_error(error, self._joint.path) from None
        self._pending.clear()
        self._synced = time.monotonic()

    def close(self) -> None:
        """Close the part; what is noted is in the list then. MachineError if it cannot be written."""
        with self._lock:
            try:
                if self._pending:
                    self._sync()
            finally:
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


def _line(one: Range) -> bytes:
    """A line of a list; it begins with a line's end, because the line before may have been cut off."""
    return b"\n%d %d;\n" % one


def _read(path: Path) -> list[Range]:
    try:
        text = path.read_text(encoding="ascii", errors="replace")
    except FileNotFoundError:
        return []
    except OSError as error:
        raise os_error(error, f"read {path}") from None
    return [(int(begin), int(end)) for begin, end in LINE.findall(text)]


def _merged(ranges: Iterable[Range]) -> list[Range]:
    """Ranges as the fewest that cover the same, in order."""
    merged: list[Range] = []
    for begin, end in sorted(ranges):
        if merged and begin <= merged[-1][1]:
            merged[-1] = merged[-1][0], max(merged[-1][1], end)
        elif begin < end:
            merged.append((begin, end))
    return merged


def covers(ranges: Sequence[Range], begin: int, end: int) -> bool:
    """Whether merged ranges hold all bytes from `begin` on, up to before `end`."""
    return any(first <= begin and end <= last for first, last in ranges)

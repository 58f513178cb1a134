"""An output that several processes write together, each its own ranges, and that a later run can complete.

Beside the output lies a folder, .NAME.KEY.hw4-part, with the output as far as it is written, lists of the ranges that
are (each process adds to a list of its own), and one of what was written before they began. KEY stands for the input as
it is now, the output, and all that decides about its bytes: only the same work goes on with it. Processes on any number
of nodes need the file system alone.

A list counts as long as it has its name: a run that throws away what an earlier one has written, or that completes it,
removes the lists, and a process of that one which is still there has no say any more. The folder appears with the part
in it, so that no list in it is older than the part; a folder without one is of a run that has ended.
"""

import errno
import fcntl
import hashlib
import os
import re
import stat
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

from hw4cli.errors import BusyError, InputError, MachineError, os_error
from hw4cli.system.files import HEAD_BYTES, NULL, PART_SUFFIX, NewFile, write_error
from hw4cli.system.interrupts import SignalsDeferred

LIST, BEFORE = "written-", "before-"  # the first letters of a list's name
LINE = re.compile(r"^(\d+) (\d+);$", re.MULTILINE)
# Seconds before each try to open the part: other processes may make it and remove it in the same moment, and NFS keeps
# a removed file under another name until the last process has closed it. Where the run began on another node they are a
# grace of 3 s, not the LAG of launch.py: NFS keeps the list of a folder that a node has read, as that one reads this
# folder's, but asks the server for a name that the node has not looked for, and the folder is made before srun starts.
# A node that does not see it then has another file system, and says so soon. (One that has looked for the same name in
# vain in the minute before, a late process of an equal run, may say so, too: a run after that minute does not.)
PAUSES = (0.0, 0.0, *[0.05] * 60)
Range = tuple[int, int]  # bytes of the output: from, and up to before


def key_of(source: Path, target: Path, options: Sequence[object]) -> str:
    """What stands for an input as it is now, an output, and options that decide about its bytes: on all nodes the same,
    whatever links lead there."""
    status = source.stat()
    facts = (str(source.absolute()), status.st_size, status.st_mtime_ns, str(target.absolute()), *options)
    return hashlib.sha256(repr(facts).encode(errors="surrogateescape")).hexdigest()[:16]


class JointFile:
    """An output of so many bytes, as all of its writers and the one that completes it see it.

    `begun_elsewhere`: another process has made the part, maybe on another node; this one waits until it sees it.
    Raises InputError where a NewFile does.
    """

    def __init__(self, path: Path, size: int, key: str, begun_elsewhere: bool = False) -> None:
        self.path, self.size, self._begun_elsewhere = path, size, begun_elsewhere
        self.target = NewFile(path).target
        if self.target == NULL:
            raise InputError(f"several processes write a file together, but {path} is none")
        head = os.fsencode(self.target.name)[:HEAD_BYTES].decode(errors="ignore")
        self.folder = self.target.with_name(f".{head}.{key}{PART_SUFFIX}")
        self.part = self.folder / "output"

    def _lists(self, *kinds: str) -> list[Path]:
        """The lists, of some kinds or of all."""
        return [path for kind in kinds or (LIST, BEFORE) for path in self.folder.glob(f"{kind}*")]

    def written_before(self) -> list[Range]:
        """The ranges that were written when this run began: the same for all of its processes."""
        return self._in(self._lists(BEFORE))

    def written(self) -> list[Range]:
        """The ranges that are written by now."""
        return self._in(self._lists())

    def left(self) -> list[Range]:
        """The ranges that an earlier run has left written: none if the part has lost bytes since."""
        with suppress(FileNotFoundError):
            return self.written() if self.part.stat().st_size == self.size else []
        return []

    def _in(self, lists: Iterable[Path]) -> list[Range]:
        return _merged(line for path in lists for line in _read(path)) if self.part.exists() else []

    @contextmanager
    def held(self) -> Iterator[int]:
        """A block in which no other run is at the same output; the part's descriptor. BusyError if one is. After it,
        nothing stays if nothing is written.

        Where the file system knows no locks, nobody is kept out.
        """
        file = None
        try:
            with SignalsDeferred():
                file = self._locked()
        except KeyboardInterrupt:  # which was deferred until the part was there, if it is
            if file is not None:
                self._release(file)
            raise
        try:
            yield file
        finally:
            self._release(file)

    def _release(self, file: int) -> None:
        """Close the part, and remove it if nothing is written."""
        if self._is_part(file) and not self.written():
            self.remove()
        os.close(file)

    @contextmanager
    def begun(self, go_on: bool) -> Iterator[None]:
        """The same, in which other processes write: before it, what was written is kept, if they are to go on with it,
        or else thrown away."""
        with self.held() as file:
            known, old = self.left() if go_on else [], self._lists()
            if not known:
                os.ftruncate(file, 0)
            with NewFile(self._new_list(BEFORE)) as before:
                before.write(memoryview(b"".join(map(line, known))))
            _unlink(old)
            yield

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
            if self._is_part(file):
                return file
            os.close(file)

    def _is_part(self, file: int) -> bool:
        """Whether a descriptor is of the part as it is now: it may have been completed, or removed, in this moment."""
        with suppress(FileNotFoundError):
            return os.path.samestat(os.fstat(file), self.part.stat())
        return False

    def opened(self) -> int:
        """The part's descriptor; it is made if it is not there. MachineError if that cannot be.

        For writing alone: to write some bytes of a page into a file that is open for reading, too, NFS reads the page
        at first, and later writes all of it, over what another node has written there meanwhile.
        """
        try:
            file = self._opened_or_made()
        except OSError as error:
            raise write_error(error, self.path) from None
        status = os.fstat(file)
        if not stat.S_ISREG(status.st_mode) or status.st_uid != os.geteuid():
            os.close(file)
            raise MachineError(f"{self.part} is in the way: it is not this user's file")
        return file

    def _opened_or_made(self) -> int:
        for pause in PAUSES:
            time.sleep(pause)
            known = self._lists()
            with suppress(FileNotFoundError):
                return os.open(self.part, os.O_WRONLY | os.O_CLOEXEC | os.O_NOFOLLOW)
            if not self._begun_elsewhere:
                self._remove(known)
                self._make()
        if self._begun_elsewhere:
            raise MachineError(
                f"{self.folder}, where the run began, is not on this node: the output must lie on a file system that "
                "all nodes share"
            )
        others = ", ".join(sorted(path.name for path in self.folder.iterdir()))
        raise MachineError(
            f"{self.folder} holds {others}, and hw4 removes only its own files: remove the folder when no other run is "
            f"writing {self.path}, then try again"
        )

    def _make(self) -> None:
        """Make the folder with an empty part in it, unless another process has."""
        mode = 0o600 if self.target.exists() else 0o666
        new = self.folder.with_name(f"{self.folder.name}.{os.urandom(4).hex()}")
        with SignalsDeferred():
            self._make_as(new, mode)

    def _make_as(self, new: Path, mode: int) -> None:
        new.mkdir(mode=0o700)
        part = new / self.part.name
        try:
            os.close(os.open(part, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode))
            new.rename(self.folder)
        except OSError as error:
            part.unlink(missing_ok=True)
            new.rmdir()
            if error.errno not in (errno.ENOTEMPTY, errno.EEXIST):
                raise

    def joined(self) -> tuple[int, int]:
        """The part and a new list of this process, both open for writing. MachineError if that cannot be."""
        while True:
            file, path = self.opened(), self._new_list(LIST)
            with ExitStack() as opened:
                opened.callback(os.close, file)
                try:
                    own = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_APPEND | os.O_CLOEXEC, 0o600)
                except FileNotFoundError:  # another run has completed the part, or removed it, in this moment
                    continue
                except OSError as error:
                    raise write_error(error, self.path) from None
                opened.callback(os.close, own)
                if self._is_part(file):
                    opened.pop_all()
                    return file, own
                _unlink([path])

    def _new_list(self, kind: str) -> Path:
        return self.folder / f"{kind}{os.urandom(8).hex()}"

    @property
    def has_writers(self) -> bool:
        """Whether any process has begun to write."""
        return bool(self._lists(LIST))

    @property
    def share(self) -> float:
        """How much of the output is written, from 0 to 1."""
        return sum(end - begin for begin, end in self.written()) / self.size

    def complete(self) -> None:
        """Bring the part to the output's place, and remove the lists. MachineError if that cannot be."""
        lists = self._lists()  # later, a run that begins behind this one may have lists of its own there
        try:
            with suppress(FileNotFoundError):
                self.part.chmod(stat.S_IMODE(self.target.stat().st_mode))
            self.part.replace(self.target)
        except OSError as error:
            raise write_error(error, self.path) from None
        self._remove(lists)

    def remove(self) -> None:
        """Remove the part and the lists."""
        lists = self._lists()
        self.part.unlink(missing_ok=True)
        self._remove(lists)

    def _remove(self, lists: Iterable[Path]) -> None:
        """Remove lists of a part that is gone, and the folder, unless it holds what is not ours, or is another one."""
        _unlink(lists)
        with suppress(OSError):
            self.folder.rmdir()


def line(one: Range) -> bytes:
    """A line of a list; it begins with a line's end, because the line before may have been cut off."""
    return b"\n%d %d;\n" % one


def _unlink(paths: Iterable[Path]) -> None:
    for path in paths:
        path.unlink(missing_ok=True)


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

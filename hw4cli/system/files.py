"""Files that appear at their place only when they are complete."""

import errno
import fcntl
import os
import re
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

from hw4cli.errors import Hw4Error, InputError, os_error
from hw4cli.system import owner
from hw4cli.system.interrupts import SignalsDeferred

if TYPE_CHECKING:
    from numpy.typing import NDArray

PART_SUFFIX, JOURNAL_SUFFIX = ".hw4-part", ".hw4-journal"
PART = re.compile(rf"\..*\.(?P<owner>{owner.TOKEN})-[0-9a-f]{{8}}{re.escape(PART_SUFFIX)}", re.DOTALL)
HEAD_BYTES = 32  # of the file's name in the part's: with the rest, less than any file system's limit
LINKS = 40  # that the kernel follows
NULL = Path("/dev/null")


class NewFile:
    """A file that appears at its place only when it is complete: written to a part file beside it, renamed at the end.

    Use it as a context manager. On any exception, Ctrl-C included, the part is removed and the file at `path` stays as
    it was. If the process is killed, its part stays, and the next run that writes into the folder removes it. Writes to
    /dev/null are discarded. The file gets the permissions `mode`, or else those of the file that it replaces, or the
    usual ones. Raises MachineError if the file cannot be written, InputError if `path` is not a place for a file.
    """

    def __init__(self, path: Path, mode: int | None = None) -> None:
        self.path, self._mode = path, mode
        try:
            # A link stays: the file that it leads to is replaced.
            self.target = _behind_links(path)
            kind = self.target.lstat().st_mode
        except FileNotFoundError:
            kind = stat.S_IFREG
        except OSError as error:
            raise InputError(f"{path} is not a place for a file: {error.strerror}") from None
        if stat.S_ISDIR(kind):
            raise InputError(f"{path} is a directory, but the output must be a file")
        if not stat.S_ISREG(kind) and self.target != NULL:
            raise InputError(f"{path} is a device or a pipe, but the output must be a regular file")
        if not self.target.parent.is_dir():
            raise InputError(f"the folder {self.target.parent} of the output {path} does not exist")

    def __enter__(self) -> Self:
        folder = self.target.parent
        self._part = self.target
        private = self._mode is not None or self.target.exists()
        flags, mode = os.O_WRONLY | os.O_CLOEXEC, 0o600 if private else 0o666
        if self.target != NULL:
            remove_orphans(folder)
            head = os.fsencode(self.target.name)[:HEAD_BYTES].decode(errors="ignore")
            self._part = folder / f".{head}.{owner.token()}-{os.urandom(4).hex()}{PART_SUFFIX}"
            flags |= os.O_CREAT | os.O_EXCL
        try:
            with SignalsDeferred():
                self._file = os.fdopen(os.open(self._part, flags, mode), "wb", buffering=0)
        except OSError as error:
            raise os_error(error, f"write into {folder}") from None
        except KeyboardInterrupt:  # which was deferred until the part was there
            self._remove_part()
            raise
        return self

    def write(self, data: "NDArray[Any] | memoryview") -> None:
        """Append the bytes of a contiguous array."""
        view = _bytes(data)
        try:
            while view:
                view = view[self._file.write(view) :]
        except OSError as error:
            raise write_error(error, self.path) from None

    def write_at(self, data: "NDArray[Any] | memoryview", offset: int) -> None:
        """Write the bytes of a contiguous array at an offset; any number of threads at once."""
        write_all_at(self._file.fileno(), data, offset, self.path)

    def __exit__(
        self, kind: type[BaseException] | None, _error: BaseException | None, _trace: TracebackType | None
    ) -> None:
        with SignalsDeferred():
            try:
                self._file.close()
                if kind is None and self.target != NULL:
                    with suppress(FileNotFoundError):
                        self._part.chmod(self._mode or stat.S_IMODE(self.target.stat().st_mode))
                    self._part.replace(self.target)
            except OSError as error:
                raise write_error(error, self.path) from None
            finally:
                self._remove_part()

    def _remove_part(self) -> None:
        if self.target != NULL:
            self._part.unlink(missing_ok=True)


def _bytes(data: Any) -> memoryview:
    return memoryview(data).cast("B")


def _behind_links(path: Path) -> Path:
    """Where a name leads, links followed one by one. OSError if it leads nowhere; InputError if its way goes through
    /dev or /proc: behind /dev/stdout, for instance, may be a redirection's file, which a rename would take away from
    its writer."""
    place = path
    for _ in range(LINKS):
        place = Path(os.path.realpath(place.parent)) / place.name
        if place == NULL:
            return place
        if re.match(r"/(dev/(?!shm/)|proc/)", str(place)):
            raise InputError(f"{path} is not a place for a file: name a regular one")
        if not place.is_symlink():
            return place
        place = place.parent / place.readlink()
    raise OSError(errno.ELOOP, os.strerror(errno.ELOOP))


def remove_orphans(folder: Path) -> None:
    """Remove the parts that killed processes left in a folder: those of this user, whose names show that they were made
    on this machine by a process that has ended, and that have no journal beside them, by which a run could go on."""
    with suppress(OSError), os.scandir(folder) as entries:
        for entry in entries:
            match = entry.name.endswith(PART_SUFFIX) and PART.fullmatch(entry.name)
            if not match or not owner.is_dead(match["owner"]):
                continue
            with suppress(OSError):
                status = entry.stat(follow_symlinks=False)
                journal = Path(entry.path).with_suffix(JOURNAL_SUFFIX)
                if stat.S_ISREG(status.st_mode) and status.st_uid == os.geteuid() and not journal.exists():
                    Path(entry.path).unlink()


def check_place(path: Path, *inputs: Path) -> None:
    """Raise InputError if a file cannot be at a place, or would replace one of the inputs: before the work whose result
    goes there."""
    NewFile(path)
    for one in inputs:
        check_different(one, path)


def make_folder(folder: Path) -> None:
    """Make a folder unless it is there. InputError if that cannot be."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except (FileExistsError, NotADirectoryError):
        raise InputError(f"{folder} is not a folder: it, or what it lies in, is a file") from None
    except OSError as error:
        raise InputError(f"cannot make the folder {folder}: {error.strerror}") from None


@contextmanager
def locked(folder: Path) -> Iterator[None]:
    """Lock a folder while its files are read and written anew, so that no other process's change is lost; without
    effect on file systems that have no locks. OSError if it cannot be opened."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        with suppress(OSError):
            fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


def write_text(path: Path, text: str, mode: int | None = None) -> None:
    """Write a text file whole or not at all, as UTF-8; what no text can hold becomes a question mark. Raises as NewFile
    does."""
    with NewFile(path, mode) as file:
        file.write(memoryview(text.encode(errors="replace")))


def write_all_at(file: int, data: Any, offset: int, path: Path) -> None:
    """Write the bytes of a contiguous array at an offset of an open file. MachineError, naming `path`, if it fails."""
    view, done = _bytes(data), 0
    try:
        while done < len(view):
            done += os.pwrite(file, view[done:], offset + done)
    except OSError as error:
        raise write_error(error, path) from None


def write_error(error: OSError, path: Path) -> Hw4Error:
    """What a failed writing of a file is reported as."""
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return os_error(error, f"write {path} (its disk is full: free some space, or write elsewhere)")
    return os_error(error, f"write {path}")


def check_different(source: Path, target: Path) -> None:
    """Raise InputError if the output would replace the input."""
    with suppress(OSError):  # where one of them does not exist
        if target.samefile(source):
            raise InputError(f"the output {target} is the input file itself: choose another name")

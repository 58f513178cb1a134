"""The binary format of the assignment: read, write and check it. Little-endian, no padding.

An input is int32 B, N, d, then for each batch Q, K and V (N×d float32 each, row-major).
An output is, for each batch, O (N×d float32), without a header.
"""

import errno
import os
import re
import stat
import struct
import tempfile
from collections.abc import Iterator
from io import FileIO
from pathlib import Path
from types import TracebackType
from typing import Any, BinaryIO, Self

import numpy as np
from numpy.typing import NDArray

from hw4cli.errors import Hw4Error, InputError, os_error
from hw4cli.shape import Shape
from hw4cli.words import counted

Floats = NDArray[np.float32]
Magnitudes = tuple[float, float, float]  # the largest |element| of Q, of K and of V; NaN where there is one

HEADER = struct.Struct("<iii")  # B, N, d
FLOAT32 = np.dtype("<f4")
PART_SUFFIX = ".hw4-part"
RANGE_BYTES = 32 << 20  # read at a time where a file is only looked at


def open_regular(path: Path) -> FileIO:
    """Open a file for reading; InputError if it is missing, unreadable, or no regular file."""
    try:
        if not stat.S_ISREG(path.stat().st_mode):
            kind = "a directory" if path.is_dir() else "not a regular file"
            raise InputError(f"{path} is {kind}, but a file is needed")
        return path.open("rb", buffering=0)
    except FileNotFoundError:
        raise InputError(f"{path} does not exist") from None
    except OSError as error:
        raise InputError(f"cannot read {path}: {error.strerror}") from None


def read_exactly(file: BinaryIO, out: NDArray[Any], offset: int, path: Path) -> None:
    """Fill a contiguous array from a place in a file that threads may share; InputError if it ends before."""
    view, filled = out.data.cast("B"), 0
    try:
        while filled < len(view):
            count = os.preadv(file.fileno(), [view[filled:]], offset + filled)
            if not count:
                raise InputError(f"{path} became shorter while it was being read")
            filled += count
    except OSError as error:
        raise os_error(error, f"read {path}") from None


class InputFile:
    """An input file whose header and size have been checked; `batches` reads from it.

    Raises InputError if the file is missing, short, long, or has a header that no case has.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._file = open_regular(path)
        try:
            self.shape = self._checked_shape()
        except BaseException:
            self._file.close()
            raise

    def _checked_shape(self) -> Shape:
        size = os.fstat(self._file.fileno()).st_size
        if size < HEADER.size:
            found = counted(size, "byte")
            raise InputError(f"{self.path} has {found}, but the header alone (B, N, d) takes {HEADER.size}")
        shape = Shape(*HEADER.unpack(self._file.read(HEADER.size)))
        shape.check(str(self.path))
        if size != shape.input_bytes:
            less = size < shape.input_bytes
            raise InputError(
                f"{self.path} is {counted(abs(size - shape.input_bytes), 'byte')} too {'short' if less else 'long'}: "
                f"its header (B, N, d) = {shape} asks for {shape.input_bytes:,} bytes, the file has {size:,}"
            )
        return shape

    def batches(self, start: int, stop: int) -> Floats:
        """Read batches start … stop-1 as an array (stop-start, 3, N, d) of float32: Q, K, V of each."""
        shape = self.shape
        block = np.empty((stop - start, 3, shape.N, shape.d), FLOAT32)
        self.read(block, 3 * 4 * shape.N * shape.d * start)
        return block

    def read(self, out: NDArray[Any], offset: int) -> None:
        """Fill a contiguous array with bytes from an offset behind the header; any number of threads at once."""
        read_exactly(self._file, out, HEADER.size + offset, self.path)

    def blocks(self, max_bytes: int) -> Iterator[tuple[int, Floats]]:
        """The whole file in order as (first batch, block), each of as many batches as fit max_bytes, at least one."""
        for start, stop in batch_spans(self.shape, max_bytes):
            yield start, self.batches(start, stop)

    def ranges(self) -> dict[str, tuple[float, float]]:
        """The smallest and largest element of Q, of K and of V; InputError at a NaN or Inf, saying where."""
        low, high = np.full(3, np.inf), np.full(3, -np.inf)
        for first, block in self.blocks(RANGE_BYTES):
            check_finite(block, first, self.path)
            flat = block.reshape(len(block), 3, -1)
            low = np.minimum(low, flat.min(axis=(0, 2)))
            high = np.maximum(high, flat.max(axis=(0, 2)))
        return {part: (float(a), float(b)) for part, a, b in zip("QKV", low, high, strict=True)}

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._file.close()


def batch_spans(shape: Shape, max_bytes: int) -> Iterator[tuple[int, int]]:
    """Cut B batches into spans (start, stop) whose Q, K and V fit max_bytes, of one batch at least."""
    step = max(1, max_bytes // (3 * 4 * shape.N * shape.d))
    for start in range(0, shape.B, step):
        yield start, min(start + step, shape.B)


def magnitudes(block: Floats) -> Magnitudes:
    """The largest |element| of Q, of K and of V in a block (n, 3, N, d); NaN where there is one."""
    flat = block.reshape(len(block), 3, -1)
    # max and min pass a NaN on: two passes, and no temporary array.
    high, low = flat.max(axis=2).max(axis=0), flat.min(axis=2).min(axis=0)
    q, k, v = (float(value) for value in np.maximum(high, -low))
    return q, k, v


def check_finite(block: Floats, first_batch: int, path: Path) -> None:
    """Raise InputError, saying where, if a block (n, 3, N, d) that starts at first_batch holds NaN or Inf."""
    if all(value < np.inf for value in magnitudes(block)):
        return
    batch, part, row, column = (int(i) for i in np.argwhere(~np.isfinite(block))[0])
    value = block[batch, part, row, column]
    raise InputError(
        f"{path} holds {value} in {'QKV'[part]} of batch {first_batch + batch}, row {row}, column {column}: "
        "every element must be a finite number"
    )


class NewFile:
    """A file that appears at its place only when it is whole: written beside it, renamed at the end.

    Use it as a context manager. On any exception, Ctrl-C included, the new bytes vanish and what was at `path`
    before stays as it was. Raises MachineError if it cannot be written, InputError if `path` is no place for a file.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        if path.is_dir():
            raise InputError(f"{path} is a directory, but the output must be a file")
        if re.match(r"/(dev/(?!shm/)|proc/)", str(path.absolute())):
            # Behind /dev/stdout may be a redirection's file, which a rename would take away from its writer.
            raise InputError(f"{path} is no place for a file: name a regular one")
        if path.exists() and not path.is_file():
            raise InputError(f"{path} is a device or a pipe, but the output must be a regular file")
        # A link keeps pointing where it pointed: the file behind it is what is replaced.
        self._target = path.resolve()
        if not self._target.parent.is_dir():
            raise InputError(f"the folder {self._target.parent} of the output {path} does not exist")

    def __enter__(self) -> Self:
        folder, name = self._target.parent, self._target.name
        try:
            handle, part = tempfile.mkstemp(prefix=f".{name[:100]}.", suffix=PART_SUFFIX, dir=folder)
        except OSError as error:
            raise os_error(error, f"write into {folder}") from None
        self._part = Path(part)
        self._file = os.fdopen(handle, "wb", buffering=0)
        return self

    def write(self, data: NDArray[Any]) -> None:
        """Append the bytes of a contiguous array."""
        view = data.data.cast("B")
        try:
            while view:
                view = view[self._file.write(view) :]
        except OSError as error:
            raise _write_error(error, self.path) from None

    def write_at(self, data: NDArray[Any], offset: int) -> None:
        """Write the bytes of a contiguous array at an offset; any number of threads at once."""
        view, done = data.data.cast("B"), 0
        try:
            while done < len(view):
                done += os.pwrite(self._file.fileno(), view[done:], offset + done)
        except OSError as error:
            raise _write_error(error, self.path) from None

    def __exit__(
        self, kind: type[BaseException] | None, _error: BaseException | None, _trace: TracebackType | None
    ) -> None:
        try:
            self._file.close()
            if kind is None:
                self._part.chmod(self._mode())
                self._part.replace(self._target)
        except OSError as error:
            raise _write_error(error, self.path) from None
        finally:
            self._part.unlink(missing_ok=True)

    def _mode(self) -> int:
        """The permissions of the file that is replaced, or those that a new file gets."""
        if self._target.exists():
            return stat.S_IMODE(self._target.stat().st_mode)
        umask = os.umask(0)
        os.umask(umask)
        return 0o666 & ~umask


def check_place(path: Path) -> None:
    """Raise InputError if a file cannot be at a place: before the work whose result goes there."""
    NewFile(path)


def make_folder(folder: Path) -> None:
    """Make a folder unless it is there. InputError if that cannot be."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except (FileExistsError, NotADirectoryError):
        raise InputError(f"{folder} is no folder: it, or what it lies in, is a file") from None
    except OSError as error:
        raise InputError(f"cannot make the folder {folder}: {error.strerror}") from None


def write_text(path: Path, text: str) -> None:
    """Write a text file whole or not at all, as UTF-8; what no text can hold becomes a question mark."""
    with NewFile(path) as file:
        file.write(np.frombuffer(text.encode(errors="replace"), np.uint8))


def _write_error(error: OSError, path: Path) -> Hw4Error:
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return os_error(error, f"write {path} (its disk is full: free some space, or write elsewhere)")
    return os_error(error, f"write {path}")


def check_different(source: Path, target: Path) -> None:
    """Raise InputError if the output would replace the input."""
    if target.exists() and target.samefile(source):
        raise InputError(f"the output {target} is the input file itself: choose another name")

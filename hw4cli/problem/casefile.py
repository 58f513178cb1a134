"""The binary format of the assignment: reading and checking files. Little-endian, no padding.

An input is int32 B, N, d, then for each batch Q, K and V (N×d float32 each, row-major).
An output is, for each batch, O (N×d float32), without a header.
"""

import math
import os
import shlex
import stat
import struct
from collections.abc import Iterator
from io import FileIO
from itertools import product
from pathlib import Path
from typing import Any, BinaryIO, Self

import numpy as np
from numpy.typing import NDArray

from hw4cli.errors import InputError, os_error
from hw4cli.problem.workload import Magnitudes, Workload
from hw4cli.resources import data_path, names_in
from hw4cli.text.words import counted

Floats = NDArray[np.float32]
Position = tuple[int, int, int]  # batch, part (0 is Q, 1 is K, 2 is V), row

HEADER = struct.Struct("<iii")  # B, N, d
FLOAT32 = np.dtype("<f4")
RANGE_BYTES = 32 << 20  # read at a time where only the range of the values is needed


def open_regular(path: Path) -> FileIO:
    """Open a file for reading; InputError if it is missing, unreadable, or no regular file."""
    try:
        if not stat.S_ISREG(path.stat().st_mode):
            kind = "a directory" if path.is_dir() else "not a regular file"
            raise InputError(f"{path} is {kind}, but a file is needed")
        return path.open("rb", buffering=0)
    except FileNotFoundError:
        raise InputError(f"{path} does not exist{_how_to_make(path)}") from None
    except OSError as error:
        raise InputError(f"cannot read {path}: {error.strerror}") from None


def _how_to_make(path: Path) -> str:
    """What to do about a missing file that has the name of a suite's case, in words behind its own."""
    name = path.name.removesuffix(".out").removesuffix(".causal")
    if name not in names_in(os.environ.get("HW4_SUITE") or data_path("testcases/suite.toml"), "cases"):
        return ""
    place = "" if path.parent == Path("testcases") else f" --dir {shlex.quote(str(path.parent))}"
    return f": `hw4 gen {name}{place}` makes it"


def read_exactly(file: BinaryIO, out: NDArray[Any], offset: int, path: Path) -> None:
    """Fill a contiguous array from an offset of a file, which threads may share; InputError if the file is too
    short."""
    view, filled = out.data.cast("B"), 0
    try:
        while filled < len(view):
            count = os.preadv(file.fileno(), [view[filled:]], offset + filled)
            if not count:
                found, size = offset + filled, os.fstat(file.fileno()).st_size
                short = f"ends after {found:,} of its {size:,} bytes" if found < size else "became shorter"
                raise InputError(f"{path} {short} while it was being read")
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
        self._state = self._size_and_time()
        try:
            self.shape = self._checked_shape()
        except BaseException:
            self._file.close()
            raise

    def _size_and_time(self) -> tuple[int, int]:
        status = os.fstat(self._file.fileno())
        return status.st_size, status.st_mtime_ns

    def check_unchanged(self) -> None:
        """Raise InputError if the file has been written to since it was opened here."""
        if self._size_and_time() != self._state:
            raise InputError(f"{self.path} has changed while it was read: run hw4 again")

    def _checked_shape(self) -> Workload:
        size = os.fstat(self._file.fileno()).st_size
        if size < HEADER.size:
            found = counted(size, "byte")
            raise InputError(f"{self.path} has {found}, but the header alone (B, N, d) takes {HEADER.size}")
        header = np.empty(HEADER.size, np.uint8)
        read_exactly(self._file, header, 0, self.path)
        shape = Workload.one_head(*HEADER.unpack(header.tobytes()))
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
        """Fill a contiguous array with bytes from an offset after the header; any number of threads at once."""
        read_exactly(self._file, out, HEADER.size + offset, self.path)

    def blocks(self, max_bytes: int) -> Iterator[tuple[int, Floats]]:
        """The whole file in order as (first batch, block), each of as many batches as fit max_bytes, at least one."""
        for start, stop in batch_spans(self.shape, max_bytes):
            yield start, self.batches(start, stop)

    def pieces(self, start: int, stop: int) -> Iterator[tuple[Position, Floats]]:
        """Batches start … stop-1 in order, in bounded memory: (place of its first element, array of batches, parts,
        rows and columns). Several batches together, or some rows of Q, K or V where a batch is large."""
        shape = self.shape
        row_bytes = 4 * shape.d
        together, rows = RANGE_BYTES // (3 * shape.N * row_bytes), max(1, RANGE_BYTES // row_bytes)
        if together:
            for batch in range(start, stop, together):
                yield (batch, 0, 0), self.batches(batch, min(batch + together, stop))
            return
        for batch, part, row in product(range(start, stop), range(3), range(0, shape.N, rows)):
            piece = np.empty((1, 1, min(rows, shape.N - row), shape.d), FLOAT32)
            self.read(piece, ((3 * batch + part) * shape.N + row) * row_bytes)
            yield (batch, part, row), piece

    def ranges(self) -> dict[str, tuple[float, float]]:
        """The smallest and largest element of Q, of K and of V; InputError, with the place, at a NaN or Inf."""
        low, high = np.full(3, np.inf), np.full(3, -np.inf)
        for place, piece in self.pieces(0, self.shape.B):
            parts = slice(place[1], place[1] + piece.shape[1])
            flat = piece.reshape(*piece.shape[:2], -1)
            smallest, largest = flat.min(axis=(0, 2)), flat.max(axis=(0, 2))
            if not (np.isfinite(smallest).all() and np.isfinite(largest).all()):
                check_finite(piece, place, self.path)
            low[parts], high[parts] = np.minimum(low[parts], smallest), np.maximum(high[parts], largest)
        return {part: (float(a), float(b)) for part, a, b in zip("QKV", low, high, strict=True)}

    def check_finite(self, start: int, stop: int) -> None:
        """Raise InputError, with the place, if batches start … stop-1 hold NaN or Inf."""
        for place, piece in self.pieces(start, stop):
            check_finite(piece, place, self.path)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._file.close()


def batch_spans(shape: Workload, max_bytes: int) -> Iterator[tuple[int, int]]:
    """Cut B batches into spans (start, stop) whose Q, K and V fit max_bytes, of one batch at least."""
    step = max(1, max_bytes // (3 * 4 * shape.N * shape.d))
    for start in range(0, shape.B, step):
        yield start, min(start + step, shape.B)


def magnitudes_of(block: Floats) -> Magnitudes:
    """How large Q, K and V of a block (n, 3, N, d) are."""
    return magnitudes_of_parts(block[:, 0], block[:, 1], block[:, 2])


def magnitudes_of_parts(*parts: Floats) -> Magnitudes:
    """How large Q, K and V (..., N, d) are, NaN included; a norm is less than 2^-16 of it too large."""
    q, k, v = (float(np.maximum(part.max(), -part.min())) for part in parts)
    return Magnitudes(q, k, v, *map(_largest_norm, parts[:2]))


def _largest_norm(matrix: Floats) -> float:
    with np.errstate(over="ignore", invalid="ignore"):
        squares = float(np.einsum("...rc,...rc->...r", matrix, matrix).max())
    return math.sqrt(squares * (1 + 2.0**-16) + 2.0**-100) if squares < math.inf else math.inf


def check_finite(block: Floats, place: Position, path: Path) -> None:
    """Raise InputError, with the place, if an array of batches, parts, rows and columns holds NaN or Inf; `place` is
    that of its first element."""
    if np.isfinite(block.min()) and np.isfinite(block.max()):
        return
    found = tuple(int(i) for i in np.argwhere(~np.isfinite(block))[0])
    batch, part, row = (first + i for first, i in zip(place, found, strict=False))
    raise InputError(
        f"{path} holds {block[found]} in {'QKV'[part]} of batch {batch}, row {row}, column {found[3]}: "
        "every element must be a finite number"
    )

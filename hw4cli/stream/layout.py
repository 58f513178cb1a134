"""What the pipeline works with: a device and its memory, the file's bytes; and how a file is cut for it."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from hw4cli.problem.workload import Magnitudes, Workload
from hw4cli.stream.work import Part, parts_of, rows_of_a_part

Bytes = NDArray[np.uint8]


class Keys(Protocol):
    """A device's memory for K and V of one batch."""

    def copy_in(self, buffer: Bytes, offset: int) -> None:
        """Copy a piece to its place, K first; the buffer is free again on return. Called concurrently."""


class Slot(Protocol):
    """A device's memory for one part. Its methods are called in order; only copy_in is called by several threads."""

    def copy_in(self, buffer: Bytes, offset: int) -> None:
        """Copy a piece of input to its place in the slot; the buffer is free again on return. Called concurrently."""

    def start(self, part: Part, kernel: str, keys: Any) -> None:
        """Start computing a part by a kernel, of some rows with these K and V; does not wait."""

    def finish(self) -> Magnitudes:
        """Wait for the computation; how large the values of the part are."""

    def copy_out(self, offset: int, buffer: Bytes) -> None:
        """Fill a buffer from the output, starting at an offset."""


class Device(Protocol):
    """A GPU, or the CPU, as something that computes parts."""

    @property
    def batches(self) -> int:
        """How many batches a group has: as many as were asked for, or as many as fit its memory."""

    def use(self) -> None:
        """Let this thread use the device: each thread calls it once, at first."""

    def slot_count(self, wanted: int) -> int:
        """How many slots to make: as many as wanted, or as many as fit its memory."""

    def key_count(self, wanted: int) -> int:
        """For how many batches to make memory for K and V: as many as wanted, or as many as fit its memory."""

    def buffer(self, size: int) -> Bytes:
        """Memory of the host for `size` bytes, as the device copies it best."""

    def new_slot(self) -> Slot:
        """A new slot."""

    def new_keys(self) -> Keys:
        """New memory for K and V of a batch whose parts are ranges of rows."""

    def finish(self) -> None:
        """Wait for what was started besides the parts (compilations)."""

    def cancel(self) -> None:
        """End running computations soon, if that is possible; their results are not used."""


@dataclass(frozen=True)
class Layout:
    """How a file is streamed: batches a group, bytes a piece, slots, readers, writers; and how many rows of a batch are
    computed together (0: all)."""

    group: int
    piece: int
    slots: int
    readers: int
    writers: int
    rows: int = 0

    def parts(self, shape: Workload) -> list[Part]:
        """The file's parts, in its order."""
        return parts_of(shape, self.group, self.rows or shape.N)


# Measured on an H200 with 16 cores, page cache warm: one thread reads 9 GB/s into pinned memory, four read 33 and eight
# 55; yet four readers finish t13 3 % sooner than eight, which pin twice the memory (0.3 s a GB) and compete
# with the start of Python. Pieces of 2 to 8 MB are equally fast. Two writers reach 5.8 GB/s, more reach no more.
# Groups of 32 MB keep any GPU busy, and four of them fit any GPU.
GROUP_BYTES, PIECE_BYTES, SMALLEST_PIECE = 32 << 20, 2 << 20, 1 << 20
SLOTS, READERS, WRITERS = 4, 4, 2


def choose_layout(shape: Workload, cores: int, whole_batches: bool = False) -> Layout:
    """The layout for a file of this shape on a machine with so many cores; group and rows depend on the shape alone.

    `whole_batches`: no batch is cut into ranges of rows, however large it is.
    """
    batch, rows = 3 * 4 * shape.N * shape.d, shape.N if whole_batches else rows_of_a_part(shape)
    group = min(shape.B, max(1, GROUP_BYTES // batch))
    readers = min(READERS, max(2, cores))
    piece = max(SMALLEST_PIECE, min(PIECE_BYTES, shape.input_bytes // (2 * readers)))
    parts = -(-shape.B // group) * -(-shape.N // rows)
    pieces = -(-shape.B * batch // piece)
    return Layout(group, piece, min(SLOTS, parts), min(readers, pieces), min(WRITERS, parts), rows)


@dataclass(frozen=True)
class Files:
    """Where the bytes come from and go to: functions of (buffer, offset behind the header), called concurrently."""

    read: Callable[[Bytes, int], None]
    write: Callable[[Bytes, int], None]
    written: Callable[[Part], None] = lambda part: None  # called once all of a part is written

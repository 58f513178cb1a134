"""The streaming pipeline: reader threads, slots on a device, writer threads, all at work at the same time.

    file --read--> reader's buffer --copy in--> slot --compute--> slot --copy out--> writer's buffer --write--> file

A *group* is as many batches as one launch computes; its input is one stretch of the input file, its output one stretch
of the output file. A *piece* is as much of a group's input as a reader's buffer holds, so that a single large batch,
too, is copied while it is read. A *slot* is what a device needs for one group: memory for its input and output, and a
queue of copies and launches. Group g uses slot g mod S, of S slots. A slot goes through four states, again and again:

    FREE       a reader brings the first piece of the slot's next group  -> FILLING
    FILLING    the last piece is in: that reader starts the computation  -> COMPUTING
    COMPUTING  a writer takes the slot and waits for the result          -> DRAINING
    DRAINING   the writer has written all of it                          -> FREE, for group g + S

There is no deadlock: pieces are taken in the file's order, so the oldest group that is not yet written is either held
by a writer, or all its pieces are with readers whose slot is free; and every wait ends when any stage has failed. The
first failure, Ctrl-C included, stops all threads and is raised where `Stream.run` was called.
"""

import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from queue import Empty, SimpleQueue
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from hw4cli.problem.shape import AbsMax, Shape
from hw4cli.stream.timeline import Timeline

Bytes = NDArray[np.uint8]


class Slot(Protocol):
    """A device's memory for one group. Its methods are called in order; only copy_in is called by several threads."""

    def copy_in(self, buffer: Bytes, offset: int) -> None:
        """Copy a piece of input to its place in the slot; the buffer is free again on return. Called concurrently."""

    def start(self, batches: int, kernel: str) -> None:
        """Start computing the group's output by a kernel; does not wait."""

    def finish(self) -> AbsMax:
        """Wait for the computation; the largest |element| of Q, of K and of V in the group, NaN if there is one."""

    def copy_out(self, offset: int, buffer: Bytes) -> None:
        """Fill a buffer from the output, starting at an offset."""


class Device(Protocol):
    """A GPU, or the CPU, as something that computes groups."""

    @property
    def batches(self) -> int:
        """How many batches a group has: as many as were asked for, or as many as fit its memory."""

    def slot_count(self, wanted: int) -> int:
        """How many slots to make: as many as wanted, or as many as fit its memory."""

    def buffer(self, size: int) -> Bytes:
        """Memory of the host for `size` bytes, as the device copies it best."""

    def new_slot(self) -> Slot:
        """A new slot."""

    def finish(self) -> None:
        """Wait for what was started besides the groups (compilations)."""

    def cancel(self) -> None:
        """End running computations soon, if that is possible; their results are not used."""


@dataclass(frozen=True)
class Layout:
    """How a file is streamed: batches a group, bytes a piece, and how many slots, readers and writers."""

    group: int
    piece: int
    slots: int
    readers: int
    writers: int


# Measured on an H200 with 16 cores, page cache warm: one thread reads 9 GB/s into pinned memory, four read 33 and eight
# 55; yet four readers finish t13 3 % sooner than eight, which pin twice the memory (0.3 s a GB) and compete
# with the start of Python. Pieces of 2 to 8 MB are equally fast. Two writers reach 5.8 GB/s, more reach no more.
# Groups of 32 MB keep any GPU busy, and four of them fit any GPU.
GROUP_BYTES, PIECE_BYTES, SMALLEST_PIECE = 32 << 20, 2 << 20, 1 << 20
SLOTS, READERS, WRITERS = 4, 4, 2

GRACE = 5.0  # seconds after a failure in which threads may end; one that cannot (a dead file server) is left behind


def choose_layout(shape: Shape, cores: int) -> Layout:
    """The layout for a file of this shape on a machine with so many cores."""
    batch = 3 * 4 * shape.N * shape.d
    group = min(shape.B, max(1, GROUP_BYTES // batch))
    readers = min(READERS, max(2, cores))
    piece = max(SMALLEST_PIECE, min(PIECE_BYTES, shape.input_bytes // (2 * readers)))
    groups = -(-shape.B // group)
    pieces = -(-shape.B * batch // piece)
    return Layout(group, piece, min(SLOTS, groups), min(readers, pieces), min(WRITERS, groups))


@dataclass(frozen=True)
class Files:
    """Where the bytes come from and go to: functions of (buffer, offset behind the header), called concurrently."""

    read: Callable[[Bytes, int], None]
    write: Callable[[Bytes, int], None]


# From a group's first batch, number of batches and absmax, the kernel that must compute it. It may depend on
# nothing else, so that the output does not depend on timing. May raise, for values that no kernel takes.
Choose = Callable[[int, int, AbsMax], str]


class Stream:
    """One run of the pipeline over a file.

    Groups start with the kernel `first`, before their absmax is known. Where two groups in a row needed another
    one, the next groups start with that one: if a whole file is out of range, few groups are computed twice.
    """

    def __init__(
        self, shape: Shape, layout: Layout, device: Device, files: Files, first: str, choose: Choose, timeline: Timeline
    ) -> None:
        self.shape, self.layout, self.device, self.files = shape, layout, device, files
        self.choose, self.timeline = choose, timeline
        self._guess = self._last_needed = first  # kernels: groups start with one, the last finished group needed one
        self._started = [first] * -(-shape.B // layout.group)  # the kernel that each group started with
        self._batch_in, self._batch_out = 3 * 4 * shape.N * shape.d, 4 * shape.N * shape.d
        self._groups = -(-shape.B // layout.group)
        self._slots = [device.new_slot() for _ in range(device.slot_count(layout.slots))]
        self._turn = list(range(len(self._slots)))  # the group whose turn it is in each slot
        self._missing = [self._batches(g) * self._batch_in for g in range(self._groups)]  # bytes not yet in the slot
        self._pieces = self._all_pieces()
        self._computing: deque[int] = deque()
        self._left = self._groups  # groups not yet taken by a writer
        self._ended = 0  # threads that did their part
        self._an_end: SimpleQueue[None] = SimpleQueue()  # gets an entry as each thread ends
        self._error: BaseException | None = None
        self._changed = threading.Condition()

    def run(self) -> None:
        """Stream the whole file; raises the first error of any stage.

        Ctrl-C is raised in this thread, between any two of its steps. So it takes no lock before it has failed, waits
        for a queue, whose `get` is a single step, and leaves it to the threads to count themselves.
        """
        work = [self._read_pieces] * self.layout.readers + [self._write_groups] * self.layout.writers
        threads = [threading.Thread(target=self._guarded, args=(stage,), daemon=True) for stage in work]
        try:
            for thread in threads:
                thread.start()
            while self._ended < len(threads) and self._error is None:
                # A short timeout: Ctrl-C that comes just before `get` is seen when it returns.
                with suppress(Empty):
                    self._an_end.get(timeout=0.1)
        except BaseException as error:
            self._fail(error)
        deadline = time.monotonic() + GRACE
        for thread in threads:
            if thread.ident:  # else it never started
                thread.join(max(0.0, deadline - time.monotonic()))
        if self._error:
            raise self._error

    def _guarded(self, stage: Callable[[], None]) -> None:
        with self._changed:
            if self._error is not None:
                return  # started too late: `run` may not wait for this thread
        try:
            stage()
        except BaseException as error:
            self._fail(error)
        with self._changed:
            self._ended += 1
        self._an_end.put(None)

    def _fail(self, error: BaseException) -> None:
        with self._changed:
            self._error = self._error or error
            self._changed.notify_all()
        self.device.cancel()

    def _wait(self, ready: Callable[[], bool]) -> bool:
        """Wait, holding the lock, until a condition holds; False if a stage has failed."""
        self._changed.wait_for(lambda: self._error is not None or ready())
        return self._error is None

    def _batches(self, group: int) -> int:
        return min(self.layout.group, self.shape.B - group * self.layout.group)

    def _all_pieces(self) -> Iterator[tuple[int, int, int]]:
        """(group, offset in it, bytes) of every piece, in the file's order."""
        for group in range(self._groups):
            size = self._batches(group) * self._batch_in
            for offset in range(0, size, self.layout.piece):
                yield group, offset, min(self.layout.piece, size - offset)

    def _read_pieces(self) -> None:
        buffer = self.device.buffer(self.layout.piece)
        while self._error is None:
            with self._changed:
                group, offset, size = next(self._pieces, (-1, 0, 0))
            if group < 0:
                return
            piece = buffer[:size]
            with self.timeline("read"):
                self.files.read(piece, group * self.layout.group * self._batch_in + offset)
            slot, number = self._slot_of(group)
            with self._changed:
                if not self._wait(lambda number=number, group=group: self._turn[number] == group):  # type: ignore[misc]
                    return
            with self.timeline("copy in"):
                slot.copy_in(piece, offset)
            with self._changed:
                self._missing[group] -= size
                if self._missing[group]:
                    continue
            self._started[group] = self._guess
            slot.start(self._batches(group), self._started[group])
            with self._changed:
                self._computing.append(group)
                self._changed.notify_all()

    def _write_groups(self) -> None:
        size = min(self.layout.piece, self._batches(0) * self._batch_out)
        buffer = self.device.buffer(size)
        while self._error is None:
            with self._changed:
                if self._left == 0:
                    return
                self._left -= 1
                if not self._wait(lambda: bool(self._computing)):
                    return
                group = self._computing.popleft()
            slot, number = self._slot_of(group)
            self._finish(slot, group)
            self._drain(slot, group, buffer)
            with self._changed:
                self._turn[number] += len(self._slots)
                self._changed.notify_all()

    def _slot_of(self, group: int) -> tuple[Slot, int]:
        number = group % len(self._slots)
        return self._slots[number], number

    def _finish(self, slot: Slot, group: int) -> None:
        """Wait for a group's result; compute it again if its absmax needs another kernel."""
        batches = self._batches(group)
        needed = self.choose(group * self.layout.group, batches, slot.finish())
        with self._changed:
            if needed == self._last_needed:
                self._guess = needed
            self._last_needed = needed
        if needed != self._started[group]:
            slot.start(batches, needed)
            slot.finish()

    def _drain(self, slot: Slot, group: int, buffer: Bytes) -> None:
        total = self._batches(group) * self._batch_out
        for offset in range(0, total, len(buffer)):
            if self._error is not None:
                return
            part = buffer[: total - offset]
            with self.timeline("copy out"):
                slot.copy_out(offset, part)
            with self.timeline("write"):
                self.files.write(part, group * self.layout.group * self._batch_out + offset)

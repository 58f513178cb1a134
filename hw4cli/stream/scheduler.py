"""The streaming pipeline: reader threads, lanes on a device, writer threads, all at work at the same time.

    file --read--> reader's buffer --copy in--> lane --compute--> lane --copy out--> writer's buffer --write--> file

A *group* is as many batches as one launch computes; its input is one stretch of the input file, its output one stretch
of the output file. A *piece* is as much of a group's input as a reader's buffer holds, so that a single large batch,
too, is copied while it is read. A *lane* is what a device needs for one group: room for its input and output, and the
order in which it does what it is told. Group g uses lane g mod L. A lane goes round through four states:

    FREE       a reader brings the first piece of the lane's next group  -> FILLING
    FILLING    the last piece is in: that reader starts the computation  -> COMPUTING
    COMPUTING  a writer takes the lane and waits for the result          -> DRAINING
    DRAINING   the writer has written all of it                          -> FREE, for group g + L

Nobody waits for ever: pieces are taken in the file's order, so the oldest group that is not yet written has all its
pieces with readers whose lane is free, or is with a writer; and every wait ends when any stage has failed. The first
failure, Ctrl-C included, stops all threads and is raised where `Stream.run` was called.
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

from hw4cli.problem.casefile import Magnitudes
from hw4cli.problem.shape import Shape
from hw4cli.stream.timeline import Stopwatch

Bytes = NDArray[np.uint8]


class Lane(Protocol):
    """A device's place for one group. Its methods are called in order, by one thread at a time but for copy_in."""

    def copy_in(self, buffer: Bytes, offset: int) -> None:
        """Copy a piece of input to its place in the lane; the buffer is free again on return. Called concurrently."""

    def start(self, batches: int, kernel: str) -> None:
        """Start computing the group's output by a kernel; does not wait."""

    def finish(self) -> Magnitudes:
        """Wait for the computation; the largest |element| of Q, of K and of V in the group, NaN if there is one."""

    def copy_out(self, offset: int, buffer: Bytes) -> None:
        """Fill a buffer from the output, starting at an offset."""


class Device(Protocol):
    """What can compute groups."""

    @property
    def batches(self) -> int:
        """How many batches a group has: as many as were asked for, or as many as there is room for."""

    def lanes(self, wanted: int) -> int:
        """How many lanes to make: as many as wanted, or as many as there is room for."""

    def buffer(self, size: int) -> Bytes:
        """Memory of the host for `size` bytes, as the device copies it best."""

    def lane(self) -> Lane:
        """A new lane."""

    def finish(self) -> None:
        """Wait for what was begun beside the groups."""

    def cancel(self) -> None:
        """Let computations that are under way end soon, if that can be; what they leave is not used."""


@dataclass(frozen=True)
class Layout:
    """How a file is streamed: batches a group, bytes a piece, and how many lanes, readers and writers."""

    group: int
    piece: int
    lanes: int
    readers: int
    writers: int


# Measured on an H200 with 16 cores, page cache warm: one thread reads 9 GB/s into pinned memory, four read 33 and eight
# 55; yet four readers finish t13 3 % sooner than eight, which pin twice the memory (0.3 s a GB) and get into each
# other's way while Python starts. Pieces of 2 to 8 MB are equally fast. Two writers reach 5.8 GB/s, more reach no more.
# Groups of 32 MB keep any GPU busy, and four of them fit any GPU.
GROUP_BYTES, PIECE_BYTES, SMALLEST_PIECE = 32 << 20, 2 << 20, 1 << 20
LANES, READERS, WRITERS = 4, 4, 2

GRACE = 5.0  # seconds after a failure in which threads may end; one that cannot (a dead file server) is left behind


def layout(shape: Shape, cores: int) -> Layout:
    """The layout for a file of this shape on a machine with so many cores."""
    batch = 3 * 4 * shape.N * shape.d
    group = min(shape.B, max(1, GROUP_BYTES // batch))
    readers = min(READERS, max(2, cores))
    piece = max(SMALLEST_PIECE, min(PIECE_BYTES, shape.input_bytes // (2 * readers)))
    groups = -(-shape.B // group)
    pieces = -(-shape.B * batch // piece)
    return Layout(group, piece, min(LANES, groups), min(readers, pieces), min(WRITERS, groups))


@dataclass(frozen=True)
class Files:
    """Where the bytes come from and go to: functions of (buffer, offset behind the header), called concurrently."""

    read: Callable[[Bytes, int], None]
    write: Callable[[Bytes, int], None]


# Told a group's first batch, its number of batches and its magnitudes: the kernel that must answer it. It may depend on
# nothing else, so that the output does not depend on what ran when. May raise, for values that no kernel takes.
Choose = Callable[[int, int, Magnitudes], str]


class Stream:
    """One run of the pipeline over a file.

    Groups start with the kernel `first`, before their magnitudes are known. Where two groups in a row needed another
    one, the next groups start with that: in a file that is all out of range, few groups are computed twice.
    """

    def __init__(
        self, shape: Shape, plan: Layout, device: Device, files: Files, first: str, choose: Choose, watch: Stopwatch
    ) -> None:
        self.shape, self.plan, self.device, self.files = shape, plan, device, files
        self.choose, self.watch = choose, watch
        self._guess = self._last_needed = first  # kernels: what groups start with, what the last one finished needed
        self._started = [first] * -(-shape.B // plan.group)  # the kernel that each group started with
        self._batch_in, self._batch_out = 3 * 4 * shape.N * shape.d, 4 * shape.N * shape.d
        self._groups = -(-shape.B // plan.group)
        self._lanes = [device.lane() for _ in range(device.lanes(plan.lanes))]
        self._turn = list(range(len(self._lanes)))  # the group whose turn it is in each lane
        self._missing = [self._batches(g) * self._batch_in for g in range(self._groups)]  # bytes not yet in the lane
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
        work = [self._read_pieces] * self.plan.readers + [self._write_groups] * self.plan.writers
        threads = [threading.Thread(target=self._guarded, args=(stage,), daemon=True) for stage in work]
        try:
            for thread in threads:
                thread.start()
            while self._ended < len(threads) and self._error is None:
                # Not for long: Ctrl-C that comes just before `get` is seen when it returns.
                with suppress(Empty):
                    self._an_end.get(timeout=0.1)
        except BaseException as error:
            self._fail(error)
        deadline = time.monotonic() + GRACE
        for thread in threads:
            if thread.ident:  # else it was not launched, or does nothing now
                thread.join(max(0.0, deadline - time.monotonic()))
        if self._error:
            raise self._error

    def _guarded(self, stage: Callable[[], None]) -> None:
        with self._changed:
            if self._error is not None:
                return  # started too late: perhaps nobody waits for this thread
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
        """Wait, holding the lock, until something is so; False if a stage has failed."""
        self._changed.wait_for(lambda: self._error is not None or ready())
        return self._error is None

    def _batches(self, group: int) -> int:
        return min(self.plan.group, self.shape.B - group * self.plan.group)

    def _all_pieces(self) -> Iterator[tuple[int, int, int]]:
        """(group, offset in it, bytes) of every piece, in the file's order."""
        for group in range(self._groups):
            size = self._batches(group) * self._batch_in
            for offset in range(0, size, self.plan.piece):
                yield group, offset, min(self.plan.piece, size - offset)

    def _read_pieces(self) -> None:
        buffer = self.device.buffer(self.plan.piece)
        while self._error is None:
            with self._changed:
                group, offset, size = next(self._pieces, (-1, 0, 0))
            if group < 0:
                return
            piece = buffer[:size]
            with self.watch("read"):
                self.files.read(piece, group * self.plan.group * self._batch_in + offset)
            lane, number = self._lane_of(group)
            with self._changed:
                if not self._wait(lambda number=number, group=group: self._turn[number] == group):  # type: ignore[misc]
                    return
            with self.watch("copy in"):
                lane.copy_in(piece, offset)
            with self._changed:
                self._missing[group] -= size
                if self._missing[group]:
                    continue
            self._started[group] = self._guess
            lane.start(self._batches(group), self._started[group])
            with self._changed:
                self._computing.append(group)
                self._changed.notify_all()

    def _write_groups(self) -> None:
        size = min(self.plan.piece, self._batches(0) * self._batch_out)
        buffer = self.device.buffer(size)
        while self._error is None:
            with self._changed:
                if self._left == 0:
                    return
                self._left -= 1
                if not self._wait(lambda: bool(self._computing)):
                    return
                group = self._computing.popleft()
            lane, number = self._lane_of(group)
            self._finish(lane, group)
            self._drain(lane, group, buffer)
            with self._changed:
                self._turn[number] += len(self._lanes)
                self._changed.notify_all()

    def _lane_of(self, group: int) -> tuple[Lane, int]:
        number = group % len(self._lanes)
        return self._lanes[number], number

    def _finish(self, lane: Lane, group: int) -> None:
        """Wait for a group's result, and have it computed again where its magnitudes need another kernel."""
        batches = self._batches(group)
        needed = self.choose(group * self.plan.group, batches, lane.finish())
        with self._changed:
            if needed == self._last_needed:
                self._guess = needed
            self._last_needed = needed
        if needed != self._started[group]:
            lane.start(batches, needed)
            lane.finish()

    def _drain(self, lane: Lane, group: int, buffer: Bytes) -> None:
        total = self._batches(group) * self._batch_out
        for offset in range(0, total, len(buffer)):
            if self._error is not None:
                return
            part = buffer[: total - offset]
            with self.watch("copy out"):
                lane.copy_out(offset, part)
            with self.watch("write"):
                self.files.write(part, group * self.plan.group * self._batch_out + offset)

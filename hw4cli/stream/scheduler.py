"""The streaming pipeline: reader threads, slots on a device, writer threads, all at work at the same time.

    file --read--> reader's buffer --copy in--> slot --compute--> slot --copy out--> writer's buffer --write--> file

A *part* is what one launch computes: a group of batches, or, of a large batch, a range of rows (hw4cli/stream/work.py).
A *piece* is as much of a part's input as a reader's buffer holds, so that a single large batch, too, is copied while it
is read. A *slot* is what a device needs for one part: memory for its input and output, and a queue of copies and
launches. The parts that a device computes are numbered as it takes them: part n uses slot n mod S, of S slots. A slot
goes through four states, again and again:

    FREE       a reader brings the first piece of the slot's next part   -> FILLING
    FILLING    the last piece is in: that reader starts the computation  -> COMPUTING
    COMPUTING  a writer takes the slot and waits for the result          -> DRAINING
    DRAINING   the writer has written all of it                          -> FREE, for part n + S

The parts of a large batch share its K and V, which are read once, before the parts: parts in a row that need the same
ones form a *run*. Run k has memory k mod 2, so that the next batch's are read while this one's are in use; the memory
is free when a later run has begun and all parts of this one are computed.

There is no deadlock: parts are taken, and pieces read, in order, so the oldest part that is not yet written is either
held by a writer, or all its pieces are with readers that wait for nothing younger; and every wait ends when any stage
has failed. The first failure, Ctrl-C included, stops all threads and is raised where `Stream.run` was called.
"""

import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from queue import Empty, SimpleQueue

from hw4cli.problem.workload import Magnitudes, Workload
from hw4cli.stream.layout import Bytes, Device, Files, Layout, Slot
from hw4cli.stream.timeline import Timeline
from hw4cli.stream.work import Part, Work

GRACE = 5.0  # seconds after a failure in which threads may end; one that cannot (a dead file server) is left behind

# From a part and its magnitudes, the kernel that must compute it. It may depend on nothing else, so that the output
# does not depend on timing. May raise, for values that no kernel takes.
Choose = Callable[[Part, Magnitudes], str]
RUNS = 2  # of parts with the same K and V, for which there is memory


@dataclass
class _Run:
    """Parts in a row with the same K and V."""

    number: int
    batch: int
    missing: int  # bytes of K and V that are not yet in
    ended: bool = False  # another run has begun
    uncomputed: int = 0
    waiting: list["_Task"] = field(default_factory=list)  # whose rows of Q are in, but not K and V


@dataclass
class _Task:
    """A part that this device computes."""

    number: int
    part: Part
    missing: int  # bytes that are not yet in the slot
    run: _Run | None
    kernel: str = ""


_Piece = tuple[_Task | _Run, int, int, int]  # of what, offset in the file, offset in its memory, bytes


class Stream:
    """One device's run of the pipeline over a file: over all of its parts, or over those that `work` gives worker
    `number`.

    Parts start with the kernel `first`, before their magnitudes are known. Where two parts in a row needed another one,
    the next parts start with that one: if a whole file is out of range, few parts are computed twice.
    """

    def __init__(
        self,
        shape: Workload,
        layout: Layout,
        device: Device,
        files: Files,
        first: str,
        choose: Choose,
        timeline: Timeline,
        work: Work | None = None,
        number: int = 0,
    ) -> None:
        self.shape, self.layout, self.device, self.files = shape, layout, device, files
        self.choose, self.timeline, self.number = choose, timeline, number
        self.work = work or Work([layout.parts(shape)])
        self._guess = self._last_needed = first  # kernels: parts start with one, the last finished part needed one
        self._row, self._matrix = 4 * shape.d, 4 * shape.d * shape.N
        device.use()
        self._slots = [device.new_slot() for _ in range(device.slot_count(layout.slots))]
        self._turn = list(range(len(self._slots)))  # the part whose turn it is in each slot
        by_rows = bool(layout.rows) and layout.rows < shape.N
        runs = device.key_count(min(RUNS, shape.B)) if by_rows else 0
        self._keys = [device.new_keys() for _ in range(runs)]
        self._run_turn = list(range(len(self._keys)))  # the run whose turn it is in each memory for K and V
        self._pieces = self._all_pieces()
        self._computing: deque[_Task] = deque()
        self._untaken = 0  # parts that no writer has taken yet
        self._all_read = False
        self._ended = 0  # threads that did their part
        self._an_end: SimpleQueue[None] = SimpleQueue()  # gets an entry as each thread ends
        self._error: BaseException | None = None
        self._changed = threading.Condition()

    def run(self) -> None:
        """Stream until there is no more part to take; raises the first error of any stage.

        Ctrl-C is raised in the main thread, between any two of its steps. So it takes no lock before it has failed,
        waits for a queue, whose `get` is a single step, and leaves it to the threads to count themselves.
        """
        work = [self._read_pieces] * self.layout.readers + [self._write_parts] * self.layout.writers
        threads = [threading.Thread(target=self._guarded, args=(stage,), daemon=True) for stage in work]
        try:
            for thread in threads:
                thread.start()
            while self._ended < len(threads) and self._error is None:
                # A short timeout: Ctrl-C that comes just before `get` is seen when it returns.
                with suppress(Empty):
                    self._an_end.get(timeout=0.1)
        except BaseException as error:
            self.fail(error)
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
            self.device.use()
            stage()
        except BaseException as error:
            self.fail(error)
        with self._changed:
            self._ended += 1
        self._an_end.put(None)

    def fail(self, error: BaseException) -> None:
        """End all threads; `run` raises the error, if it is the first."""
        with self._changed:
            self._error = self._error or error
            self._changed.notify_all()
        self.device.cancel()

    def _wait(self, ready: Callable[[], bool]) -> bool:
        """Wait, holding the lock, until a condition holds; False if a stage has failed."""
        self._changed.wait_for(lambda: self._error is not None or ready())
        return self._error is None

    def _all_pieces(self) -> Iterator[_Piece]:
        """Takes parts, and yields their pieces, in order."""
        run, tasks, runs = None, 0, 0
        while (part := self.work.take(self.number)) is not None:
            begin = 3 * self._matrix * part.first
            if part.rows == self.shape.N:
                begin, size, needed = begin, 3 * self._matrix * part.batches, None
            else:
                if run is None or run.batch != part.first:
                    self._end(run)
                    run, runs = _Run(runs, part.first, 2 * self._matrix), runs + 1
                    yield from self._cut(run, begin + self._matrix, 2 * self._matrix)
                begin, size, needed = begin + self._row * part.row, self._row * part.rows, run
                run.uncomputed += 1
            task, tasks = _Task(tasks, part, size, needed), tasks + 1
            self._untaken += 1
            yield from self._cut(task, begin, size)
        self._all_read = True
        self._changed.notify_all()

    def _cut(self, what: _Task | _Run, begin: int, size: int) -> Iterator[_Piece]:
        for offset in range(0, size, self.layout.piece):
            yield what, begin + offset, offset, min(self.layout.piece, size - offset)

    def _end(self, run: _Run | None) -> None:
        """No further part needs the run's K and V; called with the lock."""
        if run:
            run.ended = True
            self._free(run)

    def _free(self, run: _Run) -> None:
        """Give the run's memory to a later one, if all is computed; called with the lock."""
        if run.ended and not run.uncomputed:
            self._run_turn[run.number % len(self._keys)] = run.number + len(self._keys)
            self._changed.notify_all()

    def _read_pieces(self) -> None:
        buffer = self.device.buffer(self.layout.piece)
        while self._error is None:
            with self._changed:
                what, begin, offset, size = next(self._pieces, (None, 0, 0, 0))
            if what is None:
                return
            piece = buffer[:size]
            with self.timeline("read"):
                self.files.read(piece, begin)
            memory, turns = (self._slots, self._turn) if isinstance(what, _Task) else (self._keys, self._run_turn)
            place, wanted = what.number % len(memory), what.number
            with self._changed:
                if not self._wait(lambda t=turns, p=place, n=wanted: t[p] == n):  # type: ignore[misc]
                    return
            with self.timeline("copy in"):
                memory[place].copy_in(piece, offset)
            for task in self._ready(what, size):
                self._start(task)

    def _ready(self, what: _Task | _Run, size: int) -> list[_Task]:
        """Count bytes that have come in; the tasks that have all of theirs now."""
        with self._changed:
            what.missing -= size
            if what.missing:
                return []
            if isinstance(what, _Run):
                ready, what.waiting = what.waiting, []
                return ready
            if what.run and what.run.missing:
                what.run.waiting.append(what)
                return []
            return [what]

    def _start(self, task: _Task) -> None:
        task.kernel = self._guess
        self._launch(task, task.kernel)
        with self._changed:
            self._computing.append(task)
            self._changed.notify_all()

    def _launch(self, task: _Task, kernel: str) -> None:
        keys = self._keys[task.run.number % len(self._keys)] if task.run else None
        self._slots[task.number % len(self._slots)].start(task.part, kernel, keys)

    def _write_parts(self) -> None:
        most = self.layout.group * self._matrix if not self._keys else self.layout.rows * self._row
        buffer = self.device.buffer(min(self.layout.piece, most))
        while self._error is None:
            with self._changed:
                if not self._wait(lambda: bool(self._computing) or (self._all_read and not self._untaken)):
                    return
                if not self._computing:
                    return
                task = self._computing.popleft()
                self._untaken -= 1
                if not self._untaken:
                    self._changed.notify_all()
            slot = self._slots[task.number % len(self._slots)]
            self._finish(slot, task)
            if not self._drain(slot, task.part, buffer):
                return
            self.work.done(self.number, task.part)
            with self._changed:
                self._turn[task.number % len(self._slots)] += len(self._slots)
                self._changed.notify_all()

    def _finish(self, slot: Slot, task: _Task) -> None:
        """Wait for a part's result; compute it again if its magnitudes need another kernel."""
        needed = self.choose(task.part, slot.finish())
        with self._changed:
            if needed == self._last_needed:
                self._guess = needed
            self._last_needed = needed
        if needed != task.kernel:
            self._launch(task, needed)
            slot.finish()
        if task.run:
            with self._changed:
                task.run.uncomputed -= 1
                self._free(task.run)

    def _drain(self, slot: Slot, part: Part, buffer: Bytes) -> bool:
        """Write a part's output; whether all of it was written."""
        begin, total = self._matrix * part.first + self._row * part.row, part.batches * part.rows * self._row
        for offset in range(0, total, len(buffer)):
            if self._error is not None:
                return False
            some = buffer[: total - offset]
            with self.timeline("copy out"):
                slot.copy_out(offset, some)
            with self.timeline("write"):
                self.files.write(some, begin + offset)
        self.files.written(part)
        return True

"""A file's parts, which depend on its shape alone, and who computes which: a device, several, or several processes.

A part is computed by itself, from its own rows of Q and from K and V of its batches. So its bytes are the same whoever
computes it, whatever else that one computes.
"""

import threading
from bisect import bisect_right
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import accumulate, pairwise

from hw4cli.problem.workload import Workload

WHOLE_BYTES = 64 << 20  # of Q, K and V: a larger batch is cut into ranges of rows
ROW_BYTES, ROW_UNIT = 16 << 20, 1024  # of Q in such a range; a multiple of the rows of every kernel's tiles
LEFT_ALONE = 1  # parts that a device which is at work keeps for itself, as it will have taken them at once


@dataclass(frozen=True)
class Part:
    """Of `batches` batches from `first` on, so many rows from `row` on: all rows, or some of a single batch."""

    first: int
    batches: int
    row: int
    rows: int

    def cut(self, batches: int) -> Iterator["Part"]:
        """The same in parts of so many batches at most."""
        for first in range(self.first, self.first + self.batches, batches):
            yield replace(self, first=first, batches=min(batches, self.first + self.batches - first))


def rows_of_a_part(shape: Workload) -> int:
    """How many rows of a batch are computed together: all, unless the batch is large."""
    if 3 * 4 * shape.N * shape.d <= WHOLE_BYTES:
        return shape.N
    return max(ROW_UNIT, ROW_BYTES // (4 * shape.d) // ROW_UNIT * ROW_UNIT)


def parts_of(shape: Workload, group: int, rows: int) -> list[Part]:
    """The parts in the file's order: groups of so many batches, or, with fewer rows than N, ranges of so many."""
    if rows >= shape.N:
        return [Part(b, min(group, shape.B - b), 0, shape.N) for b in range(0, shape.B, group)]
    return [Part(b, 1, row, min(rows, shape.N - row)) for b in range(shape.B) for row in range(0, shape.N, rows)]


def pairs(part: Part, shape: Workload) -> int:
    """Pairs of a query and a key that a part has to compute."""
    if not shape.causal:
        return part.batches * part.rows * shape.N
    return part.batches * part.rows * (2 * part.row + part.rows + 1) // 2


def stretches(parts: Sequence[Part], shape: Workload, speeds: Sequence[float]) -> list[list[Part]]:
    """The parts cut into one stretch for each of some speeds, so that all end at about the same time."""
    ends = list(accumulate(pairs(part, shape) for part in parts))
    middles = [end - pairs(part, shape) / 2 for end, part in zip(ends, parts, strict=True)]
    total, cuts = sum(speeds), [0]
    for speed in accumulate(speeds):
        cuts.append(bisect_right(middles, ends[-1] * speed / total * (1 + 1e-12)) if parts else 0)
    return [list(parts[a:b]) for a, b in pairwise(cuts)]


@dataclass
class _Worker:
    own: deque[Part]
    taken: set[Part] = field(default_factory=set)  # and not done
    at_work: bool = False
    done: int = 0


class Work:
    """Parts for several workers, each with a stretch of its own; one that has none left takes another's last ones.

    So a file's K and V go to as few workers as can be, and a worker that is slow, or comes late, or fails, delays
    nobody. Any thread may call.
    """

    def __init__(self, own: Sequence[Iterable[Part]]) -> None:
        self._workers = [_Worker(deque(parts)) for parts in own]
        self._undone = sum(len(worker.own) for worker in self._workers)
        self._changed = threading.Condition()
        self._given_up = False

    def take(self, number: int) -> Part | None:
        """The next part for a worker; None if there is none now."""
        with self._changed:
            worker = self._workers[number]
            worker.at_work = True
            source = worker if worker.own else self._richest()
            if source is None:
                return None
            part = source.own.popleft() if source is worker else source.own.pop()
            worker.taken.add(part)
            return part

    def _richest(self) -> _Worker | None:
        """Whose last part another may take."""
        spare = [(len(other.own) - LEFT_ALONE * other.at_work, -n) for n, other in enumerate(self._workers)]
        most, n = max(spare)
        return self._workers[-n] if most > 0 else None

    def done(self, number: int, part: Part) -> None:
        """A worker has written a part."""
        with self._changed:
            self._workers[number].taken.discard(part)
            self._workers[number].done += 1
            self._undone -= 1
            if not self._undone:
                self._changed.notify_all()

    def leave(self, number: int) -> int:
        """A worker has failed: others get what it has taken and not done. How many workers are still at work."""
        with self._changed:
            worker = self._workers[number]
            worker.own.extendleft(sorted(worker.taken, key=lambda part: (part.first, part.row), reverse=True))
            worker.taken.clear()
            worker.at_work = False
            self._changed.notify_all()
            return sum(other.at_work for other in self._workers)

    def give_up(self) -> None:
        """Nobody shall wait any longer."""
        with self._changed:
            self._given_up = True
            self._changed.notify_all()

    def wait_for_more(self) -> bool:
        """Wait until there is a part to take (True), or all are done, or all was given up (False)."""
        with self._changed:
            self._changed.wait_for(lambda: self._given_up or not self._undone or self._richest() is not None)
            return not self._given_up and self._undone > 0

    @property
    def finished(self) -> bool:
        """Whether all parts are done."""
        return not self._undone

    @property
    def shares(self) -> list[int]:
        """How many parts each worker has done."""
        return [worker.done for worker in self._workers]

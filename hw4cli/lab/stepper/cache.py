"""What comes from DRAM again: K and V that blocks visit in the order in which they run, and an L2 cache of some size.

Blocks take a step for each chunk of keys, all at the same speed. What was touched before is still in the cache with a
probability that depends on the distinct bytes touched since: addresses are hashed, so that a set of WAYS lines was hit
by a number of them that is Poisson-distributed, and the least recently used line leaves a full set. The cache has two
halves, and a line lies in each half whose multiprocessors read it: keys that many blocks read take COPIES times as much
room as what one block reads.
"""

import heapq
import math
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from typing import NamedTuple

# Lines of a set. So sharp is the knee of one buffer that is read twice, which fills sets evenly (h200-cache.csv in
# benchmarks/); and so sharp, where blocks at a time are at many places of several matrices: with a mask, and in paper.
WAYS, SCATTERED_WAYS = 128, 16
COPIES = (
    1.4  # there, a buffer that all blocks read is held up to a size so much smaller than one of which each has a part
)
MOST_ACCESSES, LEAST_CHUNK = 20_000, 32  # keys are taken in chunks, so that there are about so many accesses
MOST_VISITS = 100_000  # of which none is followed: sequences so short are read once
FINE = 50  # steps of the ratio of bytes to the cache's, in a probability that is kept
# How blocks come to their tasks: each when it has ended one, or a new block for each; or each every so many tasks.
AS_THEY_END, IN_ROUNDS = "as they end", "in rounds"


@dataclass(frozen=True)
class Visit:
    """A task: whose keys it visits (the number of a batch or a head), from the first on, up to before the last; the
    bytes that it alone reads, and that it writes at its end. `rows`: the number of rows that are several visits' task,
    each some keys of it; `adds`: it reads what the visit before left of them."""

    keys_of: int
    first: int
    last: int
    reads: int
    writes: int
    rows: int | None = None
    adds: bool = False


@cache
def evicted(ratio: int, ways: int = WAYS) -> float:
    """The probability that a line has left the cache, after bytes of ratio / FINE times its size were touched.

    >>> evicted(FINE // 4) < 1e-5, round(evicted(FINE), 2), evicted(3 * FINE) > 0.99
    (True, 0.51, True)
    >>> [round(evicted(ratio * FINE // 4, SCATTERED_WAYS), 2) for ratio in (2, 3, 4, 5)]
    [0.01, 0.14, 0.53, 0.84]
    """
    mean = ways * ratio / FINE
    if not mean or mean > 10 * ways:
        return float(mean > 0)
    held = math.fsum(math.exp(n * math.log(mean) - mean - math.lgamma(n + 1)) for n in range(ways))
    return max(0.0, 1 - held)


def left(touched: int, size: int, ways: int = WAYS) -> float:
    """The same, after so many bytes were touched, of a cache of a size in bytes."""
    return evicted(min(100 * FINE, touched * FINE // size), ways)


def read_again(
    visits: Sequence[Visit],
    slots: int,
    key_bytes: int,
    size: int,
    order: str = AS_THEY_END,
    footprint: float | None = None,
    ways: int = WAYS,
) -> int:
    """The bytes of keys, each of `key_bytes`, and of rows of several visits that come from DRAM again in a cache of
    `size`, where so many blocks run at once. `footprint`: the bytes that a key takes there, if not COPIES times its
    own."""
    factor = COPIES if footprint is None else footprint / key_bytes
    readers = Counter(visit.keys_of for visit in visits)
    once = len(readers) == len(visits) and all(visit.rows is None for visit in visits)
    if once or len(visits) > MOST_VISITS or slots < 1:
        return 0
    total = sum(visit.last - visit.first for visit in visits)
    chunk = max(LEAST_CHUNK, -(-total // MOST_ACCESSES))
    accesses = sorted(_accesses(visits, slots, chunk, key_bytes, order), key=lambda one: one.time)
    newest = _Newest(len(accesses))
    touched = dict[Line, tuple[int, int, int]]()  # each line's last access, its time, and the bytes that it takes
    again = 0.0
    for place, one in enumerate(accesses):
        if one.line is None:
            newest.add(place, one.amount)
            continue
        taken = int(one.amount * (factor if one.line[0] == KEYS and readers[one.line[1]] > 1 else 1))
        if one.line in touched:
            before, then, freed = touched[one.line]
            if then == one.time and one.line[0] == KEYS:  # blocks side by side ask together
                continue
            if one.reads:
                again += one.amount * left(newest.since(before), size, ways)
            newest.add(before, -freed)
        newest.add(place, taken)
        touched[one.line] = place, one.time, taken
    return int(again)


KEYS, OWN, LEFT = "keys", "own", "left"
Line = tuple[str, int, int]  # a chunk of whose keys; what rows of several visits read, or what is left of them


class _Access(NamedTuple):
    time: int
    line: Line | None  # None: of one block alone, once
    amount: int  # bytes
    reads: bool = True


def _accesses(visits: Sequence[Visit], slots: int, chunk: int, key_bytes: int, order: str) -> Iterator[_Access]:
    ends = [0] * slots  # when each place is free; a heap, where places are taken as they become free
    for number, visit in enumerate(visits):
        place = number % slots
        begin = ends[0] if order == AS_THEY_END else ends[place]
        first, last = visit.first // chunk, -(-visit.last // chunk)
        shared = visit.rows is not None
        yield _Access(begin, (OWN, visit.rows or 0, 0) if shared else None, visit.reads)
        for n in range(first, last):
            keys = min(visit.last, (n + 1) * chunk) - max(visit.first, n * chunk)
            yield _Access(begin + n - first, (KEYS, visit.keys_of, n), keys * key_bytes)
        end = begin + max(1, last - first)
        if visit.writes:
            yield _Access(end, (LEFT, visit.rows or 0, 0) if shared else None, visit.writes, reads=visit.adds)
        if order == AS_THEY_END:
            heapq.heapreplace(ends, end)
        else:
            ends[place] = end


class _Newest:
    """Bytes by the place of their last access: a Fenwick tree, which adds up all behind a place in few steps."""

    def __init__(self, places: int) -> None:
        self._sums, self._total = [0] * (places + 1), 0

    def add(self, place: int, amount: int) -> None:
        self._total += amount
        at = place + 1
        while at < len(self._sums):
            self._sums[at] += amount
            at += at & -at

    def since(self, place: int) -> int:
        """All bytes behind a place."""
        at, found = place + 1, self._total
        while at > 0:
            found -= self._sums[at]
            at -= at & -at
        return found

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
from dataclasses import replace
from functools import cache
from typing import NamedTuple

from hw4cli.plans.plan import LaunchModel, Passes, Visit, Visits
from hw4cli.plans.work import COPIES

# Lines of a set. So sharp is the knee of one buffer that is read twice, which fills sets evenly (h200-cache.csv in
# benchmarks/); and so sharp, where blocks at a time are at many places of several matrices: with a mask, and in paper.
WAYS, SCATTERED_WAYS = 128, 16
MOST_ACCESSES, LEAST_CHUNK = 20_000, 32  # keys are taken in chunks, so that there are about so many accesses
MOST_VISITS = 100_000  # of which none is followed: sequences so short are read once
FINE = 50  # steps of the ratio of bytes to the cache's, in a probability that is kept


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


def with_again(model: LaunchModel, size: int, resident: int) -> LaunchModel:
    """The model of a launch with what comes from DRAM again in a cache of `size`, where a multiprocessor holds so many
    blocks."""
    if model.again is None:
        return model
    (read, written), asked = model.dram, model.again(resident)
    again = read_again(asked, size) if isinstance(asked, Visits) else _passes_again(asked, size)
    share, of = asked.written
    return replace(model, dram=(read + again, written + again * share // of))


def _passes_again(passes: Passes, size: int) -> int:
    ways = SCATTERED_WAYS if passes.scattered else WAYS
    return sum(int(amount * left(touched, size, ways)) for amount, touched in passes.read)


def read_again(asked: Visits, size: int) -> int:
    """The bytes of keys, and of rows of several visits, that come from DRAM again in a cache of `size`."""
    visits, slots, key_bytes, in_rounds, footprint, scattered, _ = asked
    ways = SCATTERED_WAYS if scattered else WAYS
    factor = COPIES if footprint is None else footprint / key_bytes
    readers = Counter(visit.keys_of for visit in visits)
    once = len(readers) == len(visits) and all(visit.rows is None for visit in visits)
    if once or len(visits) > MOST_VISITS or slots < 1:
        return 0
    total = sum(visit.last - visit.first for visit in visits)
    chunk = max(LEAST_CHUNK, -(-total // MOST_ACCESSES))
    accesses = sorted(_accesses(visits, slots, chunk, key_bytes, in_rounds), key=lambda one: one.time)
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


def _accesses(visits: Sequence[Visit], slots: int, chunk: int, key_bytes: int, in_rounds: bool) -> Iterator[_Access]:
    ends = [0] * slots  # when each place is free; a heap, where places are taken as they become free
    for number, visit in enumerate(visits):
        place = number % slots
        begin = ends[place] if in_rounds else ends[0]
        first, last = visit.first // chunk, -(-visit.last // chunk)
        shared = visit.rows is not None
        yield _Access(begin, (OWN, visit.rows or 0, 0) if shared else None, visit.reads)
        for n in range(first, last):
            keys = min(visit.last, (n + 1) * chunk) - max(visit.first, n * chunk)
            yield _Access(begin + n - first, (KEYS, visit.keys_of, n), keys * key_bytes)
        end = begin + max(1, last - first)
        if visit.writes:
            yield _Access(end, (LEFT, visit.rows or 0, 0) if shared else None, visit.writes, reads=visit.adds)
        if in_rounds:
            ends[place] = end
        else:
            heapq.heapreplace(ends, end)


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

"""What comes from DRAM again: K and V that blocks visit in the order in which they run, and an L2 cache of some size.

Blocks take a step for each chunk of keys, all at the same speed. A chunk that was touched before is still in the cache
with a probability that depends on the distinct bytes touched since: addresses are hashed, so that a set of WAYS lines
was hit by a number of them that is Poisson-distributed, and the least recently used line leaves a full set.
"""

import heapq
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache

WAYS = 16  # lines of a set
MOST_ACCESSES, LEAST_CHUNK = 20_000, 32  # keys are taken in chunks, so that there are about so many accesses
MOST_VISITS = 100_000  # of which none is followed: sequences so short are read once
FINE = 50  # steps of the ratio of bytes to the cache's, in a probability that is kept
# How blocks come to their tasks: each when it has ended one, or a new block for each; or each every so many tasks.
AS_THEY_END, IN_ROUNDS = "as they end", "in rounds"


@dataclass(frozen=True)
class Visit:
    """A task: whose keys it visits (the number of a batch or a head), from the first on, up to before the last; the
    bytes that it alone reads, and that it writes at its end."""

    keys_of: int
    first: int
    last: int
    reads: int
    writes: int


@cache
def evicted(ratio: int) -> float:
    """The probability that a line has left the cache, after bytes of ratio / FINE times its size were touched.

    >>> evicted(FINE // 4) < 1e-5, round(evicted(FINE), 2), evicted(3 * FINE) > 0.99
    (True, 0.53, True)
    """
    mean = WAYS * ratio / FINE
    if mean > 10 * WAYS:
        return 1.0
    return 1 - math.exp(-mean) * math.fsum(mean**n / math.factorial(n) for n in range(WAYS))


def read_again(visits: Sequence[Visit], slots: int, key_bytes: int, size: int, order: str = AS_THEY_END) -> int:
    """The bytes of keys, each of `key_bytes`, that come from DRAM again in a cache of `size`, where so many blocks run
    at once."""
    once = len({visit.keys_of for visit in visits}) == len(visits)
    if once or len(visits) > MOST_VISITS or slots < 1:
        return 0
    total = sum(visit.last - visit.first for visit in visits)
    chunk = max(LEAST_CHUNK, -(-total // MOST_ACCESSES))
    accesses = sorted(_accesses(visits, slots, chunk, order), key=lambda one: one[0])
    newest = _Newest(len(accesses))
    touched = dict[tuple[int, int], tuple[int, int]]()  # each chunk's last access and its time
    again = 0.0
    for place, (time, line, amount) in enumerate(accesses):
        if line is None:
            newest.add(place, amount)
            continue
        amount *= key_bytes
        if line in touched:
            before, then = touched[line]
            if then == time:  # blocks side by side ask together
                continue
            again += amount * evicted(min(100 * FINE, newest.since(before) * FINE // size))
            newest.add(before, -amount)
        newest.add(place, amount)
        touched[line] = place, time
    return int(again)


Access = tuple[int, tuple[int, int] | None, int]  # when; which chunk of whose keys (None: of a block's own); how much


def _accesses(visits: Sequence[Visit], slots: int, chunk: int, order: str) -> Iterator[Access]:
    ends = [0] * slots  # when each place is free; a heap, where places are taken as they become free
    for number, visit in enumerate(visits):
        place = number % slots
        begin = ends[0] if order == AS_THEY_END else ends[place]
        first, last = visit.first // chunk, -(-visit.last // chunk)
        yield begin, None, visit.reads
        for n in range(first, last):
            yield begin + n - first, (visit.keys_of, n), min(visit.last, (n + 1) * chunk) - n * chunk
        end = begin + max(1, last - first)
        if visit.writes:
            yield end, None, visit.writes
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

"""The pairs of a class that are similar, ranked, with the lines that they have in common."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import combinations, groupby
from statistics import quantiles

import numpy as np
from numpy.typing import NDArray

from hw4cli.judge.similarity.winnowing import Hashes, Passage, passages
from hw4cli.judge.similarity.works import Work

# Percent of the shorter program that a pair has in common from which on it is listed. Measured (docs/similar.md): 21
# solutions of this homework that were written by themselves have at most 31, disguised copies of them 67 and more.
THRESHOLD = 40.0
FEWEST_PRINTS = 5  # fingerprints in common are at least a fifth of what passages in common are (docs/similar.md)
SAMPLE = 200  # pairs by which is said what is usual
CHUNK = 4096  # fingerprints that are counted at a time
GAP = 5  # lines between two passages that are shown as one


@dataclass(frozen=True)
class Extract:
    """Lines of a source of one program: `first` to `last`, from 1 on; `common` are those that hold common symbols."""

    source: int
    first: int
    last: int
    common: frozenset[int]


@dataclass(frozen=True)
class Pair:
    """Two programs, and what they have in common; `second` may be hw4's own, or of another year."""

    first: Work
    second: Work
    passages: Sequence[Passage] = field(repr=False)

    @cached_property
    def shared(self) -> int:
        """Symbols that they have in common."""
        return sum(one.length for one in self.passages)

    @property
    def shares(self) -> tuple[float, float]:
        """Percent of the first one's own code, and of the second one's, that is common."""
        return 100 * self.shared / max(1, self.first.size), 100 * self.shared / max(1, self.second.size)

    @property
    def similarity(self) -> float:
        """Percent of the shorter program's own code that is common; of the student's, beside hw4's own."""
        return self.shares[0] if self.second.is_own else max(self.shares)

    @cached_property
    def extracts(self) -> list[tuple[Extract, Extract]]:
        """The common lines, side by side, in the first one's order; those that follow each other closely in both are
        one extract."""
        found: list[list[tuple[_Lines, _Lines]]] = []
        for passage in sorted(self.passages, key=lambda one: one.first):
            now = _lines(self.first, passage.first, passage.length), _lines(self.second, passage.second, passage.length)
            if found and all(then.goes_on(one) for then, one in zip(found[-1][-1], now, strict=True)):
                found[-1].append(now)
            else:
                found.append([now])
        return [(_joined([one for one, _ in parts]), _joined([other for _, other in parts])) for parts in found]

    @property
    def second_label(self) -> str:
        """The second one's name; of hw4's own, with the file that most is of."""
        if not self.second.is_own or not self.passages:
            return self.second.label
        places = sorted((self.second.place(one.second)[0], one.length) for one in self.passages)
        by_source = {
            number: sum(length for _, length in group) for number, group in groupby(places, lambda one: one[0])
        }
        most = max(by_source, key=lambda number: by_source[number])
        return f"{self.second.label}: {self.second.sources[most].name}"


@dataclass(frozen=True)
class _Lines:
    """Where a passage stands in one program."""

    source: int
    first: int
    last: int
    common: frozenset[int]

    def goes_on(self, other: "_Lines") -> bool:
        return self.source == other.source and self.first <= other.first <= self.last + GAP


def _lines(work: Work, begin: int, length: int) -> _Lines:
    source, first = work.place(begin)
    common = frozenset(work.lines[begin : begin + length])
    return _Lines(source, first, max(common), common)


def _joined(parts: Sequence[_Lines]) -> Extract:
    common = frozenset[int]().union(*(part.common for part in parts))
    return Extract(parts[0].source, min(common), max(common), common)


@dataclass(frozen=True)
class Usual:
    """What is usual in a class: how many pairs it has, and what half of them and 95 of 100 have at most, in percent."""

    pairs: int
    median: float
    high: float


def ranked(pairs: Sequence[Pair]) -> list[Pair]:
    """The pairs from the most to the least similar."""
    return sorted(pairs, key=lambda one: (-one.similarity, -one.shared, one.first.label, one.second_label))


def similar(works: Sequence[Work], others: Sequence[Work], threshold: float) -> list[Pair]:
    """The pairs of a class, and of it with others, from a threshold in percent on, ranked. Others are not compared with
    each other."""
    found = []
    for first, second in _candidates(works, others, threshold):
        pair = compared(first, second)
        if pair.similarity >= threshold:
            found.append(pair)
    return ranked(found)


def compared(first: Work, second: Work) -> Pair:
    """A pair, with its passages."""
    return Pair(first, second, passages(first.print, second.print))


def usual(works: Sequence[Work]) -> Usual:
    """What is usual, by an even sample of all pairs."""
    pairs = list(combinations(works, 2))
    some = pairs[:: max(1, len(pairs) // SAMPLE)]
    values = [compared(*pair).similarity for pair in some]
    if len(values) < 2:
        values = (values or [0.0]) * 2
    cuts = quantiles(values, n=20, method="inclusive")
    return Usual(len(pairs), cuts[9], cuts[18])


def _candidates(works: Sequence[Work], others: Sequence[Work], threshold: float) -> Iterator[tuple[Work, Work]]:
    """The pairs that have so many fingerprints in common that their similarity may reach the threshold."""
    everyone = [*works, *others]
    counts = _in_common([one.print.fingerprints for one in everyone], len(works))
    sizes = [max(1, len(one.print.fingerprints)) for one in everyone]
    for number, first in enumerate(works):
        for place in range(number + 1, len(everyone)):
            second = everyone[place]
            smaller = sizes[number] if second.is_own else min(sizes[number], sizes[place])
            if 100 * counts[number, place] >= threshold / FEWEST_PRINTS * smaller:
                yield first, second


def _in_common(prints: Sequence[Hashes], rows: int) -> NDArray[np.float32]:
    """How many fingerprints each of the first works has in common with each."""
    counts = np.zeros((rows, len(prints)), np.float32)  # whole numbers far below 2^24
    if not prints:
        return counts
    known, repeats = np.unique(np.concatenate(prints), return_counts=True)
    known = known[repeats > 1]
    places = [np.searchsorted(known, one[np.isin(one, known)]) for one in prints]
    for start in range(0, len(known), CHUNK):
        has = np.zeros((len(prints), min(CHUNK, len(known) - start)), np.float32)
        for number, one in enumerate(places):
            has[number, one[(one >= start) & (one < start + CHUNK)] - start] = 1
        counts += has[:rows] @ has.T
    return counts

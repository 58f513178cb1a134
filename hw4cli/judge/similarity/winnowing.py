"""Fingerprints of programs, by winnowing, and the passages that two programs have in common.

Every GRAM successive symbols have a hash; of each WINDOW successive hashes the smallest is a fingerprint (S. Schleimer,
D. Wilkerson, A. Aiken: Winnowing: local algorithms for document fingerprinting, SIGMOD 2003). Two programs that share
GRAM + WINDOW - 1 successive symbols share a fingerprint, wherever these stand. Fingerprints tell which programs of
many are worth a closer look; the look finds all passages of GRAM or more symbols, the longest first, each symbol in one
passage at most (M. Wise: greedy string tiling, 1993).
"""

import re
from dataclasses import dataclass
from operator import or_
from typing import Any

import numpy as np
from numpy.typing import NDArray

GRAM, WINDOW = 16, 8
STARTER_GRAM = 12  # symbols in a row that a program has in common with the starter code are the starter code's
OFTEN = 1 << 12  # matches of a hash that repeats in both: each with each, up to so many
FREE = re.compile(rb"\0{%d,}" % GRAM)
MULTIPLIER = np.uint64(0x9E3779B97F4A7C15)
SPREAD = np.uint64(0xBF58476D1CE4E5B9)
NONE = np.uint64(2**64 - 1)

Hashes = NDArray[np.uint64]
Mask = NDArray[np.bool_]
Places = NDArray[np.int64]


@dataclass(frozen=True)
class Passage:
    """So many symbols that two programs have in common, from these on."""

    first: int
    second: int
    length: int


def grams(symbols: Hashes, length: int) -> Hashes:
    """The hash of each `length` successive symbols, by where they begin."""
    count = max(0, len(symbols) - length + 1)
    hashes = np.zeros(count, np.uint64)
    for offset in range(length):
        hashes = hashes * MULTIPLIER + symbols[offset : offset + count]
    hashes ^= hashes >> np.uint64(31)  # so that the smallest ones are spread over the text
    hashes *= SPREAD
    return np.asarray(hashes ^ (hashes >> np.uint64(29)))


def covered(count: int, places: Places, length: int) -> Mask:
    """Which of `count` symbols lie in pieces of this length that begin at these places."""
    ends = np.zeros(count + 1, np.int64)
    np.add.at(ends, places, 1)
    np.add.at(ends, places + length, -1)
    return np.asarray(np.cumsum(ends)[:count] > 0)


class Print:
    """A program's symbols, ready to be compared: those that are `own`, neither starter code nor the end of a file, in
    rows of GRAM or more; how many these are (`size`), and their `fingerprints`."""

    def __init__(self, symbols: Hashes, ends: Mask, starter: Hashes) -> None:
        self.symbols = symbols
        given = np.flatnonzero(np.isin(grams(symbols, STARTER_GRAM), starter))
        free = ~(ends | covered(len(symbols), given, STARTER_GRAM))
        self.hashes = grams(symbols, GRAM)
        windows: Any = (
            np.lib.stride_tricks.sliding_window_view(free, GRAM) if len(self.hashes) else np.zeros((0, 1), bool)
        )
        whole = windows.all(axis=1)
        self.places = np.flatnonzero(whole)
        self.own = covered(len(symbols), self.places, GRAM)
        self.size = int(self.own.sum())
        self.fingerprints = np.unique(self.hashes[winnow(np.where(whole, self.hashes, NONE), whole)])


def winnow(hashes: Hashes, chosen_from: Mask) -> Places:
    """The places of the fingerprints: of each WINDOW successive hashes the smallest, of equal ones the last."""
    if len(hashes) < WINDOW:
        return np.flatnonzero(chosen_from)
    windows: Any = np.lib.stride_tricks.sliding_window_view(hashes, WINDOW)
    places = np.unique(WINDOW - 1 - windows[:, ::-1].argmin(axis=1) + np.arange(len(windows)))
    return np.asarray(places[chosen_from[places]])


def passages(one: Print, other: Print) -> list[Passage]:
    """The passages that two programs have in common, from the longest to the shortest."""
    taken, others_taken = bytearray(len(one.symbols)), bytearray(len(other.symbols))
    found = []
    for length, first, second in _common_runs(one, other):
        used = bytes(map(or_, taken[first : first + length], others_taken[second : second + length]))
        for free in FREE.finditer(used):
            begin, count = free.start(), free.end() - free.start()
            taken[first + begin : first + begin + count] = b"\1" * count
            others_taken[second + begin : second + begin + count] = b"\1" * count
            found.append(Passage(first + begin, second + begin, count))
    return sorted(found, key=lambda one: (-one.length, one.first, one.second))


def _common_runs(one: Print, other: Print) -> list[tuple[int, int, int]]:
    """All longest runs of symbols that two programs have in common: length, and where they begin; the longest first."""
    first, second = _matches(one, other)
    if not len(first):
        return []
    order = np.lexsort((first, first - second))
    first, second = first[order], second[order]
    goes_on = (np.diff(first - second) == 0) & (np.diff(first) == 1)
    begins = np.flatnonzero(np.concatenate(([True], ~goes_on)))
    lengths = np.diff(np.append(begins, len(first))) + GRAM - 1
    runs = zip(lengths.tolist(), first[begins].tolist(), second[begins].tolist(), strict=True)
    return sorted(runs, key=lambda run: (-run[0], run[1], run[2]))


def _matches(one: Print, other: Print) -> tuple[Places, Places]:
    """The places in both of equal hashes, each with each; of what repeats too often, the n-th with the n-th."""
    common = np.intersect1d(one.hashes[one.places], other.hashes[other.places])
    mine, my_begins, my_counts = _by_hash(one, common)
    theirs, their_begins, their_counts = _by_hash(other, common)
    often = my_counts * their_counts > OFTEN
    partners = np.where(often, 1, their_counts)  # of each place of mine
    my_counts = np.where(often, np.minimum(my_counts, their_counts), my_counts)
    number = np.repeat(np.arange(len(common)), my_counts * partners)  # of the hash, for each match
    rank = np.arange(len(number)) - np.repeat(
        np.cumsum(my_counts * partners) - my_counts * partners, my_counts * partners
    )
    first, second = np.divmod(rank, partners[number])
    second = np.where(often[number], first, second)
    return mine[my_begins[number] + first], theirs[their_begins[number] + second]


def _by_hash(one: Print, common: Hashes) -> tuple[Places, Places, Places]:
    """The places whose hashes are among the common ones, sorted by these; where each hash's begin, and how many."""
    places = one.places[np.isin(one.hashes[one.places], common)]
    places = places[np.argsort(one.hashes[places], kind="stable")]
    begins = np.searchsorted(one.hashes[places], common, "left")
    return places, begins, np.searchsorted(one.hashes[places], common, "right") - begins

"""Mistakes in the online softmax: tiles of keys that are left out or counted twice, O or l that is not rescaled."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np

from hw4cli.judge.diagnosis.evidence import Doubles
from hw4cli.judge.diagnosis.formulas import Mistake
from hw4cli.judge.diagnosis.sample import Sample, without_tiny
from hw4cli.problem.errormap import TILES


@dataclass(frozen=True)
class Tiles:
    """The softmax of each tile of keys by itself: maxima m, sums l (rows, tiles), and O undivided (rows, tiles, d)."""

    m: Doubles
    l: Doubles  # noqa: E741
    o: Doubles

    @classmethod
    def of(cls, sample: Sample, tile: int) -> "Tiles":
        """Cut a sample's keys into tiles; the last may be shorter."""
        (N, d), rows = sample.k.shape, len(sample.rows)
        count = -(-N // tile)
        scores, v = sample.scores, sample.v
        if missing := count * tile - N:
            scores = np.pad(scores, ((0, 0), (0, missing)), constant_values=-np.inf)
            v = np.pad(v, ((0, missing), (0, 0)))
        scores = scores.reshape(rows, count, tile)
        m = scores.max(axis=2)
        p = np.exp(scores - m[:, :, None])
        o = without_tiny(p).swapaxes(0, 1) @ v.reshape(count, tile, d)
        return cls(m, p.sum(axis=2), o.swapaxes(0, 1).astype(np.float64))

    def twice_as_wide(self) -> "Tiles":
        """Two tiles in one."""
        m, total, o = self.m, self.l, self.o
        if m.shape[1] % 2:
            m = np.pad(m, ((0, 0), (0, 1)), constant_values=-np.inf)
            total, o = np.pad(total, ((0, 0), (0, 1))), np.pad(o, ((0, 0), (0, 1), (0, 0)))
        rows, d = len(m), o.shape[2]
        pairs = m.reshape(rows, -1, 2)
        largest = pairs.max(axis=2)
        weights = np.exp(pairs - largest[:, :, None])
        return Tiles(
            largest,
            (weights * total.reshape(rows, -1, 2)).sum(axis=2),
            (weights[..., None] * o.reshape(rows, -1, 2, d)).sum(axis=2),
        )

    def mix(self, weights: Doubles, divisors: Doubles | None) -> Doubles:
        """Tiles of O with these weights, divided by the sums l with those."""
        o = np.asarray(np.einsum("rt,rtd->rd", weights, self.o))
        return o if divisors is None else o / (divisors * self.l).sum(axis=1, keepdims=True)


def tile_mistakes(sample: Sample) -> Iterator[Mistake]:
    """Mistakes with tiles of 16 to 256 keys."""
    N = len(sample.k)
    tiles, found = Tiles.of(sample, TILES[0]), set[str]()
    for tile in TILES:
        if tile >= N:
            return
        for phrase, rows in _of_width(tiles, sample, tile):
            if phrase not in found:  # a short last tile is the last of several widths
                found.add(phrase)
                yield phrase, rows
        tiles = tiles.twice_as_wide()


def _of_width(tiles: Tiles, sample: Sample, tile: int) -> Iterator[Mistake]:
    N, count = len(sample.k), tiles.m.shape[1]
    running = np.maximum.accumulate(tiles.m, axis=1)
    right = np.exp(tiles.m - running[:, -1:])  # every tile by the last maximum
    stale = np.exp(tiles.m - running)  # every tile by the maximum of its time
    first, last = (np.arange(count) == place for place in (0, count - 1))
    tail = N % tile or tile
    end = f"the last {tail} keys ({'the tail behind the last whole tile' if N % tile else 'a tile'})"

    def mistake(phrase: str, weights: Doubles, divisors: Doubles | None) -> tuple[str, Callable[[], Doubles]]:
        return phrase, lambda: tiles.mix(weights, divisors)

    for where, chosen in ((f"the first {tile} keys (a tile)", first), (end, last)):
        for phrase, kept in (
            (f"from {where} alone", chosen),
            (f"without {where}", ~chosen),
            (f"when {where} count twice", 1 + chosen),
        ):
            yield mistake(phrase, right * kept, right * kept)
    of = f"(tiles of {tile} keys)"
    yield mistake(f"without rescaling O when the maximum grows {of}", stale, right)
    yield mistake(f"without rescaling l when the maximum grows {of}", right, stale)
    yield mistake(f"without rescaling O and l when the maximum grows {of}", stale, stale)
    yield mistake(f"when l is the sum over {end} alone", right, right * last)
    yield mistake(f"when O is made from {end} alone, and l from all", right * last, right)
    alone = 1 / tiles.l
    yield mistake(f"when the softmax of every tile is taken by itself, and they are added {of}", alone, None)
    yield mistake(f"when the softmax of every tile is taken by itself, and their mean taken {of}", alone / count, None)
    divided = "when O is divided by l in every tile, and not multiplied by the old l"
    yield mistake(f"{divided} {of}", _divided(tiles, running), None)
    own = np.arange(count) == sample.rows[:, None] // tile
    yield mistake(f"when a row sees only the keys of its own tile {of}", right * own, right * own)


def _divided(tiles: Tiles, running: Doubles) -> Doubles:
    """O = (exp(m_old - m) O + PV) / l in every tile, where O should be multiplied by the old l first; as weights."""
    with np.errstate(divide="ignore"):
        log_l = np.logaddexp.accumulate(tiles.m + np.log(tiles.l), axis=1) - running
    divided = np.cumsum(log_l[:, ::-1], axis=1)[:, ::-1]  # by this and all later tiles
    return np.asarray(np.exp(tiles.m - running[:, -1:] - divided))

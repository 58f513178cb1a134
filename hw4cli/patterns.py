"""What a wrong output looks like, and which classic mistake makes just that: for the reason beside a verdict.

Two questions, asked of wrong outputs alone: where the wrong rows are (tails, batches, places in a tile), and what is in
them (a constant, a factor, another row, the result of a known wrong formula, computed again in float64 from the input).
"""

import math
from collections.abc import Iterator
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from hw4cli.casefile import FLOAT32, Floats, InputFile
from hw4cli.shape import Shape

Doubles = NDArray[np.float64]

TILES = (16, 32, 64, 128)
CHUNK = 1 << 17  # floats compared at a time
EXP_LIMIT = math.log(float(np.finfo(np.float32).max))  # expf overflows above it
WITNESSES = 4  # wrong rows that a mistake must explain, all of them


def explain(output: Path, answer: Path, source: Path, shape: Shape, tolerance: float) -> str | None:
    """Where and how an output of the right size is wrong, in words; None if it shows no pattern.

    Raises OSError or InputError if a file cannot be read.
    """
    got, expected = (np.memmap(path, FLOAT32, mode="r", shape=(shape.B, shape.N, shape.d)) for path in (output, answer))
    wrong, bad = _wrong(got, expected, tolerance)
    if not wrong.any():
        return None
    content = _content(got, expected, wrong, source, tolerance) if bad is None else _overflow(bad, source, shape)
    return "; ".join(words for words in (content, _where(wrong)) if words) or None


def _wrong(got: Floats, expected: Floats, tolerance: float) -> tuple[NDArray[np.bool_], int | None]:
    """Which elements are wrong, a byte an element; and the index of the first NaN or Inf."""
    wrong, bad = np.empty(got.size, bool), None
    flat, right = got.reshape(-1), expected.reshape(-1)
    with np.errstate(invalid="ignore", over="ignore"):
        for start in range(0, got.size, CHUNK):
            part = slice(start, start + CHUNK)
            error = np.abs(flat[part].astype(np.float64) - right[part])
            wrong[part] = ~(error <= tolerance)
            if bad is None and not np.isfinite(error).all():
                bad = start + int((~np.isfinite(error)).argmax())
    return wrong.reshape(got.shape), bad


def _where(wrong: NDArray[np.bool_]) -> str | None:
    """Where the wrong elements are, if that is a pattern."""
    by_row = np.asarray(wrong.any(axis=2))
    columns = np.asarray(wrong.any(axis=(0, 1)))
    said = [_batches(np.asarray(by_row.any(axis=1))), _rows(np.asarray(by_row.any(axis=0)))]
    if not columns.all() and (span := _span("column", columns)):
        said.append(f"only in {span}")
    return ", ".join(words for words in said if words) or None


def _batches(batches: NDArray[np.bool_]) -> str | None:
    B = len(batches)
    if B < 2 or batches.all():
        return None
    if not batches[0] and batches[1:].all():
        return "every batch but the first is wrong"
    if not batches[-1] and batches[:-1].all():
        return "every batch but the last is wrong"
    span = _span("batch", batches)
    return f"only in {span}" if span else None


def _rows(rows: NDArray[np.bool_]) -> str | None:
    """The rows that are wrong in some batch: a tail, places in every tile, or one span."""
    N = len(rows)
    if rows.all():
        return None
    tails = [tile for tile in TILES if N % tile and rows[-(N % tile) :].any() and not rows[: -(N % tile)].any()]
    if tails:
        length = min(N % tile for tile in tails)
        names, last = " or ".join(str(tile) for tile in tails if N % tile == length), _count(length, "row")
        return f"only in the last {last} of a batch, the tail behind the last whole tile of {names} rows"
    for tile in TILES:
        if 2 * tile > N or N % tile:
            continue
        places = rows.reshape(-1, tile)
        if (places == places[0]).all():
            return (
                f"only in {_span('row', places[0], last='the last ') or _list(places[0])} of every tile of {tile} rows"
            )
    span = _span("row", rows)
    return f"only in {span} of a batch" if span else None


def _span(what: str, marks: NDArray[np.bool_], last: str = "") -> str | None:
    """Marks without a gap, in words: "rows 3 to 9"; None if they have gaps."""
    places = np.flatnonzero(marks)
    first, end = int(places[0]), int(places[-1])
    if end - first + 1 != len(places):
        return None
    if last and end == len(marks) - 1:
        return f"{last}{_count(len(places), what)}"
    return f"{what} {first}" if first == end else f"{what}{'es' if what == 'batch' else 's'} {first} to {end}"


def _count(number: int, what: str) -> str:
    return what if number == 1 else f"{number} {what}s"


def _list(marks: NDArray[np.bool_]) -> str:
    places = [str(place) for place in np.flatnonzero(marks)]
    return f"rows {', '.join(places[:4])}{' …' if len(places) > 4 else ''}"


def _content(got: Floats, expected: Floats, wrong: NDArray[np.bool_], source: Path, tolerance: float) -> str | None:
    """What is in the wrong elements, all of them finite, or which mistake makes them."""
    rows = np.flatnonzero(wrong.any(axis=2))
    chosen = rows[np.linspace(0, len(rows) - 1, WITNESSES).astype(int)]
    witnesses = list(dict.fromkeys(divmod(int(row), got.shape[1]) for row in chosen))
    return (
        _constant(got, wrong)
        or _factor(got, expected, witnesses)
        or _mistake(got, witnesses, source, tolerance)
        or _misplaced(got, expected, witnesses, tolerance)
    )


def _constant(got: Floats, wrong: NDArray[np.bool_]) -> str | None:
    """Whether all wrong elements, two at least, are one number."""
    flat, marks = got.reshape(-1), wrong.reshape(-1)
    first = flat[int(marks.argmax())]
    if marks.sum() < 2:
        return None
    everywhere = True
    for start in range(0, len(flat), CHUNK):
        equal = flat[start : start + CHUNK] == first
        if not equal[marks[start : start + CHUNK]].all():
            return None
        everywhere = everywhere and bool(equal.all())
    what = "the whole output is" if everywhere else "the wrong elements are all"
    return f"{what} {first:g}, as if never written" if first else f"{what} zeros, as if never computed or copied back"


def _overflow(bad: int, source: Path, shape: Shape) -> str | None:
    """Whether the scores of the row with the first NaN or Inf are more than exp can take."""
    batch, row = divmod(bad // shape.d, shape.N)
    q, k, _ = _inputs(source, batch, row)
    raw = float((k @ q).max())
    if raw / math.sqrt(shape.d) > EXP_LIMIT:
        largest = raw / math.sqrt(shape.d)
        return f"exp overflows: that row's largest score is {largest:.1f}, so its maximum must be subtracted first"
    if raw > EXP_LIMIT:
        return f"exp would overflow there without the factor 1/sqrt(d): that row's largest Q·K is {raw:.1f}"
    return None


def _factor(got: Floats, expected: Floats, witnesses: list[tuple[int, int]]) -> str | None:
    """One factor from all the right rows to the wrong ones."""
    factors = []
    for place in witnesses:
        g, a = got[place].astype(np.float64), expected[place].astype(np.float64)
        factor = float(g @ a / (a @ a)) if a.any() else 0.0
        if np.abs(g - factor * a).max() > 1e-3 * np.abs(g).max():
            return None
        factors.append(factor)
    if max(factors) - min(factors) > 1e-3 * abs(factors[0]):
        return None
    return f"wrong rows are {factors[0]:.4g} times the answer"


def _mistake(got: Floats, witnesses: list[tuple[int, int]], source: Path, tolerance: float) -> str | None:
    """The first mistake that gives all the wrong rows looked at."""
    left: list[str] | None = None
    for batch, row in witnesses:
        g = got[batch, row].astype(np.float64)
        names = [
            name
            for name, o in mistakes(*_inputs(source, batch, row), row)
            if np.isfinite(o).all() and (np.abs(g - o) <= tolerance * np.maximum(1, np.abs(o))).all()
        ]
        left = names if left is None else [name for name in left if name in names]
    return f"the wrong rows are what comes out {left[0]}" if left else None


def mistakes(q: Doubles, k: Doubles, v: Doubles, row: int) -> Iterator[tuple[str, Doubles]]:
    """The classic mistakes, as what to say after "what comes out …", and the row of O that each gives. Float64."""
    N, d = k.shape
    raw = k @ q
    s = raw / math.sqrt(d)

    def softmax(scores: Doubles) -> Doubles:
        p = np.exp(scores - scores.max())
        return np.asarray(p / p.sum())

    with np.errstate(over="ignore", invalid="ignore"):
        yield "without the factor 1/sqrt(d)", softmax(raw) @ v
        yield "with 1/d instead of 1/sqrt(d)", softmax(raw / d) @ v
        yield "with sqrt(d) instead of 1/sqrt(d)", softmax(raw * math.sqrt(d)) @ v
        yield "with 1/sqrt(N) instead of 1/sqrt(d)", softmax(raw / math.sqrt(N)) @ v
        yield "when all keys weigh the same (the mean of V)", v.mean(axis=0)
        yield "when rows are not divided by their sum l", np.exp(s - s.max()) @ v
        yield "when rows are not divided by their sum l, nor their maximum subtracted", np.exp(s) @ v
        yield "without the softmax (S times V)", s @ v
        yield "with 2^S instead of e^S", softmax(s * math.log(2)) @ v
        yield "when K and V are exchanged", softmax(v @ q / math.sqrt(d)) @ k
        yield "with V copied to O", v[row]
        yield "with a causal mask (keys up to the row's own only)", softmax(s[: row + 1]) @ v[: row + 1]
        yield "without the last key", softmax(s[:-1]) @ v[:-1] if N > 1 else v[0] * np.nan
        for tile in TILES:
            if tile >= N:
                continue
            last = N % tile or tile
            yield f"from the first tile of {tile} keys alone", softmax(s[:tile]) @ v[:tile]
            yield f"from the last tile of {tile} keys alone", softmax(s[-last:]) @ v[-last:]
            yield f"without the last tile of {tile} keys", softmax(s[:-last]) @ v[:-last]
            if N % tile:
                padding = tile - N % tile
                p = np.exp(s - max(s.max(), 0.0))
                extra = padding * math.exp(-max(float(s.max()), 0.0))
                yield f"with {padding} keys of zeros behind the last (tiles of {tile} keys)", p @ v / (p.sum() + extra)
        yield "without rescaling O when the maximum grows", _unscaled(s, v)


def _unscaled(s: Doubles, v: Doubles, tile: int = 32) -> Doubles:
    """The online softmax over tiles of keys, whose O and l are not multiplied by exp(m_old - m_new)."""
    m, total = -math.inf, 0.0
    o: Doubles = np.zeros(v.shape[1])
    for start in range(0, len(s), tile):
        part = s[start : start + tile]
        m = max(m, float(part.max()))
        p = np.exp(part - m)
        total, o = total + float(p.sum()), o + p @ v[start : start + tile]
    return np.asarray(o / total)


def _misplaced(got: Floats, expected: Floats, witnesses: list[tuple[int, int]], tolerance: float) -> str | None:
    """Whether the wrong rows hold other rows, or the file's elements stand in another order."""
    B, N, d = got.shape

    def same(row: Floats, places: Floats) -> NDArray[np.bool_]:
        return np.asarray((np.abs(row - places) <= tolerance).all(axis=-1))

    columns = [same(np.asarray(got[b]).reshape(d, N)[:, r], expected[b, r]) for b, r in witnesses]
    if all(columns):
        return "each batch is transposed: it stands as (d, N) in the file"
    rows = got.reshape(N, B, d)
    if B > 1 and all(same(rows[r, b], expected[b, r]) for b, r in witnesses):
        return "batches and rows are exchanged: the file stands as (N, B, d)"
    batches = [np.flatnonzero(same(got[b, r], expected[:, r])) for b, r in witnesses]
    if all(len(found) for found in batches):
        (b, _), other = witnesses[0], batches[0][0]
        return f"batches are exchanged: batch {b} holds what belongs in batch {other}"
    places = [np.flatnonzero(same(got[b, r], expected[b])) for b, r in witnesses]
    if all(len(found) for found in places):
        (b, r), other = witnesses[0], places[0][0]
        return f"rows are exchanged: row {r} of batch {b} holds what belongs in row {other}"
    return None


def _inputs(source: Path, batch: int, row: int) -> tuple[Doubles, Doubles, Doubles]:
    """A query, and the keys and values of its batch, in float64."""
    with InputFile(source) as inputs:
        block = inputs.batches(batch, batch + 1)[0].astype(np.float64)
    return block[0, row], block[1], block[2]

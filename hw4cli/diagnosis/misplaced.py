"""Mistakes in writing the output: the answer's rows at wrong places of the file."""

from collections.abc import Iterator
from pathlib import Path

import numpy as np

from hw4cli.diagnosis.evidence import Doubles
from hw4cli.diagnosis.sample import Output, WrongRows
from hw4cli.errors import InputError
from hw4cli.problem.casefile import FLOAT32, HEADER, Floats, open_regular, read_exactly
from hw4cli.problem.shape import Shape

BATCHES = 1 << 16  # in which a row is searched for
ANSWERS = 64  # of other cases
SEARCHES = 6  # of a row in its whole batch
HEADER_FLOATS = HEADER.size // FLOAT32.itemsize

# The description, and for each wrong row the row of the answer that would stand there, NaN where there is none.
Misplacement = tuple[str, Doubles]


def misplacements(answer: Output, wrong_rows: list[WrongRows], tolerance: float) -> Iterator[Misplacement]:
    """Rows of the answer, at other places, that the wrong rows may be."""
    B, N, d = answer.shape.B, answer.shape.N, answer.shape.d
    every = np.memmap(answer.path, FLOAT32, mode="r", shape=(B, N, d))
    rows = np.concatenate([one.rows for one in wrong_rows])
    batches = np.repeat([one.batch for one in wrong_rows], [len(one.rows) for one in wrong_rows])
    got = np.concatenate([one.got for one in wrong_rows]).astype(np.float32)
    places = rows[:, None] * d + np.arange(d)
    transposed = every[batches[:, None], places % N, places // N]
    yield "each batch is transposed: it stands as (d, N) in the file", transposed.astype(np.float64)
    if B > 1:
        place = batches * N + rows
        phrase = "batches and rows are exchanged: the file stands as (N, B, d)"
        yield phrase, every[place % B, place // B].astype(np.float64)
        yield _other_batches(every, wrong_rows)
    yield from _other_rows(every, batches * N + rows, got, tolerance)
    for name, other in _other_answers(answer, batches * N + rows):
        yield f"the output is that of another case, {name}", other


def _other_batches(every: Floats, wrong_rows: list[WrongRows]) -> Misplacement:
    """The batches that, in the same rows, are nearest to what the wrong ones hold."""
    found, sources = [], []
    for one in wrong_rows:
        distance = np.zeros(min(len(every), BATCHES), np.float32)
        for row, got in zip(one.rows, one.got.astype(np.float32), strict=True):
            np.maximum(distance, np.abs(every[: len(distance), row] - got).max(axis=1), out=distance)
        sources.append(int(distance.argmin()))
        found.append(every[sources[-1], one.rows].astype(np.float64))
    if len(set(sources)) == 1 and len(sources) > 1:
        return f"the wrong batches hold what belongs in batch {sources[0]}", np.concatenate(found)
    phrase = f"batch {wrong_rows[0].batch} holds what belongs in batch {sources[0]}"
    return f"batches are exchanged: {phrase}" if len(sources) > 1 else phrase, np.concatenate(found)


def _other_rows(every: Floats, rows: np.ndarray, got: Floats, tolerance: float) -> Iterator[Misplacement]:
    """Rows, counted through all batches, that stand elsewhere in their batch: all shifted alike, or each otherwise."""
    B, N, d = every.shape
    flat, found = every.reshape(-1), {}
    for row, values in list(zip(rows.tolist(), got, strict=True))[:SEARCHES]:
        low, high = max(0, (row // N * N - 1) * d), min(B * N, (row // N + 1) * N + 1) * d
        place = _find(flat[low:high], values, tolerance)
        if place is not None:
            found[row] = low + place
    for shift in dict.fromkeys(place - row * d for row, place in found.items()):
        yield _moved(shift, d), _at(flat, rows * d + shift, d)
    moved = {row: place for row, place in found.items() if place % d == 0 and place != row * d}
    if moved:
        (row, place), *_ = moved.items()
        phrase = f"rows are exchanged: row {row % N} of batch {row // N} holds what belongs in row {place // d % N}"
        yield phrase, _at(flat, np.array([found.get(row, -d) for row in rows.tolist()]), d)


def _moved(shift: int, d: int) -> str:
    amount, unit = (abs(shift) // d, "row") if shift % d == 0 else (abs(shift), "element")
    phrase = f"everything stands {amount} {unit}{'' if amount == 1 else 's'} too {'early' if shift > 0 else 'late'}"
    return f"{phrase}, as behind a header of 12 bytes" if shift == -HEADER_FLOATS else phrase


def _at(flat: Floats, starts: np.ndarray, d: int) -> Doubles:
    """The d elements from each start on; NaN where they are not in the file."""
    inside = (starts >= 0) & (starts + d <= len(flat))
    places = np.where(inside, starts, 0)[:, None] + np.arange(d)
    return np.where(inside[:, None], flat[places].astype(np.float64), np.nan)


def _find(window: Floats, row: Floats, tolerance: float) -> int | None:
    """Where a row's elements stand one behind the other in a window: the best place within the tolerance."""
    d = len(row)
    lead = int(np.abs(row).argmax())  # the rarest value, as a rule
    last = len(window) - d + 1
    places = np.flatnonzero(np.abs(window[lead : lead + last] - row[lead]) <= tolerance)
    for column in range(d):
        places = places[np.abs(window[places + column] - row[column]) <= tolerance]
    if not len(places):
        return None
    distances = np.abs(window[places[:, None] + np.arange(d)] - row).max(axis=1)
    return int(places[distances.argmin()])


def _other_answers(answer: Output, rows: np.ndarray) -> Iterator[Misplacement]:
    """The names of other cases in the answer's folder, and their answers' elements where the output has these rows."""
    for path in sorted(answer.path.parent.glob("*.out"))[:ANSWERS]:
        case = path.with_suffix("")
        if path != answer.path and case.is_file() and (other := _at_same_places(path, answer.shape, rows)) is not None:
            yield case.name, other


def _at_same_places(path: Path, shape: Shape, rows: np.ndarray) -> Doubles | None:
    """The elements of a file where the output has these rows; None if it is too short."""
    values = np.empty((len(rows), shape.d), FLOAT32)
    try:
        with open_regular(path) as file:
            for row, out in zip(rows.tolist(), values, strict=True):
                read_exactly(file, out, 4 * row * shape.d, path)
    except InputError:
        return None
    return values.astype(np.float64)

"""Mistakes in writing the output: the answer's numbers at wrong places of the file."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

import numpy as np

from hw4cli.errors import InputError
from hw4cli.judge.diagnosis.evidence import Doubles
from hw4cli.judge.diagnosis.sample import Output, Rows, WrongRows
from hw4cli.problem.casefile import FLOAT32, HEADER, Floats, open_regular, read_exactly
from hw4cli.problem.errormap import ErrorMap
from hw4cli.problem.workload import Workload
from hw4cli.text.words import counted

BATCHES = 1 << 16  # in which a row is searched for
ANSWERS = 64  # of other cases
SEARCHES = 6  # of a row in its whole batch
ORDERED_ROWS = 4  # at least, by which an order of columns is known
HEADER_FLOATS = HEADER.size // FLOAT32.itemsize


@dataclass(frozen=True)
class Misplacement:
    """What stands where, and how it is said if that holds for the whole output, or for its wrong rows alone; an empty
    text is not said then. `source` gives what would stand in some rows, counted through all batches: (rows, d), NaN
    where that is not known. Only the columns `columns` are compared."""

    everywhere: str
    in_wrong_rows: str
    source: Callable[[Rows], Doubles]
    columns: slice = field(default_factory=lambda: slice(None))


def misplacements(
    answer: Output, wrong_rows: list[WrongRows], errors: ErrorMap, tolerance: float
) -> Iterator[Misplacement]:
    """Parts of the answer, at other places, that the wrong rows may be."""
    B, N, d = answer.shape.B, answer.shape.N, answer.shape.d
    every = np.memmap(answer.path, FLOAT32, mode="r", shape=(B, N, d))

    def transposed(rows: Rows) -> Doubles:
        batches, places = rows // N, (rows % N)[:, None] * d + np.arange(d)
        return np.asarray(every[batches[:, None], places % N, places // N], np.float64)

    yield Misplacement("each batch is transposed: it stands as (d, N) in the file", "", transposed)
    if B > 1:
        exchanged = "batches and rows are exchanged: the file stands as (N, B, d)"
        yield Misplacement(exchanged, "", lambda rows: every[rows % B, rows // B].astype(np.float64))
        yield from _other_batches(every, wrong_rows, errors)
    rows = np.concatenate([one.batch * N + one.rows for one in wrong_rows])
    got = np.concatenate([one.got for one in wrong_rows]).astype(np.float32)
    yield from _other_rows(every, rows, got, errors, tolerance)
    yield from _other_columns(every, wrong_rows, tolerance)
    yield from _other_answers(answer)


def _other_batches(every: Floats, wrong_rows: list[WrongRows], errors: ErrorMap) -> Iterator[Misplacement]:
    """The batches that, in the same rows, are nearest to what the wrong ones hold."""
    N, sources = every.shape[1], dict[int, int]()
    for one in wrong_rows:
        distance = np.zeros(min(len(every), BATCHES), np.float32)
        for row, got in zip(one.rows, one.got.astype(np.float32), strict=True):
            np.maximum(distance, np.abs(every[: len(distance), row] - got).max(axis=1), out=distance)
        sources[one.batch] = int(distance.argmin())
    wrong = np.asarray((errors.marks > 0).any(axis=1))
    alike = len(sources) > 1 and len(set(sources.values())) == 1
    source_of = np.full(len(every), -1)
    for batch, source in sources.items():
        source_of[wrong if alike else batch] = source

    def moved(rows: Rows) -> Doubles:
        found = source_of[rows // N]
        values = np.asarray(every[found, rows % N], np.float64)
        values[found < 0] = np.nan
        return values

    (batch, source), *_ = sources.items()
    if alike:
        yield Misplacement(f"the wrong batches hold what belongs in batch {source}", "", moved)
        return
    phrase = f"batch {batch} holds what belongs in batch {source}"
    if len(sources) > 1 and all(wrong[other] for other in sources.values()):
        phrase = f"batches are exchanged: {phrase}"
    same_rows = f"the wrong rows of batch {batch} hold what belongs in the same rows of batch {source}"
    yield Misplacement(phrase, same_rows if len(sources) == 1 else "", moved)


def _other_rows(every: Floats, rows: Rows, got: Floats, errors: ErrorMap, tolerance: float) -> Iterator[Misplacement]:
    """Rows, counted through all batches, that stand elsewhere in their batch: all shifted alike, or each otherwise."""
    B, N, d = every.shape
    flat, found, marks = every.reshape(-1), dict[int, int](), errors.marks.reshape(-1)
    for row, values in list(zip(rows.tolist(), got, strict=True))[:SEARCHES]:
        low, high = max(0, (row // N * N - 1) * d), min(B * N, (row // N + 1) * N + 1) * d
        place = _find(flat[low:high], values, tolerance)
        if place is not None:
            found[row] = low + place
    wrong = np.count_nonzero(marks)
    for shift in dict.fromkeys(place - row * d for row, place in found.items()):
        everywhere = _shifted("everything stands", shift, d)
        if shift == -HEADER_FLOATS:
            everywhere += ", as behind a header of 12 bytes"
        yield Misplacement(
            everywhere if 2 * wrong > len(marks) else "",
            _shifted("the wrong rows stand", shift, d) if wrong > 1 else "",
            partial(_moved_by, flat, shift, d),
        )
    moved = {row: place for row, place in found.items() if place % d == 0 and place != row * d}
    if not moved:
        return
    (row, place), *_ = moved.items()
    inside = [place // d - row // N * N for row, place in moved.items()]  # in the row's own batch
    if len(moved) > 1 and len(set(inside)) == 1 and 0 <= inside[0] < N:
        belongs = f"hold what belongs in row {inside[0]}" + (" of their batch" if B > 1 else "")
        yield Misplacement(
            f"all rows {belongs}",
            f"the wrong rows {belongs}",
            lambda rows: every[rows // N, inside[0]].astype(np.float64),
        )
        return
    belongs = f"what belongs in row {place // d % N}"
    if place // d // N != row // N:
        belongs += f" of batch {place // d // N}"
    phrase = f"row {row % N} of batch {row // N} holds {belongs}"
    if len(moved) > 1 and len(set(moved.values())) == len(moved) and all(marks[at // d] for at in moved.values()):
        phrase = f"rows are exchanged: {phrase}"
    yield Misplacement(phrase, "", lambda rows: _at(flat, np.array([moved.get(row, -d) for row in rows.tolist()]), d))


def _shifted(words: str, shift: int, d: int) -> str:
    amount, unit = (abs(shift) // d, "row") if shift % d == 0 else (abs(shift), "element")
    return f"{words} {counted(amount, unit)} too {'early' if shift > 0 else 'late'}"


def _other_columns(every: Floats, wrong_rows: list[WrongRows], tolerance: float) -> Iterator[Misplacement]:
    """Columns that stand elsewhere in every row: all shifted alike, or in another order."""
    d, flat = every.shape[2], every.reshape(-1, every.shape[2])
    got, exact = (np.concatenate([getattr(one, name) for one in wrong_rows]) for name in ("got", "exact"))

    def columns(order: Rows) -> Callable[[Rows], Doubles]:
        return lambda rows: flat[rows][:, order].astype(np.float64)

    def said(words: str) -> tuple[str, str]:
        return f"in every row {words}", f"in the wrong rows {words}"

    misses = {shift: np.abs(got[:, _seen(shift)] - exact[:, _seen(-shift)]).max() for shift in _shifts(d)}
    shift = min(misses, key=misses.__getitem__, default=0)
    if shift and misses[shift] <= tolerance:
        side = "right" if shift > 0 else "left"
        words = f"the numbers stand {counted(abs(shift), 'column')} too far to the {side}"
        rolled = columns((np.arange(d) - shift) % d)
        if np.abs(got - np.roll(exact, shift, axis=1)).max() <= tolerance:
            yield Misplacement(
                *said(
                    f"{words}, those of the last ones in front"
                    if shift > 0
                    else f"{words}, those of the first ones behind"
                ),
                rolled,
            )
        else:
            yield Misplacement(*said(words), rolled, _seen(shift))
        return
    if len(got) < ORDERED_ROWS:
        return
    distances = np.abs(got[:, :, None] - exact[:, None, :]).max(axis=0)
    order = distances.argmin(axis=1)
    away = np.flatnonzero(order != np.arange(d))
    if len(away) and len(set(order.tolist())) == d and (distances.min(axis=1) <= tolerance).all():
        words = f"the columns stand in another order: column {away[0]} holds what belongs in column {order[away[0]]}"
        yield Misplacement(*said(words), columns(order))


def _shifts(d: int) -> list[int]:
    """The distances that columns may be shifted by, the shortest first."""
    return [sign * size for size in range(1, d // 2 + 1) for sign in (1, -1)]


def _seen(shift: int) -> slice:
    """The columns that hold a number of their row, if all are shifted so far."""
    return slice(shift, None) if shift >= 0 else slice(None, shift)


def _at(flat: Floats, starts: Rows, d: int) -> Doubles:
    """The d elements from each start on; NaN for those that are not in the file."""
    places = starts[:, None] + np.arange(d)
    inside = (places >= 0) & (places < len(flat))
    return np.where(inside, flat[np.where(inside, places, 0)].astype(np.float64), np.nan)


def _moved_by(flat: Floats, shift: int, d: int, rows: Rows) -> Doubles:
    """The rows that stand `shift` elements behind these."""
    return _at(flat, rows * d + shift, d)


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


def _other_answers(answer: Output) -> Iterator[Misplacement]:
    """The answers of other cases, in this one's folder."""
    for path in sorted(answer.path.parent.glob("*.out"))[:ANSWERS]:
        case = path.with_suffix("")
        if path != answer.path and case.is_file():
            name = case.name
            yield Misplacement(
                f"the output is that of another case, {name}",
                f"the wrong rows are those of another case, {name}",
                partial(_at_same_places, path, answer.shape),
            )


def _at_same_places(path: Path, shape: Workload, rows: Rows) -> Doubles:
    """The elements of a file where the output has these rows; NaN if it is too short."""
    values = np.empty((len(rows), shape.d), FLOAT32)
    try:
        with open_regular(path) as file:
            for row, out in zip(rows.tolist(), values, strict=True):
                read_exactly(file, out, 4 * row * shape.d, path)
    except InputError:
        return np.full(values.shape, np.nan)
    return values.astype(np.float64)

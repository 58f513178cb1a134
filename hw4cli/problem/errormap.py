"""Which rows and columns of an output are wrong: noted while it is compared, then put into words or a coarse map."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from hw4cli.problem.workload import Workload
from hw4cli.text.words import counted

Flags = NDArray[np.bool_]

WRONG, NOT_FINITE = 1, 2  # marks of a row; 0 is right
MAX_ROWS = 1 << 26  # a byte each; outputs of more rows (17 GB at d = 64) are not mapped
TILES = (16, 32, 64, 128, 256)
GRID_LIMIT = 65535  # a CUDA grid's largest y and z
BLOCK = 1 << 16  # rows searched at a time
LISTED = 3  # places, at most, that are listed one by one


class ErrorMap:
    """A mark for each row of an output, and which columns are wrong. Pages of right rows are never touched."""

    def __init__(self, shape: Workload) -> None:
        self.shape = shape
        self.mapped = shape.B * shape.N <= MAX_ROWS
        self.marks = np.zeros((shape.B, shape.N) if self.mapped else (0, 0), np.uint8)
        self.columns = np.zeros(shape.d, bool)

    def add(self, start: int, wrong: Flags, finite: Flags) -> None:
        """Note which elements of a chunk, which begins at element `start` of the file, are wrong or not finite."""
        d = self.shape.d
        self.columns |= _by_row(start, wrong, d).any(axis=0)
        if self.mapped:
            rows = self.marks.reshape(-1)[start // d :]
            for flags, mark in ((wrong, WRONG), (~finite, NOT_FINITE)):
                if mark == WRONG or flags.any():
                    by_row = _by_row(start, flags, d)
                    # Four flags at a time, where a row is whole fours of them.
                    some = np.bitwise_or.reduce(by_row.view(np.uint32) if d % 4 == 0 else by_row, axis=1) != 0
                    part = rows[: len(some)]
                    np.maximum(part, some.view(np.uint8) * np.uint8(mark), out=part)

    def rows(self, mark: int, most: int) -> NDArray[np.int64]:
        """At most so many of the rows with a mark, evenly, counted through all batches."""
        flat = self.marks.reshape(-1)
        blocks = [flat[start : start + BLOCK] == mark for start in range(0, len(flat), BLOCK)]
        counts = np.array([np.count_nonzero(block) for block in blocks])
        ends, total = np.cumsum(counts), int(counts.sum())
        ranks = np.linspace(0, total - 1, min(most, total)).astype(np.int64)
        places = zip(np.searchsorted(ends, ranks, side="right").tolist(), ranks.tolist(), strict=True)
        found = [b * BLOCK + int(np.flatnonzero(blocks[b])[rank - ends[b] + counts[b]]) for b, rank in places]
        return np.array(found, np.int64)

    def where(self) -> str | None:
        """Where the wrong elements are, in a sentence; None if there is no pattern."""
        phrases = self._where_rows() if self.mapped and self.marks.any() else []
        if self.columns.any() and not self.columns.all() and (places := _places("column", self.columns)):
            phrases.append(f"in {places}")
        only = "" if phrases and phrases[0].startswith("in every batch but") else "only "
        return f"errors {only}{', '.join(phrases)}" if phrases else None

    def _where_rows(self) -> list[str]:
        wrong = self.marks > 0
        if wrong.all():
            return []
        if run := self._run(wrong.reshape(-1)):
            return [run]
        batches, rows = np.asarray(wrong.any(axis=1)), np.asarray(wrong.any(axis=0))
        by_batch = None if batches.all() else self._batches(batches)
        by_row = None if rows.all() else _rows(rows)
        if not (wrong == np.outer(batches, rows)).all():  # not the same rows in each of these batches
            return [f"in {by_batch}"] if by_batch else []
        if by_row and batches.all() and len(batches) > 1:
            by_row += ", of every batch" if "every" in by_row else " of every batch"
        return [f"in {words}" for words in (by_batch, by_row) if words]

    def _run(self, wrong: Flags) -> str | None:
        """One run of rows that begins or ends inside a batch and goes on through others."""
        N = self.shape.N
        first, last = int(wrong.argmax()), len(wrong) - 1 - int(wrong[::-1].argmax())
        if first // N == last // N or (first % N == 0 and last % N == N - 1) or not wrong[first : last + 1].all():
            return None
        begin, end = (f"batch {place // N}, row {place % N}" for place in (first, last))
        if last == len(wrong) - 1:
            return f"from {begin} on" + self._limit_at(first, rows=1)
        return f"up to {end}" if first == 0 else f"from {begin} to {end}"

    def _batches(self, marks: Flags) -> str | None:
        B, first = len(marks), int(marks.argmax())
        if B > 2 and not marks[-1] and marks[:-1].all():
            return "every batch but the last"
        if not marks[first:].all():
            return _places("batch", marks)
        words = "every batch but the first" if first == 1 and B > 2 else _places("batch", marks)
        return f"{words}{self._limit_at(first * self.shape.N, rows=self.shape.N)}"

    def _limit_at(self, row: int, rows: int) -> str:
        """The limit of 32-bit offsets or of CUDA grids that is exceeded where the errors begin, within `rows`."""
        N, d = self.shape.N, self.shape.d
        if row in (GRID_LIMIT * N, (GRID_LIMIT + 1) * N):
            return f", where a CUDA grid ends ({GRID_LIMIT:,} in y and z)"
        begin, end = ((place // N * 3 * N + place % N) * d for place in (row - rows, row + rows))  # of Q
        for words, first, last in (("input", begin, end), ("output", (row - rows) * d, (row + rows) * d)):
            for unit, size in (("elements", 1), ("bytes", 4)):
                for power in (31, 32):
                    if first * size <= 1 << power <= last * size:
                        return f", where offsets in the {words} pass 2^{power} {unit}"
        return ""

    def grid(self, max_lines: int, max_cells: int) -> "Grid":
        """A coarse map of so many lines of so many cells at most. `mapped` must be true."""
        B, N = self.shape.B, self.shape.N
        batches, rows = _power_of_two(-(-B // max_lines)), _power_of_two(-(-N // max_cells))
        line_starts, cell_starts = np.arange(0, B, batches), np.arange(0, N, rows)
        shape = (len(line_starts), len(cell_starts))
        counts, bad = np.zeros(shape, np.int64), np.zeros(shape, bool)
        for line, start in enumerate(line_starts):
            part = self.marks[start : start + batches]
            counts[line] = np.add.reduceat((part > 0).sum(axis=0), cell_starts)
            bad[line] = np.add.reduceat((part == NOT_FINITE).sum(axis=0), cell_starts) > 0
        sizes = np.outer(np.diff([*line_starts, B]), np.diff([*cell_starts, N]))
        return Grid(batches, rows, counts, sizes, bad)


@dataclass(frozen=True)
class Grid:
    """A coarse map: each line is `batches` batches, each cell in it `rows` rows of each. Arrays (lines, cells): how
    many rows of a cell are wrong, how many it has, and whether it holds NaN or Inf."""

    batches: int
    rows: int
    wrong: NDArray[np.int64]
    sizes: NDArray[np.int64]
    not_finite: Flags


def _by_row(start: int, flags: Flags, d: int) -> Flags:
    """Flags of a chunk as whole rows of d, with False where it begins or ends inside a row."""
    lead, tail = start % d, -(start + len(flags)) % d
    return (np.pad(flags, (lead, tail)) if lead or tail else np.ascontiguousarray(flags)).reshape(-1, d)


def _power_of_two(least: int) -> int:
    return 1 << (least - 1).bit_length()


def _rows(marks: Flags) -> str | None:
    """Rows that are wrong: a tail, the same rows of every tile, or as `_places` describes them."""
    N = len(marks)
    tails = [tile for tile in TILES if tile < N and N % tile and marks.sum() == marks[-(N % tile) :].sum() == N % tile]
    if tails:
        last = "row" if N % tails[0] == 1 else counted(N % tails[0], "row")
        return f"the last {last} (the tail behind the last whole tile of {listed(tails, 'or')} rows)"
    for tile in TILES:
        if 2 * tile <= N and N % tile == 0:
            places = marks.reshape(-1, tile)
            if (places == places[0]).all() and (words := _places("row", places[0])):
                return f"{words} of every {tile}"
    return _places("row", marks)


def _places(what: str, marks: Flags) -> str | None:
    """Marks as a phrase: one run ("rows 3 to 9"), steps ("every 4th row, from 3 on"), or a short list."""
    first, end, count = int(marks.argmax()), len(marks) - 1 - int(marks[::-1].argmax()), int(marks.sum())
    plural = what + ("es" if what == "batch" else "s")
    if end - first + 1 == count:
        run = f"{what} {first}" if count == 1 else f"{plural} {first} to {end}"
        return run + (" (the last)" if end == len(marks) - 1 else "")
    if count <= LISTED:
        return f"{plural} {listed(np.flatnonzero(marks).tolist(), 'and')}"
    step = 1 + int(marks[first + 1 :].argmax())
    every = marks[first::step]
    return f"every {_ordinal(step)} {what}, from {first} on" if every.all() and len(every) == count else None


def listed(values: Sequence[int], joint: str) -> str:
    """A list of numbers: "3, 7 and 9"."""
    words = [str(value) for value in values]
    return f" {joint} ".join(filter(None, (", ".join(words[:-1]), words[-1])))


def _ordinal(number: int) -> str:
    ending = "th" if number % 100 in (11, 12, 13) else {1: "st", 2: "nd", 3: "rd"}.get(number % 10, "th")
    return f"{number}{ending}"

"""The map of an output's errors as text: batches down, rows across, as wide as the terminal."""

import shutil
import sys
from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from hw4cli.problem.errormap import ErrorMap
from hw4cli.text.words import counted, wrapped

NARROW, WIDE, UNKNOWN = 60, 200, 80  # columns: the least and the most that are used, and those of a pipe
LINES = 16
LABEL = len("columns")
NOT_FINITE = "N"
SHADES, PLAIN = (
    "·░▒▓█",
    ".-+*#",
)  # by the share of a cell's rows that are wrong: none, up to a third, up to two, more, all


def width() -> int:
    """The columns of the terminal, as far as a map can use them."""
    return max(NARROW, min(WIDE, shutil.get_terminal_size((UNKNOWN, 24)).columns))


def draw(errors: ErrorMap, columns: int, encoding: str | None = None) -> Iterator[str]:
    """The lines of a map of at most `columns` characters; plain ones where the encoding has no others."""
    shape, shades = errors.shape, SHADES if _has_shades(encoding or sys.stdout.encoding) else PLAIN
    label = max(LABEL, len(str(shape.B - 1)))
    space, indent = columns - label - len(" ||"), " " * (label + 2)
    if errors.mapped:
        grid = errors.grid(LINES, space)
        batches, rows = counted(grid.batches, "batch", "batches"), counted(grid.rows, "row")
        scale = f"rows 0 to {shape.N - 1}; a line is {batches}, a character {rows}"
        yield from wrapped(scale, columns, indent, first=f"{'batch':>{label}}  ").split("\n")
        for line, (wrong, sizes, bad) in enumerate(zip(grid.wrong, grid.sizes, grid.not_finite, strict=True)):
            cells = np.where(bad, NOT_FINITE, _shaded(wrong / sizes, shades))
            yield f"{line * grid.batches:>{label}} |{''.join(cells)}|"
    if errors.columns.any() and not errors.columns.all():
        cells = _shaded(errors.columns.astype(float), shades)
        lines = [cells[start : start + space] for start in range(0, shape.d, space)]
        for line, part in enumerate(lines):
            yield f"{'' if line else 'columns':>{label}} |{''.join(part)}|"
    legend = f"{shades[0]} right, {shades[1:4]} some wrong, {shades[4]} all wrong, {NOT_FINITE} NaN or Inf"
    yield from wrapped(legend, columns, indent).split("\n")


def _has_shades(encoding: str) -> bool:
    try:
        SHADES.encode(encoding)
    except (UnicodeEncodeError, LookupError):
        return False
    return True


def _shaded(shares: NDArray[np.float64], shades: str) -> NDArray[np.str_]:
    """A character for each share of wrong rows."""
    steps = np.where(shares == 1, 4, np.ceil(3 * np.minimum(shares, 1)))
    return np.asarray(np.array(list(shades))[steps.astype(int)])

"""Tables for a terminal, Markdown and CSV."""

import io
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from hw4cli.text.bars import bar
from hw4cli.text.words import printable, wrapped

Cells = Sequence[Sequence[str]]
NUMBER = re.compile(r"-|[\d.,]+(e[-+]?\d+)?%?")
BAR_SIZES = (24, 16, 8)  # columns of the longest bar
GAP = "  "  # between columns
MOST_INDENT = 9  # of the lines below a row's first


@dataclass(frozen=True)
class Bars:
    """A column of bars in a table, behind `after` other columns: for each row a share of the longest, None for none."""

    title: str
    shares: Sequence[float | None]
    blocks: bool  # whether the terminal shows blocks
    after: int


def plain(header: Sequence[str], rows: Cells, width: int | None = None, bars: Bars | None = None) -> str:
    """A table of aligned columns for a terminal; numbers to the right.

    Where it would be wider than `width`, a row takes several lines: columns that do not fit stand below, and a column
    that never fits is wrapped. No number is cut. There are bars only on a terminal (`width` is its width), and where
    they take no further line.
    """
    lines = [[printable(cell) for cell in line] for line in (header, *rows)]
    without = _plain(lines, width)
    for size in BAR_SIZES if bars and width is not None else ():
        assert bars is not None
        drawn = [bars.title, *("" if share is None else bar(share, size, bars.blocks) for share in bars.shares)]
        pairs = zip(lines, drawn, strict=True)
        text = _plain([[*line[: bars.after], end, *line[bars.after :]] for line, end in pairs], width)
        if text.count("\n") == without.count("\n"):
            return text
    return without


def _plain(lines: Cells, width: int | None) -> str:
    widths = [max(len(line[column]) for line in lines) for column in range(len(lines[0]))]
    right = [all(NUMBER.fullmatch(line[column]) for line in lines[1:]) for column in range(len(widths))]
    indent = " " * min(widths[0] + len(GAP), MOST_INDENT)
    bands = _bands(widths, width, len(indent))

    def shown(line: Sequence[str], band: Sequence[int]) -> str:
        if len(band) == 1 and width is not None and widths[band[0]] > width - len(indent):
            return wrapped(line[band[0]], width, indent)
        cells = (line[c].rjust(widths[c]) if right[c] else line[c].ljust(widths[c]) for c in band)
        return ((indent if band[0] else "") + GAP.join(cells)).rstrip()

    texts = (shown(line, band) for line in lines for band in bands)
    return "".join(f"{text}\n" for text in texts if text.strip())


def _bands(widths: Sequence[int], width: int | None, indent: int) -> list[list[int]]:
    """The columns, in the order of the lines that a row of the table takes."""
    bands, used = [[0]], widths[0]
    for column in range(1, len(widths)):
        used += len(GAP) + widths[column]
        if width is not None and used > width:
            bands.append([])
            used = indent + widths[column]
        bands[-1].append(column)
    return bands


def markdown(header: Sequence[str], rows: Cells) -> str:
    """A Markdown table."""
    lines = [header, ["---"] * len(header), *rows]
    return "\n".join("| " + " | ".join(map(printable, line)) + " |" for line in lines) + "\n"


def escaped(text: str) -> str:
    """Text that Markdown shows as it is: names and messages of programs may hold Markdown's or HTML's characters."""
    return re.sub(r"([\\|<>&`*_\[\]#~])", r"\\\1", printable(text))


def comma_separated(rows: Iterable[dict[str, Any]]) -> str:
    """Records of one kind as CSV, with their fields' names on top."""
    rows = [{key: _flat(value) for key, value in row.items()} for row in rows]
    out = io.StringIO()
    import csv  # here, as a run draws no table

    writer = csv.DictWriter(out, list(rows[0]) if rows else [], lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    return out.getvalue()


def _flat(value: Any) -> Any:
    return ",".join(map(str, value)) if isinstance(value, (list, tuple)) else value

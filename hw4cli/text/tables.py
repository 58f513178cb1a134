"""Tables for a terminal, Markdown and CSV."""

import csv
import io
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from hw4cli.text.bars import LEAST, MOST, bar
from hw4cli.text.words import printable, wrapped

Cells = Sequence[Sequence[str]]
NUMBER = re.compile(r"-|[\d.,]+(e[-+]?\d+)?%?")
GAP = "  "  # between columns
MOST_INDENT = 9  # of the lines below a row's first


@dataclass(frozen=True)
class Bars:
    """Bars beside the rows of a table: the share of the longest that each row has, None for no bar."""

    title: str
    shares: Sequence[float | None]
    blocks: bool  # whether the stream shows blocks


def plain(header: Sequence[str], rows: Cells, width: int | None = None, bars: Bars | None = None) -> str:
    """A table of aligned columns for a terminal; numbers to the right.

    Where it would be wider than `width`, a row takes several lines: columns that do not fit stand below, and a column
    that never fits is wrapped. No number is cut. Bars are drawn on a terminal (`width` is its width) if there is room.
    """
    lines = [[printable(cell) for cell in line] for line in (header, *rows)]
    widths = [max(len(line[column]) for line in lines) for column in range(len(header))]
    right = [all(NUMBER.fullmatch(line[column]) for line in lines[1:]) for column in range(len(header))]
    indent = " " * min(widths[0] + len(GAP), MOST_INDENT)
    bands = _bands(widths, width, len(indent))

    def shown(line: Sequence[str], band: Sequence[int]) -> str:
        if len(band) == 1 and width is not None and widths[band[0]] > width - len(indent):
            return wrapped(line[band[0]], width, indent)
        cells = (line[c].rjust(widths[c]) if right[c] else line[c].ljust(widths[c]) for c in band)
        return ((indent if band[0] else "") + GAP.join(cells)).rstrip()

    most = 2 * len(bands[0]) >= len(header)  # else the bars would stand far from what they show
    drawn = _drawn(bars if most else None, sum(widths[c] + len(GAP) for c in bands[0]), width)
    texts = (
        shown(line, band).ljust(start) + more if more and band is bands[0] else shown(line, band)
        for line, (start, more) in zip(lines, drawn or [(0, "")] * len(lines), strict=True)
        for band in bands
    )
    return "".join(f"{text}\n" for text in texts if text.strip())


def _drawn(bars: Bars | None, start: int, width: int | None) -> list[tuple[int, str]]:
    """For each line of a table, the column where its bar begins, and the bar; empty where there is no room for bars."""
    room = min(MOST, width - start) if bars and width is not None else 0
    if not bars or room < max(LEAST, len(bars.title)):
        return []
    texts = ["" if share is None else bar(share, room, bars.blocks) for share in bars.shares]
    return [(start, text) for text in (bars.title, *texts)]


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
    writer = csv.DictWriter(out, list(rows[0]) if rows else [], lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    return out.getvalue()


def _flat(value: Any) -> Any:
    return ",".join(map(str, value)) if isinstance(value, (list, tuple)) else value

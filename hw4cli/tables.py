"""Records and ladders as tables: for a terminal, Markdown, CSV. The README's results come from here, too."""

import csv
import io
import json
import re
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from hw4cli.errors import InputError
from hw4cli.record import Result, Standing
from hw4cli.words import printable, wrapped

Cells = Sequence[Sequence[str]]
NUMBER = re.compile(r"-|[\d.,]+(e[-+]?\d+)?%?")
GAP = "  "  # between columns
MOST_INDENT = 9  # of the lines below a row's first
COLUMNS = {
    "kernel": "kernel",
    "case": "case",
    "shape": "(B, N, d)",
    "median": "median ms",
    "spread": "±",
    "samples": "n",
    "tflops": "TFLOP/s",
    "sgemm_percent": "% SGEMM",
    "gb_per_s": "GB/s",
    "max_error": "max error",
    "registers": "regs",
    "shared_bytes": "shared KB",
    "occupancy": "occupancy",
}


def cells(row: dict[str, Any]) -> list[str]:
    """A benchmark row's values as they are shown, in the order of COLUMNS."""

    def number(key: str, form: str, factor: float = 1) -> str:
        value = row[key]
        return "-" if value is None else format(value * factor, form)

    spread = "-" if row["median"] is None else f"{(row['high'] - row['low']) / 2 / row['median']:.1%}"
    return [
        row["kernel"],
        row["case"],
        "({}, {}, {})".format(*row["shape"]),
        number("median", ".4g"),
        spread,
        str(row["samples"]),
        number("tflops", ".2f"),
        number("sgemm_percent", ".0f"),
        number("gb_per_s", ".0f"),
        number("max_error", ".1e"),
        number("registers", "d"),
        number("shared_bytes", ".1f", 1 / 1024),
        number("occupancy", ".0%"),
    ]


PROGRAM_COLUMNS = ["case", "(B, N, d)", "program", "median s", "min s", "max s", "ratio", "max error"]


def program_cells(row: dict[str, Any]) -> list[str]:
    """An end-to-end row's values as they are shown, in the order of PROGRAM_COLUMNS."""

    def number(key: str, form: str) -> str:
        return "-" if row[key] is None else format(row[key], form)

    return [
        row["case"],
        "({}, {}, {})".format(*row["shape"]) if row["shape"] else "-",
        row["program"],
        number("median", ".3f"),
        number("fastest", ".3f"),
        number("slowest", ".3f"),
        number("ratio", ".2f"),
        number("max_error", ".1e"),
    ]


def plain(header: Sequence[str], rows: Cells, width: int | None = None) -> str:
    """A table of aligned columns for a terminal; numbers to the right.

    Where it would be wider than `width`, a row takes several lines: columns that do not fit stand below, and the words
    of one that never fits are wrapped. No number is cut.
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
    """Text that Markdown shows as it is: a user's name or a program's last words may hold its signs, or HTML's."""
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


def read_record(path: Path) -> dict[str, Any]:
    """A record that `hw4 bench` wrote. InputError if the file is missing or is none."""
    try:
        record = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise InputError(f"cannot read {path}: {error.strerror}") from None
    except ValueError:
        raise InputError(f"{path} is not a record of hw4 bench: it is not JSON") from None
    if not isinstance(record, dict) or "rows" not in record or "machine" not in record:
        raise InputError(f"{path} is not a record of hw4 bench")
    return record


RESULT_COLUMNS = ["case", "(B, N, d)", "", "time s", "limit", "max error", "reason"]


def result_cells(result: Result) -> list[str]:
    """A judged case's values as they are shown, in the order of RESULT_COLUMNS; the median of several runs comes with
    the fastest and the slowest."""
    time = "-" if result.wall is None else f"{result.wall:.2f}"
    if result.spread and result.attempts > 1:
        time += " [{:.2f} {:.2f}]".format(*result.spread)
    return [
        result.case,
        "({}, {}, {})".format(*result.shape),
        str(result.verdict),
        time,
        f"{result.limit:g}",
        "-" if result.max_error is None else f"{result.max_error:.1e}",
        result.reason,
    ]


STANDING_COLUMNS = ["rank", "user", "passed", "score", "time s", "penalty s", "note"]


def standing_cells(one: Standing) -> list[str]:
    """A user's standing as it is shown, in the order of STANDING_COLUMNS."""
    return [
        str(one.rank) if one.rank else "-",
        one.user,
        f"{one.passed}/{len(one.cases)}",
        "-" if one.score is None else str(one.score),
        f"{one.time:.2f}",
        f"{one.penalty:.2f}",
        one.note,
    ]

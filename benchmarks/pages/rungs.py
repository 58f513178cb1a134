"""What docs/ladder.md says was measured of each rung, from its record: in a kernel's section the first
"*Measured* 12.8 ms, 21.5 TFLOP/s", or one of both, and in tables the lines "| ... `kernel` | 12.8 |". Figures keep
their decimal places.
"""

import re
from pathlib import Path
from typing import Any

from hw4cli.lab.tables import read_record

PAGE, RECORD = "ladder.md", "h200-ladder.json"
SECTION = re.compile(r"^## (\w+)\n.*?(?=^#|\Z)", re.MULTILINE | re.DOTALL)
MEASURED = re.compile(r"(\*Measured\*\s)([\d.]+)(\s)(ms|TFLOP/s)(?:(,\s)([\d.]+)(\sTFLOP/s))?")
LINE = re.compile(r"^(\|[^|`\n]*`(\w+)` \| )([\d.]+)(?= \|)", re.MULTILINE)


def with_measured(text: str, rows: list[dict[str, Any]]) -> str:
    """The page's text with the figures of these rows."""
    found = {row["kernel"]: row for row in rows if row["status"] == "ok"}

    def section(match: re.Match[str]) -> str:
        row = found.get(match[1])
        return MEASURED.sub(lambda one: _sentence(one, row), match[0], count=1) if row else match[0]

    def line(match: re.Match[str]) -> str:
        row = found.get(match[2])
        return match[1] + _like(match[3], row["median"]) if row else match[0]

    return LINE.sub(line, SECTION.sub(section, text))


def _sentence(match: re.Match[str], row: dict[str, Any]) -> str:
    before, figure, space, unit, comma, rate, end = match.groups()
    text = f"{before}{_like(figure, row['median' if unit == 'ms' else 'tflops'])}{space}{unit}"
    return text + (f"{comma}{_like(rate, row['tflops'])}{end}" if rate else "")


def _like(figure: str, number: float) -> str:
    """The number with as many decimal places as a figure."""
    return f"{number:.{len(figure.partition('.')[2])}f}"


def ladder(page: Path, text: str, folder: Path) -> str:
    """A page's text as it must be: of other pages than the ladder's as it is."""
    return with_measured(text, read_record(folder / RECORD)["rows"]) if page.name == PAGE else text

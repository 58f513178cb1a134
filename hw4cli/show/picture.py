"""A picture as data: what is drawn, before anything is drawn. The same data, and the same pen, make the same file."""

import hashlib
import json
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from hw4cli.show import style
from hw4cli.show.records import Record

PEN = ("draw.py", "forms.py", "style.py")  # what, beside the data, makes a picture look as it does
DIGITS = 9  # significant ones of a number that count: the last bits of a logarithm differ between machines


@dataclass(frozen=True)
class Mark:
    """A value at a place: an N, or the name of a row. `low` and `high` are the ends of its interval."""

    at: float | str
    value: float
    low: float | None = None
    high: float | None = None
    text: str = ""


@dataclass(frozen=True)
class Series:
    """What has one colour: a kernel's or a program's marks. The `limit` of a series is drawn as a tick, not a dot."""

    name: str
    marks: tuple[Mark, ...]
    limit: bool = False


@dataclass(frozen=True)
class Rule:
    """A line to compare with: at a value, or (with `slope`) at slope times the place, but not above `value`."""

    label: str
    value: float
    slope: float | None = None


@dataclass(frozen=True)
class Panel:
    """One pair of axes. Of the forms, "lines" has N to the right and values upwards; "dots", "bars" and "stack" have
    rows, from top to bottom, and values to the right, a stack's one behind the other; "cells" has a coloured cell for
    each mark, at "BRxBC"."""

    form: str
    title: str
    series: tuple[Series, ...]
    value_label: str
    at_label: str = ""
    log: bool = False
    rules: tuple[Rule, ...] = ()
    rows: tuple[str, ...] = ()


@dataclass(frozen=True)
class Picture:
    """A whole picture: its title, its panels side by side, and below them how and where that was measured."""

    title: str
    panels: tuple[Panel, ...]
    notes: tuple[str, ...]
    facts: tuple[str, ...]  # of each record

    def digest(self) -> str:
        """A fingerprint of all that decides how the picture looks, but for matplotlib's version."""
        pen = "".join((Path(__file__).parent / name).read_text(encoding="utf-8") for name in PEN)
        text = json.dumps([_rounded(asdict(self)), style.NEUTRAL], ensure_ascii=False)
        return hashlib.sha256(f"{text}\n{pen}".encode()).hexdigest()


def _rounded(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _rounded(one) for key, one in value.items()}
    if isinstance(value, (list, tuple)):
        return [_rounded(one) for one in value]
    return float(f"{value:.{DIGITS}g}") if isinstance(value, float) else value


def measured(records: Iterable[Record], *notes: str) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """The notes of a picture, the methods among them, and the facts of the records that it was made from."""
    used = list(records)
    methods = dict.fromkeys(record.method for record in used)
    return (*(note for note in notes if note), *methods), tuple(dict.fromkeys(record.facts for record in used))


def short_gpu(gpu: str) -> str:
    """A GPU's name as a series has it: "H200"."""
    return gpu.removeprefix("NVIDIA ").removeprefix("GeForce ").partition(" 80GB")[0]


def gpus(records: Sequence[Record]) -> list[str]:
    """The GPUs of some records, in order of appearance."""
    return list(dict.fromkeys(record.gpu for record in records))

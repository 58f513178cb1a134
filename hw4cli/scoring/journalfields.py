"""What the fields of a journal's lines may hold: each has a type and a range, so that whoever reads a journal can count
on them. A field that is not named here is one of a newer hw4, and passes."""

import sys
from collections.abc import Callable, Mapping
from dataclasses import fields
from math import inf
from typing import Any

from hw4cli.scoring.record import Attempt

Check = Callable[[Any], bool]

MAX_SECONDS = 1e9
MAX_INTEGER = 2**63 - 1


def _text(value: Any) -> bool:
    return isinstance(value, str)


def _truth(value: Any) -> bool:
    return isinstance(value, bool)


def _whole(low: int, high: int) -> Check:
    return lambda value: type(value) is int and low <= value <= high


def _number(low: float, high: float) -> Check:
    """Whether it is a finite number in a range; a NaN is in none."""
    return lambda value: type(value) in (int, float) and low <= value <= high and abs(value) < inf


def _maybe(check: Check) -> Check:
    return lambda value: value is None or check(value)


def _list(check: Check) -> Check:
    return lambda value: isinstance(value, list) and all(map(check, value))


def _table(check: Check) -> Check:
    return lambda value: isinstance(value, dict) and all(map(check, value.values()))


def _fields(checks: Mapping[str, Check]) -> Check:
    return lambda value: isinstance(value, dict) and not wrong_fields(value, checks)


_seconds = _number(0, MAX_SECONDS)
_count = _whole(0, MAX_INTEGER)
_tolerance = _number(0, 1e30)
_max_error = _number(0, sys.float_info.max)

RUN: dict[str, Check] = {
    "key": _text,
    "case": _text,
    "shape": lambda value: _list(_whole(1, 2**31 - 1))(value) and len(value) == 3,
    "limit": _number(1e-9, MAX_SECONDS),
    "tolerance": _tolerance,
    "repeat": _whole(0, 10**6),
    "wall": _maybe(_seconds),
    "killed": _truth,
    "exit_code": _maybe(_whole(-(2**31), 2**31 - 1)),
    "fault": _maybe(_text),
    "problem": _maybe(_text),
    "wrong": _maybe(_text),
    "said": _maybe(_text),
    "max_error": lambda value: value is None or value == "inf" or _max_error(value),
    "user": _maybe(_seconds),
    "system": _maybe(_seconds),
    "peak_rss": _maybe(_count),
    "gpu_memory": _maybe(_count),
    "gpu_clock": _maybe(_count),
    "staged": _maybe(_text),
    "public_right": _maybe(_truth),
    "note": _maybe(_text),
}
NEEDED = ("key", "case", "shape", "limit")  # of a run
assert {field.name for field in fields(Attempt)} | {"key"} == set(RUN)

SETTINGS: dict[str, Check] = {
    "repeat": _whole(1, 10**6),
    "warmup": _whole(0, 10**6),
    "tolerance": _tolerance,
    "penalty": _seconds,
    "rank_by": _text,
    "sandbox": _text,
    "launcher": _list(_text),
    "pass_env": _list(_text),
    "scratch": _text,
    "input_cached": _truth,
    "clock": _text,
    "slurm": _table(_text),
    "seeds": _text,
    "submission": _text,
    "build_limit": _seconds,
    "due": _maybe(_text),
    "handed_in": _maybe(_text),
}

HEADER: dict[str, Check] = {
    "user": _text,
    "program": _list(_text),
    "program_sha256": _text,
    "host": _text,
    "gpu": _maybe(_table(_text)),
    "started": _text,
    "version": _text,
    "cases": _list(_text),
    "keys": _table(_text),
    "note": _maybe(_text),
    "said": _maybe(_text),
    "fault": _truth,
    "settings": _fields(SETTINGS),
}


def wrong_fields(line: Mapping[str, Any], checks: Mapping[str, Check]) -> list[str]:
    """The names of the fields that hold what no judge writes."""
    return [name for name, check in checks.items() if name in line and not check(line[name])]

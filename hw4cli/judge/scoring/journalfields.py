"""The types and ranges of the fields of a journal's lines, which are checked when it is read. A field that is not
listed here comes from a newer version, and passes."""

import sys
from collections.abc import Callable, Mapping
from dataclasses import fields
from math import inf
from typing import Any

from hw4cli.judge.scoring.record import Attempt

Check = Callable[[Any], bool]

MAX_SECONDS = 1e9
MAX_INTEGER = 2**63 - 1


def _text(value: Any) -> bool:
    return isinstance(value, str)


def _boolean(value: Any) -> bool:
    return isinstance(value, bool)


def _integer(low: int, high: int) -> Check:
    return lambda value: type(value) is int and low <= value <= high


def _number(low: float, high: float) -> Check:
    """A check for a finite number in a range, so not NaN."""
    return lambda value: type(value) in (int, float) and low <= value <= high and abs(value) < inf


def _optional(check: Check) -> Check:
    return lambda value: value is None or check(value)


def _list(check: Check) -> Check:
    return lambda value: isinstance(value, list) and all(map(check, value))


def _object(check: Check) -> Check:
    return lambda value: isinstance(value, dict) and all(map(check, value.values()))


def _fields(checks: Mapping[str, Check]) -> Check:
    return lambda value: isinstance(value, dict) and not wrong_fields(value, checks)


_seconds = _number(0, MAX_SECONDS)
_count = _integer(0, MAX_INTEGER)
_tolerance = _number(0, 1e30)
_max_error = _number(0, sys.float_info.max)

RUN: dict[str, Check] = {
    "key": _text,
    "case": _text,
    "shape": lambda value: _list(_integer(1, 2**31 - 1))(value) and len(value) == 3,
    "limit": _number(1e-9, MAX_SECONDS),
    "tolerance": _tolerance,
    "repeat": _integer(0, 10**6),
    "wall": _optional(_seconds),
    "killed": _boolean,
    "exit_code": _optional(_integer(-(2**31), 2**31 - 1)),
    "fault": _optional(_text),
    "problem": _optional(_text),
    "wrong": _optional(_text),
    "said": _optional(_text),
    "max_error": lambda value: value is None or value == "inf" or _max_error(value),
    "user": _optional(_seconds),
    "system": _optional(_seconds),
    "peak_rss": _optional(_count),
    "gpu_memory": _optional(_count),
    "gpu_clock": _optional(_count),
    "staged": _optional(_text),
    "public_right": _optional(_boolean),
    "note": _optional(_text),
}
REQUIRED = ("key", "case", "shape", "limit")  # the fields that each run has
assert {field.name for field in fields(Attempt)} | {"key"} == set(RUN)

SETTINGS: dict[str, Check] = {
    "repeat": _integer(1, 10**6),
    "warmup": _integer(0, 10**6),
    "tolerance": _tolerance,
    "penalty": _seconds,
    "rank_by": _text,
    "sandbox": _text,
    "launcher": _list(_text),
    "pass_env": _list(_text),
    "scratch": _text,
    "input_cached": _boolean,
    "clock": _text,
    "slurm": _object(_text),
    "seeds": _text,
    "submission": _text,
    "build_limit": _seconds,
    "due": _optional(_text),
    "handed_in": _optional(_text),
}

RULES: dict[str, Check] = {  # stored ones
    "tolerance": SETTINGS["tolerance"],
    "penalty": SETTINGS["penalty"],
    "limits": _object(RUN["limit"]),
    "rank_by": SETTINGS["rank_by"],
    "due": SETTINGS["due"],
}

HEADER: dict[str, Check] = {
    "user": _text,
    "program": _list(_text),
    "program_sha256": _text,
    "host": _text,
    "gpu": _optional(_object(_text)),
    "started": _text,
    "version": _text,
    "cases": _list(_text),
    "keys": _object(_text),
    "note": _optional(_text),
    "said": _optional(_text),
    "public_note": _text,
    "fault": _boolean,
    "settings": _fields(SETTINGS),
}


def wrong_fields(line: Mapping[str, Any], checks: Mapping[str, Check]) -> list[str]:
    """The names of the fields with values that no judge writes."""
    return [name for name, check in checks.items() if name in line and not check(line[name])]

"""Records as JSON with a row on a line: short files, whose differences are rows, and which grep understands."""

import json
from collections.abc import Mapping
from typing import Any

IN_ITS_ROW = {"metrics"}  # lists of objects that stay on the line of the row that they are part of


def record_text(record: Any) -> str:
    """The text of a record's file: each field of the whole on a line, and each row, an object in a list of them.
    A row that has rows itself, as a workload with its candidates, takes a line for each of its fields, too.

    >>> print(record_text({"gpu": "H200", "rows": [{"N": 128, "ms": [1.5, 2.0]}, {"N": 256, "ms": [3.0]}]}), end="")
    {
     "gpu": "H200",
     "rows": [
      {"N": 128, "ms": [1.5, 2.0]},
      {"N": 256, "ms": [3.0]}
     ]
    }
    """
    return _broken(record, 0) + "\n"


def _broken(value: Any, depth: int) -> str:
    """A value that begins at this depth, over several lines if it is the whole record or has rows in it."""
    if isinstance(value, Mapping) and value and (depth == 0 or any(_has_rows(*field) for field in value.items())):
        parts = [
            f"{json.dumps(name)}: {_broken(part, depth + 1) if _has_rows(name, part) else json.dumps(part)}"
            for name, part in value.items()
        ]
        return _lines("{", parts, "}", depth)
    if _is_list_of_objects(value):
        return _lines("[", [_broken(part, depth + 1) for part in value], "]", depth)
    return json.dumps(value)


def _has_rows(name: str, value: Any) -> bool:
    """Whether a field is, or an object in it has, a list of objects that are rows."""
    if isinstance(value, Mapping):
        return any(_has_rows(*field) for field in value.items())
    return name not in IN_ITS_ROW and _is_list_of_objects(value)


def _is_list_of_objects(value: Any) -> bool:
    return isinstance(value, list) and bool(value) and all(isinstance(part, Mapping) for part in value)


def _lines(opening: str, parts: list[str], closing: str, depth: int) -> str:
    between = "\n" + " " * (depth + 1)
    return f"{opening}{between}{f',{between}'.join(parts)}\n{' ' * depth}{closing}"

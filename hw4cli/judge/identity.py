"""Keys of runs, which are equal for the same program, case, limit and GPU."""

import hashlib
import json
import shutil
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from hw4cli.problem.checksums import file_sha256
from hw4cli.problem.suite import Case


def program_sha256(command: Sequence[str], sources: Iterable[Path] = ()) -> str:
    """A hash of a command: its program's bytes, its arguments, and the bytes of arguments that are files.

    So that of `python3 mine.py` changes with mine.py. Files that the program opens by itself do not count, except those
    in `sources`; nor does the program's folder.
    """
    arguments: list[list[str]] = [["", _file_sha256(shutil.which(command[0]) or command[0])]]
    arguments += [[argument, _file_sha256(argument)] for argument in command[1:]]
    arguments += [[path.name, _file_sha256(path)] for path in sources]
    return hashlib.sha256(json.dumps(arguments).encode()).hexdigest()


def _file_sha256(name: str | Path) -> str:
    """The hash of a regular file; "" if it is none, or cannot be read."""
    try:
        path = Path(name)
        return file_sha256(path) if path.is_file() else ""
    except (OSError, ValueError):
        return ""


def run_key(program: str, case: Case, *conditions: Any) -> str:
    """A key that is equal for interchangeable runs: a hash of the program's hash, the case's input (its SHA-256, shape
    and seed), its limit, and the conditions, such as the GPU and the tolerance."""
    shape = (*case.shape.sizes, *(["causal"] if case.shape.causal else []))
    parts = [program, case.name, case.sha256, shape, case.seed, case.limit, *conditions]
    return hashlib.sha256(json.dumps(parts).encode()).hexdigest()[:32]

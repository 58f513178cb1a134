"""What makes two runs comparable: the same program, case, limit and GPU, as hashes; and where a session ran."""

import hashlib
import json
import os
import shutil
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from hw4cli.problem.checksums import file_sha256
from hw4cli.problem.suite import Case
from hw4cli.system import nvidia


def program_sha256(command: Sequence[str], sources: Iterable[Path] = ()) -> str:
    """A hash of a command: the bytes of its program, its arguments, and the bytes of those that are files.

    `python3 mine.py` so changes with mine.py. What the program itself opens later cannot be known; files that are
    known to belong to it are given as `sources`. Where the program lies does not count.
    """
    words: list[list[str]] = [["", _bytes_of(shutil.which(command[0]) or command[0])]]
    words += [[word, _bytes_of(word)] for word in command[1:]]
    words += [[path.name, _bytes_of(path)] for path in sources]
    return hashlib.sha256(json.dumps(words).encode()).hexdigest()


def _bytes_of(name: str | Path) -> str:
    """The hash of a regular file that can be read; nothing else has one."""
    try:
        path = Path(name)
        return file_sha256(path) if path.is_file() else ""
    except (OSError, ValueError):
        return ""


def run_key(program: str, case: Case, *circumstances: Any) -> str:
    """Equal for runs that may stand for one another: a hash of the program's hash, the case's input (its SHA-256,
    shape and seed), its limit, and the circumstances, such as the GPU and the tolerance."""
    shape = (case.shape.B, case.shape.N, case.shape.d)
    facts = [program, case.name, case.sha256, shape, case.seed, case.limit, *circumstances]
    return hashlib.sha256(json.dumps(facts).encode()).hexdigest()[:32]


def first_gpu() -> dict[str, str] | None:
    """Name and UUID of the GPU that programs see first; None without one."""
    gpu = nvidia.first_visible(os.environ)
    return {"name": gpu.name, "uuid": gpu.uuid} if gpu else None

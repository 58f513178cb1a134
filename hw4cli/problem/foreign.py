"""Cases made elsewhere: a folder of inputs NAME, with their answers NAME.out or NAME.ans if there are any, is a suite.

The shape is in an input's header, the limit that of the assignment's case of this shape. An answer that the folder
lacks is computed by the float64 oracle, once, into the user's cache: nothing is written into the folder but the record
of its files' hashes (checksums).
"""

import os
import re
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

from hw4cli.errors import Hw4Error, InputError, os_error
from hw4cli.problem.casefile import InputFile
from hw4cli.problem.checksums import answer_sha256, note_answer, sha256
from hw4cli.problem.suite import Case

ANSWERS = (".out", ".ans")
INPUTS = (".in", ".bin", ".dat")  # endings that an answer's name need not repeat: 1.in has its answer in 1.out
LIMIT = 10.0  # seconds, of a shape that the assignment does not have
SHOWN = 5  # names in a sentence


def read_folder(folder: Path, limits: dict[tuple[int, int, int], float]) -> dict[str, Case]:
    """The cases of a folder, in the order of their names and numbers, with the limits of these shapes. InputError if
    there is none, or if a file with an answer is no input."""
    found = {}
    for path in _candidates(folder):
        try:
            with InputFile(path) as inputs:
                shape = inputs.shape
        except Hw4Error as error:
            if _answer(folder, path.name, ".out"):
                raise InputError(f"{path} has an answer, but is no input: {error}") from None
            continue
        found[path.name] = Case(path.name, shape, 0, limits.get(shape.sizes, LIMIT), "", foreign=True)
    if not found:
        raise InputError(
            f"{folder} holds no case: an input is a file with int32 B, N, d and then Q, K and V of each batch"
        )
    return found


def not_cases(folder: Path, known: Sequence[str]) -> str:
    """A sentence on files of a folder that are no cases; "" without one."""
    others = [path.name for path in _candidates(folder) if path.name not in known]
    return f"no cases: {', '.join(others[:SHOWN])}{', …' if len(others) > SHOWN else ''}" if others else ""


def _candidates(folder: Path) -> list[Path]:
    """The files that may be inputs: no hidden ones, and no answers."""
    try:
        paths = [path for path in folder.iterdir() if not path.name.startswith(".") and path.is_file()]
    except OSError as error:
        raise os_error(error, f"read {folder}") from None
    return sorted((path for path in paths if not path.name.endswith(ANSWERS)), key=_natural)


def _natural(path: Path) -> list[tuple[int, str]]:
    """A key by which case 2 comes before case 10."""
    return [(int(part), "") if part.isdecimal() else (-1, part) for part in re.split(r"(\d+)", path.name)]


def _answer(folder: Path, name: str, suffix: str) -> Path | None:
    """An input's answer in its folder; None if there is none. `suffix` is ".out", or ".causal.out"."""
    stems = [name] + [name.removesuffix(end) for end in INPUTS if name.endswith(end)]
    kind = suffix.removesuffix(".out")
    paths = (folder / f"{stem}{kind}{end}" for stem in stems for end in ANSWERS)
    return next((path for path in paths if path.is_file()), None)


def cache() -> Path:
    """The folder of answers that were computed for inputs without one."""
    return Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache").expanduser() / "hw4" / "answers"


def settled(case: Case, folder: Path) -> Case:
    """A case whose files in `folder` nobody has described, with the hash of its input and the path of its answer, which
    is in the cache, and may not be there yet, if the folder has none. Hashes are noted when files are first seen, so
    that a later change is found. A case whose hash the suite has stays as it is. InputError if a file cannot be read.
    """
    if case.sha256:
        return case
    found = sha256(case.input_path(folder))
    answer = _answer(folder, case.name, case.shape.answer_suffix)
    if answer is None and case.foreign:
        answer = cache() / f"{found}{case.shape.answer_suffix}"
    case = replace(case, sha256=found, answer=answer)
    with suppress(FileNotFoundError):
        path = case.answer_path(folder)
        if path.is_file() and not answer_sha256(path, found):
            note_answer(path, sha256(path), found)
    return case


def is_computed(case: Case) -> bool:
    """Whether the case's answer is one that hw4 computes into its cache."""
    return case.answer is not None and case.answer.parent == cache()

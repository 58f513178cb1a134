"""A folder of cases made elsewhere: its inputs, which have any names, and their answers NAME.out or NAME.ans."""

import re
from pathlib import Path

from hw4cli.errors import Hw4Error, InputError, os_error
from hw4cli.problem.casefile import InputFile
from hw4cli.problem.workload import Workload

ANSWERS = (".out", ".ans")
INPUTS = (".in", ".bin", ".dat")  # endings that an answer's name need not repeat: 1.in has its answer in 1.out


def shapes_in(folder: Path) -> dict[str, Workload]:
    """The inputs of a folder, in the order of their names and numbers. InputError if there is none, or if a file with
    an answer is no input."""
    found = {}
    for path in candidates(folder):
        try:
            with InputFile(path) as inputs:
                found[path.name] = inputs.shape
        except Hw4Error as error:
            if answer_in(folder, path.name, ".out"):
                raise InputError(f"{path} has an answer, but is no input: {error}") from None
    if not found:
        raise InputError(
            f"{folder} holds no case: an input is a file with int32 B, N, d and then Q, K and V of each batch"
        )
    return found


def candidates(folder: Path) -> list[Path]:
    """The files that may be inputs: no hidden ones, and no answers."""
    try:
        paths = [path for path in folder.iterdir() if not path.name.startswith(".") and path.is_file()]
    except OSError as error:
        raise os_error(error, f"read {folder}") from None
    return sorted((path for path in paths if not path.name.endswith(ANSWERS)), key=_natural)


def _natural(path: Path) -> list[tuple[int, str]]:
    """A key by which case 2 comes before case 10."""
    return [(int(part), "") if part.isdecimal() else (-1, part) for part in re.split(r"(\d+)", path.name)]


def answer_in(folder: Path, name: str, suffix: str) -> Path | None:
    """An input's answer in its folder; None if there is none. `suffix` is ".out", or ".causal.out"."""
    stems = [name] + [name.removesuffix(end) for end in INPUTS if name.endswith(end)]
    kind = suffix.removesuffix(".out")
    paths = (folder / f"{stem}{kind}{end}" for stem in stems for end in ANSWERS)
    return next((path for path in paths if path.is_file()), None)

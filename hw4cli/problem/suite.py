"""The named cases of testcases/suite.toml, and the bytes of a case, which are the same everywhere.

The random bits are those of NumPy's PCG64, whose raw stream is fixed by NumPy's compatibility policy (NEP 19); the
conversion from bits to floats is defined here, with one rounding, so no NumPy version or processor can change a byte.
"""

import hashlib
import os
import re
import shlex
import tomllib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
from numpy.random import PCG64  # imported here: a later import could swallow a Ctrl-C
from numpy.typing import NDArray

from hw4cli.errors import InputError, MachineError
from hw4cli.problem.casefile import FLOAT32, HEADER, Floats
from hw4cli.problem.casefolder import shapes_in
from hw4cli.problem.checksums import SHA256
from hw4cli.problem.workload import Workload
from hw4cli.resources import data_path
from hw4cli.system.files import NewFile
from hw4cli.system.reading import read_regular
from hw4cli.text.progress import Advance

SUITE = "HW4_SUITE"  # in the environment: another file of cases, which --suite sets
OTHER_LIMIT = 10.0  # seconds, of a case made elsewhere whose shape the assignment does not have
DAY = 86400.0  # seconds: no limit is longer
NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.]*")  # of a case: a file's name, without the - of ranges
CHUNK = 1 << 18  # floats generated at a time, which stay in the cache until they are hashed and written


@dataclass(frozen=True)
class Case:
    """A named case: what to compute, from which random numbers, how fast, and the input's SHA-256."""

    name: str
    shape: Workload
    seed: int
    limit: float
    sha256: str  # of the input; "" if the suite does not say it
    foreign: bool = False  # made elsewhere: its files are never written
    answer: Path | None = None  # where its answer lies, if not beside the input under the usual name

    def input_path(self, folder: Path) -> Path:
        """Where the input lies: FOLDER/t07."""
        return folder / self.name

    def answer_path(self, folder: Path) -> Path:
        """Where the answer lies: FOLDER/t07.out, or FOLDER/t07.causal.out."""
        return self.answer or folder / (self.name + self.shape.answer_suffix)

    def as_causal(self, causal: bool = True) -> "Case":
        """The same input, for causal attention or not."""
        return replace(self, shape=replace(self.shape, causal=causal))


@cache
def cases() -> dict[str, Case]:
    """All named cases, in the suite's order: the assignment's, or those of the file, or the folder of inputs, that
    HW4_SUITE names. InputError if the suite is damaged."""
    path = Path(os.environ.get(SUITE) or data_path("testcases/suite.toml"))
    return read_folder(path) if path.is_dir() else read(path)


@cache
def assignment() -> dict[str, Case]:
    """The assignment's cases."""
    return read(data_path("testcases/suite.toml"))


def read_folder(folder: Path) -> dict[str, Case]:
    """The cases made elsewhere that a folder holds, with the limits of the assignment's cases of the same shapes.
    InputError as `shapes_in` raises it."""
    limits = {case.shape.sizes: case.limit for case in assignment().values()}
    return {
        name: Case(name, shape, 0, limits.get(shape.sizes, OTHER_LIMIT), "", foreign=True)
        for name, shape in shapes_in(folder).items()
    }


def read(path: Path) -> dict[str, Case]:
    """The cases of a suite's file, in its order. InputError, with the place, if anything in it is wrong."""
    try:
        table = tomllib.loads(read_regular(path).decode())
    except OSError as error:
        raise InputError(f"cannot read {path}: {error.strerror}") from None
    except RecursionError:
        raise InputError(f"{path} is nested too deep") from None
    except ValueError as error:
        raise InputError(f"{path} is damaged: {error}") from None
    if unknown := table.keys() - {"cases"}:
        raise InputError(f"{path}: hw4 knows only the table cases, not {min(unknown)!r}")
    rows = table.get("cases", {})
    _check(isinstance(rows, dict), path, f"cases is {rows!r}", "a table")
    if not rows:
        raise InputError(f"{path} has no cases")
    found = {name: _case(path, name, row) for name, row in rows.items()}
    first: dict[str, str] = {}
    for case in found.values():
        if case.sha256 and (other := first.setdefault(case.sha256, case.name)) != case.name:
            raise InputError(f"{path}, {case.name}: sha256 is that of {other}, too")
    return found


def _case(path: Path, name: str, row: Any) -> Case:
    """A case from its row in the suite. InputError if a field is missing, unknown, or not what it must be."""
    if not NAME.fullmatch(name) or name.endswith(".out"):
        raise InputError(f"{path}: {name!r} is not a name for a case: take letters, digits, _ and ., and no .out")
    _check(isinstance(row, dict), path, f"{name} is {row!r}", "a table")
    for key in ("shape", "limit"):
        if key not in row:
            raise InputError(f"{path}, {name}: {key} is missing")
    if unknown := row.keys() - {"shape", "seed", "limit", "sha256"}:
        raise InputError(f"{path}, {name}: hw4 knows no {min(unknown)!r}")
    shape, seed, limit, sha256 = row["shape"], row.get("seed", 0), row["limit"], row.get("sha256")
    where = f"{path}, {name}"
    _check(isinstance(shape, list) and [type(n) for n in shape] == [int] * 3, where, f"shape is {shape!r}", "[B, N, d]")
    _check(type(seed) is int and seed >= 0, where, f"seed is {seed!r}", "an integer from 0")
    _check(
        type(limit) in (int, float) and 0 < limit <= DAY,
        where,
        f"limit is {limit!r}",
        "a number of seconds, a day at most",
    )
    known = sha256 is None or (isinstance(sha256, str) and bool(SHA256.fullmatch(sha256)))
    _check(known, where, f"sha256 is {sha256!r}", "64 hex digits, or left out")
    case = Case(name, Workload.one_head(*shape), seed, float(limit), sha256 or "")
    case.shape.check(where)
    return case


def _check(good: bool, where: Path | str, found: str, wanted: str) -> None:
    if not good:
        raise InputError(f"{where}: {found}, but must be {wanted}")


def select(words: Iterable[str]) -> list[Case]:
    """The cases of arguments such as "t03", "t01-t10" or "t01,t05-t07"; all cases if there are none.

    Each case comes once, in the suite's order. Raises InputError for a name that the suite has not.
    """
    order, words = list(cases()), list(words)
    chosen: set[str] = set(words).intersection(order) if words else set(order)  # cases made elsewhere have any names
    for word in filter(None, re.split(r"[,\s]+", " ".join(word for word in words if word not in chosen))):
        first, dash, last = word.partition("-")
        if dash and not (first and last):
            raise InputError(f"the range of cases {word} lacks its {'end' if first else 'start'}")
        last = last if dash else first
        for name in (first, last):
            if name not in order:
                raise InputError(f"there is no case {name!r}: {_suggestion(name, order)}")
        if order.index(first) > order.index(last):
            raise InputError(f"the range of cases {word} is empty: its end comes before its start")
        chosen.update(order[order.index(first) : order.index(last) + 1])
    if not chosen:
        raise InputError("no case is named: give names such as t01 or t01-t10")
    return [case for name, case in cases().items() if name in chosen]


def _suggestion(name: str, order: Sequence[str]) -> str:
    """The case that was probably meant, by its number, or the range of all."""
    number = re.fullmatch(r"t?0*(\d+)", name, re.IGNORECASE)
    meant = f"t{int(number[1]):02}" if number else ""
    return f"did you mean {meant}?" if meant in order else f"the suite has {order[0]} to {order[-1]}"


def ranges(selected: Iterable[Case]) -> str:
    """The shortest arguments for these cases, the inverse of `select`: "t01-t03 t07"."""
    order, selected = list(cases()), list(selected)
    if not all(NAME.fullmatch(case.name) for case in selected):
        return " ".join(shlex.quote(case.name) for case in selected)
    runs: list[list[int]] = []
    for index in sorted(order.index(case.name) for case in selected):
        if runs and runs[-1][-1] == index - 1:
            runs[-1].append(index)
        else:
            runs.append([index])
    return " ".join(order[r[0]] if len(r) == 1 else f"{order[r[0]]}-{order[r[-1]]}" for r in runs)


def uniform(seed: int, count: int) -> Iterator[Floats]:
    """`count` float32 values uniform in [-3, 3), in chunks.

    Each 64-bit draw of PCG64(seed) gives two values, the low half first; the upper 24 bits u of a half become
    (u - 2^23) · 3 · 2^-23, which is exact but for the one rounding of the product.
    """
    bits = PCG64(seed)
    for start in range(0, count, CHUNK):
        size = min(CHUNK, count - start)
        halves = bits.random_raw((size + 1) // 2).astype("<u8").view("<u4")[:size]
        centred = (halves >> 8).astype(np.int32) - (1 << 23)
        yield centred.astype(FLOAT32) * FLOAT32.type(3 * 2.0**-23)


def input_chunks(shape: Workload, seed: int) -> Iterator[NDArray[Any]]:
    """The input of this shape and seed, in chunks: the header, then Q, K and V of each batch."""
    yield np.frombuffer(HEADER.pack(shape.B, shape.N, shape.d), np.uint8)
    yield from uniform(seed, 3 * shape.elements)


def generate_input(path: Path, shape: Workload, seed: int, advance: Advance, sha256: str | None = None) -> None:
    """Write an input file; MachineError, and no file, if its SHA-256 is not the one given."""
    digest = hashlib.sha256()
    with NewFile(path) as file:
        for chunk in input_chunks(shape, seed):
            file.write(chunk)
            digest.update(chunk.data)
            advance(chunk.nbytes)
        if sha256 not in (None, digest.hexdigest()):
            raise MachineError(
                f"{path} differs from the suite's (SHA-256 {digest.hexdigest()[:12]}…, not {sha256}): "
                "please report this with the versions of Python and NumPy"
            )

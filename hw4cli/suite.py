"""The named cases of testcases/suite.toml, and the bytes of a case: the same everywhere, for ever.

The random bits are those of NumPy's PCG64, whose raw stream is fixed by NumPy's compatibility policy (NEP 19);
the way from bits to floats is ours, one rounding each, so no NumPy version or processor can change a byte.
"""

import hashlib
import re
import tomllib
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
from numpy.random import PCG64  # imported here: in the middle of the work its import could swallow a Ctrl-C
from numpy.typing import NDArray

from hw4cli.casefile import FLOAT32, HEADER, Floats
from hw4cli.errors import InputError, MachineError
from hw4cli.newfile import NewFile
from hw4cli.resources import data_path
from hw4cli.shape import Shape

CHUNK = 1 << 18  # floats generated at a time: they stay in the cache until they are hashed and written
Advance = Callable[[int], None]  # told the bytes done, for a progress bar


@dataclass(frozen=True)
class Case:
    """A named case: what to compute, from which random numbers, how fast, and the input's SHA-256."""

    name: str
    shape: Shape
    seed: int
    limit: float
    sha256: str

    def input_path(self, folder: Path) -> Path:
        """Where the input lies: FOLDER/t07."""
        return folder / self.name

    def answer_path(self, folder: Path) -> Path:
        """Where the answer lies: FOLDER/t07.out."""
        return folder / f"{self.name}.out"


@cache
def cases() -> dict[str, Case]:
    """All named cases, in the suite's order."""
    table = tomllib.loads(data_path("testcases/suite.toml").read_text(encoding="utf-8"))
    return {
        name: Case(name, Shape(*row["shape"]), row["seed"], float(row["limit"]), row["sha256"])
        for name, row in table["cases"].items()
    }


def select(words: Iterable[str]) -> list[Case]:
    """The cases meant by words such as "t03", "t01-t10" or "t01,t05-t07"; no words mean all of them.

    Each case comes once, in the suite's order. Raises InputError for a name that the suite has not.
    """
    order, words = list(cases()), list(words)
    chosen: set[str] = set() if words else set(order)
    for word in filter(None, re.split(r"[,\s]+", " ".join(words))):
        first, dash, last = word.partition("-")
        last = last if dash else first
        for name in (first, last):
            if name not in order:
                raise InputError(f"there is no case {name!r}: {_meant(name, order)}")
        if order.index(first) > order.index(last):
            raise InputError(f"the range of cases {word} is empty: its end comes before its start")
        chosen.update(order[order.index(first) : order.index(last) + 1])
    if not chosen:
        raise InputError("no case is named: give names such as t01 or t01-t10")
    return [case for name, case in cases().items() if name in chosen]


def _meant(name: str, order: Sequence[str]) -> str:
    """The case that was meant, told by its number, or those that there are."""
    number = re.fullmatch(r"t?0*(\d+)", name, re.IGNORECASE)
    meant = f"t{int(number[1]):02}" if number else ""
    return f"did you mean {meant}?" if meant in order else f"the suite has {order[0]} to {order[-1]}"


def names(selected: Iterable[Case]) -> str:
    """The shortest words for these cases, the inverse of `select`: "t01-t03 t07"."""
    order = list(cases())
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


def input_chunks(shape: Shape, seed: int) -> Iterator[NDArray[Any]]:
    """The input of this shape and seed, in chunks: the header, then Q, K and V of each batch."""
    yield np.frombuffer(HEADER.pack(shape.B, shape.N, shape.d), np.uint8)
    yield from uniform(seed, 3 * shape.elements)


def write_input(path: Path, shape: Shape, seed: int, advance: Advance, sha256: str | None = None) -> None:
    """Write an input file; MachineError, and no file, if its SHA-256 is not the one given."""
    digest = hashlib.sha256()
    with NewFile(path) as file:
        for chunk in input_chunks(shape, seed):
            file.write(chunk)
            digest.update(chunk.data)
            advance(chunk.nbytes)
        if sha256 not in (None, digest.hexdigest()):
            raise MachineError(
                f"{path} came out other than the suite says (SHA-256 {digest.hexdigest()[:12]}…, not {sha256}): "
                "please report this with the versions of Python and NumPy"
            )

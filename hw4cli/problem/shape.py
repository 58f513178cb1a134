"""The size of a case: B, N and d of the header, whether it is causal, and what follows by arithmetic."""

import math
from dataclasses import dataclass, replace
from operator import index
from typing import Any, NamedTuple, Self

from hw4cli.errors import InputError

HEADER_BYTES = 12  # int32 B, N, d
MAX_D = 128
CAUSAL = ".causal"  # in the name of a causal answer: t07.causal.out
AbsMax = tuple[float, float, float]  # the largest |element| of Q, of K and of V; NaN where there is one
# A fast GPU's rates, and the seconds of work that are enough for one: opening it takes a fifth of a second.
BYTES_A_SECOND, FLOPS_A_SECOND, ENOUGH = 8e9, 3e14, 0.5
LENGTHS, HEAD_SIZES = tuple(128 << n for n in range(9)), (32, 64)  # the N and d that the assignment states


class Magnitudes(NamedTuple):
    """How large Q, K and V are: the largest |element| of each, NaN where there is one; and the largest norm (Euclidean
    length) that a row of Q and of K can have, inf where that is not known."""

    q: float
    k: float
    v: float
    q_norm: float = math.inf
    k_norm: float = math.inf

    @property
    def finite(self) -> bool:
        """Whether every element is a number."""
        return all(map(math.isfinite, (self.q, self.k, self.v)))

    def scaled(self, ratio: float) -> "Magnitudes":
        """With scores so many times as large, as by another scale than 1/sqrt(d): a score's size is what counts."""
        return self._replace(q=self.q * ratio, q_norm=self.q_norm * ratio)

    def norms(self, d: int) -> tuple[float, float]:
        """The largest norm of a row of d elements of Q, and of K: what is known, or what the elements allow."""
        return min(self.q_norm, math.sqrt(d) * self.q), min(self.k_norm, math.sqrt(d) * self.k)


@dataclass(frozen=True)
class Shape:
    """The size of a case: B batches of N rows (queries, keys and values) of d columns.

    `causal`: row i sees the keys 0 to i alone. Files do not say so: who runs them does.

    >>> Shape(2, 128, 64).flops
    8388608
    >>> Shape(2, 128, 64, causal=True).flops
    4194304
    """

    B: int
    N: int
    d: int
    causal: bool = False

    @classmethod
    def of(cls, block: Any, causal: bool = False) -> "Shape":
        """The shape of Q, K and V in one array (B, 3, N, d), NumPy's or CuPy's.

        Raises InputError if the array has other dimensions, or another type than float32.
        """
        check_floats("Q, K and V", block, "(B, 3, N, d)")
        if block.shape[1] != 3:
            raise InputError(f"Q, K and V must be a float32 array (B, 3, N, d), but this is {_described(block)}")
        return cls(block.shape[0], block.shape[2], block.shape[3], causal)

    def __str__(self) -> str:
        return f"({self.B}, {self.N}, {self.d}){', causal' if self.causal else ''}"

    @property
    def sizes(self) -> tuple[int, int, int]:
        """B, N and d, which a file's header has."""
        return self.B, self.N, self.d

    @property
    def rows(self) -> int:
        """The rows of Q and O in a batch: as many as keys."""
        return self.N

    @property
    def elements(self) -> int:
        """The number of elements of Q, which is also that of K, V and O."""
        return self.B * self.N * self.d

    @property
    def input_bytes(self) -> int:
        """The size of the input file."""
        return HEADER_BYTES + 3 * 4 * self.elements

    @property
    def output_bytes(self) -> int:
        """The size of the output file."""
        return 4 * self.elements

    @property
    def moved_bytes(self) -> int:
        """The size of Q, K, V and O."""
        return 2 * 4 * self.B * (self.rows + self.N) * self.d

    @property
    def stored(self) -> Self:
        """The same with rows that kernels can load."""
        return replace(self, d=stored_d(self.d))

    @property
    def flops(self) -> int:
        """Floating-point operations of QKᵀ and PV, the field's count: 4·B·N²·d, and half of that if it is causal."""
        return 4 * self.B * self.N**2 * self.d // (2 if self.causal else 1)

    @property
    def pairs(self) -> int:
        """Pairs of a query and a key that it sees: each costs 4·d floating-point operations."""
        return self.B * (self.N * (self.N + 1) // 2 if self.causal else self.N**2)

    @property
    def answer_suffix(self) -> str:
        """What is behind an input's name in its answer's."""
        return f"{CAUSAL if self.causal else ''}.out"

    def with_batches(self, B: int) -> "Shape":
        """The same with another number of batches."""
        return replace(self, B=B)

    def check(self, where: str) -> None:
        """Raise InputError, naming `where`, unless hw4 computes this shape."""
        for name, value, most in (("B", self.B, 2**31 - 1), ("N", self.N, 2**31 - 1), ("d", self.d, MAX_D)):
            if not is_whole(value) or not 1 <= value <= most:
                raise InputError(f"{where}: {name} is {value}, but must be between 1 and {most}")

    def notes(self) -> list[str]:
        """Sentences about values of this shape outside the assignment's ranges."""
        notes = []
        if not 2 <= self.B <= 14000:
            notes.append(f"B = {self.B} is outside 2 … 14000")
        if self.N not in LENGTHS:
            notes.append(f"N = {self.N} is not a power of two from 128 to 32768")
        if self.d not in HEAD_SIZES:
            notes.append(f"d = {self.d} is neither 32 nor 64")
        if self.elements >= 56_000_000:
            notes.append(f"B·N·d = {self.elements:,} is not under 56,000,000")
        return notes

    def place(self, index: int) -> str:
        """An element's index in an output file, as "batch b, row r, column c" (counted from 0)."""
        batch, rest = divmod(index, self.N * self.d)
        return f"batch {batch}, row {rest // self.d}, column {rest % self.d}"


@dataclass(frozen=True)
class Oblong(Shape):
    """B batches of Nq rows against N keys: arrays may have other numbers of both, files have not."""

    Nq: int = 0

    @property
    def rows(self) -> int:
        """The rows of Q and O in a batch."""
        return self.Nq


def stored_d(d: int, element: int = 4) -> int:
    """The columns of rows in memory for kernels, which load 16 bytes at once, of elements of so many bytes; those that
    are more than d are zeros.

    >>> [stored_d(d) for d in (1, 4, 59)], [stored_d(d, 2) for d in (1, 8, 59)]
    ([4, 4, 60], [8, 8, 64])
    """
    unit = 16 // element
    return -(-d // unit) * unit


def check_floats(what: str, array: Any, dimensions: str) -> None:
    """Raise InputError unless this is a float32 array, NumPy's or CuPy's, of as many dimensions; `what` is its name."""
    plain = all(hasattr(array, name) for name in ("ndim", "shape", "dtype")) and not hasattr(array, "mask")
    if not plain or array.ndim != dimensions.count(",") + 1 or array.dtype.name != "float32":
        raise InputError(f"{what} must be a float32 array {dimensions}, but this is {_described(array)}")


def _described(array: Any) -> str:
    """An array's element type and shape, or what there is in its place."""
    if hasattr(array, "dtype") and not hasattr(array, "mask"):
        return f"{array.dtype} {array.shape}"
    return f"a {type(array).__name__}"


def is_whole(value: Any) -> bool:
    """Whether this is an integer, Python's or NumPy's."""
    try:
        index(value)
    except TypeError:
        return False
    return True


def most_gpus(words: str, shape: Shape) -> int:
    """How many of the GPUs that `--gpus WORDS` asks for are to compute a shape, at most: those that are named, all of
    them; or else, as many as its work is enough for, because a small one is computed before a second GPU is open.

    >>> [most_gpus(words, Shape(9600, 128, 64)) for words in ("all", "count:2", "ids:0,1")]
    [1, 1, 2]
    """
    kind, _, numbers = words.partition(":")
    if kind == "ids":
        return len(numbers.split(","))
    seconds = (shape.input_bytes + shape.output_bytes) / BYTES_A_SECOND + shape.flops / FLOPS_A_SECOND
    return max(1, int(seconds / ENOUGH))

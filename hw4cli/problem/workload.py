"""What is computed, apart from where it lies: one description for files, arrays, gradients and measurements."""

import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from operator import index
from typing import Any, NamedTuple

from hw4cli.errors import InputError
from hw4cli.problem.scores import Score

HEADER_BYTES = 12  # int32 B, N, d
MAX_D, WIDEST = 128, 256  # of files, of arrays
FLOAT16, BFLOAT16, FLOAT32 = "float16", "bfloat16", "float32"
BOTTOM_RIGHT, TOP_LEFT = "bottom-right", "top-left"  # where a mask that is not square begins
FILE = "B3ND"  # a layout: Q, K and V of a batch one after the other, and O apart, as files have them
MOST = 1 << 30  # heads of all batches, rows, keys: kernels count them, with what pads the last tile, in 32 bits
# Of the scale; float32 holds both times log2(e). 1e-38 is 0 to a GPU, and a hidden score, -inf, times 0 is NaN.
SCALES = 1e-37, 1e38
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


class Span(NamedTuple):
    """A sequence: its batch, its first row and how many it has, its first key and how many. Causal: its row i sees its
    keys 0 to i + offset. `number`: which of a call's sequences it is, by which arrays that change scores know it."""

    batch: int
    row: int
    rows: int
    key: int
    keys: int
    offset: int = 0
    number: int = 0


def runs(spans: Iterable[Span]) -> Iterator[tuple[Span, int]]:
    """Neighbours of the same lengths, as (the first one, how many): each is of the next batch, or begins where the one
    before ends, and has the next number.

    >>> list(runs([Span(0, 0, 5, 0, 7, 0, 0), Span(0, 5, 5, 7, 7, 0, 1), Span(0, 10, 4, 14, 7, 0, 2)]))[0][1]
    2
    """
    first: Span | None = None
    last, count = first, 0
    for span in spans:
        if last is not None and first is not None:
            batch, row, rows, key, keys, offset, number = last
            behind = Span(batch, row + rows, rows, key + keys, keys, offset, number + 1)
            if span in (behind, Span(batch + 1, row, rows, key, keys, offset, number + 1)):
                last, count = span, count + 1
                continue
            yield first, count
        first, last, count = span, span, 1
    if first is not None:
        yield first, count


@dataclass(frozen=True)
class Workload:
    """Attention of Q (batch, heads, Nq, d) with K and V (batch, kv_heads, Nk, d); V and O have `dv` columns in place of
    d where that is not 0.

    The mask: `causal`, row i sees the keys 0 to i + offset alone; Nk - Nq as the offset lets the last row see the last
    key; and of these keys the last `window` ones alone, unless that is 0. `scale` is that of the scores; 0, where none
    is given, becomes 1/sqrt(d), and stays it where rows get zero columns. `layout`: how the matrices lie in
    memory, where that is known: FILE, or the order of batch, head, row (N) and column in an array, such as "BHND".

    `sequences`: the rows and keys that are computed, each sequence by itself, with a mask of its own, where these are
    not all rows with all keys of each batch. `score`: what is done with scores before the softmax.

    A file is a workload of one head in float32 (`one_head`); it does not say whether it is causal: who runs it does.
    """

    dtype: str
    batch: int
    heads: int
    kv_heads: int
    Nq: int
    Nk: int
    d: int
    causal: bool = False
    offset: int = 0
    scale: float = 0.0
    layout: str = "BHND"
    sequences: tuple[Span, ...] = ()
    window: int = 0
    score: Score | None = None
    dv: int = 0

    def __post_init__(self) -> None:
        if self.dv == self.d:
            object.__setattr__(self, "dv", 0)
        if not isinstance(self.sequences, tuple):  # a record's
            object.__setattr__(self, "sequences", tuple(Span(*span) for span in self.sequences))
        if not self.scale and is_whole(self.d) and self.d > 0:  # else `check` says what is wrong
            object.__setattr__(self, "scale", self.usual_scale)

    @classmethod
    def one_head(cls, B: int, N: int, d: int, causal: bool = False, Nq: int | None = None) -> "Workload":
        """B batches of N keys and as many rows, or of Nq rows: what a file is, whose header has B, N and d.

        >>> Workload.one_head(2, 128, 64).flops, Workload.one_head(2, 128, 64, causal=True).flops
        (8388608, 4194304)
        """
        return cls(FLOAT32, B, 1, 1, N if Nq is None else Nq, N, d, causal, layout=FILE)

    @classmethod
    def square(cls, dtype: str, batch: int, heads: int, N: int, d: int, causal: bool = False) -> "Workload":
        """As many keys as rows, and a head of K and V for each head of Q."""
        return cls(dtype, batch, heads, heads, N, N, d, causal)

    @classmethod
    def of_block(cls, block: Any, causal: bool = False) -> "Workload":
        """That of Q, K and V in one array (B, 3, N, d), NumPy's or CuPy's.

        Raises InputError if the array has other dimensions, or another type than float32.
        """
        check_floats("Q, K and V", block, "(B, 3, N, d)")
        if block.shape[1] != 3:
            raise InputError(f"Q, K and V must be a float32 array (B, 3, N, d), but this is {_described(block)}")
        return cls.one_head(block.shape[0], block.shape[2], block.shape[3], causal)

    def __str__(self) -> str:
        sizes = self.sizes if self.layout == FILE else (self.batch, self.heads, self.Nk, self.d)
        mask = f", window of {self.window:,}" if self.window else ", causal" if self.causal else ""
        return f"({', '.join(map(str, sizes))}){mask}"

    # ---- Sizes

    @property
    def B(self) -> int:  # noqa: N802
        """Heads of Q in all batches, each a matrix of its own: the batches of a file."""
        return self.batch * self.heads

    @property
    def N(self) -> int:  # noqa: N802
        """Keys; a file has as many rows."""
        return self.Nk

    @property
    def sizes(self) -> tuple[int, int, int]:
        """B, N and d, which a file's header has."""
        return self.B, self.Nk, self.d

    @property
    def usual_scale(self) -> float:
        """1/sqrt(d), which `scale` is where none is given. Of rows as they are given: zero columns change it."""
        return 1 / math.sqrt(self.d)

    @property
    def element(self) -> int:
        """Bytes of an element."""
        return 2 if self.dtype in (FLOAT16, BFLOAT16) else 4

    @property
    def elements(self) -> int:
        """The number of elements of Q, which is also that of O."""
        return self.B * self.Nq * self.d

    @property
    def value_columns(self) -> int:
        """The columns of V and O."""
        return self.dv or self.d

    @property
    def moved_bytes(self) -> int:
        """The size of Q, K, V and O."""
        rows = self.batch * (self.heads * self.Nq + self.kv_heads * self.Nk)
        return self.element * rows * (self.d + self.value_columns)

    @property
    def stored(self) -> "Workload":
        """The same in rows that kernels can load, whose last columns are zeros."""
        d, dv = stored_d(self.d, self.element), stored_d(self.dv, self.element)
        return self if (d, dv) == (self.d, self.dv) else replace(self, d=d, dv=dv)

    @property
    def of_one_width(self) -> "Workload":
        """The same in rows that all have as many columns, zeros among them."""
        return replace(self, d=max(self.d, self.dv), dv=0) if self.dv else self

    def with_batches(self, batch: int) -> "Workload":
        """The same with another number of batches."""
        return replace(self, batch=batch)

    @property
    def most_rows(self) -> int:
        """Rows of the longest sequence: Nq, if a batch is one."""
        return max(span.rows for span in self.sequences) if self.sequences else self.Nq

    @property
    def most_keys(self) -> int:
        """Keys of the longest sequence: Nk, if a batch is one."""
        return max(span.keys for span in self.sequences) if self.sequences else self.Nk

    @property
    def first_number(self) -> int:
        """That of the first of the sequences, which follow one another by their numbers; 0, if a batch is one."""
        return self.sequences[0].number if self.sequences else 0

    @property
    def of_scores(self) -> tuple[int, int, int, int]:
        """The shape of an array with a place for each score: of all batches, or of sequences by their numbers, from the
        first to the last; heads; and the most rows and keys of one."""
        count = self.sequences[-1].number + 1 - self.first_number if self.sequences else self.batch
        return count, self.heads, self.most_rows, self.most_keys

    def seen_by(self, rows: int) -> int:
        """The most keys that so many rows, one after the other, see together, as far as a window says it."""
        return min(self.Nk, self.window + rows - 1) if self.window else self.Nk

    def row_tiles(self, rows: int) -> int:
        """Tiles of so many rows in all heads."""
        if self.sequences:
            return self.heads * sum(-(-span.rows // rows) for span in self.sequences)
        return self.B * -(-self.Nq // rows)

    def key_tiles(self, keys: int) -> int:
        """Tiles of so many keys in all heads of K and V."""
        if self.sequences:
            return self.kv_heads * sum(-(-span.keys // keys) for span in self.sequences)
        return self.batch * self.kv_heads * -(-self.Nk // keys)

    # ---- Work

    @property
    def flops(self) -> int:
        """Floating-point operations of QKᵀ and PV, the field's count: 2 (d + dv) for each pair of a row and a key, and
        half of that if it is causal; of a window, those of the pairs in it."""
        each = 2 * (self.d + self.value_columns)
        if self.window:
            return self.pairs * each
        pairs = self.B * self.Nq * self.Nk
        if self.sequences:
            pairs = self.heads * sum(span.rows * span.keys for span in self.sequences)
        return pairs * each // (2 if self.causal else 1)

    @property
    def pairs(self) -> int:
        """Pairs of a row and a key that it sees, in all heads: each costs 4 d floating-point operations."""
        if self.sequences:
            return sum(self.alone(span).pairs for span in self.sequences)
        if not self.causal:
            return self.B * self.Nq * self.Nk
        hidden = self._seen(self.offset - self.window) if self.window else 0
        return self.B * (self._seen(self.offset) - hidden)

    def alone(self, span: Span, count: int = 1) -> "Workload":
        """A sequence as a workload of its own, or so many like it as its batches."""
        return replace(self, batch=count, Nq=span.rows, Nk=span.keys, offset=span.offset, sequences=())

    def keys_of(self, row: int) -> range:
        """The keys that a row sees, causal."""
        end = min(max(0, row + self.offset + 1), self.Nk)
        return range(max(0, row + self.offset + 1 - self.window) if self.window else 0, end)

    def _seen(self, offset: int) -> int:
        """Pairs of a row i and one of the keys 0 to i + offset, of one head."""

        def before(row: int) -> int:  # of the rows before this one, and of rows that would stand before the first
            keys = max(0, row + offset)  # of the row before
            whole = max(0, keys - self.Nk)  # rows that see all
            return (keys - whole) * (keys - whole + 1) // 2 + whole * self.Nk

        return before(self.Nq) - before(0)

    def computed_pairs(self, rows: int, keys: int) -> int:
        """The pairs in tiles of so many rows and keys that a kernel computes; tiles that no row sees are left out."""
        if not self.causal:
            return self.pairs
        found = 0
        for first in range(0, self.Nq, rows):
            end = min(first + rows, self.Nq)
            seen = self.keys_of(end - 1).stop
            hidden = min(self.keys_of(first).start, seen) // keys * keys
            found += (end - first) * (min(self.Nk, -(-seen // keys) * keys) - hidden)
        return self.B * found

    def computed_share(self, rows: int, keys: int) -> float:
        """The share of all pairs of a row and a key that lie in tiles which a kernel computes, of these sizes."""
        return self.computed_pairs(rows, keys) / (self.B * self.Nq * self.Nk)

    # ---- Of a file

    @property
    def input_bytes(self) -> int:
        """The size of the input file."""
        return HEADER_BYTES + 3 * 4 * self.elements

    @property
    def output_bytes(self) -> int:
        """The size of the output file."""
        return 4 * self.elements

    @property
    def answer_suffix(self) -> str:
        """What is behind an input's name in its answer's."""
        return f"{CAUSAL if self.causal else ''}.out"

    def check(self, where: str) -> None:
        """Raise InputError, naming `where`, unless hw4 computes a file of these sizes."""
        for name, value, most in (("B", self.batch, 2**31 - 1), ("N", self.Nk, 2**31 - 1), ("d", self.d, MAX_D)):
            if not is_whole(value) or not 1 <= value <= most:
                raise InputError(f"{where}: {name} is {value}, but must be between 1 and {most}")

    def notes(self) -> list[str]:
        """Sentences about values of a file outside the assignment's ranges."""
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


Shape = Workload.one_head  # hw4cli.Shape(B, N, d): the name by which users make a file's workload (docs/api.md)


def size_problem(work: Workload) -> str | None:
    """What is wrong with the sizes of arrays, as a sentence without its subject; None if they can be computed."""
    if work.heads % work.kv_heads:
        return f"q has {work.heads} heads, which is not a multiple of the {work.kv_heads} of k and v"
    if not 1 <= work.d <= WIDEST:
        return f"d is {work.d}: it must be between 1 and {WIDEST}"
    if not 1 <= work.value_columns <= WIDEST:
        return f"v has {work.dv} columns: they must be between 1 and {WIDEST}"
    for what, number in (("batch * heads", work.batch * work.heads), ("Nq", work.Nq), ("Nk", work.Nk)):
        if number > MOST:
            return f"{what} is {number:,}: it must be at most {MOST:,}"
    return None


def scale_problem(scale: float) -> str | None:
    """What is wrong with the scores' factor, as a sentence; None if kernels can compute with it."""
    least, most = SCALES
    if least <= scale <= most:
        return None
    return f"scale is {scale:g}: it must be a positive number, from {least:g} to {most:g}"


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


def most_gpus(words: str, shape: Workload) -> int:
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

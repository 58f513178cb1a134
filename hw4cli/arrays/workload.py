"""What is to be computed, apart from where it lies: element type, sizes, heads, the mask."""

import math
from collections.abc import Iterable
from dataclasses import dataclass, replace

from hw4cli.plans.formulas import ceil_div
from hw4cli.problem.shape import stored_d

FLOAT16, BFLOAT16, FLOAT32 = "float16", "bfloat16", "float32"
BOTTOM_RIGHT, TOP_LEFT = "bottom-right", "top-left"
MAX_D = 128
MOST = 1 << 30  # heads of all batches, rows, keys: kernels count them, with what pads the last tile, in 32 bits
# Of the scale; float32 holds both times log2(e). 1e-38 is 0 to a GPU, and a hidden score, -inf, times 0 is NaN.
SCALES = 1e-37, 1e38

# What is not computed, and the arguments by which other libraries' attention is asked for it.
NOT_SUPPORTED = {
    "dropout": {"dropout", "dropout_p"},
    "a bias, or a mask that is not causal,": {"attn_mask", "attn_bias", "bias", "mask", "alibi_slopes", "softcap"},
    "a window of keys": {"window", "window_size", "sliding_window"},
    "more than one length in a call": {"cu_seqlens_q", "cu_seqlens_k", "max_seqlen_q", "max_seqlen_k"}
    | {"seqlens", "cache_seqlens", "key_padding_mask"},
}


@dataclass(frozen=True)
class Workload:
    """Attention of Q (batch, heads, Nq, d) with K and V (batch, kv_heads, Nk, d).

    Causal: row i sees the keys 0 to i + offset; Nk - Nq as the offset lets the last row see the last key.
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

    @staticmethod
    def square(dtype: str, batch: int, heads: int, N: int, d: int, causal: bool = False) -> "Workload":
        """As many keys as rows, and a head of K and V for each head of Q."""
        return Workload(dtype, batch, heads, heads, N, N, d, causal)

    @property
    def element(self) -> int:
        """Bytes of an element."""
        return 2 if self.dtype in (FLOAT16, BFLOAT16) else 4

    @property
    def stored(self) -> "Workload":
        """The same with rows that kernels can load, whose last columns are zeros (arrays/staged.py). The scale of the
        scores stays that of the true d."""
        return replace(self, d=stored_d(self.d, self.element))

    @property
    def flops(self) -> float:
        """Operations by the field's convention: 4 d for each pair of a row and a key; half of them if causal."""
        return 4 * self.batch * self.heads * self.Nq * self.Nk * self.d / (2 if self.causal else 1)

    @property
    def scale(self) -> float:
        """Of the scores, where nobody gives another: 1/sqrt(d)."""
        return 1 / math.sqrt(self.d)

    @property
    def pairs(self) -> int:
        """Pairs of a row and a key that it sees, in all heads: each costs 4 d operations."""
        if not self.causal:
            return self.batch * self.heads * self.Nq * self.Nk
        return self.batch * self.heads * sum(max(0, min(self.Nk, row + self.offset + 1)) for row in range(self.Nq))

    def computed_pairs(self, rows: int, keys: int) -> int:
        """The pairs in tiles of so many rows and keys that a kernel computes; tiles that no row sees are left out."""
        if not self.causal:
            return self.pairs
        found = 0
        for first in range(0, self.Nq, rows):
            end = min(first + rows, self.Nq)
            seen = max(0, min(self.Nk, end + self.offset))
            found += (end - first) * min(self.Nk, ceil_div(seen, keys) * keys)
        return self.batch * self.heads * found

    def row_tiles(self, rows: int) -> int:
        """Tiles of so many rows in all heads."""
        return self.batch * self.heads * ceil_div(self.Nq, rows)


def checked_workload(
    dtype: str,
    dtypes: tuple[str, ...],
    q: tuple[int, ...],
    k: tuple[int, ...],
    v: tuple[int, ...],
    causal: bool,
    align: str,
) -> Workload:
    """What arrays of one of the element types `dtypes` and the shapes (batch, heads, N, d) ask for. Raises TypeError or
    ValueError where they do not fit together."""
    if dtype not in dtypes:
        raise TypeError(f"q is {dtype}: give {', '.join(dtypes[:-1])} or {dtypes[-1]}")
    if k != v:
        raise ValueError(f"k and v differ in shape: (batch, heads, N, d) are {tuple(k)} and {tuple(v)}")
    (batch, heads, Nq, d), (kv_batch, kv_heads, Nk, kv_d) = q, k
    shapes = f"{tuple(q)} and {tuple(k)}"
    if (batch, d) != (kv_batch, kv_d):
        raise ValueError(f"q and k differ in batch or d: (batch, heads, N, d) are {shapes}")
    if 0 in q or 0 in k:
        raise ValueError(f"there is nothing to compute: (batch, heads, N, d) of q and k are {shapes}")
    check_align(align)
    offset = Nk - Nq if causal and align == BOTTOM_RIGHT else 0
    work = Workload(dtype, batch, heads, kv_heads, Nq, Nk, d, causal, offset)
    if problem := size_problem(work):
        raise ValueError(problem)
    return work


def check_align(align: str) -> None:
    """Raise ValueError unless it is known."""
    if align not in (BOTTOM_RIGHT, TOP_LEFT):
        raise ValueError(f"align is {align!r}: give {BOTTOM_RIGHT!r} or {TOP_LEFT!r}")


def size_problem(work: Workload) -> str | None:
    """What is wrong with a workload's sizes, as a sentence without its subject; None if they can be computed."""
    if work.heads % work.kv_heads:
        return f"q has {work.heads} heads, which is not a multiple of the {work.kv_heads} of k and v"
    if not 1 <= work.d <= MAX_D:
        return f"d is {work.d}: it must be between 1 and {MAX_D}"
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


def refuse(function: str, arguments: Iterable[str]) -> None:
    """Raise TypeError for the first of the arguments, which the function does not have."""
    for name in arguments:
        for what, names in NOT_SUPPORTED.items():
            if name in names:
                raise TypeError(f"{function}() has no argument {name!r}: {what} is not supported")
        raise TypeError(f"{function}() got an unexpected keyword argument {name!r}")

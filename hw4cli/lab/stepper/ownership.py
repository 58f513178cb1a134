"""Which thread of a block holds which element of S and of O, for each kernel: what its index arithmetic comes to."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from hw4cli.plans.formulas import ceil_div
from hw4cli.plans.ladder import block_of

Digits = tuple[tuple[int, int], ...]
OWN = 0  # a stride: these neighbours are one thread's


@dataclass(frozen=True)
class Digitwise:
    """A row's number and a column's, read as digits from the lowest, each of (how many values, stride in threads): an
    element is that thread's whose number is the sum of digits times strides. So are the `copies` threads, `apart` from
    each other, that hold the same element, or a part of its sum."""

    rows: Digits
    columns: Digits
    copies: int = 1
    apart: int = 0


@dataclass(frozen=True)
class Linear:
    """Element after element, row by row of `width`: one for each thread, then again from the first."""

    width: int


Layout = Digitwise | Linear


def is_known(kernel: str) -> bool:
    """Whether it is known what the kernel's threads hold: not of one that somebody has just added."""
    return block_of(kernel).owns in _FIND


def layouts(kernel: str, macros: Mapping[str, int]) -> tuple[Layout, Layout]:
    """Who holds S and who holds O. Raises KeyError for a kernel that is not known."""
    return _FIND[block_of(kernel).owns](macros)


def _linear(macros: Mapping[str, int]) -> tuple[Layout, Layout]:
    return Linear(macros["BC"]), Linear(macros["D"])


def _warp(macros: Mapping[str, int]) -> tuple[Layout, Layout]:
    rows = (4, OWN), (macros["BR"] // 4, 32)
    return Digitwise(rows, ((32, 1),)), Digitwise(rows, ((32, 1), (ceil_div(macros["D"], 32), OWN)))


def _float4(macros: Mapping[str, int]) -> tuple[Layout, Layout]:
    """S: even lanes have two rows, odd ones the next two. O: as many lanes as a row has float4s, a power of two; groups
    of them take keys in turn."""
    scores = Digitwise(((2, OWN), (2, 1), (macros["BR"] // 4, 32)), ((16, 2), (macros["BC"] // 16, OWN)))
    lanes = next(n for n in (2, 4, 8, 16, 32) if n >= macros["D"] // 4)
    return scores, Digitwise(((4, OWN), (macros["BR"] // 4, 32)), ((4, OWN), (lanes, 1)), 32 // lanes, lanes)


def _flash(macros: Mapping[str, int]) -> tuple[Layout, Layout]:
    """Lane bits 0 and 2 go down, 1, 3 and 4 across."""
    rows = (4, OWN), (2, 1), (2, 4), (2, OWN), (macros["BR"] // 32, 32)
    run = min(4, macros["BC"] // 8)
    across = (2, 2), (4, 8)
    scores = Digitwise(rows, ((run, OWN), *across, (macros["BC"] // 8 // run, OWN)))
    return scores, Digitwise(rows, ((4, OWN), *across, (macros["WIDTH"] // 32, OWN)))


def _fragments(macros: Mapping[str, int]) -> tuple[Layout, Layout]:
    """The accumulators of mma.sync m16n8k16, and of wgmma, whose four warps each have 16 of the 64 rows."""
    warps = macros["THREADS"] // 32 - (4 if macros.get("GROUPS") else 0)  # without those that copy
    rows = (8, 4), (2, OWN), (macros["BR"] // 16 // warps, OWN), (warps, 32)
    scores, outputs = (Digitwise(rows, ((2, OWN), (4, 1), (n // 8, OWN))) for n in (macros["BC"], macros["WIDTH"]))
    return scores, outputs


def _four_lanes(macros: Mapping[str, int]) -> tuple[Layout, Layout]:
    rows = ((macros["BR"], 4),)
    scores = Digitwise(rows, ((macros["BC"], OWN),), 4, 1)
    return scores, Digitwise(rows, ((4, 1), (macros["D"] // 4, OWN)))


# By `Block.owns` of the kernel's entry.
_FIND: dict[str, Callable[[Mapping[str, int]], tuple[Layout, Layout]]] = {
    "linear": _linear,
    "rows a warp": _warp,
    "rows a half-warp": _float4,
    "register tiles": _flash,
    "fragments": _fragments,
    "four lanes a row": _four_lanes,
}

"""The arguments of `attention` beside its arrays, and the place for its answer: checked before anything is computed."""

import math
from collections.abc import Iterable
from dataclasses import replace
from operator import index
from typing import Any

import numpy as np

from hw4cli.arrays.operand import LAYOUTS, NUMPY, Operand
from hw4cli.errors import InputError
from hw4cli.plans.dispatch import Choice
from hw4cli.problem.workload import (
    BOTTOM_RIGHT,
    MOST,
    TOP_LEFT,
    AbsMax,
    Magnitudes,
    Workload,
    is_whole,
    scale_problem,
    size_problem,
)

LONGEST_SHOWN = 60  # letters
ALL = -1  # keys of one side
Window = tuple[int, int]  # of keys that a row sees, before and behind the one that is its own; ALL
# What is not computed, and the arguments by which other libraries' attention is asked for it.
NOT_SUPPORTED = {
    "dropout": {"dropout", "dropout_p"},
    "a cache of keys that grows": {"cache_seqlens", "block_table", "page_table"},
}


# What other libraries call an argument of ours.
MEANT = {
    "is_causal": "causal",
    "window_size": "window",
    "sliding_window": "window",
    "softmax_scale": "scale",
    "sm_scale": "scale",
    "seqlens": "lengths",
    "seqlens_k": "lengths",
    "seqused_k": "lengths",
    "seqlens_q": "q_lengths",
    "seqused_q": "q_lengths",
    "key_padding_mask": "lengths",
    "mask": "attn_mask",
    "bias": "attn_mask",
    "attn_bias": "attn_mask",
    "score_mod": "score",
    "mask_mod": "keep",
    "logits_soft_cap": "softcap",
}
NEEDLESS = {"max_seqlen", "max_seqlen_q", "max_seqlen_k"}  # what follows from others here


def refuse(function: str, arguments: Iterable[str]) -> None:
    """Raise TypeError for the first of the arguments, which the function does not have."""
    for name in arguments:
        if name in MEANT:
            raise TypeError(f"{function}() has no argument {name!r}: here it is {MEANT[name]}=")
        if name in NEEDLESS:
            raise TypeError(f"{function}() has no argument {name!r}: it follows from cu_seqlens, leave it out")
        for what, names in NOT_SUPPORTED.items():
            if name in names:
                raise TypeError(f"{function}() has no argument {name!r}: {what} is not supported")
        raise TypeError(f"{function}() got an unexpected keyword argument {name!r}")


def checked_workload(
    dtype: str,
    dtypes: tuple[str, ...],
    q: tuple[int, ...],
    k: tuple[int, ...],
    v: tuple[int, ...],
    causal: bool,
    align: str,
    scale: Any,
    window: Window | None = None,
) -> Workload:
    """What arrays of one of the element types `dtypes` and the shapes (batch, heads, N, d) ask for. Raises TypeError or
    ValueError where they do not fit together, or where the scale is no number with which kernels can compute."""
    if dtype not in dtypes:
        raise TypeError(f"q is {dtype}: give {', '.join(dtypes[:-1])} or {dtypes[-1]}")
    if k[:3] != v[:3]:
        raise ValueError(f"k and v differ in batch, heads or N: (batch, heads, N, d) are {tuple(k)} and {tuple(v)}")
    (batch, heads, Nq, d), (kv_batch, kv_heads, Nk, kv_d) = q, k
    shapes = f"{tuple(q)} and {tuple(k)}"
    if (batch, d) != (kv_batch, kv_d):
        raise ValueError(f"q and k differ in batch or d: (batch, heads, N, d) are {shapes}")
    if 0 in q or 0 in v:
        raise ValueError(f"there is nothing to compute: (batch, heads, N, d) of q and v are {tuple(q)} and {tuple(v)}")
    check_align(align)
    mask = mask_of(Nq, Nk, causal, align, window)
    work = Workload(dtype, batch, heads, kv_heads, Nq, Nk, d, mask[0], mask[1], window=mask[2], dv=v[3])
    if problem := size_problem(work):
        raise ValueError(problem)
    return work if scale is None else replace(work, scale=_checked_scale(scale))


def mask_of(Nq: int, Nk: int, causal: bool, align: str, window: Window | None) -> tuple[bool, int, int]:
    """Causal, offset and window of the workload of so many rows and keys. Raises ValueError for a window in arrays
    that are too long for kernels to count in."""
    if not causal and window is None:
        return False, 0, 0
    diagonal = Nk - Nq if align == BOTTOM_RIGHT else 0  # the key of the first row
    if window is None:
        return True, diagonal, 0
    most = Nq + Nk
    if most > MOST // 2:
        raise ValueError(f"Nq and Nk are {most:,} together: with a window they must be at most {MOST // 2:,}")
    left, right = (most if side == ALL else min(side, most) for side in window)
    right = 0 if causal else right
    if Nq + diagonal <= left + 1:  # the last row sees the first key, if it is not behind the diagonal
        return (True, diagonal + right, 0) if causal or diagonal + right + 1 < Nk else (False, 0, 0)
    return True, diagonal + right, left + right + 1


def checked_window(window: Any) -> Window | None:
    """How many keys before that of its own a row sees, and how many behind it, with ALL for None and -1; None for all
    of both. Raises TypeError or ValueError for what are no two whole numbers."""
    if window is None:
        return None
    if type(window) is tuple and tuple(map(type, window)) == (int, int) and min(window) >= 0:
        return window  # at once: each call asks
    sides = tuple(window) if isinstance(window, Iterable) and not isinstance(window, str | bytes) else ()
    if len(sides) != 2 or not all(side is None or (is_whole(side) and type(side) is not bool) for side in sides):
        raise TypeError(
            f"window is {_shown(window)}: give (left, right), how many keys before and behind its own a row sees; "
            "None for all"
        )
    left, right = (ALL if side is None else index(side) for side in sides)
    if left < ALL or right < ALL:
        raise ValueError(f"window is {_shown(window)}: give numbers from 0 on, or None for all keys of a side")
    return None if left == right == ALL else (left, right)


def check_align(align: str) -> None:
    """Raise ValueError unless it is known."""
    if align not in (BOTTOM_RIGHT, TOP_LEFT):
        raise ValueError(f"align is {align!r}: give {BOTTOM_RIGHT!r} or {TOP_LEFT!r}")


def checked_number(name: str, value: Any) -> float:
    """A number of Python's or NumPy's, or an array of no dimension. Raises TypeError for all else."""
    try:
        if not isinstance(value, str | bytes):
            return float(value)
    except OverflowError:
        return math.inf
    except (TypeError, ValueError):
        pass
    raise TypeError(f"{name} is {_shown(value)}: give a number")


def _shown(value: Any) -> str:
    """An argument as it was given, if that is short, or its type: an array may fill pages."""
    text = repr(value)
    return text if len(text) <= LONGEST_SHOWN and text.isprintable() else f"a {type(value).__name__}"


def _checked_scale(scale: Any) -> float:
    """The scores' factor. Raises TypeError or ValueError unless it is a number with which kernels can compute."""
    number = checked_number("scale", scale)
    if problem := scale_problem(number):
        raise ValueError(problem)
    return number


def checked_error(max_error: Any) -> float | None:
    """The error that is allowed, or None. Raises TypeError or ValueError unless it is a positive number."""
    if max_error is None:
        return None
    number = checked_number("max_error", max_error)
    if not number > 0:
        raise ValueError(f"max_error is {number:g}: it must be a positive number")
    return number


def checked_bounds(bounds: Any) -> AbsMax | None:
    """The largest |element| of q, k and v, or None. Raises TypeError or ValueError unless they are three numbers."""
    if bounds is None:
        return None
    try:
        given = tuple(bounds)
    except TypeError:
        what = f"bounds is {_shown(bounds)}"
        raise TypeError(f"{what}: give three numbers, the largest |element| of q, k and v") from None
    if len(given) != 3:
        raise ValueError(f"bounds has {len(given)} numbers: give three, the largest |element| of q, k and v")
    q, k, v = (checked_number("one of bounds", value) for value in given)
    if not (q >= 0 and k >= 0 and v >= 0):
        shown = ", ".join(f"{value:g}" for value in (q, k, v))
        raise ValueError(f"bounds is ({shown}): the largest |element| of q, k and v is 0 or more")
    return q, k, v


def check_layout(layout: Any) -> None:
    """Raise ValueError unless it is known."""
    if layout not in list(LAYOUTS):
        raise ValueError(f"layout is {layout!r}: give 'BHND' or 'BNHD'")


def kernel_for(choice: Choice, found: Magnitudes) -> str:
    """The kernel for arrays of these magnitudes. Raises ValueError if none is sure to keep the error allowed."""
    try:
        return choice.kernel_for(found)
    except InputError as error:
        raise ValueError(str(error).replace("--max-error", "max_error =")) from None


def check_flags(**flags: Any) -> None:
    """Raise TypeError unless each is true or false: a text would count as true, whatever it says."""
    for name, value in flags.items():
        if not isinstance(value, bool | np.bool_):
            raise TypeError(f"{name} is {_shown(value)}: give True or False")


def check_out(out: Operand, inputs: tuple[Operand, ...]) -> None:
    """Raise ValueError if what is written to `out` would be lost, or would change what is still to be read.

    It may be q itself: a row of O replaces the row of Q from which alone it was computed.
    """
    if out.library == NUMPY and not out.array.flags.writeable:
        raise ValueError("out is read-only: give an array that can be written")
    extent = 1
    for stride, size in sorted((abs(stride), size) for stride, size in zip(out.strides, out.shape, strict=True)):
        if size > 1 and stride < extent:
            raise ValueError("elements of out share memory: give an array in which each has a place of its own")
        extent += (size - 1) * stride
    q = inputs[0]
    for other in inputs:
        if other is q and (out.address, out.strides) == (q.address, q.strides):
            continue
        if np.shares_memory(_extent(out), _extent(other)):
            unlike = ", but is not the same array" if other is q else ""
            raise ValueError(f"out shares memory with {other.name}{unlike}: give an array of its own")


class _Memory:
    """Where an array lies, the CPU's memory or a GPU's, as NumPy asks for it; nothing reads it."""

    def __init__(self, x: Operand, size: int) -> None:
        self.__array_interface__ = {
            "version": 3,
            "data": (x.address, True),
            "shape": x.shape,
            "strides": tuple(size * stride for stride in x.strides),
            "typestr": f"|V{size}",
        }


def _extent(x: Operand) -> Any:
    return np.asarray(_Memory(x, 4 if x.dtype == "float32" else 2))

"""What `attention` is asked to do with scores: its arguments become one Score, and the arrays that it names.

A score is scaled; then it is capped (`softcap`), loses what ALiBi takes off, becomes what `score` makes of it, and an
additive `attn_mask` is added. `keep` and a boolean `attn_mask` say which pairs have a score at all. Rows and keys are
counted within a sequence; b is its number, which is the batch of the arrays where these are not packed.
"""

import ast
import keyword
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import replace
from functools import lru_cache
from types import NoneType
from typing import Any, NamedTuple, Self

import numpy as np

from hw4cli.arrays.arguments import checked_number
from hw4cli.arrays.operand import TORCH, Operand, address_of, cast, facts_of
from hw4cli.arrays.repeated import ALIGNMENT, PLAIN, Way, are_plain
from hw4cli.errors import InputError
from hw4cli.problem.scores import (
    BOOL,
    FLOAT,
    FUNCTIONS,
    MOST_ARRAYS,
    MOST_DIMENSIONS,
    PLACES,
    SCORE,
    WORD,
    Named,
    Score,
    parsed,
    put,
)
from hw4cli.problem.workload import FLOAT32, Workload

MASK, SLOPES = "_attn_mask", "_alibi_slopes"  # names of our own: a user's do not begin with _
TAKEN = {SCORE, *PLACES, "inf", *FUNCTIONS, *keyword.kwlist}
MOST_INDICES = 1 << 24  # which kernels have as float32, too
LEAST_CAP, MOST_CAP = 1e-30, 1e30  # whose inverse is a float32, too
REMEMBERED = 256  # scores


class View(NamedTuple):
    """An array as kernels read it, what an expression knows of it, and how it comes from what was given."""

    array: Any
    named: Named
    way: Way


class Words(NamedTuple):
    """The arguments of `attention` that are about scores, as they were given."""

    score: Any = None
    keep: Any = None
    arrays: Any = None
    softcap: Any = None
    alibi_slopes: Any = None
    attn_mask: Any = None

    @classmethod
    def of(cls, kind: tuple[Any, ...], beside: Sequence[Any]) -> Self:
        """The words of a kind, with these arrays."""
        (score, keep, softcap, *names, no_slopes, no_mask), arrays = kind, iter(beside)
        named = dict(zip(names, arrays, strict=False)) if names else None
        slopes = None if no_slopes else next(arrays)
        return cls(score, keep, named, softcap, slopes, None if no_mask else next(arrays))


def said_of(
    score: Any, keep: Any, arrays: Any, softcap: Any, alibi_slopes: Any, attn_mask: Any
) -> tuple[tuple[Hashable, ...] | None, tuple[Any, ...]]:
    """What words ask for but for arrays, as part of a key of repeated calls, or None for what may change; and the
    arrays, in the order of a score's."""
    beside: tuple[Any, ...] = () if alibi_slopes is None else (alibi_slopes,)
    if attn_mask is not None:
        beside = (*beside, attn_mask)
    if arrays is None:
        if type(softcap) in _NUMBERS and type(score) in _TEXTS and type(keep) in _TEXTS:
            return (score, keep, softcap, alibi_slopes is None, attn_mask is None), beside
        return None, ()
    if type(arrays) is not dict or not are_plain((score, keep, softcap, *arrays)):
        return None, ()
    said = score, keep, softcap, *arrays, alibi_slopes is None, attn_mask is None
    return said, (*arrays.values(), *beside)


_TEXTS, _NUMBERS = {NoneType, str}, PLAIN - {str}


class Scored(NamedTuple):
    """What becomes of scores, the arrays that it names, in its order, the additive mask as it was given, and how the
    arrays come from those of the arguments."""

    score: Score | None = None
    given: tuple[Any, ...] = ()
    mask: Any = None
    ways: tuple[Way, ...] = ()

    @property
    def views(self) -> tuple[Any, ...]:
        """The arrays as what computes takes them: NumPy's themselves, of others their addresses."""
        return tuple(x if isinstance(x, np.ndarray) else address_of(x) for x in self.given)

    def of(self, work: Workload) -> Workload:
        """The workload with the score."""
        return replace(work, score=self.score) if self.score else work

    def of_batches(self, first: int) -> "Scored":
        """The same for batches of the arrays, or sequences, from `first` on."""
        return self._replace(score=replace(self.score, first=first)) if self.score and first else self


NOTHING = Scored()


def scored(
    words: Words | None,
    q: Operand,
    work: Workload,
    *,
    packed: tuple[int, int, int] | None = None,
    left: bool = False,
    gradient: bool = False,
    max_error: Any = None,
    wide: bool = False,
) -> Scored:
    """What is asked for, checked, for arrays like q. `packed`: so many sequences follow one another, of which the
    longest have so many rows and keys; `left`: padding lies before them. `gradient`: that of an additive mask is
    wanted, too. `wide`: float64 stays what it is, for the CPU.

    Raises TypeError or ValueError for arguments that are none, for arrays of other libraries, devices or shapes, and
    for expressions that cannot be computed."""
    if words is None:
        if gradient:
            raise ValueError("mask_gradient is that of an additive attn_mask, and there is none")
        return NOTHING
    if max(work.Nq, work.Nk) >= MOST_INDICES:
        most = max(work.Nq, work.Nk)
        raise ValueError(f"there are {most:,} rows or keys: scores are changed of fewer than {MOST_INDICES:,}")
    found = _arrays(words.arrays, q, wide)
    known = tuple(view.named for view in found)
    score, keep = _read("score", words.score, known), _read("keep", words.keep, known)
    used = _names(score) | _names(keep)
    for one in known:
        if one.name not in used:
            raise ValueError(f"arrays has {one.name!r}, which neither score= nor keep= names: leave it out")
    softcap = None if words.softcap is None else _checked_cap(words.softcap)
    slopes = mask = ""  # the indices by which expressions ask for them
    count, *sizes = packed or (work.batch, work.Nq, work.Nk)
    if words.alibi_slopes is not None:
        view, slopes = _slopes(words.alibi_slopes, q, (count, work.heads), "sequences" if packed else "batch", wide)
        found.append(view)
    is_added = False
    if words.attn_mask is not None:
        if left:
            raise ValueError(
                "attn_mask counts rows and keys from the beginning of the arrays, padding='left' from that of a "
                "sequence: let the mask hide the padding, without lengths"
            )
        view, mask = _mask(words.attn_mask, q, (count, work.heads, *sizes), packed is not None, wide)
        found.append(view)
        is_added = view.named.type == FLOAT
    if gradient and not is_added:
        raise ValueError("mask_gradient is that of an additive attn_mask: give one of floating-point numbers")
    if len(found) > MOST_ARRAYS:
        raise ValueError(f"arrays, slopes and masks are {len(found)}: give at most {MOST_ARRAYS}")
    named = tuple(view.named for view in found)
    change, keep = _composed(score, keep, softcap, slopes, "" if is_added else mask, mask if is_added else "")
    if change and max_error is not None:
        raise ValueError("max_error is that of scores as they are: leave it out where they are changed")
    given, ways = tuple(view.array for view in found), tuple(view.way for view in found)
    return Scored(_made(change, keep, named, gradient), given, words.attn_mask if is_added else None, ways)


# ---- Words


def _read(name: str, words: Any, arrays: tuple[Named, ...]) -> str:
    """A user's expression in the one way in which it is written; "" for none."""
    if words is None:
        return ""
    _check_text(name, words)
    try:
        return _written(name, words, arrays)
    except InputError as error:
        raise ValueError(str(error)) from None


def check_kinds(words: Words) -> None:
    """Raise TypeError or ValueError for expressions that are no texts, and for names of arrays that are no words: what
    a call must not have before these become arguments of an operator."""
    for name, given in (("score", words.score), ("keep", words.keep)):
        if given is not None:
            _check_text(name, given)
    for name in words.arrays or {}:
        if not isinstance(name, str) or not name.isidentifier():
            raise _wrong_name(name)


def _check_text(name: str, words: Any) -> None:
    if not isinstance(words, str):
        raise TypeError(f"{name} is a {type(words).__name__}: give an expression as a text, or None")


def _wrong_name(name: Any) -> ValueError:
    return ValueError(f"arrays has the name {name!r}: give a word that is none of the expressions' own")


@lru_cache(REMEMBERED)
def _written(name: str, words: str, arrays: tuple[Named, ...]) -> str:
    return ast.unparse(parsed(name, words, {one.name: one for one in arrays}, FLOAT if name == "score" else BOOL))


@lru_cache(REMEMBERED)
def _names(words: str) -> frozenset[str]:
    return frozenset(x.id for x in ast.walk(_tree(words)) if isinstance(x, ast.Name)) if words else frozenset()


def _checked_cap(softcap: Any) -> float:
    number = checked_number("softcap", softcap)
    if not LEAST_CAP <= number <= MOST_CAP:
        raise ValueError(f"softcap is {number:g}: it must be a positive number, from {LEAST_CAP:g} to {MOST_CAP:g}")
    return number


@lru_cache(REMEMBERED)
def _composed(score: str, keep: str, cap: float | None, slopes: str, kept: str, added: str) -> tuple[str, str]:
    """What becomes of a score, "" for nothing, and which are kept, "" for all. `slopes`, `kept` and `added` are the
    indices of ALiBi's slopes, of a boolean mask and of an additive one."""
    steps = [
        "" if cap is None else f"{cap!r} * tanh({SCORE} / {cap!r})",
        f"{SCORE} - {SLOPES}[{slopes}] * abs(i + Nk - Nq - j)" if slopes else "",
        score,
        f"{SCORE} + {MASK}[{added}]" if added else "",
    ]
    change = _tree(SCORE)
    for step in filter(None, steps):
        change = put(SCORE, change, _tree(step))
    parts = [part for part in (keep, f"{MASK}[{kept}]" if kept else "") if part]
    text, kept = ast.unparse(change), " and ".join(f"({part})" for part in parts)
    return "" if text == SCORE else text, kept


@lru_cache(REMEMBERED)
def _made(change: str, keep: str, arrays: tuple[Named, ...], gradient: bool) -> Score:
    """The score, whose expressions are known to be right."""
    made = Score(change, keep, arrays, gradient)
    try:
        assert made.trees
    except InputError as error:  # longer than one may be
        raise ValueError(str(error)) from None
    return made


def _tree(words: str) -> ast.expr:
    return ast.parse(words, mode="eval").body


# ---- Arrays


def _arrays(arrays: Any, q: Operand, wide: bool) -> list[View]:
    """Those that a user names."""
    if arrays is None:
        return []
    if not isinstance(arrays, Mapping):
        raise TypeError(f"arrays is a {type(arrays).__name__}: give a dictionary of names and arrays")
    found = []
    for name, array in arrays.items():
        if not isinstance(name, str) or not WORD.fullmatch(name) or name.startswith("_") or name in TAKEN:
            raise _wrong_name(name)
        what = f"arrays[{name!r}]"
        kind = _kind(what, array, q)
        shape = tuple(array.shape)
        if not 1 <= len(shape) <= MOST_DIMENSIONS or 0 in shape:
            raise ValueError(
                f"{what} has the shape {shape}: give 1 to {MOST_DIMENSIONS} dimensions, none of them empty"
            )
        found.append(_view(name, array, kind, wide))
    return found


def _kind(name: str, array: Any, q: Operand) -> str:
    """What an array's elements are in an expression. Raises TypeError or ValueError unless it lies beside q."""
    library, dtype, _, _, _, device = facts_of(name, array)
    if library != q.library:
        raise TypeError(f"q is an array of {q.library}, {name} of {library}: give all of one")
    if device != q.device:
        place = "the CPU" if device is None else f"GPU {device}"
        raise ValueError(f"q is on {q.place}, {name} on {place}: bring them together")
    if dtype == "bool":
        return "bool"
    if dtype.startswith(("float", "bfloat")):
        return "element" if dtype == q.dtype != FLOAT32 else FLOAT32
    if dtype.startswith(("int", "uint")):
        return "int32"
    raise TypeError(f"{name} is {dtype}: give numbers, or true and false")


def _view(name: str, array: Any, kind: str, wide: bool, part: Any = None) -> View:
    """An array, or a part of it, as the kernels read it: another only if its elements are of another type."""
    if part is not None:
        array = array[part]
    to = kind if kind in ("float32", "int32") and not (wide and kind == "float32") else None
    if to == facts_of(name, array)[1]:
        to = None
    if to is not None:
        array = cast(array, to)
    if hasattr(array, "stride"):  # torch's
        strides = tuple(map(int, array.stride()))
    else:
        strides = tuple(step // array.itemsize for step in array.strides)
    aligned = facts_of(name, array)[4] % ALIGNMENT == 0
    named = Named(name, kind, tuple(map(int, array.shape)), strides, aligned)
    return View(array, named, Way(part, to, aligned))


def _slopes(array: Any, q: Operand, whole: tuple[int, int], what: str, wide: bool) -> tuple[View, str]:
    """ALiBi's, and the indices by which they are asked for; `whole`: how many batches there are, or what else each has
    slopes of its own, and heads."""
    kind = _kind("alibi_slopes", array, q)
    shape = tuple(array.shape)
    if shape not in (whole[1:], whole, (1, *whole[1:])):
        raise ValueError(f"alibi_slopes has the shape {shape}: give (heads,) or ({what}, heads), here {whole}")
    if kind not in (FLOAT32, "element"):
        raise TypeError("alibi_slopes are no floating-point numbers")
    each = len(shape) == 2 and shape[0] > 1
    part = 0 if len(shape) == 2 and not each else None
    return _view(SLOPES, array, kind, wide, part), "b, h" if each else "h"


def _mask(array: Any, q: Operand, whole: tuple[int, ...], packed: bool, wide: bool) -> tuple[View, str]:
    """A mask, without the dimensions in which its elements are the same, and the indices by which it is asked for.
    `whole`: the largest that it may be; of `packed` sequences, of which the longest are meant, it may have more rows
    and keys."""
    kind = _kind("attn_mask", array, q)
    if kind == "int32":
        raise TypeError("attn_mask is of whole numbers: give true where a row sees a key, or numbers to add to scores")
    shape = tuple(array.shape)
    both = [*zip(shape[::-1], whole[::-1], strict=False)]
    fits = [size in (1, wanted) or (packed and n < 2 and size > wanted) for n, (size, wanted) in enumerate(both)]
    if not 2 <= len(shape) <= 4 or not all(fits):
        names = "(sequences, heads, Nq, Nk) of the longest ones" if packed else "(batch, heads, Nq, Nk)"
        raise ValueError(
            f"attn_mask has the shape {shape}: give {names}, here {whole}, with 1 where all have the same, or its last "
            "two or three dimensions"
        )
    steps = array.stride() if q.library == TORCH else array.strides
    kept = [n for n, (size, step) in enumerate(zip(shape, steps, strict=True)) if size > 1 and step] or [len(shape) - 1]
    places = "bhij"[-len(shape) :]
    some = tuple(slice(None) if n in kept else 0 for n in range(len(shape)))
    return _view(MASK, array, kind, wide, some), ", ".join(places[n] for n in kept)

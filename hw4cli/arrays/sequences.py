"""Sequences of several lengths in one call: padded arrays, in which a batch is a sequence and padding, and packed ones,
in which sequences lie one after the other.

A sequence is some rows of a batch of Q and O with some keys of the same batch of K and V. Where a kernel does not
compute all of them in one launch, neighbours of the same lengths are computed together, as batches of one workload, and
others one after the other, each by the kernel that is the fastest for it. Rows and keys of no sequence have no effect,
whatever lies there.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, fields, replace
from functools import cached_property, lru_cache
from itertools import pairwise
from types import NoneType
from typing import Any, NamedTuple

import numpy as np

from hw4cli.arrays.operand import Operand, is_capturing, operand
from hw4cli.problem.workload import BOTTOM_RIGHT, Span, Workload, is_whole, runs

LEFT, RIGHT = "left", "right"  # where the padding of padded arrays lies
NAMES = "lengths", "q_lengths", "cu_seqlens_q", "cu_seqlens_k"  # the arguments that ask for sequences
REMEMBERED = 64  # lists of lengths
ASKED = 2048  # sets of numbers, each of which is kept as one
FEW = 4  # lists that a call is held beside, before its numbers are read: as of an encoder, and of a decoder

Numbers = tuple[int, ...]
Places = list[tuple[int, int]]  # the first rows or keys of sequences, and how many


class Part(NamedTuple):
    """Neighbouring sequences of the same lengths: the first one, and how many they are."""

    first: Span
    batches: int


class Sequences(NamedTuple):
    """What one call computes. `packed`: the arrays have one batch, and sequences follow one another in it; `rows` and
    `keys` are all that there are in the arrays of each batch."""

    spans: tuple[Span, ...]
    packed: bool
    rows: int
    keys: int

    @property
    def parts(self) -> Iterator[Part]:
        """The sequences that have rows and keys."""
        return (Part(*run) for run in runs(span for span in self.spans if span.rows and span.keys))

    def nth(self, first: Span, n: int) -> Span:
        """The n-th behind a sequence, of those that are alike."""
        if not self.packed:
            return first._replace(batch=first.batch + n, number=first.number + n)
        return first._replace(row=first.row + n * first.rows, key=first.key + n * first.keys, number=first.number + n)

    def of(self, work: Workload, align: str) -> Workload:
        """The workload of arrays, of which these sequences are computed; those with rows and keys."""
        return replace(work, sequences=self.masked(work.causal, work.offset, align), offset=0)

    def masked(self, causal: bool, offset: int, align: str) -> tuple[Span, ...]:
        """Those that have rows and keys, with the mask of each for that of the arrays."""
        last = align == BOTTOM_RIGHT and causal
        behind = offset - last * (self.keys - self.rows)  # keys behind its own that a row sees
        return tuple(
            [
                Span(batch, row, rows, key, keys, last * (keys - rows) + behind, number)
                for batch, row, rows, key, keys, _, number in self.spans
                if rows and keys
            ]
        )

    @property
    def longest(self) -> tuple[int, int, int] | None:
        """Of packed arrays, how many sequences there are, and the most rows and keys of one; None for others."""
        if not self.packed:
            return None
        return len(self.spans), max(span.rows for span in self.spans), max(span.keys for span in self.spans)

    @property
    def fills_rows(self) -> bool:
        """Whether each row is one of a sequence that has keys."""
        return self._fill(sum(span.rows for span in self.spans if span.keys), self.rows)

    @property
    def gaps(self) -> Iterator[tuple[int, int, int]]:
        """Rows of a batch that are none of a sequence with keys: its number, the first row, and the row behind."""
        ends = {0: 0} if self.packed else dict.fromkeys(range(len(self.spans)), 0)
        for span in self.spans:
            if span.rows and span.keys:
                if span.row > ends[span.batch]:
                    yield span.batch, ends[span.batch], span.row
                ends[span.batch] = span.row + span.rows
        yield from ((batch, end, self.rows) for batch, end in ends.items() if end < self.rows)

    @property
    def fills_keys(self) -> bool:
        """Whether each key is one of a sequence that has rows."""
        return self._fill(sum(span.keys for span in self.spans if span.rows), self.keys)

    def _fill(self, found: int, each: int) -> bool:
        return found == each * (1 if self.packed else len(self.spans))


@dataclass(eq=False)  # frozen, each step of decoding would take longer to make its own
class Asked:
    """The arguments of `attention` that ask for sequences, as numbers, which never change. There is one for the same
    numbers, which `asked` gives: what equals it is it alone, so that a key with it takes no longer for more numbers."""

    lengths: Numbers | None
    q_lengths: Numbers | None
    padding: str
    cu_seqlens_q: Numbers | None
    cu_seqlens_k: Numbers | None

    @property
    def packed(self) -> bool:
        """Whether the arrays are packed."""
        return self.cu_seqlens_q is not None or self.cu_seqlens_k is not None

    @cached_property
    def kind(self) -> "Asked":
        """The same without the numbers of keys, which steps of decoding differ in; () where there are some."""
        lengths, cu_seqlens_k = self.lengths and (), self.cu_seqlens_k and ()
        return _the_one(lengths, self.q_lengths, self.padding, self.cu_seqlens_q, cu_seqlens_k)

    @property
    def arguments(self) -> dict[str, Any]:
        """By their names."""
        return {field.name: getattr(self, field.name) for field in fields(self)}


_the_one = lru_cache(ASKED)(Asked)
ROWS = 0  # in the place of cu_seqlens_k, which no list equals: the same as cu_seqlens_q
_LISTS = {list, tuple, NoneType}
_recent: tuple[tuple[tuple[Any, ...], Asked], ...] = ()  # copies of lists, which may change, and what they ask for


def asked(lengths: Any, q_lengths: Any, padding: str, cu_seqlens_q: Any, cu_seqlens_k: Any) -> Asked:
    """The arguments as numbers. Those on a GPU are waited for. Raises TypeError for what is no list or array of
    integers; ValueError for another padding, and while a CUDA graph is captured if numbers are on a GPU."""
    global _recent
    if not (
        type(lengths) in _LISTS
        and type(q_lengths) in _LISTS
        and type(cu_seqlens_q) in _LISTS
        and type(cu_seqlens_k) in _LISTS
    ):
        return _read(lengths, q_lengths, padding, cu_seqlens_q, cu_seqlens_k)
    keys = ROWS if cu_seqlens_k is cu_seqlens_q else cu_seqlens_k
    given = lengths, q_lengths, padding, cu_seqlens_q, keys
    try:
        for known, found in _recent:
            if known == given and _are_integers(lengths, q_lengths, cu_seqlens_q, keys):
                return found
    except (TypeError, ValueError, RuntimeError):  # of arrays in a list, which is what is wrong
        pass
    found = _read(lengths, q_lengths, padding, cu_seqlens_q, cu_seqlens_k)
    _recent = ((tuple([list(x) if type(x) is list else x for x in given]), found), *_recent[: FEW - 1])
    return found


def _are_integers(*lists: Any) -> bool:
    """Whether lists that equal some of integers are of these: a sum has another type where an element has."""
    for numbers in lists:  # noqa: SIM110 - a third of the instructions of all()
        if numbers and type(sum(numbers)) is not int:
            return False
    return True


def _read(lengths: Any, q_lengths: Any, padding: str, cu_seqlens_q: Any, cu_seqlens_k: Any) -> Asked:
    """What `asked` gives, by each number."""
    check_padding(padding, lengths, q_lengths)
    of_keys = None if lengths is None else numbers_of("lengths", lengths)
    of_rows = None if q_lengths is None else numbers_of("q_lengths", q_lengths)
    rows = None if cu_seqlens_q is None else numbers_of("cu_seqlens_q", cu_seqlens_q)
    if cu_seqlens_k is cu_seqlens_q:  # as of self-attention: read, and waited for, once
        return _the_one(of_keys, of_rows, padding, rows, rows)
    keys = None if cu_seqlens_k is None else numbers_of("cu_seqlens_k", cu_seqlens_k)
    return _the_one(of_keys, of_rows, padding, rows, keys)


def check_padding(padding: str, lengths: Any = None, q_lengths: Any = None) -> None:
    """Raise ValueError for another padding than those that there are, and for one that no lengths say the size of."""
    if padding not in (LEFT, RIGHT):
        raise ValueError(f"padding is {padding!r}: give {LEFT!r} or {RIGHT!r}")
    if padding == LEFT and lengths is q_lengths is None:
        raise ValueError("padding is 'left', and how long it is, lengths or q_lengths say: give these, or no padding")


@lru_cache(REMEMBERED)
def sequences_of(batch: int, Nq: int, Nk: int, numbers: Asked) -> Sequences:
    """The sequences that are asked for, of arrays with so many batches, rows and keys. Raises ValueError for arguments
    that do not go together, and for numbers that are less than 0, or lie beyond the arrays."""
    cu_seqlens_q, cu_seqlens_k, padding = numbers.cu_seqlens_q, numbers.cu_seqlens_k, numbers.padding
    what, of_rows, of_keys = "batches", [(0, Nq)] * batch, [(0, Nk)] * batch  # the first of each, and how many
    packed = numbers.packed
    if packed:
        if cu_seqlens_q is None or cu_seqlens_k is None:
            raise ValueError("packed arrays need both cu_seqlens_q and cu_seqlens_k")
        what, of_rows = "sequences", _places("cu_seqlens_q", cu_seqlens_q, Nq)
        of_keys = _places("cu_seqlens_k", cu_seqlens_k, Nk)
        if len(of_rows) != len(of_keys):
            counts = f"{len(of_rows)} sequences, cu_seqlens_k of {len(of_keys)}"
            raise ValueError(f"cu_seqlens_q is of {counts}: give as many of both")
    rows = _used("q_lengths", numbers.q_lengths, of_rows, padding, what)
    keys = _used("lengths", numbers.lengths, of_keys, padding, what)
    both = enumerate(zip(rows, keys, strict=True))
    spans = [Span(0 if packed else n, *of_q, *of_k, 0, n) for n, (of_q, of_k) in both]
    return Sequences(tuple(spans), packed, Nq, Nk)


def _used(name: str, numbers: Numbers | None, places: Places, padding: str, what: str) -> Places:
    """Of each place the first so many rows or keys, or the last ones; all of them for None."""
    if numbers is None:
        return places
    if len(numbers) != len(places):
        raise ValueError(f"{name} has {len(numbers)} numbers: give one for each of {len(places)} {what}")
    found: Places = []
    is_left = padding == LEFT
    for (first, most), number in zip(places, numbers, strict=True):
        if not 0 <= number <= most:
            raise ValueError(f"{name}[{len(found)}] is {number}: it must be between 0 and {most}")
        found.append((first + most - number if is_left else first, number))
    return found


def _places(name: str, numbers: Numbers, total: int) -> Places:
    """Where sequences begin in packed arrays, and how long each is; the last one ends at most at `total`."""
    if len(numbers) < 2 or numbers[0] != 0:
        raise ValueError(f"{name} must begin with 0, and have a number for the end of each sequence")
    for place, (first, end) in enumerate(pairwise(numbers), 1):
        if end < first:
            raise ValueError(
                f"{name}[{place}] is {end}, less than the {first} before it: sequences end where others begin"
            )
    if numbers[-1] > total:
        raise ValueError(f"{name} ends at {numbers[-1]}, and the arrays have {total} rows")
    return [(first, end - first) for first, end in pairwise(numbers)]


def numbers_of(name: str, given: Any) -> Numbers:
    """The integers of a sequence, or of an array of one dimension."""
    if type(given) in (list, tuple) and set(map(type, given)) == {int}:  # at once: each call asks
        return tuple(given)
    check_numbers(name, given)
    if hasattr(given, "dtype"):
        _check_readable(name, given)
        given = given.tolist()
    return tuple(map(int, given))


def check_numbers(name: str, given: Any) -> None:
    """Raise TypeError for what is no list of integers, and no array of them of one dimension; nothing is read."""
    if hasattr(given, "dtype"):
        if len(given.shape) != 1 or not str(given.dtype).removeprefix("torch.").startswith(("int", "uint")):
            raise TypeError(f"{name} is an array {tuple(given.shape)} of {given.dtype}: give integers, (sequences,)")
    elif (
        isinstance(given, str | bytes)
        or not isinstance(given, Sequence)
        or not all(type(x) is int or is_whole(x) for x in given)  # of an int without index(), which ties a graph to it
    ):
        raise TypeError(f"{name} is a {type(given).__name__}: give a list, or an array, of integers")


def _check_readable(name: str, array: Any) -> None:
    on_gpu = not isinstance(array, np.ndarray) and getattr(array, "is_cuda", True)
    if on_gpu and is_capturing(library_name(array)):
        raise ValueError(
            f"{name} lies on a GPU, which cannot be waited for while a CUDA graph is captured: give a list"
        )


def library_name(array: Any) -> str:
    """The library that an array is of."""
    return type(array).__module__.split(".")[0]


# ---- Parts of arrays


def part_of(array: Any, layout: str, sequences: Sequences, part: Part, *, keys: bool = False) -> Any:
    """The rows of a part, or its keys, as an array of four dimensions in the same memory; of a layout "BHND" or "BNHD".
    Packed arrays have three: "HND" or "NHD"."""
    first, length = (part.first.key, part.first.keys) if keys else (part.first.row, part.first.rows)
    if not sequences.packed:
        batches, some = slice(part.first.batch, part.first.batch + part.batches), slice(first, first + length)
        return array[batches, :, some] if layout == "BHND" else array[batches, some]
    some = slice(first, first + part.batches * length)
    if layout == "BNHD":
        return array[some].reshape(part.batches, length, *array.shape[1:])
    heads, _, d = array.shape
    return array[:, some].reshape(heads, part.batches, length, d).swapaxes(0, 1)


def clear_gaps(array: Any, layout: str, sequences: Sequences) -> None:
    """Rows of an array like Q that are none of a sequence with keys become 0."""
    for batch, first, end in sequences.gaps:
        some, of_batch = slice(first, end), () if sequences.packed else (batch,)
        array[(*of_batch, some) if layout == "BNHD" else (*of_batch, slice(None), some)] = 0


def lse_of(lse: Any, sequences: Sequences, part: Part) -> Any:
    """The LSE of a part, (sequences, heads, rows), in the memory of all: (batch, heads, Nq), or packed (heads, Nq)."""
    first, length = part.first.row, part.first.rows
    if not sequences.packed:
        return lse[part.first.batch : part.first.batch + part.batches, :, first : first + length]
    return lse[:, first : first + part.batches * length].reshape(len(lse), part.batches, length).swapaxes(0, 1)


def four_dimensions(name: str, array: Any, layout: str, packed: bool) -> Operand:
    """An array as an operand; packed arrays, which have three dimensions, as those of one batch."""
    if not packed or not hasattr(array, "shape"):
        return operand(name, array, layout)
    check_packed(name, array, layout)
    return replace(operand(name, array[None], layout), array=array)


def check_packed(name: str, array: Any, layout: str) -> None:
    """Raise ValueError for other dimensions than three."""
    if len(array.shape) != 3:
        shape = "(heads, N, d)" if layout == "BHND" else "(N, heads, d)"
        raise ValueError(f"{name} has {len(array.shape)} dimensions: packed arrays have three, here {shape}")

"""Arrays of a head size that kernels cannot load: copies whose rows have zero columns up to the next multiple.

Kernels load 16 bytes of a row at once: 4 columns of float32, 8 of 16 bits. Arrays of any other d are copied to such
rows by one launch of kernels/columns.cu, whatever their strides, and what is written comes back by another. The copies
are arrays of the caller's library, so that they live as long as a graph that captured them.
"""

from collections.abc import Sequence
from contextlib import AbstractContextManager
from functools import lru_cache
from typing import Any, Self

from hw4cli.arrays.operand import Operand, address_of, check_capture, empty_like
from hw4cli.device.gpu import Gpu
from hw4cli.plans import columns
from hw4cli.plans.columns import Copied
from hw4cli.plans.launch import Matrix
from hw4cli.plans.plan import Launch
from hw4cli.problem.workload import stored_d


class Staged(AbstractContextManager["Staged"]):
    """`given` and `made` are what kernels read and write in place of some operands: these themselves, where kernels can
    load their rows; else others, into which the beginning of a `with` block copies what is given, and from which its
    end copies what was made, which `copies` says. There may be any number of blocks, one after the other.

    All is enqueued on a stream of cupy's; nothing is waited for. Raises ValueError if a CUDA graph is captured, and the
    kernel that copies is not compiled yet.
    """

    def __init__(self, gpu: Gpu, stream: Any, given: Sequence[Operand], made: Sequence[Operand]) -> None:
        self._gpu, self._stream, self._given, self._made = gpu, stream, tuple(given), tuple(made)
        self.given, self.made, first = self._given, self._made, given[0]
        self.copies = not is_loadable(first)
        if self.copies:
            check_capture(first, gpu.is_compiled(columns.CODE))
            self.given, self.made = (tuple(map(_wide, operands)) for operands in (given, made))

    def __enter__(self) -> Self:
        if self.copies:
            self._copy(self._given, self.given)
        return self

    def __exit__(self, kind: Any, error: Any, trace: Any) -> None:
        if self.copies and kind is None:
            self._copy(self.made, self._made)

    def _copy(self, sources: Sequence[Operand], targets: Sequence[Operand]) -> None:
        step, passed = _launch(targets[0].element, tuple(map(_place, sources)), tuple(map(_place, targets)))
        with self._stream:
            self._gpu.copy(step, passed, self._stream)


def is_loadable(x: Operand) -> bool:
    """Whether rows of so many columns are whole chunks of 16 bytes."""
    return stored_d(x.shape[3], x.element) == x.shape[3]


# Small arrays are computed again and again, at the same addresses: what the launches need is made once.
REMEMBERED = 256
Place = tuple[int, tuple[int, ...], tuple[int, ...]]  # address, shape, strides


def _place(x: Operand) -> Place:
    return x.address, x.shape, x.strides


@lru_cache(REMEMBERED)
def _launch(element: int, sources: tuple[Place, ...], targets: tuple[Place, ...]) -> tuple[Launch, bytes]:
    """The copy of arrays to others of as many heads and rows; columns that these have more become zeros."""

    def copied(source: Place, target: Place) -> Copied:
        (at, (batches, heads, rows, given), steps), (to, (*_, wanted), other_steps) = source, target
        return Copied(Matrix(at, *steps), Matrix(to, *other_steps), batches, heads, rows, min(given, wanted), wanted)

    copies = [copied(*both) for both in zip(sources, targets, strict=True)]
    return columns.launch_of(copies, element), columns.arguments(copies)


@lru_cache(REMEMBERED)
def _one_after_the_other(shape: tuple[int, ...], element: int) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """The shape of an array with rows that kernels can load, and its strides, as an Operand has them."""
    batch, heads, rows, d = shape
    wide = stored_d(d, element)
    steps = heads * rows * wide, rows * wide, wide, 1
    whole = batch, heads, rows, wide
    return whole, tuple(step if size > 1 else 0 for step, size in zip(steps, whole, strict=True))


def _wide(x: Operand) -> Operand:
    """A new array of the same library for the same rows."""
    shape, strides = _one_after_the_other(x.shape, x.element)
    array = empty_like(x, shape)
    return Operand(x.name, x.library, x.dtype, shape, strides, address_of(array), x.device, array, "BHND")

"""Arrays of a head size that kernels cannot load: copies whose rows have zero columns up to the next multiple.

Kernels load 16 bytes of a row at once: 4 columns of float32, 8 of 16 bits. Arrays of any other d are copied to such
rows by one launch of kernels/columns.cu, whatever their strides, and what is written comes back by another. The copies
are arrays of the caller's library, so that they live as long as a graph that captured them.
"""

from collections.abc import Sequence
from contextlib import AbstractContextManager
from dataclasses import replace
from typing import Any, Self

from hw4cli.arrays.operand import Operand, address_of, check_capture, empty_like
from hw4cli.compute import columns
from hw4cli.compute.columns import Copied
from hw4cli.device.gpu import Gpu
from hw4cli.problem.shape import stored_d


class Staged(AbstractContextManager["Staged"]):
    """`given` and `made` are what kernels read and write in place of some operands: these themselves, where kernels can
    load their rows; else others, into which the beginning of a `with` block copies what is given, and from which its
    end copies what was made. There may be any number of blocks, one after the other.

    All is enqueued on a stream of cupy's; nothing is waited for. Raises ValueError if a CUDA graph is captured, and the
    kernel that copies is not compiled yet.
    """

    def __init__(self, gpu: Gpu, stream: Any, given: Sequence[Operand], made: Sequence[Operand]) -> None:
        self._gpu, self._stream, self._given, self._made = gpu, stream, tuple(given), tuple(made)
        self.given, self.made, first = self._given, self._made, given[0]
        self._copies = not is_loadable(first)
        if self._copies:
            check_capture(first, gpu.is_compiled(columns.CODE))
            self.given, self.made = (tuple(map(_wide, operands)) for operands in (given, made))

    def __enter__(self) -> Self:
        if self._copies:
            self._copy(self._given, self.given)
        return self

    def __exit__(self, kind: Any, error: Any, trace: Any) -> None:
        if self._copies and kind is None:
            self._copy(self.made, self._made)

    def _copy(self, sources: Sequence[Operand], targets: Sequence[Operand]) -> None:
        copies = [copied(source, target) for source, target in zip(sources, targets, strict=True)]
        with self._stream:
            self._gpu.copy(copies, self._stream, targets[0].element)


def is_loadable(x: Operand) -> bool:
    """Whether rows of so many columns are whole chunks of 16 bytes."""
    return stored_d(x.shape[3], x.element) == x.shape[3]


def copied(source: Operand, target: Operand) -> Copied:
    """A copy of one array to another of as many heads and rows; columns that it has more become zeros."""
    (batches, heads, rows, given), columns_of = source.shape, target.shape[3]
    return Copied(source.matrix, target.matrix, batches, heads, rows, min(given, columns_of), columns_of)


def _wide(x: Operand) -> Operand:
    """A new array of the same library for the same rows, one after the other."""
    batch, heads, rows, d = x.shape
    wide = stored_d(d, x.element)
    shape, steps = (batch, heads, rows, wide), (heads * rows * wide, rows * wide, wide, 1)
    strides = tuple(step if size > 1 else 0 for step, size in zip(steps, shape, strict=True))
    array = empty_like(x, shape)
    return replace(x, shape=shape, strides=strides, address=address_of(array), array=array, layout="BHND")

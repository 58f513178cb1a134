"""Arrays of a head size that kernels cannot load: copies whose rows have zero columns up to the next multiple. Where V
has another number of columns than Q, for kernels that do not know of it: up to that of the widest.

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

    def __init__(
        self, gpu: Gpu, stream: Any, given: Sequence[Operand], made: Sequence[Operand], alike: bool = True
    ) -> None:
        """`alike`: all get as many columns as the widest."""
        self._gpu, self._stream, self._given, self._made = gpu, stream, tuple(given), tuple(made)
        self.given, self.made = self._given, self._made
        self.copies = not are_loadable((*given, *made), alike)
        if self.copies:
            check_capture(given[0], gpu.is_compiled(columns.CODE))
            least = max(x.shape[3] for x in (*given, *made)) if alike else 0
            self.given, self.made = (tuple(_wide(x, least) for x in operands) for operands in (given, made))

    def __enter__(self) -> Self:
        if self.copies:
            self._copy(self._given, self.given)
        return self

    def __exit__(self, kind: Any, error: Any, trace: Any) -> None:
        if self.copies and kind is None:
            self._copy(self.made, self._made)

    def _copy(self, sources: Sequence[Operand], targets: Sequence[Operand]) -> None:
        pairs = [(source, target) for source, target in zip(sources, targets, strict=True) if source is not target]
        if not pairs:
            return
        each = (tuple(map(_place, some)) for some in zip(*pairs, strict=True))
        step, passed = _launch(targets[0].element, *each)
        with self._stream:
            self._gpu.copy(step, passed, self._stream)


def are_loadable(operands: Sequence[Operand], alike: bool = True) -> bool:
    """Whether the rows of all are whole chunks of 16 bytes; `alike`: and all of as many columns."""
    widths = {x.shape[3] for x in operands}
    return (len(widths) == 1 or not alike) and all(stored_d(d, operands[0].element) == d for d in widths)


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
def _one_after_the_other(shape: tuple[int, ...], wide: int) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """The shape of an array with so wide rows, and its strides, as an Operand has them."""
    batch, heads, rows, _ = shape
    steps = heads * rows * wide, rows * wide, wide, 1
    whole = batch, heads, rows, wide
    return whole, tuple(step if size > 1 else 0 for step, size in zip(steps, whole, strict=True))


def _wide(x: Operand, least: int) -> Operand:
    """A new array of the same library for the same rows, with so many columns at least; the same one if it has them,
    and kernels can load them."""
    columns = stored_d(max(x.shape[3], least), x.element)
    if columns == x.shape[3]:
        return x
    shape, strides = _one_after_the_other(x.shape, columns)
    array = empty_like(x, shape)
    return Operand(x.name, x.library, x.dtype, shape, strides, address_of(array), x.device, array, "BHND")

"""Head sizes that kernels cannot load: rows get zero columns up to the next multiple, and O loses them again.

Kernels load 16 bytes of a row at once. Of any other head size, Q, K and V are copied to such rows by kernels/columns.cu
before a plan's launches, and O is copied back behind them. The scale stays that of the true head size. Zero columns add
exact zeros to every sum, so the bounds of the error (hw4cli/plans/bounds.py) are those of the true head size, too.
"""

import struct
from collections.abc import Sequence
from typing import NamedTuple

from hw4cli.plans.formulas import FLOAT, ceil_div
from hw4cli.plans.launch import Matrices, Matrix, coordinates
from hw4cli.plans.plan import Kernel, Launch, Plan
from hw4cli.problem.workload import Workload, stored_d

COLUMNS = Kernel("columns", "copies of rows, with zero columns behind them or without")
# kernels/columns.cu: matrices of a launch, threads of a block, and how many elements a block copies at most.
MOST, THREADS, PASS = 5, 256, 4096
_MATRIX = struct.Struct("<10q q 5i 4x")  # CopiedMatrix
SYMBOLS = ("columns32", "widen16", "narrow16")
CODE = Plan(COLUMNS.name, {}, tuple(Launch(symbol, 0, THREADS, 0) for symbol in SYMBOLS))  # whatever is copied


class Copied(NamedTuple):
    """A matrix that is copied, of so many rows in each head of each batch: rows of `given` columns become rows of
    `columns`, the last of which are zeros."""

    source: Matrix
    target: Matrix
    batches: int
    heads: int
    rows: int
    given: int
    columns: int

    @property
    def block_rows(self) -> int:
        """Rows that a block copies."""
        return max(1, PASS // self.columns)

    @property
    def blocks(self) -> int:
        """Blocks for the matrix."""
        return self.batches * self.heads * ceil_div(self.rows, self.block_rows)


def launch_of(copies: Sequence[Copied], element: int = FLOAT) -> Launch:
    """The launch that copies at most MOST matrices, all to more columns or none, of elements of so many bytes."""
    widens = any(one.columns > one.given for one in copies)
    symbol = "columns32" if element == FLOAT else "widen16" if widens else "narrow16"
    return Launch(symbol, sum(one.blocks for one in copies), THREADS, 0)


def needed(d: int, element: int = FLOAT) -> list[Plan]:
    """What must be compiled beside the kernels for rows of d columns: the kernel that copies, if they are copied."""
    return [] if stored_d(d, element) == d else [CODE]


def arguments(copies: Sequence[Copied]) -> bytes:
    """Its one argument: CopyParams."""
    packed = [_packed(one) for one in copies]
    return b"".join(packed).ljust(MOST * _MATRIX.size, b"\0")


def _packed(one: Copied) -> bytes:
    source, target = (*coordinates(one.source), one.source.column), (*coordinates(one.target), one.target.column)
    return _MATRIX.pack(*source, *target, one.blocks, one.heads, one.rows, one.block_rows, one.given, one.columns)


class Staged(NamedTuple):
    """Where a plan's launches find Q, K, V and O, and what is copied before and after them."""

    matrices: Matrices
    before: tuple[Copied, ...] = ()
    after: tuple[Copied, ...] = ()


def staged(plan: Plan, shape: Workload, matrices: Matrices, scratch: int) -> Staged:
    """The matrices themselves, if the kernels can load their rows; else others in the plan's scratch memory.

    There Q, K and V of each batch lie one after the other, as in a file, and behind all of them O.
    """
    if plan.layout.staged is None:
        return Staged(matrices)
    d, row, (queries, keys) = shape.d, plan.d, (shape.Nq, shape.N)
    at, batch = scratch + plan.layout.staged, (queries + 2 * keys) * row
    firsts = (0, queries * row, (queries + keys) * row)
    inputs = [Matrix(at + FLOAT * first, batch, batch, row) for first in firsts]
    o = Matrix(at + FLOAT * shape.B * batch, queries * row, queries * row, row)
    counts = (queries, keys, keys)
    before = tuple(
        Copied(source, target, shape.B, 1, rows, d, row)
        for source, target, rows in zip(matrices[:3], inputs, counts, strict=True)
    )
    after = Copied(o, matrices[3], shape.B, 1, queries, d, d)
    q, k, v = inputs
    return Staged((q, k, v, o), before, (after,))

"""What a launch passes to a kernel: the bytes of `struct Params` in kernels/params.cuh."""

import struct
from dataclasses import dataclass

from hw4cli.compute.plan import Plan
from hw4cli.problem.shape import Shape

ABSMAX_CHUNK, ABSMAX_THREADS = 16384, 256  # kernels/absmax.cu: elements and threads of a block
ABSMAX_BYTES = 12  # that must be 0 before a launch: three numbers

# The members of the struct in their order, each with its code of Python's struct module.
MATRIX = {"data": "Q", "batch": "q", "head": "q", "row": "q"}
FIELDS = {
    **{f"{name}.{member}": code for name in "qkvo" for member, code in MATRIX.items()},
    **dict.fromkeys(("lse", "scratch", "absmax", "tiles", "row_stats", "partial_o"), "Q"),
    **dict.fromkeys(("batches", "heads", "Nq", "Nk", "splits"), "i"),
    "scale": "f",
    "causal_offset": "i",
}
_LAYOUT = struct.Struct("@" + "".join(FIELDS.values()) + "0Q")  # aligned as the compiler does, the end too
SIZE = _LAYOUT.size


@dataclass(frozen=True)
class Matrix:
    """Where a matrix (B, N, d) lies: its address, and the elements from a batch, head or row to the next."""

    data: int
    batch: int
    head: int
    row: int


Matrices = tuple[Matrix, Matrix, Matrix, Matrix]


def block_matrices(shape: Shape, inputs: int, outputs: int) -> Matrices:
    """Q, K, V and O of batches as a case's file has them: (B, 3, N, d) at one address, (B, N, d) at the other."""
    one = shape.N * shape.d
    q, k, v = (Matrix(inputs + 4 * index * one, 3 * one, 3 * one, shape.d) for index in range(3))
    return q, k, v, Matrix(outputs, one, one, shape.d)


def arguments(
    plan: Plan,
    shape: Shape,
    matrices: Matrices,
    scratch: int,
    lse: int = 0,
    scale: float | None = None,
    offset: int = 0,
) -> bytes:
    """The one argument of each of a plan's launches, as bytes.

    `matrices` are Q, K, V and O; at `scratch` are plan.scratch bytes; at `lse`, if it is not 0, (B, rows) floats, in
    which each row's log of the sum of exp(score) is wanted. `scale`: of the scores, if not 1/sqrt(d). Causal: row i
    sees the keys up to i + offset.
    """
    layout = plan.layout
    parts = (scratch, scratch, scratch + layout.tiles, scratch + layout.row_stats, scratch + layout.partial_o)
    members = [number for m in matrices for number in (m.data, m.batch, m.head, m.row)]
    sizes = shape.B, 1, shape.rows, shape.N, plan.splits
    return _LAYOUT.pack(*members, lse, *parts, *sizes, scale or shape.d**-0.5, offset)

"""What a launch passes to a kernel: the bytes of `struct Params` in kernels/params.cuh."""

import math
import struct
from collections.abc import Sequence
from typing import NamedTuple

from hw4cli.plans.formulas import ceil_div
from hw4cli.plans.plan import Kernel, Launch, Plan
from hw4cli.problem.workload import Magnitudes, Workload

ABSMAX = Kernel("absmax", "the range check: how large Q, K and V are; it is compiled behind every kernel")
ABSMAX_CHUNK, ABSMAX_THREADS = 16384, 256  # kernels/absmax.cu: elements and threads of a block
# What kernels leave (kernels/absmax.cuh), and must be 0 before: of Q and K the largest |element| and the largest sum of
# a row's squares, each rounded up to a multiple of SQUARES_UNIT, which is right below SQUARES_BELOW; of V the former.
ABSMAX_BYTES = 20  # five numbers
SQUARES_UNIT, SQUARES_BELOW = 2.0**-7, 2.0**16

# The members of the struct in their order, each with its code of Python's struct module.
MATRIX = {"data": "Q", "batch": "q", "head": "q", "row": "q"}
FIELDS = {
    **{f"{name}.{member}": code for name in "qkvo" for member, code in MATRIX.items()},
    **dict.fromkeys(("lse", "scratch", "absmax", "tiles", "row_stats", "partial_o"), "Q"),
    **dict.fromkeys(("batches", "heads", "Nq", "Nk", "splits"), "i"),
    "scale": "f",
    "causal_offset": "i",
    "window": "i",
}
COORDINATES = "".join(MATRIX.values())  # of struct Matrix, which the structs of all families have for each matrix
_LAYOUT = struct.Struct("@" + "".join(FIELDS.values()) + "0Q")  # aligned as the compiler does, the end too
SIZE = _LAYOUT.size
_ABSMAX = struct.Struct("<2Q3i4x")


Steps = tuple[int, int, int]  # elements from a batch, a head, a row to the next


class Matrix(NamedTuple):
    """Where a matrix (B, N, d) lies: its address, and the elements from a batch, head, row or column to the next."""

    data: int
    batch: int
    head: int
    row: int
    column: int = 1  # of all that kernels load but the one that copies columns

    @property
    def steps(self) -> Steps:
        """The strides but for the address."""
        return self.batch, self.head, self.row


Matrices = tuple[Matrix, Matrix, Matrix, Matrix]


def coordinates(*matrices: Matrix) -> list[int]:
    """What is passed to a kernel of where matrices lie: COORDINATES of each."""
    return [number for m in matrices for number in (m.data, m.batch, m.head, m.row)]


class Box(NamedTuple):
    """A tensor of 16-bit numbers, and the box of it that a copy brings, swizzled over 128 bytes or as it is.

    Sizes of columns, rows, heads, batches; strides, in bytes, of the last three.
    """

    address: int
    bfloat: bool
    sizes: tuple[int, int, int, int]
    strides: tuple[int, int, int]
    box: tuple[int, int, int, int]
    swizzled: bool = True


def block_matrices(shape: Workload, inputs: int, outputs: int) -> Matrices:
    """Q, K, V and O of batches as a case's file has them: (B, 3, N, d) at one address, (B, N, d) at the other."""
    one = shape.N * shape.d
    q, k, v = (Matrix(inputs + 4 * index * one, 3 * one, 3 * one, shape.d) for index in range(3))
    return q, k, v, Matrix(outputs, one, one, shape.d)


def absmax_launch(parts: int, N: int, d: int) -> Launch:
    """The launch of the range check for so many matrices of N rows."""
    return Launch(ABSMAX.name, parts * ceil_div(N, ABSMAX_CHUNK // d), ABSMAX_THREADS, 0)


def absmax_arguments(elements: int, largest: int, N: int, d: int, first: int) -> bytes:
    """The one argument of the range check, AbsmaxParams: where the matrices lie, Q, K and V in turn from the first (0:
    Q) on, and where the five numbers do."""
    return _ABSMAX.pack(elements, largest, N, d, first)


def magnitudes(found: Sequence[float]) -> Magnitudes:
    """What the numbers say that a kernel has left."""
    q, q_squares, k, k_squares, v = map(float, found)
    return Magnitudes(q, k, v, _norm(q_squares), _norm(k_squares))


def _norm(squares: float) -> float:
    """The norm whose square is at most this; of squares below 2^-126 a GPU adds none."""
    return math.sqrt(squares + 2.0**-100) * (1 + 2.0**-50) if squares < SQUARES_BELOW else math.inf


def arguments(
    plan: Plan,
    shape: Workload,
    matrices: Matrices,
    scratch: int,
    lse: int = 0,
    offset: int = 0,
    scoring: bytes = b"",
) -> bytes:
    """The one argument of each of a plan's launches, as bytes.

    `matrices` are Q, K, V and O; at `scratch` are plan.scratch bytes; at `lse`, if it is not 0, (B, rows) floats, in
    which each row's log of the sum of exp(score) is wanted. Causal: row i sees the keys up to i + offset. `scoring`:
    of plans/scoring.py.
    """
    layout = plan.layout
    parts = (scratch, scratch, scratch + layout.tiles, scratch + layout.row_stats, scratch + layout.partial_o)
    sizes = shape.B, 1, shape.Nq, shape.N, plan.splits
    return _LAYOUT.pack(*coordinates(*matrices), lse, *parts, *sizes, shape.scale, offset, shape.window) + scoring

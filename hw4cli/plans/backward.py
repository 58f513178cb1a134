"""The launches of kernels/backward.cu for a workload, and the bytes that they are passed."""

import struct
from typing import Any, NamedTuple

from hw4cli.errors import MachineError
from hw4cli.plans.common import padded_d
from hw4cli.plans.formulas import FLOAT, ceil_div
from hw4cli.plans.launch import COORDINATES, Matrix, coordinates
from hw4cli.plans.plan import DeviceProperties, Launch, Plan, Scratch, mask_macros
from hw4cli.plans.scoring import Heads, scoring
from hw4cli.problem.workload import BFLOAT16, FLOAT32, Workload

NAME = "backward"
DELTA_ROWS = 32  # lanes to a row of delta
# BackwardParams in kernels/gradients.cuh.
_LAYOUT = struct.Struct("@" + 8 * COORDINATES + "QqqQ" + "6i" + "fii" + "0Q")
PARAMS_BYTES = _LAYOUT.size


class Tile(NamedTuple):
    """Rows of a block, rows that it streams, and how many of each a thread multiplies."""

    rows: int
    streamed: int
    own: int
    each: int

    @property
    def threads(self) -> int:
        """Of a block."""
        return self.rows // self.own * (self.streamed // self.each)

    def shared(self, width: int) -> int:
        """Bytes of a block's shared memory: two tiles owned, two streamed, and P or dS."""
        return FLOAT * (2 * (self.rows + self.streamed) * width + self.rows * self.streamed)


# For each width of rows, the largest that fits. More than 32 owned rows of 128 columns would take too many registers.
TILES = {
    32: (Tile(64, 64, 8, 4), Tile(32, 32, 4, 4)),
    64: (Tile(64, 64, 8, 4), Tile(32, 32, 4, 4)),
    128: (Tile(32, 64, 4, 4), Tile(32, 32, 4, 4), Tile(16, 16, 4, 2)),
    256: (Tile(16, 16, 2, 2), Tile(16, 8, 2, 1), Tile(8, 8, 2, 1)),
}


class Arrays(NamedTuple):
    """Where q, k, v, o, do, dq, dk and dv lie, in this order, strides in elements; and the addresses of the LSE and of
    a plan's scratch. `whole`: o and the LSE are of these keys, and no others. `lse_steps`: from a batch of the LSE to
    the next, and from a head; (batch, heads, Nq) is contiguous if they are not given. `views`: the addresses of the
    arrays that a score names; `scores`: that of the float32 array of the shape work.of_scores in which gradients of
    scores are wanted; `heads`: which ones these are for a score, if not those of all batches. `score_steps`: from a
    head of the gradients of scores to the next, and from a row, if that is another workload's."""

    matrices: tuple[Matrix, ...]
    lse: int
    scratch: int
    whole: bool = True
    lse_steps: tuple[int, int] | None = None
    views: tuple[int, ...] = ()
    scores: int = 0
    heads: Heads | None = None
    score_steps: tuple[int, int] | None = None

    def log_sums(self, work: Workload) -> tuple[int, int, int]:
        """What is passed to kernels of where the LSE lies."""
        return (self.lse, *(self.lse_steps or (work.heads * work.Nq, work.Nq)))


def takes(work: Workload, props: DeviceProperties) -> bool:
    """Whether the kernel runs there: anywhere."""
    return True


def plan(work: Workload, props: DeviceProperties, tile: Tile | None = None) -> Plan:
    """The three launches for a workload. Raises MachineError where no tile fits a block's shared memory."""
    width = padded_d(work.d)
    fitting = [one for one in (tile and (tile,)) or TILES[width] if one.shared(width) <= props.shared_limit]
    if not fitting:
        raise MachineError(f"gradients at d={work.d} do not fit {props.shared_limit:,} bytes of shared memory a block")
    best = fitting[0]
    macros = {
        "D": work.d,
        "WIDTH": width,
        "BR": best.rows,
        "BC": best.streamed,
        "OWN": best.own,
        "STREAMED": best.each,
        "THREADS": best.threads,
        "ELEMENT_BITS": 32 if work.dtype == FLOAT32 else 16,
        "BFLOAT16": int(work.dtype == BFLOAT16),
        **({"CAUSAL": 1} if work.causal else {}),
        **mask_macros(work),
    }
    threads, shared = best.threads, best.shared(width)
    rows = work.batch * work.heads * work.Nq
    launches = (
        Launch("backward_delta", ceil_div(rows * DELTA_ROWS, threads), threads, 0),
        Launch("backward_dq", work.row_tiles(best.rows), threads, shared),
        Launch("backward_dkdv", work.batch * work.kv_heads * ceil_div(work.Nk, best.rows), threads, shared),
    )
    stats = 2 if work.dtype == FLOAT32 else 1  # of a row: delta, and what divides its weights
    return Plan(NAME, macros, launches, Scratch(stats * FLOAT * rows))


def arguments(work: Workload, planned: Plan, arrays: Arrays, encode: Any = None) -> bytes:
    """The one argument of each launch. It has no tensor maps, which `encode` would make."""
    sizes = (work.batch, work.heads, work.kv_heads, work.Nq, work.Nk, work.offset)
    memory = *arrays.log_sums(work), arrays.scratch
    fixed = _LAYOUT.pack(*coordinates(*arrays.matrices), *memory, *sizes, work.scale, arrays.whole, work.window)
    return fixed + scoring(work, arrays.views, arrays.scores, arrays.heads, steps=arrays.score_steps)

"""The launches of kernels/backward_once.cu and backward_atomic.cu (16-bit numbers, Hopper, one pass), and the bytes
that they are passed."""

from collections.abc import Callable
from dataclasses import dataclass

from hw4cli.arrays.half import Box
from hw4cli.arrays.workload import Workload
from hw4cli.compute.formulas import FLOAT, ceil_div
from hw4cli.compute.plan import DeviceProperties, Launch, Plan, Scratch
from hw4cli.gradients import hopper
from hw4cli.gradients.plan import Arrays

NAME = "backward_once"
KEYS = 2 * hopper.OWNED  # that a block owns
STAGES, SUMS = 2, 2  # buffers for tiles of Q and dO, and of dQ
ROUND_THREADS = 256
SUMS_TOGETHER = 1 << 26  # bytes of sums of dQ of shared heads that a causal pass works on together: the best on an H200


@dataclass(frozen=True)
class OnePass:
    """A kernel of one pass, which adds to dQ in the order of the keys or not."""

    name: str

    def takes(self, work: Workload, props: DeviceProperties) -> bool:
        """Whether the kernel runs there, and takes such elements and rows."""
        return hopper.takes(work, props)

    def plan(self, work: Workload, props: DeviceProperties, tile: None = None) -> Plan:
        """The three launches for a workload. Raises MachineError where the kernels do not run."""
        hopper.check(self.name, work, props)
        width, rows = hopper.columns(work), tile_rows(work)
        macros = {**hopper.common_macros(work), "ONCE_TILE": rows, "ONCE_STAGES": STAGES, "ONCE_SUMS": SUMS}
        streams = hopper.Pass(2, rows, STAGES)
        before = streams.shared(width, stats=True) + 16 * SUMS + 16
        shared = ceil_div(before, 1024) * 1024 + 2 * KEYS * rows * 2 + SUMS * rows * width * FLOAT
        own = work.batch * work.kv_heads * ceil_div(work.Nk, KEYS)
        launches = (
            hopper.stats_launch(work, rows),
            Launch(self.name, min(props.sms, own), streams.threads, shared),
            Launch("backward_round", work.row_tiles(rows), ROUND_THREADS, 0),
        )
        return Plan(self.name, macros, launches, scratch(work))

    def arguments(
        self, work: Workload, arrays: Arrays, scale: float, planned: Plan, encode: Callable[[Box], bytes]
    ) -> bytes:
        """The one argument of each launch; `encode` makes tensor maps."""
        sums, counts = arrays.scratch + planned.layout.tiles, arrays.scratch + planned.layout.row_stats
        return hopper.tiled_arguments(
            work, arrays, scale, encode, (hopper.OWNED, tile_rows(work)), section(work), sums, counts
        )


ONCE, ATOMIC = OnePass(NAME), OnePass("backward_atomic")


def tile_rows(work: Workload) -> int:
    """Rows of a tile of Q: two groups of four warps compute 64 x 64 numbers of dQ each."""
    return KEYS * hopper.OWNED // hopper.columns(work)


def section(work: Workload) -> int:
    """Heads of K and V that are worked on together: more keep blocks from waiting for each other, fewer keep the sums
    of dQ in the L2 cache, of which heads that are shared have more."""
    if work.heads == work.kv_heads:
        return hopper.section(work)
    if not work.causal:
        return 2 * hopper.section(work)
    sums = FLOAT * hopper.columns(work) * work.Nq * (work.heads // work.kv_heads)
    return max(1, min(hopper.section(work), SUMS_TOGETHER // sums))


def scratch(work: Workload) -> Scratch:
    """Stats; dQ in float32, of whole tiles; a count for each tile, and the number of the next task."""
    rows = hopper.stats_rows(work, tile_rows(work))
    sums = hopper.STATS_BYTES * rows
    counts = sums + FLOAT * rows * hopper.columns(work)
    return Scratch(counts + 4 * (rows // tile_rows(work) + 1), tiles=sums, row_stats=counts)

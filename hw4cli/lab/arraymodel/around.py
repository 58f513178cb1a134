"""What launches before and behind the passes of gradients move: numbers of each row, pieces of matrices, sums of dQ."""

from hw4cli.lab.arraymodel.counts import Sizes
from hw4cli.lab.measure.model import LaunchModel
from hw4cli.lab.stepper.wavefronts import SECTOR
from hw4cli.plans import backwardwgmma as hopper
from hw4cli.plans.backwardcut import Cut, part_bytes, sum_bytes
from hw4cli.plans.formulas import FLOAT
from hw4cli.plans.gradients import GRADIENTS
from hw4cli.plans.plan import Launch, Plan
from hw4cli.problem.workload import BFLOAT16, FLOAT32, Workload

STATS = 2 * FLOAT  # bytes of a row's LSE and delta
COUNT = 4  # bytes


def is_one_pass(plan: Plan) -> bool:
    """Whether scores are computed once, for all three gradients."""
    return "ONCE_TILE" in plan.macros


def delta(plan: Plan, launch: Launch, work: Workload, sizes: Sizes) -> LaunchModel:
    """A warp a row: its one number leaves as a sector."""
    return LaunchModel(
        launch.symbol,
        (2 * sizes.q, FLOAT * sizes.rows),
        (2 * sizes.q, SECTOR * sizes.rows),
        0,
        ffma_flops=2 * work.d * sizes.rows,
    )


def stats(plan: Plan, launch: Launch, work: Workload, sizes: Sizes) -> LaunchModel:
    """From O, dO and the LSE two numbers a row, also of rows that fill a tile; one pass also clears its
    counts, and backward_atomic its sums."""
    streamed = plan.macros["ONCE_TILE"] if is_one_pass(plan) else plan.macros["DKDV_TILE"]
    rows = hopper.stats_rows(work, streamed)
    counts = COUNT * (Cut(*plan.cut).chains * rows // streamed + 1) if is_one_pass(plan) else 0
    if not GRADIENTS[plan.variant].repeatable:
        counts += sums(plan, work)
    read = 2 * sizes.q + FLOAT * sizes.rows
    return LaunchModel(
        launch.symbol,
        (read, STATS * rows + counts),
        (read, STATS * rows + counts),
        0,
        ffma_flops=2 * work.d * sizes.rows,
    )


def pieces(plan: Plan, launch: Launch, work: Workload, sizes: Sizes) -> LaunchModel:
    """From O, dO and the LSE two numbers a row, which leave as a sector; of V, but for bfloat16, the largest, and
    scales of each tile; of float32 all four matrices in two pieces, as many bytes. What is left in shared memory is
    next to nothing."""
    matrices, scales = (2 * sizes.q, 0) if work.dtype == BFLOAT16 else (2 * sizes.q + sizes.k, launch.grid)
    parts = 0
    if work.dtype == FLOAT32:
        matrices, parts = 3 * sizes.q + 2 * sizes.k, 2 * (sizes.q + sizes.k)
    read = matrices + FLOAT * sizes.rows
    return LaunchModel(
        launch.symbol,
        (read, parts + STATS * sizes.rows + 4 * FLOAT * scales),
        (read, parts + SECTOR * (sizes.rows + scales)),
        ffma_flops=2 * work.d * sizes.rows,
    )


def round_sums(plan: Plan, launch: Launch, work: Workload, sizes: Sizes) -> LaunchModel:
    """The sums of whole tiles become rows of dQ; those of parts, rows of dK and dV."""
    parts, keys = part_sums(plan, work, sizes)
    moved = sums(plan, work) + parts, sizes.q + keys
    return LaunchModel(launch.symbol, moved, moved, 0)


def sums(plan: Plan, work: Workload) -> int:
    """Bytes of dQ in float32, of whole tiles, of all chains."""
    return Cut(*plan.cut).chains * sum_bytes(work)


def part_sums(plan: Plan, work: Workload, sizes: Sizes) -> tuple[int, int]:
    """Bytes of parts' sums of dK and dV, and of dK and dV that are added up from them."""
    cut = Cut(*plan.cut)
    heads = work.batch * work.kv_heads
    return part_bytes(work, cut), 2 * sizes.k * (heads - cut.first) // heads if cut.parts > 1 else 0

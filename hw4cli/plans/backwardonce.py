"""The launches of kernels/backward_once.cu and backward_atomic.cu (16-bit numbers, Hopper, one pass), and the bytes
that they are passed."""

from collections.abc import Callable

from hw4cli.errors import MachineError
from hw4cli.plans import backwardwgmma as hopper
from hw4cli.plans.backward import Arrays
from hw4cli.plans.backwardcut import KEYS, Cut, best_cut, part_bytes, section, sum_bytes, tile_rows
from hw4cli.plans.formulas import FLOAT, ceil_div
from hw4cli.plans.launch import Box
from hw4cli.plans.plan import DeviceProperties, Launch, Plan, Scratch
from hw4cli.plans.spans import Owned
from hw4cli.problem.workload import Workload

NAME = "backward_once"
ATOMIC = "backward_atomic"  # its twin, which adds to dQ in any order
STAGES, SUMS = 2, 2  # buffers for tiles of Q and dO, and of dQ
# Blocks of 8 queries whose weights are summed up early, by columns and without or with a mask: the fastest on an H200.
EARLY = {64: (4, 6), 128: (8, 2)}
MOST_EARLY = 6  # of sequences of several lengths, and where a tile misses keys: more would take too many registers
ROUND_THREADS = 256
ADDED_COLUMNS = 32  # of dK or dV, that a block adds up


def plan(work: Workload, props: DeviceProperties, tile: Cut | None = None, name: str = NAME) -> Plan:
    """The three launches for a workload, of the kernel that adds to dQ in the order of the keys, or of ATOMIC. Raises
    MachineError where the kernels do not run."""
    hopper.check(name, work, props)
    cut = tile or best_cut(work, props.sms)
    if name == ATOMIC and not tile:
        cut = cut._replace(chains=1)
    if work.window and cut.parts > 1:
        raise MachineError(f"kernel {name} computes windows of keys without parts of heads or rows")
    width, rows = hopper.columns(work), tile_rows(work)
    macros = {**hopper.common_macros(work), "ONCE_TILE": rows, "ONCE_STAGES": STAGES, "ONCE_SUMS": SUMS}
    ends = [span.keys for span in work.sequences] or [work.Nk]
    early, missing = EARLY[width][work.causal], any(end % KEYS for end in ends)
    macros |= {"ONCE_EARLY": min(early, MOST_EARLY) if work.sequences or missing else early, "MISSING": int(missing)}
    streams = hopper.Pass(2, rows, STAGES)
    # Behind the tiles: barriers of dQ and of dS, numbers of tasks, and what sequences need.
    before = streams.shared(2 * width, stats=True) + 16 * (SUMS + 2) + 16 + hopper.cleared_bytes(work)
    shared = ceil_div(before, 1024) * 1024 + 2 * KEYS * rows * 2 + SUMS * rows * width * FLOAT
    tiles, split = ceil_div(work.Nk, KEYS), work.batch * work.kv_heads - cut.first
    own = (cut.first + split * cut.parts) * tiles if cut.parts > 1 else work.key_tiles(KEYS)
    added = split * tiles * 2 * width // ADDED_COLUMNS if cut.parts > 1 else 0
    launches = (
        hopper.stats_launch(work, rows),
        Launch(name, min(props.sms, own), streams.threads, shared),
        Launch("backward_round", work.row_tiles(rows) + added, ROUND_THREADS, 0),
    )
    planned = Plan(name, macros, launches, scratch(work, cut), cut=cut)
    return hopper.with_sequences(planned, work, rows, _owned(work))


def _owned(work: Workload) -> list[Owned]:
    """The tiles of stats, of a pass that there is not, and of the one pass."""
    rows = tile_rows(work)
    return [Owned(rows), Owned(rows), Owned(KEYS, keys=True)]


def arguments(work: Workload, planned: Plan, arrays: Arrays, encode: Callable[[Box], bytes]) -> bytes:
    """The one argument of each launch; `encode` makes tensor maps."""
    layout, tiles = planned.layout, (hopper.OWNED, tile_rows(work))
    sums = [arrays.scratch + start for start in (layout.partial_o, layout.tiles, layout.row_stats)]
    cut, together = Cut(*planned.cut), section(work, planned.variant != ATOMIC)
    return hopper.tiled_arguments(work, planned, arrays, encode, tiles, together, _owned(work), cut, sums)


def scratch(work: Workload, cut: Cut) -> Scratch:
    """Stats; dQ in float32, of whole tiles; dK and dV of each part, in float32; a count for each tile of dQ, and the
    number of the next task."""
    rows = hopper.stats_rows(work, tile_rows(work))
    sums = hopper.STATS_BYTES * rows
    parts = sums + cut.chains * sum_bytes(work)
    counts = parts + part_bytes(work, cut)
    return Scratch(
        counts + 4 * (cut.chains * rows // tile_rows(work) + 1), tiles=sums, row_stats=counts, partial_o=parts
    )

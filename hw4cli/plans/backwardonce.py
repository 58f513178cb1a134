"""The launches of kernels/backward_once.cu and backward_atomic.cu (16-bit numbers, Hopper, one pass), and the bytes
that they are passed."""

from collections.abc import Callable
from typing import NamedTuple

from hw4cli.errors import MachineError
from hw4cli.plans import backwardwgmma as hopper
from hw4cli.plans.backward import Arrays
from hw4cli.plans.backwardcut import (
    KEYS,
    LARGE_TILE,
    Cut,
    best_cut,
    can_round,
    is_apart,
    kept_bytes,
    part_bytes,
    rounded_section,
    section,
    tile_rows,
)
from hw4cli.plans.formulas import FLOAT, ceil_div
from hw4cli.plans.launch import Box
from hw4cli.plans.plan import DeviceProperties, Launch, Plan, Scratch
from hw4cli.plans.spans import Owned
from hw4cli.problem.workload import Workload

NAME = "backward_once"
ATOMIC = "backward_atomic"  # its twin, which adds to dQ in any order
STAGES = 2  # buffers for tiles of Q and dO
# Blocks of 8 queries whose weights are summed up early, by columns and without or with a mask: the fastest on an H200.
EARLY = {64: (4, 6), 128: (8, 2)}
MOST_EARLY = 6  # of sequences of several lengths, and where a tile misses keys: more would take too many registers
EARLY_OF_LARGE = 2  # of tiles of LARGE_TILE rows, whose registers are full
ROUND_THREADS = 256
ADDED_COLUMNS = 32  # of dK or dV, that a block adds up


class Blocks(NamedTuple):
    """How a block adds to dQ: `sums` buffers for tiles of it, and `adders`, threads that add them by turns; `apart`: a
    third group of four warps computes dQ; `rounded`: it rounds the sum where its keys are the last."""

    sums: int
    adders: int
    apart: bool
    rounded: bool

    @property
    def macros(self) -> dict[str, int]:
        """What the kernel's file is compiled with."""
        return {f"ONCE_{field.upper()}": int(getattr(self, field)) for field in self._fields}


def blocks_of(work: Workload, cut: Cut) -> Blocks:
    """Large tiles leave room for one buffer of dQ; a group apart waits for additions unless there are three."""
    if is_apart(work):
        return Blocks(3, 3, True, bool(cut.rounded))
    return Blocks(1 if tile_rows(work) == LARGE_TILE else 2, 2, False, False)


def plan(work: Workload, props: DeviceProperties, tile: Cut | None = None, name: str = NAME) -> Plan:
    """The launches for a workload, of the kernel that adds to dQ in the order of the keys, or of ATOMIC. The last one,
    if there is any, rounds dQ, unless the pass does, and adds up dK and dV of parts. Raises MachineError where the
    kernels do not run."""
    hopper.check(name, work, props)
    cut = tile or best_cut(work, props.sms)
    if name == ATOMIC and not tile:
        cut = cut._replace(chains=1, rounded=False)
    if work.window and cut.parts > 1:
        raise MachineError(f"kernel {name} computes windows of keys without parts of heads or rows")
    if cut.rounded and (name == ATOMIC or cut.chains > 1 or not can_round(work)):
        raise MachineError(f"kernel {name} does not round dQ within the pass here")
    width, rows = hopper.columns(work), tile_rows(work)
    blocks = blocks_of(work, cut)
    macros = {**hopper.common_macros(work), "ONCE_TILE": rows, "ONCE_STAGES": STAGES, **blocks.macros}
    ends = [span.keys for span in work.sequences] or [work.Nk]
    missing = any(end % KEYS for end in ends)
    early = EARLY_OF_LARGE if rows == LARGE_TILE else EARLY[width][work.causal]
    macros |= {"ONCE_EARLY": min(early, MOST_EARLY) if work.sequences or missing else early, "MISSING": int(missing)}
    streams = hopper.Pass(2, rows, STAGES)
    # Behind the tiles: barriers of dQ and of dS, numbers of tasks, and what sequences need.
    before = (
        streams.shared(2 * width, stats=True)
        + 16 * (blocks.adders * (1 + blocks.apart) + 2)
        + 16
        + hopper.cleared_bytes(work)
    )
    weights = 2 * KEYS * (hopper.OWNED if blocks.apart else rows) * 2  # dS, twice
    shared = ceil_div(before, 1024) * 1024 + weights + blocks.sums * rows * width * FLOAT
    tiles, split = ceil_div(work.Nk, KEYS), work.batch * work.kv_heads - cut.first
    own = (cut.first + split * cut.parts) * tiles if cut.parts > 1 else work.key_tiles(KEYS)
    after = 0 if cut.rounded else work.row_tiles(rows)
    after += split * tiles * 2 * width // ADDED_COLUMNS if cut.parts > 1 else 0
    launches = (
        hopper.stats_launch(work, rows),
        Launch(name, min(props.sms, own), streams.threads + 128 * blocks.apart, shared),
        *([Launch("backward_round", after, ROUND_THREADS, 0)] if after else []),
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
    cut, together = Cut(*planned.cut), heads_together(work, planned)
    return hopper.tiled_arguments(work, planned, arrays, encode, tiles, together, _owned(work), cut.passed, sums)


def heads_together(work: Workload, planned: Plan) -> int:
    """Heads of K and V that are worked on together."""
    rounded = Cut(*planned.cut).rounded
    return rounded_section(work) if rounded else section(work, planned.variant != ATOMIC)


def scratch(work: Workload, cut: Cut) -> Scratch:
    """Stats; dQ in float32, of whole tiles; dK and dV of each part, in float32; a count for each tile of dQ, and the
    number of the next task."""
    rows = hopper.stats_rows(work, tile_rows(work))
    sums = hopper.STATS_BYTES * rows
    parts = sums + kept_bytes(work, cut)
    counts = parts + part_bytes(work, cut)
    return Scratch(
        counts + 4 * (cut.chains * rows // tile_rows(work) + 1), tiles=sums, row_stats=counts, partial_o=parts
    )

"""half_mma, half_split and half_cores, the kernels for fp16 and bf16 on any GPU: their plans and arguments.

kernels/half_mma.cu is for many rows, kernels/half_split.cu for few rows and many keys, both by tensor cores;
kernels/half_cores.cu is for GPUs without, or whose tensor cores do not take the numbers.
"""

import struct
from typing import Any, NamedTuple

from hw4cli.errors import MachineError
from hw4cli.plans.common import padded_d
from hw4cli.plans.formulas import FLOAT, ceil_div
from hw4cli.plans.half import FEW_ROWS, Arrays, columns, with_sequences, work_arguments
from hw4cli.plans.launch import COORDINATES, coordinates
from hw4cli.plans.plan import DeviceProperties, Launch, Plan, Scratch, mask_macros, sequence_macros
from hw4cli.problem.workload import BFLOAT16, FLOAT16, MAX_D, Workload

MMA = "half_mma"
SPLIT = "half_split"
CORES = "half_cores"
MOST_SPLITS = 128
LEAST_PARTS = 2  # of a split's keys that each warp should have
FILLED = 0.9  # of the multiprocessors, that have a block each
KEPT_FROM = 1 << 30  # bytes of K and V from which on nothing is gained by having them leave the L2 cache first
TEAM_SPLITS = 64  # from which on warps in teams were timed: what they put together at the end then counts more
PREFETCHED = 2  # parts of a warp's keys that come to the L2 cache while the launch before is still to end
MEASURED = 64, 128  # columns in shared memory for which blocks of eight warps, and prefetches, were timed, on an H100
COMBINED = 8  # splits of a row that a warp of half_split_combine takes
_MATRICES = struct.Struct("<" + 3 * COORDINATES)  # HalfMatrices in kernels/halfmma.cuh


class MmaTiling(NamedTuple):
    """How a block works: its warps, with so many times 16 rows each; keys of a tile, and how many of them are weighed
    together; whether Q stays in registers; blocks of a multiprocessor; whether the tensor cores sum P."""

    warps: int
    fragments: int
    keys: int
    sub: int
    q_registers: bool
    blocks: int
    ones: bool = True

    @property
    def rows(self) -> int:
        """Rows of a tile."""
        return 16 * self.fragments * self.warps


def mma_tiling(work: Workload, props: DeviceProperties) -> MmaTiling:
    """The fastest as measured on an H100, as far as it fits; elsewhere what needs less memory, and spills nothing."""
    width, roomy, large = padded_d(work.d), props.shared_sm >= 100 << 10, props.shared_sm >= 160 << 10
    if width == 32 and large and work.most_rows <= FEW_ROWS:
        return MmaTiling(4, 2, 128, 32, q_registers=True, blocks=4)
    if width == 32:
        return MmaTiling(4, 2, 64, 64 if large else 32, q_registers=True, blocks=3 if roomy else 2)
    if width == 64 and roomy:
        return MmaTiling(4, 2, 128 if large and work.most_keys > 128 else 64, 64, q_registers=True, blocks=2)
    if width == 64:
        return MmaTiling(4, 2, 32, 32, q_registers=True, blocks=2)
    if width == 256 and not roomy:
        return MmaTiling(4, 1, 16, 16, q_registers=False, blocks=1)
    if width == 256:
        return MmaTiling(8 if large else 4, 1, 32, 32, q_registers=False, blocks=1)
    if large:
        return MmaTiling(4, 2, 32, 32, q_registers=False, blocks=2)
    return MmaTiling(8 if roomy else 4, 1, 32, 32, q_registers=True, blocks=1)


def least(work: Workload) -> int:
    """The least compute capability: tensor cores take fp16 from 7.5 on, bf16 from 8.0 on."""
    return 75 if work.dtype == FLOAT16 else 80


def runs(work: Workload, props: DeviceProperties) -> bool:
    """Whether the kernel runs on a GPU."""
    return props.cc >= least(work)


def common_macros(work: Workload) -> dict[str, int]:
    """What kernels/halfmma.cuh is compiled with, for any tiling."""
    return {
        "D": work.d,
        "COLUMNS": columns(work),
        "CAUSAL": int(work.causal),
        **mask_macros(work),
        "BFLOAT16": int(work.dtype == BFLOAT16),
        **sequence_macros(work),
    }


def check_runs(name: str, work: Workload, props: DeviceProperties) -> None:
    """Raise MachineError unless the GPU's tensor cores take the numbers."""
    if not runs(work, props):
        needed = least(work) / 10
        raise MachineError(
            f"kernel {name} needs compute capability {needed} for {work.dtype}, "
            f"this GPU {'is' if props.gfx else 'has'} {props.gfx or props.cc / 10}"
        )


def check_shared(name: str, how: NamedTuple, shared: int, props: DeviceProperties) -> None:
    """Raise MachineError if a tiling needs more shared memory than a block may have."""
    if shared > props.shared_limit:
        raise MachineError(
            f"kernel {name} with {how} needs {shared:,} bytes of shared memory a block, "
            f"this GPU has {props.shared_limit:,}"
        )


def matrices(arrays: Arrays) -> bytes:
    """Q, K and V."""
    return _MATRICES.pack(*coordinates(arrays.q, arrays.k, arrays.v))


def mma_plan(work: Workload, props: DeviceProperties, chosen: MmaTiling | None = None) -> Plan:
    """The launch for a workload. Raises MachineError where the kernel does not run."""
    check_runs(MMA, work, props)
    how = chosen or mma_tiling(work, props)
    threads, width = 32 * how.warps, padded_d(work.d)
    macros = {
        **common_macros(work),
        "BR": how.rows,
        "BC": how.keys,
        "THREADS": threads,
        "BLOCKS": how.blocks,
        "MI": how.fragments,
        "SUB": how.sub,
        "Q_REGISTERS": int(how.q_registers),
        "ONES": int(how.ones),
    }
    shared = 2 * width * (how.rows + 4 * how.keys)
    check_shared(MMA, how, shared, props)
    return with_sequences(Plan(MMA, macros, (Launch(MMA, work.row_tiles(how.rows), threads, shared),)), work)


def mma_arguments(work: Workload, planned: Plan, arrays: Arrays, encode: Any = None) -> bytes:
    """The launch's one argument: HalfMmaParams. It has no tensor maps, which `encode` would make."""
    rows = planned.macros["BR"]
    return matrices(arrays) + work_arguments(work, planned, ceil_div(work.Nq, rows), work.row_tiles(rows), arrays)


class SplitTiling(NamedTuple):
    """How a block works: its warps, each with so many times 16 rows; keys that a team of them takes at a time, and room
    for how many such; whether Q stays in registers; blocks of a multiprocessor; splits, if they are chosen; and how
    many warps are a team, of which each has its own rows, and all teams the same."""

    warps: int
    fragments: int
    keys: int
    stages: int
    q_registers: bool
    blocks: int
    splits: int = 0
    team: int = 1

    @property
    def rows(self) -> int:
        """Rows of a tile."""
        return 16 * self.fragments * self.team

    @property
    def teams(self) -> int:
        """How many times a block takes `keys` at once."""
        return self.warps // self.team


def packed_rows(work: Workload) -> int:
    """Rows of all heads that share a head of K and V, of the longest sequence."""
    return work.heads // work.kv_heads * work.most_rows


def split_tiling(work: Workload, props: DeviceProperties) -> SplitTiling:
    """One block of a multiprocessor with twice the warps, where that fills the GPU: it needs fewer splits, and often
    none; else two. Of one tile of 32 rows, whose keys many blocks share, in teams: half as many O are put together."""
    two = _two_blocks(work, props)
    one = two._replace(warps=2 * two.warps, blocks=1)
    splits = _whole_wave(work, props, one)
    if splits >= TEAM_SPLITS and padded_d(work.d) == 128 and one.fragments == 2:
        return SplitTiling(4, 1, 32, 6, q_registers=True, blocks=1, splits=splits, team=2)
    return one._replace(splits=splits) if splits else two


def _two_blocks(work: Workload, props: DeviceProperties) -> SplitTiling:
    """Tiles of 16 or 32 rows, and as much memory for copies on their way as two blocks can have; of wide rows, one."""
    width, fragments = padded_d(work.d), 1 if packed_rows(work) <= 16 or work.d > MAX_D else 2
    if width == 256:
        warps = 4 if props.shared_sm >= 160 << 10 else 2 if props.shared_sm >= 100 << 10 else 1
        return SplitTiling(warps, 1, 16, 2, q_registers=False, blocks=1)
    stages, warps = 3 if props.shared_sm >= 200 << 10 else 2, 4 if props.shared_sm >= 160 << 10 else 2
    return SplitTiling(warps, fragments, 2048 // width, stages, q_registers=width < 128 or fragments == 1, blocks=2)


def _whole_wave(work: Workload, props: DeviceProperties, how: SplitTiling) -> int:
    """Into how many splits the keys go where each multiprocessor has one block, if that is nearly all of them, and
    keys are enough. 0 where it is not so, lengths differ, or nothing was measured."""
    if not props.warpgroups or padded_d(work.d) not in MEASURED or work.sequences or work.score:
        return 0
    units = _units(work, how)
    splits = min(MOST_SPLITS, props.sms // units)
    fills = units * splits >= FILLED * props.sms and splits * LEAST_PARTS <= _parts(work, how)
    return splits if fills else 0


def _units(work: Workload, how: SplitTiling) -> int:
    """Tiles of rows, each with a head of K and V."""
    return work.kv_heads * _row_tiles(work, how.rows)


def _parts(work: Workload, how: SplitTiling) -> int:
    """How many times a block's warps take keys, of the longest sequence."""
    return ceil_div(min(work.most_keys, work.seen_by(work.most_rows)), how.keys * how.teams)


def split_count(units: int, parts: int, resident: int, cost: float) -> int:
    """Into how many splits the keys go: the fewest that fill the multiprocessors, which hold `resident` blocks.

    cost: what a split's own O costs, in the time in which one block passes all keys.
    """
    most = max(1, min(MOST_SPLITS, parts // LEAST_PARTS))
    times = {splits: ceil_div(units * splits, resident) / splits + cost * splits for splits in range(1, most + 1)}
    return next(splits for splits, time in times.items() if time <= 1.05 * min(times.values()))


def split_plan(work: Workload, props: DeviceProperties, chosen: SplitTiling | None = None) -> Plan:
    """The launches for a workload. Raises MachineError where the kernel does not run."""
    check_runs(SPLIT, work, props)
    how = chosen or split_tiling(work, props)
    rows, threads, width = how.rows, 32 * how.warps, padded_d(work.d)
    macros = {
        **common_macros(work),
        "BR": rows,
        "BC": how.keys,
        "SUB": how.keys,
        "MI": how.fragments,
        "THREADS": threads,
        "STAGES": how.stages,
        "BLOCKS": how.blocks,
        "Q_REGISTERS": int(how.q_registers),
        "ONES": 1,
        **({"TEAM": how.team} if how.team > 1 else {}),
    }
    tiles = 2 * width * (rows + 2 * how.teams * how.stages * how.keys)
    shared = max(tiles, how.teams * rows * FLOAT * (work.d + 8)) + 8 * how.teams * rows
    check_shared(SPLIT, how, shared, props)
    units, parts = _units(work, how), _parts(work, how)
    all_rows = units * rows if work.sequences else work.batch * work.heads * work.Nq
    resident = how.blocks * props.sms
    key_bytes = 4 * work.batch * work.kv_heads * work.d * parts * how.keys * how.teams  # of the longest sequence
    macros["ONCE"] = int(packed_rows(work) <= rows and key_bytes < KEPT_FROM)
    cost = 2 * all_rows / (parts * how.keys * how.teams * resident)  # as much memory as so many keys, written and read
    splits = min(how.splits, MOST_SPLITS) or split_count(units, parts, resident, cost)
    waits = units * splits <= resident and not work.sequences  # all blocks may wait for the launch before
    macros["PREFETCHED"] = PREFETCHED if waits and props.warpgroups and width in MEASURED else 0
    first = Launch(SPLIT, units * splits, threads, shared, early=True)
    if splits == 1:
        return with_sequences(Plan(SPLIT, macros, (first,)), work, heads_of_tile(work, SPLIT))
    partial_o = FLOAT * all_rows * splits * work.d
    scratch = Scratch(partial_o + FLOAT * all_rows * splits, row_stats=partial_o)
    warps = ceil_div(splits, COMBINED)
    combine = Launch(f"{SPLIT}_combine", all_rows, 32 * warps, warps * FLOAT * (work.d + 4), early=True)
    return with_sequences(Plan(SPLIT, macros, (first, combine), scratch, splits), work, heads_of_tile(work, SPLIT))


def split_key_step(work: Workload, props: DeviceProperties) -> int:
    """Plans for numbers of keys between two multiples of it are the same: those that its warps take together, or, where
    these are twice as many, half of them."""
    how = _two_blocks(work, props)
    return how.keys * how.warps


def heads_of_tile(work: Workload, kernel: str) -> int:
    """Of how many heads a tile of a kernel's has rows."""
    return work.heads // work.kv_heads if kernel == SPLIT else 1


def _row_tiles(work: Workload, rows: int) -> int:
    """Tiles of so many packed rows, of all batches or sequences."""
    group = work.heads // work.kv_heads
    if work.sequences:
        return sum(ceil_div(group * span.rows, rows) for span in work.sequences)
    return work.batch * ceil_div(group * work.Nq, rows)


def split_arguments(work: Workload, planned: Plan, arrays: Arrays, encode: Any = None) -> bytes:
    """The launches' one argument: HalfSplitParams. It has no tensor maps, which `encode` would make."""
    row_tiles = ceil_div(packed_rows(work), planned.macros["BR"])
    tiles = work.batch * work.kv_heads * row_tiles
    at = arrays.scratch
    return (
        matrices(arrays)
        + work_arguments(work, planned, row_tiles, tiles, arrays, section=0)  # all are, a part of the keys a block
        + struct.pack("<QQ", at + planned.layout.partial_o, at + planned.layout.row_stats)
    )


def cores_plan(work: Workload, props: DeviceProperties, chosen: None = None) -> Plan:
    """The launch of half_cores, on any GPU: 48 KB of shared memory a block suffice."""
    rows, keys = (64, 32 if work.d <= 64 else 16) if work.d <= MAX_D else (32, 8)
    macros = {**common_macros(work), "BR": rows, "BC": keys, "THREADS": 2 * rows, "ONES": 0}
    shared = FLOAT * ((work.d + 4) * (rows + keys) + (keys + 4) * rows)
    return with_sequences(Plan(CORES, macros, (Launch(CORES, work.row_tiles(rows), 2 * rows, shared),)), work)

"""half_split, the kernel for few rows and many keys of 16 bits (kernels/half_split.cu): its plan and argument."""

import struct
from typing import NamedTuple

from hw4cli.arrays.half import Arrays, work_arguments
from hw4cli.arrays.halfmma import check_runs, check_shared, common_macros, matrices
from hw4cli.arrays.workload import Workload
from hw4cli.compute.common import padded_d
from hw4cli.compute.formulas import FLOAT, ceil_div
from hw4cli.compute.plan import DeviceProperties, Launch, Plan, Scratch

NAME = "half_split"
MOST = 128  # splits
LEAST_PARTS = 4  # that each warp should have


class SplitTiling(NamedTuple):
    """How a block works: its warps, all with the same so many times 16 rows; keys that a warp takes at a time, and room
    for how many such; whether Q stays in registers; blocks of a multiprocessor; splits, if they are chosen."""

    warps: int
    fragments: int
    keys: int
    stages: int
    q_registers: bool
    blocks: int
    splits: int = 0


def packed_rows(work: Workload) -> int:
    """Rows of all heads that share a head of K and V."""
    return work.heads // work.kv_heads * work.Nq


def split_tiling(work: Workload, props: DeviceProperties) -> SplitTiling:
    """Tiles of 16 or 32 rows, and as much memory for copies on their way as two blocks can have."""
    width, fragments = padded_d(work.d), 1 if packed_rows(work) <= 16 else 2
    stages, warps = 3 if props.shared_sm >= 200 << 10 else 2, 4 if props.shared_sm >= 160 << 10 else 2
    return SplitTiling(warps, fragments, 2048 // width, stages, q_registers=width < 128 or fragments == 1, blocks=2)


def split_count(units: int, parts: int, resident: int, cost: float) -> int:
    """Into how many splits the keys go: the fewest with which the multiprocessors, which hold so many blocks, are filled.

    cost: what a split's own O costs, in the time in which one block passes all keys.
    """
    most = max(1, min(MOST, parts // LEAST_PARTS))
    times = {splits: ceil_div(units * splits, resident) / splits + cost * splits for splits in range(1, most + 1)}
    return next(splits for splits, time in times.items() if time <= 1.05 * min(times.values()))


def plan(work: Workload, props: DeviceProperties, chosen: SplitTiling | None = None) -> Plan:
    """The launches for a workload. Raises MachineError where the kernel does not run."""
    check_runs(NAME, work, props)
    how = chosen or split_tiling(work, props)
    rows, threads, width = 16 * how.fragments, 32 * how.warps, padded_d(work.d)
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
    }
    tiles = 2 * width * (rows + 2 * how.warps * how.stages * how.keys)
    shared = max(tiles, how.warps * rows * 4 * (work.d + 4)) + 8 * how.warps * rows
    check_shared(NAME, how, shared, props)
    units = work.batch * work.kv_heads * ceil_div(packed_rows(work), rows)
    all_rows, resident = work.batch * work.heads * work.Nq, how.blocks * props.sms
    cost = 2 * all_rows / (work.Nk * resident)  # as much memory as so many keys, written and read
    splits = how.splits or split_count(units, ceil_div(work.Nk, how.keys * how.warps), resident, cost)
    first = Launch(NAME, units * splits, threads, shared)
    if splits == 1:
        return Plan(NAME, macros, (first,))
    partial_o = FLOAT * all_rows * splits * work.d
    scratch = Scratch(partial_o + FLOAT * all_rows * splits, row_stats=partial_o)
    combine = Launch(f"{NAME}_combine", ceil_div(all_rows, how.warps), threads, 0)
    return Plan(NAME, macros, (first, combine), scratch, splits)


def arguments(work: Workload, planned: Plan, arrays: Arrays, scale: float) -> bytes:
    """The launches' one argument: HalfSplitParams."""
    row_tiles = ceil_div(packed_rows(work), planned.macros["BR"])
    tiles = work.batch * work.kv_heads * row_tiles
    at = arrays.scratch
    return (
        matrices(arrays)
        + work_arguments(work, row_tiles, tiles, arrays, scale, planned.splits)
        + struct.pack("<QQ", at + planned.layout.partial_o, at + planned.layout.row_stats)
    )

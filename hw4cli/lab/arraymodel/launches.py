"""What each launch of a kernel for 16-bit arrays moves and computes by its plan: see measure.model, and of gradients
arraymodel.gradients.

A row tile of a head visits tiles of keys: all, or with a mask those that some row sees. Counted are whole tiles.
"""

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from hw4cli.device.occupancy import occupancy
from hw4cli.errors import MachineError
from hw4cli.lab.arraymodel.counts import HALF, Sizes, head_bytes, keys_of, times, visited
from hw4cli.lab.arraymodel.gradients import gradient_models
from hw4cli.lab.candidates import tiling_of
from hw4cli.lab.kernels import check_type
from hw4cli.lab.measure.model import LaunchModel
from hw4cli.lab.stepper.cache import AS_THEY_END, IN_ROUNDS, Visit, read_again
from hw4cli.lab.stepper.wavefronts import ALIKE, FOURS, LANES, SECTOR, WAVEFRONT
from hw4cli.plans import gradients as choice
from hw4cli.plans import half, halfmma, halfshort
from hw4cli.plans.formulas import FLOAT, ceil_div
from hw4cli.plans.gradients import GRADIENTS
from hw4cli.plans.kernels16 import ENTRIES16, KERNELS16, plan16
from hw4cli.plans.plan import DeviceProperties, Launch, Plan, Tile
from hw4cli.problem.workload import Workload

TILE, MOST_TILES = 64, 1 << 21
NAMES = (*KERNELS16, *GRADIENTS)


def plan_of(name: str, work: Workload, props: DeviceProperties, tile: Tile | None = None) -> Plan:
    """The launches of a kernel of NAMES for a workload, with a tile of a kernel of 16 bits if one is given. Raises
    MachineError where it does not run."""
    if name in GRADIENTS:
        return choice.plan(work, props, name)
    check_type(name, work)
    return plan16(work, props, name, tiling_of(name, work, props, tile) if tile else None)


def array_models(plan: Plan, work: Workload, props: DeviceProperties, cache: int = 0) -> list[LaunchModel]:
    """The model of each launch of a plan. Of a launch that is not known, nothing.

    `cache`: bytes of the L2 cache; 0 for one that holds all that is read again. Raises MachineError for a workload that
    would take minutes to count.
    """
    work = work.stored
    if work.batch * work.heads * ceil_div(max(work.Nq, work.Nk), TILE) > MOST_TILES:
        raise MachineError(
            f"{plan.variant} has more than {MOST_TILES:,} tiles of {TILE} rows or keys in all heads, which would take "
            "minutes to count: give fewer heads, or a shorter sequence"
        )
    if plan.variant in GRADIENTS:
        return gradient_models(plan, work, cache)
    sizes, found = Sizes.of(work), []
    for launch in plan.launches:
        model = _MODELS.get(launch.symbol, _unknown)(plan, launch, work, sizes)
        if cache and launch.symbol in (half.NAME, halfshort.NAME, halfmma.MMA, halfmma.CORES):
            read, written = model.dram
            model = replace(model, dram=(read + _again(plan, launch, work, props, cache), written))
        found.append(model)
    return found


def _again(plan: Plan, launch: Launch, work: Workload, props: DeviceProperties, cache: int) -> int:
    """Bytes of K and V that come from DRAM again: kernels/halfrows.cuh has the order of the tiles of rows."""
    rows, tiles = plan.macros["BR"], ceil_div(work.Nq, plan.macros["BR"])
    first = np.arange(0, work.Nq, rows, dtype=np.int64)
    own = (np.minimum(rows, work.Nq - first) * HALF * work.d).tolist()
    keys = np.maximum(1, times(keys_of(work, first + rows - 1), plan.macros["BC"])) * plan.macros["BC"]
    last, heads, group = np.minimum(work.Nk, keys).tolist(), work.batch * work.heads, work.heads // work.kv_heads
    if ENTRIES16[plan.variant].persistent:  # blocks take tile after tile
        slots, order = launch.grid, AS_THEY_END if plan.macros.get("DYNAMIC") else IN_ROUNDS
    else:
        resident = plan.macros.get("BLOCKS") or occupancy(props, 1, launch.shared, launch.block).blocks
        slots, order = min(launch.grid, resident * props.sms), AS_THEY_END

    def visit(head: int, tile: int) -> Visit:
        return Visit(head // group, 0, last[tile], own[tile], own[tile])

    if work.causal:
        together = half.heads_together(work)
        sections = (range(start, min(heads, start + together)) for start in range(0, heads, together))
        visits = [visit(head, tile) for some in sections for tile in reversed(range(tiles)) for head in some]
    else:
        visits = [visit(head, tile) for head in range(heads) for tile in range(tiles)]
    return read_again(visits, slots, head_bytes(work, 1), cache, order)


def _half(plan: Plan, launch: Launch, work: Workload, sizes: Sizes) -> LaunchModel:
    """A block brings tiles for all its groups; each group of 64 rows multiplies those that its own rows see."""
    m = plan.macros
    tiles, keys = visited(work, m["BR"], m["BC"])
    own, _ = visited(work, 64, m["BC"])
    steps = 16 * ceil_div(work.d, 16)
    operands = HALF * (64 * steps + m["BC"] * steps + m["BC"] * (m["COLUMNS"] + 8 * m["ONES"]))
    return LaunchModel(
        launch.symbol,
        (sizes.q + 2 * sizes.k, sizes.q),
        (sizes.q + head_bytes(work, keys), sizes.q),
        None if "TEAMS" in m else 0,  # half_short's threads leave O there
        own * operands,
        tensor_flops=2 * own * 64 * m["BC"] * (steps + m["COLUMNS"] + 8 * m["ONES"]),
        exponentials=own * 64 * m["BC"],
        tiles=tiles,
    )


def _half_mma(plan: Plan, launch: Launch, work: Workload, sizes: Sizes) -> LaunchModel:
    """Each warp multiplies its own rows by the keys that some of these see, SUB at a time."""
    m = plan.macros
    tiles, keys = visited(work, m["BR"], m["BC"])
    rows = 16 * m["MI"]
    last = (np.arange(0, work.Nq, m["BR"], dtype=np.int64)[:, None] + np.arange(rows, m["BR"] + 1, rows) - 1).ravel()
    subs = np.maximum(1, times(keys_of(work, last), m["SUB"]))
    if not work.causal:  # a tile is computed to its end
        subs = np.full_like(last, ceil_div(work.Nk, m["BC"]) * m["BC"] // m["SUB"])
    done = work.batch * work.heads * int(subs.sum())
    return LaunchModel(
        launch.symbol,
        (sizes.q + 2 * sizes.k, sizes.q),
        (sizes.q + head_bytes(work, keys), sizes.q),
        **_by_warps(plan, work, done),
        tiles=tiles,
    )


def _by_warps(plan: Plan, work: Workload, done: int) -> dict[str, Any]:
    """What warps compute, which `done` times multiply their 16 MI rows by SUB keys."""
    m, steps = plan.macros, 16 * ceil_div(work.d, 16)
    rows = 16 * m["MI"]
    loads = HALF * (2 * m["SUB"] * steps + (0 if m["Q_REGISTERS"] else rows * steps))
    return {
        "shared": done * loads,
        "tensor_flops": 2 * done * rows * m["SUB"] * (2 * steps + 8 * m["ONES"]),
        "exponentials": done * rows * m["SUB"],
    }


def _half_split(plan: Plan, launch: Launch, work: Workload, sizes: Sizes) -> LaunchModel:
    """Heads that share keys are rows of one tile; of the keys that some row sees, each warp takes SUB in turn."""
    m = plan.macros
    group, rows = work.heads // work.kv_heads, halfmma.packed_rows(work)
    first = np.arange(0, rows, m["BR"], dtype=np.int64)
    parts = times(keys_of(work, (np.minimum(rows, first + m["BR"]) - 1) // group), m["SUB"])
    units = work.batch * work.kv_heads
    keys, done = units * int(np.minimum(work.Nk, parts * m["SUB"]).sum()), units * int(parts.sum())
    partial = plan.scratch if plan.splits > 1 else sizes.q
    sectors = sizes.rows * plan.splits * (SECTOR - FLOAT) if plan.splits > 1 else 0
    computed = _by_warps(plan, work, done)
    # At the end each warp leaves its part of O, which others add up; at first it reads Q.
    ends = 2 * FLOAT * work.d + (HALF * 16 * ceil_div(work.d, 16) if m["Q_REGISTERS"] else 0)
    computed["shared"] += launch.grid * m["THREADS"] // LANES * m["BR"] * ends
    return LaunchModel(
        launch.symbol,
        (sizes.q + 2 * sizes.k, partial),
        (plan.splits * sizes.q + head_bytes(work, keys), partial + sectors),
        **computed,
        tiles=done,
    )


def _half_split_combine(plan: Plan, launch: Launch, work: Workload, sizes: Sizes) -> LaunchModel:
    return LaunchModel(launch.symbol, (plan.scratch, sizes.q), (plan.scratch, sizes.q))


def _half_cores(plan: Plan, launch: Launch, work: Workload, sizes: Sizes) -> LaunchModel:
    """FFMA; the eight threads of a row each compute the factor by which O shrinks."""
    m = plan.macros
    tiles, keys = visited(work, m["BR"], m["BC"])
    pairs = tiles * m["BR"] * m["BC"]
    return LaunchModel(
        launch.symbol,
        (sizes.q + 2 * sizes.k, sizes.q),
        (sizes.q + head_bytes(work, keys), sizes.q),
        WAVEFRONT * tiles * _accesses_of_cores(m) + FLOAT * launch.grid * m["BR"] * m["D"],
        ffma_flops=4 * work.d * pairs,
        exponentials=pairs + 8 * tiles * m["BR"],
        tiles=tiles,
    )


def _accesses_of_cores(m: Mapping[str, int]) -> int:
    """Of a tile: a thread has 4 rows and BC/8 keys, eight threads side by side the same rows; of a row of Q and of P
    they read the same 16 bytes."""
    rows, keys = 4, m["BC"] // 8
    scores = m["D"] // 4 * (rows * ALIKE + keys * FOURS) + rows * keys
    values = m["BC"] // 4 * (rows * ALIKE + 4 * ceil_div(m["D"], LANES) * FOURS)
    return m["THREADS"] // LANES * (scores + values) + 2 * m["BC"] * m["D"] // LANES


def _unknown(plan: Plan, launch: Launch, work: Workload, sizes: Sizes) -> LaunchModel:
    return LaunchModel(launch.symbol, (0, 0))


_MODELS: dict[str, Callable[[Plan, Launch, Workload, Sizes], LaunchModel]] = {
    half.NAME: _half,
    halfshort.NAME: _half,
    halfmma.MMA: _half_mma,
    halfmma.SPLIT: _half_split,
    f"{halfmma.SPLIT}_combine": _half_split_combine,
    halfmma.CORES: _half_cores,
}

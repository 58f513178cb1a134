"""What each launch of a kernel for 16-bit arrays, or for gradients, moves and computes by its plan: see measure.model.

A row tile of a head visits tiles of keys: all, or with a mask those that some row sees. Counted are whole tiles.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from hw4cli.arraylab.ours import check_type
from hw4cli.arrays import half, halfmma, halfshort
from hw4cli.arrays.kernels16 import KERNELS16, plan16
from hw4cli.arrays.workload import FLOAT32, Workload
from hw4cli.compute.common import padded_d
from hw4cli.compute.formulas import FLOAT, ceil_div
from hw4cli.compute.plan import DeviceProperties, Launch, Plan
from hw4cli.device.occupancy import occupancy
from hw4cli.gradients import choice
from hw4cli.gradients import mma as backward_mma
from hw4cli.gradients import plan as backward
from hw4cli.measure.metrics import SECTOR
from hw4cli.measure.model import LaunchModel
from hw4cli.stepper.cache import AS_THEY_END, IN_ROUNDS, Visit, read_again

BACKWARD = (backward.NAME, backward_mma.NAME)
NAMES = (*KERNELS16, *BACKWARD)
HALF = 2  # bytes


def plan_of(name: str, work: Workload, props: DeviceProperties) -> Plan:
    """The launches of a kernel of NAMES for a workload. Raises MachineError where it does not run."""
    if name in BACKWARD:
        return choice.plan(work, props, name)
    check_type(name, work)
    return plan16(work, props, name)


def array_models(plan: Plan, work: Workload, props: DeviceProperties, cache: int = 0) -> list[LaunchModel]:
    """The model of each launch of a plan. Of a launch that is not known, nothing.

    `cache`: bytes of the L2 cache; 0 for one that holds all that is read again.
    """
    sizes, found = _Sizes.of(work), []
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
    keys = np.maximum(1, _times(_keys_of(work, first + rows - 1), plan.macros["BC"])) * plan.macros["BC"]
    last, heads, group = np.minimum(work.Nk, keys).tolist(), work.batch * work.heads, work.heads // work.kv_heads
    if launch.symbol in (half.NAME, halfshort.NAME):  # whose blocks take tile after tile
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
    return read_again(visits, slots, _head_bytes(work, 1), cache, order)


@dataclass(frozen=True)
class _Sizes:
    """Bytes of Q (as many as of O), of K (as many as of V); rows of all heads of Q."""

    q: int
    k: int
    rows: int

    @classmethod
    def of(cls, work: Workload) -> "_Sizes":
        element = FLOAT if work.dtype == FLOAT32 else HALF
        rows = work.batch * work.heads * work.Nq
        return cls(element * rows * work.d, element * work.batch * work.kv_heads * work.Nk * work.d, rows)


def _times(a: Any, b: int) -> Any:
    """How many times b goes into numbers, rounded up."""
    return -(-a // b)


def _keys_of(work: Workload, last_row: Any) -> Any:
    """How many keys rows see; not below 0."""
    return np.clip(last_row + work.offset + 1, 0, work.Nk) if work.causal else np.full_like(last_row, work.Nk)


def _visited(work: Workload, rows: int, keys: int) -> tuple[int, int]:
    """Of tiles of so many rows, all heads: tiles of keys that they visit, at least one each; and the keys in these."""
    last = np.arange(0, work.Nq, rows, dtype=np.int64) + rows - 1
    tiles = np.maximum(1, _times(_keys_of(work, last), keys))
    heads = work.batch * work.heads
    return heads * int(tiles.sum()), heads * int(np.minimum(work.Nk, tiles * keys).sum())


def _head_bytes(work: Workload, keys: int) -> int:
    """Bytes of so many keys of K and of V."""
    return 2 * (FLOAT if work.dtype == FLOAT32 else HALF) * keys * work.d


def _half(plan: Plan, launch: Launch, work: Workload, sizes: _Sizes) -> LaunchModel:
    """A block brings tiles for all its groups; each group of 64 rows multiplies those that its own rows see."""
    m = plan.macros
    tiles, keys = _visited(work, m["BR"], m["BC"])
    own, _ = _visited(work, 64, m["BC"])
    steps = 16 * ceil_div(work.d, 16)
    operands = HALF * (64 * steps + m["BC"] * steps + m["BC"] * (m["COLUMNS"] + 8 * m["ONES"]))
    return LaunchModel(
        launch.symbol,
        (sizes.q + 2 * sizes.k, sizes.q),
        (sizes.q + _head_bytes(work, keys), sizes.q),
        operands=own * operands,
        tensor_flops=2 * own * 64 * m["BC"] * (steps + m["COLUMNS"] + 8 * m["ONES"]),
        exponentials=own * 64 * m["BC"],
        tiles=tiles,
    )


def _half_mma(plan: Plan, launch: Launch, work: Workload, sizes: _Sizes) -> LaunchModel:
    """Each warp multiplies its own rows by the keys that some of these see, SUB at a time."""
    m = plan.macros
    tiles, keys = _visited(work, m["BR"], m["BC"])
    rows = 16 * m["MI"]
    last = (np.arange(0, work.Nq, m["BR"], dtype=np.int64)[:, None] + np.arange(rows, m["BR"] + 1, rows) - 1).ravel()
    subs = np.maximum(1, _times(_keys_of(work, last), m["SUB"]))
    if not work.causal:  # a tile is computed to its end
        subs = np.full_like(last, ceil_div(work.Nk, m["BC"]) * m["BC"] // m["SUB"])
    done = work.batch * work.heads * int(subs.sum())
    return LaunchModel(
        launch.symbol,
        (sizes.q + 2 * sizes.k, sizes.q),
        (sizes.q + _head_bytes(work, keys), sizes.q),
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


def _half_split(plan: Plan, launch: Launch, work: Workload, sizes: _Sizes) -> LaunchModel:
    """Heads that share keys are rows of one tile; of the keys that some row sees, each warp takes SUB in turn."""
    m = plan.macros
    group, rows = work.heads // work.kv_heads, halfmma.packed_rows(work)
    first = np.arange(0, rows, m["BR"], dtype=np.int64)
    parts = _times(_keys_of(work, (np.minimum(rows, first + m["BR"]) - 1) // group), m["SUB"])
    units = work.batch * work.kv_heads
    keys, done = units * int(np.minimum(work.Nk, parts * m["SUB"]).sum()), units * int(parts.sum())
    partial = plan.scratch if plan.splits > 1 else sizes.q
    sectors = sizes.rows * plan.splits * (SECTOR - FLOAT) if plan.splits > 1 else 0
    return LaunchModel(
        launch.symbol,
        (sizes.q + 2 * sizes.k, partial),
        (plan.splits * sizes.q + _head_bytes(work, keys), partial + sectors),
        **{**_by_warps(plan, work, done), "shared": None},
        tiles=done,
    )


def _half_split_combine(plan: Plan, launch: Launch, work: Workload, sizes: _Sizes) -> LaunchModel:
    return LaunchModel(launch.symbol, (plan.scratch, sizes.q), (plan.scratch, sizes.q))


def _half_cores(plan: Plan, launch: Launch, work: Workload, sizes: _Sizes) -> LaunchModel:
    """FFMA; the eight threads of a row each compute the factor by which O shrinks."""
    m = plan.macros
    tiles, keys = _visited(work, m["BR"], m["BC"])
    pairs = tiles * m["BR"] * m["BC"]
    return LaunchModel(
        launch.symbol,
        (sizes.q + 2 * sizes.k, sizes.q),
        (sizes.q + _head_bytes(work, keys), sizes.q),
        ffma_flops=4 * work.d * pairs,
        exponentials=pairs + 8 * tiles * m["BR"],
        tiles=tiles,
    )


def _backward_delta(plan: Plan, launch: Launch, work: Workload, sizes: _Sizes) -> LaunchModel:
    """A warp a row: its one number leaves as a sector."""
    return LaunchModel(
        launch.symbol,
        (2 * sizes.q, FLOAT * sizes.rows),
        (2 * sizes.q, SECTOR * sizes.rows),
        ffma_flops=2 * work.d * sizes.rows,
    )


def _backward_dq(plan: Plan, launch: Launch, work: Workload, sizes: _Sizes) -> LaunchModel:
    """A block keeps rows of Q and dO, and lets K and V pass: S, dP and dQ are products."""
    rows, streamed = _tile(plan, "DQ")
    last = np.arange(0, work.Nq, rows, dtype=np.int64) + rows - 1
    tiles = _times(_keys_of(work, last), streamed)
    heads = work.batch * work.heads
    keys, count = heads * int(np.minimum(work.Nk, tiles * streamed).sum()), heads * int(tiles.sum())
    stats = 2 * FLOAT * sizes.rows
    return LaunchModel(
        launch.symbol,
        (2 * sizes.q + 2 * sizes.k + stats, sizes.q),
        (2 * sizes.q + _head_bytes(work, keys) + stats, sizes.q),
        **_products(plan, work, 3, count * rows * streamed),
        tiles=count,
    )


def _backward_dkdv(plan: Plan, launch: Launch, work: Workload, sizes: _Sizes) -> LaunchModel:
    """A block keeps keys of K and V, and lets rows of Q and dO pass: S, dP, dK and dV are products."""
    rows, streamed = _tile(plan, "DKDV")
    key0 = np.arange(0, work.Nk, rows, dtype=np.int64)
    first = np.maximum(0, key0 - work.offset) // streamed * streamed if work.causal else np.zeros_like(key0)
    passed = np.maximum(0, work.Nq - first)
    heads = work.batch * work.heads
    queries, count = heads * int(passed.sum()), heads * int(_times(passed, streamed).sum())
    stats = 2 * FLOAT * sizes.rows
    return LaunchModel(
        launch.symbol,
        (2 * sizes.q + 2 * sizes.k + stats, 2 * sizes.k),
        (2 * sizes.k + _head_bytes(work, queries) + 2 * FLOAT * queries, 2 * sizes.k),
        **_products(plan, work, 4, count * rows * streamed),
        tiles=count,
    )


def _tile(plan: Plan, which: str) -> tuple[int, int]:
    """Rows that a block of a pass owns, and rows that it streams."""
    m = plan.macros
    if plan.variant == backward_mma.NAME:
        return 16 * m[f"{which}_WARPS"] * m[f"{which}_MI"], m[f"{which}_BC"]
    return m["BR"], m["BC"]


def _products(plan: Plan, work: Workload, count: int, pairs: int) -> dict[str, int]:
    """So many products of each pair, by FFMA or on tensor cores (not known of float32, whose pieces are multiplied)."""
    flops = count * 2 * padded_d(work.d) * pairs
    if plan.variant != backward_mma.NAME:
        return {"ffma_flops": flops, "exponentials": pairs}
    return {"tensor_flops": 0 if work.dtype == FLOAT32 else flops, "exponentials": pairs}


def _unknown(plan: Plan, launch: Launch, work: Workload, sizes: _Sizes) -> LaunchModel:
    return LaunchModel(launch.symbol, (0, 0))


_MODELS: dict[str, Callable[[Plan, Launch, Workload, _Sizes], LaunchModel]] = {
    half.NAME: _half,
    halfshort.NAME: _half,
    halfmma.MMA: _half_mma,
    halfmma.SPLIT: _half_split,
    f"{halfmma.SPLIT}_combine": _half_split_combine,
    halfmma.CORES: _half_cores,
    "backward_delta": _backward_delta,
    "backward_dq": _backward_dq,
    "backward_dkdv": _backward_dkdv,
    "backward_mma_dq": _backward_dq,
    "backward_mma_dkdv": _backward_dkdv,
}

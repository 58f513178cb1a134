"""What each launch of a kernel of gradients moves and computes by its plan: see measure.model.

A pass owns rows of two matrices, and lets tiles of two others pass: all, or with a mask those that some owned row sees.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from hw4cli.lab.arraymodel.around import STATS, delta, is_one_pass, part_sums, pieces, round_sums, stats, sums
from hw4cli.lab.arraymodel.counts import HALF, Sizes, head_bytes, keys_of, times
from hw4cli.lab.measure.model import LaunchModel
from hw4cli.lab.stepper.cache import AS_THEY_END, COPIES, IN_ROUNDS, Visit, read_again
from hw4cli.lab.stepper.wavefronts import ALIKE, FOURS, LANES, WAVEFRONT
from hw4cli.plans import backwardcut as cut
from hw4cli.plans import backwardwgmma as hopper
from hw4cli.plans.common import padded_d
from hw4cli.plans.formulas import FLOAT, ceil_div
from hw4cli.plans.gradients import GRADIENTS
from hw4cli.plans.plan import Launch, Plan
from hw4cli.problem.workload import FLOAT32, Workload

WARPS = 4  # of a warpgroup


def gradient_models(plan: Plan, work: Workload, cache: int = 0) -> list[LaunchModel]:
    """The model of each launch of a plan. Of a launch that is not known, nothing.

    `cache`: bytes of the L2 cache, for kernels on Hopper; 0 for one that holds all that is read again. It is taken for
    such a one for one pass where queries of heads that share keys pass: how far blocks are apart is not followed.
    """
    sizes = Sizes.of(work)
    models = [_model_of(plan, launch)(plan, launch, work, sizes) for launch in plan.launches]
    if not cache or not stays(plan):
        return models
    return [_with_again(model, plan, launch, work, cache) for model, launch in zip(models, plan.launches, strict=True)]


# ---- The passes


def stays(plan: Plan) -> bool:
    """Whether blocks take task after task, as those for warpgroups do."""
    return GRADIENTS[plan.variant].persistent


def tile(plan: Plan, which: str) -> tuple[int, int]:
    """Rows that a block of a pass owns, and rows that pass at a time."""
    m = plan.macros
    if "DQ_WARPS" in m:  # by fragments
        return 16 * m[f"{which}_WARPS"] * m[f"{which}_MI"], m[f"{which}_BC"]
    if "DQ_GROUPS" in m:  # by warpgroups
        return hopper.OWNED * m[f"{which}_GROUPS"], m[f"{which}_TILE"]
    return (cut.KEYS, m["ONCE_TILE"]) if is_one_pass(plan) else (m["BR"], m["BC"])


def _keys_end(plan: Plan, work: Workload, last_row: Any, streamed: int) -> Any:
    """Up to which tile of keys rows pass; on Hopper at least one passes."""
    return np.maximum(int(stays(plan)), times(keys_of(work, last_row), streamed))


def _queries_begin(plan: Plan, work: Workload, first_key: Any, streamed: int) -> Any:
    """From which tile of queries on keys are seen; on Hopper at least the last one passes."""
    first = np.maximum(0, first_key - work.offset) // streamed if work.causal else np.zeros_like(first_key)
    last = ceil_div(work.Nq, streamed)
    return np.minimum(first, last - 1 if stays(plan) else last)


def _dq(plan: Plan, launch: Launch, work: Workload, sizes: Sizes) -> LaunchModel:
    """A block keeps rows of Q and dO, and lets K and V pass: S, dP and dQ are products."""
    rows, streamed = tile(plan, "DQ")
    first = np.arange(0, work.Nq, rows, dtype=np.int64)
    tiles = _keys_end(plan, work, first + rows - 1, streamed)
    heads = work.batch * work.heads
    keys, count = heads * int(np.minimum(work.Nk, tiles * streamed).sum()), heads * int(tiles.sum())
    stats = STATS * sizes.rows
    groups = np.arange(0, len(first) * rows, hopper.OWNED, dtype=np.int64) + hopper.OWNED - 1
    own = heads * int(_keys_end(plan, work, groups, streamed).sum())
    return LaunchModel(
        launch.symbol,
        (2 * sizes.q + 2 * sizes.k + stats, sizes.q),
        (2 * sizes.q + head_bytes(work, keys) + stats, sizes.q),
        **(_by_groups(plan, 3, own, streamed) if stays(plan) else _products(plan, launch, work, 3, count)),
        tiles=count,
    )


def _dkdv(plan: Plan, launch: Launch, work: Workload, sizes: Sizes) -> LaunchModel:
    """A block keeps keys of K and V, and lets rows of Q and dO pass: S, dP, dK and dV are products."""
    rows, streamed = tile(plan, "DKDV")
    heads, all_tiles = work.batch * work.heads, ceil_div(work.Nq, streamed)
    key0 = np.arange(0, work.Nk, rows, dtype=np.int64)
    begin = _queries_begin(plan, work, key0, streamed)
    queries = heads * int((work.Nq - begin * streamed).clip(0).sum())
    count = heads * int((all_tiles - begin).sum())
    if stays(plan):  # the stats of whole tiles are copied
        groups = np.arange(0, len(key0) * rows, hopper.OWNED, dtype=np.int64)
        own = heads * int((all_tiles - _queries_begin(plan, work, groups, streamed)).sum())
        computed, passed = _by_groups(plan, 4, own, streamed), count * streamed
    else:
        computed, passed = _products(plan, launch, work, 4, count), queries
    return LaunchModel(
        launch.symbol,
        (2 * sizes.q + 2 * sizes.k + STATS * sizes.rows, 2 * sizes.k),
        (2 * sizes.k + head_bytes(work, queries) + STATS * passed, 2 * sizes.k),
        **computed,
        tiles=count,
    )


def _once(plan: Plan, launch: Launch, work: Workload, sizes: Sizes) -> LaunchModel:
    """As backward_wgmma's second pass, whose groups both visit every tile; each tile's part of dQ, a product more, is
    stored or added in the L2 cache. Parts each read their keys, and write sums in place of dK and dV."""
    passes = _dkdv(plan, launch, work, sizes)
    assert passes.l2 is not None
    part = FLOAT * plan.macros["ONCE_TILE"] * plan.macros["COLUMNS"]
    parts, keys = part_sums(plan, work, sizes)
    read, written = passes.dram
    written += parts - keys
    computed: dict[str, Any] = _by_groups(plan, 4, 2 * passes.tiles, plan.macros["ONCE_TILE"], adds=True)
    return replace(
        passes,
        dram=(read, written + sums(plan, work)),
        l2=(passes.l2[0] + keys * (cut.Cut(*plan.cut).parts - 1), passes.l2[1] + passes.tiles * part + parts - keys),
        **computed,
    )


def _products(plan: Plan, launch: Launch, work: Workload, count: int, tiles: int) -> dict[str, Any]:
    """So many products of each pair, by FFMA or on tensor cores (not known of float32, whose pieces are multiplied)."""
    rows, streamed = tile(plan, "DQ" if count == 3 else "DKDV")
    pairs = tiles * rows * streamed
    flops = count * 2 * padded_d(work.d) * pairs
    if "DQ_WARPS" not in plan.macros:  # by CUDA cores
        own = 2 * FLOAT * launch.grid * rows * plan.macros["WIDTH"]
        shared = WAVEFRONT * tiles * _accesses_of_cores(plan, count) + own
        return {"shared": shared, "ffma_flops": flops, "exponentials": pairs}
    if work.dtype == FLOAT32:
        return {"tensor_flops": 0, "exponentials": pairs}
    return {"shared": tiles * _by_fragments(plan, work, count), "tensor_flops": flops, "exponentials": pairs}


def _accesses_of_cores(plan: Plan, count: int) -> int:
    """Accesses of shared memory for a tile: two products of OWN x STREAMED rows a thread, whose neighbours read the
    same; others, of what is shown before, are sums in which a thread has chunks of four columns of some rows."""
    m = plan.macros
    chunks, warps = m["WIDTH"] // 4, m["THREADS"] // LANES
    across = min(m["BC"] // m["STREAMED"], chunks)
    rows, own_chunks = m["BR"] * across // m["THREADS"], chunks // across
    scores = 2 * chunks * (m["OWN"] + m["STREAMED"]) * ALIKE
    sums = m["OWN"] * m["STREAMED"] + m["BC"] // 4 * (rows * ALIKE + 4 * own_chunks * FOURS)
    return warps * (scores + (count - 2) * sums) + 2 * m["BC"] * m["WIDTH"] // LANES


def _by_fragments(plan: Plan, work: Workload, count: int) -> int:
    """Bytes of shared memory that warps read for a tile: what passes, once for each product; and their own rows, where
    these are not kept in registers, twice for each SUB rows."""
    m, which, columns = plan.macros, "DQ" if count == 3 else "DKDV", 16 * ceil_div(work.d, 16)
    own = 0 if m[f"{which}_KEPT"] else 2 * m[f"{which}_BC"] // m[f"{which}_SUB"] * 16 * m[f"{which}_MI"]
    return m[f"{which}_WARPS"] * HALF * columns * (count * m[f"{which}_BC"] + own)


def _by_groups(plan: Plan, count: int, tiles: int, streamed: int, adds: bool = False) -> dict[str, int]:
    """What groups of 64 owned rows compute of so many tiles: S and dP from shared memory alone, sums with P and dS in
    registers; `adds`: dQ too, 64 x 64 numbers of it. Of a tile of queries, each warp's threads read two numbers of each
    row; where dQ is added, they leave dS and their part of dQ."""
    columns = plan.macros["COLUMNS"]
    operands = HALF * columns * (2 * (hopper.OWNED + streamed) + (count - 2) * streamed)
    flops = count * 2 * columns * hopper.OWNED * streamed
    accesses = 0 if count == 3 else WARPS * streamed // 2
    if adds:
        operands += HALF * 2 * hopper.OWNED * cut.KEYS
        flops += 2 * hopper.OWNED * hopper.OWNED * cut.KEYS
        accesses += (HALF * hopper.OWNED * streamed + FLOAT * hopper.OWNED * hopper.OWNED) // WAVEFRONT
    return {
        "shared": tiles * accesses * WAVEFRONT,
        "tensor_flops": tiles * flops,
        "operands": tiles * operands,
        "exponentials": tiles * hopper.OWNED * streamed,
    }


def _unknown(plan: Plan, launch: Launch, work: Workload, sizes: Sizes) -> LaunchModel:
    return LaunchModel(launch.symbol, (0, 0))


Model = Callable[[Plan, Launch, Workload, Sizes], LaunchModel]


def _model_of(plan: Plan, launch: Launch) -> Model:
    if is_one_pass(plan) and launch is plan.launches[plan.main]:
        return _once
    return _MODELS.get(launch.symbol, _unknown)


# By the symbol of a launch.
_MODELS: dict[str, Model] = {
    "backward_delta": delta,
    "backward_stats": stats,
    "backward_pieces": pieces,
    "backward_dq": _dq,
    "backward_dkdv": _dkdv,
    "backward_mma_dq": _dq,
    "backward_mma_dkdv": _dkdv,
    "backward_round": round_sums,
}


# ---- What the L2 cache does not hold


def _with_again(model: LaunchModel, plan: Plan, launch: Launch, work: Workload, cache: int) -> LaunchModel:
    """With the bytes of what passes that come from DRAM again, and of sums of dQ that also go there again. Sums are
    added where they lie, in one half of the cache."""
    if launch.symbol == "backward_dq":
        visits, passing, order = [*_dq_visits(plan, work)], head_bytes(work, 1), IN_ROUNDS
    elif launch.symbol == "backward_dkdv" or (is_one_pass(plan) and work.heads == work.kv_heads and _is_whole(plan)):
        visits, passing, order = [*_dkdv_visits(plan, work)], head_bytes(work, 1) + STATS, IN_ROUNDS
    else:
        return model
    sums = 0
    if is_one_pass(plan):
        sums, order = FLOAT * plan.macros["COLUMNS"], AS_THEY_END
    visits = [visits[n] for n in _task_order(len(visits), work, launch)]
    if launch.symbol == "backward_dkdv":
        visits = [*_head_by_head(visits, work.heads // work.kv_heads, launch.grid)]
    room = COPIES * passing + sums / COPIES
    again = read_again(visits, launch.grid, passing + sums, cache, order, room)
    read, written = model.dram
    return replace(model, dram=(read + again, written + again * sums // (passing + sums)))


def _is_whole(plan: Plan) -> bool:
    return not plan.cut or cut.Cut(*plan.cut).parts == 1


def _task_order(tasks: int, work: Workload, launch: Launch) -> Iterator[int]:
    """The numbers of tasks, head by head in rows from the longest to the shortest, in the order in which blocks take
    them: kernels/backward_wgmma.cuh, task_of and each_task."""
    heads = work.batch * (work.heads if launch.symbol == "backward_dq" else work.kv_heads)
    in_two = launch.symbol in ("backward_dq", "backward_dkdv")  # passes
    section = hopper.section(work) if in_two else cut.section(work)
    tiles = tasks // heads
    order = [
        head * tiles + tile
        for start in range(0, heads, section)
        for tile in range(tiles)
        for head in range(start, min(heads, start + section))
    ]
    for start in range(0, tasks, launch.grid):
        some = order[start : start + launch.grid]
        back = work.causal and in_two and start // launch.grid % 2
        yield from reversed(some) if back else some


def _dq_visits(plan: Plan, work: Workload) -> Iterator[Visit]:
    rows, streamed = tile(plan, "DQ")
    first = np.arange(0, work.Nq, rows, dtype=np.int64)
    end = np.minimum(work.Nk, _keys_end(plan, work, first + rows - 1, streamed) * streamed).tolist()
    for head in range(work.batch * work.heads):
        for n in reversed(range(len(end))) if work.causal else range(len(end)):
            own = HALF * work.d * min(rows, work.Nq - n * rows)
            yield Visit(head * work.kv_heads // work.heads, 0, end[n], 2 * own, own)


def _dkdv_visits(plan: Plan, work: Workload) -> Iterator[Visit]:
    """Of heads of keys; backward_once begins at the end of the queries."""
    rows, streamed = tile(plan, "DKDV")
    begin = _queries_begin(plan, work, np.arange(0, work.Nk, rows, dtype=np.int64), streamed) * streamed
    for head in range(work.batch * work.kv_heads):
        for n, first in enumerate(begin.tolist()):
            own = 2 * HALF * work.d * min(rows, work.Nk - n * rows)
            there = (0, work.Nq - first) if is_one_pass(plan) else (first, work.Nq)
            yield Visit(head, there[0], there[1], own, own)


def _head_by_head(visits: Sequence[Visit], group: int, slots: int) -> Iterator[Visit]:
    """Of tasks that take all queries of one head that shares their keys, then of the next: the visits of each, round by
    round. A task's own rows are read with the first, and its sums are written with the last."""
    for start in range(0, len(visits), slots):
        for head in range(group):
            for one in visits[start : start + slots]:
                reads, writes = one.reads * (head == 0), one.writes * (head == group - 1)
                yield replace(one, keys_of=one.keys_of * group + head, reads=reads, writes=writes)

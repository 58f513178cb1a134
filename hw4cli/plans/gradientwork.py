"""What the kernels of gradients move and compute: the formulas of their entries (gradients.py).

A pass owns rows of two matrices, and lets tiles of two others pass: all, or with a mask those that some owned row sees.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

from hw4cli.plans import backwardcut as cut
from hw4cli.plans import backwardwgmma as hopper
from hw4cli.plans.backwardmma import TILE_ROWS
from hw4cli.plans.backwardonce import heads_together
from hw4cli.plans.common import padded_d
from hw4cli.plans.formulas import FLOAT, ceil_div
from hw4cli.plans.halfwork import Sizes, head_bytes, tiles_seen
from hw4cli.plans.plan import DeviceProperties, Launch, LaunchModel, Plan, Visit, Visits
from hw4cli.plans.tensorwork import HALF
from hw4cli.plans.work import ALIKE, COPIES, FOURS, LANES, SECTOR, WAVEFRONT
from hw4cli.problem.workload import BFLOAT16, FLOAT32, Workload

WARPS = 4  # of a warpgroup
STATS = 2 * FLOAT  # bytes of a row's LSE and delta
COUNT = 4  # bytes


def cores(plan: Plan, work: Workload, props: DeviceProperties) -> list[LaunchModel]:
    """backward: both passes by FFMA. Weights are of pairs that there are, and none else."""
    first, dq, dkdv = plan.launches
    m, sizes = plan.macros, Sizes.of(work)
    weights = work.batch * work.heads * sum(tiles_seen(work, range(work.Nq), 1, least=0))

    def computed(launch: Launch, count: int, tiles: int) -> dict[str, Any]:
        pairs, own = tiles * m["BR"] * m["BC"], 2 * FLOAT * launch.grid * m["BR"] * m["WIDTH"]
        return {
            "shared": WAVEFRONT * tiles * _accesses_of_cores(plan, count) + own,
            "ffma_flops": count * 2 * m["WIDTH"] * pairs,
            "exponentials": weights,
        }

    by_queries = _dq(dq, work, m["BR"], m["BC"], least=0)
    by_keys = _dkdv(dkdv, work, m["BR"], m["BC"], stay=False)
    return [
        _delta(first, work, sizes),
        replace(by_queries, **computed(dq, 3, by_queries.tiles)),
        replace(by_keys, **computed(dkdv, 4, by_keys.tiles)),
    ]


def fragments(plan: Plan, work: Workload, props: DeviceProperties) -> list[LaunchModel]:
    """backward_mma: both passes by mma.sync. A warp takes SUB rows at a time of what passes, those that some of its own
    rows see, or are seen by."""
    first, dq, *of_keys = plan.launches
    heads, queries = work.batch * work.heads, ceil_div(work.Nq, plan.macros["DKDV_SUB"])
    rows, keys = _warps(plan, "DQ", work.Nq), _warps(plan, "DKDV", work.Nk)
    seen = tiles_seen(work, (row + rows.step - 1 for row in rows), plan.macros["DQ_SUB"], least=0)
    begins = _queries_begin(work, keys, plan.macros["DKDV_SUB"], stay=False)
    two = work.dtype == FLOAT32  # pieces, of whose products the least is left out

    def computed(launch: Launch, which: str, count: int, subs: int) -> dict[str, Any]:
        m, columns, sub = plan.macros, 16 * ceil_div(work.d, 16), plan.macros[f"{which}_SUB"]
        own, kept = 16 * m[f"{which}_MI"], bool(m[f"{which}_KEPT"])
        # What passes is read once for each product, and the warp's rows, unless registers keep them, twice; of queries,
        # each thread reads two numbers of four, for eight; of pieces, two scales.
        reads = HALF * columns * (count * sub + (0 if kept else 2 * own)) * (1 + two)
        reads += WAVEFRONT * ((sub // 2 if which == "DKDV" else 0) + 2 * two)
        return {
            "shared": subs * reads + launch.grid * 2 * HALF * columns * owned_rows(plan, which) * kept,
            "tensor_flops": count * 2 * padded_d(work.d) * subs * own * sub * (3 if two else 1),
            "exponentials": subs * own * sub,
        }

    by_queries = _dq(dq, work, owned_rows(plan, "DQ"), plan.macros["DQ_BC"], least=0)
    by_keys = [_dkdv(step, work, owned_rows(plan, "DKDV"), plan.macros["DKDV_BC"], stay=False) for step in of_keys]
    products = (4,) if len(of_keys) == 1 else (3, 2)  # of dK and dV together, or one after the other
    if two:  # rows of dO's pieces, and delta, are divided by the sums of the rows' weights
        sizes, ((read, written), l2) = Sizes.of(work), (by_queries.dram, by_queries.l2 or (0, 0))
        more = sizes.q + FLOAT * sizes.rows
        by_queries = replace(by_queries, dram=(read, written + more), l2=(l2[0] + more, l2[1] + more))
    return [
        _pieces(first, work, Sizes.of(work)),
        replace(by_queries, **computed(dq, "DQ", 3, heads * sum(seen))),
        *(
            replace(one, **computed(step, "DKDV", count, heads * sum(queries - begin for begin in begins)))
            for one, step, count in zip(by_keys, of_keys, products, strict=True)
        ),
    ]


def warpgroups(plan: Plan, work: Workload, props: DeviceProperties) -> list[LaunchModel]:
    """backward_wgmma: blocks take task after task of a pass."""
    first, dq, dkdv = plan.launches
    m = plan.macros
    rows, streamed = owned_rows(plan, "DQ"), m["DQ_TILE"]
    groups = ceil_div(work.Nq, rows) * rows // hopper.OWNED
    last = (hopper.OWNED * (group + 1) - 1 for group in range(groups))
    own = work.batch * work.heads * sum(tiles_seen(work, last, streamed))
    by_queries = replace(
        _dq(dq, work, rows, streamed),
        **_by_groups(plan, 3, own, streamed),
        again=lambda resident: _visits_of_queries(plan, dq, work),
    )
    rows, streamed = owned_rows(plan, "DKDV"), m["DKDV_TILE"]
    groups = ceil_div(work.Nk, rows) * rows // hopper.OWNED
    begins = _queries_begin(work, (hopper.OWNED * group for group in range(groups)), streamed, stay=True)
    own = work.batch * work.heads * sum(ceil_div(work.Nq, streamed) - begin for begin in begins)
    by_keys = replace(
        _dkdv(dkdv, work, rows, streamed, stay=True),
        **_by_groups(plan, 4, own, streamed, together=hopper.pass_of(plan, "DKDV").together),
        again=lambda resident: _visits_of_keys(plan, dkdv, work),
    )
    claimed = hopper.claimed_bytes(m["COLUMNS"])
    return [_stats(first, work, Sizes.of(work), m["DKDV_TILE"], claimed), by_queries, by_keys]


def is_one_pass(plan: Plan) -> bool:
    """Whether scores are computed once, for all three gradients."""
    return "ONCE_TILE" in plan.macros


def one_pass(plan: Plan, work: Workload, props: DeviceProperties, atomic: bool = False) -> list[LaunchModel]:
    """backward_once, backward_atomic: as backward_wgmma's second pass, whose groups both visit every tile; each tile's
    part of dQ, a product more, is stored or added in the L2 cache. Parts each read their keys, and write sums in place
    of dK and dV. The first launch clears counts, and where additions are `atomic` the sums. Where the pass rounds dQ,
    the last part of a tile is not added: the others' sum is read, if there are others.

    Scores are asked for a tile ahead, and dQ is multiplied a tile late: of each task, a product of both is not used."""
    first, main, *last = plan.launches
    streamed, sizes, how = plan.macros["ONCE_TILE"], Sizes.of(work), cut.Cut(*plan.cut)
    passes = _dkdv(main, work, cut.KEYS, streamed, stay=True)
    assert passes.l2 is not None
    dq = _sums_of_dq(plan, work, passes.tiles)
    heads = work.batch * work.kv_heads
    # Bytes of parts' sums of dK and dV, and of dK and dV that are added up from them.
    parts, keys = cut.part_bytes(work, how), 2 * sizes.k * (heads - how.first) // heads if how.parts > 1 else 0
    read, written = passes.dram
    written += parts - keys
    tasks = (how.first + (heads - how.first) * how.parts) * ceil_div(work.Nk, cut.KEYS)
    columns, computed = plan.macros["COLUMNS"], _by_groups(plan, 4, 2 * passes.tiles, streamed, adds=True)
    if plan.macros["ONCE_APART"]:
        # Scores of half a tile ahead, with K from registers: read once a task. V is read for each half.
        half = streamed // 2
        computed["tensor_flops"] += 2 * tasks * 2 * hopper.OWNED * columns * half
        computed["operands"] += 2 * tasks * HALF * columns * half
        computed["shared"] += 2 * tasks * HALF * columns * hopper.OWNED
    else:
        numbers = streamed * columns // 2  # of dQ
        computed["tensor_flops"] += 2 * tasks * 2 * (hopper.OWNED * columns * streamed + numbers * cut.KEYS)
        of_scores, of_dq = columns * (hopper.OWNED + streamed), (hopper.OWNED + numbers // hopper.OWNED) * cut.KEYS
        computed["operands"] += 2 * tasks * HALF * (of_scores + of_dq)
    computed["shared"] -= dq.alone
    # How far blocks are apart is not followed where queries of heads that share keys pass, or work is cut.
    followed = work.heads == work.kv_heads and how.parts == 1
    passes = replace(
        passes,
        dram=(read, written + dq.kept + dq.rounded),
        l2=(passes.l2[0] + keys * (how.parts - 1) + dq.back, passes.l2[1] + dq.added + dq.rounded + parts - keys),
        **computed,
        again=(lambda resident: _visits_of_keys(plan, main, work)) if followed else None,
    )
    cleared = COUNT * (how.chains * hopper.stats_rows(work, streamed) // streamed + 1)
    after = (parts, keys) if dq.rounded else (dq.kept + parts, sizes.q + keys)
    return [
        _stats(first, work, sizes, streamed, cleared + atomic * dq.kept),
        passes,
        *(LaunchModel(launch.symbol, after, after, 0) for launch in last),
    ]


class SumsOfDq(NamedTuple):
    """Bytes of dQ in one pass: of sums that are kept in memory; of parts that are added there; of sums that come back,
    and of what they are rounded to, where the pass does that; of parts that are `alone`, rounded as they are."""

    kept: int
    added: int
    back: int = 0
    rounded: int = 0
    alone: int = 0


def _sums_of_dq(plan: Plan, work: Workload, visits: int) -> SumsOfDq:
    """Of so many visits of tiles of queries, each of which makes a part of dQ, in float32."""
    streamed = plan.macros["ONCE_TILE"]
    part = FLOAT * streamed * plan.macros["COLUMNS"]
    how = cut.Cut(*plan.cut)
    if not how.rounded:
        return SumsOfDq(cut.kept_bytes(work, how), visits * part)
    tiles = work.row_tiles(streamed)  # each is visited by the first keys, those from the second's first one on again
    _, *others = _queries_begin(work, range(0, work.Nk, cut.KEYS), streamed, stay=True)
    alone = work.batch * work.heads * others[0] if others else tiles
    back = (tiles - alone) * part
    return SumsOfDq(back, (visits - tiles) * part, back, Sizes.of(work).q, alone * part)


# ---- Launches before the passes: numbers of each row, pieces of matrices


def _delta(launch: Launch, work: Workload, sizes: Sizes) -> LaunchModel:
    """A warp a row: its one number leaves as a sector."""
    flops = 2 * work.d * sizes.rows
    written = FLOAT * sizes.rows, SECTOR * sizes.rows
    return LaunchModel(launch.symbol, (2 * sizes.q, written[0]), (2 * sizes.q, written[1]), 0, ffma_flops=flops)


def _stats(launch: Launch, work: Workload, sizes: Sizes, streamed: int, cleared: int = 0) -> LaunchModel:
    """From O, dO and the LSE two numbers a row, also of rows that fill a tile; and so many bytes are cleared."""
    rows = hopper.stats_rows(work, streamed)
    moved = 2 * sizes.o + FLOAT * sizes.rows, STATS * rows + cleared
    return LaunchModel(launch.symbol, moved, moved, 0, ffma_flops=2 * work.value_columns * sizes.rows)


def _pieces(launch: Launch, work: Workload, sizes: Sizes) -> LaunchModel:
    """From O, dO and the LSE two numbers a row, also of rows that fill a tile, which leave as a sector; of V, but for
    bfloat16, the largest, and scales of each tile; of float32 all four matrices in two pieces, as many bytes. What is
    left in shared memory is next to nothing."""
    matrices, scales = (2 * sizes.q, 0) if work.dtype == BFLOAT16 else (2 * sizes.q + sizes.k, launch.grid)
    parts = 0
    if work.dtype == FLOAT32:
        matrices, parts = 3 * sizes.q + 2 * sizes.k, 2 * (sizes.q + sizes.k)
    read, rows = matrices + FLOAT * sizes.rows, work.row_tiles(TILE_ROWS) * TILE_ROWS
    return LaunchModel(
        launch.symbol,
        (read, parts + STATS * rows + 4 * FLOAT * scales),
        (read, parts + SECTOR * (rows + scales)),
        ffma_flops=2 * work.d * sizes.rows,
    )


# ---- The passes


def _warps(plan: Plan, which: str, rows: int) -> range:
    """The first row of each warp of a pass by fragments, of a head; the step is the rows of a warp."""
    own = owned_rows(plan, which)
    return range(0, ceil_div(rows, own) * own, 16 * plan.macros[f"{which}_MI"])


def _queries_begin(work: Workload, first_keys: Iterable[int], streamed: int, stay: bool) -> list[int]:
    """From which tile of queries on keys are seen; where blocks stay, at least the last one passes."""
    last = ceil_div(work.Nq, streamed)
    firsts = (max(0, key - work.offset) // streamed if work.causal else 0 for key in first_keys)
    return [min(first, last - 1 if stay else last) for first in firsts]


def _dq(launch: Launch, work: Workload, rows: int, streamed: int, least: int = 1) -> LaunchModel:
    """A block keeps rows of Q and dO, and lets K and V pass: S, dP and dQ are products."""
    tiles = tiles_seen(work, range(rows - 1, work.Nq + rows - 1, rows), streamed, least)
    heads, sizes = work.batch * work.heads, Sizes.of(work)
    keys = heads * sum(min(work.Nk, count * streamed) for count in tiles)
    stats = STATS * sizes.rows
    return LaunchModel(
        launch.symbol,
        (sizes.q + sizes.o + sizes.k + sizes.v + stats, sizes.q),
        (sizes.q + sizes.o + head_bytes(work, keys) + stats, sizes.q),
        tiles=heads * sum(tiles),
    )


def _dkdv(launch: Launch, work: Workload, rows: int, streamed: int, stay: bool) -> LaunchModel:
    """A block keeps keys of K and V, and lets rows of Q and dO pass: S, dP, dK and dV are products. Where blocks stay,
    the stats of whole tiles are copied."""
    heads, sizes = work.batch * work.heads, Sizes.of(work)
    begin = _queries_begin(work, range(0, work.Nk, rows), streamed, stay)
    queries = heads * sum(max(0, work.Nq - first * streamed) for first in begin)
    count = heads * sum(ceil_div(work.Nq, streamed) - first for first in begin)
    passed, rows_read = (count * streamed, hopper.stats_rows(work, streamed)) if stay else (queries, sizes.rows)
    return LaunchModel(
        launch.symbol,
        (sizes.q + sizes.o + sizes.k + sizes.v + STATS * rows_read, sizes.k + sizes.v),
        (sizes.k + sizes.v + head_bytes(work, queries) + STATS * passed, sizes.k + sizes.v),
        tiles=count,
    )


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


def owned_rows(plan: Plan, which: str) -> int:
    """Rows that a block of a pass, "DQ" or "DKDV", owns, of fragments or of groups of four warps."""
    m = plan.macros
    if f"{which}_GROUPS" in m:
        return hopper.pass_of(plan, which).rows
    return 16 * m[f"{which}_WARPS"] * m[f"{which}_MI"]


def _by_groups(
    plan: Plan, count: int, tiles: int, streamed: int, adds: bool = False, together: bool = False
) -> dict[str, Any]:
    """What groups of 64 owned rows compute of so many tiles: S and dP from shared memory alone, sums with P and dS in
    registers; `adds`: dQ too, half of it. Of a tile of queries, each warp's threads read two numbers of each
    row; where dQ is added, they leave dS and their part of dQ. Two groups with the same rows (`together`) both read
    these numbers, and P passes from one to the other."""
    columns, values = plan.macros["COLUMNS"], hopper.value_columns(plan)
    of_scores, of_sums = columns + values, columns if count == 3 else columns + values
    operands = HALF * (of_scores * (hopper.OWNED + streamed) + of_sums * streamed)
    flops = (of_scores + of_sums) * 2 * hopper.OWNED * streamed
    accesses = 0 if count == 3 else WARPS * streamed // 2
    if adds:
        part = streamed * columns // 2  # numbers of dQ, in columns of 64
        operands += HALF * (hopper.OWNED + part // hopper.OWNED) * cut.KEYS
        flops += 2 * part * cut.KEYS
        accesses += (HALF * hopper.OWNED * streamed + FLOAT * part) // WAVEFRONT
    if together:
        accesses += accesses + 2 * HALF * hopper.OWNED * streamed // WAVEFRONT
    return {
        "shared": tiles * accesses * WAVEFRONT,
        "tensor_flops": tiles * flops,
        "operands": tiles * operands,
        "exponentials": tiles * hopper.OWNED * streamed,
    }


# ---- In which order blocks take tasks


def _visits_of_queries(plan: Plan, launch: Launch, work: Workload) -> Visits:
    """Of the pass that owns queries."""
    rows, streamed = owned_rows(plan, "DQ"), plan.macros["DQ_TILE"]
    count = tiles_seen(work, range(rows - 1, work.Nq + rows - 1, rows), streamed)
    order = [*reversed(range(len(count)))] if work.causal else [*range(len(count))]
    heads, visits = work.batch * work.heads, list[Visit]()
    for head in range(heads):
        for n in order:
            own, end = min(rows, work.Nq - n * rows), min(work.Nk, count[n] * streamed)
            kv_head = head * work.kv_heads // work.heads
            visits.append(Visit(kv_head, 0, end, head_bytes(work, own), HALF * work.d * own))
    passing = head_bytes(work, 1)
    turning = work.causal and not hopper.claimed_bytes(plan.macros["COLUMNS"])
    ordered = _in_task_order(visits, heads, hopper.section(work), launch.grid, turning)
    return Visits(ordered, launch.grid, passing, in_rounds=True, footprint=COPIES * passing)


def _visits_of_keys(plan: Plan, launch: Launch, work: Workload) -> Visits:
    """Of a pass that owns keys: of two passes', whose tasks take all queries of one head that shares their keys, then
    of the next; or of one pass, which begins at the end of the queries, and whose sums of dQ are added where they lie,
    in one half of the cache."""
    once = is_one_pass(plan)
    rows = cut.KEYS if once else owned_rows(plan, "DKDV")
    streamed = plan.macros["ONCE_TILE" if once else "DKDV_TILE"]
    begin = _queries_begin(work, range(0, work.Nk, rows), streamed, stay=True)
    heads, visits = work.batch * work.kv_heads, list[Visit]()
    for head in range(heads):
        for n, tile in enumerate(begin):
            own, first = head_bytes(work, min(rows, work.Nk - n * rows)), tile * streamed
            there = (0, work.Nq - first) if once else (first, work.Nq)
            visits.append(Visit(head, *there, own, own))
    passing = head_bytes(work, 1) + STATS
    if once:
        sums = FLOAT * plan.macros["COLUMNS"] if cut.kept_bytes(work, cut.Cut(*plan.cut)) else 0
        ordered = _in_task_order(visits, heads, heads_together(work, plan), launch.grid)
        room, written = COPIES * passing + sums / COPIES, (sums, passing + sums)
        return Visits(ordered, launch.grid, passing + sums, footprint=room, written=written)
    turning = work.causal and not hopper.claimed_bytes(plan.macros["COLUMNS"])
    ordered = _in_task_order(visits, heads, hopper.section(work), launch.grid, turning)
    by_heads = [*_head_by_head(ordered, work.heads // work.kv_heads, launch.grid)]
    return Visits(by_heads, launch.grid, passing, in_rounds=True, footprint=COPIES * passing)


def _in_task_order(
    visits: Sequence[Visit], heads: int, section: int, blocks: int, turning: bool = False
) -> list[Visit]:
    """Tasks, head by head in rows from the longest to the shortest, in the order in which blocks take them:
    kernels/backward_wgmma.cuh, task_of and each_task. `turning`: every second round from its end."""
    tiles = len(visits) // heads
    order = [
        visits[head * tiles + tile]
        for start in range(0, heads, section)
        for tile in range(tiles)
        for head in range(start, min(heads, start + section))
    ]
    rounds = [order[start : start + blocks] for start in range(0, len(order), blocks)]
    return [one for n, some in enumerate(rounds) for one in (reversed(some) if turning and n % 2 else some)]


def _head_by_head(visits: Sequence[Visit], group: int, slots: int) -> Iterator[Visit]:
    """The visits of each head, round by round. A task's own rows are read with the first, and its sums are written with
    the last."""
    for start in range(0, len(visits), slots):
        for head in range(group):
            for one in visits[start : start + slots]:
                reads, writes = one.reads * (head == 0), one.writes * (head == group - 1)
                yield one._replace(keys_of=one.keys_of * group + head, reads=reads, writes=writes)

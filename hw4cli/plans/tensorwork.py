"""What split, split8 and exact move and compute: the formulas of their entries (tensor.py)."""

from dataclasses import replace
from functools import partial
from typing import Any

from hw4cli.plans.common import converters_of
from hw4cli.plans.formulas import FLOAT, Converters, ceil_div
from hw4cli.plans.launch import ABSMAX_BYTES
from hw4cli.plans.plan import (
    REGISTERS,
    SAME_THREAD,
    STAGE,
    Block,
    Bytes,
    DeviceProperties,
    Digitwise,
    LaunchModel,
    Layouts,
    Move,
    Plan,
    Step,
    Tile,
)
from hw4cli.plans.work import (
    LANES,
    QUERIES,
    STORE,
    STORE_PART,
    WAVEFRONT,
    Tasks,
    beside,
    moved_bytes,
    parts_of,
    shares,
    tasks_of,
    tiles_of,
    visits,
    written_bytes,
)
from hw4cli.problem.workload import Workload

HALF = 2  # bytes
# Of 2^x, of either polynomial of kernels/exponentials.cuh: FMAs and additions, each as long as an FMA.
POLYNOMIAL_FLOPS = 2 * 7


def lead(m: Tile) -> int:
    """How many tiles are on their way while one is used: Ring::LEAD of kernels/split_mma.cuh."""
    return m["STAGES"] - (2 if m["BC"] > m["SUB"] or m.get("GROUPS") else 3)


def steps(m: Tile) -> tuple[Step, ...]:
    """Keys come as float32, where the block converts them; else as tiles of halves, some ahead."""
    load_q = Step("Load Q", (Move("Q", "Q" if m["INBLOCK"] and m["WARPGROUPS"] else REGISTERS, QUERIES),))
    if m["INBLOCK"]:
        return load_q, Step("Load and convert", (Move("K, V", STAGE, {"keys*d": 2 * FLOAT}),), tiles=True), STORE
    tile = {"tile": HALF * (2 + m["PV_PIECES"])}
    *first, last = (Move("K, V", STAGE, tile, ahead) for ahead in range(lead(m) + 1))
    return Step("Ask ahead", tuple(first)), load_q, Step("Ask ahead", (last,), tiles=True), STORE, STORE_PART


def fragments(m: Tile) -> Layouts:
    """The accumulators of mma.sync m16n8k16, and of wgmma, whose four warps each have 16 of the 64 rows."""
    warps = m["THREADS"] // 32 - (4 if m.get("GROUPS") else 0)  # without those that copy
    rows = (8, 4), (2, SAME_THREAD), (m["BR"] // 16 // warps, SAME_THREAD), (warps, 32)
    scores, outputs = (
        Digitwise(rows, ((2, SAME_THREAD), (4, 1), (n // 8, SAME_THREAD))) for n in (m["BC"], m["WIDTH"])
    )
    return scores, outputs


BLOCK = Block(steps, "tensor cores", fragments)


def attention(block: Block, plan: Plan, shape: Workload, props: DeviceProperties) -> list[LaunchModel]:
    """The launch that converts, the one that attends, and the one that puts splits together. Blocks may share tasks, of
    which the launch that converts says that nobody has any yet; and some may convert K and V of later batches."""
    main = _main(block, plan, shape, props)
    found = [main if n == plan.main else beside(launch, plan, shape) for n, launch in enumerate(plan.launches)]
    if not plan.macros.get("BALANCED"):
        return found
    late, convert = converters_of(shape, plan.macros, plan.splits), found[0]
    main = _handing_over(main, plan, shape, late)
    if late.blocks:  # what these have just converted, the others find in the cache
        main = replace(
            _share(main, shape.B, shape.B, beside=_share(convert, shape.B - late.first, shape.B)), again=None
        )
    flags = FLOAT * 2 * shape.B if plan.macros["CONVERTING"] else 0
    clears = FLOAT * 2 * shape.B * shape.N + flags
    found[0], found[plan.main] = _writing(_share(convert, late.first, shape.B), clears), main
    return found


def _main(block: Block, plan: Plan, shape: Workload, props: DeviceProperties) -> LaunchModel:
    tasks, m, B = tasks_of(plan, shape), plan.macros, shape.B
    pairs = B * m["BR"] * tasks.tiles(m["SUB"]) * m["SUB"]  # SUB keys are computed together
    keys_read = 2 * FLOAT * shape.elements if m["INBLOCK"] else plan.layout.row_stats - plan.layout.tiles
    noted = ABSMAX_BYTES if len(plan.launches) == 1 else 0  # which are made larger, word by word
    by_polynomial = pairs * m["POLYNOMIAL"] // 16
    key_bytes = keys_read // (B * shape.N)
    again = partial(visits, plan, shape, tasks, key_bytes, block.section, props)
    return LaunchModel(
        plan.launches[plan.main].symbol,
        (FLOAT * shape.elements + keys_read + noted, written_bytes(plan, shape) + noted),
        _l2(block, tasks, plan, shape),
        None if block.steps is None or props.gfx else _shared(tasks, plan, shape),
        _operands(plan, tasks, shape),
        by_polynomial * POLYNOMIAL_FLOPS,
        2 * _columns(m) * pairs,
        pairs - by_polynomial,
        B * tasks.tiles(m["BC"]),
        0,
        4 * m["WIDTH"] * m["INT8"] * pairs,
        again=again if block.steps else None,
    )


def _columns(m: Tile) -> int:
    """Columns of all products of fp16 for a score: of two terms of Q and K without the product of the lesser ones, but
    where integers are in their place the first alone; of P and V."""
    scores = 1 if m["INT8"] else 3
    return m["WIDTH"] * (scores + 2 * m["PV_PIECES"] - 1)


def _operands(plan: Plan, tasks: Tasks, shape: Workload) -> int:
    """Bytes of shared memory that the products of warpgroups read: K hi twice, K lo and V, by each group of 64 rows;
    where blocks convert, as often pieces of Q, for each SUB keys. With integers: K hi, V, and both kinds of K's and Q's
    integers, which together are as long as a piece."""
    m = plan.macros
    if not m["WARPGROUPS"]:
        return 0
    queries = 64 * (1 if m["INT8"] else 3 if m["INBLOCK"] else 0)
    rows = (3 if m["INT8"] else 4) * m["SUB"] + queries
    return shape.B * HALF * m["WIDTH"] * tasks.tiles(m["SUB"]) * rows * m["BR"] // 64


# ---- The L2 cache, and shared memory


def _l2(block: Block, tasks: Tasks, plan: Plan, shape: Workload) -> Bytes | None:
    """O and two numbers of each row that blocks by mma.sync leave where O goes in the end, at each promotion, are
    written, too. To read them again, a multiprocessor seldom asks: it has them in its own cache."""
    m, moved = plan.macros, moved_bytes(block, tasks, plan, shape)
    if moved is None or not m["PROMOTION"] or m["INBLOCK"] or m["WARPGROUPS"] or m["SHARED_SUMS"]:
        return moved
    promoted = shape.B * int((_promotions(m, tasks) * tasks.rows).sum()) * FLOAT * (shape.d + 2)
    return moved[0], moved[1] + promoted


def _promotions(m: Tile, tasks: Tasks) -> Any:
    """How often each block takes its sums out of the tensor cores' accumulators, but for the last time."""
    return (-(-tasks.keys // m["BC"]) - 1).clip(0) * m["BC"] // m["PROMOTION"]


def _shared(tasks: Tasks, plan: Plan, shape: Workload) -> int | None:
    """Bytes that threads read and write. Where groups take turns, the tensor cores read matrices by themselves; blocks
    by mma.sync take all pieces of a tile, once for each warp, as fragments. Of blocks that convert without warpgroups,
    they are not known."""
    m = plan.macros
    piece = m["BC"] * m["WIDTH"] * HALF // WAVEFRONT
    once = tile = sums = 0
    if m["INBLOCK"]:
        if not m["WARPGROUPS"]:
            return None
        squares = 2 * m["BC"] * m["WIDTH"] // 8 // LANES  # of Q and K, stored and read
        once, tile = 2 * piece + squares + 16, 3 * piece + squares  # Q and K in two pieces, V in one; ones
    elif not m.get("GROUPS"):
        tile = m["THREADS"] // LANES * (2 + m["PV_PIECES"]) * piece
    if m.get("GROUPS") or m["SHARED_SUMS"]:
        sums = _sums(m, tasks)
    return shape.B * WAVEFRONT * (len(tasks.rows) * once + tasks.tiles(m["BC"]) * tile + sums)


def _sums(m: Tile, tasks: Tasks) -> int:
    """Accesses of promotion to shared memory (kernels/promotion.cuh): at each, threads store O, l and m there, plus
    what they stored before; at the end they load these."""
    return 2 * int(_promotions(m, tasks).sum()) * (m["WIDTH"] // 8 + 1) * 2 * m["BR"] * 16 // WAVEFRONT


# ---- Blocks that share tasks, or convert


def _writing(model: LaunchModel, more: int) -> LaunchModel:
    """With more bytes written."""
    (read, written), l2 = model.dram, model.l2
    return replace(model, dram=(read, written + more), l2=l2 and (l2[0], l2[1] + more))


def _handing_over(model: LaunchModel, plan: Plan, shape: Workload, late: Converters) -> LaunchModel:
    """With what passes through the L2 cache where two blocks share a task, after the rounds in which some convert: Q
    is read twice; O and two numbers of each row are left, and read again."""
    launch, each = plan.launches[plan.main], ceil_div(shape.N, plan.macros["BR"])
    early = late.rounds * (launch.grid - late.blocks)
    tasks = shape.B * each - early
    if model.l2 is None or not shares(plan, launch, tasks):
        return model
    parts = (part for own in parts_of(tasks, launch.grid, tiles_of(plan, shape)) for part in own)
    starts = [(early + part.task) % each * plan.macros["BR"] for part in parts if part.first]
    rows = sum(min(plan.macros["BR"], shape.N - start) for start in starts)
    left = rows * FLOAT * (shape.d + 2)
    return replace(model, l2=(model.l2[0] + rows * FLOAT * shape.d + left, model.l2[1] + left))


def _share(model: LaunchModel, batches: int, of: int, beside: LaunchModel | None = None) -> LaunchModel:
    """The model of so many batches, and what is moved `beside`."""

    def part(number: int | None) -> Any:
        return None if number is None else number * batches // of

    def moved(mine: Bytes | None, other: Bytes | None) -> Any:
        more = other or (0, 0)
        return mine and (part(mine[0]) + more[0], part(mine[1]) + more[1])

    computed = ("ffma_flops", "dfma_flops", "tensor_flops", "int8_operations", "exponentials", "tiles")
    scaled: dict[str, Any] = {name: part(getattr(model, name)) for name in ("shared", "operands", *computed)}
    dram = moved(model.dram, beside.dram if beside else None)
    return replace(model, dram=dram, l2=moved(model.l2, beside.l2 if beside else None), **scaled)

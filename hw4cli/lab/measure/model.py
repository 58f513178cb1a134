"""What each launch of a kernel moves and computes, by its plan: a model to put beside a profiler's counters.

DRAM: what must move once; with the size of the L2 cache, also what that cannot hold until it is read again
(stepper.cache). What is written may still be in the cache when a launch ends. L2: what the blocks ask for; where blocks
of one multiprocessor ask for the same, its own cache may save a part.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from hw4cli.device.occupancy import occupancy
from hw4cli.lab.measure.gpus import DFMA, DRAM, EXP2, FFMA, L2, SHARED, TENSOR
from hw4cli.lab.stepper.blocks import BlockKeys, blocks_of, parts_of, plan_again, shares, tiles_of
from hw4cli.lab.stepper.cache import SCATTERED_WAYS, left
from hw4cli.lab.stepper.moved import Bytes, moved_bytes
from hw4cli.lab.stepper.plans import helper_bytes
from hw4cli.lab.stepper.wavefronts import WAVEFRONT, paper_wavefronts, wavefronts
from hw4cli.lab.stepper.work import Work, work
from hw4cli.plans.common import converters_of
from hw4cli.plans.formulas import FLOAT, Converters, ceil_div
from hw4cli.plans.ladder import VARIANTS, block_of
from hw4cli.plans.launch import ABSMAX_BYTES
from hw4cli.plans.plan import DeviceProperties, Plan
from hw4cli.plans.tensor import HALF
from hw4cli.problem.workload import Workload

POLYNOMIAL_FLOPS = 2 * (4 + 3)  # of 2^x (kernels/split_wgmma.cuh): FMAs; additions, each as long as an FMA


@dataclass(frozen=True)
class LaunchModel:
    """What one launch moves and computes: bytes read and written of device memory and of the L2 cache (None: not
    known), bytes of shared memory that threads read and write, and that tensor cores read, FLOPs on CUDA cores (of
    float32, of float64) or on tensor cores as tiles are computed, exponentials by special units, and tiles of BR x BC
    scores that are computed."""

    symbol: str
    dram: Bytes
    l2: Bytes | None = None
    shared: int | None = None
    operands: int = 0
    ffma_flops: int = 0
    tensor_flops: int = 0
    exponentials: int = 0
    tiles: int = 0
    dfma_flops: int = 0
    int8_operations: int = 0  # of tensor cores, on integers of 8 bits: twice as fast as FLOPs of fp16

    @property
    def amounts(self) -> dict[str, float | None]:
        """What is asked of each resource of a GPU."""
        return {
            DRAM: sum(self.dram),
            L2: sum(self.l2) if self.l2 else None,
            SHARED: (self.shared or 0) + self.operands,
            FFMA: self.ffma_flops,
            DFMA: self.dfma_flops,
            TENSOR: self.tensor_flops + self.int8_operations / 2,
            EXP2: self.exponentials,
        }


def launch_models(plan: Plan, shape: Workload, props: DeviceProperties, cache: int = 0) -> list[LaunchModel]:
    """The model of each launch of a plan. Of a kernel that is not known, DRAM and FLOPs alone, as if it were fused.

    Rows are those that kernels load, zero columns included; to copy others to such rows is no launch of the plan.
    `cache`: bytes of the L2 cache; 0 for one that holds all.
    """
    shape, block = shape.stored, block_of(plan.variant)
    try:
        # global, which has no shared memory, brings what shared does, if its own cache keeps a tile while warps pass it
        done = work(block.walk or block.moves_as, plan.macros, props.cc)
    except KeyError:
        done = None
    if done and not done.fused:
        return _unfused(plan, shape, done, props, cache)
    if block.moves_as == "keys outside":
        return [_paper(plan, shape, cache)]
    models = []
    for index, launch in enumerate(plan.launches):
        if index == plan.main:
            models.append(_main(launch.symbol, plan, shape, done, props, cache))
        else:
            moved = helper_bytes(launch.symbol, plan, shape)
            shared = 0 if launch.symbol.endswith("_combine") else None
            models.append(LaunchModel(launch.symbol, moved, moved if any(moved) else None, shared))
    return _with_what_blocks_share(models, plan, shape)


def _with_what_blocks_share(models: list[LaunchModel], plan: Plan, shape: Workload) -> list[LaunchModel]:
    """The models where blocks share tasks, of which the launch that converts says that nobody has any yet; and where
    some blocks convert K and V of later batches."""
    if not plan.macros.get("BALANCED"):
        return models
    late, convert = converters_of(shape, plan.macros, plan.splits), models[0]
    main = _handing_over(models[plan.main], plan, shape, late)
    if late.blocks:
        main = _share(main, shape.B, shape.B, beside=_share(convert, shape.B - late.first, shape.B))
    flags = FLOAT * 2 * shape.B if plan.macros["CONVERTING"] else 0
    clears = FLOAT * 2 * shape.B * shape.N + flags
    models[0], models[plan.main] = _writing(_share(convert, late.first, shape.B), clears), main
    return models


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


def _main(
    symbol: str, plan: Plan, shape: Workload, done: Work | None, props: DeviceProperties, cache: int
) -> LaunchModel:
    blocks, macros, B = blocks_of(plan, shape), plan.macros, shape.B
    BC = macros["BC"]
    sub = macros.get("SUB", BC)  # keys that are computed together
    pairs = B * macros["BR"] * blocks.tiles(sub) * sub
    converted = plan.layout.row_stats - plan.layout.tiles
    keys_read = converted if any(x.symbol.endswith("_convert") for x in plan.launches) else 2 * FLOAT * shape.elements
    written = FLOAT * shape.elements if plan.splits == 1 else plan.layout.size - plan.layout.row_stats
    width = macros.get("WIDTH", shape.d)
    tensor, entry = "PV_PIECES" in macros, VARIANTS.get(plan.variant)
    doubles = entry is not None and entry.doubles
    again = plan_again(plan, shape, done.section, keys_read // (B * shape.N), props, cache) if cache and done else 0
    columns = _tensor_columns(macros, width) if tensor else 0 if doubles else 2 * width  # of all products
    integers = 2 * width * macros.get("INT8", 0)
    flops = 2 * columns * pairs
    noted = ABSMAX_BYTES if plan.finds_absmax and len(plan.launches) == 1 else 0  # which are made larger, word by word
    by_polynomial = pairs // macros["POLYNOMIAL"] if macros.get("POLYNOMIAL") else 0
    by_tensor_cores = flops if tensor else 0
    if entry and entry.rounded:  # Q and K, 16 columns at a time
        by_tensor_cores = 2 * 16 * ceil_div(width, 16) * pairs
        flops = flops // 2 + by_tensor_cores
    return LaunchModel(
        symbol,
        (FLOAT * shape.elements + keys_read + again + noted, written + noted),
        moved_bytes(done.parts, blocks, plan, shape) if done else None,
        _shared(plan, blocks, shape, props),
        _operands(plan, blocks, shape),
        flops - by_tensor_cores + by_polynomial * POLYNOMIAL_FLOPS,
        by_tensor_cores,
        0 if doubles else int(pairs * _exponentials(plan)) - by_polynomial,
        B * blocks.tiles(BC),
        2 * 3 * shape.d * pairs if doubles else 0,  # Q K^T twice
        2 * integers * pairs,
    )


def _tensor_columns(macros: Mapping[str, int], width: int) -> int:
    """Columns of all products of fp16 for a score: of two terms of Q and K without the product of the lesser ones, but
    where integers are in their place the first alone; of P and V."""
    scores = 1 if macros["INT8"] else 3
    return width * (scores + 2 * macros["PV_PIECES"] - 1)


def _exponentials(plan: Plan) -> float:
    """Exponentials of a score, those by which O is scaled included: lanes that share a row each compute its factor."""
    of_a_score, of_a_row = block_of(plan.variant).exponentials
    return of_a_score + of_a_row / plan.macros["BC"]


def _shared(plan: Plan, blocks: BlockKeys, shape: Workload, props: DeviceProperties) -> int | None:
    """Bytes of shared memory that threads read and write; None where they are not known. On AMD's GPUs, of which only
    flash's are, no two lanes share an access."""
    if props.gfx and not block_of(plan.variant).known_on_amd:
        return None
    accesses = wavefronts(plan, blocks)
    return None if accesses is None else shape.B * accesses * WAVEFRONT * (2 if props.gfx else 1)


def _operands(plan: Plan, blocks: BlockKeys, shape: Workload) -> int:
    """Bytes of shared memory that the products of warpgroups read: K hi twice, K lo and V, by each group of 64 rows;
    where blocks convert, as often pieces of Q, for each SUB keys. With integers: K hi, V, and both kinds of K's and Q's
    integers, which together are as long as a piece."""
    m = plan.macros
    if not m.get("WARPGROUPS"):
        return 0
    subs = blocks.tiles(m["SUB"])
    queries = 64 * (1 if m["INT8"] else 3 if m["INBLOCK"] else 0)
    return shape.B * HALF * m["WIDTH"] * subs * ((3 if m["INT8"] else 4) * m["SUB"] + queries) * m["BR"] // 64


def _paper(plan: Plan, shape: Workload, cache: int) -> LaunchModel:
    """The loop over K and V is outside: for each tile, all rows that see it come, with O, m and l, which go back. All
    blocks do so side by side: from one tile of keys to the next, they touch that of all batches."""
    BR, BC, N = plan.macros["BR"], plan.macros["BC"], shape.N
    key0, row0 = np.mgrid[0:N:BC, 0:N:BR]
    seen = row0 + BR > key0 if shape.causal else np.ones_like(row0, bool)
    passes = (np.minimum(BR, N - row0) * seen).sum(axis=1)  # rows of a batch, for each tile of keys
    rows, state = shape.B * int(passes.sum()), shape.d + 2  # of a row: O, m and l
    tiles, once = shape.B * int(seen.sum()), shape.B * N
    pairs = tiles * BR * BC
    touched = FLOAT * shape.B * (shape.d + state) * passes[1:]
    again = sum(int(n * left(n, cache, SCATTERED_WAYS)) for n in touched.tolist()) if cache else 0
    of_keys, of_both = paper_wavefronts(plan.macros)
    return LaunchModel(
        "paper",
        (3 * FLOAT * shape.elements + again, FLOAT * state * once + again * state // (shape.d + state)),
        (FLOAT * (2 * shape.elements + rows * (shape.d + state)), FLOAT * state * (rows + once)),
        WAVEFRONT * (shape.B * len(key0) * of_keys + tiles * of_both),
        ffma_flops=2 * shape.d * (pairs + rows * BC),
        exponentials=rows * (BC + 2),
        tiles=tiles,
    )


def _unfused(plan: Plan, shape: Workload, done: Work, props: DeviceProperties, cache: int) -> list[LaunchModel]:
    """naive: its three launches, with the scores between them in device memory: of tiles that some row sees, all are
    written; of those, a row reads what it sees. A warp passes its row of scores three times: meanwhile those of all
    warps that run at once are touched."""
    blocks, E, m = blocks_of(plan, shape), FLOAT * shape.elements, plan.macros
    tiles = shape.B * blocks.tiles(m["BC"])
    stored = shape.B * int((blocks.rows * np.minimum(shape.N, -(-blocks.keys // m["BC"]) * m["BC"])).sum())
    scores, softmax, values = (launch.symbol for launch in plan.launches)
    seen = np.arange(1, shape.N + 1) if shape.causal else np.full(shape.N, shape.N)  # keys of each row
    pairs = shape.B * int(seen.sum())
    S = FLOAT * pairs
    read, _ = moved_bytes((done.parts[0],), blocks, plan, shape)
    held = occupancy(props, 1, 0, plan.launches[1].block)
    running = min(shape.B * shape.N, held.blocks * props.sms * plan.launches[1].block // props.lanes)
    again = int(2 * S * left(FLOAT * shape.N * running, cache)) if cache else 0
    return [
        LaunchModel(
            scores, (2 * E, FLOAT * stored), (read, FLOAT * stored), 0, ffma_flops=2 * shape.d * stored, tiles=tiles
        ),
        LaunchModel(softmax, (S + again, S), (3 * S, S), 0, exponentials=2 * pairs),
        LaunchModel(values, (S + E, E), (_read_by_elements(plan, shape, seen), E), 0, ffma_flops=2 * shape.d * pairs),
    ]


def _read_by_elements(plan: Plan, shape: Workload, seen: Any) -> int:
    """Bytes that blocks read where each thread has an element of O: the scores of their rows, and V of as many keys as
    the last row of a batch sees."""
    threads, N, d = plan.launches[2].block, shape.N, shape.d
    first = np.arange(0, shape.B * N * d, threads, dtype=np.int64)
    last_row = np.minimum(first + threads, shape.B * N * d) - 1
    first_row, last_row = first // d, last_row // d
    until = np.concatenate([[0], np.cumsum(np.tile(seen, shape.B))])
    scores = int((until[last_row + 1] - until[first_row]).sum())
    keys = seen[last_row % N] + np.where(last_row // N > first_row // N, seen[-1], 0)
    return FLOAT * (scores + d * int(keys.sum()))

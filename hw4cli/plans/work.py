"""What launches of files move and compute: what the formulas of entries share (`Variant.work`).

`hw4 explain`, `hw4 profile`, the lab page and its stepper take their numbers from these formulas, which
tests/emulator/test_counts_of_kernels.py holds to what is counted where the CPU executes the kernels.

DRAM: what must move once. What is written may still be in the cache when a launch ends. L2: what the blocks ask for;
where blocks of one multiprocessor ask for the same, its own cache may save a part.

Shared memory: whole accesses of 32 lanes' 4 bytes each (wavefronts, as NVIDIA's profilers count them), as if no two
lanes met in a bank; what a profiler counts beyond them are conflicts. A load of 16 bytes is four accesses, one for each
eight lanes; two, where neighbours, or all lanes, read the same. Which loads are of 16 bytes was read in the kernels'
machine code. Asynchronous copies, and matrices that tensor cores take from shared memory by themselves, are no accesses
of threads.
"""

from collections.abc import Iterable, Sequence
from itertools import count, zip_longest
from typing import Any, NamedTuple

from hw4cli.errors import MachineError
from hw4cli.plans.common import split_keys
from hw4cli.plans.formulas import FLOAT, ceil_div
from hw4cli.plans.plan import (
    DEVICE,
    ONE,
    SPLIT,
    Block,
    Bytes,
    DeviceProperties,
    Launch,
    LaunchModel,
    Move,
    Plan,
    Step,
    Tile,
    Visit,
    Visits,
)
from hw4cli.problem.workload import Workload

WAVEFRONT, SECTOR = 128, 32  # bytes: of shared memory; of the L2 cache
LANES = 32  # threads
FOURS, ALIKE = 4, 2  # accesses for 16 bytes of each lane; where neighbours read the same
COPIES = 1.4  # as often as its own size a line takes room in the L2 cache that many blocks read (lab/measure/cache.py)
MOST_BLOCKS = 1 << 20  # of a batch, that are counted
SHORTEST = 4  # tiles of a part
QUERIES, KEYS, SCORES, ALL_SCORES = ({unit: FLOAT} for unit in ("rows*d", "keys*d", "rows*keys", "rows*N"))
WITH_STATS = {**QUERIES, "rows": 2 * FLOAT}  # O, and m and l
STORE = Step("Store O", (Move("O", DEVICE, QUERIES),), only=ONE)
STORE_PART = Step("Store a part", (Move("O", DEVICE, WITH_STATS),), only=SPLIT)


def fused(block: Block, plan: Plan, shape: Workload, props: DeviceProperties) -> list[LaunchModel]:
    """One launch whose blocks each take rows and all keys, or a split of them; then, if there are splits, the one that
    puts these together. Of another launch, nothing."""
    tasks, m, B = tasks_of(plan, shape), plan.macros, shape.B
    tiles = B * tasks.tiles(m["BC"])
    pairs = tiles * m["BR"] * m["BC"]
    ffma, tensor, dfma = block.products(m.get("WIDTH", shape.d))
    of_a_score, of_a_row = block.exponentials
    main = LaunchModel(
        plan.launches[plan.main].symbol,
        (3 * FLOAT * shape.elements, written_bytes(plan, shape)),
        moved_bytes(block, tasks, plan, shape),
        shared_bytes(block, tasks, plan, shape, props),
        0,
        ffma * pairs,
        tensor * pairs,
        pairs * of_a_score + pairs // m["BC"] * of_a_row,
        tiles,
        dfma * pairs,
        again=(lambda resident: visits(plan, shape, tasks, 2 * FLOAT * shape.d, block.section, props, resident))
        if block.steps
        else None,
    )
    return [main if n == plan.main else beside(launch, plan, shape) for n, launch in enumerate(plan.launches)]


def written_bytes(plan: Plan, shape: Workload) -> int:
    """Bytes that a plan's main launch leaves: O, or its parts with two numbers of each row."""
    return FLOAT * shape.elements if plan.splits == 1 else plan.layout.size - plan.layout.row_stats


def shared_bytes(block: Block, tasks: "Tasks", plan: Plan, shape: Workload, props: DeviceProperties) -> int | None:
    """Bytes of shared memory that threads read and write; None where they are not known. On AMD's GPUs no two lanes
    share an access."""
    if block.accesses is None or (props.gfx and not block.known_on_amd):
        return None
    once, tile = block.accesses(plan.macros)
    accesses = len(tasks.rows) * once + tasks.tiles(plan.macros["BC"]) * tile
    return shape.B * accesses * WAVEFRONT * (2 if props.gfx else 1)


# ---- Launches beside the main one


def beside(launch: Launch, plan: Plan, shape: Workload) -> LaunchModel:
    """The model of a launch beside the main one."""
    moved = helper_bytes(launch.symbol, plan, shape)
    shared = 0 if launch.symbol.endswith("_combine") else None
    return LaunchModel(launch.symbol, moved, moved if any(moved) else None, shared)


def helper_bytes(symbol: str, plan: Plan, shape: Workload) -> Bytes:
    """Bytes that a launch beside the main one reads and writes: K and V become tiles, parts become O. 0 of others."""
    layout = plan.layout
    if symbol.endswith("_convert"):
        return 2 * FLOAT * shape.elements, layout.row_stats - layout.tiles
    if symbol.endswith("_combine"):
        parts = layout.size - layout.row_stats
        return parts * _splits_with_keys(plan, shape) // (plan.splits * shape.N), FLOAT * shape.elements
    return 0, 0


def _splits_with_keys(plan: Plan, shape: Workload) -> int:
    """In how many splits a row has keys, all rows of a batch together: kernels/schedule.cuh, splits_of."""
    if not shape.causal:
        return plan.splits * shape.N
    keys = split_keys(shape.N, plan.macros["BC"], plan.splits)
    whole, rest = divmod(shape.N, keys)
    return keys * whole * (whole + 1) // 2 + rest * (whole + 1)


# ---- Tasks


class Tasks(NamedTuple):
    """The tasks of one batch, one number of an array each: rows that there are, keys that they visit, and the first of
    these."""

    rows: Any
    keys: Any
    first: Any

    def tiles(self, BC: int) -> int:
        """Tiles of BC keys that the blocks visit, all together."""
        return int((-(-self.keys // BC)).sum())


def tasks_of(plan: Plan, shape: Workload) -> Tasks:
    """Rows and keys of the tasks of one batch, every split a task: kernels/schedule.cuh. MachineError for more than
    MOST_BLOCKS, which would take minutes to count."""
    import numpy as np  # which is not needed where a file is computed on a GPU

    BR, BC, splits, N = plan.macros["BR"], plan.macros["BC"], plan.splits, shape.N
    if ceil_div(N, BR) * splits > MOST_BLOCKS:
        raise MachineError(
            f"(B, N, d) = {shape} has more than {MOST_BLOCKS:,} blocks in a batch: give a shorter sequence"
        )
    row0, split = (axis.ravel() for axis in np.mgrid[0:N:BR, 0:splits].astype(np.int64))
    rows = np.minimum(BR, N - row0)
    if shape.causal:
        end = np.minimum(N, row0 + BR)
        own = split_keys(N, BC, splits)
        return Tasks(rows, np.maximum(0, np.minimum(end, (split + 1) * own) - split * own), split * own)
    tiles = ceil_div(N, BC)
    first, last = tiles * split // splits * BC, np.minimum(N, tiles * (split + 1) // splits * BC)
    return Tasks(rows, last - first, first)


def tiles_of(plan: Plan, shape: Workload) -> int:
    """Tiles of all keys of a batch."""
    return ceil_div(shape.N, plan.macros["BC"])


# ---- What blocks ask of the L2 cache, and write there


def moved_bytes(block: Block, tasks: Tasks, plan: Plan, shape: Workload) -> Bytes | None:
    """Bytes that all blocks read from the L2 cache, or write there; None where their steps are not known."""
    if block.steps is None:
        return None
    read, written = of_steps(block.steps(plan.macros), tasks, plan, shape)
    if plan.splits > 1 and not plan.finds_absmax:  # m and l of a row leave alone, as a sector
        written += shape.B * int(tasks.rows.sum()) * (SECTOR - 2 * FLOAT)
    return read, written * (SECTOR // FLOAT if block.scattered else 1)


def of_steps(steps: Iterable[Step], tasks: Tasks, plan: Plan, shape: Workload) -> Bytes:
    """Bytes that steps read, and write."""
    read = written = 0
    left_out = SPLIT if plan.splits == 1 else ONE
    for step in steps:
        for move in step.moves if step.only != left_out else ():
            moved = int(_amount(move, step.tiles, tasks, plan.macros, shape).sum())
            if move.to == DEVICE:
                written += moved
            else:
                read += moved
    return shape.B * read, shape.B * written


def _amount(move: Move, loop: bool, tasks: Tasks, m: Tile, shape: Workload) -> Any:
    """Bytes of a move by each block: in a loop over the tiles, of all from `ahead` on, else of that one alone."""
    rows, BC, d = tasks.rows, m["BC"], shape.d
    keys = (tasks.keys - move.ahead * BC).clip(0)
    if not loop:
        keys = keys.clip(max=BC)
    tiles = -(-keys // BC)
    # With a mask, a tile comes to its end, though the block's rows may not see that.
    keys = (tiles * BC).clip(max=(shape.N - tasks.first - move.ahead * BC).clip(0))
    steps = tiles if loop else 1
    value_blocks = ceil_div(m["BR"] * d, m["THREADS"])
    of_unit = {
        "rows*d": rows * d * steps,
        "keys*d": keys * d,
        "rows*keys": rows * keys,
        "rows*N": rows * shape.N,
        "rows": rows * steps,
        "tile": tiles * BC * m.get("WIDTH", d),
        "keys*d*blocks": keys * d * value_blocks,
    }
    return sum(of_unit[unit] * size for unit, size in move.amount.items())


# ---- Tasks that two blocks share: kernels/streamk.cuh


class TaskPart(NamedTuple):
    """Of a task, the tiles of keys from the first on, up to before the last."""

    task: int
    first: int
    last: int


def shares(plan: Plan, launch: Launch, tasks: int) -> bool:
    """Whether a launch's blocks share what tasks are left of whole rounds."""
    blocks = launch.grid
    return bool(plan.macros.get("BALANCED") and plan.splits == 1 and tasks > blocks and tasks % blocks)


def parts_of(tasks: int, blocks: int, tiles: int) -> list[list[TaskPart]]:
    """The parts of each block in the order in which it takes them, where tasks of so many tiles are shared.

    >>> parts_of(3, 2, 10)[1]
    [TaskPart(task=2, first=0, last=10), TaskPart(task=1, first=5, last=10)]
    """
    rounds = tasks // blocks - 1
    whole = rounds * blocks

    def share(block: int) -> int:  # where that of a block begins
        at, over = divmod((tasks - whole) * block, blocks)
        over = over * tiles // blocks
        return at * tiles + (0 if over < SHORTEST else tiles if over > tiles - SHORTEST else over)

    found = []
    for block in range(blocks):
        own = [TaskPart(block + n * blocks, 0, tiles) for n in range(rounds)]
        first, last = share(block), share(block + 1)
        for at in count((last - 1) // tiles * tiles, -tiles):
            if at + tiles <= first:
                break
            own.append(TaskPart(whole + at // tiles, max(first - at, 0), min(last - at, tiles)))
        found.append(own)
    return found


def in_turns(parts: list[list[TaskPart]]) -> list[TaskPart | None]:
    """The first part of each block, then the second, and so on; None where a block has no more."""
    return [part for turn in zip_longest(*parts) for part in turn]


# ---- In which order blocks run


def visits(
    plan: Plan, shape: Workload, tasks: Tasks, key_bytes: int, section: int, props: DeviceProperties, resident: int
) -> Visits:
    """The tasks of a plan's main launch, whose keys have so many bytes each, with a mask so many batches' a turn, where
    a multiprocessor holds so many blocks: kernels/schedule.cuh has the order of the blocks."""
    main, splits = plan.launches[plan.main], plan.splits
    there = shape.B * int((tasks.keys > 0).sum())
    in_rounds = main.grid < there
    slots = main.grid if in_rounds else min(there, plan.macros.get("BLOCKS", resident) * props.sms)
    row, rows, first, last = (
        x.tolist() for x in (FLOAT * shape.d * tasks.rows, tasks.rows, tasks.first, tasks.first + tasks.keys)
    )

    def visit(batch: int, n: int) -> Visit:  # splits of the same rows lie side by side, and read these together
        return Visit(batch, first[n], last[n], 0 if n % splits else row[n], row[n])

    if shares(plan, main, there):
        BC, turns = plan.macros["BC"], in_turns(parts_of(there, slots, tiles_of(plan, shape)))
        found = [_visit_of(part, len(rows), row, BC, shape.N) for part in turns]
    elif shape.causal:
        sections = [range(start, min(shape.B, start + section)) for start in range(0, shape.B, section)]
        order = _longest_first(tasks, splits)
        found = [visit(batch, n) for batches in sections for n in order for batch in batches]
    else:
        found = [visit(batch, n) for batch in range(shape.B) for n in range(len(rows))]
    return Visits(found, slots, key_bytes, in_rounds, scattered=shape.causal)


def _longest_first(tasks: Tasks, splits: int) -> list[int]:
    """The tasks of a batch that have keys in the order in which they start with a mask: those as long as any, split by
    split; then the longest that is left of each split, the next ones, and so on."""
    of_split = [range(len(tasks.keys) - splits + n, -1, -splits) for n in range(splits)]
    longest, keys = tasks.keys.max(), tasks.keys.tolist()
    if splits == 1:
        return list(of_split[0])
    whole = [n for own in of_split for n in own if keys[n] == longest]
    rest = zip_longest(*([n for n in own if 0 < keys[n] < longest] for own in of_split))
    return whole + [n for rank in rest for n in rank if n is not None]


def _visit_of(part: TaskPart | None, tasks: int, row_bytes: Sequence[int], BC: int, N: int) -> Visit:
    """A block's visit for a part, of so many tasks of a batch; for none, one of nothing."""
    if part is None:
        return Visit(-1, 0, 0, 0, 0)
    own = row_bytes[part.task % tasks]
    return Visit(part.task // tasks, part.first * BC, min(N, part.last * BC), own, own, part.task, part.first > 0)

"""The blocks of a plan's main launch: which rows and keys each takes, in which order; what comes from DRAM again."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import count, zip_longest
from typing import Any, NamedTuple

import numpy as np

from hw4cli.device.occupancy import occupancy
from hw4cli.errors import MachineError
from hw4cli.lab.stepper.cache import AS_THEY_END, IN_ROUNDS, SCATTERED_WAYS, Visit, read_again
from hw4cli.plans.common import converters_of, split_keys
from hw4cli.plans.formulas import FLOAT, ceil_div
from hw4cli.plans.plan import DeviceProperties, Launch, Plan
from hw4cli.problem.workload import Workload

MOST_BLOCKS = 1 << 20  # of a batch, that are counted
SHORTEST = 4  # tiles of a part


@dataclass(frozen=True)
class BlockKeys:
    """The tasks of one batch, one number each: rows that there are, keys that they visit, and the first of these."""

    rows: Any
    keys: Any
    first: Any

    def tiles(self, BC: int) -> int:
        """Tiles of BC keys that the blocks visit, all together."""
        return int((-(-self.keys // BC)).sum())


def blocks_of(plan: Plan, shape: Workload) -> BlockKeys:
    """Rows and keys of the blocks of one batch, every split a block: kernels/schedule.cuh. MachineError for more than
    MOST_BLOCKS, which would take minutes to count."""
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
        return BlockKeys(rows, np.maximum(0, np.minimum(end, (split + 1) * own) - split * own), split * own)
    tiles = ceil_div(N, BC)
    first, last = tiles * split // splits * BC, np.minimum(N, tiles * (split + 1) // splits * BC)
    return BlockKeys(rows, last - first, first)


def tiles_of(plan: Plan, shape: Workload) -> int:
    """Tiles of all keys of a batch."""
    return ceil_div(shape.N, plan.macros["BC"])


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


# ---- What the L2 cache does not hold


def plan_again(plan: Plan, shape: Workload, section: int, key_bytes: int, props: DeviceProperties, cache: int) -> int:
    """Bytes that come from DRAM again in a plan's main launch, whose keys have so many bytes each, and with a mask so
    many batches' a turn: kernels/schedule.cuh has the order of the blocks."""
    blocks = blocks_of(plan, shape)
    main, splits = plan.launches[plan.main], plan.splits
    if plan.macros.get("CONVERTING") and converters_of(shape, plan.macros, splits).blocks:
        return 0  # what some blocks have just converted, the others find in the cache
    resident = plan.macros.get("BLOCKS") or occupancy(props, 1, main.shared, main.block).blocks
    tasks = shape.B * int((blocks.keys > 0).sum())
    slots, order = (main.grid, IN_ROUNDS) if main.grid < tasks else (min(tasks, resident * props.sms), AS_THEY_END)
    row, rows, first, last = (
        x.tolist() for x in (FLOAT * shape.d * blocks.rows, blocks.rows, blocks.first, blocks.first + blocks.keys)
    )

    def visit(batch: int, n: int) -> Visit:  # splits of the same rows lie side by side, and read these together
        return Visit(batch, first[n], last[n], 0 if n % splits else row[n], row[n])

    if shares(plan, main, tasks):
        BC, turns = plan.macros["BC"], in_turns(parts_of(tasks, slots, tiles_of(plan, shape)))
        return read_again(
            [_visit_of(part, len(rows), row, BC, shape.N) for part in turns], slots, key_bytes, cache, order
        )
    if not shape.causal:
        return read_again(
            [visit(batch, n) for batch in range(shape.B) for n in range(len(rows))], slots, key_bytes, cache, order
        )
    visits = []
    for start_batch in range(0, shape.B, section):
        batches = range(start_batch, min(shape.B, start_batch + section))
        visits += [visit(batch, n) for n in _longest_first(blocks, splits) for batch in batches]
    return read_again(visits, slots, key_bytes, cache, order, ways=SCATTERED_WAYS)


def _longest_first(blocks: BlockKeys, splits: int) -> list[int]:
    """The tasks of a batch that have keys in the order in which they start with a mask: those as long as any, split by
    split; then the longest that is left of each split, the next ones, and so on."""
    of_split = [range(len(blocks.keys) - splits + n, -1, -splits) for n in range(splits)]
    longest, keys = blocks.keys.max(), blocks.keys.tolist()
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

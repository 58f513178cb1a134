"""What families of kernels share: padded head sizes, a block for every BR rows, how keys are split."""

import heapq
import math
from collections.abc import Callable, Iterable
from itertools import product

from hw4cli.plans import formulas
from hw4cli.plans.formulas import (
    MOST_SPLITS,
    Converters,
    ceil_div,
    combine_blocks,
    converters,
    partial_o_bytes,
    row_stats_bytes,
    split_count,
)
from hw4cli.plans.plan import DeviceProperties, Launch, Scratch, Tile
from hw4cli.problem.workload import Workload

# A tile of the CPU: 1024 queries by 512 keys is 2 MB of float32. It stays in the L2 cache, and the BLAS is at its best.
TILED_QUERIES, TILED_KEYS = 1024, 512
NO_LIMIT = 2**31 - 1  # keys of a split
RESCALE_THRESHOLD = 8  # a row's m moves when P could pass 2 to this power
COMBINE_THREADS = 256
# A tile's conversion by a block, in percent of attention to it by so many rows; a little more than measured (H200), as
# late converters cost more than early ones. Longer keys would gain less than 2 %.
CONVERTING = {(32, False): (41, 256), (64, False): (74, 192), (64, True): (84, 192)}  # by width, and by 8-bit integers
CONVERTING_LONGEST = 8192
LONG_TASKS = 1024  # keys: of fewer, at d = 64, a task is done before Q of the next one is brought (H200)
LONG = 8192  # keys, of which more than MOST_SPLITS are short enough to lose less than few long ones
MANY_BLOCKS = 2  # rounds of blocks, longest first: so many end at about the same time


def combine_launch(name: str, shape: Workload) -> Launch:
    """The launch that puts the splits of the keys together, four elements of O a thread."""
    blocks = combine_blocks(shape.B, shape.Nq, shape.d, COMBINE_THREADS)
    return Launch(f"{name}_combine", blocks, COMBINE_THREADS, 0, early=True)


def tiles_of(rows: Iterable[int], keys: Iterable[int]) -> tuple[tuple[int, int], ...]:
    """Every BR of some with every BC of some."""
    return tuple(product(rows, keys))


def power_below(x: float) -> float:
    """The power of two at or below x."""
    return math.ldexp(0.5, math.frexp(x)[1]) if x else 0.0


def padded_d(d: int) -> int:
    """The head size that flash and the tensor-core kernels compute with: 32, 64, 128 or 256, the rest zeros."""
    return next(size for size in (32, 64, 128, 256) if d <= size)


def row_blocks(symbol: str) -> Callable[[Workload, Tile, int, int], tuple[Launch, ...]]:
    """One launch, a block for every BR rows of every batch."""

    def launches(shape: Workload, tile: Tile, splits: int, shared: int) -> tuple[Launch, ...]:
        return (Launch(symbol, formulas.row_blocks(shape.B, shape.Nq, tile["BR"]), tile["THREADS"], shared),)

    return launches


def scratch_of(shape: Workload, splits: int, absmax: int, tiles: int, *, stats: bool, counts: int = 0) -> Scratch:
    """Bytes for absmax and tiles; then two numbers of each row and split, and each split's O, if there are splits.

    `stats`: the two numbers are wanted anyway, and behind them as many bytes for each of so many `counts`.
    """
    rows = shape.B * shape.Nq * splits
    row_stats = absmax + tiles
    partial_o = row_stats + row_stats_bytes(rows + counts, stats or splits > 1)
    return Scratch(partial_o + partial_o_bytes(rows, shape.d, splits), absmax, row_stats, partial_o)


def splits_for(
    longest: int, cost: int, causal_cost: int, most: int = MOST_SPLITS
) -> Callable[[Workload, Tile, DeviceProperties], int]:
    """Into how many parts the keys are split: see split_count and causal_split_count. One, where blocks that stay share
    out what is left of whole rounds (BALANCED: kernels/streamk.cuh)."""

    def splits(shape: Workload, tile: Tile, props: DeviceProperties) -> int:
        blocks = formulas.row_blocks(shape.B, shape.Nq, tile["BR"])
        if tile.get("BALANCED") and blocks >= props.sms:
            return 1
        if shape.window:  # all blocks have as many keys
            return 1
        if shape.causal:
            return causal_split_count(shape, tile, props.sms, longest, causal_cost, most)
        return split_count(blocks, shape.N, tile["BC"], tile["BLOCKS"], props.sms, longest, cost)

    return splits


def causal_split_count(shape: Workload, tile: Tile, sms: int, longest: int, cost: int, most: int) -> int:
    """The same where blocks of rows have from few to N keys, as many splits as these need, and the longest start first.

    It is the schedule of the blocks that tells which number is best, as far as each takes as long as its keys and
    `cost`. Where there are many blocks, it is the fewest.
    """
    N, BR, BC, places = shape.N, tile["BR"], tile["BC"], tile["BLOCKS"] * sms
    most = max(1, min(most if N >= LONG else MOST_SPLITS, ceil_div(N, BC) // 8))
    least = min(most, ceil_div(N, longest))
    if formulas.row_blocks(shape.B, shape.Nq, BR) >= MANY_BLOCKS * places:
        return least
    ends = _ends(shape, BR) * shape.B
    times = {
        splits: _schedule(ends, split_keys(N, BC, splits), places, cost)
        for splits in range(least, most + 1)
        if ceil_div(N, split_keys(N, BC, splits)) == splits
    }
    return next(splits for splits, needed in times.items() if needed <= min(times.values()) / 0.98)


def _schedule(ends: list[int], keys: int, places: int, cost: int) -> int:
    """When the last one of so many places is free that took splits of so many keys, then what is left of each block."""
    rounds, more = divmod(sum(end // keys for end in ends), places)
    free = [rounds * (keys + cost)] * (places - more) + [(rounds + 1) * (keys + cost)] * more
    for left in sorted((end % keys for end in ends if end % keys), reverse=True):
        heapq.heapreplace(free, free[0] + left + cost)
    return max(free)


def main_blocks(shape: Workload, tile: Tile, splits: int) -> int:
    """Blocks of the launch that attends: one for every BR rows and split of the keys."""
    if shape.causal and splits > 1:
        return _causal_blocks(shape, tile["BR"], tile["BC"], splits)
    return formulas.row_blocks(shape.B, shape.Nq, tile["BR"]) * splits


def _causal_blocks(shape: Workload, BR: int, BC: int, splits: int) -> int:
    """The same where blocks of rows have as many splits as their keys need: causal_task_of_split in
    kernels/schedule.cuh. Enough for each offset of the mask up to that by which the last row sees the last key."""
    keys, ends = split_keys(shape.N, BC, splits), _ends(shape, BR)
    whole = sum(splits if end == shape.N else end // keys for end in ends)
    return shape.B * (whole + splits * min(len(ends), ceil_div(keys - 1, BR)))


def _ends(shape: Workload, BR: int) -> list[int]:
    """Causal: how many keys each block of rows sees, if the last row sees the last key."""
    return [min(shape.N, row + max(0, shape.N - shape.Nq) + BR) for row in range(0, shape.Nq, BR)]


def split_keys(N: int, BC: int, splits: int) -> int:
    """Causal: the keys of a split, whole tiles."""
    return ceil_div(ceil_div(N, BC), splits) * BC


def groups_in_turns(shape: Workload, props: DeviceProperties) -> int:
    """Groups of four warps that take turns: four, where registers suffice and there are blocks enough (H100, H200)."""
    if padded_d(shape.d) > 32 or shape.causal:
        return 3

    def time(groups: int) -> float:
        rounds = max(1, formulas.row_blocks(shape.B, shape.Nq, 64 * groups) / props.sms)  # the last is shared out
        return rounds * groups / (1.05 if groups == 4 else 1)

    return min((4, 3), key=time)


def turns_of(shape: Workload, tile: Tile, props: DeviceProperties) -> Tile:
    """Where groups take turns, beside one that copies: how many multiply, and the registers of a thread of each kind,
    together at most those that the block was launched with. A block stays, and takes task after task; causal, where
    tasks are of different lengths, there is a block for each. Three warps bring Q of the next task, if tasks are long
    enough (H200), and d is not between 32 and 64, where these warps would have too few registers."""
    groups = tile["BR"] // 64
    granted = 65536 // (128 * (groups + 1)) // 8 * 8 * (groups + 1)
    registers = min(240, (granted - 32) // max(1, groups) // 8 * 8)
    return {
        "GROUPS": groups,
        "REGISTERS": registers,
        "COPY_REGISTERS": min(40, granted - registers * groups),
        "MOST_BLOCKS": 0 if shape.causal else props.sms,
        "BALANCED": int(not shape.causal),
        "Q_AHEAD": int(not shape.causal and (padded_d(shape.d) == 32 or (shape.d == 64 and shape.N >= LONG_TASKS))),
    }


def converting(shape: Workload, tile: Tile, integers: bool) -> int:
    """CONVERTING of kernels/producers.cuh: what it costs a block to convert a tile; 0: no block does."""
    cost, rows = CONVERTING[padded_d(shape.d), integers]
    return ceil_div(cost * rows, tile["BR"]) if shape.N <= CONVERTING_LONGEST else 0


def converters_of(shape: Workload, tile: Tile, splits: int) -> Converters:
    """How the blocks of a plan with these macros share out conversion."""
    cost, ahead = tile.get("CONVERTING", 0) if splits == 1 else 0, bool(tile.get("Q_AHEAD"))
    return converters(shape.B, shape.Nq, shape.N, tile["BR"], tile["BC"], tile.get("MOST_BLOCKS", 0), cost, ahead)

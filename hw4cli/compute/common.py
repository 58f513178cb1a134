"""What families of kernels share: padded head sizes, a block for every BR rows, how keys are split."""

import math
from collections.abc import Callable, Iterable
from itertools import product

from hw4cli.compute import formulas
from hw4cli.compute.formulas import MOST_SPLITS, ceil_div, combine_blocks, partial_o_bytes, row_stats_bytes, split_count
from hw4cli.compute.plan import DeviceProperties, Launch, Scratch, Tile
from hw4cli.problem.shape import Shape

# A tile of the CPU: 1024 queries by 512 keys is 2 MB of float32. It stays in the L2 cache, and the BLAS is at its best.
TILED_QUERIES, TILED_KEYS = 1024, 512
NO_LIMIT = 2**31 - 1  # keys of a split
RESCALE_THRESHOLD = 8  # a row's m moves when P could pass 2 to this power
COMBINE_THREADS = 256
# Up to so many keys, K and V are converted beside attention to the first batches, whose share is AHEAD_KEYS in N.
AHEAD_LONGEST, AHEAD_KEYS = 4096, 768


def computed_share(shape: Shape, BR: int, BC: int) -> float:
    """The share of the N² pairs of a query and a key that lie in tiles which a kernel computes, of these sizes."""
    if not shape.causal:
        return 1.0
    blocks = ((row, min(row + BR, shape.N)) for row in range(0, shape.N, BR))
    return sum((end - row) * min(shape.N, ceil_div(end, BC) * BC) for row, end in blocks) / shape.N**2


def combine_launch(name: str, shape: Shape) -> Launch:
    """The launch that puts the splits of the keys together, four elements of O a thread."""
    blocks = combine_blocks(shape.B, shape.rows, shape.d, COMBINE_THREADS)
    return Launch(f"{name}_combine", blocks, COMBINE_THREADS, 0)


def tiles_of(rows: Iterable[int], keys: Iterable[int]) -> tuple[tuple[int, int], ...]:
    """Every BR of some with every BC of some."""
    return tuple(product(rows, keys))


def power_below(x: float) -> float:
    """The power of two at or below x."""
    return math.ldexp(0.5, math.frexp(x)[1]) if x else 0.0


def padded_d(d: int) -> int:
    """The head size that flash and the tensor-core kernels compute with: 32, 64 or 128, the rest zeros."""
    return next(size for size in (32, 64, 128) if d <= size)


def row_blocks(symbol: str) -> Callable[[Shape, Tile, int, int], tuple[Launch, ...]]:
    """One launch, a block for every BR rows of every batch."""

    def launches(shape: Shape, tile: Tile, splits: int, shared: int) -> tuple[Launch, ...]:
        return (Launch(symbol, formulas.row_blocks(shape.B, shape.rows, tile["BR"]), tile["THREADS"], shared),)

    return launches


def scratch_of(shape: Shape, splits: int, absmax: int, tiles: int, *, stats: bool) -> Scratch:
    """Bytes for absmax and tiles; then two numbers of each row and split, and each split's O, if there are splits.

    `stats`: the two numbers are wanted anyway.
    """
    rows = shape.B * shape.rows * splits
    row_stats = absmax + tiles
    partial_o = row_stats + row_stats_bytes(rows, stats or splits > 1)
    return Scratch(partial_o + partial_o_bytes(rows, shape.d, splits), absmax, row_stats, partial_o)


def splits_for(longest: int, cost: int) -> Callable[[Shape, Tile, DeviceProperties], int]:
    """Into how many parts the keys are split: see split_count and causal_split_count. One, where blocks that stay share
    out what is left of whole rounds (BALANCED: kernels/parts.cuh)."""

    def splits(shape: Shape, tile: Tile, props: DeviceProperties) -> int:
        blocks = formulas.row_blocks(shape.B, shape.rows, tile["BR"])
        if tile.get("BALANCED") and blocks >= props.sms:
            return 1
        count = causal_split_count if shape.causal else split_count
        return count(blocks, shape.N, tile["BC"], tile["BLOCKS"], props.sms, longest, cost)

    return splits


def causal_split_count(blocks: int, N: int, BC: int, resident: int, sms: int, longest: int, cost: int) -> int:
    """The same as split_count where a block has from few to N keys, and those with the most start first.

    The time is then that of all work on all multiprocessors, or that of a longest block if it is more: it shares its
    multiprocessor with others as long. (A model: compared with simulated schedules, not with measurements.)
    """
    most = max(1, min(MOST_SPLITS, ceil_div(N, BC) // 8))
    least = min(most, ceil_div(N, longest))

    def time(splits: int) -> float:
        alike = min(resident, ceil_div(blocks * splits, sms))
        one = ceil_div(ceil_div(N, BC), splits) * BC + cost
        return max(blocks * (N / 2 + cost * splits) / sms, alike * one / (1 - 0.17 / alike**2))

    times = {splits: time(splits) for splits in range(least, most + 1)}
    return next(splits for splits, needed in times.items() if needed <= min(times.values()) / 0.98)


def groups_in_turns(shape: Shape, props: DeviceProperties) -> int:
    """Groups of four warps that take turns: four, where registers suffice and there are blocks enough (H100, H200)."""
    if padded_d(shape.d) > 32 or shape.causal:
        return 3

    def time(groups: int) -> float:
        rounds = max(1, formulas.row_blocks(shape.B, shape.rows, 64 * groups) / props.sms)  # the last is shared out
        return rounds * groups / (1.05 if groups == 4 else 1)

    return min((4, 3), key=time)


def turns_of(shape: Shape, tile: Tile, props: DeviceProperties) -> Tile:
    """Where groups take turns, beside one that copies: how many multiply, and the registers of a thread of each kind,
    together at most those that the block was launched with. A block stays, and takes task after task; causal, where
    tasks are of different lengths, there is a block for each."""
    groups = tile["BR"] // 64
    granted = 65536 // (128 * (groups + 1)) // 8 * 8 * (groups + 1)
    registers = min(240, (granted - 24) // max(1, groups) // 8 * 8)
    return {
        "GROUPS": groups,
        "REGISTERS": registers,
        "COPY_REGISTERS": min(40, granted - registers * groups),
        "MOST_BLOCKS": 0 if shape.causal else props.sms,
        "BALANCED": int(not shape.causal),
        "AHEAD": int(not shape.causal and shape.N <= AHEAD_LONGEST),
        "AHEAD_KEYS": AHEAD_KEYS,
    }

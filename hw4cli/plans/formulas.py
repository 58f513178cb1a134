"""How many blocks and splits a launch has, and where scratch memory is parted: whole numbers in, numbers out.

The native program computes them for any file, too: kernels/host/formulas.h has these functions in C++, but not
`converters`, which only warp groups have. tests/plans/test_native.py compares both.
"""

from typing import NamedTuple

FLOAT = 4  # bytes
MOST_SPLITS = 8  # of the keys
ENOUGH_BLOCKS = 256  # small ones, for all multiprocessors


def ceil_div(a: int, b: int) -> int:
    """The quotient a/b, rounded up."""
    return (a + b - 1) // b


def row_blocks(B: int, N: int, BR: int) -> int:
    """Blocks of BR rows in all batches."""
    return B * ceil_div(N, BR)


def key_tiles(B: int, N: int, BC: int) -> int:
    """Tiles of BC keys in all batches."""
    return B * ceil_div(N, BC)


def convert_blocks(tiles: int, BC: int, width: int, chunks: int, threads: int) -> int:
    """Of the launch that converts K and V, eight columns a thread, so many times; less often where blocks are few."""
    once = ceil_div(tiles * BC * width // 8, threads)
    return max(ceil_div(once, chunks), min(once, ENOUGH_BLOCKS))


class Converters(NamedTuple):
    """Which blocks convert K and V of later batches before they attend (kernels/producers.cuh); no `blocks`: none."""

    blocks: int
    first: int  # so many batches are converted by the pass before: all, if there are no converters
    rounds: int  # so many tasks has each of the other blocks in the meantime


def converters(B: int, rows: int, N: int, BR: int, BC: int, blocks: int, cost: int, ahead: bool) -> Converters:
    """How `blocks` blocks share out conversion. `cost`: of a tile's conversion, in percent of attention to a tile; what
    a batch takes beside takes as long as attention to half a tile, and a task's beginning and end as 3.5, or 1.5 where
    Q is brought `ahead`.

    The first batches last until converters have converted one each. Converters are so many that the others need a fifth
    longer to attend to a batch than these to convert one. None, where batches are few, or a batch has so few tasks that
    converters would be limited by memory.
    """
    tasks, tiles = ceil_div(rows, BR), ceil_div(N, BC)
    task, batch = 100 * (2 * tiles + (3 if ahead else 7)), 2 * cost * tiles + 100
    first = ceil_div(blocks * (task + batch), tasks * task)
    if not cost or tasks < 3 or 4 * first > B:
        return Converters(0, B, 0)
    some = ceil_div(6 * blocks * batch, 5 * tasks * task + 6 * batch)
    return Converters(some, first, ceil_div(ceil_div(B - first, some) * batch, task))


def combine_blocks(B: int, N: int, d: int, threads: int) -> int:
    """Of the launch that puts the splits together, four elements of O a thread."""
    return ceil_div(B * N * d // 4, threads)


def efficiency(splits: int, blocks: int, N: int, resident: int, sms: int, cost: int) -> float:
    """The share of the time in which all multiprocessors work, less what splits cost, each as much as so many keys.

    In the blocks' last wave, r blocks alone on a multiprocessor, which holds `resident`, run at a rate of 1 - 0.17/r²
    (flash, measured on an H200).
    """
    waves = ceil_div(blocks * splits, sms)
    rest = waves % resident
    alone = rest / (1 - 0.17 / (rest * rest)) if rest else 0.0
    return blocks * splits / sms / (waves - rest + alone) / (1 + cost * splits / N)


def split_count(blocks: int, N: int, BC: int, resident: int, sms: int, longest: int, cost: int) -> int:
    """Into how many parts the keys are split.

    So many that none is longer than `longest` keys, as long sums lose digits, unless there are MOST_SPLITS; and the
    fewest that are nearly as efficient as the best number.
    """
    most = max(1, min(MOST_SPLITS, ceil_div(N, BC) // 8))
    least = min(most, ceil_div(N, longest))
    best = 0.0
    for splits in range(least, most + 1):
        best = max(best, efficiency(splits, blocks, N, resident, sms, cost))
    fewest = least
    while efficiency(fewest, blocks, N, resident, sms, cost) < 0.98 * best:
        fewest = fewest + 1
    return fewest


def row_stats_bytes(rows: int, wanted: int) -> int:
    """Two numbers of each row and split: whole 16 bytes, as O, which is behind them, is read 16 bytes at a time."""
    return ceil_div(2 * FLOAT * rows, 16) * 16 if wanted else 0


def partial_o_bytes(rows: int, d: int, splits: int) -> int:
    """O of each row and split, if there are splits."""
    return FLOAT * rows * d if splits > 1 else 0

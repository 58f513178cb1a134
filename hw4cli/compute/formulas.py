"""How many blocks and splits a launch has, and where scratch memory is parted: whole numbers in, numbers out.

The native program computes them for any file, too. It gets these very functions: `native.as_cpp` writes them in C++, so
they keep to what that translates (arithmetic, `min`, `max`, conditions, loops over ranges, calls of one another).
"""

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


def first_batches(B: int, rows: int, N: int, BR: int, blocks: int, keys: int) -> int:
    """How many batches a launch of its own attends to, while K and V of the others are converted; 0: none.

    Its share is that of `keys` in N, half at most: converting takes the longer, beside attention, the fewer keys there
    are. Whole rounds of `blocks` blocks at a time.
    """
    tasks = ceil_div(rows, BR)
    rounds = B * tasks * min(keys, N // 2) // N // blocks
    return rounds * blocks // tasks


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

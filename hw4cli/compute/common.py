"""What families of kernels share: padded head sizes, a block for every BR rows, how keys are cut into parts."""

from collections.abc import Callable

from hw4cli.compute.plan import FLOAT, Chip, Launch, Scratch, Tile, ceil_div
from hw4cli.problem.shape import Shape

MOST_PARTS = 8  # into which the keys are cut
RESCALE_THRESHOLD = 8  # a row's m moves when P could pass 2 to this power
COMBINE_THREADS = 256


def combine_launch(name: str, shape: Shape) -> Launch:
    """The launch that puts the splits of the keys together, four elements of O a thread."""
    return Launch(f"{name}_combine", ceil_div(shape.elements // 4, COMBINE_THREADS), COMBINE_THREADS, 0)


def padded_d(d: int) -> int:
    """The head size that flash and the tensor-core kernels compute with: 32, 64 or 128, the rest zeros."""
    return next(size for size in (32, 64, 128) if d <= size)


def row_blocks(symbol: str) -> Callable[[Shape, Tile, int, int], tuple[Launch, ...]]:
    """One launch, a block for every BR rows of every batch."""

    def launches(shape: Shape, tile: Tile, splits: int, shared: int) -> tuple[Launch, ...]:
        return (Launch(symbol, shape.B * ceil_div(shape.N, tile["BR"]), tile["THREADS"], shared),)

    return launches


def scratch_of(shape: Shape, splits: int, absmax: int, tiles: int, *, stats: bool) -> Scratch:
    """Bytes for absmax and tiles; then two numbers of each row and split, and each split's O, if there are splits.

    `stats`: the two numbers are wanted anyway. O is read 16 bytes at a time.
    """
    rows = shape.B * shape.N * splits
    row_stats = absmax + tiles
    partial_o = row_stats + (ceil_div(2 * FLOAT * rows, 16) * 16 if stats or splits > 1 else 0)
    size = partial_o + (FLOAT * rows * shape.d if splits > 1 else 0)
    return Scratch(size, absmax, row_stats, partial_o)


def splits_for(longest: int | None, cost: int) -> Callable[[Shape, Tile, Chip], int]:
    """Into how many parts the keys are cut: so many that none is longer, and that no multiprocessor idles.

    Beyond that, the waves count: the efficiency of p parts is estimated from the blocks' waves, in which r blocks
    alone on a multiprocessor run at a rate of 1 - 0.17/r² (flash, measured on an H200), and from the cost of each
    part, in keys.
    """

    def splits(shape: Shape, tile: Tile, chip: Chip) -> int:
        resident, row_blocks = tile["BLOCKS"], shape.B * ceil_div(shape.N, tile["BR"])
        most = max(1, min(MOST_PARTS, ceil_div(shape.N, tile["BC"]) // 8))
        least = min(most, ceil_div(shape.N, longest or shape.N))

        def efficiency(parts: int) -> float:
            waves = ceil_div(row_blocks * parts, chip.sms)
            rest = waves % resident
            time = waves - rest + (rest / (1 - 0.17 / rest**2) if rest else 0)
            return row_blocks * parts / chip.sms / time / (1 + cost * parts / shape.N)

        rates = {parts: efficiency(parts) for parts in range(least, most + 1)}
        return next(parts for parts, rate in rates.items() if rate >= 0.98 * max(rates.values()))

    return splits

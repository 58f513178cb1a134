"""The kernels: one entry each, and the formulas in it: tiles, threads, shared memory, launches, parts.

An entry's name is its file kernels/NAME.cu, the prefix of its symbols, and the value of --kernel.
"""

from collections.abc import Callable
from typing import NamedTuple

from hw4cli.plan import FLOAT, SHARED_DEFAULT, Chip, Launch, Tile, Variant, ceil_div
from hw4cli.shape import Shape


def row_blocks(symbol: str) -> Callable[[Shape, Tile, int, int], tuple[Launch, ...]]:
    """One launch, a block for every BR rows of every batch."""

    def launches(shape: Shape, tile: Tile, splits: int, shared: int) -> tuple[Launch, ...]:
        return (Launch(symbol, shape.B * ceil_div(shape.N, tile["BR"]), tile["THREADS"], shared),)

    return launches


def _naive_launches(shape: Shape, tile: Tile, splits: int, shared: int) -> tuple[Launch, ...]:
    """A tile of scores a block; a row of scores a warp; an element of O a thread."""
    threads = tile["THREADS"]
    tiles = ceil_div(shape.N, tile["BR"]) * ceil_div(shape.N, tile["BC"])
    return (
        Launch("naive_scores", shape.B * tiles, threads, shared),
        Launch("naive_softmax", ceil_div(shape.B * shape.N, threads // 32), threads, shared),
        Launch("naive_values", ceil_div(shape.elements, threads), threads, shared),
    )


def _largest(rows: tuple[int, ...], shared: Callable[[int], int], limit: int) -> int:
    """The first of some choices of BR whose shared memory is within the limit; the last if none is."""
    return next((br for br in rows if shared(br) <= limit), rows[-1])


def _padded_bytes(d: int, tile: Tile) -> int:
    """Q, K with rows padded by a float against bank conflicts, V, and the scores of a tile with a factor a row."""
    br, bc = tile["BR"], tile["BC"]
    return _unscored_bytes(d, tile) + FLOAT * (br * (bc + 1) + br)


def _unscored_bytes(d: int, tile: Tile) -> int:
    """Q, K with rows padded by a float against bank conflicts, V; the scores stay in registers."""
    br, bc = tile["BR"], tile["BC"]
    return FLOAT * (br * d + bc * (d + 1) + bc * d)


def _plain_bytes(d: int, tile: Tile) -> int:
    """Q, K and V, swizzled instead of padded."""
    return FLOAT * d * (tile["BR"] + 2 * tile["BC"])


def _padded_d(d: int) -> int:
    """The head size that flash computes with: 32, 64 or 128, the rest zeros."""
    return next(size for size in (32, 64, 128) if d <= size)


def _flash_bytes(d: int, tile: Tile) -> int:
    """A tile of K and one of V, Q, and P."""
    br, bc = tile["BR"], tile["BC"]
    return FLOAT * (_padded_d(d) * (2 * bc + br) + br * bc)


def _flash_blocks(d: int, tile: Tile, chip: Chip) -> int:
    """Blocks that a multiprocessor holds at once: as shared memory allows, and 384 threads for the registers."""
    return max(1, min(384 // tile["BR"], chip.shared_sm // (_flash_bytes(d, tile) + chip.shared_reserved)))


def _flash_tile(shape: Shape, chip: Chip) -> Tile:
    """128x32, or the next smaller tile that fits a block; 128x16 too where only then two blocks fit."""
    d, sizes = shape.d, ((128, 32), (128, 16), (64, 32), (64, 16), (32, 16))
    tiles = [{"BR": br, "BC": bc} for br, bc in sizes]
    fitting = [tile for tile in tiles if _flash_bytes(d, tile) <= chip.shared_limit] or tiles[-1:]
    best = fitting[0]
    if best is tiles[0] and _flash_blocks(d, tiles[0], chip) < 2 <= _flash_blocks(d, tiles[1], chip):
        best = tiles[1]
    return best


# Keys of a part, where that takes no more parts than MOST_PARTS. A long part would lose digits in its sums: flash has
# 5e-5 in one part instead of 2e-5 at N = 32768.
LONGEST_PART, MOST_PARTS = 4096, 8


def _splits(longest: int | None, cost: int) -> Callable[[Shape, Tile, Chip], int]:
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


def _flash_launches(shape: Shape, tile: Tile, splits: int, shared: int) -> tuple[Launch, ...]:
    """A block for every BR rows and part; then, if there are parts, four elements of O a thread."""
    threads = tile["THREADS"]
    rows = Launch("flash", shape.B * ceil_div(shape.N, tile["BR"]) * splits, threads, shared)
    combine = Launch("flash_combine", ceil_div(shape.elements // 4, threads), threads, 0)
    return (rows,) if splits == 1 else (rows, combine)


def _flash_scratch(shape: Shape, tile: Tile, splits: int) -> int:
    """Each part's O, and m and l of each row."""
    return 0 if splits == 1 else FLOAT * splits * shape.B * shape.N * (shape.d + 2)


TERM_RANGE = 128  # bytes of scratch before the terms


def _warpgroups(d: int, chip: Chip, values: int) -> bool:
    """Whether warp groups multiply (kernels/warpgroup.cuh). `values` is the number of terms of V, and of P."""
    return chip.warpgroups and values == 1 and 8 <= d <= 64


def _inblock(keys: int, d: int, chip: Chip, values: int) -> bool:
    """Whether each block makes the terms of its keys itself: for few keys that is less traffic than a pass over all."""
    return keys <= (512 if _warpgroups(d, chip, values) else 256)


def _terms_tile(shape: Shape, chip: Chip, values: int) -> Tile:
    """Measured on an H200: without warp groups, 256 rows and one large block for long sequences at d = 64."""
    width, short = _padded_d(shape.d), _inblock(shape.N, shape.d, chip, values)
    if _warpgroups(shape.d, chip, values):
        return {"BR": 128, "BC": 128}
    if width == 128:
        return {"BR": 64, "BC": 32}
    if width == 32:
        return {"BR": 128, "BC": 128 if values == 1 and not short else 64}
    if short:
        return {"BR": 64 if values == 2 and chip.cc >= 100 else 128, "BC": 64}  # there, 128 rows spill
    if shape.N >= 4096 or values == 2 or chip.cc in (86, 89):
        return {"BR": 256, "BC": 128 if chip.shared_limit > 200 << 10 and values == 1 else 64}
    return {"BR": 128, "BC": 64}


def _terms_derived(values: int) -> Callable[[Shape, Tile, Chip], Tile]:
    """THREADS, the BLOCKS that registers allow, STAGES of the ring, and whether the block converts, INBLOCK."""

    def derived(shape: Shape, tile: Tile, chip: Chip) -> Tile:
        width, inblock = _padded_d(shape.d), int(_inblock(shape.N, shape.d, chip, values))
        if _warpgroups(shape.d, chip, values):
            blocks, ring = (2, 3) if width == 32 else (1, 4)
            stages = 1 if inblock else ring
            return {
                "THREADS": 2 * tile["BR"],
                "BLOCKS": blocks + inblock,
                "STAGES": stages,
                "INBLOCK": inblock,
                "WARPGROUPS": 1,
            }
        narrow = width == 64 and inblock and (chip.cc < 120 if values == 1 else tile["BR"] == 64)
        rows = 16 if width == 128 or narrow else 32  # of a warp
        threads = 32 * tile["BR"] // rows
        blocks = 3 if inblock and width == 32 else 2 if width == 32 or inblock else 256 // max(threads, 128)
        stage = _terms_stage(shape.d, tile, values)
        fitting = min(chip.shared_limit, chip.shared_sm // max(1, blocks) - chip.shared_reserved) // stage
        least = 4 if tile["BC"] < 64 and values == 1 else 3  # to load one ahead: see Ring in terms.cuh
        stages = 2 if inblock else max(least, min(4, fitting))
        return {"THREADS": threads, "BLOCKS": max(1, blocks), "STAGES": stages, "INBLOCK": inblock}

    return derived


class Sums(NamedTuple):
    """How a kernel on tensor cores adds up, as far as its error depends on it (docs/accuracy.md)."""

    longest: int  # keys in one accumulator
    at_once: int  # keys that are weighed together: m moves once in so many at most
    small_first: bool  # a score's sum begins at 0 with the small products; else at BIAS - m, with all of a column
    of_rounded: bool  # the sum of P is that of the rounded P, by the tensor cores; else float32's


def sums(kernel: str, N: int, d: int, chip: Chip) -> Sums:
    """How "split" or "exact" adds up: the constants LONGEST, SUB, SMALL_FIRST and ONES of kernels/terms.cuh."""
    values = 1 if kernel == "split" else 2
    width, inblock = _padded_d(d), _inblock(N, d, chip, values)
    if _warpgroups(d, chip, values):
        return Sums(min(N, 1024), 32 if inblock and width == 32 else 64, small_first=True, of_rounded=True)
    at_once = 16 if inblock or (values == 2 and width > 32) else 32
    if values == 2:
        return Sums(min(N, 1024), at_once, small_first=True, of_rounded=False)
    return Sums(min(N, 4096), at_once, small_first=False, of_rounded=not (inblock and width == 64))


def _terms_stage(d: int, tile: Tile, values: int) -> int:
    """A tile of terms of K (two) and V, in fp16, and two barriers."""
    return 2 * (2 + values) * tile["BC"] * _padded_d(d) + 16


def _terms_shared(values: int) -> Callable[[int, Tile], int]:
    """The stages; for warp groups also three numbers of each of 8 warps and, from the next multiple of 1024 on, 16 rows
    of ones, and a tile of float32: O of the keys before, or the terms of Q."""

    def shared(d: int, tile: Tile) -> int:
        stages, row = tile["STAGES"] * _terms_stage(d, tile, values), 2 * _padded_d(d)
        if "WARPGROUPS" not in tile:
            return stages
        return ceil_div(stages + 3 * 8 * FLOAT, 1024) * 1024 + (16 + 2 * tile["BR"]) * row

    return shared


def _terms_launches(name: str) -> Callable[[Shape, Tile, int, int], tuple[Launch, ...]]:
    """The pass that makes terms, eight columns a thread four times; a block for BR rows and part; the parts' sum."""

    def launches(shape: Shape, tile: Tile, splits: int, shared: int) -> tuple[Launch, ...]:
        chunks = shape.B * ceil_div(shape.N, tile["BC"]) * tile["BC"] * _padded_d(shape.d) // 8
        blocks = shape.B * ceil_div(shape.N, tile["BR"]) * splits
        steps = [Launch(name, blocks, tile["THREADS"], shared)]
        if not tile["INBLOCK"]:
            steps.insert(0, Launch(f"{name}_convert", ceil_div(chunks, 4 * 256), 256, 0))
        if splits > 1:
            steps.append(Launch(f"{name}_combine", ceil_div(shape.elements // 4, 256), 256, 0))
        return tuple(steps)

    return launches


def _terms_scratch(values: int) -> Callable[[Shape, Tile, int], int]:
    """The range, the terms of K and V, l and m of each row and part, and each part's O if there are parts."""

    def scratch(shape: Shape, tile: Tile, splits: int) -> int:
        padded = shape.B * ceil_div(shape.N, tile["BC"]) * tile["BC"]
        terms = 0 if tile["INBLOCK"] else padded * _padded_d(shape.d) * 2 * (2 + values)
        rows, partial = shape.B * shape.N * splits, 0 if splits == 1 else shape.d
        stats = ceil_div(2 * FLOAT * rows, 16) * 16  # O behind it is read 16 bytes at a time
        return TERM_RANGE + terms + stats + FLOAT * rows * partial

    return scratch


def _terms_variant(name: str, idea: str, values: int, error_bound: float) -> Variant:
    """A kernel on tensor cores, P and V in so many fp16 terms."""
    return Variant(
        name,
        idea,
        error_bound=error_bound,
        tile=lambda shape, chip: _terms_tile(shape, chip, values),
        derived=_terms_derived(values),
        shared=_terms_shared(values),
        launches=_terms_launches(name),
        scratch=_terms_scratch(values),
        splits=_splits(None, cost=256),
        finds_range=True,
        least_cc=80,
    )


# The order is the ladder: each rung's file says what it changes against the one before.
VARIANTS = {
    variant.name: variant
    for variant in (
        Variant(
            "naive",
            "three launches, the scores in device memory",
            error_bound=5e-5,
            tile=lambda shape, chip: {"BR": 16, "BC": 16},
            derived=lambda shape, tile, chip: {"THREADS": 256},
            shared=lambda d, tile: 0,
            launches=_naive_launches,
            longest_sum=lambda N: N,
            scratch=lambda shape, tile, splits: FLOAT * shape.B * shape.N**2,
        ),
        Variant(
            "smallbr",
            "one launch with the online softmax, but blocks of 4 rows: the counter-example",
            error_bound=5e-5,
            tile=lambda shape, chip: {"BR": 4, "BC": 32},
            derived=lambda shape, tile, chip: {"THREADS": 128},
            shared=_padded_bytes,
            launches=row_blocks("smallbr"),
            longest_sum=lambda N: N // 32 + 32,
        ),
        Variant(
            "shared",
            "blocks of 64 rows: K and V are read from shared memory 16 times as often as from the device's",
            error_bound=5e-5,
            tile=lambda shape, chip: {
                "BR": _largest((64, 32, 16), lambda br: _padded_bytes(shape.d, {"BR": br, "BC": 32}), SHARED_DEFAULT),
                "BC": 32,
            },
            derived=lambda shape, tile, chip: {"THREADS": 256},
            shared=_padded_bytes,
            launches=row_blocks("shared"),
            longest_sum=lambda N: N // 32 + 32,
        ),
        Variant(
            "warp",
            "a warp owns its rows: maximum and sum by shuffles, the scores in registers",
            error_bound=5e-5,
            tile=lambda shape, chip: {
                "BR": _largest((64, 32, 16), lambda br: _unscored_bytes(shape.d, {"BR": br, "BC": 32}), SHARED_DEFAULT),
                "BC": 32,
            },
            derived=lambda shape, tile, chip: {"THREADS": 8 * tile["BR"]},
            shared=_unscored_bytes,
            launches=row_blocks("warp"),
            longest_sum=lambda N: N // 32 + 32,
        ),
        Variant(
            "float4",
            "16-byte loads, half-warps share rows: tiles and threads of the course's best report",
            error_bound=5e-5,
            tile=lambda shape, chip: {
                "BR": _largest(
                    (128, 64, 32), lambda br: _plain_bytes(shape.d, {"BR": br, "BC": 32}), chip.shared_limit
                ),
                "BC": 32,
            },
            derived=lambda shape, tile, chip: {"THREADS": 8 * tile["BR"]},
            shared=_plain_bytes,
            launches=row_blocks("float4_kernel"),
            longest_sum=lambda N: N,
        ),
        Variant(
            "flash",
            "register micro-tiles, asynchronous copies, no running maximum where none is needed",
            error_bound=2e-5,
            tile=_flash_tile,
            derived=lambda shape, tile, chip: {"THREADS": tile["BR"], "BLOCKS": _flash_blocks(shape.d, tile, chip)},
            shared=_flash_bytes,
            launches=_flash_launches,
            longest_sum=lambda N: max(min(N, LONGEST_PART), ceil_div(N, MOST_PARTS)),
            scratch=_flash_scratch,
            splits=_splits(LONGEST_PART, cost=64),
        ),
        _terms_variant(
            "split", "tensor cores: Q and K in two fp16 terms each, P and V in one", values=1, error_bound=2.8e-3
        ),
        _terms_variant("exact", "tensor cores with the error of float32: six products", values=2, error_bound=2.1e-5),
        Variant(
            "float64",
            "everything in double: the oracle, and the way out for scores that float32 cannot hold",
            error_bound=1e-6,
            tile=lambda shape, chip: {"BR": 32, "BC": 16},
            derived=lambda shape, tile, chip: {"THREADS": 4 * tile["BR"]},
            shared=lambda d, tile: 2 * 8 * tile["BC"] * d,
            launches=row_blocks("float64"),
        ),
    )
}
DEFAULT = "flash"
FALLBACK = "float64"

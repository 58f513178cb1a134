"""split and exact: kernels on tensor cores (kernels/split.cu, kernels/exact.cu)."""

from collections.abc import Callable
from typing import NamedTuple

from hw4cli.compute.common import padded_d, splits_for
from hw4cli.compute.plan import FLOAT, Chip, Launch, Tile, Variant, ceil_div
from hw4cli.problem.shape import Shape

TERM_RANGE = 128  # bytes of scratch before the terms


def _warpgroups(d: int, chip: Chip, values: int) -> bool:
    """Whether warp groups multiply (kernels/warpgroup.cuh). `values` is the number of terms of V, and of P."""
    return chip.warpgroups and values == 1 and 8 <= d <= 64


def _inblock(keys: int, d: int, chip: Chip, values: int) -> bool:
    """Whether each block makes the terms of its keys itself: for few keys that is less traffic than a pass over all."""
    return keys <= (512 if _warpgroups(d, chip, values) else 256)


def _terms_tile(shape: Shape, chip: Chip, values: int) -> Tile:
    """Measured on an H200: without warp groups, 256 rows and one large block for long sequences at d = 64."""
    width, short = padded_d(shape.d), _inblock(shape.N, shape.d, chip, values)
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
        width, inblock = padded_d(shape.d), int(_inblock(shape.N, shape.d, chip, values))
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
    width, inblock = padded_d(d), _inblock(N, d, chip, values)
    if _warpgroups(d, chip, values):
        return Sums(min(N, 1024), 32 if inblock and width == 32 else 64, small_first=True, of_rounded=True)
    at_once = 16 if inblock or (values == 2 and width > 32) else 32
    if values == 2:
        return Sums(min(N, 1024), at_once, small_first=True, of_rounded=False)
    return Sums(min(N, 4096), at_once, small_first=False, of_rounded=not (inblock and width == 64))


def _terms_stage(d: int, tile: Tile, values: int) -> int:
    """A tile of terms of K (two) and V, in fp16, and two barriers."""
    return 2 * (2 + values) * tile["BC"] * padded_d(d) + 16


def _terms_shared(values: int) -> Callable[[int, Tile], int]:
    """The stages; for warp groups also three numbers of each of 8 warps and, from the next multiple of 1024 on, 16 rows
    of ones, and a tile of float32: O of the keys before, or the terms of Q."""

    def shared(d: int, tile: Tile) -> int:
        stages, row = tile["STAGES"] * _terms_stage(d, tile, values), 2 * padded_d(d)
        if "WARPGROUPS" not in tile:
            return stages
        return ceil_div(stages + 3 * 8 * FLOAT, 1024) * 1024 + (16 + 2 * tile["BR"]) * row

    return shared


def _terms_launches(name: str) -> Callable[[Shape, Tile, int, int], tuple[Launch, ...]]:
    """The pass that makes terms, eight columns a thread four times; a block for BR rows and part; the parts' sum."""

    def launches(shape: Shape, tile: Tile, splits: int, shared: int) -> tuple[Launch, ...]:
        chunks = shape.B * ceil_div(shape.N, tile["BC"]) * tile["BC"] * padded_d(shape.d) // 8
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
        terms = 0 if tile["INBLOCK"] else padded * padded_d(shape.d) * 2 * (2 + values)
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
        splits=splits_for(None, cost=256),
        finds_range=True,
        least_cc=80,
    )


SPLIT = _terms_variant(
    "split", "tensor cores: Q and K in two fp16 terms each, P and V in one", values=1, error_bound=2.8e-3
)
EXACT = _terms_variant("exact", "tensor cores with the error of float32: six products", values=2, error_bound=2.1e-5)

"""Accesses of shared memory by the threads of a kernel's blocks: whole ones, of 32 lanes' 4 bytes each (wavefronts, as
NVIDIA's profilers count them), as if no two lanes met in a bank. What a profiler counts beyond them are conflicts.

A load of 16 bytes is four accesses, one for each eight lanes; two, where neighbours, or all lanes, read the same.
Which loads are of 16 bytes was read in the kernels' machine code. Asynchronous copies, and matrices that tensor cores
take from shared memory by themselves, are no accesses of threads.
"""

from collections.abc import Callable, Mapping

import numpy as np

from hw4cli.lab.stepper.blocks import BlockKeys
from hw4cli.plans.formulas import ceil_div
from hw4cli.plans.ladder import block_of
from hw4cli.plans.plan import Plan

WAVEFRONT, SECTOR = 128, 32  # bytes: of shared memory; of the L2 cache
LANES = 32  # threads
FOURS, ALIKE = 4, 2  # accesses for 16 bytes of each lane; where neighbours read the same
Macros = Mapping[str, int]
Counts = tuple[int, int]  # of a block once, and for each tile of keys


def wavefronts(plan: Plan, blocks: BlockKeys) -> int | None:
    """Accesses of all blocks of a batch, of a plan's main launch; None where they were not counted: of a kernel in a
    user's file, and of blocks that convert their keys themselves on GPUs without warpgroups."""
    m, count = plan.macros, _COUNTS.get(block_of(plan.variant).reads)
    if m.get("INBLOCK"):
        count = _in_block if m["WARPGROUPS"] else None
    if count is None:
        return None
    if m.get("GROUPS"):
        return _sums(m, blocks)  # the tensor cores read matrices by themselves
    once, tile = count(m)
    sums = _sums(m, blocks) if m.get("SHARED_SUMS") else 0
    return len(blocks.rows) * once + blocks.tiles(m["BC"]) * tile + sums


def promotions(m: Macros, blocks: BlockKeys) -> np.ndarray:
    """How often each block takes its sums out of the tensor cores' accumulators, but for the last time."""
    count: np.ndarray = np.maximum(0, -(-blocks.keys // m["BC"]) - 1) * m["BC"] // m["PROMOTION"]
    return count


def _sums(m: Macros, blocks: BlockKeys) -> int:
    """Of promotion to shared memory (kernels/promotion.cuh): at each, threads store O, l and m there, plus what they
    stored before; at the end they load these."""
    return 2 * int(promotions(m, blocks).sum()) * (m["WIDTH"] // 8 + 1) * 2 * m["BR"] * 16 // WAVEFRONT


def _warps(m: Macros) -> int:
    return m["THREADS"] // LANES


def _floats(rows: int, m: Macros) -> int:
    """Accesses that bring so many rows of float32."""
    return ceil_div(rows * m["D"], LANES)


def _none(m: Macros) -> Counts:
    return 0, 0


def _softmax(m: Macros) -> int:
    """Block_softmax.cuh: the threads of rows read their scores, and leave weights and a factor."""
    return ceil_div(m["BR"], LANES) * (2 * m["BC"] + 1)


def _values(m: Macros) -> int:
    """O of a block's rows, an element a thread: for each key a weight and a number of V, and a factor."""
    return ceil_div(m["BR"] * m["D"], m["THREADS"]) * _warps(m) * (2 * m["BC"] + 1)


def _scores(m: Macros) -> int:
    """Of a tile: a score is a row of K, number by number, and one of Q, 16 bytes at a time."""
    return ceil_div(m["BR"] * m["BC"], LANES) * (m["D"] + m["D"] // 4 * ALIKE + 1)


def _by_elements(m: Macros) -> Counts:
    """smallbr, shared."""
    return _floats(m["BR"], m), _floats(2 * m["BC"], m) + _scores(m) + _softmax(m) + _values(m)


def _fp16qk(m: Macros) -> Counts:
    """Fragments of 16 rows and 8 keys: six words of Q and K for each 16 columns; four scores of each lane."""
    steps = ceil_div(m["D"], 16)
    fragments = m["BR"] // 16 * (m["BC"] // 8)
    halves = steps * 8 * m["BC"] // LANES  # words of a tile of K
    tile = halves + _floats(m["BC"], m) + fragments * (6 * steps + 4) + _softmax(m) + _values(m)
    return steps * 8 * m["BR"] // LANES, tile


def _rowthread(m: Macros) -> Counts:
    """A thread reads its row of Q number by number; K and V, of which all lanes read the same, by 16 bytes."""
    products = m["D"] + 2 * (m["D"] // 4) * m["BC"] * ALIKE
    return _floats(m["BR"], m), _floats(2 * m["BC"], m) + _warps(m) * products


def _warp(m: Macros) -> Counts:
    """A lane's key, and four rows of Q, of which all lanes read the same 16 bytes; columns of V."""
    scores = m["D"] + 4 * (m["D"] // 4) * ALIKE
    values = m["BC"] * ceil_div(m["D"], LANES)
    return _floats(m["BR"], m), _floats(2 * m["BC"], m) + _warps(m) * (scores + values)


def _float4(m: Macros) -> Counts:
    """Neighbours read the same K, and every second lane the same Q; of V, lanes read rows side by side."""
    chunks = m["D"] // 4
    columns = next(lanes for lanes in (2, 4, 8, 16, 32) if lanes >= min(chunks, LANES))
    scores, values = chunks * (m["BC"] // 16 + 2) * ALIKE, m["BC"] * columns // LANES * FOURS
    return _floats(m["BR"], m), _floats(2 * m["BC"], m) + _warps(m) * (scores + values)


def _slices(m: Macros) -> tuple[int, int, int]:
    """halfwarp.cuh: floats of a load, loads of a row, and how many of them a lane has."""
    vector = 4 if m["D"] > 32 else 2
    return vector, m["D"] // vector, ceil_div(m["D"] // vector, 16)


def _halfwarp(m: Macros) -> Counts:
    """Of each key a slice of K and of V, which serve both rows."""
    vector, _, own = _slices(m)
    return 0, _floats(2 * m["BC"], m) + _warps(m) * 2 * m["BC"] * own * vector


def _halfwarp_local(m: Macros) -> Counts:
    """The same, number by number, for each row again."""
    vector, _, own = _slices(m)
    return 0, _floats(2 * m["BC"], m) + _warps(m) * 4 * m["BC"] * own * vector


def _halfwarp_keys(m: Macros) -> Counts:
    """Whole rows of a lane's own keys; then of each key a slice of V."""
    vector, loads, own = _slices(m)
    return 0, _floats(2 * m["BC"], m) + _warps(m) * (loads * (m["BC"] // 16) + m["BC"] * own) * vector


def _float64(m: Macros) -> Counts:
    """K passes twice, and V once, as float64: two accesses for 8 bytes of each lane."""
    return 0, 2 * _floats(3 * m["BC"], m) + _warps(m) * 2 * 3 * m["D"] * m["BC"] // 4


def _flash(m: Macros) -> Counts:
    """A warp of 32 rows: columns of Q and P by 16 bytes, of which every second lane's are the same; of K and V, of
    which neighbours' are; P is stored."""
    keys, outs = m["BC"] // 8, m["WIDTH"] // 8
    scores = m["WIDTH"] * (2 * ALIKE + keys // 2)
    values = m["BC"] * (2 * ALIKE + outs // 2) + 8 * keys
    return m["BR"] * m["WIDTH"] // LANES, _warps(m) * (scores + values)


def _by_warps(m: Macros) -> Counts:
    """split, exact without warpgroups: each warp takes all pieces of a tile, once, as fragments of matrices."""
    pieces = 2 + m["PV_PIECES"]
    return 0, _warps(m) * pieces * m["BC"] * m["WIDTH"] * 2 // WAVEFRONT


def _in_block(m: Macros) -> Counts:
    """Blocks that convert: Q and K in two pieces, V in one; of Q and K sums of squares, stored and read; ones."""
    piece, squares = m["BC"] * m["WIDTH"] * 2 // WAVEFRONT, 2 * m["BC"] * m["WIDTH"] // 8 // LANES
    return 2 * piece + squares + 16, 3 * piece + squares


def paper_wavefronts(m: Macros) -> Counts:
    """Of paper, for each tile of keys, and for each tile of rows that it meets."""
    softmax = ceil_div(m["BR"], LANES) * (3 * m["BC"] + 2)
    values = ceil_div(m["BR"] * m["D"], LANES) * (2 * m["BC"] + 2)
    return _floats(2 * m["BC"], m), _floats(m["BR"], m) + _scores(m) + softmax + values


# By `Block.reads` of the kernel's entry.
_COUNTS: dict[str, Callable[[Macros], Counts]] = {
    "none": _none,
    "row a thread": _rowthread,
    "elements": _by_elements,
    "elements, fragments of scores": _fp16qk,
    "a key a lane": _warp,
    "vectors": _float4,
    "slices": _halfwarp,
    "slices, number by number": _halfwarp_local,
    "keys, then slices": _halfwarp_keys,
    "doubles": _float64,
    "register tiles": _flash,
    "fragments": _by_warps,
}

"""What the blocks of a launch ask of the L2 cache, and write there."""

from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np

from hw4cli.lab.stepper.blocks import BlockKeys
from hw4cli.lab.stepper.wavefronts import SECTOR, promotions
from hw4cli.lab.stepper.work import DEVICE, ONE, SPLIT, Move, Part
from hw4cli.plans.formulas import FLOAT, ceil_div
from hw4cli.plans.ladder import block_of
from hw4cli.plans.plan import Plan
from hw4cli.problem.workload import Workload

Bytes = tuple[int, int]  # read, written


def moved_bytes(parts: Iterable[Part], blocks: BlockKeys, plan: Plan, shape: Workload) -> Bytes:
    """Bytes that all blocks read from the L2 cache, or write there."""
    read = written = 0
    left_out = SPLIT if plan.splits == 1 else ONE
    for part in parts:
        for phase in part.phases:
            for move in phase.moves if phase.only != left_out else ():
                moved = int(_amount(move, part.tiles, blocks, plan.macros, shape).sum())
                if move.to == DEVICE:
                    written += moved
                else:
                    read += moved
    if plan.splits > 1 and not plan.finds_absmax:  # m and l of a row leave alone, as a sector
        written += int(blocks.rows.sum()) * (SECTOR - 2 * FLOAT)
    if block_of(plan.variant).scattered:
        written *= SECTOR // FLOAT
    return shape.B * read, shape.B * (written + _promoted(blocks, plan, shape))


def _promoted(blocks: BlockKeys, plan: Plan, shape: Workload) -> int:
    """Bytes of O and two numbers of each row that blocks by mma.sync leave where O goes in the end, at each promotion.
    To read them again, a multiprocessor seldom asks: it has them in its own cache."""
    m = plan.macros
    if not m.get("PROMOTION") or m["INBLOCK"] or m["WARPGROUPS"] or m["SHARED_SUMS"]:
        return 0
    return int((promotions(m, blocks) * blocks.rows).sum()) * FLOAT * (shape.d + 2)


def _amount(move: Move, loop: bool, blocks: BlockKeys, macros: Mapping[str, int], shape: Workload) -> Any:
    """Bytes of a move by each block: in a loop over the tiles, of all from `ahead` on, else of that one alone."""
    rows, BC, d = blocks.rows, macros["BC"], shape.d
    keys = np.maximum(0, blocks.keys - move.ahead * BC)
    if not loop:
        keys = np.minimum(keys, BC)
    tiles = ceil_div(keys, BC)
    # With a mask, a tile comes to its end, though the block's rows may not see that.
    keys = np.minimum(tiles * BC, np.maximum(0, shape.N - blocks.first - move.ahead * BC))
    steps = tiles if loop else 1
    value_blocks = ceil_div(macros["BR"] * d, macros["THREADS"])
    of_unit = {
        "rows*d": rows * d * steps,
        "keys*d": keys * d,
        "rows*keys": rows * keys,
        "rows*N": rows * shape.N,
        "rows": rows * steps,
        "tile": tiles * BC * macros.get("WIDTH", d),
        "keys*d*blocks": keys * d * value_blocks,
    }
    return sum(of_unit[unit] * size for unit, size in move.amount.items())

"""What an L2 cache does not hold until it is read again: blocks in the order in which they run."""

import csv

import numpy as np
import pytest
from helpers import ROOT

from hw4cli.lab.measure.cache import MOST_VISITS, read_again
from hw4cli.lab.measure.gpus import model_named
from hw4cli.plans.plan import Visit, Visits


def causal(heads, together, tiles=40, keys=200, slots=132):
    """Tiles of rows of so many heads, some heads together, the longest first."""
    return [
        Visit(head, 0, keys * (tile + 1), 1000, 1000)
        for first in range(0, heads, together)
        for tile in reversed(range(tiles))
        for head in range(first, first + together)
    ]


def test_heads_that_are_worked_on_together_come_again_where_the_cache_does_not_hold_them():
    """A head has 4 MB: 16 are more than the cache holds, 8 are not."""
    read = {n: read_again(Visits(causal(32, n), 132, 512), 50 << 20) for n in (8, 16)}
    assert read[16] > 100e6 > 10 * read[8]
    assert read_again(Visits(causal(32, 16), 132, 512), 500 << 20) == 0


def test_the_order_in_which_blocks_take_tiles_decides_how_far_they_are_apart():
    """Blocks that get all the long tiles fall behind, and find the keys gone that others have used."""
    apart, together = (read_again(Visits(causal(32, 16), 132, 512, in_rounds), 50 << 20) for in_rounds in (True, False))
    assert apart > 1.3 * together


def test_what_the_cache_holds_is_what_was_counted():
    """A buffer is read twice: from a size on, half of it comes again."""
    sizes = []
    for who in ("same blocks", "other blocks"):
        rows = [row for row in csv.DictReader((ROOT / "benchmarks/h200-cache.csv").open()) if row["pass"] == who]
        mib = [float(row["mib"]) for row in rows]
        again = [1e6 * float(row["dram_read"]) / 2**20 / size - 1 for row, size in zip(rows, mib, strict=True)]
        sizes.append(np.interp(0.5, again, mib))
    assert model_named("H200").cache / 2**20 == pytest.approx(np.mean(sizes), rel=0.01)


def test_keys_that_many_blocks_read_lie_in_both_halves_of_the_cache():
    """A buffer in 132 parts is held up to 43 MB, one that all blocks read up to 30 MB."""
    size, rows = model_named("H200").cache, 1 << 14

    def again(mib, readers):
        keys = [n % readers for n in range(2 * 132)]
        visits = [Visit(key, 0, rows // readers, 0, 0) for key in keys]
        return read_again(Visits(visits, 132, (mib << 20) // rows, in_rounds=True), size) / (mib << 20)

    assert again(36, 1) > 0.9 > 0.05 > again(26, 1)


def test_what_a_block_leaves_of_its_rows_comes_from_dram_again_where_much_was_touched_meanwhile():
    def again(between):
        mine = [Visit(0, 0, 64, 1000, 1000, rows=7)]
        last = [Visit(0, 64, 128, 1000, 1000, rows=7, adds=True)]
        return read_again(Visits([*mine, Visit(1, 0, 32, between, 0), *last], 1, 4), 1 << 20)

    assert again(0) == 0
    assert again(20 << 20) == 2000  # Q, and O


def test_what_no_two_blocks_visit_and_more_tasks_than_are_followed_are_read_once():
    assert read_again(Visits([Visit(n, 0, 4096, 0, 0) for n in range(100)], 10, 512), 1 << 20) == 0
    assert read_again(Visits([Visit(0, 0, 1, 0, 0)] * (MOST_VISITS + 1), 10, 512), 1) == 0

"""half_short, executed on the CPU against float64: few rows and as few keys, on Hopper."""

import re

import numpy as np
import pytest
from halves import assert_right, random_words
from slow import quick_of_each, slow, slow_of_each

from hw4cli.device.machinecode import OPTIONS
from hw4cli.device.nvrtc import Compiler, find
from hw4cli.emulator.library import FORWARDS, REVERSE, Schedule
from hw4cli.plans.halfshort import ShortTiling, plan
from hw4cli.plans.kernels16 import plan16
from hw4cli.plans.plan import DEVICES
from hw4cli.problem.workload import BFLOAT16, FLOAT16, Workload
from hw4cli.resources import kernel_source

pytestmark = quick_of_each(1)

# The tiling; the head size; the type; rows and keys. Each in two: causal and not.
WAYS = {
    "two teams, 128 rows": (ShortTiling(2, 2, 128, 4, True), 64, FLOAT16, 128, 128),
    "four teams, two tiles of a head": (ShortTiling(4, 1, 128, 4, True), 64, BFLOAT16, 128, 128),
    "two teams, the last group with few rows": (None, 32, BFLOAT16, 97, 128),
    "keys that are no whole tile": (None, 40, FLOAT16, 128, 77),
    "four teams of one group": (None, 64, FLOAT16, 50, 60),
    "one team": (ShortTiling(1, 2, 128, 4, True), 64, FLOAT16, 128, 128),
    "one team, 128 columns": (None, 128, BFLOAT16, 120, 128),
}


@slow_of_each(6)
@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("way", WAYS)
def test_half_short_is_right_and_free_of_races(way, causal):
    how, d, dtype, rows, keys = WAYS[way]
    work = Workload(dtype, 2, 4, 2, rows, keys, d, causal, keys - rows)
    assert_right(work, *random_words(work), how, kernel="half")


@slow
def test_other_orders_of_threads_give_the_same_bits():
    work = Workload(BFLOAT16, 1, 9, 3, 100, 90, 64)  # more tiles than stages
    q, k, v = random_words(work)
    orders = (FORWARDS, Schedule(REVERSE))
    first, second = (assert_right(work, q, k, v, schedule=schedule, kernel="half") for schedule in orders)
    assert np.array_equal(first.o, second.o)
    assert np.array_equal(first.lse, second.lse)


@slow
def test_whole_tiles_of_64_rows_and_columns_are_computed_for_themselves():
    def rows(d, Nq, causal=False):
        work = Workload(FLOAT16, 1, 500, 500, Nq, 128, d, causal)
        return plan16(work, DEVICES[90], "half").macros["BR"]

    assert rows(64, 128) == rows(40, 128) == 64
    assert rows(32, 128) == rows(128, 128) == rows(64, 100) == rows(64, 128, causal=True) == 128


@pytest.mark.parametrize(("rows", "keys", "variant"), [(128, 128, "half_short"), (129, 128, "half"), (64, 129, "half")])
def test_half_takes_short_rows_at_once_and_others_tile_after_tile(rows, keys, variant):
    work = Workload(FLOAT16, 1, 500, 500, rows, keys, 64)
    assert plan16(work, DEVICES[90], "half").variant == variant


@slow
@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("d", [32, 64, 128])
def test_no_register_spills_and_no_product_is_serialised(d, causal):
    compiler = Compiler(find(13000, 90), 13000, 90)
    for N in (64, 128):
        options = (*OPTIONS, *plan(Workload.square(FLOAT16, 1, 500, N, d, causal), DEVICES[90]).options)
        _, log = compiler.build(kernel_source("half_short"), "half_short.cu", (*options, "--ptxas-options=-v"), 90)
        assert set(re.findall(r"(\d+) bytes spill", log)) == {"0"}, log
        assert "C75" not in log, log

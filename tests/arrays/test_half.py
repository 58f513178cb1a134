"""half, executed on the CPU against float64: types, head sizes, masks, tails, shared heads, strides, hostile values."""

import re
from dataclasses import replace

import numpy as np
import pytest
from definitions import definition
from halves import assert_right, numbers, random_words, rounded
from slow import quick_of_each, slow, slow_of_each

from hw4cli.arrays.emulated import run_half
from hw4cli.device.machinecode import OPTIONS
from hw4cli.device.nvrtc import Compiler, find
from hw4cli.emulator.build import PLAIN
from hw4cli.emulator.library import FORWARDS, REVERSE, Schedule
from hw4cli.errors import MachineError
from hw4cli.plans.half import Tiling, heads_together, plan, tiling
from hw4cli.plans.halfwork import last_rows
from hw4cli.plans.kernels16 import kernel16
from hw4cli.plans.plan import DEVICES
from hw4cli.problem.workload import BFLOAT16, FLOAT16, Workload
from hw4cli.resources import kernel_source

pytestmark = quick_of_each(1)

HOPPER = DEVICES[90]
# The tiling; the head size; the type; rows and keys. Each in two: causal and not.
WAYS = {
    "three groups, 80 keys": (None, 128, BFLOAT16, 200, 250),
    "three groups, the last without rows": (None, 128, FLOAT16, 130, 250),
    "three groups, ones": (Tiling(3, 128, 2, ones=True), 64, FLOAT16, 257, 300),
    "four groups, short tiles": (Tiling(4, 64, 4), 64, BFLOAT16, 333, 270),
    "two groups, few rows": (None, 64, FLOAT16, 97, 129),
    "groups as they come": (Tiling(3, 128, 2, turns=False), 64, FLOAT16, 200, 270),
    "O rescaled for every tile of keys": (Tiling(3, 128, 2, lazy=False), 64, FLOAT16, 200, 600),
    "one product at a time": (Tiling(3, 80, 2, ahead=False, turns=False), 128, BFLOAT16, 200, 250),
    "padded to 96": (None, 80, FLOAT16, 130, 161),
    "padded to 64": (None, 40, BFLOAT16, 300, 200),
}


@slow_of_each(9)
@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("way", WAYS)
def test_half_is_right_and_free_of_races(way, causal):
    how, d, dtype, rows, keys = WAYS[way]
    work = Workload(dtype, 1, 2, 1, rows, keys, d, causal, keys - rows)
    assert_right(work, *random_words(work), how)


@slow
def test_a_group_without_rows_has_waited_for_all_tiles_of_keys_before_it_reads_what_comes_after_them():
    """One block, whose first group has rows in the second tile alone, while all buffers hold keys of the first one."""
    work = Workload(FLOAT16, 1, 2, 1, 320, 256, 64)
    assert_right(work, *random_words(work), Tiling(3, 128, 2, turns=False), blocks=1, kernel="half")


@pytest.fixture
def small():
    return Workload(FLOAT16, 2, 4, 2, 70, 90, 64, True, 20)


# half on 9.0, and half_mma, which answers on 8.0
BOTH = pytest.mark.parametrize("cc", [90, 80])


@slow
@BOTH
def test_other_orders_of_threads_give_the_same_bits(small, cc):
    q, k, v = random_words(small)
    orders = (FORWARDS, Schedule(REVERSE))
    first, second = (assert_right(small, q, k, v, schedule=schedule, cc=cc) for schedule in orders)
    assert np.array_equal(first.o, second.o)
    assert np.array_equal(first.lse, second.lse)


@slow
@pytest.mark.parametrize("d", [64, 128])
def test_blocks_that_take_tiles_as_they_come_give_the_same_bits(monkeypatch, d):
    """Causal tiles are not equally long: where there are more than multiprocessors, a counter gives them out."""
    monkeypatch.setitem(DEVICES, 90, replace(HOPPER, sms=2))
    work = Workload(BFLOAT16, 1, 3, 3, 260, 150, d, True, 30)
    assert [step.symbol for step in plan(work, DEVICES[90]).launches] == ["half_start", "half"]
    q, k, v = random_words(work)
    orders = (FORWARDS, Schedule(REVERSE))
    first, second = (assert_right(work, q, k, v, schedule=schedule, kernel="half") for schedule in orders)
    assert np.array_equal(first.o, second.o)


@BOTH
def test_rows_that_see_no_key_give_0(small, cc):
    work = replace(small, offset=-30)
    outcome = assert_right(work, *random_words(work), cc=cc)
    assert not outcome.o[:, :, :30].any()


@slow
@BOTH
def test_more_heads_than_are_worked_on_together_are_all_computed(cc):
    work = Workload(FLOAT16, 3, 43, 1, 130, 140, 32, True, 10)
    assert 2 * heads_together(work) < work.batch * work.heads
    assert_right(work, *random_words(work), cc=cc, build=PLAIN)


@slow
@BOTH
def test_heads_may_lie_apart_in_memory(small, cc):
    """(batch, rows, heads, d), as many libraries have them; and Q, K, V in one array."""
    packed = np.zeros((2, 90, 8, 64), np.uint16)
    q, k, v = (packed[:, :, part].swapaxes(1, 2) for part in (slice(0, 4), slice(4, 6), slice(6, 8)))
    q = q[:, :, :70]
    for to, words in zip((q, k, v), random_words(small), strict=True):
        to[:] = words
    assert_right(small, q, k, v, cc=cc)


@slow
@pytest.mark.parametrize("dtype", [FLOAT16, BFLOAT16])
def test_scores_far_below_0_that_grow_are_weighed_right(dtype):
    """The maximum is compared as an integer, which orders no negative numbers."""
    work = Workload(dtype, 1, 1, 1, 20, 600, 64)
    k = -np.linspace(100, 0.1, 600)[:, None] * np.ones((1, 1, 600, 64))
    _, _, v = random_words(work)
    assert_right(work, rounded(np.full((1, 1, 20, 64), 10.0), dtype), rounded(k, dtype), v)


@slow
def test_keys_of_zeros_behind_keys_with_scores_far_below_0_have_all_the_weight():
    """As where rows are padded: the new maximum is 0 itself, the smallest integer that is no negative number's."""
    work = Workload(FLOAT16, 1, 1, 1, 20, 600, 64)
    k = np.zeros((1, 1, 600, 64))
    k[:, :, :300] = -10
    _, _, v = random_words(work)
    assert_right(work, rounded(np.full((1, 1, 20, 64), 10.0), FLOAT16), rounded(k, FLOAT16), v)


@slow
@pytest.mark.parametrize("dtype", [FLOAT16, BFLOAT16])
def test_scores_that_grow_along_the_keys_are_rescaled(dtype):
    work = Workload(dtype, 1, 1, 1, 140, 600, 64)
    q, k, v = random_words(work, factor=4)
    k = rounded(numbers(k, dtype) * np.linspace(0.05, 5, 600)[:, None], dtype)
    assert_right(work, q, k, v)
    assert_right(replace(work, scale=0.3), q, k, v, Tiling(3, 128, 2, ones=True))


@slow
def test_many_small_weights_beside_a_large_one_keep_their_digits():
    """Below 2^-14 fp16 numbers are coarse: P is held larger than it is."""
    work = Workload(FLOAT16, 1, 1, 1, 4, 2048, 64)
    q, k, v = np.zeros((1, 1, 4, 64)), np.zeros((1, 1, 2048, 64)), np.full((1, 1, 2048, 64), 600.0)
    q[..., 0], k[:, :, 0, 0], v[:, :, 0] = 8, np.log(2) * 20.8, 0  # weights of 2^-20.8, and one of 1, whose V is 0
    q, k, v = (rounded(x, FLOAT16) for x in (q, k, v))
    exact, _ = definition(*(numbers(x, FLOAT16) for x in (q, k, v)), work.scale)
    np.testing.assert_allclose(numbers(run_half(work, q, k, v).o, FLOAT16), exact, rtol=2e-3)


@pytest.fixture(scope="module")
def compiler():
    return Compiler(find(13000, 90), 13000, 90)


@slow
@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("d", [32, 64, 128])
def test_no_register_spills_and_no_product_is_serialised(compiler, d, causal):
    work = Workload.square(BFLOAT16, 4, 16, 4096, d, causal)
    options = (*OPTIONS, *plan(work, HOPPER).options, "--ptxas-options=-v")
    _, log = compiler.build(kernel_source("half"), "half.cu", options, 90)
    assert set(re.findall(r"(\d+) bytes spill", log)) == {"0"}, log
    assert "C75" not in log, log


def test_a_gpu_without_warp_groups_is_refused_in_a_sentence():
    with pytest.raises(MachineError, match=r"half needs compute capability 9\.0 .* this GPU has 8\.0"):
        plan(Workload.square(FLOAT16, 1, 1, 128, 64), DEVICES[80])


def test_few_rows_of_few_columns_go_to_half_mma_of_which_four_blocks_fit_where_keys_are_more_than_a_tile():
    assert kernel16(Workload(FLOAT16, 1, 13600, 13600, 128, 256, 32), HOPPER) == "half_mma"
    assert kernel16(Workload.square(FLOAT16, 1, 13600, 128, 32), HOPPER) == "half"
    assert kernel16(Workload.square(FLOAT16, 1, 9600, 128, 64), HOPPER) == "half"
    assert kernel16(Workload.square(FLOAT16, 1, 4, 32768, 32), HOPPER) == "half"


def test_four_groups_work_where_their_rounds_of_tiles_come_out_better():
    assert tiling(Workload.square(FLOAT16, 1, 2, 32768, 64), HOPPER).groups == 4
    assert tiling(Workload.square(FLOAT16, 2, 32, 8192, 64), HOPPER).groups == 3


def test_short_rows_have_tiles_that_they_fill_and_buffers_for_keys_from_far_away():
    assert tiling(Workload.square(BFLOAT16, 16, 16, 1024, 128, causal=True), HOPPER) == Tiling(3, 64, 4)
    assert tiling(Workload.square(BFLOAT16, 64, 16, 256, 128), HOPPER) == Tiling(2, 128, 2)
    of_64 = [tiling(Workload.square(BFLOAT16, 8, 12, n, 64, causal=True), HOPPER) for n in (1024, 16384)]
    assert [(one.stages, one.turns) for one in of_64] == [(8, False), (4, True)]


@pytest.mark.parametrize(
    ("heads", "N", "d", "causal", "groups"),
    [
        (16, 2048, 128, False, 2),  # 176 tiles of 192 rows are two rounds, as 256 of 128 rows are
        (24, 2048, 128, False, 3),  # 264 of them two full rounds
        (16, 1024, 64, True, 2),  # 64 tiles of 256 rows leave half of the multiprocessors without one
        (48, 512, 128, True, 3),
        (32, 8192, 128, False, 3),
        (32, 8192, 64, True, 4),
    ],
)
def test_two_groups_share_out_few_tiles_of_rows_among_all_multiprocessors(heads, N, d, causal, groups):
    assert tiling(Workload.square(BFLOAT16, 1, heads, N, d, causal=causal), HOPPER).groups == groups


def test_blocks_take_tiles_as_they_come_where_one_in_six_is_partly_empty_and_not_where_one_in_43_is():
    """Six tiles of a head are a divisor of 132 blocks: in a fixed order 22 of these would have all partly empty."""
    few, many = (plan(Workload.square(BFLOAT16, 16, 16, n, 128), HOPPER).launches for n in (1024, 8192))
    assert [(one.symbol, one.early) for one in few] == [("half_start", False), ("half", True)]
    assert [one.symbol for one in many] == ["half"]


def test_groups_without_rows_are_of_the_tile_that_sees_the_fewest_keys():
    work = Workload.square(BFLOAT16, 1, 1, 1024, 128, causal=True)
    assert [*last_rows(work, 192, 64)] == [63, 255, 447, 639, 831, 1023]
    assert [*last_rows(work, 192)] == [191, 383, 575, 767, 959, 1151]
    assert [*last_rows(replace(work, Nq=1000), 192, 64)] == [63, 255, 447, 639, 831, 1023]

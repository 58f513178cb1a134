"""Gradients by tensor cores (kernels/backward_mma.cu), executed on the CPU and compiled for each architecture."""

import re
from dataclasses import replace
from itertools import product

import numpy as np
import pytest
from definitions import definition
from slow import quick_of_each, slow, slow_of_each
from test_gradients import assert_right, operands

from hw4cli.arrays.gradients.emulated import run_backward
from hw4cli.device.kernelcheck import compiler_for
from hw4cli.device.machinecode import OPTIONS
from hw4cli.emulator.library import Schedule
from hw4cli.plans import backwardmma as mma
from hw4cli.plans import gradients as choice
from hw4cli.plans.plan import DEVICES
from hw4cli.problem.oracle import exact_gradients
from hw4cli.problem.workload import BFLOAT16, FLOAT16, FLOAT32, Workload
from hw4cli.resources import kernel_source

pytestmark = quick_of_each(1)

FLOAT32_ERROR = 2e-6  # of the largest gradient: as by float32 alone
KERNELS = ("backward", mma.NAME)  # of float32
LARGE = [  # odd sizes, a mask or none, heads that share keys, rows that see no key
    Workload(FLOAT32, 1, 4, 2, 70, 65, 64, True, 3),
    Workload(FLOAT32, 2, 1, 1, 33, 130, 36),
    Workload(FLOAT32, 1, 2, 1, 65, 40, 128, True, -25),
    Workload(FLOAT32, 1, 1, 1, 20, 33, 128),
]


def assert_right_by_mma(work, factor=1.0, allowed=None, **how):
    allowed = allowed or (FLOAT32_ERROR if work.dtype == FLOAT32 else None)
    return assert_right(work, factor, allowed, kernel=mma.NAME, **how)


@pytest.mark.parametrize("d", [4, 40, 64, 100, 128])
def test_float32_gradients_by_tensor_cores_are_as_right_as_by_float32_alone(d):
    assert_right_by_mma(Workload(FLOAT32, 1, 2, 2, 70, 65, d))


@slow
@pytest.mark.parametrize("offset", [0, 30, -40])
def test_causal_gradients_stop_at_the_diagonal(offset):
    assert_right_by_mma(Workload(FLOAT32, 2, 1, 1, 130, 100, 32, True, offset))


SIXTEEN = [(FLOAT16, 40), (FLOAT16, 64), (BFLOAT16, 64), (FLOAT16, 128), (BFLOAT16, 128)]


@slow
@pytest.mark.parametrize(("dtype", "d"), SIXTEEN)
def test_gradients_of_16_bits_are_right_and_free_of_races(dtype, d):
    assert_right_by_mma(Workload(dtype, 1, 2, 1, 150, 140, d, True, 17))


@slow
@pytest.mark.parametrize("dtype", [FLOAT32, BFLOAT16])
def test_heads_that_share_keys_are_added_up(dtype):
    assert_right_by_mma(Workload(dtype, 2, 6, 2, 40, 70, 16))


@slow
def test_one_row_and_one_key_are_enough():
    assert_right_by_mma(Workload(FLOAT32, 1, 1, 1, 1, 200, 64))
    dq, dk, _ = assert_right_by_mma(Workload(FLOAT32, 1, 1, 1, 200, 1, 64), allowed=1e-2)
    assert np.abs(dq).max() < 1e-5 > np.abs(dk).max(), "one key has all the weight: its score does not matter"


@slow
def test_every_order_of_threads_gives_the_same_bits():
    work = Workload(FLOAT32, 1, 2, 1, 70, 170, 32, True, 100)
    orders = (("forward",), ("reverse",), ("random", 5))
    first, *others = (assert_right_by_mma(work, schedule=Schedule(*how)) for how in orders)
    assert all(np.array_equal(a, b) for other in others for a, b in zip(first, other, strict=True))


@slow
@pytest.mark.parametrize(("wide", "width"), [key for key, tiles in mma.DQ_TILES.items() if len(tiles) > 1])
def test_tiles_for_less_shared_memory_give_the_same_answers(wide, width):
    tiling = mma.Tiling(mma.DQ_TILES[wide, width][-1], mma.DKDV_TILES[wide, width][-1])
    assert_right_by_mma(Workload(FLOAT32 if wide else FLOAT16, 1, 1, 1, 70, 41, width, True, 3), tile=tiling)


@slow
@pytest.mark.parametrize(("factor", "allowed"), [(1e-9, 2e-6), (1e-3, 2e-6), (30.0, 5e-4)])
def test_gradients_of_small_and_of_large_elements_are_right(factor, allowed):
    """Scores of thousands are rounded by 2^-12 in float32."""
    work = Workload(FLOAT32, 1, 1, 1, 64, 64, 32)
    do, q, k, v = (x.astype(np.float32) for x in operands(work, factor=factor))
    o, lse = definition(q, k, v)
    got = run_backward(work, do, q, k, v, o.astype(np.float32), lse.astype(np.float32), kernel=mma.NAME)
    for one, right in zip(got.gradients, exact_gradients(do, q, k, v), strict=True):
        assert np.abs(one - right).max() <= allowed * np.abs(right).max()


@slow
@pytest.mark.parametrize("kernel", KERNELS)
def test_a_weight_of_one_is_one_however_large_its_score_and_however_the_lse_was_rounded(kernel):
    """Scores of thousands: two kernels' float32 know them, and the LSE, to a thousandth."""
    work = Workload(FLOAT32, 1, 2, 2, 65, 65, 64, True)
    do, q, k, v = (x.astype(np.float32) for x in operands(work))
    q, k, v = (np.float32(20) * x for x in (q, k, v))
    o, lse = definition(q, k, v, last=0)
    lse *= 1 + np.random.default_rng(3).uniform(-(2**-23), 2**-23, lse.shape)
    got = run_backward(work, do, q, k, v, o.astype(np.float32), lse.astype(np.float32), kernel=kernel)
    for allowed, one, right in zip(
        (3e-4, 3e-4, 3e-5), got.gradients, exact_gradients(do, q, k, v, causal=True), strict=True
    ):
        assert np.abs(one - right).max() <= allowed * np.abs(right).max()


@slow_of_each(2)
@slow
@pytest.mark.parametrize("work", LARGE, ids=str)
@pytest.mark.parametrize("kernel", KERNELS)
def test_where_scores_are_large_delta_follows_from_the_weights_and_not_from_an_o_of_other_weights(kernel, work):
    do, q, k, v = (x.astype(np.float32) for x in operands(work))
    q, k = (np.float32(5) * x for x in (q, k))
    o, lse = (x.astype(np.float32) for x in definition(q, k, v, last=work.offset if work.causal else None))
    rounded = o * np.random.default_rng(4).uniform(0.999, 1.001, o.shape).astype(np.float32)
    first, second = (run_backward(work, do, q, k, v, x, lse, kernel=kernel) for x in (o, rounded))
    right = exact_gradients(do, q, k, v, causal=work.causal, offset=work.offset)
    assert first.finished and not first.findings, first.findings
    for one, other, exact in zip(first.gradients, second.gradients, right, strict=True):
        assert np.abs(one - exact).max() <= 3e-5 * np.abs(exact).max()
        assert np.abs(one - other).max() <= 1e-6 * np.abs(exact).max()


@slow
@pytest.mark.parametrize("kernel", KERNELS)
def test_float32_gradients_are_as_exact_as_of_scores_that_float32_rounds_once(kernel):
    """What remains is the scores' own rounding, as tensor cores cut them off and as float32 adds them."""
    found = []
    for seed, (Nq, Nk, d, causal) in enumerate([(65, 64, 64, True), (40, 70, 64, False), (70, 40, 32, True)]):
        work = Workload(FLOAT32, 1, 2, 2, Nq, Nk, d, causal, 0)
        do, q, k, v = (x.astype(np.float32) for x in operands(work, seed))
        q, k, v = (np.float32(5) * x for x in (q, k, v))
        o, lse = (x.astype(np.float32) for x in definition(q, k, v, last=0 if causal else None))
        got = run_backward(work, do, q, k, v, o, lse, kernel=kernel, adds_as=90)
        right = exact_gradients(do, q, k, v, causal=causal)
        found.append([np.linalg.norm(x - y) / np.linalg.norm(y) for x, y in zip(got.gradients, right, strict=True)])
    assert (np.array(found) <= 1e-5).all(), found


@slow
@pytest.mark.parametrize("factor", [1, 5])
@pytest.mark.parametrize("kernel", KERNELS)
def test_shares_of_some_keys_add_up_to_the_gradients_of_all(kernel, factor):
    """There the LSE and O are of all keys, and a row's weights do not add up to 1."""
    work = Workload(FLOAT32, 1, 2, 1, 40, 70, 32)
    do, q, k, v = (x.astype(np.float32) for x in operands(work))
    q, k = (np.float32(factor) * x for x in (q, k))
    o, lse = (x.astype(np.float32) for x in definition(q, k, v))
    shares = []
    for some in (slice(0, 30), slice(30, 70)):
        part = replace(work, Nk=some.stop - some.start)
        keys = (np.ascontiguousarray(x[:, :, some]) for x in (k, v))
        shares.append(run_backward(part, do, q, *keys, o, lse, kernel=kernel, whole=False).gradients)
    (dq, *first), (other, *second) = shares
    found = dq + other, *(np.concatenate(both, axis=2) for both in zip(first, second, strict=True))
    for one, right in zip(found, exact_gradients(do, q, k, v), strict=True):
        assert np.abs(one - right).max() <= (2e-6 if factor == 1 else 5e-5) * np.abs(right).max()


@slow
def test_batches_heads_and_rows_of_very_different_sizes_keep_their_digits():
    """Sizes differ by 1e24 from head to head, and by 1e4 from row to row of dO and of V."""
    work = Workload(FLOAT32, 1, 3, 3, 96, 96, 64, True)
    draw = np.random.default_rng(7)
    do, q, k, v = operands(work)
    heads = np.array([1e-12, 1, 1e12])[:, None, None]
    do, v = (x * heads * 10 ** draw.uniform(-2, 2, (96, 1)) for x in (do, v))
    do, q, k, v = (x.astype(np.float32) for x in (do, q, k, v))
    o, lse = definition(q, k, v, last=0)
    got = run_backward(work, do, q, k, v, o.astype(np.float32), lse.astype(np.float32), kernel=mma.NAME)
    for one, right in zip(got.gradients, exact_gradients(do, q, k, v, causal=True), strict=True):
        for head in range(3):
            assert np.abs(one - right)[0, head].max() <= 3e-6 * np.abs(right[0, head]).max()
    dq, right = got.gradients[0], exact_gradients(do, q, k, v, causal=True)[0]
    rows = np.abs(dq - right).max(axis=3)[..., 1:] / np.abs(right).max(axis=3)[..., 1:]  # the first row's is 0
    assert rows.max() <= 1e-3


@slow
@pytest.mark.parametrize("dtype", [FLOAT16, BFLOAT16])
def test_small_gradients_of_16_bits_do_not_vanish_on_the_way(dtype):
    """dS of 1e-8 is less than fp16 holds; dQ and dK are not, where K and Q are large."""
    work = Workload(dtype, 1, 1, 1, 128, 128, 64)
    do, q, k, v = operands(work)
    assert_right_by_mma(work, given=(do * 1e-5, q * 0.1, k * 30, v))


@slow
def test_rows_that_see_no_key_and_keys_that_no_row_sees_have_no_gradient():
    dq, _, _ = assert_right_by_mma(Workload(FLOAT32, 1, 1, 1, 300, 80, 32, True, -220))
    _, dk, dv = assert_right_by_mma(Workload(BFLOAT16, 1, 1, 1, 80, 300, 64, True, 0))
    assert not dq[:, :, :220].any() and not dk[:, :, 80:].any() and not dv[:, :, 80:].any()


@slow
def test_an_infinite_element_spoils_no_row_that_it_does_not_reach():
    work = Workload(FLOAT32, 1, 2, 2, 70, 70, 32)
    do, q, k, v = (x.astype(np.float32) for x in operands(work))
    o, lse = definition(q, k, v)
    do[0, 0, 40, 3] = np.inf
    got = run_backward(work, do, q, k, v, o.astype(np.float32), lse.astype(np.float32), kernel=mma.NAME)
    do[0, 0, 40, 3] = 0
    for one, right in zip(got.gradients, exact_gradients(do, q, k, v), strict=True):
        np.testing.assert_allclose(one[0, 1], right[0, 1], atol=5e-6)
    others = np.arange(70) != 40
    np.testing.assert_allclose(got.gradients[0][0, 0, others], exact_gradients(do, q, k, v)[0][0, 0, others], atol=5e-6)
    assert not np.isfinite(got.gradients[0][0, 0, 40]).any() and not np.isfinite(got.gradients[2][0, 0, :, 3]).any()


@pytest.mark.parametrize("cc", [80, 86, 89, 90, 100, 120])
def test_every_block_fits(cc):
    for dtype, d in product((FLOAT32, FLOAT16, BFLOAT16), (8, 32, 64, 104, 128)):
        planned = choice.plan(Workload.square(dtype, 1, 4, 1024, d, True), DEVICES[cc], mma.NAME)
        assert max(step.shared for step in planned.launches) <= DEVICES[cc].shared_limit


# Causal: the mask takes registers. Of float32 and d = 128, three numbers may be spilled, once a tile.
TIGHT = [
    (80, FLOAT32, 64, 0),
    (86, BFLOAT16, 128, 0),
    (89, FLOAT16, 64, 0),
    (90, FLOAT32, 64, 0),
    (90, FLOAT32, 128, 12),
    (100, BFLOAT16, 64, 0),
    (120, FLOAT16, 128, 0),
]


@slow_of_each(4)
@slow
@pytest.mark.parametrize(("cc", "dtype", "d", "most"), TIGHT)
def test_no_register_spills(cc, dtype, d, most):
    planned = choice.plan(Workload.square(dtype, 1, 4, 1024, d, True), DEVICES[cc], mma.NAME)
    options = (*OPTIONS, *planned.options, "--ptxas-options=-v")
    _, log = compiler_for(DEVICES[cc]).build(kernel_source(mma.NAME), "backward_mma.cu", options, cc)
    spills = re.findall(r"(\d+) bytes spill stores", log)
    assert len(spills) == 3
    assert sum(map(int, spills)) <= most, log


def test_tensor_cores_are_chosen_from_compute_capability_8_on():
    def chosen(dtype, d, cc):
        return choice.plan(Workload.square(dtype, 1, 1, 512, d), DEVICES[cc]).variant

    assert {chosen(FLOAT32, d, cc) for d in (4, 64, 100, 128) for cc in (80, 86, 90, 120)} == {mma.NAME}
    assert {chosen(dtype, 64, cc) for dtype in (FLOAT16, BFLOAT16) for cc in (80, 89, 120)} == {mma.NAME}
    assert {chosen(FLOAT32, 64, cc) for cc in (61, 75)} == {"backward"}

"""Gradients by kernels that are executed on the CPU, against the oracle."""

import re

import numpy as np
import pytest
from definitions import definition
from halves import numbers, rounded
from slow import quick_of_each, slow, slow_of_each

from hw4cli import attention, attention_backward
from hw4cli.arrays.gradients.emulated import run_backward
from hw4cli.device.kernelcheck import compiler_for
from hw4cli.device.machinecode import OPTIONS
from hw4cli.emulator.library import Schedule
from hw4cli.plans.backward import TILES, plan
from hw4cli.plans.plan import DEVICES
from hw4cli.problem.oracle import exact_gradients
from hw4cli.problem.workload import BFLOAT16, FLOAT16, FLOAT32, Workload
from hw4cli.resources import kernel_source

pytestmark = quick_of_each(1)


def operands(work, seed=0, factor=1.0):
    """dO, Q, K and V as numbers of the workload's type, and as the words that a kernel takes."""
    draw = np.random.default_rng(seed)
    queries, keys, d, dv = (work.heads, work.Nq), (work.kv_heads, work.Nk), work.d, work.value_columns
    sizes = [(*queries, dv), (*queries, d), (*keys, d), (*keys, dv)]
    return [factor * draw.standard_normal((work.batch, *size)) for size in sizes]


def as_words(x, dtype):
    return x.astype(np.float32) if dtype == FLOAT32 else rounded(x, dtype)


def as_numbers(x, dtype):
    return x.astype(np.float64) if dtype == FLOAT32 else numbers(x, dtype)


EPSILON = {FLOAT32: 5e-6, FLOAT16: 2e-3, BFLOAT16: 1.6e-2}  # of the largest gradient: rounding of the results, and of O


def assert_right(work, factor=1.0, allowed=None, given=None, **how):
    words = [as_words(x, work.dtype) for x in given or operands(work, factor=factor)]
    do, q, k, v = (as_numbers(x, work.dtype) for x in words)
    o, lse = definition(q, k, v, last=work.offset if work.causal else None)
    got = run_backward(work, *words, as_words(o, work.dtype), lse.astype(np.float32), **how)
    assert got.finished and not got.findings, got.findings
    expected = exact_gradients(do, q, k, v, causal=work.causal, offset=work.offset)
    for one, right in zip(got.gradients, expected, strict=True):
        error = np.abs(as_numbers(one, work.dtype) - right).max()
        assert error <= (allowed or EPSILON[work.dtype]) * max(np.abs(right).max(), 1e-3), error
    return got.gradients


@pytest.mark.parametrize("d", [4, 32, 40, 64, 100, 128])
def test_gradients_are_right_for_every_width_and_free_of_races(d):
    assert_right(Workload(FLOAT32, 1, 2, 2, 70, 65, d))


@slow
@pytest.mark.parametrize("offset", [0, 30, -40])
def test_causal_gradients_stop_at_the_diagonal(offset):
    assert_right(Workload(FLOAT32, 2, 1, 1, 130, 100, 32, True, offset))


@slow
@pytest.mark.parametrize("dtype", [FLOAT16, BFLOAT16])
def test_elements_of_16_bits_are_widened_and_rounded(dtype):
    assert_right(Workload(dtype, 1, 2, 1, 33, 50, 40, True, 17))


@slow
def test_heads_that_share_keys_are_added_up():
    assert_right(Workload(FLOAT32, 2, 6, 2, 40, 70, 16))


@slow
@pytest.mark.parametrize("tile", [tile for tiles in TILES.values() for tile in tiles[1:]])
def test_smaller_tiles_give_the_same_answers(tile):
    width = next(width for width, tiles in TILES.items() if tile in tiles)
    assert_right(Workload(FLOAT32, 1, 1, 1, 70, 41, width, True, 3), tile=tile)


@slow
def test_every_order_of_threads_gives_the_same_bits():
    work = Workload(FLOAT32, 1, 2, 1, 70, 70, 32, True)
    first, *others = (
        assert_right(work, schedule=Schedule(*how)) for how in (("forward",), ("reverse",), ("random", 5))
    )
    assert all(np.array_equal(a, b) for other in others for a, b in zip(first, other, strict=True))


@slow
def test_gradients_are_right_with_64_lanes_to_a_warp():
    assert_right(Workload(FLOAT32, 1, 2, 2, 70, 65, 64, True), lanes=64)


@slow
@pytest.mark.parametrize(("factor", "allowed"), [(1e-3, 5e-6), (30.0, 5e-4)])
def test_gradients_of_small_and_of_large_elements_are_right(factor, allowed):
    """Scores of thousands are rounded by 2^-12 in float32, and so are the weights."""
    assert_right(Workload(FLOAT32, 1, 1, 1, 64, 64, 32), factor, allowed)


@pytest.mark.parametrize("layout", ["BHND", "BNHD"])
@pytest.mark.parametrize("dtype", [np.float16, np.float32])
def test_arrays_on_the_cpu_have_gradients_of_their_own_type(dtype, layout):
    def laid(x):
        return x if layout == "BHND" else np.ascontiguousarray(x.swapaxes(1, 2))

    do, q, k, v = (laid(x.astype(dtype)) for x in operands(Workload(FLOAT32, 2, 4, 2, 33, 50, 16)))
    o, lse = attention(q, k, v, causal=True, return_lse=True, layout=layout)
    got = attention_backward(do, q, k, v, o, lse, causal=True, layout=layout)
    expected = exact_gradients(*map(laid, (do, q, k, v)), causal=True, offset=17)
    for one, right, like in zip(got, expected, (q, k, v), strict=True):
        assert one.dtype == dtype and one.shape == like.shape
        np.testing.assert_allclose(laid(one), right, atol=4e-3 if dtype == np.float16 else 5e-6)


def test_on_the_cpu_a_weight_of_one_is_one_however_large_its_score():
    """The LSE of a score of thousands is rounded to a thousandth."""
    do, q, k, v = (x.astype(np.float32) for x in operands(Workload(FLOAT32, 1, 2, 2, 40, 30, 16), factor=60))
    o, lse = attention(q, k, v, return_lse=True)
    assert np.abs(lse).max() > 2000
    dv, right = (
        backward(do, q, k, v, *rest)[2] for backward, rest in ((attention_backward, (o, lse)), (exact_gradients, ()))
    )
    assert np.abs(dv - right).max() <= 1e-6 * np.abs(right).max()


def test_on_the_cpu_gradients_of_16_bits_do_not_depend_on_what_o_was_rounded_to():
    do, q, k, v = (x.astype(np.float16) for x in operands(Workload(FLOAT16, 1, 2, 2, 40, 30, 16)))
    v += np.float16(20)
    o, lse = attention(q, k, v, return_lse=True)
    for one, right in zip(attention_backward(do, q, k, v, o, lse), exact_gradients(do, q, k, v), strict=True):
        assert np.abs(one - right).max() <= 1e-3 * np.abs(right).max()


def test_rows_without_keys_have_no_gradient():
    do, q, k, v = (x.astype(np.float32) for x in operands(Workload(FLOAT32, 1, 1, 1, 9, 4, 8)))
    o, lse = attention(q, k, v, causal=True, return_lse=True)
    dq, dk, dv = attention_backward(do, q, k, v, o, lse, causal=True)
    assert not dq[:, :, :5].any() and np.isfinite(dk).all() and dv.any()


def test_what_does_not_fit_is_refused_in_a_sentence():
    do, q, k, v = (x.astype(np.float32) for x in operands(Workload(FLOAT32, 1, 2, 2, 9, 9, 8)))
    o, lse = attention(q, k, v, return_lse=True)
    with pytest.raises(ValueError, match=r"do has shape \(1, 2, 8, 8\): give that of q, \(1, 2, 9, 8\)"):
        attention_backward(do[:, :, :8], q, k, v, o, lse)
    with pytest.raises(ValueError, match=r"lse has shape \(2, 9\): give \(batch, heads, Nq\), here \(1, 2, 9\)"):
        attention_backward(do, q, k, v, o, lse[0])
    for wrong, words in ((None, "a NoneType"), (lse.tolist(), "a list")):
        with pytest.raises(TypeError, match=f"lse is {words}: give what attention returned"):
            attention_backward(do, q, k, v, o, wrong)
    with pytest.raises(TypeError, match="lse is float64 of numpy on the CPU: give what attention returned"):
        attention_backward(do, q, k, v, o, lse.astype(np.float64))
    with pytest.raises(ValueError, match="lse is not contiguous"):
        attention_backward(do, q, k, v, o, np.asfortranarray(lse))
    with pytest.raises(ValueError, match="kernel is 'fast': give 'auto' or 'backward_once' or 'backward_wgmma'"):
        attention_backward(do, q, k, v, o, lse, kernel="fast")
    with pytest.raises(TypeError, match="q is float32, o float16"):
        attention_backward(do, q, k, v, o.astype(np.float16), lse)


@slow_of_each(2)
@slow
@pytest.mark.parametrize("cc", [61, 75, 86, 90])
def test_no_register_spills(cc):
    compiler = compiler_for(DEVICES[cc])
    for dtype, d in ((FLOAT16, 32), (FLOAT32, 64), (FLOAT32, 128)):
        work = Workload.square(dtype, 1, 4, 1024, d, True)
        options = (*OPTIONS, *plan(work, DEVICES[cc]).options, "--ptxas-options=-v")
        _, log = compiler.build(kernel_source("backward"), "backward.cu", options, cc)
        assert re.findall(r"(\d+) bytes spill", log) == 6 * ["0"], log

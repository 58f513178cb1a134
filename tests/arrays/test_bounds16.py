"""The bounds of 16-bit attention's error: kept by kernels that add as tensor cores do, for the worst of inputs."""

import math
import re
from dataclasses import replace

import numpy as np
import pytest
from definitions import definition
from halves import numbers, rounded
from helpers import ROOT
from slow import quick_of_each, slow

import hw4cli
from hw4cli.arrays.emulated import run_half
from hw4cli.plans.bounds import FAR
from hw4cli.plans.halfmma import CORES, MMA, SPLIT, SplitTiling, mma_tiling
from hw4cli.plans.kernels16 import KERNELS16, bound16, bound_on_cpu, kernel_within, plan16, shares16, sums
from hw4cli.plans.plan import DEVICES
from hw4cli.problem.workload import BFLOAT16, FLOAT16, Workload

pytestmark = quick_of_each(1)

THREES = (3.0, 3.0, 3.0)
DIGITS = {FLOAT16: 11, BFLOAT16: 8}


def uniform(rng, work, reach=3.0):
    q = rng.uniform(-reach, reach, (1, 1, work.Nq, work.d))
    return q, *rng.uniform(-reach, reach, (2, 1, 1, work.Nk, work.d)), work.scale


def threes(rng, work):
    q, k, v, scale = uniform(rng, work)
    return 3 * np.sign(q), 3 * np.sign(k), 3 * np.sign(v), scale


def few_and_others(work, log2_of_others, every=10**9):
    """One key of so many weighs 1, all others weigh 2^log2_of_others; all V alike."""
    q, k, v = (
        np.zeros((1, 1, work.Nq, work.d)),
        np.zeros((1, 1, work.Nk, work.d)),
        np.full((1, 1, work.Nk, work.d), 3.0),
    )
    q[..., 0], k[..., 0] = 1, -1
    k[:, :, ::every, 0] = 0
    return q, k, v, -log2_of_others * np.log(2)


def weights_at_midpoints(_, work):
    """Nearly all weights lie just above the middle of two 16-bit numbers."""
    return few_and_others(work, np.log2(0.5 * (1 + 2.0 ** -DIGITS[work.dtype] * 1.01)), every=16)


def weights_against_each_other(_, work):
    """Those of positive V are rounded up, those of negative V down."""
    unit = 2.0 ** -DIGITS[work.dtype]
    q, k, v, scale = few_and_others(work, np.log2(0.5 * (1 + 1.02 * unit)), every=16)
    q[..., 1], k[:, :, 1::2, 1], v[:, :, 1::2] = 1, -0.05 * unit, -3
    return q, k, v, scale


def cut_off(_, work):
    """Behind a dominant key each of many products is just less than what its sum can take."""
    return few_and_others(work, -24.6)


def two_opposite(rng, work):
    """Two keys of almost the same, largest score, and opposite values: a weight's error shows in full."""
    q, k, v, scale = uniform(rng, work)
    q[:], k[:] = 3, k * 0.1
    k[:, :, :2] = 3
    k[:, :, 0, 0] = 2.9
    v[:, :, 0], v[:, :, 1] = 2.99, -2.99
    return q, k, v, scale


def rising(rng, work):
    """m moves with nearly every tile."""
    q, k, v, scale = uniform(rng, work)
    q[:], k[:] = 2, (np.linspace(-3, 3, work.Nk) + rng.uniform(-0.01, 0.01, work.Nk))[:, None]
    return q, k, v, scale


ADVERSARIES = (uniform, threes, weights_at_midpoints, weights_against_each_other, cut_off, two_opposite, rising)


def error_and_bound(work, make, kernel, cc, tiling=None):
    *arrays, scale = make(np.random.default_rng(7), work)
    work = replace(work, scale=scale)
    q, k, v = (rounded(np.ascontiguousarray(x), work.dtype) for x in arrays)
    outcome = run_half(work, q, k, v, tiling, kernel=kernel, cc=cc, build="plain", adds_as=cc if cc > 61 else 0)
    exact = [numbers(x, work.dtype) for x in (q, k, v)]
    found = tuple(np.abs(x).max() for x in exact)
    planned = plan16(work, DEVICES[cc], kernel, tiling)
    error = np.abs(numbers(outcome.o, work.dtype) - definition(*exact, scale)[0]).max()
    return error, bound16(work, found, planned, cc)


@pytest.mark.parametrize("dtype", [FLOAT16, BFLOAT16])
@pytest.mark.parametrize(("kernel", "cc"), [("half", 90), (MMA, 80), (SPLIT, 90), (CORES, 61)])
def test_no_input_makes_an_error_beyond_the_bound_and_the_worst_comes_near(kernel, cc, dtype):
    work = Workload(dtype, 1, 1, 1, 2, 700, 32)
    tiling = SplitTiling(4, 1, 16, 2, True, 2, splits=3) if kernel == SPLIT else None
    shares = []
    for make in ADVERSARIES:
        error, bound = error_and_bound(work, make, kernel, cc, tiling)
        assert error <= bound, make.__name__
        shares.append(error / bound)
    assert max(shares) > (0.4 if kernel != CORES else 0.2)


@slow
def test_a_long_sum_of_small_products_loses_what_the_bound_says():
    work = Workload(FLOAT16, 1, 1, 1, 1, 20000, 16)
    tiling = mma_tiling(work, DEVICES[80])._replace(ones=False)  # else the sum of P loses as much, and all cancels
    error, bound = error_and_bound(work, cut_off, MMA, 80, tiling)
    lost = shares16(work, THREES, plan16(work, DEVICES[80], MMA, tiling), 80).parts()["sum of P V"]
    assert 0.2 * lost < error <= bound


@slow
@pytest.mark.parametrize("dtype", [FLOAT16, BFLOAT16])
@pytest.mark.parametrize("kernel", ["half", MMA, SPLIT])
def test_a_mean_of_equal_values_is_that_value_however_the_weights_are_rounded(kernel, dtype):
    error, _ = error_and_bound(Workload(dtype, 1, 1, 1, 2, 700, 64), weights_at_midpoints, kernel, 90)
    assert error < 1e-9


def test_the_bound_of_splits_grows_less_with_the_keys():
    work = Workload(FLOAT16, 1, 32, 8, 1, 131072, 64)
    bounds = {kernel: bound16(work, THREES, plan16(work, DEVICES[90], kernel), 90) for kernel in KERNELS16}
    assert bounds[SPLIT] < 4e-3 < 1e-2 < bounds["half"]


def test_the_shares_of_a_bound_are_those_of_its_derivation():
    """Where scores reach 0.4 FAR: docs/accuracy.md has each rounding, and its size."""
    for dtype, half_ulp, subnormal in ((FLOAT16, 2.0**-11, True), (BFLOAT16, 2.0**-8, False)):
        work = Workload(dtype, 1, 1, 1, 5, 8192, 64)
        top, ln2, unit = 0.4 * FAR, math.log(2), 2.0**-24
        size = math.sqrt(top / (work.scale * math.log2(math.e) * work.d))
        planned = plan16(work, DEVICES[80], SPLIT)
        adds, shares = sums(work, planned), shares16(work, (size, size, 1.0), planned, 80)
        assert min(adds.parts) > 1 < adds.moves
        exponents = top + 3 * FAR + 2 * 2 * top  # of the LSE of a part, its logarithm, its difference
        combined = len(adds.parts) * (unit * exponents * ln2 + 2.0**-22)
        assert shares.weights["combining"] == pytest.approx(combined, rel=1e-6)
        rescaled = 2 * unit * top * ln2 + 2.0**-22 * (adds.moves + 1)
        assert shares.weights["rescaling"] == pytest.approx(rescaled, rel=1e-6)
        assert shares.fixed["division"] == 4 * unit
        assert shares.fixed["O rounded"] == half_ulp
        assert ("products of subnormal V" in shares.fixed) == subnormal


def test_elements_beyond_what_16_bits_can_add_have_no_bound():
    work = Workload.square(FLOAT16, 1, 1, 128, 64)
    for found in ((3.0, 3.0, 65504.0), (1e30, 3.0, 3.0), (np.nan, 3.0, 3.0)):
        assert bound16(work, found, plan16(work, DEVICES[90]), 90) == np.inf


def test_max_error_takes_the_first_kernel_that_keeps_it():
    work = Workload(FLOAT16, 1, 64, 64, 32768, 32768, 64)
    props = DEVICES[90]
    assert kernel_within(1e-2, work, THREES, props) == "half"
    assert kernel_within(1e-2, Workload(FLOAT16, 1, 64, 8, 256, 131072, 64), THREES, props) == SPLIT
    with pytest.raises(
        ValueError, match=r"max_error is 0\.001, and the error of \w+ can be as large as .*: give float32"
    ):
        kernel_within(1e-3, work, THREES, props)
    with pytest.raises(ValueError, match="is not bounded for such elements"):
        kernel_within(1e-2, work, (3.0, 3.0, 65504.0), props)


def test_the_cpu_keeps_max_error_too_or_refuses():
    rng = np.random.default_rng(0)
    q, k, v = rng.uniform(-3, 3, (3, 1, 2, 100, 16)).astype(np.float16)
    work = Workload.square(FLOAT16, 1, 2, 100, 16)
    bound = bound_on_cpu(work, THREES)
    o = hw4cli.attention(q, k, v, max_error=1.01 * bound, bounds=THREES)
    exact, _ = definition(*(x.astype(np.float64) for x in (q, k, v)), work.scale)
    assert np.abs(o - exact).max() <= bound
    with pytest.raises(ValueError, match=r"max_error is 0\.0001, and the error of the CPU can be as large as"):
        hw4cli.attention(q, k, v, max_error=1e-4)


def test_the_page_shows_the_bounds_that_the_program_uses():
    page = (ROOT / "docs/accuracy.md").read_text()
    found = re.findall(r"^\| `(\w+)`, (\w+) \|" + r" ([\d.e-]+) \|" * 6, page, re.MULTILINE)
    assert len(found) == 2 * len(KERNELS16)
    for kernel, dtype, *cells in found:
        shown = [(d, N) for d in (64, 128) for N in (1024, 8192, 32768)]
        for (d, N), cell in zip(shown, cells, strict=True):
            work = Workload.square(FLOAT16 if dtype == "fp16" else BFLOAT16, 1, 32, N, d)
            bound = bound16(work, THREES, plan16(work, DEVICES[90], kernel), 90)
            assert float(cell) == pytest.approx(bound, rel=0.01), (kernel, dtype, d, N)

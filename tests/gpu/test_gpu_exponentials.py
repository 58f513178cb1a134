"""half with a share of its exponentials by polynomial, on a GPU: within its bound of float64; NaN and infinities."""

import numpy as np
import pytest
from definitions import definition
from halves import numbers, random_words, rounded

from hw4cli.arrays.ongpu import HalfOnGpu
from hw4cli.arrays.operand import operand
from hw4cli.lab.arrays.named import NamedWorkload
from hw4cli.lab.candidates import ArraySpace
from hw4cli.lab.cases import ArrayCase
from hw4cli.plans.half import Arrays, Tiling
from hw4cli.plans.kernels16 import bound16, plan16
from hw4cli.plans.plan import DEVICES
from hw4cli.problem.workload import BFLOAT16, FLOAT16, Workload

HALVES = ((32, FLOAT16), (64, FLOAT16), (64, BFLOAT16), (128, BFLOAT16))


def work_of(d, dtype, causal=False):
    return Workload(dtype, 1, 3, 1, 700, 1100, d, causal, 400)


def weighed(d, dtype):
    """The tilings of half that `hw4 tune` tries because of their exponentials."""
    space = ArraySpace("half", ArrayCase(NamedWorkload("", work_of(d, dtype))))
    found = [one.tiling for one in space.candidates(DEVICES[90])]
    return [one for one in found if one.polynomial or one.in_order]


CASES = [(d, dtype, how) for d, dtype in HALVES for how in weighed(d, dtype)]


def plans(props):
    """What these tests compile."""
    if not props.warpgroups:
        return []
    on_gpu = [(work_of(d, dtype, causal), how) for d, dtype, how in CASES for causal in (False, True)]
    return [half_plan(work, props, how) for work, how in on_gpu]


def half_plan(work, props, how):
    return plan16(work, props, "half", how)


@pytest.fixture
def answer(gpu):
    """O and the LSE of words by half with a tiling."""
    if not gpu.props.warpgroups:
        pytest.skip("half needs compute capability 9.0")
    cupy, half = gpu.cupy, HalfOnGpu(gpu)

    def computed(work, words, how):
        q, k, v = map(cupy.asarray, words)
        o, lse = cupy.full(q.shape, 0xFFFF, np.uint16), cupy.empty(q.shape[:3], np.float32)
        scratch = cupy.empty(max(1, half.planned(work, "half", how).scratch), np.uint8)
        matrices = {name: operand(name, x, "BHND").matrix for name, x in zip("qkvo", (q, k, v, o), strict=True)}
        arrays = Arrays(**matrices, lse=lse.data.ptr, scratch=scratch.data.ptr)
        half.launch(work, arrays, cupy.cuda.Stream.null, how, "half")
        return numbers(o.get(), work.dtype), lse.get()

    return computed


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize(("d", "dtype", "how"), CASES)
def test_half_with_each_share_of_polynomials_stays_within_its_bound(gpu, answer, d, dtype, how, causal):
    work = work_of(d, dtype, causal)
    words = random_words(work, factor=2)
    q, k, v = (numbers(x, dtype) for x in words)
    o, lse = answer(work, words, how)
    exact, sums = definition(q, k, v, work.scale, work.offset if causal else None)
    allowed = bound16(work, tuple(np.abs(x).max() for x in (q, k, v)), half_plan(work, gpu.props, how), gpu.props.cc)
    assert np.abs(o - exact).max() <= allowed
    np.testing.assert_allclose(lse, sums, rtol=1e-5, atol=1e-3 if dtype == FLOAT16 else 5e-3)


@pytest.mark.parametrize("number", [np.nan, -np.nan, np.inf])
@pytest.mark.parametrize("key", [2, 3, 500, 501])
def test_nan_and_infinities_make_rows_nan_as_without_polynomials(answer, number, key):
    """Of each pair of neighbouring keys one goes by polynomial. The sign of a GPU's NaN decides whether m sees it."""
    work, usual = work_of(64, BFLOAT16), Tiling(3, 128, 2, ones=True, in_order=4)
    q, k, v = (numbers(x, BFLOAT16) for x in random_words(work))
    k[..., key, :] = np.where(np.arange(64) == 7, number, 0)
    words = [rounded(x, BFLOAT16) for x in (q, k, v)]
    (plain, plain_lse), (some, some_lse) = (answer(work, words, usual._replace(polynomial=share)) for share in (0, 8))
    assert np.isnan(plain_lse).any()
    assert np.array_equal(np.isnan(plain), np.isnan(some))
    assert np.array_equal(np.isnan(plain_lse), np.isnan(some_lse))

"""The polynomials of kernels/exponentials.cuh, the header's own text, against float64; and half with them."""

import numpy as np
import pytest
from definitions import definition
from halves import assert_right, numbers, random_words, rounded
from slow import few, slow

from benchmarks.measure.exponentials import POLYNOMIALS, arguments, computed, fitted, largest_error, written
from hw4cli.arrays.emulated import run_half
from hw4cli.emulator.build import PLAIN
from hw4cli.plans.half import Tiling
from hw4cli.plans.kernels16 import bound16, plan16
from hw4cli.plans.plan import DEVICES
from hw4cli.problem.workload import BFLOAT16, FLOAT16, Workload

CUBIC, QUARTIC = POLYNOMIALS
EACH = pytest.mark.parametrize("one", POLYNOMIALS, ids=lambda one: one.name)
WAYS = {  # a tiling, columns, type
    "four of 16, ones": (Tiling(3, 128, 2, ones=True, polynomial=4, in_order=4), 64, BFLOAT16),
    "two of 16, sums of P in float32": (Tiling(4, 64, 4, polynomial=2, in_order=4), 32, FLOAT16),
    "three of 16, 80 keys": (Tiling(3, 80, 2, polynomial=3, in_order=4), 128, BFLOAT16),
    "nearly all, m moves for every tile": (Tiling(4, 64, 4, ones=True, lazy=False, polynomial=15), 64, FLOAT16),
    "in order alone": (Tiling(3, 128, 2, ones=True, in_order=4), 64, FLOAT16),
    "six of 16": (Tiling(4, 64, 4, ones=True, polynomial=6, in_order=2), 64, FLOAT16),
}


@EACH
def test_numbers_of_every_size_are_as_exact_as_the_bound_says(one):
    """`python -m benchmarks.measure.exponentials` takes each float32."""
    assert 2.0**-22 < max(largest_error(one, x) for x in arguments(9973)) <= one.bound


@EACH
def test_the_coefficients_are_those_that_make_the_largest_error_least(one):
    found, _ = fitted(one, points=501, rounds=2000)
    assert written(one) == pytest.approx(found, rel=1e-4)


def test_what_the_cubic_gives_at_its_ends():
    x = np.float32([-np.inf, -1e38, -127, -126, 0, 15, np.nan])
    assert computed(CUBIC, x).tolist() == [0, 0, 0, 2.0**-126, 1, 2.0**15, 0]
    between = computed(CUBIC, np.linspace(-127, -126, 1001)[:-1])
    assert (between >= 0).all()
    assert (between < 2.0**-126).all()


@pytest.mark.parametrize("lost", [-300.0, 0.0, 1000.0, 1e5])
def test_scores_and_what_they_lose_may_be_large_as_the_bound_has_it(lost):
    """The bound counts 2^-24 of m: here the largest score is 15 above what is lost."""
    rng = np.random.default_rng(3)
    scale = np.float32(0.18)
    s = ((lost + rng.uniform(-60, 15, 100_000)) / scale).astype(np.float32)
    exact = np.exp2(s.astype(float) * float(scale) - lost)
    wrong = np.abs(computed(CUBIC, s, float(scale), lost) / exact - 1).max()
    assert wrong <= CUBIC.bound + 2.0**-24 * abs(lost) * np.log(2)


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("way", few(WAYS))
def test_half_with_polynomials_is_right_free_of_races_and_within_its_bound(way, causal):
    how, d, dtype = WAYS[way]
    work = Workload(dtype, 1, 2, 1, 150, 300, d, causal, 150)
    words = random_words(work, factor=2)
    outcome = assert_right(work, *words, how, kernel="half")
    q, k, v = (numbers(x, dtype) for x in words)
    exact, _ = definition(q, k, v, work.scale, work.offset if causal else None)
    allowed = bound16(work, tuple(np.abs(x).max() for x in (q, k, v)), plan16(work, DEVICES[90], "half", how), 90)
    assert np.abs(numbers(outcome.o, dtype) - exact).max() <= allowed


@slow
def test_each_share_changes_some_bits_and_none_changes_in_order():
    work = Workload(FLOAT16, 1, 1, 1, 64, 130, 64)
    words, usual = random_words(work), Tiling(3, 128, 2, ones=True)

    def answer(**how):
        return run_half(work, *words, usual._replace(**how), kernel="half", build=PLAIN).lse

    plain = answer()
    assert np.array_equal(answer(in_order=4), plain)
    shares = [answer(polynomial=share) for share in (2, 4)]
    assert not np.array_equal(shares[0], plain)
    assert not np.array_equal(shares[0], shares[1])


@slow
@pytest.mark.parametrize("dtype", [FLOAT16, BFLOAT16])
def test_rows_without_keys_give_0_and_scores_far_below_the_largest_no_weight(dtype):
    how = Tiling(3, 128, 2, ones=True, polynomial=4, in_order=4)
    work = Workload(dtype, 1, 2, 2, 70, 90, 64, True, -30)
    assert not assert_right(work, *random_words(work, factor=40), how, kernel="half").o[:, :, :30].any()


@slow
@pytest.mark.parametrize("number", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("key", [2, 3, 130, 131])
def test_nan_and_infinities_make_the_rows_nan_that_they_make_nan_without_polynomials(number, key):
    """Of each pair of neighbouring keys one goes by polynomial; the first tile of keys begins m, the other moves it."""
    work, usual = Workload(BFLOAT16, 1, 1, 1, 64, 200, 64), Tiling(3, 128, 2, ones=True, in_order=4)
    q, k, v = (numbers(x, BFLOAT16) for x in random_words(work))
    k[..., key, :] = np.where(np.arange(64) == 7, number, 0)
    q[..., :20, 7] = 0.5  # of the other rows some have a score of -infinity
    words = [rounded(x, BFLOAT16) for x in (q, k, v)]
    found = [run_half(work, *words, usual._replace(polynomial=share), kernel="half", build=PLAIN) for share in (0, 8)]
    o, lse = ([np.isnan(x) for x in y] for y in zip(*((numbers(x.o, BFLOAT16), x.lse) for x in found), strict=True))
    assert np.array_equal(*o)
    assert np.array_equal(*lse)
    assert lse[0].any()

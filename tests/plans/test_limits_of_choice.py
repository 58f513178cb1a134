"""Limits, by which the GPU chooses a kernel for float32 arrays: never a less exact one than the bounds ask for."""

import math
import random
import re
from itertools import pairwise, product

import numpy as np
import pytest
from choosing import Chooser
from helpers import ROOT
from needs import COMPILER, needs
from slow import quick_of_each, slow, slow_of_each

from hw4cli.plans import choice
from hw4cli.plans import limits as module
from hw4cli.plans.bounds import SAFE, TYPICAL, bound, suffices, uniform
from hw4cli.plans.dispatch import AUTO, Choice, candidates
from hw4cli.plans.launch import SQUARES_BELOW, magnitudes
from hw4cli.plans.limits import CLASSES, FIRST, limits, top_of
from hw4cli.plans.plan import DEVICES

GPUS = [80, 86, 90, 100, 120]


def squares_of(norm):
    """As a GPU finds the square of a norm, in float32."""
    return np.float32(math.ceil(min(norm * norm, 2 * SQUARES_BELOW) * 128) / 128)


def near_a_limit(draw, most, d):
    """What the range check may leave: a product of norms and a V that are just within a limit, or anywhere."""
    number = draw.choice([n for n in range(CLASSES) if most.most_v[n] > 0])
    product = math.sqrt(top_of(number)) * draw.choice([1 - 1e-6, 1 - 1e-6, 1 + 1e-6, 10 ** draw.uniform(-3, 1)])
    ratio = 10 ** draw.choice([0, draw.uniform(-1, 1), draw.uniform(-4, 4)])
    norms = [math.sqrt(product * ratio), math.sqrt(product / ratio)]
    tops = [norm * draw.choice([d**-0.5, 1, d ** -draw.uniform(0, 0.5)]) for norm in norms]
    rounding = 2.0 ** draw.randint(-9, 4) * draw.choice([1, 1024 / 1365]) * (1 + 2**-20)  # where fp16's steps double
    v = draw.choice([most.most_v[number], most.most_v[number] * (1 + 1e-6), rounding, 10 ** draw.uniform(-4, 2)])
    (q, k), (q_squares, k_squares) = tops, map(squares_of, norms)
    return [float(np.float32(x)) for x in (q, q_squares, k, k_squares, v)]


def check(draw, times):
    """Of so many draws, how many get the very kernel that the bounds ask for."""
    cc, d = draw.choice(GPUS), draw.choice([1, 4, 7, 16, 32, 33, 48, 64, 100, 128])
    N, ratio = draw.choice([1, 100, 256, 257, 513, 1200, 5000, 32768, 10**6]), draw.choice([1, 1, 0.3, 5])
    kernels, why = candidates(AUTO, DEVICES[cc], "a GPU", d, N)
    each = [limits(name, d, N, DEVICES[cc]) for name in kernels[:-1]]
    chooser, rule = Chooser(d, each, ratio), Choice(kernels, why, d, N, DEVICES[cc])
    same = 0
    for _ in range(times):
        found = near_a_limit(draw, draw.choice(each), d)
        chosen, known = chooser(found), magnitudes(found).scaled(ratio)
        assert chosen == len(each) or suffices(kernels[chosen], known, d, N, DEVICES[cc], SAFE), (kernels, d, N, found)
        same += kernels[chosen] == rule.kernel_for(known)
    return same


@needs(COMPILER)
def test_a_choice_is_never_less_careful_than_the_bounds_and_mostly_the_same():
    assert sum(check(random.Random(seed), 20) for seed in range(10)) > 100


@slow_of_each(4)
@slow
@needs(COMPILER)
@pytest.mark.parametrize("seed", range(20))
def test_no_choice_is_less_careful_anywhere_near_a_limit(seed):
    draw = random.Random(f"near {seed}")
    for _ in range(10):
        check(draw, 50)


@needs(COMPILER)
@quick_of_each(1)
@pytest.mark.parametrize("cc", GPUS)
def test_the_assignments_range_gets_the_kernel_that_files_get(cc):
    for d in (32, 64, 128):
        for N in (128, 1200, 9000, 32768):
            kernels, why = candidates(AUTO, DEVICES[cc], "a GPU", d, N)
            known, norm = uniform(d), 0.999 * uniform(d).q_norm  # whose square is rounded up
            chooser = Chooser(d, [limits(name, d, N, DEVICES[cc]) for name in kernels[:-1]])
            found = known.q, squares_of(norm), known.k, squares_of(norm), known.v
            assert kernels[chooser(found)] == Choice(kernels, why, d, N, DEVICES[cc]).first, (d, N)


@needs(COMPILER)
def test_what_is_no_number_or_too_large_is_left_to_the_last_kernel():
    each = [limits(name, 64, 512, DEVICES[90]) for name in ("split", "exact", "flash")]
    chooser, usual = Chooser(64, each), [3.0, 220.0, 3.0, 220.0, 3.0]
    assert chooser(usual) == 0 and chooser([0.0] * 5) == 2  # of no V, fp16 is not asked
    for number in range(5):
        for wrong in (math.nan, math.inf, -math.nan):
            found = [abs(wrong) if n == number else x for n, x in enumerate(usual)]
            if number in (0, 2, 4):
                assert chooser(found) == len(each), found
            else:  # a norm that is not known: the elements allow 24
                assert chooser(found) == 0
    assert chooser([1e20, math.inf, 1e20, math.inf, 3.0]) == len(each)
    assert chooser([3e38, math.inf, 3e38, math.inf, 3e38]) == len(each)


def test_longer_rows_larger_norms_and_more_columns_allow_no_more():
    for kernel in ("split", "exact", "flash"):
        of_length = [limits(kernel, 64, N, DEVICES[90]).most_v for N in (700, 4096, 10**6)]
        for fewer, more in pairwise(of_length):
            assert all(a >= b for a, b in zip(fewer, more, strict=True))
        for most in of_length:
            assert [*most] == sorted(most, reverse=True) and most[0] > most[-1]
    assert limits("split", 64, 700, DEVICES[90]) is limits("split", 64, 1024, DEVICES[90])


def test_limits_follow_the_bound(monkeypatch):
    """A kernel whose bound is twice as large may have half as much V."""
    usual = limits("flash", 48, 1024, DEVICES[80]).most_v
    monkeypatch.setattr(module, "bound", lambda *given, **named: 2 * bound(*given, **named))
    module._limits.cache_clear()
    halved = limits("flash", 48, 1024, DEVICES[80]).most_v
    module._limits.cache_clear()
    assert all(0.4 * a <= b <= 0.6 * a for a, b in zip(usual, halved, strict=True))


def test_the_numbers_of_the_kernel_are_those_of_its_limits():
    text = (ROOT / "kernels/choice.cu").read_text()
    found = dict(re.findall(r"\b(LIMITED|CLASSES|FIRST|USUAL) = (\d+)", text))
    assert found == {
        "LIMITED": str(choice.LIMITED),
        "CLASSES": str(CLASSES),
        "FIRST": f"{FIRST:g}",
        "USUAL": f"{TYPICAL.v:g}",
    }
    assert float.fromhex(re.search(r"SQUARES_END = (\w+)f;", text)[1]) == SQUARES_BELOW
    sizes = product(DEVICES.values(), (32, 64, 128), (100, 9000))
    assert max(len(candidates(AUTO, props, "", d, N)[0]) for props, d, N in sizes) <= choice.LIMITED + 1

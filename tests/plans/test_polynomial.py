"""exp2 by polynomial (kernels/split_wgmma.cuh): its coefficients, in float32, against what the bound says."""

import re

import numpy as np
import pytest
from emulation import fma
from helpers import ROOT

from hw4cli.plans.bounds import EX2_POLYNOMIAL
from hw4cli.plans.ladder import VARIANTS
from hw4cli.plans.plan import DEVICES
from hw4cli.plans.tensor import policy
from hw4cli.problem.workload import Shape

INTEGER = np.float32(12582912)


def exp2_polynomial(x, coefficients):
    x = np.maximum(x, np.float32(-126))
    n = x + INTEGER
    f, y = x - (n - INTEGER), np.full_like(x, coefficients[0])
    for c in coefficients[1:]:
        y = fma(f, y, np.float32(c))
    return (y.view(np.uint32) + (n.view(np.uint32) << 23)).view(np.float32)


def test_the_polynomial_is_as_exact_as_the_bound_says():
    text = (ROOT / "kernels/split_wgmma.cuh").read_text()
    (line,) = re.findall(r"const float y = (fmaf\(f, fmaf.*);", text)
    coefficients = [float(x) for x in re.findall(r"(\d\.\d+)f", line)]
    x = np.concatenate([np.linspace(-126, 15.99, 400_000), np.linspace(-1, 1, 400_000)]).astype(np.float32)
    wrong = exp2_polynomial(x, coefficients) / np.exp2(x.astype(np.float64)) - 1
    assert 2.0**-22 < np.abs(wrong).max() <= EX2_POLYNOMIAL
    assert (exp2_polynomial(np.float32([-np.inf, -1e30, -200]), coefficients) < 2.0**-125).all()


@pytest.mark.parametrize(
    ("shape", "cc", "taken"), [((4, 32768, 32), 90, 16), ((4, 32768, 64), 90, 0), ((4, 32768, 32), 80, 0)]
)
def test_it_is_taken_where_four_groups_take_turns_and_counted_in_the_bound(shape, cc, taken):
    shape, props = Shape(*shape), DEVICES[cc]
    assert VARIANTS["split"].plan(shape, props).macros["POLYNOMIAL"] == taken
    assert policy(VARIANTS["split"].pieces, shape.N, shape.d, props).polynomial == bool(taken)

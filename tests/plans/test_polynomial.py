"""exp2 by polynomial (kernels/exponentials.cuh): who takes it, and how many of the exponentials."""

from dataclasses import replace

import pytest

from hw4cli.errors import MachineError
from hw4cli.plans.half import Tiling
from hw4cli.plans.kernels16 import bound16, plan16, shares16
from hw4cli.plans.ladder import VARIANTS
from hw4cli.plans.plan import DEVICES
from hw4cli.plans.tensor import policy
from hw4cli.problem.scores import Score
from hw4cli.problem.workload import BFLOAT16, FLOAT16, Shape, Workload

HOPPER = DEVICES[90]
USUAL = Tiling(3, 128, 2, ones=True)


@pytest.mark.parametrize(
    ("shape", "cc", "taken"), [((4, 32768, 32), 90, 1), ((4, 32768, 64), 90, 0), ((4, 32768, 32), 80, 0)]
)
def test_split_takes_it_where_four_groups_take_turns_and_counts_it_in_the_bound(shape, cc, taken):
    shape, props = Shape(*shape), DEVICES[cc]
    assert VARIANTS["split"].plan(shape, props).macros["POLYNOMIAL"] == taken
    assert policy(VARIANTS["split"].pieces, shape.N, shape.d, props).polynomial == bool(taken)


def test_another_share_of_splits_is_a_knob_only_where_the_bound_counts_it():
    split, narrow, wide = VARIANTS["split"], Shape(4, 32768, 32), Shape(4, 32768, 64)
    own = split.plan(narrow, HOPPER)
    assert 0 in split.knobs(own.macros)["POLYNOMIAL"]
    more = split.plan(narrow, HOPPER, {"BR": 256, "BC": 64, "POLYNOMIAL": 3, "IN_ORDER": 4})
    assert (more.macros["POLYNOMIAL"], more.macros["IN_ORDER"]) == (3, 4)
    assert "POLYNOMIAL" not in split.knobs(split.plan(wide, HOPPER).macros)
    with pytest.raises(MachineError, match="polynomials only on Hopper, for d up to 32"):
        split.plan(wide, HOPPER, {"BR": 192, "BC": 64, "POLYNOMIAL": 3})


@pytest.mark.parametrize("dtype", [FLOAT16, BFLOAT16])
def test_half_takes_none_by_itself_and_its_bound_grows_with_them(dtype):
    work, found = Workload(dtype, 1, 4, 4, 1000, 1000, 64), (3.0, 3.0, 3.0)
    own = plan16(work, HOPPER, "half")
    assert not {"POLYNOMIAL", "IN_ORDER"} & {*own.macros}
    plain, ordered, some = (
        plan16(work, HOPPER, "half", USUAL._replace(**how))
        for how in ({}, {"in_order": 4}, {"in_order": 4, "polynomial": 4})
    )
    assert (some.macros["POLYNOMIAL"], some.macros["IN_ORDER"]) == (4, 4)
    bounds = [bound16(work, found, plan, 90) for plan in (plain, ordered, some)]
    assert bounds[0] == bounds[1] < bounds[2] < 1.2 * bounds[0]
    exponents = [shares16(work, found, plan, 90).weights["exponent"] for plan in (plain, some)]
    assert exponents[1] - exponents[0] > 2.0**-13.5  # of the polynomial alone (tests/emulator/test_exponentials.py)


@pytest.mark.parametrize("change", [{"scale": 1e-35}, {"score": Score("2 * s")}], ids=["a tiny scale", "a score"])
def test_half_takes_exp2_where_a_polynomial_could_be_wrong(change):
    work = Workload(FLOAT16, 1, 4, 4, 1000, 1000, 64)
    assert "POLYNOMIAL" in plan16(work, HOPPER, "half", USUAL._replace(polynomial=4)).macros
    changed = plan16(replace(work, **change), HOPPER, "half", USUAL._replace(polynomial=4))
    assert "POLYNOMIAL" not in changed.macros

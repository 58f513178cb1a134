"""The project's own kernels, executed on the CPU: right, and without a mistake, on every shape and kind of data."""

import pytest

from hw4cli.compute.plan import CHIPS
from hw4cli.compute.variants import VARIANTS
from hw4cli.emulator.check import IN_PARTS, SHAPES, check_kernel
from hw4cli.problem.shape import Shape

FLOAT32 = [name for name, variant in VARIANTS.items() if variant.least_cc < 80]
SMALLEST = Shape(2, 5, 4)


@pytest.mark.parametrize("lanes", [32, 64])
@pytest.mark.parametrize("name", FLOAT32)
def test_a_kernel_is_right_and_free_of_races_with_warps_of(name, lanes):
    assert [str(mistake) for mistake in check_kernel(VARIANTS[name], lanes=[lanes])] == []


def test_flash_is_right_where_there_are_no_asynchronous_copies():
    shapes = [SMALLEST, Shape(1, 131, 64), Shape(1, 67, 128), IN_PARTS]
    assert [str(mistake) for mistake in check_kernel(VARIANTS["flash"], chip=CHIPS[61], shapes=shapes)] == []


def test_the_shapes_have_tails_one_key_and_parts():
    plans = [VARIANTS["flash"].plan(shape, CHIPS[80]) for shape in (*SHAPES, IN_PARTS)]
    assert {plan.macros["D"] for plan in plans} >= {32, 36, 64, 128}
    assert plans[-1].splits > 1
    assert any(shape.N == 1 for shape in SHAPES)
    assert all(shape.N % 2 for shape in SHAPES)

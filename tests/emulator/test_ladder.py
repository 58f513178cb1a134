"""The project's own kernels, executed on the CPU: right, and without a mistake, on every shape and kind of data."""

import pytest

from hw4cli.compute.plan import DEVICES
from hw4cli.compute.variants import VARIANTS
from hw4cli.emulator.build import RACE
from hw4cli.emulator.check import LONG, SHAPES, check_kernel
from hw4cli.problem.shape import Shape

FLOAT32 = [name for name, variant in VARIANTS.items() if variant.least_cc < 80]
SMALLEST = Shape(2, 5, 4)


@pytest.mark.parametrize("name", FLOAT32)
def test_a_kernel_is_right_and_free_of_mistakes(name):
    assert [str(mistake) for mistake in check_kernel(VARIANTS[name])] == []


@pytest.mark.parametrize("name", FLOAT32)
def test_a_kernel_is_right_and_free_of_mistakes_where_warps_have_64_lanes(name):
    shapes = [Shape(1, 131, 64), Shape(3, 65, 36)]
    assert [str(mistake) for mistake in check_kernel(VARIANTS[name], shapes=shapes, lanes=[64])] == []


def test_flash_is_right_where_there_are_no_asynchronous_copies():
    shapes = [SMALLEST, Shape(1, 131, 64), Shape(1, 67, 128)]
    mistakes = check_kernel(VARIANTS["flash"], props=DEVICES[61], shapes=shapes, builds=[RACE])
    assert [str(mistake) for mistake in mistakes] == []


@pytest.mark.parametrize(("name", "cc"), [("split", 80), ("split", 90), ("exact", 80)])
def test_a_kernel_on_tensor_cores_is_right_and_free_of_races(name, cc):
    shapes = [Shape(1, 1, 36), Shape(1, 131, 64), Shape(3, 65, 36), LONG[0]]
    assert [str(mistake) for mistake in check_kernel(VARIANTS[name], props=DEVICES[cc], shapes=shapes)] == []


# Other compute capabilities: tiles by the bulk copy engine without warp groups, and other sizes of shared memory.
@pytest.mark.parametrize(
    ("name", "cc"), [("split", 100), ("split", 120), ("exact", 90), ("exact", 100), ("exact", 120)]
)
def test_a_kernel_on_tensor_cores_is_right_on_other_chips(name, cc):
    shapes = [Shape(1, 131, 64), LONG[1]]
    assert [
        str(mistake) for mistake in check_kernel(VARIANTS[name], props=DEVICES[cc], shapes=shapes, builds=[RACE])
    ] == []


def test_long_rows_are_right_on_tensor_cores():
    shapes = [Shape(1, 300, 128)]
    assert [str(mistake) for mistake in check_kernel(VARIANTS["split"], shapes=shapes, builds=[RACE])] == []
    assert [str(mistake) for mistake in check_kernel(VARIANTS["exact"], shapes=shapes, builds=[RACE])] == []


def test_the_shapes_have_tails_one_key_and_parts():
    plans = [VARIANTS["flash"].plan(shape, DEVICES[80]) for shape in (*SHAPES, *LONG)]
    assert {plan.macros["D"] for plan in plans} >= {32, 36, 64, 128}
    assert (
        plans[-2].splits * LONG[0].N % 2 == 1
    )  # what lies behind two numbers for each row is at no multiple of 16 bytes
    assert plans[-2].splits > 1
    assert {VARIANTS["split"].plan(shape, DEVICES[90]).macros["INBLOCK"] for shape in (*SHAPES, *LONG)} == {0, 1}
    assert any(shape.N == 1 for shape in SHAPES)
    assert all(shape.N % 2 for shape in SHAPES)

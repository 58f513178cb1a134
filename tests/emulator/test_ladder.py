"""The project's own kernels, executed on the CPU: right, and without a mistake, on every shape and kind of data."""

from concurrent.futures import ThreadPoolExecutor
from functools import partial

import pytest
from slow import slow

from hw4cli.emulator import check as trials
from hw4cli.emulator.build import ASAN, RACE
from hw4cli.emulator.check import ALL_FULL, EQUAL, HUGE, LONG, RANDOM_DATA, RISING, SHAPES, SOME, check_kernel
from hw4cli.emulator.check import WHOLE as WHOLE_TILES
from hw4cli.plans.ladder import VARIANTS
from hw4cli.plans.plan import AMD_DEVICES, DEVICES
from hw4cli.problem.cpu import workers
from hw4cli.problem.workload import Shape

FLOAT32 = [name for name, variant in VARIANTS.items() if variant.least_cc < 80]
SMALLEST, TAILS, BATCHES = Shape(2, 5, 4), Shape(1, 131, 64), Shape(3, 65, 36)


MI210 = "gfx90a"


def check(name, gpu=80, **how):
    return partial(check_kernel, VARIANTS[name], props={**DEVICES, **AMD_DEVICES}[gpu], **how)


def on_tensor_cores(name, cc):
    """Data that the block converts itself, and tiles through a ring; one row, tails, several batches, parts of keys."""
    return check(name, cc, shapes=[Shape(1, 1, 36), TAILS, BATCHES, LONG[0]], builds=[RACE])


# These differ from others in one thing each, or in little: few runs show a mistake.
SMALL = ("paper", "global", "rowthread", "fp16qk", "pitched")
SPARED = [name for name in VARIANTS if name in SMALL or name.startswith("halfwarp")]
FEW = {"shapes": [SMALLEST, Shape(1, 131, 32)], "data": [RANDOM_DATA], "builds": [RACE]}
WHOLE = [name for name in FLOAT32 if name not in SPARED]
EVERY_KIND = [BATCHES, *SOME]
ONE_KIND = [shape for shape in ALL_FULL if shape not in (*EVERY_KIND, WHOLE_TILES[1])]

CASES = {
    # Every shape; those with several batches and tails, and where some rows are asked for, with every kind of data; and
    # by AddressSanitizer tails, and parts of keys.
    **{name: check(name, shapes=ONE_KIND, data=[RANDOM_DATA], builds=[RACE]) for name in WHOLE},
    **{f"{name}, other data": check(name, shapes=EVERY_KIND, builds=[RACE]) for name in WHOLE},
    **{
        f"{name}, AddressSanitizer": check(
            name, shapes=[TAILS, BATCHES, LONG[0]], data=[RANDOM_DATA, HUGE], builds=[ASAN]
        )
        for name in (*WHOLE, "split", "exact")
    },
    **{
        f"{name} on gfx90a": check(name, MI210, shapes=[BATCHES], lanes=[64], data=[RANDOM_DATA, RISING], builds=[RACE])
        for name in WHOLE
    },
    **{name: check(name, **FEW) for name in SPARED},
    "halfwarp, all data": check("halfwarp", shapes=[BATCHES]),
    "halfwarp on gfx90a": check("halfwarp", MI210, lanes=[64], **FEW),
    # The keys in parts, which flash_combine puts together.
    "flash on gfx90a, parts": check("flash", MI210, shapes=[LONG[0]], lanes=[64], data=[RANDOM_DATA], builds=[RACE]),
    "warp on gfx90a, causal": check(
        "warp", MI210, shapes=[Shape(1, 131, 32, causal=True)], lanes=[64], data=[RANDOM_DATA], builds=[RACE]
    ),
    "flash 6.1, without asynchronous copies": check(
        "flash", 61, shapes=[SMALLEST, TAILS, Shape(1, 67, 128)], builds=[RACE]
    ),
    **{f"{name} {cc / 10}": on_tensor_cores(name, cc) for name in ("split", "exact") for cc in (80, 90)},
    # Tiles by the bulk copy engine without warp groups, and other sizes of shared memory.
    **{
        f"{name} {cc / 10}": check(name, cc, shapes=[TAILS, LONG[1]], data=[RANDOM_DATA, HUGE], builds=[RACE])
        for name in ("split", "exact")
        for cc in (100, 120)
    },
    "exact 9.0, parts of other sizes": check("exact", 90, shapes=[LONG[1]], data=[RANDOM_DATA], builds=[RACE]),
    **{
        f"{name} {cc / 10}, causal": check(
            name, cc, shapes=[Shape(1, 131, 32, causal=True)], data=[RANDOM_DATA], builds=[RACE]
        )
        for name, cc in (("warp", 80), ("flash", 80), ("split", 90))
    },
    **{
        f"{name}, long rows": check(name, shapes=[Shape(1, 300, 128)], data=[RANDOM_DATA, HUGE], builds=[RACE])
        for name in ("split", "exact")
    },
}

# Each shape with each kind of data, by each build, as `hw4 check --run` does; and other data of the cases above.
PRODUCT = {
    **{f"{name}, all": check(name) for name in WHOLE},
    **{
        f"{name} {cc / 10}, other data": check(name, cc, shapes=[TAILS, LONG[1]], data=[EQUAL, RISING], builds=[RACE])
        for name in ("split", "exact")
        for cc in (100, 120)
    },
    "exact 9.0, parts of other sizes, other data": check("exact", 90, shapes=[LONG[1]], data=[EQUAL], builds=[RACE]),
    **{
        f"{name}, long rows, other data": check(name, shapes=[Shape(1, 300, 128)], data=[EQUAL, RISING], builds=[RACE])
        for name in ("split", "exact")
    },
}


@pytest.fixture(scope="module")
def found(request):
    """The mistakes in each case that is tested: as many cases at the same time as there are processors."""
    chosen = [item.callspec.params["case"] for item in request.session.items if item.name.startswith(f"{TEST}[")]
    with ThreadPoolExecutor(workers()) as pool:
        yield {case: pool.submit((CASES | PRODUCT)[case]) for case in chosen}


@pytest.mark.parametrize(
    "case", [*CASES, *(pytest.param(case, marks=[slow, pytest.mark.exhaustive]) for case in PRODUCT)]
)
def test_a_kernel_is_right_and_free_of_mistakes(case, found):
    assert [str(mistake) for mistake in found[case].result()] == []


TEST = test_a_kernel_is_right_and_free_of_mistakes.__name__


def test_the_shapes_have_tails_one_key_and_parts():
    plans = [VARIANTS["flash"].plan(shape, DEVICES[80]) for shape in (*SHAPES, *LONG)]
    assert {plan.macros["D"] for plan in plans} >= {32, 36, 64, 128}
    # What lies behind two numbers for each row is at no multiple of 16 bytes.
    in_parts = plans[len(SHAPES)]
    assert in_parts.splits * LONG[0].N % 2 == 1
    assert in_parts.splits > 1
    assert plans[len(SHAPES) + 1].splits > 1 and LONG[1].B > 1  # where a row of a part lies depends on its batch
    assert {VARIANTS["split"].plan(shape, DEVICES[90]).macros["INBLOCK"] for shape in (*SHAPES, *LONG)} == {0, 1}
    assert any(shape.N == 1 for shape in SHAPES)
    assert all(shape.N % 2 for shape in trials.TAILS)

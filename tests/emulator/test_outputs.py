"""What kernels compute besides O, executed on the CPU: each row's LSE, and the largest elements of the input."""

from dataclasses import replace

import numpy as np
import pytest
from definitions import definition
from emulation import largest_numbers
from slow import slow, slow_of_each

from hw4cli.emulator.build import RACE, shared_object
from hw4cli.emulator.check import HUGE, RANDOM_DATA, SCHEDULES, make_data
from hw4cli.emulator.library import Library
from hw4cli.plans.ladder import VARIANTS
from hw4cli.plans.launch import ABSMAX_CHUNK, magnitudes
from hw4cli.plans.plan import DEVICES
from hw4cli.problem.workload import Shape
from hw4cli.resources import kernel_path

WAYS = {
    "flash 8.0": ("flash", 80, 32),
    "flash 6.1": ("flash", 61, 32),
    "flash, warps of 64": ("flash", 80, 64),
    "split 8.0": ("split", 80, 32),
    "split 9.0, warp groups": ("split", 90, 32),
    "exact 8.0": ("exact", 80, 32),
    "exact 9.0": ("exact", 90, 32),
}
# One block converts its keys itself; tiles come through a ring; and each of two parts of the keys fills that ring.
SHORT, LONG, LONGER = Shape(3, 65, 36), Shape(1, 527, 32), Shape(1, 1031, 32)


def exact_lse(block):
    """Each row's log of the sum of exp(score), in float64."""
    return definition(*block.swapaxes(0, 1))[1]


def lse_of(way, shape, splits, kind=RANDOM_DATA):
    """What a kernel computes, and what is right."""
    name, cc, lanes = WAYS[way]
    plan = replace(VARIANTS[name], splits=lambda *_: splits).plan(shape, DEVICES[cc])
    library = Library(shared_object(kernel_path(plan.source), plan.macros, cc, lanes, RACE))
    block = make_data(kind, shape)
    outcome = library.run(plan, block, lanes, lse=True)
    assert [str(finding) for finding in outcome.findings] == []
    return outcome.lse, exact_lse(block)


@slow_of_each(6)
@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize(("shape", "splits"), [(SHORT, 1), (LONG, 1), (LONGER, 2)])
def test_lse_is_the_log_of_the_sum_of_exponentials_with_and_without_parts_of_the_keys(way, shape, splits):
    got, right = lse_of(way, shape, splits)
    np.testing.assert_allclose(got, right, atol=2e-3 if way.startswith("split") else 2e-5, rtol=0)


@slow
@pytest.mark.parametrize("splits", [1, 3])
def test_lse_is_right_where_no_exponential_fits_without_the_maximum(splits):
    got, right = lse_of("flash 8.0", LONG, splits, HUGE)
    assert np.abs(right).max() > 1000
    np.testing.assert_allclose(got, right, rtol=1e-6)


@slow
@pytest.mark.parametrize("name", ["flash", "split"])
def test_o_is_the_same_with_and_without_lse(name):
    plan, block = VARIANTS[name].plan(SHORT, DEVICES[80]), make_data(RANDOM_DATA, SHORT)
    library = Library(shared_object(kernel_path(plan.source), plan.macros, 80, 32, RACE))
    both, alone = library.run(plan, block, lse=True), library.run(plan, block)
    np.testing.assert_array_equal(both.o, alone.o)
    assert alone.lse is None


@pytest.mark.parametrize("lanes", [32, 64])
@pytest.mark.parametrize("shape", [Shape(1, 1, 4), Shape(2, 131, 36), Shape(2, 520, 64)])
def test_absmax_finds_the_largest_elements_wherever_they_are(shape, lanes):
    library = Library(shared_object(kernel_path("absmax"), {"ABSMAX_CHUNK": ABSMAX_CHUNK}, 80, lanes, RACE))
    for schedule in SCHEDULES:
        block = make_data(RANDOM_DATA, shape)
        for part, index in enumerate((0, -1, block[0, 0].size // 2)):
            block[-1, part].reshape(-1)[index] = -100 - part
        top, findings = library.find_absmax(block, lanes, schedule)
        assert [str(finding) for finding in findings] == []
        np.testing.assert_array_equal(top, largest_numbers(block))
        assert [*top[::2]] == [100, 101, 102]
    keys, _ = library.find_absmax(block[-1, 1:], lanes, first=1)  # of K and V alone
    np.testing.assert_array_equal(keys, [0, 0, *largest_numbers(block[-1:])[2:]])
    block[0, 1, 0, 0], block[0, 2, 0, 0] = -np.inf, np.nan
    q, _, k, k_squares, v = library.find_absmax(block, lanes)[0]
    assert (q, k, k_squares) == (100, np.inf, np.inf)
    assert np.isnan(v)


@slow
@pytest.mark.parametrize("way", [name for name in WAYS if not name.startswith("flash")])
@pytest.mark.parametrize("shape", [Shape(2, 70, 64), Shape(2, 600, 20)])
def test_a_kernel_on_tensor_cores_finds_what_absmax_finds(way, shape):
    name, cc, lanes = WAYS[way]
    plan, block = VARIANTS[name].plan(shape, DEVICES[cc]), make_data(RANDOM_DATA, shape)
    library = Library(shared_object(kernel_path(plan.source), plan.macros, cc, lanes, RACE))
    block[-1, 0, -1], block[0, 1, shape.N // 2, ::3], block[-1, 2, -1, -1] = 7.3, -20.1, 50
    outcome = library.run(plan, block, lanes)
    assert [str(finding) for finding in outcome.findings] == []
    np.testing.assert_array_equal(outcome.largest, largest_numbers(block))
    block[0, 1, 0] = 200  # more than is added up
    found = magnitudes(library.run(plan, block, lanes).largest)
    assert (found.k, found.k_norm) == (200, np.inf)

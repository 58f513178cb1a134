"""How many rows a block of flash has."""

import pytest
from slow import quick_of_each

from hw4cli.plans.common import padded_d
from hw4cli.plans.formulas import ceil_div
from hw4cli.plans.ladder import VARIANTS
from hw4cli.plans.plan import AMD_DEVICES, DEVICES
from hw4cli.problem.workload import HEAD_SIZES, Shape

FLASH = VARIANTS["flash"]


def rows(shape, cc=90):
    return FLASH.plan(shape, DEVICES[cc]).macros["BR"]


@quick_of_each(3)
@pytest.mark.parametrize("d", [16, 32, 48, 64, 100, 128])
@pytest.mark.parametrize("causal", [False, True])
def test_no_half_of_a_block_is_empty_for_up_to_1024_rows(d, causal):
    for N in range(1, 1025):
        BR = rows(Shape(50, N, d, causal=causal))
        if padded_d(d) == d or N <= 512:  # of padded rows, fewer threads fit
            assert ceil_div(N, BR) * BR - N < 64 or BR == 32, N
        assert (BR == 32) == (N <= 32)


def test_where_nothing_is_empty_blocks_have_128_rows_but_where_64_are_no_slower():
    assert [rows(Shape(50, N, 64)) for N in (128, 256, 1024, 1025, 32768)] == [128] * 5
    assert [rows(Shape(50, N, 32)) for N in (128, 256, 1024, 1025, 32768)] == [64, 64, 64, 128, 128]
    assert [rows(Shape(50, N, 64, causal=True)) for N in (128, 512, 1024, 32768)] == [64, 64, 128, 128]
    assert [rows(Shape(50, N, 32, causal=True)) for N in (128, 2048, 2049, 32768)] == [64, 64, 128, 128]


def test_few_rows_that_see_many_keys_have_blocks_of_128():
    """More warps copy tiles then."""
    assert rows(Shape(4, 8192, 64, Nq=1)) == 128


@pytest.mark.parametrize("cc", DEVICES)
def test_a_multiprocessor_keeps_most_of_its_threads_at_work(cc):
    for d in HEAD_SIZES:
        for N in range(1, 1025, 31):
            shape, props = Shape(50, N, d), DEVICES[cc]
            plan = FLASH.plan(shape, props)
            whole = FLASH.plan(Shape(50, 4096, d), props)
            filled = [N / (ceil_div(N, p.macros["BR"]) * p.macros["BR"]) for p in (plan, whole)]
            at_work = [p.macros["BLOCKS"] * p.macros["THREADS"] * f for p, f in zip((plan, whole), filled, strict=True)]
            assert at_work[0] >= 3 / 4 * at_work[1], N


def test_amds_blocks_keep_their_rows():
    for props in AMD_DEVICES.values():
        assert {FLASH.plan(Shape(50, N, 32), props).macros["BR"] for N in (20, 64, 192, 4096)} == {128}

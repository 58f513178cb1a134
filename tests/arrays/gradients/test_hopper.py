"""Gradients of 16-bit numbers by warpgroups, in two passes and in one, executed on the CPU and compiled."""

import re
from dataclasses import replace
from itertools import product

import numpy as np
import pytest
from slow import quick_of_each, slow, slow_of_each
from test_gradients import as_numbers, as_words, assert_right, operands

from hw4cli.device.kernelcheck import compiler_for
from hw4cli.device.machinecode import OPTIONS
from hw4cli.emulator.library import Schedule
from hw4cli.errors import MachineError
from hw4cli.plans import backwardwgmma as hopper
from hw4cli.plans import gradients as choice
from hw4cli.plans.backwardcut import Cut, section
from hw4cli.plans.backwardonce import heads_together
from hw4cli.plans.gradients import ATOMIC, ONCE
from hw4cli.plans.plan import DEVICES
from hw4cli.problem.oracle import exact_gradients
from hw4cli.problem.workload import BFLOAT16, FLOAT16, FLOAT32, Span, Workload
from hw4cli.resources import kernel_source

pytestmark = quick_of_each(1)

HOPPER = DEVICES[90]
KERNELS = [ONCE.name, hopper.NAME]


WORKLOADS = [
    Workload(FLOAT16, 1, 2, 1, 200, 150, 128, True, -50),
    Workload(BFLOAT16, 2, 1, 1, 70, 300, 128),
    Workload(BFLOAT16, 1, 4, 2, 140, 260, 64, True, 130),
    Workload(FLOAT16, 1, 1, 1, 300, 70, 40),
]


@pytest.mark.parametrize(
    ("work", "kernel"),
    [*product(WORKLOADS, KERNELS), *((work, ATOMIC.name) for work in WORKLOADS[::2])],
    ids=str,
)
def test_gradients_by_warpgroups_are_right_and_free_of_races(work, kernel):
    assert_right(work, kernel=kernel, cc=90)


@slow
@pytest.mark.parametrize(
    "work",
    [
        Workload(FLOAT16, 1, 1, 1, 70, 140, 40),
        Workload(BFLOAT16, 1, 2, 1, 300, 390, 64),
        Workload(BFLOAT16, 2, 1, 1, 300, 300, 64, True),  # the first queries have one tile of keys
        Workload(FLOAT16, 1, 2, 2, 300, 500, 64, True, 200),
    ],
    ids=str,
)
def test_a_pass_that_rounds_dq_gives_the_bits_of_a_launch_after_it(work):
    cuts = (Cut(work.batch * work.kv_heads, rounded=rounded) for rounded in (True, False))
    found, expected = (assert_right(work, kernel=ONCE.name, cc=90, tile=cut) for cut in cuts)
    assert all(np.array_equal(a, b) for a, b in zip(found, expected, strict=True))


@slow
@pytest.mark.parametrize("kernel", KERNELS)
@pytest.mark.parametrize(("d", "allowed"), [(64, 2.5e-3), (128, 2.9e-3)])
def test_ds_comes_from_weights_that_are_not_rounded_yet(d, allowed, kernel):
    """The norm of the error, of the gradient's: 3.1e-3 at d = 64 if all of dS came from rounded weights, 2.7e-3 if a
    quarter did."""
    work = Workload.square(BFLOAT16, 1, 1, 256, d, True)
    numbers = [as_numbers(as_words(x, BFLOAT16), BFLOAT16) for x in operands(work)]
    got = assert_right(work, kernel=kernel, cc=90)
    for one, right in zip(got, exact_gradients(*numbers, causal=True), strict=True):
        error = np.linalg.norm(as_numbers(one, BFLOAT16) - right)
        assert error <= allowed * np.linalg.norm(right)


@slow
@pytest.mark.parametrize("kernel", KERNELS)
def test_rows_that_see_no_key_and_keys_that_no_row_sees_have_no_gradient(kernel):
    dq, _, _ = assert_right(Workload(FLOAT16, 1, 1, 1, 300, 80, 64, True, -220), kernel=kernel, cc=90)
    _, dk, dv = assert_right(Workload(FLOAT16, 1, 1, 1, 80, 300, 64, True, 0), kernel=kernel, cc=90)
    assert not dq[:, :, :220].any() and not dk[:, :, 80:].any() and not dv[:, :, 80:].any()


@slow
@pytest.mark.parametrize(("kernel", "cut"), [*product(KERNELS, [None]), (ONCE.name, Cut(2, rounded=True))])
def test_every_order_of_threads_and_every_number_of_blocks_gives_the_same_bits(kernel, cut):
    work = Workload(BFLOAT16, 1, 2, 2, 200, 300, 64, True, 100)
    runs = [(Schedule("forward"), 2), (Schedule("random", 5), 1), (Schedule("reverse"), 3)]
    first, *others = (
        assert_right(work, kernel=kernel, cc=90, tile=cut, schedule=order, blocks=blocks) for order, blocks in runs
    )
    assert all(np.array_equal(a, b) for other in others for a, b in zip(first, other, strict=True))


@slow_of_each(3)
@slow
@pytest.mark.parametrize("kernel", [*KERNELS, ATOMIC.name])
@pytest.mark.parametrize(("dtype", "causal"), [(FLOAT16, False), (BFLOAT16, True)])
@pytest.mark.parametrize("d", [64, 128])
# Of the last tile, all keys are there, or some are missing; many rows; many heads.
@pytest.mark.parametrize(("rows", "heads"), [(1024, 4), (1000, 4), (4096, 4), (640, 96), (600, 96)])
def test_no_register_spills_and_products_run_side_by_side(kernel, dtype, d, causal, rows, heads):
    planned = choice.plan(Workload.square(dtype, 1, heads, rows, d, causal), HOPPER, kernel)
    options = (*OPTIONS, *planned.options, "--ptxas-options=-v")
    _, log = compiler_for(HOPPER).build(kernel_source(kernel), f"{kernel}.cu", options, 90)
    assert re.findall(r"(\d+) bytes spill", log) == 6 * ["0"], log
    assert "Potential Performance Loss" not in log and "warning" not in log, log
    assert all(step.shared <= HOPPER.shared_limit for step in planned.launches)


@pytest.mark.parametrize("kernel", KERNELS)
def test_warpgroups_take_16_bit_numbers_in_rows_of_16_byte_chunks(kernel):
    def chosen(dtype, d, cc):
        return choice.plan(Workload.square(dtype, 1, 1, 512, d), DEVICES[cc]).variant

    assert {chosen(dtype, d, 90) for dtype in (FLOAT16, BFLOAT16) for d in (60, 64, 128)} <= {*KERNELS}
    assert not {chosen(FLOAT32, 64, 90), chosen(FLOAT16, 64, 80)} & {*KERNELS}
    refused = rf"kernel {kernel} does not take float16, d=64 on compute capability 8\.0"
    with pytest.raises(MachineError, match=refused):
        choice.plan(Workload.square(FLOAT16, 1, 1, 512, 64), DEVICES[80], kernel)


@pytest.mark.parametrize("cc", [61, 80, 90])
def test_what_has_other_bits_in_each_run_computes_only_where_it_is_named(cc):
    """The counter-example of additions in order: one is refused on other GPUs, and never chosen on any."""
    works = [
        Workload(dtype, 2, 8, kv_heads, N, N, d, causal)
        for dtype, kv_heads, N, d, causal in product((FLOAT32, FLOAT16), (1, 8), (1, 9000), (8, 64, 128), (False, True))
    ]
    assert ATOMIC.name not in {choice.fastest(work, DEVICES[cc]) for work in works}
    for work in works:
        if ATOMIC.takes(work, DEVICES[cc]):
            assert choice.plan(work, DEVICES[cc], ATOMIC.name).variant == ATOMIC.name
        else:
            with pytest.raises(MachineError, match="kernel backward_atomic does not take"):
                choice.plan(work, DEVICES[cc], ATOMIC.name)


SEQUENCES = Span(0, 0, 500, 0, 500), Span(0, 500, 400, 500, 400)


@pytest.mark.parametrize(
    ("work", "heads"),
    [  # of K and V, as they were the fastest on an H200; with a mask, of heads that are not shared, on an H100
        (Workload.square(BFLOAT16, 1, 16, 16384, 64, True), 4),
        (Workload.square(BFLOAT16, 2, 16, 8192, 128, True), 4),
        (Workload.square(BFLOAT16, 2, 16, 8192, 128), 4),
        (Workload(BFLOAT16, 1, 32, 8, 8192, 8192, 128, True), 4),
        (Workload(BFLOAT16, 2, 32, 8, 4096, 4096, 128, True), 8),
        (Workload(BFLOAT16, 8, 32, 8, 1024, 1024, 128, True), 16),
        (Workload(BFLOAT16, 1, 32, 8, 8192, 8192, 128), 2),
        (Workload(BFLOAT16, 1, 64, 8, 8192, 8192, 64), 2),
        (Workload(BFLOAT16, 2, 32, 8, 4096, 4096, 128), 8),
        (Workload(BFLOAT16, 1, 32, 16, 4096, 4096, 128), 16),
        (Workload(BFLOAT16, 2, 32, 8, 2048, 2048, 128), 16),
        (Workload.square(BFLOAT16, 2, 12, 1024, 64, True), 16),
        (Workload.square(BFLOAT16, 8, 12, 1024, 64, True), 96),
        (Workload.square(BFLOAT16, 16, 16, 1024, 64, True), 86),
        (Workload.square(BFLOAT16, 16, 16, 1024, 128, True), 16),
        (Workload.square(BFLOAT16, 8, 32, 2048, 128, True), 8),
        (Workload.square(BFLOAT16, 4, 32, 4096, 128, True), 8),
        (Workload.square(BFLOAT16, 1, 16, 16384, 128, True), 4),
        (Workload.square(BFLOAT16, 8, 64, 8192, 128, True), 16),  # of one chain, as two would be too large
        (Workload.square(BFLOAT16, 8, 64, 16384, 128, True), 8),
        (replace(Workload.square(BFLOAT16, 1, 12, 900, 64, True), sequences=SEQUENCES), 32),  # of one chain, too
        (Workload.square(FLOAT16, 4, 12, 512, 64), 64),
        (Workload.square(FLOAT16, 32, 12, 512, 64), 96),
        (Workload.square(BFLOAT16, 16, 16, 1024, 128), 16),
        (Workload(BFLOAT16, 1, 8, 1, 1 << 20, 1 << 20, 128, True), 1),
    ],
    ids=str,
)
def test_one_pass_works_on_as_many_heads_at_a_time_as_were_the_fastest(work, heads):
    assert heads_together(work, choice.plan(work, HOPPER, ONCE.name)) == heads


def test_of_windows_of_wide_rows_two_heads_at_a_time_leave_their_queries_in_the_cache():
    shared, alone = (
        Workload(BFLOAT16, 4, 32, 8, 4096, 4096, 128, True),
        Workload.square(BFLOAT16, 2, 16, 8192, 64, True),
    )
    assert (section(shared), section(replace(shared, window=1024))) == (8, 2)
    assert (section(replace(alone, window=1024)), section(alone)) == (16, 8)
    assert section(shared, in_order=False) == 4, "whose blocks do not wait for each other"


@slow
@pytest.mark.parametrize("kernel", [*KERNELS, ATOMIC.name])
@pytest.mark.parametrize(("rows", "causal"), [(70, False), (200, True)])
def test_keys_that_are_not_there_weigh_nothing_however_small_the_scores(kernel, rows, causal):
    """A tile's missing keys have scores of 0: beside ones of -500 their weights are infinite."""
    work = Workload(BFLOAT16, 1, 1, 1, rows, 90, 64, causal, 0)
    do, q, k, v = operands(work)
    assert_right(work, given=[do, 0.3 * q + 8, 0.3 * k - 8, v], allowed=0.1, kernel=kernel, cc=90)


@slow
@pytest.mark.parametrize(
    "work",
    [
        Workload(BFLOAT16, 1, 1, 1, 4200, 128, 128),  # tiles of 80 queries, the last of which are not all there
        Workload(FLOAT16, 1, 1, 1, 1100, 256, 64, True, -900),  # the groups that own keys compute dQ, too
    ],
    ids=str,
)
def test_gradients_of_many_rows_are_right(work):
    assert_right(work, kernel=ONCE.name, cc=90)


def test_the_pass_rounds_dq_where_that_was_faster():
    def launches(work):
        return [step.symbol.removeprefix("backward_") for step in choice.plan(work, HOPPER, ONCE.name).launches]

    square = Workload.square
    for work in (
        square(BFLOAT16, 8, 12, 1024, 64, True),
        square(BFLOAT16, 2, 12, 512, 64, True),
        square(FLOAT16, 8, 12, 512, 32),
        square(FLOAT16, 64, 12, 577, 64),
        square(FLOAT16, 1, 1, 128, 64),
        Workload(BFLOAT16, 6, 32, 8, 1024, 1024, 64, True),
    ):
        assert launches(work) == ["stats", "once"], work
    for work in (
        square(BFLOAT16, 2, 12, 1024, 64, True),
        square(BFLOAT16, 8, 12, 1024, 64),
        square(BFLOAT16, 4, 12, 512, 64),
        square(BFLOAT16, 8, 12, 1536, 64, True),
        square(BFLOAT16, 8, 12, 512, 128),
        Workload(BFLOAT16, 8, 12, 12, 128, 512, 64, True, 384),  # few rows
        Workload(BFLOAT16, 8, 12, 12, 600, 512, 64, True, -88),  # rows that see no key
        Workload(BFLOAT16, 16, 32, 8, 512, 512, 64),
        Workload(BFLOAT16, 16, 12, 12, 1024, 640, 64),
        Workload(BFLOAT16, 2, 8, 8, 4096, 77, 64),  # parts of the rows
        replace(square(BFLOAT16, 8, 12, 1024, 64, True), window=100),
    ):
        assert launches(work) == ["stats", "once", "round"], work


def test_sums_of_dq_that_one_tile_of_keys_leaves_take_no_memory():
    one, two = (Workload(FLOAT16, 64, 12, 12, 129, keys, 64) for keys in (128, 129))
    scratch = [choice.plan(work, HOPPER, ONCE.name).scratch for work in (one, two)]
    assert scratch[1] - scratch[0] == 4 * 64 * 12 * 256 * 64


@pytest.mark.parametrize(
    ("work", "cut", "kernel"),
    [
        (Workload.square(FLOAT16, 1, 1, 512, 64), Cut(1, chains=2, rounded=True), ONCE),
        (Workload.square(FLOAT16, 1, 1, 512, 128), Cut(1, rounded=True), ONCE),
        (Workload(FLOAT16, 1, 1, 1, 512, 500, 64, True, -12), Cut(1, rounded=True), ONCE),
        (Workload.square(FLOAT16, 1, 1, 512, 64), Cut(1, rounded=True), ATOMIC),
    ],
    ids=["two chains", "128 columns", "rows that see no key", "any order"],
)
def test_a_pass_that_cannot_round_dq_is_refused(work, cut, kernel):
    with pytest.raises(MachineError, match=f"kernel {kernel.name} does not round dQ within the pass here"):
        choice.plan(work, HOPPER, kernel.name, cut)


def test_a_third_group_and_large_tiles_are_taken_where_they_were_faster():
    def of(work):
        planned = choice.plan(work, HOPPER, ONCE.name)
        return planned.macros["ONCE_APART"], planned.macros["ONCE_TILE"], planned.launches[1].block

    short, long, wide = (Workload.square(BFLOAT16, 2, 16, *sizes) for sizes in ((1024, 64), (8192, 64), (8192, 128)))
    assert of(short) == of(replace(short, causal=True)) == of(long) == (1, 128, 512)
    assert of(replace(long, causal=True)) == of(replace(short, window=300)) == (0, 128, 384)
    assert of(wide) == (0, 80, 384)
    assert of(replace(wide, causal=True)) == of(replace(wide, Nk=8100)) == of(replace(wide, Nq=2048)) == (0, 64, 384)

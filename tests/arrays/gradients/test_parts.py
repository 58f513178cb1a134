"""Parts of one pass: what is streamed past few keys is cut, and the parts' sums are added in their order."""

import re

import numpy as np
import pytest
from slow import quick_of_each, slow
from test_gradients import assert_right

from hw4cli.emulator.library import Schedule
from hw4cli.plans.backwardcut import Cut, best_cut
from hw4cli.plans.backwardonce import ADDED_COLUMNS
from hw4cli.plans.gradients import ATOMIC, ONCE
from hw4cli.plans.plan import DEVICES
from hw4cli.problem.workload import BFLOAT16, FLOAT16, Workload
from hw4cli.resources import data_path

pytestmark = quick_of_each(1)

HOPPER = DEVICES[90]
WORKLOADS = [
    (Workload(BFLOAT16, 1, 4, 1, 300, 200, 64, True, -100), Cut(0, 2, 1)),
    (Workload(BFLOAT16, 1, 4, 1, 300, 200, 64, True, 0), Cut(0, 3, 2)),
    (Workload(FLOAT16, 2, 2, 2, 300, 200, 128), Cut(1, 1, 4)),  # the first batch is whole
    (Workload(FLOAT16, 2, 2, 1, 300, 400, 128, True, 0), Cut(1, 2, 3)),
    (Workload(FLOAT16, 1, 4, 1, 300, 100, 64), Cut(0, 2, 2, rounded=True)),
]


@pytest.mark.parametrize(("work", "cut"), WORKLOADS, ids=str)
def test_parts_add_up_to_the_gradients_without_races(work, cut):
    assert_right(work, kernel=ONCE.name, cc=90, tile=cut)


@slow
def test_parts_whose_rows_see_no_key_are_left_out():
    """Of 300 rows the last 80 see keys: two of three parts of the rows are empty, and no block takes them."""
    dq, _, _ = assert_right(
        Workload(FLOAT16, 1, 2, 2, 300, 80, 64, True, -220), kernel=ONCE.name, cc=90, tile=Cut(0, 1, 3)
    )
    assert not dq[:, :, :220].any()


@slow
def test_parts_are_right_where_sums_are_added_as_they_come():
    assert_right(WORKLOADS[1][0], kernel=ATOMIC.name, cc=90, tile=WORKLOADS[1][1])


@slow
def test_every_order_of_threads_gives_parts_the_same_bits():
    work, cut = WORKLOADS[1]
    runs = [(Schedule("forward"), 2), (Schedule("random", 5), 1), (Schedule("reverse"), 3)]
    first, *others = (
        assert_right(work, kernel=ONCE.name, cc=90, tile=cut, schedule=order, blocks=blocks) for order, blocks in runs
    )
    assert all(np.array_equal(a, b) for other in others for a, b in zip(first, other, strict=True))


@pytest.mark.parametrize(
    ("work", "cut"),
    [  # as measured on an H200 and an H100: many tasks are left whole, with a mask in two or three chains
        (Workload.square(BFLOAT16, 1, 16, 16384, 64, True), (1, 1, 3)),
        (Workload.square(BFLOAT16, 2, 16, 8192, 128, True), (1, 1, 2)),
        (Workload.square(BFLOAT16, 2, 16, 1024, 64, True), (1, 1, 2)),
        (Workload.square(BFLOAT16, 16, 16, 1024, 128, True), (1, 1, 2)),
        (Workload.square(BFLOAT16, 8, 64, 8192, 128, True), (1, 1, 1)),  # a second chain's sums would take 2 GiB more
        (Workload.square(BFLOAT16, 64, 16, 256, 128, True), (1, 1, 1)),
        (Workload.square(BFLOAT16, 2, 16, 8192, 128), (1, 1, 1)),
        (Workload(BFLOAT16, 1, 32, 8, 8192, 8192, 128, True), (1, 1, 1)),
        (Workload.square(BFLOAT16, 64, 16, 128, 64), (1, 1, 1)),
        (Workload(BFLOAT16, 4, 32, 1, 2048, 2048, 64, True), (8, 1, 1)),
        (Workload(BFLOAT16, 1, 32, 4, 2048, 2048, 128, True), (4, 1, 1)),
        (Workload(BFLOAT16, 2, 8, 8, 4096, 77, 64), (1, 8, 1)),
        (Workload(BFLOAT16, 1, 8, 8, 65536, 128, 128), (1, 16, 1)),
    ],
    ids=str,
)
def test_few_tasks_are_cut_into_parts(work, cut):
    assert best_cut(work, HOPPER.sms)[1:4] == cut


def test_few_rows_are_added_to_in_several_chains():
    assert best_cut(Workload(BFLOAT16, 1, 16, 16, 128, 16384, 64), HOPPER.sms).chains > 1
    assert best_cut(Workload(BFLOAT16, 1, 16, 16, 128, 128, 64), HOPPER.sms).chains == 1


def test_blocks_add_up_as_many_columns_as_the_plan_counts_blocks_for():
    text = data_path("kernels/backward_once.cuh").read_text()
    assert re.findall(r"PIECES = COLUMNS / (\d+);", text) == [str(ADDED_COLUMNS)]

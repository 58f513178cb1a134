"""Several devices on one file: the bytes of one, shares by speed, and what happens when one of them fails."""

import re
import threading
from dataclasses import replace

import numpy as np
import pytest
from helpers import wait_until
from hypothesis import given, settings
from hypothesis import strategies as st
from moody import Moody, expected, expected_of_rows, interrupted_once, run_team

from hw4cli.errors import LostGpuError, MachineError
from hw4cli.problem.workload import Shape
from hw4cli.stream.layout import Layout
from hw4cli.stream.work import Part, Work, pairs, parts_of, stretches

pytestmark = pytest.mark.timeout(60)
GROUPS = Shape(40, 3, 4), Layout(group=2, piece=100, slots=2, readers=2, writers=1)
ROWS = Shape(3, 40, 4), Layout(group=1, piece=100, slots=2, readers=2, writers=1, rows=4)


def devices(shape, layout, count, **kwargs):
    return [Moody(shape, layout, delay=0.001, seed=seed, **kwargs) for seed in range(count)]


def right(shape, layout, source, target):
    return np.array_equal(target, (expected_of_rows if layout.rows else expected)(shape, source))


@settings(max_examples=40, deadline=None)
@given(
    B=st.integers(1, 12),
    N=st.integers(2, 20),
    rows=st.integers(0, 19),
    speeds=st.lists(st.sampled_from([1.0, 2.0, 5.0]), min_size=2, max_size=4),
)
def test_several_devices_write_the_bytes_of_one(B, N, rows, speeds):
    shape, layout = Shape(B, N, 4), Layout(group=1 if rows else 3, piece=90, slots=2, readers=2, writers=2)
    layout = replace(layout, group=min(layout.group, B), rows=min(rows, N - 1))
    source, target, said, team = run_team(shape, layout, devices(shape, layout, len(speeds)), speeds)
    assert right(shape, layout, source, target)
    assert sum(team.work.shares) == len(layout.parts(shape))
    assert said == []


def test_the_summary_says_which_device_computed_how_much_and_from_when_on():
    *_, team = run_team(*GROUPS, devices(*GROUPS, 2))
    parts = team.summary().partition("; parts: ")[2]
    first, second = team.work.shares
    assert re.fullmatch(rf"{first} by GPU 0, {second} by GPU 1 \(from \d\.\d\d s on\)", parts), parts


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize(("shape", "group", "rows"), [(Shape(100, 8, 4), 3, 8), (Shape(2, 1000, 4), 1, 10)])
@pytest.mark.parametrize("speeds", [[1], [1, 1], [1, 3], [2, 1, 1], [0.1, 8]])
def test_stretches_are_in_order_and_as_long_as_their_speeds(shape, group, rows, speeds, causal):
    shape = replace(shape, causal=causal)
    parts = parts_of(shape, group, rows)
    shares = stretches(parts, shape, speeds)
    assert [part for share in shares for part in share] == parts
    work = [sum(pairs(part, shape) for part in share) for share in shares]
    longest = max(pairs(part, shape) for part in parts)
    assert sum(work) == shape.pairs
    for done, speed in zip(work, speeds, strict=True):
        assert abs(done - sum(work) * speed / sum(speeds)) <= longest


def test_a_device_that_is_through_takes_the_last_parts_of_the_one_with_the_most_left():
    parts = [Part(n, 1, 0, 8) for n in range(10)]
    work = Work([parts[:1], parts[1:7], parts[7:]])
    assert [work.take(0) for _ in range(3)] == [parts[0], parts[6], parts[5]]
    assert work.take(2) == parts[7]
    assert work.leave(0) == 1
    taken = [work.take(2) for _ in range(9)]
    assert taken[:2] == [parts[8], parts[9]]
    assert set(taken[2:]) == {*parts[:7]}


def test_a_slow_device_computes_less():
    shape, layout = GROUPS
    fast, slow = devices(shape, layout, 2)
    slow.delay = 0.1
    source, target, _, team = run_team(shape, layout, [fast, slow])
    assert right(shape, layout, source, target)
    assert team.work.shares[0] > 2 * team.work.shares[1]


@pytest.mark.parametrize("stage", ["use", "buffer", "copy in", "start", "finish", "copy out"])
@pytest.mark.parametrize("after", [0, 4])
@pytest.mark.parametrize(("shape", "layout"), [GROUPS, ROWS])
@pytest.mark.parametrize("which", [0, 1])
def test_a_device_that_fails_leaves_its_parts_to_the_others(stage, after, shape, layout, which):
    three, before = devices(shape, layout, 3, error=MachineError), threading.active_count()
    for device in three:
        device.delay = 0.004  # so that each gets its turn on a busy machine
    three[which].fail = (stage, after)
    source, target, said, _ = run_team(shape, layout, three)
    assert right(shape, layout, source, target)
    assert said in ([], [f"GPU {which} failed, and the others compute its share: {stage} failed"])
    assert said or after, "it fails at its first use"
    threads_end(before)


def threads_end(before):
    """Those that have nothing left to do may still be at their last steps."""
    for thread in threading.enumerate():
        if thread is not threading.current_thread() and thread.daemon:
            thread.join(10)
    assert threading.active_count() <= before


def test_if_all_devices_fail_the_last_ones_error_is_raised():
    shape, layout = GROUPS
    with pytest.raises(MachineError, match="finish failed"):
        run_team(shape, layout, devices(shape, layout, 2, error=MachineError, fail=("finish", 3)))


@pytest.mark.parametrize("stage", ["read", "write"])
def test_a_file_that_fails_is_nobodys_device_that_failed(stage):
    shape, layout = GROUPS
    before = threading.active_count()
    with pytest.raises(MachineError, match=f"the file's {stage} failed"):
        run_team(shape, layout, devices(shape, layout, 3), fail=(stage, 5))
    threads_end(before)


def test_a_mistake_in_the_program_is_not_taken_for_a_device_that_failed():
    shape, layout = GROUPS
    with pytest.raises(TypeError):
        run_team(shape, layout, devices(shape, layout, 2, error=TypeError, fail=("finish", 3)))


def test_a_device_that_is_never_open_delays_nobody():
    shape, layout = GROUPS
    release = threading.Event()
    source, target, said, team = run_team(
        shape, layout, devices(shape, layout, 2), opening=lambda number: number and release.wait(30)
    )
    assert right(shape, layout, source, target)
    assert team.work.shares == [20, 0]
    assert said == []
    release.set()


def test_a_device_that_cannot_be_opened_is_reported_and_done_without():
    shape, layout = GROUPS

    def opening(number):
        if number == 1:
            raise MachineError("it is broken")

    first, second = devices(shape, layout, 2)
    first.delay = 0.02
    source, target, said, _ = run_team(shape, layout, [first, second], opening=opening)
    assert right(shape, layout, source, target)
    assert said == ["GPU 1 failed, and the others compute its share: it is broken"]


@pytest.mark.parametrize("broken", [{0}, {0, 1}, {0, 2}])
def test_the_first_device_cannot_be_opened_and_another_takes_its_place(broken):
    shape, layout = GROUPS

    def opening(number):
        if number in broken:
            raise MachineError("it is broken")

    three = devices(shape, layout, 3)
    for device in three:
        device.delay = 0.01
    source, target, said, team = run_team(shape, layout, three, opening=opening)
    assert right(shape, layout, source, target)
    assert said == [f"GPU {n} failed, and the others compute its share: it is broken" for n in sorted(broken)]
    assert "GPU 0" not in team.summary()


def test_if_no_device_can_be_opened_the_last_ones_error_is_raised():
    shape, layout = GROUPS

    def opening(number):
        raise MachineError(f"{number} is broken")

    with pytest.raises(MachineError, match="1 is broken"):
        run_team(shape, layout, devices(shape, layout, 2), opening=opening)


def test_ctrl_c_ends_all_devices_threads():
    shape, layout = Shape(2000, 5, 4), Layout(group=1, piece=100, slots=2, readers=2, writers=1)
    before = set(threading.enumerate())
    both = devices(shape, layout, 2)
    for device in both:
        device.delay = 0.005
    with interrupted_once(lambda: all(device.computed for device in both)):
        run_team(shape, layout, both)
    wait_until(lambda: set(threading.enumerate()) <= before)
    assert all(device.cancelled.is_set() for device in both)


@pytest.mark.parametrize(("count", "others"), [(3, 2), (1, 0)])
def test_where_all_devices_are_lost_the_error_names_those_to_begin_again_with(count, others):
    broken = [Moody(*GROUPS, fail=("start", 0), error=LostGpuError) for _ in range(count)]
    with pytest.raises(LostGpuError) as raised:
        run_team(*GROUPS, broken)
    assert len(raised.value.others) == len({*raised.value.others} & {*range(count)}) == others

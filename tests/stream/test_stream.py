"""The streaming pipeline on a device that is slow and moody: every byte arrives, computed by the right kernel."""

import time
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from moody import PLUS, Moody, expected, expected_of_rows, run

from hw4cli.problem.workload import Shape
from hw4cli.stream.layout import GROUP_BYTES, PIECE_BYTES, Layout, choose_layout
from hw4cli.stream.timeline import Timeline, union

pytestmark = pytest.mark.timeout(60)


layouts = st.builds(
    Layout,
    group=st.integers(1, 7),
    piece=st.integers(1, 3000),
    slots=st.integers(1, 5),
    readers=st.integers(1, 6),
    writers=st.integers(1, 4),
)


def delay_of(shape, layout):
    """Seconds, less for many small pieces: each is delayed."""
    return min(0.001, 0.3 * layout.piece / (12 * shape.elements))


@settings(max_examples=60, deadline=None)
@given(B=st.integers(1, 20), N=st.integers(1, 9), layout=layouts, slots=st.integers(1, 3), slow=st.booleans())
def test_every_byte_arrives_whatever_the_layout_and_the_delays(B, N, layout, slots, slow):
    shape = Shape(B, N, 4)
    device = Moody(shape, layout, delay=delay_of(shape, layout) if slow else 0, slots=slots)
    source, target = run(shape, layout, device)
    assert np.array_equal(target, expected(shape, source))


def test_no_buffer_is_larger_than_a_piece_and_none_for_results_than_those_of_a_group():
    shape, asked = Shape(3, 8, 4), []

    class Noting(Moody):
        def buffer(self, size):
            asked.append(size)
            return super().buffer(size)

    layout = Layout(group=2, piece=1 << 20, slots=2, readers=1, writers=1)
    run(shape, layout, Noting(shape, layout))
    assert sorted(asked) == [2 * 4 * 8 * 4, layout.piece]


@settings(max_examples=60, deadline=None)
@given(
    B=st.integers(1, 5),
    N=st.integers(2, 20),
    rows=st.integers(1, 19),
    layout=layouts,
    slots=st.integers(1, 3),
    slow=st.booleans(),
)
def test_large_batches_are_computed_by_ranges_of_rows_that_share_k_and_v(B, N, rows, layout, slots, slow):
    shape, layout = Shape(B, N, 4), replace(layout, group=1, rows=min(rows, N - 1))
    device = Moody(shape, layout, delay=delay_of(shape, layout) if slow else 0, slots=slots)
    read = []
    source, target = run(shape, layout, device, note_read=lambda size, offset: read.append(size))
    assert np.array_equal(target, expected_of_rows(shape, source))
    assert sum(read) == len(source), "each byte is read once"


def answer(shape, layout, source, kernels):
    """What the output must be if group g needs kernels[g]."""
    result = expected(shape, source, plus=0).reshape(shape.B, -1).copy()
    for group, kernel in enumerate(kernels):
        result[group * layout.group : (group + 1) * layout.group] += PLUS[kernel]
    return result.reshape(-1)


def test_only_the_groups_that_need_it_are_computed_again():
    shape, layout = Shape(10, 3, 4), Layout(group=3, piece=64, slots=2, readers=2, writers=2)
    needs = ["fast", "slow", "fast", "slowest"]
    device = Moody(shape, layout)
    source, target = run(shape, layout, device, choose=lambda part, found: needs[part.first // 3])
    assert np.array_equal(target, answer(shape, layout, source, needs))
    assert sorted(device.computed) == [("fast", 1), ("fast", 3), ("fast", 3), ("fast", 3), ("slow", 3), ("slowest", 1)]


@settings(max_examples=40, deadline=None)
@given(
    needs=st.lists(st.sampled_from(sorted(PLUS)), min_size=1, max_size=12),
    slots=st.integers(1, 4),
    writers=st.integers(1, 3),
    seed=st.integers(0, 99),
)
def test_each_groups_answer_is_its_own_kernels_whatever_ran_before_and_when(needs, slots, writers, seed):
    shape, layout = Shape(2 * len(needs), 3, 4), Layout(group=2, piece=64, slots=slots, readers=3, writers=writers)
    device = Moody(shape, layout, delay=0.001, seed=seed)
    source, target = run(shape, layout, device, choose=lambda part, found: needs[part.first // 2])
    assert np.array_equal(target, answer(shape, layout, source, needs))
    assert len(device.computed) <= 2 * len(needs)


def test_a_file_that_needs_another_kernel_throughout_is_not_computed_twice():
    shape, layout = Shape(40, 3, 4), Layout(group=1, piece=1 << 20, slots=3, readers=2, writers=2)
    device = Moody(shape, layout, delay=0.001)
    source, target = run(shape, layout, device, choose=lambda *_: "slow")
    assert np.array_equal(target, answer(shape, layout, source, ["slow"] * 40))
    # The first two, and those that were under way when the second was found out.
    assert len([kernel for kernel, _ in device.computed if kernel == "fast"]) <= 2 + 3 + 2


def test_one_group_in_a_file_that_needs_another_kernel_changes_nothing_for_the_others():
    shape, layout = Shape(40, 3, 4), Layout(group=1, piece=1 << 20, slots=3, readers=2, writers=1)
    device = Moody(shape, layout, delay=0.001)
    run(shape, layout, device, choose=lambda part, *_: "slow" if part.first == 7 else "fast")
    assert len(device.computed) == 41


def test_stages_work_at_the_same_time():
    shape, layout = Shape(10, 4, 4), Layout(group=1, piece=1 << 20, slots=4, readers=2, writers=2)
    device = Moody(shape, layout)
    at_work, together = [], set()

    def pause(stage):
        at_work.append(stage)
        together.add(frozenset(at_work))
        time.sleep(0.02)
        at_work.remove(stage)

    device.pause = pause
    run(shape, layout, device)
    assert max(map(len, together)) >= 3, together


def test_a_single_batch_larger_than_a_piece_is_copied_while_it_is_read():
    shape = Shape(1, 400, 4)
    layout = Layout(group=1, piece=1200, slots=1, readers=2, writers=1)
    events = []
    device = Moody(shape, layout)
    device.pause = lambda stage: (events.append(stage), time.sleep(0.002))
    run(shape, layout, device)
    assert events.index("copy in") < len(events) - 1 - events[::-1].index("read")


@given(
    B=st.integers(1, 20000),
    N=st.sampled_from([1, 128, 2048, 32768, 1 << 20]),
    d=st.sampled_from([4, 32, 64, 128]),
    cores=st.integers(1, 128),
)
def test_a_layout_is_sensible_for_any_file_and_machine(B, N, d, cores):
    shape = Shape(B, N, d)
    layout = choose_layout(shape, cores)
    batch = 12 * N * d
    assert 1 <= layout.group <= B
    assert layout.group == 1 or layout.group * batch <= GROUP_BYTES
    assert 1 <= layout.piece <= PIECE_BYTES
    assert 1 <= layout.readers <= max(2, cores)
    assert min(layout.slots, layout.writers) >= 1
    # Host memory: what all threads' buffers take together.
    assert (layout.readers + layout.writers) * layout.piece <= 40 << 20


def test_a_union_of_spans_counts_no_moment_twice():
    assert union([(3, 4), (1, 2), (1.5, 2.5), (2.5, 2.6)]) == [(1, 2.6), (3, 4)]


def test_a_stage_that_lasts_to_the_end_fills_its_bar_to_the_end():
    timeline = Timeline()
    start, end = timeline.origin, timeline.origin + 2.0
    assert timeline._bar([(start, end)], 2.0, 8) == "|████████|"
    assert timeline._bar([(start + 1.5, end)], 2.0, 8) == "|      ██|"
    assert timeline._bar([(start, start + 0.9)], 2.0, 8) == "|████    |"

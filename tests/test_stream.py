"""The streaming pipeline on a device that is slow, moody and sometimes broken: nothing is lost, nothing hangs."""

import os
import random
import signal
import threading
import time

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hw4cli.shape import Shape
from hw4cli.stopwatch import Stopwatch, union
from hw4cli.stream import GROUP_BYTES, PIECE_BYTES, Files, Layout, Stream, layout

pytestmark = pytest.mark.timeout(60)


PLUS = {"fast": np.uint8(1), "slow": np.uint8(2), "slowest": np.uint8(3)}


class Moody:
    """A device whose "attention" is the first third of a batch, plus 1 by the kernel "fast", 2 by "slow" and 3 by
    "slowest", after random delays; watches its own use."""

    def __init__(self, shape, plan, delay=0.0, fail=None, lanes=None, seed=0):
        self.shape, self.plan, self.delay, self.fail, self.most = shape, plan, delay, fail, lanes
        self.random = random.Random(seed)
        self.computed = []  # (kernel, batches) of each start

    def pause(self, stage):
        if self.delay:
            time.sleep(self.random.random() * self.delay)
        if self.fail and self.fail[0] == stage:
            self.fail = (stage, self.fail[1] - 1)
            if self.fail[1] < 0:
                raise OSError(f"{stage} failed")

    @property
    def batches(self):
        return self.plan.group

    def lanes(self, wanted):
        return min(wanted, self.most or wanted)

    def buffer(self, size):
        self.pause("buffer")
        return np.full(size, 0xEE, np.uint8)

    def lane(self):
        return MoodyLane(self)


class MoodyLane:
    def __init__(self, device):
        self.device = device
        self.batch = 12 * device.shape.N * device.shape.d
        self.space = np.zeros(device.plan.group * self.batch, np.uint8)
        self.filled, self.again = 0, False
        self.lock = threading.Lock()

    def copy_in(self, buffer, offset):
        self.device.pause("copy in")
        self.space[offset : offset + len(buffer)] = buffer
        with self.lock:
            self.filled += len(buffer)
            self.again = False

    def start(self, batches, kernel):
        self.device.pause("start")
        self.device.computed.append((kernel, batches))
        if not self.again:
            assert self.filled == batches * self.batch, "started before all pieces were in, or with a stranger's"
        self.filled, self.again = 0, False
        thirds = self.space[: batches * self.batch].reshape(batches, 3, -1)
        self.result = (thirds[:, 0] + PLUS[kernel]).reshape(-1)

    def finish(self):
        self.device.pause("finish")
        self.again = True  # until new pieces come in, a start is a repetition
        return 1.0, 2.0, 3.0

    def copy_out(self, offset, buffer):
        self.device.pause("copy out")
        buffer[:] = self.result[offset : offset + len(buffer)]


def run(shape, plan, device, source=None, choose=lambda *_: "fast", read=None, write=None):
    """Stream random bytes through a device; returns the input and the output."""
    size = 12 * shape.elements
    source = np.random.default_rng(0).integers(0, 256, size, np.uint8) if source is None else source
    target = np.zeros(size // 3, np.uint8)

    def copy_from(buffer, offset):
        device.pause("read")
        buffer[:] = source[offset : offset + len(buffer)]

    def copy_to(buffer, offset):
        device.pause("write")
        target[offset : offset + len(buffer)] = buffer

    stream = Stream(shape, plan, device, Files(read or copy_from, write or copy_to), "fast", choose, Stopwatch())
    stream.run()
    return source, target


def expected(shape, source, plus=1):
    return (source.reshape(shape.B, 3, -1)[:, 0] + np.uint8(plus)).reshape(-1)


plans = st.builds(
    Layout,
    group=st.integers(1, 7),
    piece=st.integers(1, 3000),
    lanes=st.integers(1, 5),
    readers=st.integers(1, 6),
    writers=st.integers(1, 4),
)


@settings(max_examples=60, deadline=None)
@given(B=st.integers(1, 20), N=st.integers(1, 9), plan=plans, lanes=st.integers(1, 3), slow=st.booleans())
def test_every_byte_arrives_whatever_the_layout_and_the_delays(B, N, plan, lanes, slow):
    shape = Shape(B, N, 4)
    device = Moody(shape, plan, delay=0.001 if slow else 0, lanes=lanes)
    source, target = run(shape, plan, device)
    assert np.array_equal(target, expected(shape, source))


@pytest.mark.parametrize("stage", ["buffer", "read", "copy in", "start", "finish", "copy out", "write"])
@pytest.mark.parametrize("after", [0, 3])
def test_an_error_in_any_stage_ends_all_threads_and_is_raised(stage, after):
    shape, plan = Shape(30, 5, 4), Layout(group=2, piece=100, lanes=3, readers=4, writers=2)
    before = threading.active_count()
    with pytest.raises(OSError, match=f"{stage} failed"):
        run(shape, plan, Moody(shape, plan, delay=0.001, fail=(stage, after)))
    assert threading.active_count() == before


def test_ctrl_c_ends_all_threads():
    shape, plan = Shape(2000, 5, 4), Layout(group=1, piece=100, lanes=2, readers=2, writers=1)
    before = threading.active_count()
    timer = threading.Timer(0.3, os.kill, (os.getpid(), signal.SIGINT))
    timer.start()
    with pytest.raises(KeyboardInterrupt):
        run(shape, plan, Moody(shape, plan, delay=0.005))
    timer.join()
    assert threading.active_count() == before


def test_a_stage_that_never_ends_but_fails_elsewhere_does_not_hang_the_waiters():
    """The writer fails at once: readers that wait for a lane must be told."""
    shape, plan = Shape(50, 5, 4), Layout(group=1, piece=240, lanes=1, readers=6, writers=1)
    with pytest.raises(OSError, match="write failed"):
        run(shape, plan, Moody(shape, plan, fail=("write", 0)))


def answer(shape, plan, source, kernels):
    """What the output must be if group g needs kernels[g]."""
    result = expected(shape, source, plus=0).reshape(shape.B, -1).copy()
    for group, kernel in enumerate(kernels):
        result[group * plan.group : (group + 1) * plan.group] += PLUS[kernel]
    return result.reshape(-1)


def test_only_the_groups_that_need_it_are_computed_again():
    shape, plan = Shape(10, 3, 4), Layout(group=3, piece=64, lanes=2, readers=2, writers=2)
    needs = ["fast", "slow", "fast", "slowest"]
    device = Moody(shape, plan)
    source, target = run(shape, plan, device, choose=lambda first, batches, found: needs[first // 3])
    assert np.array_equal(target, answer(shape, plan, source, needs))
    assert sorted(device.computed) == [("fast", 1), ("fast", 3), ("fast", 3), ("fast", 3), ("slow", 3), ("slowest", 1)]


@settings(max_examples=40, deadline=None)
@given(
    needs=st.lists(st.sampled_from(sorted(PLUS)), min_size=1, max_size=12),
    lanes=st.integers(1, 4),
    writers=st.integers(1, 3),
    seed=st.integers(0, 99),
)
def test_each_groups_answer_is_its_own_kernels_whatever_ran_before_and_when(needs, lanes, writers, seed):
    shape, plan = Shape(2 * len(needs), 3, 4), Layout(group=2, piece=64, lanes=lanes, readers=3, writers=writers)
    device = Moody(shape, plan, delay=0.001, seed=seed)
    source, target = run(shape, plan, device, choose=lambda first, batches, found: needs[first // 2])
    assert np.array_equal(target, answer(shape, plan, source, needs))
    assert len(device.computed) <= 2 * len(needs)


def test_a_file_that_needs_another_kernel_throughout_is_not_computed_twice():
    shape, plan = Shape(40, 3, 4), Layout(group=1, piece=1 << 20, lanes=3, readers=2, writers=2)
    device = Moody(shape, plan, delay=0.001)
    source, target = run(shape, plan, device, choose=lambda *_: "slow")
    assert np.array_equal(target, answer(shape, plan, source, ["slow"] * 40))
    # The first two, and those that were under way when the second was found out.
    assert len([kernel for kernel, _ in device.computed if kernel == "fast"]) <= 2 + 3 + 2


def test_one_group_in_a_file_that_needs_another_kernel_changes_nothing_for_the_others():
    shape, plan = Shape(40, 3, 4), Layout(group=1, piece=1 << 20, lanes=3, readers=2, writers=1)
    device = Moody(shape, plan, delay=0.001)
    run(shape, plan, device, choose=lambda first, *_: "slow" if first == 7 else "fast")
    assert len(device.computed) == 41


def test_stages_work_at_the_same_time():
    """Each stage takes 20 ms a group: one after the other 10 groups would take 0.8 s."""
    shape, plan = Shape(10, 4, 4), Layout(group=1, piece=1 << 20, lanes=4, readers=2, writers=2)
    device = Moody(shape, plan)
    device.pause = lambda stage: time.sleep(0.02) if stage in ("read", "copy in", "finish", "write") else None
    start = time.perf_counter()
    run(shape, plan, device)
    assert time.perf_counter() - start < 0.6


def test_a_single_batch_larger_than_a_piece_is_copied_while_it_is_read():
    shape = Shape(1, 400, 4)
    plan = Layout(group=1, piece=1200, lanes=1, readers=2, writers=1)
    events = []
    device = Moody(shape, plan)
    device.pause = lambda stage: (events.append(stage), time.sleep(0.002))
    run(shape, plan, device)
    assert events.index("copy in") < len(events) - 1 - events[::-1].index("read")


@given(
    B=st.integers(1, 20000),
    N=st.sampled_from([1, 128, 2048, 32768, 1 << 20]),
    d=st.sampled_from([4, 32, 64, 128]),
    cores=st.integers(1, 128),
)
def test_a_layout_is_sensible_for_any_file_and_machine(B, N, d, cores):
    shape = Shape(B, N, d)
    plan = layout(shape, cores)
    batch = 12 * N * d
    assert 1 <= plan.group <= B
    assert plan.group == 1 or plan.group * batch <= GROUP_BYTES
    assert 1 <= plan.piece <= PIECE_BYTES
    assert 1 <= plan.readers <= max(2, cores)
    assert min(plan.lanes, plan.writers) >= 1
    # Host memory: what all threads' buffers take together.
    assert (plan.readers + plan.writers) * plan.piece <= 40 << 20


def test_a_union_of_spans_counts_no_moment_twice():
    assert union([(3, 4), (1, 2), (1.5, 2.5), (2.5, 2.6)]) == [(1, 2.6), (3, 4)]

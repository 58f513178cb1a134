"""The shapes and data on which `hw4 check --run` executes a kernel, and the mistakes that some of them alone show."""

import numpy as np
import pytest
from faults import Fault
from slow import slow
from test_faults import kernel_with

from hw4cli.emulator.build import RACE
from hw4cli.emulator.check import (
    ALL_FULL,
    BELOW,
    CAUSAL_SOME,
    FAR,
    FEW,
    HUGE_SHAPES,
    LEAST_SECONDS,
    LONG,
    PROMOTED,
    RANDOM_DATA,
    SCHEDULES,
    SLOW_RATE,
    SOME,
    TAILS,
    UNEVEN,
    WHOLE,
    check_kernel,
    make_data,
    trials_of,
)
from hw4cli.plans.common import converters_of
from hw4cli.plans.ladder import VARIANTS
from hw4cli.plans.plan import DEVICES
from hw4cli.problem.oracle import exact_attention
from hw4cli.problem.workload import Workload
from hw4cli.resources import data_path

Shape = Workload.one_head

# A mistake; the shapes and data that show it; and some that do not.
ONLY_HERE = {
    "whole tiles: a tile is asked for that is not there": (
        Fault("", "flash", "if (mask.keys > BC) K.start(", "if (mask.keys >= BC) K.start(", ""),
        (WHOLE[:1], [RANDOM_DATA]),
        (TAILS[1:2], [RANDOM_DATA]),
    ),
    "rows of other keys: the mask forgets the offset": (
        Fault("", "warp", "mask.last = row + p.causal_offset - key", "mask.last = row - key", "", file="mask.cuh"),
        (CAUSAL_SOME, [RANDOM_DATA]),
        ([Shape(1, 131, 64, causal=True)], [RANDOM_DATA]),
    ),
    "scores far below 0: the maximum begins at 0": (
        Fault("", "warp", "m[r] = BELOW_ALL_SCORES;", "m[r] = 0;", ""),
        (SOME, [BELOW]),
        (SOME, [RANDOM_DATA]),
    ),
    "batches far apart: a stride is cut to 32 bits": (
        Fault(
            "", "warp", "m.data + batch * m.batch +", "m.data + int(batch) * int(m.batch) +", "", file="schedule.cuh"
        ),
        (FAR, [RANDOM_DATA]),
        (TAILS[2:3], [RANDOM_DATA]),
    ),
    "a pass of few blocks: a thread leaves its last piece": (
        Fault("", "split", "n < CONVERT_CHUNKS; n++", "n < CONVERT_CHUNKS - 1; n++", "", file="convert.cuh"),
        (LONG[2:], [RANDOM_DATA]),
        ([Shape(1, 300, 128)], [RANDOM_DATA]),
    ),
}


@slow
@pytest.mark.parametrize("name", ONLY_HERE)
def test_a_trial_shows_what_others_do_not(name, tmp_path):
    fault, shown, not_shown = ONLY_HERE[name]
    source = kernel_with(fault, tmp_path)

    def found(shapes, data, **how):
        return check_kernel(VARIANTS[fault.kernel], source, shapes=shapes, data=data, builds=[RACE], **how)

    assert found(*shown, orders=SCHEDULES[:1])
    assert found(*not_shown) == []


def test_a_kernel_is_tried_on_every_way_that_it_has_and_on_no_other():
    def tried(name, cc):
        return [trial.shape for trial in trials_of(VARIANTS[name], DEVICES[cc])]

    assert set(tried("warp", 80)) == {*TAILS, *WHOLE, *SOME, *FAR, *HUGE_SHAPES}
    assert PROMOTED[0] in tried("exact", 80) and PROMOTED[1] not in tried("exact", 80)
    assert PROMOTED[1] in tried("split", 80) and PROMOTED[0] not in tried("split", 80)
    few = [trial for trial in trials_of(VARIANTS["split8"], DEVICES[90]) if 1 < trial.props.sms < 10]
    assert [(trial.shape, trial.props.sms) for trial in few] == [*FEW]
    converters = [converters_of(trial.shape, trial.plan.macros, trial.plan.splits).blocks for trial in few]
    assert 0 in converters and max(converters) > 0
    assert not [trial for trial in trials_of(VARIANTS["split8"], DEVICES[80]) if 1 < trial.props.sms < 10]


def test_the_shapes_have_whole_tiles_some_rows_and_sums_that_are_promoted_twice():
    assert {shape.N % 128 for shape in WHOLE} == {0}
    assert all(shape.Nq != shape.N and shape.offset for shape in (*SOME, *PROMOTED))
    assert {*WHOLE, *SOME, *FAR, *PROMOTED} < {*ALL_FULL}


def test_data_far_below_0_has_no_weight_without_its_maximum_and_uneven_data_is_between_fp16s_numbers():
    below, uneven = (make_data(kind, Shape(1, 70, 64)).astype(np.float64) for kind in (BELOW, UNEVEN))
    scores = below[0, 0] @ below[0, 1].T / 8
    assert np.exp(scores.max()) < 1e-38 and np.abs(below[:, 2]).min() >= 1
    norms = np.abs(uneven[0, :2]).max(axis=2)
    assert (norms.max(axis=1) > 7 * norms.min(axis=1)).all()
    lost = np.abs(uneven[:, :2] - uneven[:, :2].astype(np.float16)) / np.abs(uneven[:, :2])
    assert np.median(lost) > 2**-12


@slow
def test_a_run_may_take_as_long_as_its_work_needs_on_a_slow_machine(tmp_path):
    def seconds(shape):
        [trial] = trials_of(VARIANTS["flash"], shapes=[shape])
        return {job.seconds for _, job in trial.jobs(tmp_path / "made.so", 32, RACE)}.pop()

    long = Shape(1, 2500, 64)
    assert seconds(Shape(1, 64, 64)) == pytest.approx(LEAST_SECONDS, rel=0.05)
    assert seconds(long) == LEAST_SECONDS + long.flops / SLOW_RATE > 600


@slow
def test_some_rows_are_compared_with_the_whole_answer_and_the_others_stay_as_they_were():
    assert check_kernel(VARIANTS["naive"], shapes=[*SOME, *CAUSAL_SOME], data=[RANDOM_DATA], builds=[RACE]) == []
    block = make_data(RANDOM_DATA, SOME[0])
    assert not np.allclose(exact_attention(block), exact_attention(block, causal=True))


@slow
def test_an_endless_loop_is_told_long_before_the_time_is_up(tmp_path, monkeypatch):
    text = data_path("kernels/naive.cu").read_text()
    old = "const int lane = threadIdx.x % SOFTMAX_LANES;"
    assert old in text
    loop = "float x = p.scale; while (x == p.scale) x = p.scale * (1 + 0 * x);"
    (tmp_path / "naive.cu").write_text(text.replace(old, f"{loop} {old} if (x == 0) return;"))
    [first, *_] = check_kernel(
        VARIANTS["naive"], tmp_path / "naive.cu", shapes=TAILS[1:2], data=[RANDOM_DATA], builds=[RACE]
    )
    assert first.kind == "hang" and "thread 0 has been in a loop for 5 s in which it meets no other" in first.sentence

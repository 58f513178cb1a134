"""hw4cli.attention on NumPy's arrays that nobody expects: hostile values, arrays that share memory, options of other
types, Ctrl-C."""

import re
import resource
import signal
import subprocess
import sys
import warnings
from dataclasses import replace

import numpy as np
import psutil
import pytest
from definitions import definition
from halves import assert_right, random_words
from helpers import wait_until
from slow import few, quick_of_each

import hw4cli
from hw4cli.plans.kernels16 import KERNELS16
from hw4cli.problem.workload import FLOAT16, SCALES, Workload

TOLERANCE = 5e-3


def arrays(rows=40, keys=50, d=16, reach=3.0):
    rng = np.random.default_rng(1)
    return [rng.uniform(-reach, reach, (1, 2, n, d)).astype(np.float32) for n in (rows, keys, keys)]


def exact(q, k, v, scale=None):
    wide = [x.astype(np.float64) for x in (q, k, v)]
    return definition(*wide, scale or q.shape[-1] ** -0.5, None)[0]


@pytest.mark.parametrize(
    "factors", [(1, 1, 1), (1e3, 1e3, 1), (1e20, 1e20, 1), (1, 1, 2e4), (1e-30, 1e-30, 1e-30), (3e37, 1e-3, 1)]
)
def test_float32_answers_are_within_the_tolerance_whatever_the_range_of_the_elements(factors):
    q, k, v = (x * np.float32(factor) for x, factor in zip(arrays(d=64), factors, strict=True))
    o = hw4cli.attention(q, k, v)
    assert np.abs(o - exact(q, k, v)).max() <= TOLERANCE


def test_float32_computes_where_norms_allow_it_though_elements_do_not():
    q, k, v = arrays(d=128)
    q[..., 1:], q[0, 0, 0, 0] = q[..., 1:] / 10, 40
    assert np.array_equal(hw4cli.attention(q, k, v), hw4cli.attention(q, k, v, max_error=1))


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf, 3.4e38, 1e-45, -0.0])
@pytest.mark.parametrize("part", range(3))
def test_values_of_any_kind_warn_of_nothing_and_spoil_no_other_head(value, part):
    given = arrays()
    expected = hw4cli.attention(*given)
    given[part][0, 0, 3, 5] = value
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        o, lse = hw4cli.attention(*given, return_lse=True)
        hw4cli.attention_backward(o, *given, o, lse)
    assert np.abs(o[0, 1] - expected[0, 1]).max() < 1e-5
    assert np.isfinite(o).all() == bool(np.isfinite(value))


def test_the_answer_may_take_the_place_of_q():
    q, k, v = arrays(rows=3000, keys=3000)
    expected = hw4cli.attention(q, k, v)
    assert np.array_equal(hw4cli.attention(q, k, v, out=q), expected)


def test_the_answer_may_lie_between_other_arrays_in_one():
    packed = np.zeros((1, 40, 8, 16), np.float32)
    packed[:, :, :6] = np.random.default_rng(2).uniform(-1, 1, (1, 40, 6, 16))
    q, k, v, out = (packed[:, :, n : n + 2] for n in (0, 2, 4, 6))
    expected = hw4cli.attention(q.copy(), k.copy(), v.copy(), layout="BNHD")
    assert np.array_equal(hw4cli.attention(q, k, v, layout="BNHD", out=out), expected)


def places(out):
    """q, k, v, and an `out` that is no place for the answer."""
    block = np.zeros((1, 2, 100, 16), np.float32)
    q, k, v = arrays(rows=50)
    if out == "k":
        return q, block[:, :, :50], v, block[:, :, 30:80]
    if out == "q":
        return block[:, :, :50], k, v, block[:, :, 1:51]
    if out == "backwards":
        return block[:, :, :50], k, v, block[:, :, :50][:, :, ::-1]
    if out == "itself":
        return q, k, v, np.lib.stride_tricks.as_strided(block, q.shape, (0, 64, 64, 4))
    block.setflags(write=False)
    return q, k, v, block[:, :, :50]


@pytest.mark.parametrize(
    ("where", "words"),
    [
        ("k", "out shares memory with k"),
        ("q", "out shares memory with q, but is not the same array"),
        ("backwards", "out shares memory with q, but is not the same array"),
        ("itself", "elements of out share memory"),
        ("read-only", "out is read-only"),
    ],
)
def test_a_place_that_cannot_hold_the_answer_is_refused(where, words):
    q, k, v, out = places(where)
    before = out.copy()
    with pytest.raises(ValueError, match=words):
        hw4cli.attention(q, k, v, out=out)
    assert np.array_equal(out, before)


OTHER_TYPES = {
    "scale is [0.5]: give a number": {"scale": [0.5]},
    "scale is 1j: give a number": {"scale": 1j},
    "scale is array([0.5, 0.5]): give a number": {"scale": np.array([0.5, 0.5])},
    "scale is a ndarray: give a number": {"scale": np.zeros((9, 9))},
    "one of bounds is None: give a number": {"bounds": (1, None, 2)},
    "one of bounds is 'a': give a number": {"bounds": "abc"},
    "causal is array([ True, False]): give True or False": {"causal": np.array([True, False])},
    "return_lse is 'False': give True or False": {"return_lse": "False"},
}


@pytest.mark.parametrize("sentence", OTHER_TYPES)
def test_an_option_of_another_type_is_refused_in_a_sentence(sentence):
    q, k, v = arrays()
    with pytest.raises(TypeError, match=rf"^{re.escape(sentence)}"):
        hw4cli.attention(**{"q": q, "k": k, "v": v, **OTHER_TYPES[sentence]})


@pytest.mark.parametrize("scale", [1e39, 10**400, float("inf"), float("nan"), 0, 1e-38, 1e-46])
def test_a_scale_that_float32_does_not_hold_is_refused(scale):
    with pytest.raises(ValueError, match=r"scale is .*: it must be a positive number, from 1e-37 to 1e\+38"):
        hw4cli.attention(*arrays(), scale=scale)


@pytest.mark.parametrize("kernel", few(KERNELS16, 1))
def test_with_the_least_scale_keys_are_still_hidden(kernel):
    work = Workload(FLOAT16, 1, 2, 1, 100, 70, 40, causal=True, offset=-30)
    assert_right(replace(work, scale=SCALES[0]), *random_words(work), kernel=kernel)


@quick_of_each(1)
@pytest.mark.parametrize("sizes", [(130, 200, 40), (100, 120, 40), (70, 90, 128)], ids=str)
@pytest.mark.parametrize("kernel", KERNELS16)
def test_nothing_is_written_between_the_rows_of_the_answer(kernel, sizes):
    Nq, Nk, d = sizes
    work = Workload(FLOAT16, 2, 2, 1, Nq, Nk, d)
    assert_right(work, *random_words(work), kernel=kernel, gap=24)


@pytest.mark.parametrize("part", ["q", "k"])
def test_more_rows_than_kernels_count_are_refused_before_memory_is_asked_for(part):
    few = np.zeros((1, 1, 5, 8), np.float16)
    many = np.broadcast_to(np.float16(0), (1, 1, 2**31, 8))
    q, k = (many, few) if part == "q" else (few, many)
    with pytest.raises(ValueError, match=f"^N{part} is 2,147,483,648: it must be at most 1,073,741,824$"):
        hw4cli.attention(q, k, k)


def test_a_layout_that_is_no_text_is_refused():
    with pytest.raises(ValueError, match=r"layout is \[\]: give 'BHND' or 'BNHD'"):
        hw4cli.attention(*arrays(), layout=[])


def test_options_may_be_numbers_of_numpy():
    q, k, v = arrays()
    expected = hw4cli.attention(q, k, v, scale=0.5, causal=True, max_error=1e-3, bounds=(3, 3, 3))
    o = hw4cli.attention(
        q, k, v, scale=np.array(0.5), causal=np.True_, max_error=np.float32(1e-3), bounds=np.full(3, 3.0)
    )
    assert np.array_equal(o, expected)


INTERRUPTED = """
import numpy as np, hw4cli, sys
q = np.ones((1, 1, 60000, 64), np.float32)
if sys.argv[1] == "forward":
    print("begun", flush=True)
    hw4cli.attention(q, q, q)
else:
    lse = np.zeros((1, 1, 60000), np.float32)
    print("begun", flush=True)
    hw4cli.attention_backward(q, q, q, q, q, lse)
"""


@quick_of_each(1)
@pytest.mark.parametrize("direction", ["forward", "backward"])
def test_ctrl_c_ends_the_cpu_within_a_tasks_time(direction):
    command = [sys.executable, "-c", INTERRUPTED, direction]
    earlier = resource.getrusage(resource.RUSAGE_CHILDREN).ru_utime
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as running:
        assert running.stdout.readline() == "begun\n"
        before = psutil.Process(running.pid).cpu_times().user
        wait_until(lambda: psutil.Process(running.pid).cpu_times().user - before > 0.5, running)
        running.send_signal(signal.SIGINT)
        _, problem = running.communicate()
    took = resource.getrusage(resource.RUSAGE_CHILDREN).ru_utime - earlier
    assert took < 25, "of the processors' seconds: all of it takes minutes"
    assert problem.rstrip().endswith("KeyboardInterrupt")

"""Gradients of sequences of several lengths in one launch, executed on the CPU and compiled: each is right by itself,
no row or key of none is read, and no word of none is written."""

import re

import numpy as np
import pytest
from halves import numbers, rounded
from slow import quick_of_each, slow, slow_of_each

from hw4cli.arrays.gradients.emulated import run_backward
from hw4cli.arrays.sequences import asked, sequences_of
from hw4cli.device.kernelcheck import compiler_for
from hw4cli.device.machinecode import OPTIONS
from hw4cli.emulator.library import FORWARDS, REVERSE, Schedule
from hw4cli.plans import gradients as choice
from hw4cli.plans.plan import DEVICES
from hw4cli.problem.oracle import exact_gradients, exact_heads
from hw4cli.problem.workload import BFLOAT16, BOTTOM_RIGHT, FLOAT16, FLOAT32, Workload
from hw4cli.resources import kernel_source

pytestmark = quick_of_each(1)
ROWS, KEYS = [0, 1, 127, 128, 129, 40, 7], [3, 129, 128, 127, 1, 300, 0]
ERROR = {FLOAT16: 4e-3, BFLOAT16: 3e-2, FLOAT32: 1e-5}  # of the largest gradient
WAYS = {  # kernel, type, d, causal, window
    "fragments": ("backward_mma", FLOAT16, 32, True, 0),
    "fragments, a window": ("backward_mma", FLOAT16, 64, True, 50),
    "fragments, wide": ("backward_mma", BFLOAT16, 128, False, 0),
    "fragments, float32": ("backward_mma", FLOAT32, 32, True, 0),
    "fragments, wider than 128": ("backward_mma", FLOAT16, 160, True, 0),
    "one pass": ("backward_once", FLOAT16, 64, False, 0),
    "one pass, a window": ("backward_once", FLOAT16, 64, True, 50),
    "one pass, wide": ("backward_once", BFLOAT16, 128, True, 0),
    "one pass, atomic": ("backward_atomic", FLOAT16, 64, True, 0),
    "two passes": ("backward_wgmma", FLOAT16, 64, True, 0),
    "two passes, wider than 128": ("backward_wgmma", BFLOAT16, 144, True, 0),
    "two passes, a window, wider than 128": ("backward_wgmma", FLOAT16, 200, True, 50),
}
CC = {"backward_mma": 80}


def starts_of(lengths):
    return [0, *np.cumsum(lengths).tolist()]


def packed(dtype, rows, keys, d, causal, window=0, heads=(2, 1), dv=0):
    """The workload of packed sequences, with three rows, and five keys, behind the last one. A window reaches two keys
    behind a row's own."""
    numbers = asked(None, None, "right", starts_of(rows), starts_of(keys))
    Nq, Nk = sum(rows) + 3, sum(keys) + 5
    whole = Workload(dtype, 1, *heads, Nq, Nk, d, causal, Nk - Nq + 2 * (window > 0), window=window, dv=dv)
    return sequences_of(1, Nq, Nk, numbers).of(whole, BOTTOM_RIGHT)


def assert_right(work, seed=1, **how):
    """dQ, dK and dV. All that is of no sequence is NaN, and none of the gradients there is written."""
    words, (mine, theirs) = given(work, seed)
    o, lse = np.zeros(words[0].shape), np.full(words[1].shape[:3], np.nan)
    right = [np.zeros(x.shape) for x in words[1:]]
    mask = {"scale": work.scale, "causal": work.causal, "window": work.window}
    for b, row, rows, key, keys, offset, _ in work.sequences:
        some, seen = slice(row, row + rows), slice(key, key + keys)
        places = zip(words, (some, some, seen, seen), strict=True)
        parts = [as_numbers(x[b : b + 1, :, part], work.dtype) for x, part in places]
        found = exact_heads(*parts[1:], offset=offset, **mask)
        o[b, :, some], lse[b, :, some] = found[0][0], found[1][0]
        exact = exact_gradients(*parts, offset=offset, **mask)
        for x, part, one in zip(right, (some, seen, seen), exact, strict=True):
            x[b, :, part] = one[0]
    outcome = run_backward(work, *words, with_nan(o, mine, work.dtype), lse.astype(np.float32), **how)
    assert [str(finding) for finding in outcome.findings] == []
    assert outcome.finished
    for got, exact, inside in zip(outcome.gradients, right, (mine, theirs, theirs), strict=True):
        inside = np.broadcast_to(inside[:, None, :, None], got.shape)
        top = max(1, np.abs(exact).max())
        assert np.abs(as_numbers(got, work.dtype) - exact)[inside].max() <= ERROR[work.dtype] * top
        assert (got[~inside].view(np.uint8) == 0xFF).all()  # as the memory was before
    return outcome.gradients


def given(work, seed):
    """dO, Q, K and V as words; and which rows and which keys of each batch are of a sequence."""
    draw = np.random.default_rng(seed)
    mine, theirs = np.zeros((work.batch, work.Nq), bool), np.zeros((work.batch, work.Nk), bool)
    for b, row, rows, key, keys, *_ in work.sequences:
        mine[b, row : row + rows] = theirs[b, key : key + keys] = True
    queries, keys, d, dv = (work.heads, work.Nq, mine), (work.kv_heads, work.Nk, theirs), work.d, work.value_columns
    return [
        with_nan(draw.standard_normal((work.batch, heads, rows, columns)), inside, work.dtype)
        for (heads, rows, inside), columns in ((queries, dv), (queries, d), (keys, d), (keys, dv))
    ], (mine, theirs)


def with_nan(x, inside, dtype):
    """Numbers as words, NaN in rows of no sequence."""
    words = as_words(x, dtype)
    for b, rows in enumerate(inside):
        words[b, :, ~rows] = np.nan if dtype == FLOAT32 else 0xFFFF
    return words


def as_words(x, dtype):
    return x.astype(np.float32) if dtype == FLOAT32 else rounded(x, dtype)


def as_numbers(x, dtype):
    return x.astype(np.float64) if dtype == FLOAT32 else numbers(x, dtype)


@slow_of_each(5)
@pytest.mark.parametrize("way", WAYS)
def test_gradients_of_sequences_are_right_and_of_none_are_untouched(way):
    kernel, dtype, d, causal, window = WAYS[way]
    work = packed(dtype, ROWS, KEYS, d, causal, window)
    assert len(work.sequences) == 5
    assert_right(work, kernel=kernel, cc=CC.get(kernel, 90))


@slow
@pytest.mark.parametrize(("dtype", "d", "dv", "causal"), [(BFLOAT16, 192, 128, True), (FLOAT16, 256, 40, False)])
def test_rows_behind_a_sequence_s_last_are_cleared_in_all_columns_of_v_and_no_others(dtype, d, dv, causal):
    assert_right(packed(dtype, ROWS, KEYS, d, causal, dv=dv), kernel="backward_wgmma", cc=90)


@slow
@pytest.mark.parametrize("way", ["fragments, float32", "one pass, wide"])
def test_batches_of_padding_on_the_left_are_sequences_too(way):
    kernel, dtype, d, causal, window = WAYS[way]
    work = Workload(dtype, 3, 2, 1, 140, 150, d, causal, 10, window=window)
    numbers = asked([150, 65, 2], [140, 5, 66], "left", None, None)
    assert_right(sequences_of(3, 140, 150, numbers).of(work, BOTTOM_RIGHT), kernel=kernel, cc=CC.get(kernel, 90))


@slow
@pytest.mark.parametrize("way", ["one pass, wide", "fragments"])
def test_every_order_of_threads_and_every_number_of_blocks_gives_the_same_bits(way):
    kernel, dtype, d, causal, window = WAYS[way]
    work = packed(dtype, [70, 1, 130], [150, 1, 100], d, causal, window)
    runs = [(FORWARDS, 2), (Schedule("random", 5), 1), (Schedule(REVERSE), 3)]
    first, *others = (
        assert_right(work, kernel=kernel, cc=CC.get(kernel, 90), schedule=order, blocks=blocks)
        for order, blocks in runs
    )
    for other in others:
        assert all(np.array_equal(a.view(np.uint8), b.view(np.uint8)) for a, b in zip(first, other, strict=True))


@slow
@pytest.mark.parametrize(
    ("kernel", "cc", "dtype", "d", "causal", "most"),
    [
        ("backward_once", 90, FLOAT16, 128, False, 0),
        ("backward_wgmma", 90, BFLOAT16, 128, True, 0),
        ("backward_mma", 90, FLOAT32, 64, True, 0),
        ("backward_mma", 89, FLOAT16, 64, True, 16),  # a few numbers, once a tile
    ],
)
def test_no_register_spills_and_products_run_side_by_side(kernel, cc, dtype, d, causal, most):
    planned = choice.plan(packed(dtype, [300, 100], [300, 100], d, causal), DEVICES[cc], kernel)
    options = (*OPTIONS, *planned.options, "--ptxas-options=-v")
    _, log = compiler_for(DEVICES[cc]).build(kernel_source(kernel), f"{kernel}.cu", options, cc)
    spills = re.findall(r"(\d+) bytes spill stores", log)
    assert len(spills) == 3
    assert sum(map(int, spills)) <= most, log
    assert "Potential Performance Loss" not in log, log


def test_one_launch_computes_several_lengths_and_batches_of_one_length_are_as_before():
    several, equal = packed(FLOAT16, [5, 7], [5, 7], 64, True), packed(FLOAT16, [6, 6], [6, 6], 64, True)
    for cc in (80, 90):
        assert choice.is_at_once(several, DEVICES[cc]) and not choice.is_at_once(equal, DEVICES[cc])
    assert not choice.is_at_once(several, DEVICES[61])
    assert not choice.is_at_once(several, DEVICES[90], "backward")

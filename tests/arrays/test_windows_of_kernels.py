"""Windows of keys in the kernels for arrays, executed on the CPU: right at every edge, without a finding; keys that are
hidden from all rows of a tile are not read."""

from dataclasses import replace

import numpy as np
import pytest
from definitions import definition
from halves import ALLOWED, SUMS, numbers, random_words, rounded
from slow import quick_of_each, slow, slow_of_each

from hw4cli.arrays.emulated import run_half
from hw4cli.arrays.gradients.emulated import run_backward
from hw4cli.emulator.library import FORWARDS, REVERSE, Schedule
from hw4cli.plans.half import Tiling
from hw4cli.plans.kernels16 import ENTRIES16, plan16
from hw4cli.plans.plan import DEVICES
from hw4cli.problem.oracle import exact_gradients, exact_heads
from hw4cli.problem.workload import BFLOAT16, FLOAT16, FLOAT32, Span, Workload

pytestmark = quick_of_each(1)

WAYS = {
    "half, three groups": ("half", 90, Tiling(3, 80, 2), BFLOAT16, 128),
    "half, three groups, its own": ("half", 90, None, BFLOAT16, 128),
    "half, four groups, its own": ("half", 90, None, FLOAT16, 64),
    "half, two groups, no turns": ("half", 90, Tiling(2, 128, 2, turns=False, ahead=False), FLOAT16, 40),
    "half, polynomials": ("half", 90, Tiling(4, 64, 4, ones=True, polynomial=3, in_order=4), BFLOAT16, 64),
    "half, short": ("half", 90, None, FLOAT16, 64),
    "half_mma": ("half_mma", 80, None, BFLOAT16, 128),
    "half_mma, few columns": ("half_mma", 80, None, FLOAT16, 32),
    "half_cores": ("half_cores", 61, None, FLOAT16, 64),
}


def assert_right(work, factor=1.0, seed=1, **options):
    """Each row of each sequence; a batch is one where there are none. What is hidden from all rows is NaN."""
    q, k, v = random_words(work, seed, factor)
    spans = work.sequences or tuple(Span(b, 0, work.Nq, 0, work.Nk, work.offset) for b in range(work.batch))
    seen = np.zeros((work.batch, work.Nk), bool)
    for span in spans:
        alone = work.alone(span)
        for row in range(span.rows):
            keys = alone.keys_of(row)
            seen[span.batch, span.key + keys.start : span.key + keys.stop] = True
    tile = plan16(work, DEVICES[options.get("cc", 90)], options["kernel"], options.get("tiling")).macros["BC"]
    for b in range(work.batch):
        first = seen[b].argmax() // tile * tile if seen[b].any() else 0
        k[b, :, :first] = v[b, :, :first] = 0xFFFF
    outcome = run_half(work, q, k, v, **options)
    assert [str(finding) for finding in outcome.findings] == []
    assert outcome.finished
    for b, row, rows, key, keys, offset, _ in spans:
        mine, theirs = slice(row, row + rows), slice(key, key + keys)
        parts = [numbers(x[b : b + 1, :, part], work.dtype) for x, part in ((q, mine), (k, theirs), (v, theirs))]
        o, lse = definition(parts[0], *map(np.nan_to_num, parts[1:]), work.scale, offset, work.window)
        assert np.abs(numbers(outcome.o[b, :, mine], work.dtype) - o[0]).max() <= ALLOWED[work.dtype]
        got, there = outcome.lse[b, :, mine], np.isfinite(lse[0])
        assert (got[~there] == -np.inf).all()
        np.testing.assert_allclose(got[there], lse[0][there], rtol=1e-6, atol=SUMS[work.dtype])
    return outcome


@slow_of_each(9)
@pytest.mark.parametrize(
    ("Nq", "Nk", "offset", "window"),
    [(300, 520, 220, 70), (410, 410, 30, 1), (200, 150, -50, 33), (200, 990, 790, 500)],
)
@pytest.mark.parametrize("way", WAYS)
def test_every_row_sees_its_window(way, Nq, Nk, offset, window):
    kernel, cc, tiling, dtype, d = WAYS[way]
    if way == "half, short":
        Nq, Nk, offset = Nq // 4, Nk // 6, offset // 5
    work = Workload(dtype, 1, 2, 1, Nq, Nk, d, True, offset, window=window)
    assert_right(work, kernel=kernel, cc=cc, tiling=tiling)


def test_o_of_a_window_leaves_by_the_copy_engine_at_any_length():
    """Without a window, that costs the main loop of long rows of few columns more than it saves at their end."""
    whole = Workload(BFLOAT16, 1, 2, 1, 8192, 8192, 64, True, 0)
    assert [plan16(work, DEVICES[90]).macros["COPIES_O"] for work in (whole, replace(whole, window=100))] == [0, 1]


@pytest.mark.parametrize("factor", [-40.0, 40.0])
@pytest.mark.parametrize("way", ["half, three groups", "half, four groups, its own", "half_mma", "half_cores"])
def test_a_row_whose_keys_come_late_is_weighed_by_its_own_scores(way, factor):
    """Scores in the hundreds, below 0 and above: a maximum that began with the row's hidden keys would give nothing."""
    kernel, cc, tiling, dtype, d = WAYS[way]
    work = Workload(dtype, 1, 1, 1, 256, 512, d, True, 200, window=60)
    q, k, v = np.random.default_rng(3).standard_normal((3, 1, 1, 512, d))
    q, k, v = rounded(np.abs(q[:, :, :256]) * factor, dtype), rounded(np.abs(k), dtype), rounded(v, dtype)
    outcome = run_half(work, q, k, v, tiling, kernel, cc)
    exact = [numbers(x, dtype) for x in (q, k, v)]
    o, lse = definition(*exact, work.scale, work.offset, work.window)
    assert np.abs(lse).min() > 60
    assert np.abs(numbers(outcome.o, dtype) - o).max() <= 2 * ALLOWED[dtype]
    np.testing.assert_allclose(outcome.lse, lse, rtol=1e-5)


@slow
@pytest.mark.parametrize("kernel", ["half", "half_mma", "half_cores"])
def test_each_sequence_has_a_window_of_its_own(kernel):
    lengths = [(1, 77), (130, 129), (64, 300), (200, 1), (150, 150)]
    spans, row, key = [], 0, 0
    for rows, keys in lengths:
        spans.append(Span(0, row, rows, key, keys, keys - rows + 2))
        row, key = row + rows, key + keys
    work = Workload(FLOAT16, 1, 2, 1, row, key, 64, True, sequences=tuple(spans), window=40)
    assert_right(work, kernel=kernel)


@slow
@pytest.mark.parametrize(("Nq", "Nk", "window"), [(1, 900, 64), (3, 640, 200), (2, 77, 1), (4, 3000, 1100)])
def test_decoding_reads_the_last_keys_alone(Nq, Nk, window):
    work = Workload(FLOAT16, 2, 4, 2, Nq, Nk, 64, True, Nk - Nq, window=window)
    assert_right(work, kernel="half_split", cc=80)


GRADIENTS = {
    "backward, 16 bits": ("backward", 80, FLOAT16),
    "backward, float32": ("backward", 80, FLOAT32),
    "backward_mma, 16 bits": ("backward_mma", 80, BFLOAT16),
    "backward_mma, float32": ("backward_mma", 80, FLOAT32),
    "backward_wgmma": ("backward_wgmma", 90, FLOAT16),
    "backward_once": ("backward_once", 90, FLOAT16),
    "backward_atomic": ("backward_atomic", 90, FLOAT16),
}
ERROR = {FLOAT16: 4e-3, BFLOAT16: 3e-2, FLOAT32: 1e-5}  # of the largest gradient


@slow_of_each(6)
@pytest.mark.parametrize(
    ("Nq", "Nk", "offset", "window"), [(200, 330, 130, 50), (300, 260, 9, 1), (330, 90, -100, 120), (300, 300, 0, 2)]
)
@pytest.mark.parametrize("way", GRADIENTS)
def test_gradients_are_those_of_the_window(way, Nq, Nk, offset, window):
    (kernel, cc, dtype), d = GRADIENTS[way], 64
    work = Workload(dtype, 1, 2, 1, Nq, Nk, d, True, offset, window=window)
    rng = np.random.default_rng(5)
    given = [rng.standard_normal((1, heads, rows, d)) for heads, rows in ((2, Nq), (2, Nq), (1, Nk), (1, Nk))]
    mask = {"causal": True, "offset": offset, "window": window}
    if dtype == FLOAT32:
        words = [x.astype(np.float32) for x in given]
        exact = [x.astype(float) for x in words]
    else:
        words = [rounded(x, dtype) for x in given]
        exact = [numbers(x, dtype) for x in words]
    o, lse = exact_heads(*exact[1:], **mask)
    passed = o.astype(np.float32) if dtype == FLOAT32 else rounded(o, dtype)
    outcome = run_backward(work, *words, passed, lse.astype(np.float32), kernel=kernel, cc=cc)
    assert outcome.finished and [str(finding) for finding in outcome.findings] == []
    for got, right in zip(outcome.gradients, exact_gradients(*exact, **mask), strict=True):
        found = got.astype(float) if dtype == FLOAT32 else numbers(got, dtype)
        assert np.abs(found - right).max() <= ERROR[dtype] * max(1, np.abs(right).max())


@slow
@pytest.mark.parametrize("seed", range(6))
def test_any_window_on_any_number_of_multiprocessors_gives_the_same_bits(seed):
    draw = np.random.default_rng(seed)
    Nq, Nk, window, sms = (int(draw.integers(1, most)) for most in (500, 700, 300, 6))
    work = Workload(BFLOAT16, 1, 4, 2, Nq, Nk, 64, True, int(draw.integers(-Nq, Nk)), window=window)
    orders = (FORWARDS, Schedule(REVERSE))
    first, second = (assert_right(work, kernel="half", schedule=schedule, sms=sms, blocks=sms) for schedule in orders)
    assert np.array_equal(first.o, second.o) and np.array_equal(first.lse.view(np.uint32), second.lse.view(np.uint32))


@slow
@pytest.mark.parametrize("kernel", ["half_mma", "half"])
def test_a_window_of_all_keys_gives_the_bits_of_none(kernel):
    """In the same tiles."""
    work = Workload(FLOAT16, 1, 2, 2, 200, 300, 64, True, 100)
    works, words = (work, replace(work, window=300)), random_words(work)
    tile = ENTRIES16[kernel].tile
    how = tile(works[1], DEVICES[90]) if tile else None
    plain, wide = (run_half(one, *words, how, kernel) for one in works)
    assert np.array_equal(plain.o, wide.o)

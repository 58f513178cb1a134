"""Sequences of several lengths in one launch of half, half_mma and half_cores, executed on the CPU: each is right by
itself, no row or key of none is read, and no word of none is written."""

import numpy as np
import pytest
from definitions import definition
from halves import ALLOWED, SUMS, numbers, random_words
from slow import quick_of_each, slow, slow_of_each

from hw4cli.arrays.emulated import run_half
from hw4cli.emulator.library import FORWARDS, REVERSE, Schedule
from hw4cli.plans.half import Tiling
from hw4cli.plans.halfmma import SplitTiling
from hw4cli.plans.kernels16 import kernel16
from hw4cli.plans.plan import DEVICES
from hw4cli.problem.workload import BFLOAT16, FLOAT16, Span, Workload

pytestmark = quick_of_each(1)
NAN = 0xFFFF  # a word that is none, of both types


def packed(rows, keys, causal):
    """Sequences one after the other, with three rows and keys of none between and behind them."""
    found, row, key = [], 0, 0
    for count, seen in zip(rows, keys, strict=True):
        found.append(Span(0, row, count, key, seen, (seen - count) * causal))
        row, key = row + count + 3, key + seen + 3
    return tuple(found), row, key


def assert_right(work, seed=1, **options):
    q, k, v = random_words(work, seed)
    mine, theirs = np.zeros(work.Nq, bool), np.zeros(work.Nk, bool)
    for span in work.sequences:
        mine[span.row : span.row + span.rows] = theirs[span.key : span.key + span.keys] = True
    q[:, :, ~mine] = k[:, :, ~theirs] = v[:, :, ~theirs] = NAN
    outcome = run_half(work, q, k, v, **options)
    assert [str(finding) for finding in outcome.findings] == []
    assert outcome.finished
    for b, row, rows, key, keys, offset, _ in work.sequences:
        some, seen = slice(row, row + rows), slice(key, key + keys)
        parts = [numbers(x[b : b + 1, :, part], work.dtype) for x, part in ((q, some), (k, seen), (v, seen))]
        o, lse = definition(*parts, work.scale, offset if work.causal else None)
        assert np.abs(numbers(outcome.o[b, :, some], work.dtype) - o[0]).max() <= ALLOWED[work.dtype]
        got, shown = outcome.lse[b, :, some], np.isfinite(lse[0])
        assert (got[~shown] == -np.inf).all()
        np.testing.assert_allclose(got[shown], lse[0][shown], rtol=1e-6, atol=SUMS[work.dtype])
    return outcome, ~mine


WAYS = {
    "half, three groups": ("half", Tiling(3, 80, 2), BFLOAT16, 128),
    "half, four groups, ones": ("half", Tiling(4, 64, 4, ones=True), FLOAT16, 64),
    "half, two groups": ("half", Tiling(2, 128, 2), FLOAT16, 40),
    "half, polynomials": ("half", Tiling(3, 128, 2, ones=True, polynomial=4, in_order=4), BFLOAT16, 64),
    "half_mma": ("half_mma", None, BFLOAT16, 128),
    "half_mma, few columns": ("half_mma", None, FLOAT16, 32),
    "half_cores": ("half_cores", None, FLOAT16, 64),
}


@slow_of_each(6)
@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("way", WAYS)
def test_each_sequence_is_right_and_what_is_in_none_is_untouched(way, causal):
    kernel, tiling, dtype, d = WAYS[way]
    spans, Nq, Nk = packed([1, 130, 64, 200], [77, 129, 300, 1], causal)
    work = Workload(dtype, 1, 2, 1, Nq, Nk, d, causal, sequences=spans)
    outcome, outside = assert_right(work, kernel=kernel, tiling=tiling)
    assert (outcome.o[:, :, outside] == NAN).all()  # as the memory was before
    assert np.isnan(outcome.lse[:, :, outside]).all()


@slow
@pytest.mark.parametrize(("splits", "causal"), [(1, False), (3, True)])
def test_sequences_of_few_rows_are_split_by_their_keys(splits, causal):
    """Sequences with fewer keys than splits, and with more packed rows than a tile, too."""
    spans, Nq, Nk = packed([1, 3, 7, 1, 2], [300, 129, 64, 1, 530], causal)
    work = Workload(FLOAT16, 1, 6, 2, Nq, Nk, 64, causal, sequences=spans)
    how = SplitTiling(2, 1, 32, 2, q_registers=True, blocks=2, splits=splits)
    outcome, outside = assert_right(work, kernel="half_split", cc=80, tiling=how)
    assert (outcome.o[:, :, outside] == NAN).all()
    assert np.isnan(outcome.lse[:, :, outside]).all()


def test_steps_of_decoding_of_several_lengths_split_their_keys():
    def chosen(rows, keys, cc):
        spans, Nq, Nk = packed(rows, keys, True)
        return kernel16(Workload(FLOAT16, 1, 32, 8, Nq, Nk, 128, True, sequences=spans), DEVICES[cc])

    assert {chosen([1] * 4, [3000, 20, 900, 4000], cc) for cc in (80, 90)} == {"half_split"}
    assert chosen([1, 600], [3000, 600], 90) == "half"
    assert chosen([5, 9], [5, 9], 80) == "half_mma"


@slow
@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("kernel", ["half", "half_mma", "half_cores"])
def test_batches_of_padding_on_the_left_are_sequences_too(kernel, causal):
    spans = tuple(
        Span(b, 140 - n, n, 150 - m, m, (m - n) * causal) for b, (n, m) in enumerate([(140, 150), (5, 65), (66, 2)])
    )
    work = Workload(FLOAT16, 3, 2, 2, 140, 150, 64, causal, sequences=spans)
    assert_right(work, kernel=kernel)


@slow_of_each(4)
@slow
@pytest.mark.parametrize("sms", [1, 2, 7])
@pytest.mark.parametrize("seed", range(4))
def test_any_lengths_on_any_number_of_multiprocessors_give_the_same_bits(seed, sms):
    draw = np.random.default_rng(seed)
    rows, keys = draw.integers(1, 260, (2, 5)).tolist()
    spans, Nq, Nk = packed(rows, keys, True)
    work = Workload(BFLOAT16, 1, 4, 2, Nq, Nk, 64, True, sequences=spans)
    orders = (FORWARDS, Schedule(REVERSE))
    first, second = (
        assert_right(work, kernel="half", schedule=schedule, sms=sms, blocks=sms)[0] for schedule in orders
    )
    assert np.array_equal(first.o, second.o) and np.array_equal(first.lse.view(np.uint32), second.lse.view(np.uint32))

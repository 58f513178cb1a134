"""Random cases: the same for a seed and a number, legal, of every sort; and each kind of data is what it says."""

import os
import subprocess
import sys
from collections import Counter

import numpy as np
import pytest
from helpers import ROOT

from hw4cli.errors import InputError
from hw4cli.lab.randomcases import KINDS, PROFILES, WORK, RandomCase, draw
from hw4cli.plans.bounds import LN2
from hw4cli.plans.ladder import VARIANTS
from hw4cli.plans.plan import DEVICES
from hw4cli.problem.workload import Shape

DRAWN = [draw(0, number) for number in range(3000)]


@pytest.mark.parametrize("device", WORK)
def test_a_seed_and_a_number_give_the_same_trial_in_any_process(device):
    script = (
        "from hw4cli.lab.randomcases import draw\n"
        f"for case in (draw(7, number, '{device}') for number in range(40)): print(repr(case))\n"
        f"print(draw(7, 3, '{device}').block().sum(dtype='f8'))"
    )
    env = {**os.environ, "PYTHONPATH": str(ROOT), "PYTHONHASHSEED": "1"}
    printed = subprocess.run([sys.executable, "-c", script], env=env, capture_output=True, text=True, check=True).stdout
    cases = [draw(7, number, device) for number in range(40)]
    assert printed.splitlines() == [*map(repr, cases), str(cases[3].block().sum(dtype="f8"))]
    assert len(set(cases)) == 40
    assert draw(8, 3, device) != cases[3]


def test_naming_the_drawn_kernel_changes_nothing():
    for number, case in enumerate(DRAWN[:200]):
        assert draw(0, number, "cuda", case.kernel) == case


def test_another_kernel_computes_the_same_shapes_where_it_is_as_fast():
    assert draw(0, 5, "cuda", "flash").shape == draw(0, 5, "cuda", "split").shape
    with pytest.raises(InputError, match="no kernel 'flash': choose from float32, float64"):
        draw(0, 5, "cpu", "flash")


@pytest.mark.parametrize("device", WORK)
def test_every_shape_is_legal_and_within_its_limits(device):
    for number in range(1000):
        case = draw(0, number, device)
        B, N, d = case.shape.B, case.shape.N, case.shape.d
        case.shape.check("drawn")
        assert B <= 600
        assert N <= 40001
        assert B * N * N <= WORK[device][case.kernel] <= 2e10
        assert case.shape.input_bytes <= 1e9
        assert 1 <= d <= 128


def test_what_is_drawn_is_of_every_sort():
    shapes = [case.shape for case in DRAWN]
    assert {case.kernel for case in DRAWN} == set(VARIANTS)
    assert {case.kind for case in DRAWN} == set(KINDS)
    assert {shape.d for shape in shapes} == set(range(1, 129))
    lengths = {shape.N for shape in shapes}
    for power in range(12):
        assert {2**power - 1, 2**power, 2**power + 1} - {0} <= lengths
    assert min(lengths) == 1
    assert max(lengths) > 32768
    assert max(shape.B for shape in shapes) > 400
    assert max(shape.input_bytes for shape in shapes) > 5e8
    assert max(shape.B * shape.N**2 for shape in shapes) > 1e10


def test_keys_are_cut_into_parts_and_not_and_the_parts_have_odd_layouts_too():
    found = Counter()
    for case in DRAWN:
        splits = VARIANTS[case.kernel].plan(case.shape, DEVICES[90]).splits
        odd = splits * case.shape.B * case.shape.N % 2
        found[case.kernel, "whole" if splits == 1 else "odd" if odd else "even"] += 1
    for kernel in ("flash", "split", "exact"):
        assert min(found[kernel, sort] for sort in ("whole", "odd", "even")) >= 10, found


def data(kind, B=2, N=500, d=32, seed=5):
    return RandomCase("flash", Shape(B, N, d), kind, seed).block()


def log2_scores(block):
    q, k = (block[0, part].astype(np.float64) for part in (0, 1))
    return q @ k.T / (block.shape[3] ** 0.5 * LN2)


def seeds(kind):
    return [data(kind, seed=seed) for seed in range(12)]


@pytest.mark.parametrize("shape", [(1, 1, 4), (3, 2, 128), (2, 17, 8), (600, 3, 4)], ids=str)
@pytest.mark.parametrize("kind", KINDS)
def test_data_of_every_kind_is_finite_and_the_same_every_time(kind, shape):
    block = data(kind, *shape)
    assert block.shape == (shape[0], 3, *shape[1:])
    assert block.dtype == np.float32
    assert np.isfinite(block).all()
    assert np.array_equal(block, data(kind, *shape))


def test_uniform_data_and_its_multiples_fill_their_ranges():
    for kind, reach in (("uniform", 3), ("times 10", 30), ("times 1000", 3000)):
        block = data(kind)
        assert 0.999 * reach < np.abs(block).max() <= reach
        assert abs(block.mean()) < 0.05 * reach


def test_threes_are_threes_of_both_signs():
    assert set(np.unique(data("threes"))) == {-3, 3}


def test_one_dominant_key_has_nearly_all_the_weight_of_every_row():
    for block in seeds("one dominant key"):
        scores = np.sort(log2_scores(block), axis=1)
        assert np.unique(log2_scores(block).argmax(axis=1)).size == 1
        assert (scores[:, -1] > scores[:, -2] + 0.1).all()
    places = {int(log2_scores(block)[0].argmax()) for block in seeds("one dominant key")}
    assert len(places) > 6


def test_huge_v_is_huge_and_the_scores_are_not():
    for block in seeds("huge V"):
        assert 290 < np.abs(block[:, 2]).max() < 1e26
        assert np.abs(block[:, :2]).max() <= 3


def test_tiny_values_are_tiny_some_below_float32s_normal_numbers():
    largest = [np.abs(block[:, part]).max() for block in seeds("tiny values") for part in range(3)]
    assert max(largest) <= 3e-3
    assert min(largest) < 2**-126


def test_equal_values_are_equal_in_each_part():
    for block in seeds("equal values"):
        assert [np.unique(block[:, part]).size for part in range(3)] == [1, 1, 1]


def test_zeros_in_q_and_threes_in_v_show_a_key_too_many():
    block = data("zeros in Q, threes in V")
    assert not block[:, 0].any()
    assert (block[:, 2] == 3).all()
    assert np.unique(block[:, 1]).size > 100


def test_every_second_batch_has_another_size():
    for seed in range(12):
        sizes = np.abs(data("every second batch scaled", B=6, seed=seed)).max(axis=(1, 2, 3))
        assert np.ptp(sizes[::2]) < 0.01
        assert not 0.5 < sizes[1] / sizes[0] < 2


def test_scores_at_the_edge_reach_the_powers_of_two_where_float32_ends_and_rows_pass_through_it():
    tops = [log2_scores(block).max(axis=1) for block in seeds("scores at the edge of float32")]
    crossed = [edge for edge in (-126, 120, 126) if any(top.min() < edge < top.max() for top in tops)]
    assert crossed == [-126, 120, 126]
    scores = np.sort(log2_scores(data("scores at the edge of float32")), axis=1)
    assert (scores[:, -10:] > scores[:, -1:] - 30).all()  # several peaks of comparable height
    assert (scores[:, :-20] < scores[:, -1:] - 20).all()


def heights(name, of):
    """How the scores, or their spread, go along the keys of a block, for some seeds: (N,) each, from 0 to 1."""
    for seed in range(12):
        block = data(f"{name} in {of}", seed=seed)
        scores = log2_scores(block)
        along = scores[:20].mean(axis=0) if of == "scores" else np.abs(scores).max(axis=0)
        yield (along - along.min()) / np.ptp(along)


@pytest.mark.parametrize("of", ["scores", "the spread of scores"])
def test_scores_follow_the_profile_that_the_kind_is_named_for(of):
    assert set(PROFILES) == {"a rise", "a fall", "a late peak", "ups and downs", "plateaus"}
    for height in heights("a rise", of):
        assert height[450:].mean() > 0.6 > 0.4 > height[:150].mean()
    for height in heights("a fall", of):
        assert height[:50].mean() > 0.6 > 0.4 > height[350:].mean()
    for height in heights("a late peak", of):
        assert height.argmax() == 499
        assert height[:499].max() < 0.1
    for height in heights("plateaus", of):
        assert height[450:].mean() > 0.6 > 0.4 > height[:50].mean()
    lengths = {int(np.argmax((height > 0.4) != (height[0] > 0.4))) for height in heights("ups and downs", of)}
    assert len(lengths & {1, 16, 32, 64, 128}) >= 3


def test_scores_that_follow_a_profile_reach_hundreds_above_and_below_0():
    extremes = [(log2_scores(block).min(), log2_scores(block).max()) for block in seeds("a rise in scores")]
    assert min(low for low, _ in extremes) < -126
    assert max(high for _, high in extremes) > 126

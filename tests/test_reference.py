"""Attention on the CPU against the definition, on friendly and on hostile inputs, within bounded memory."""

import tracemalloc

import numpy as np
import pytest
from helpers import definition, random_block
from hypothesis import given
from hypothesis import strategies as st

from hw4cli.reference import exact_attention, tiled_attention
from hw4cli.variants import float32_suffices

SHAPES = [(1, 1, 4), (3, 127, 20), (2, 129, 64), (5, 200, 32), (1, 1100, 36), (700, 16, 8), (2, 600, 128)]


@pytest.mark.parametrize("shape", SHAPES)
def test_the_oracle_is_the_definition(shape):
    block = random_block(*shape)
    assert np.abs(exact_attention(block) - definition(block)).max() < 1e-6


@pytest.mark.parametrize("shape", SHAPES)
def test_the_tiled_computation_has_float32_accuracy(shape):
    block = random_block(*shape)
    assert np.abs(tiled_attention(block) - definition(block)).max() < 2e-5


@given(B=st.integers(1, 4), N=st.integers(1, 50), d=st.integers(1, 8).map(lambda x: 4 * x), seed=st.integers(0, 99))
def test_any_small_shape_is_right(B, N, d, seed):
    block = random_block(B, N, d, seed)
    assert np.abs(tiled_attention(block) - definition(block)).max() < 2e-5


def hostile():
    block = random_block(2, 300, 16)
    yield "all threes", np.full_like(block, 3)
    yield "all minus threes", np.full_like(block, -3)
    dominant = block.copy()
    dominant[:, 1, 123] = 3 * np.sign(dominant[:, 0, 7])
    yield "one dominant key", dominant
    rising = block.copy()
    rising[:, 1] *= np.linspace(0, 30, 300, dtype=np.float32)[:, None]
    yield "scores that rise from tile to tile", rising
    yield "scores in the thousands", block * np.float32(40)
    yield "values near float32's end", block * np.float32(1e38)
    tiny = block * np.float32(1e-40)
    yield "subnormal values", tiny


@pytest.mark.parametrize(("name", "block"), list(hostile()))
def test_hostile_inputs_are_right_in_the_precision_that_is_chosen_for_them(name, block):
    magnitudes = tuple(float(np.abs(block[:, part]).max()) for part in range(3))
    dtype = np.float32 if float32_suffices(magnitudes, block.shape[3]) else np.float64
    with np.errstate(over="raise", invalid="raise"):
        got = tiled_attention(block, dtype)
    expected = definition(block)
    assert np.isfinite(got).all()
    assert np.abs(got - expected).max() <= max(5e-3, 1e-6 * np.abs(expected).max())


def test_the_assignments_inputs_need_no_float64():
    assert all(float32_suffices((3, 3, 3), d) for d in (32, 64, 128))
    assert not float32_suffices((100, 100, 3), 64)
    assert not float32_suffices((1e20, 1e20, 1), 64)
    assert not float32_suffices((float("nan"), 3, 3), 64)


@pytest.mark.parametrize("attention", [tiled_attention, exact_attention])
def test_memory_is_bounded_where_n_by_n_scores_would_not_fit(attention):
    block = random_block(1, 8192, 8)
    tracemalloc.start()
    attention(block)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 8192 * 8192 * 4 / 2

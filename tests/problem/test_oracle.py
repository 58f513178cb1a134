"""Attention on the CPU against the definition, on friendly and on hostile inputs, within bounded memory."""

import re
import tracemalloc

import numpy as np
import pytest
from definitions import definition as definition_of_heads
from helpers import ROOT, definition, random_block, read_output, write_case
from hypothesis import given
from hypothesis import strategies as st

from hw4cli.plans.bounds import SAFE, bound, suffices
from hw4cli.plans.ladder import VARIANTS
from hw4cli.plans.plan import DEVICES
from hw4cli.problem.oracle import exact_attention, exact_gradients, exact_heads, exact_rows, gradients_of_head
from hw4cli.problem.suite import cases
from hw4cli.problem.workload import Shape
from hw4cli.stream.tiled import tiled_attention

SHAPES = [(1, 1, 4), (3, 127, 20), (2, 129, 64), (5, 200, 32), (1, 1100, 36), (700, 16, 8), (2, 600, 128)]


@pytest.mark.parametrize("shape", SHAPES)
def test_the_oracle_is_the_definition(shape):
    block = random_block(*shape)
    assert np.abs(exact_attention(block) - definition(block)).max() < 1e-6


@pytest.mark.parametrize("shape", SHAPES)
def test_the_tiled_computation_has_float32_accuracy(shape):
    block = random_block(*shape)
    assert np.abs(tiled_attention(block) - definition(block)).max() < 2e-5


# One row, rows of several tiles and tasks, an odd number of batches.
@pytest.mark.parametrize("shape", [(2, 1, 8), (3, 129, 36), (1, 1300, 32)])
def test_a_causal_row_is_the_last_of_a_sequence_that_ends_with_it(shape, monkeypatch):
    block, N = random_block(*shape), shape[1]
    rows = sorted({0, N // 3, N // 2, *(row for row in (99, 100, 511, 512, 1023, 1024) if row < N), N - 1})
    right = np.stack([definition(block[:, :, : row + 1])[:, -1] for row in rows], axis=1)
    assert np.abs(tiled_attention(block, causal=True)[:, rows] - right).max() < 2e-5
    monkeypatch.setattr("hw4cli.problem.oracle.ORACLE_BYTES", 8 * 100 * N)
    assert np.abs(exact_attention(block, causal=True)[:, rows] - right).max() < 1e-6


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
    absmax = tuple(float(np.abs(block[:, part]).max()) for part in range(3))
    enough = suffices("float32", absmax, block.shape[3], block.shape[2], DEVICES[90], SAFE)
    dtype = np.float32 if enough else np.float64
    with np.errstate(over="raise", invalid="raise"):
        got = tiled_attention(block, dtype)
    expected = definition(block)
    assert np.isfinite(got).all()
    assert np.abs(got - expected).max() <= max(5e-3, 1e-6 * np.abs(expected).max())


def test_the_assignments_inputs_need_no_float64():
    for name in (*VARIANTS, "float32"):
        for case in cases().values():
            exact_enough = suffices(name, (3, 3, 3), case.shape.d, case.shape.N, DEVICES[90], SAFE)
            assert exact_enough != (name == "fp16qk"), (name, case)
        assert suffices(name, (3, 3, 3), 128, 4096, DEVICES[90], SAFE) != (name == "fp16qk")


@pytest.mark.parametrize(
    ("kernel", "absmax", "N"),
    [
        ("float32", (100, 100, 3), 512),
        ("float32", (10, 8.4, 3), 512),  # rounding that does not average out: 7.3e-3 in float32
        ("float32", (1e20, 1e20, 1), 512),
        ("float32", (float("nan"), 3, 3), 512),
        ("flash", (3, 3, 3), 1 << 20),  # long sums
        ("naive", (3, 3, 3), 1 << 18),
    ],
)
def test_inputs_that_float32_could_get_wrong_are_not_trusted_to_it(kernel, absmax, N):
    assert bound(kernel, absmax, 128, N) > SAFE


def test_rounding_that_does_not_average_out_is_right_too(hw4, tmp_path):
    """Every product is rounded the same way, and two keys with opposite values tell the difference."""
    rng = np.random.default_rng(0)
    block = np.empty((1, 3, 2, 128), np.float32)
    block[0, 0] = 10
    block[0, 1] = 8.4 - rng.uniform(0, 1e-5, (2, 128))
    block[0, 2, 0], block[0, 2, 1] = 3, -3
    source = write_case(tmp_path / "in", block)
    assert hw4("--device", "cpu", source, tmp_path / "out").returncode == 0
    assert np.abs(read_output(tmp_path / "out", Shape(1, 2, 128)) - definition(block)).max() < 1e-5


@pytest.mark.parametrize("attention", [tiled_attention, exact_attention])
def test_memory_is_bounded_where_n_by_n_scores_would_not_fit(attention):
    block = random_block(1, 8192, 8)
    tracemalloc.start()
    attention(block)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 8192 * 8192 * 4 / 2


def operands(batch, heads, kv_heads, Nq, Nk, d):
    """dO, Q, K and V."""
    sizes = [(heads, Nq), (heads, Nq), (kv_heads, Nk), (kv_heads, Nk)]
    return [np.random.default_rng(n).standard_normal((batch, *size, d)) for n, size in enumerate(sizes)]


@pytest.mark.parametrize("offset", [None, 0, 5, -4])
def test_rows_of_heads_with_their_lse_are_the_definition(offset):
    _, q, k, v = operands(2, 2, 2, 9, 14, 6)
    rows = np.array([0, 3, 4, 8])
    right, log_sums = definition_of_heads(q, k, v, 0.7, offset)
    o, lse = exact_rows(q[:, :, rows], k, v, rows, offset=offset, scale=0.7)
    np.testing.assert_allclose(o, right[:, :, rows], atol=1e-14)
    np.testing.assert_allclose(lse, log_sums[:, :, rows], atol=1e-14)
    assert np.isneginf(lse).any() == (offset == -4)


@pytest.mark.parametrize("offset", [None, 2, -3])
def test_heads_that_share_keys_are_the_definition(offset):
    _, q, k, v = operands(2, 6, 2, 9, 7, 4)
    right = definition_of_heads(q, k, v, last=offset)
    for got, exact in zip(exact_heads(q, k, v, causal=offset is not None, offset=offset or 0), right, strict=True):
        np.testing.assert_allclose(got, exact, atol=1e-14)


# Where NumPy or CuPy takes exponentials of scores, but for the diagnosis, which knows mistakes by their formulas.
SOFTMAXES = {
    "problem/oracle.py": "the oracle",
    "stream/tiled.py": "the CPU's attention",
    "arrays/gradients/oncpu.py": "the CPU's gradients, from the LSE",
    "arrays/shards/forward.py": "O of several shards, from their LSE",
    "lab/selftest.py": "some rows by the definition: whether the oracle that judges is right itself",
}


def test_attention_is_computed_in_one_place_for_each_purpose():
    sources = {
        path.relative_to(ROOT / "hw4cli").as_posix(): path.read_text() for path in (ROOT / "hw4cli").rglob("*.py")
    }
    found = {name for name, text in sources.items() if re.search(r"\b(np|xp|cupy)\.exp\(", text)}
    assert {name for name in found if not name.startswith("judge/diagnosis/")} == {*SOFTMAXES}


@pytest.mark.parametrize("offset", [None, 2, -3])
@pytest.mark.parametrize("held", [1 << 20, 100])
def test_gradients_agree_with_finite_differences_however_many_rows_are_held(offset, held, monkeypatch):
    monkeypatch.setattr("hw4cli.problem.oracle.HELD", held)
    do, *inputs = operands(2, 4, 2, 5, 7, 8)
    gradients = exact_gradients(do, *inputs, causal=offset is not None, offset=offset or 0, scale=0.3)
    for x, gradient in zip(inputs, gradients, strict=True):
        assert gradient.shape == x.shape
        for at in np.random.default_rng(1).choice(x.size, 20, replace=False):
            step = np.zeros(x.size)
            step[at] = 1e-6
            around = [[y + sign * step.reshape(y.shape) if y is x else y for y in inputs] for sign in (1, -1)]
            high, low = ((do * definition_of_heads(*three, 0.3, offset)[0]).sum() for three in around)
            assert (high - low) / 2e-6 == pytest.approx(gradient.flat[at], abs=1e-7)


@pytest.mark.parametrize("held", [1 << 20, 500])
def test_gradients_of_some_rows_and_keys_are_those_of_all(held, monkeypatch):
    do, q, k, v = operands(1, 3, 1, 40, 50, 4)
    whole = exact_gradients(do, q, k, v, causal=True, offset=10)
    monkeypatch.setattr("hw4cli.problem.oracle.HELD", held)
    rows, keys = np.array([0, 1, 17, 39]), np.array([0, 30, 49])
    dq, dk, dv = gradients_of_head(do[0], q[0], k[0, 0], v[0, 0], rows, keys, offset=10)
    for some, right in zip(
        (dq, dk, dv), (whole[0][0][:, rows], whole[1][0, 0, keys], whole[2][0, 0, keys]), strict=True
    ):
        np.testing.assert_allclose(some, right, atol=1e-13)

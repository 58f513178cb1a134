"""Gradients of attention in shards, beside those of the whole."""

import numpy as np
import pytest
from fakenccl import on_rings_by_nccl

from hw4cli import attention
from hw4cli.arrays.gradients.backward import attention_backward
from hw4cli.arrays.shards.backward import attention_backward_of_shards, ring_attention_backward
from hw4cli.arrays.shards.forward import attention_of_shards
from hw4cli.arrays.shards.order import from_zigzag, zigzag_shards

pytestmark = pytest.mark.timeout(60)


def arrays(dtype):
    """dO, Q, K and V."""
    rng = np.random.default_rng(0)
    do, q = (rng.standard_normal((2, 4, 24, 16)).astype(dtype) for _ in range(2))
    k, v = (rng.standard_normal((2, 2, 24, 16)).astype(dtype) for _ in range(2))
    return do, q, k, v


@pytest.mark.parametrize("dtype", [np.float16, np.float32])
@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("count", [1, 2, 4])
def test_gradients_go_round_the_ring_and_come_home(dtype, causal, count):
    do, q, k, v = arrays(dtype)
    o, lse = attention(q, k, v, causal=causal, scale=0.3, return_lse=True)
    expected = attention_backward(do, q, k, v, o, lse, causal=causal, scale=0.3)
    parts = [np.split(x, count, axis=2) for x in (do, q, k, v)]
    outputs, sums = zip(*attention_of_shards(*parts[1:], causal=causal, scale=0.3, return_lse=True), strict=True)
    found = attention_backward_of_shards(*parts, outputs, sums, causal=causal, scale=0.3)
    for whole, shards in zip(expected, zip(*found, strict=True), strict=True):
        got = np.concatenate(shards, axis=2)
        assert got.dtype == dtype
        assert np.abs(got.astype(float) - whole).max() < (1e-5 if dtype == np.float32 else 2e-2)


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("count", [1, 2, 4])
def test_gradients_of_a_zigzag_are_those_of_the_whole(causal, count):
    do, q, k, v = arrays(np.float32)
    expected = attention_backward(do, q, k, v, *attention(q, k, v, causal=causal, return_lse=True), causal=causal)
    parts = [zigzag_shards(x, count) for x in (do, q, k, v)]
    o, lse = zip(*attention_of_shards(*parts[1:], causal=causal, zigzag=True, return_lse=True), strict=True)
    found = attention_backward_of_shards(*parts, o, lse, causal=causal, zigzag=True)
    for whole, shards in zip(expected, zip(*found, strict=True), strict=True):
        assert np.abs(from_zigzag(shards) - whole).max() < 1e-5


@pytest.mark.parametrize("causal", [False, True])
def test_gradients_that_nccl_sends_are_those_of_the_whole(monkeypatch, causal):
    do, q, k, v = arrays(np.float32)
    o, lse = attention(q, k, v, causal=causal, return_lse=True)
    parts = [[np.ascontiguousarray(part) for part in np.split(x, 3, axis=2)] for x in (do, q, k, v, o, lse)]
    found = on_rings_by_nccl(
        monkeypatch, 3, lambda ring: ring_attention_backward(*(x[ring.rank] for x in parts), ring, causal=causal)
    )
    expected = attention_backward(do, q, k, v, o, lse, causal=causal)
    for whole, shards in zip(expected, zip(*found, strict=True), strict=True):
        assert np.abs(np.concatenate(shards, axis=2) - whole).max() < 1e-5

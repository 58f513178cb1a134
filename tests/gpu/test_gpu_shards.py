"""Attention of arrays that lie on several GPUs."""

import numpy as np
import pytest

from hw4cli import attention
from hw4cli.shards.forward import attention_of_each, attention_of_shards
from hw4cli.stream.gpus import count_here

pytestmark = pytest.mark.usefixtures("gpu")


@pytest.fixture(params=["cupy", "torch"])
def place(request):
    """Puts an array of NumPy on a GPU, as an array of a library; and brings it back."""
    if count_here() < 2:
        pytest.skip("there is one GPU")
    library = pytest.importorskip(request.param)

    def put(array, gpu):
        if request.param == "torch":
            return library.from_numpy(array).to(f"cuda:{gpu}")
        with library.cuda.Device(gpu):
            return library.asarray(array)

    return put, (lambda array: array.cpu().numpy() if request.param == "torch" else array.get())


def arrays(dtype, rows=1024, heads=4):
    rng = np.random.default_rng(0)
    return [rng.standard_normal((1, heads, rows, 64)).astype(dtype) for _ in range(3)]


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("size", [2, 1000])
def test_a_ring_of_two_gpus_computes_the_whole(place, causal, size):
    import cupy

    if not getattr(cupy.cuda.nccl, "available", True):
        pytest.skip("cupy finds no NCCL here")
    put, get = place
    whole = arrays(np.float16, rows=2 * size)
    for _ in range(3):  # the ring is used again
        shards = [[put(part, gpu) for gpu, part in enumerate(np.split(x, 2, axis=2))] for x in whole]
        found = attention_of_shards(*shards, causal=causal, return_lse=True)
        o, lse = (np.concatenate([get(part) for part in parts], axis=2) for parts in zip(*found, strict=True))
        expected, expected_lse = attention(*whole, causal=causal, return_lse=True)
        assert np.abs(o.astype(float) - expected).max() < 4e-3
        assert np.abs(lse - expected_lse).max() < 4e-3


def test_heads_on_two_gpus_are_computed_where_they_are(place):
    put, get = place
    whole = arrays(np.float16)
    parts = [[put(part, gpu) for gpu, part in enumerate(np.split(x, 2, axis=1))] for x in whole]
    found = np.concatenate([get(o) for o in attention_of_each(*parts)], axis=1)
    assert np.abs(found.astype(float) - attention(*whole)).max() < 4e-3

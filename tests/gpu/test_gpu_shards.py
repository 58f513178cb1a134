"""Attention of arrays that lie on several GPUs."""

import pickle
import subprocess
import sys

import numpy as np
import pytest

from hw4cli import MachineError, attention, attention_backward
from hw4cli.arrays.gradients.backward import gradients_of_some_keys
from hw4cli.arrays.operand import operand
from hw4cli.arrays.shards.backward import attention_backward_of_shards
from hw4cli.arrays.shards.forward import attention_of_each, attention_of_shards
from hw4cli.arrays.shards.order import from_zigzag, zigzag_shards
from hw4cli.arrays.shards.ring import NcclRing
from hw4cli.stream.gpus import count_here

pytestmark = pytest.mark.usefixtures("gpu")

# A process of a ring: its rank, and the folder with what all need.
RANK = """
import pickle, sys
import cupy, numpy as np
from hw4cli.arrays.shards.forward import ring_attention
from hw4cli.arrays.shards.ring import NcclRing
rank, folder = int(sys.argv[1]), sys.argv[2]
with cupy.cuda.Device(rank):
    ring = NcclRing.joined(rank, 2, pickle.load(open(f"{folder}/id", "rb")))
    whole = np.load(f"{folder}/arrays.npz")
    parts = [cupy.asarray(np.split(whole[name], 2, axis=2)[rank]) for name in whole.files]
    np.save(f"{folder}/{rank}.npy", ring_attention(*parts, ring, causal=True).get())
"""


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


def arrays(dtype, rows=1024, heads=4, count=3):
    rng = np.random.default_rng(0)
    return [rng.standard_normal((1, heads, rows, 64)).astype(dtype) for _ in range(count)]


def in_order(x, count):
    """Equal parts of the rows."""
    return np.split(x, count, axis=2)


def on_two_gpus(put, whole, cut=in_order):
    """Half of the rows of each array on either."""
    return [[put(np.ascontiguousarray(part), n) for n, part in enumerate(cut(x, 2))] for x in whole]


@pytest.fixture
def nccl():
    try:
        NcclRing.unique_id()
    except MachineError as reason:
        pytest.skip(str(reason))


@pytest.mark.usefixtures("nccl")
@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("size", [2, 1000])
def test_a_ring_of_two_gpus_computes_the_whole(place, causal, size):
    put, get = place
    whole = arrays(np.float16, rows=2 * size)
    expected, expected_lse = attention(*whole, causal=causal, return_lse=True)
    for _ in range(3):  # the ring is used again
        found = attention_of_shards(*on_two_gpus(put, whole), causal=causal, return_lse=True)
        o, lse = (np.concatenate([get(part) for part in parts], axis=2) for parts in zip(*found, strict=True))
        assert np.abs(o.astype(float) - expected).max() < 4e-3
        assert np.abs(lse - expected_lse).max() < 4e-3


@pytest.mark.usefixtures("nccl")
@pytest.mark.parametrize("dtype", [np.float16, np.float32])
@pytest.mark.parametrize(("causal", "zigzag"), [(False, False), (True, False), (True, True)])
def test_gradients_of_shards_on_two_gpus_are_those_of_the_whole(place, causal, zigzag, dtype):
    put, get = place
    cut, joined = (zigzag_shards, from_zigzag) if zigzag else (in_order, lambda x: np.concatenate(x, axis=2))
    do, q, k, v = whole = arrays(dtype, count=4)
    o, lse = attention(q, k, v, causal=causal, return_lse=True)
    expected = attention_backward(do, q, k, v, o, lse, causal=causal)
    shards = on_two_gpus(put, whole, cut)
    found = attention_of_shards(*shards[1:], causal=causal, zigzag=zigzag, return_lse=True)
    assert np.abs(joined([get(part) for part, _ in found]).astype(float) - o).max() < 4e-3
    found = attention_backward_of_shards(*shards, *zip(*found, strict=True), causal=causal, zigzag=zigzag)
    for right, parts in zip(expected, zip(*found, strict=True), strict=True):
        got = joined([get(part) for part in parts])
        assert got.dtype == dtype
        assert np.abs(got.astype(float) - right).max() < 4e-3 * max(1.0, np.abs(right).max())


@pytest.mark.usefixtures("nccl")
@pytest.mark.parametrize("causal", [False, True])
def test_a_ring_of_bfloat16_computes_the_whole_and_its_gradients(causal):
    if count_here() < 2:
        pytest.skip("there is one GPU")
    torch = pytest.importorskip("torch")
    whole = [torch.from_numpy(x).bfloat16() for x in arrays(np.float32, count=4)]
    do, q, k, v = (x.float().numpy() for x in whole)
    o, lse = attention(q, k, v, causal=causal, return_lse=True)
    expected = [o, *attention_backward(do, q, k, v, o, lse, causal=causal)]
    dos, qs, ks, vs = ([part.contiguous().to(f"cuda:{n}") for n, part in enumerate(x.chunk(2, dim=2))] for x in whole)
    os, lses = zip(*attention_of_shards(qs, ks, vs, causal=causal, return_lse=True), strict=True)
    gradients = zip(*attention_backward_of_shards(dos, qs, ks, vs, os, lses, causal=causal), strict=True)
    for right, parts in zip(expected, [os, *gradients], strict=True):
        got = torch.cat([part.cpu() for part in parts], dim=2)
        assert got.dtype == torch.bfloat16
        assert np.abs(got.float().numpy() - right).max() < 2e-2 * max(1.0, np.abs(right).max())


@pytest.mark.usefixtures("nccl")
@pytest.mark.timeout(30)
def test_after_a_failure_on_one_gpu_the_other_waits_for_no_copy_and_later_calls_work(place, monkeypatch):
    put, get = place
    whole = arrays(np.float16, count=4)
    do, q, k, v = on_two_gpus(put, whole)
    o, lse = zip(*attention_of_shards(q, k, v, return_lse=True), strict=True)

    def failing(given, *rest, **options):
        if operand("do", given, "BHND").device == 1:
            raise RuntimeError("out of memory")
        return gradients_of_some_keys(given, *rest, **options)

    with monkeypatch.context() as patch:
        patch.setattr("hw4cli.arrays.shards.backward.gradients_of_some_keys", failing)
        with pytest.raises(RuntimeError, match="out of memory"):
            attention_backward_of_shards(do, q, k, v, o, lse)
    found = np.concatenate([get(part) for part in attention_of_shards(q, k, v)], axis=2)
    assert np.abs(found.astype(float) - attention(*whole[1:])).max() < 4e-3


@pytest.mark.usefixtures("nccl")
def test_processes_with_a_gpu_each_make_a_ring(place, tmp_path):
    whole = arrays(np.float16)
    np.savez(tmp_path / "arrays.npz", *whole)
    (tmp_path / "id").write_bytes(pickle.dumps(NcclRing.unique_id()))
    ranks = [subprocess.Popen([sys.executable, "-c", RANK, str(rank), str(tmp_path)]) for rank in range(2)]
    try:
        assert [rank.wait(60) for rank in ranks] == [0, 0]
    finally:
        for rank in ranks:
            rank.kill()
    found = np.concatenate([np.load(tmp_path / f"{rank}.npy") for rank in range(2)], axis=2)
    assert np.abs(found.astype(float) - attention(*whole, causal=True)).max() < 4e-3


def test_heads_on_two_gpus_are_computed_where_they_are(place):
    put, get = place
    whole = arrays(np.float16)
    parts = [[put(part, gpu) for gpu, part in enumerate(np.split(x, 2, axis=1))] for x in whole]
    found = np.concatenate([get(o) for o in attention_of_each(*parts)], axis=1)
    assert np.abs(found.astype(float) - attention(*whole)).max() < 4e-3

"""Attention of arrays in several parts: by batches or heads, by a ring of shards, combined by LSE."""

import itertools
import sys
import threading
from types import ModuleType, SimpleNamespace

import numpy as np
import pytest
from fakenccl import FakeNccl, on_rings_by_nccl

from hw4cli.arrays.attention import attention
from hw4cli.arrays.shards.forward import attention_of_each, attention_of_shards, combined, ring_attention
from hw4cli.arrays.shards.order import from_zigzag, seen_of, zigzag_shards
from hw4cli.arrays.shards.places import in_threads, on_a_ring
from hw4cli.arrays.shards.ring import NcclRing, ThreadRing, _nccl
from hw4cli.errors import MachineError

pytestmark = pytest.mark.timeout(60)


def arrays(dtype=np.float32, batch=2, heads=4, kv_heads=2, rows=24, d=16, seed=0):
    rng = np.random.default_rng(seed)
    sizes = ((batch, heads, rows, d), (batch, kv_heads, rows, d), (batch, kv_heads, rows, d))
    return [rng.standard_normal(size).astype(dtype) for size in sizes]


def cut(arrays, count):
    return [np.split(array, count, axis=2) for array in arrays]


@pytest.mark.parametrize("dtype", [np.float16, np.float32])
@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("count", [1, 2, 3, 4])
def test_a_ring_of_shards_computes_the_whole(dtype, causal, count):
    q, k, v = arrays(dtype)
    expected, expected_lse = attention(q, k, v, causal=causal, return_lse=True, scale=0.3)
    found = attention_of_shards(*cut((q, k, v), count), causal=causal, scale=0.3, return_lse=True)
    o, lse = (np.concatenate(parts, axis=2) for parts in zip(*found, strict=True))
    assert o.dtype == dtype
    assert np.abs(o.astype(float) - expected).max() < (1e-6 if dtype == np.float32 else 2e-3)
    assert np.abs(lse - expected_lse).max() < 1e-5


@pytest.mark.parametrize("dtype", [np.float16, np.float32])
@pytest.mark.parametrize("count", [1, 2, 4])
@pytest.mark.parametrize("causal", [False, True])
def test_a_zigzag_of_shards_computes_the_whole(dtype, causal, count):
    whole = arrays(dtype)
    expected, expected_lse = attention(*whole, causal=causal, return_lse=True)
    found = attention_of_shards(*[zigzag_shards(x, count) for x in whole], causal=causal, zigzag=True, return_lse=True)
    o, lse = (from_zigzag(parts) for parts in zip(*found, strict=True))
    assert np.abs(o.astype(float) - expected).max() < (1e-6 if dtype == np.float32 else 2e-3)
    assert np.abs(lse - expected_lse).max() < 1e-5


@pytest.mark.parametrize("size", [2, 3, 8])
def test_in_a_zigzag_all_shards_see_equally_many_keys_and_in_order_they_do_not(size):
    q = np.empty((1, 1, 12, 4))

    def pairs(rank, zigzag):
        steps = [seen_of(q, rank, owner, True, zigzag) for owner in range(size)]
        areas = [len(range(12)[rows]) * len(range(12)[keys]) for rows, keys, _ in filter(None, steps)]
        return sum(areas)

    assert len({pairs(rank, True) for rank in range(size)}) == 1
    assert [pairs(rank, False) for rank in range(size)] == [144 * (rank + 1) for rank in range(size)]


def test_shards_that_make_no_zigzag_are_refused():
    odd = [x[:, :, :3] for x in arrays()]
    with pytest.raises(ValueError, match="two halves, but q has 3 rows and k 3"):
        attention_of_shards(*[[x, x] for x in odd], zigzag=True)
    with pytest.raises(ValueError, match="a zigzag of 5 shards has 10 equal parts: 24 rows have none"):
        zigzag_shards(arrays()[0], 5)


def test_shards_of_q_may_be_longer_than_those_of_k_unless_it_is_causal():
    _, k, v = arrays()
    many, *_ = arrays(rows=48, seed=1)
    found = attention_of_shards(np.split(many, 2, axis=2), *cut((k, v), 2))
    assert np.abs(np.concatenate(found, axis=2) - attention(many, k, v)).max() < 1e-6
    with pytest.raises(ValueError, match="causal shards have as many rows as keys, but q has 24 and k 12"):
        attention_of_shards(np.split(many, 2, axis=2), *cut((k, v), 2), causal=True)


def test_parts_of_the_keys_are_combined_whatever_their_sizes_and_rows_without_keys():
    q, k, v = arrays()
    bounds = (0, 1, 7, 24)
    parts = [attention(q, k[:, :, a:b], v[:, :, a:b], return_lse=True) for a, b in itertools.pairwise(bounds)]
    nothing = np.zeros_like(parts[0][0]), np.full_like(parts[0][1], -np.inf)
    expected, expected_lse = attention(q, k, v, return_lse=True)
    for some in (parts, parts[::-1], [nothing, *parts], [parts[0], nothing, *parts[1:]]):
        o, lse = combined(*some)
        assert np.abs(o - expected).max() < 1e-6
        assert np.abs(lse - expected_lse).max() < 1e-5
    o, lse = combined(nothing, nothing)
    assert not o.any()
    assert (lse == -np.inf).all()


def test_large_scores_do_not_overflow_where_parts_are_combined():
    q, k, v = arrays()
    k *= 1000
    halves = [attention(q, k[:, :, a:b], v[:, :, a:b], return_lse=True) for a, b in ((0, 12), (12, 24))]
    assert np.abs(combined(*halves)[0] - attention(q, k, v)).max() < 1e-4


def test_batches_or_heads_are_computed_where_the_caller_placed_them():
    q, k, v = arrays()
    found = attention_of_each([q[:1], q[1:]], [k[:1], k[1:]], [v[:1], v[1:]], causal=True)
    assert np.array_equal(np.concatenate(found), attention(q, k, v, causal=True))
    with pytest.raises(ValueError, match="there are 2 of q, 1 of k and 2 of v"):
        attention_of_each([q, q], [k], [v, v])


def test_a_shard_that_fails_ends_the_others_and_its_error_is_raised(monkeypatch):
    monkeypatch.setattr("hw4cli.arrays.shards.forward.combined", failing)
    before = threading.active_count()
    with pytest.raises(RuntimeError, match="out of memory"):
        attention_of_shards(*cut(arrays(), 3), causal=True)  # the first shard has nothing to combine
    assert threading.active_count() == before


def failing(*parts):
    raise RuntimeError("out of memory")


def test_a_worker_that_fails_aborts_the_copies_that_others_wait_for(monkeypatch):
    fake, parts = FakeNccl(3), cut(arrays(), 3)

    def work(ring):
        if ring.rank == 1:
            failing()
        return ring_attention(*(x[ring.rank] for x in parts), ring)

    with pytest.raises(RuntimeError, match="out of memory"):
        on_rings_by_nccl(monkeypatch, 3, work, fake)
    assert sorted(fake.aborted) == [0, 1, 2]


def test_ctrl_c_ends_the_workers_too(monkeypatch):
    def work(ring):
        arrive = ring.pass_on(("once",))
        return arrive(), arrive()  # the second time, for nothing

    def interrupted(self, timeout):
        raise KeyboardInterrupt

    before = set(threading.enumerate())
    with monkeypatch.context() as patch:
        patch.setattr("threading.Thread.join", interrupted)
        with pytest.raises(KeyboardInterrupt):
            in_threads(work, ThreadRing.of(2))
    for thread in set(threading.enumerate()) - before:
        thread.join(30)
        assert not thread.is_alive()


@pytest.mark.parametrize(
    ("spoil", "words"),
    [
        (lambda x: x[:, :, :4], r"k\[0\] has shape \(2, 2, 8, 16\), k\[1\] \(2, 2, 4, 16\)"),
        (lambda x: x.astype(np.float16), r"k\[0\] has dtype float32, k\[1\] float16"),
    ],
)
def test_shards_that_differ_are_refused_before_anything_is_sent(spoil, words):
    q, k, v = cut(arrays(), 3)
    k[1] = spoil(k[1])
    with pytest.raises(ValueError, match=words):
        attention_of_shards(q, k, v)


@pytest.mark.parametrize(
    ("devices", "words"),
    [
        ((1, 0, 1), "shards 0 and 2 lie on GPU 1, but a ring has one on each"),
        ((0, None), "shard 0 lies on a GPU, shard 1 in the host's memory"),
        ((None, None, 0), "shard 2 lies on a GPU, shard 0 in the host's memory"),
    ],
)
def test_shards_that_make_no_ring_of_gpus_are_refused(monkeypatch, devices, words):
    placed = iter(devices)
    monkeypatch.setattr("hw4cli.arrays.shards.places.operand", lambda *_: SimpleNamespace(device=next(placed)))
    with pytest.raises(ValueError, match=words):
        on_a_ring(devices, lambda ring: None)


@pytest.mark.parametrize("causal", [False, True])
def test_a_ring_by_nccl_sends_what_each_needs(monkeypatch, causal):
    q, k, v = arrays()
    parts = cut((q, k, v), 3)
    found = on_rings_by_nccl(
        monkeypatch, 3, lambda ring: ring_attention(*(x[ring.rank] for x in parts), ring, causal=causal)
    )
    assert np.abs(np.concatenate(found, axis=2) - attention(q, k, v, causal=causal)).max() < 1e-6


@pytest.fixture
def cupy_without_nccl(monkeypatch):
    """A cupy as version 14 is: its module for NCCL is not there before it is imported by its name."""
    for name in ("cupy", "cupy.cuda"):
        monkeypatch.setitem(sys.modules, name, ModuleType(name))
    sys.modules["cupy"].cuda = sys.modules["cupy.cuda"]
    monkeypatch.setattr("hw4cli.arrays.shards.ring.import_cupy", lambda: sys.modules["cupy"])
    _nccl.cache_clear()
    yield lambda module: monkeypatch.setitem(sys.modules, "cupy.cuda.nccl", module)
    _nccl.cache_clear()


def test_nccl_is_found_where_cupy_has_not_imported_it(cupy_without_nccl):
    module = ModuleType("cupy.cuda.nccl")
    module.available = True
    module.get_unique_id = lambda: b"an identifier"
    cupy_without_nccl(module)
    assert NcclRing.unique_id() == b"an identifier"


@pytest.mark.parametrize("available", [None, False])
def test_without_nccl_the_message_says_what_to_install(cupy_without_nccl, available):
    module = ModuleType("cupy.cuda.nccl")
    module.available = available
    cupy_without_nccl(module if available is not None else None)  # None: the import fails
    with pytest.raises(MachineError, match="nvidia-nccl-cu13"):
        NcclRing.of((0, 1))


def test_places_in_a_ring_of_threads_know_their_neighbours():
    first, second = ThreadRing.of(2)
    arrive = first.pass_on(("from the first",))
    assert second.pass_on(("from the second",))() == ("from the first",)
    assert arrive() == ("from the second",)


@pytest.mark.parametrize("arrays", [np.zeros((1, 1, 4, 8), np.float32), None])
@pytest.mark.parametrize("function", [attention_of_each, attention_of_shards])
def test_what_is_no_list_of_arrays_is_refused(function, arrays):
    with pytest.raises(TypeError, match=r"q is a (ndarray|NoneType): give a list of arrays, one for each device"):
        function(arrays, arrays, arrays)

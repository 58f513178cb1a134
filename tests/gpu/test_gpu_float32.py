"""float32 arrays on a GPU: masks, shared heads, layouts, scales; graphs, threads, devices."""

import re
import threading
import warnings
from typing import Any

import numpy as np
import pytest

import hw4cli
from hw4cli.plans.bounds import SAFE, suffices
from hw4cli.plans.dispatch import AUTO, candidates
from hw4cli.problem.workload import FLOAT32, Magnitudes, Workload

SHAPES = [  # (batch, heads, kv_heads, Nq, Nk, d, causal)
    (2, 3, 3, 300, 300, 64, True),
    (2, 6, 2, 700, 700, 32, True),
    (2, 6, 2, 129, 1025, 64, False),
    (1, 8, 2, 1, 5000, 128, True),
    (1, 4, 4, 500, 200, 64, True),
    (3, 2, 1, 257, 4100, 20, True),
]


@pytest.fixture(scope="module")
def torch(gpu):
    return pytest.importorskip("torch")


def inputs(torch, work, device="cuda"):
    torch.manual_seed(work.Nq)
    shapes = [(work.heads, work.Nq), (work.kv_heads, work.Nk), (work.kv_heads, work.Nk)]
    return [6 * torch.rand((work.batch, heads, N, work.d), device=device) - 3 for heads, N in shapes]


def definition(torch, work, q, k, v, scale=None):
    q, k, v = (x.double() for x in (q, k, v))
    k, v = (x.repeat_interleave(work.heads // work.kv_heads, dim=1) for x in (k, v))
    s = q @ k.mT * (scale or work.d**-0.5)
    if work.causal:
        last = torch.arange(work.Nq, device=q.device)[:, None] + work.Nk - work.Nq
        s = s.masked_fill(torch.arange(work.Nk, device=q.device) > last, float("-inf"))
    return torch.nan_to_num(torch.softmax(s, -1)) @ v, torch.logsumexp(s, -1)


@pytest.mark.parametrize("kernel", ["auto", "split", "split8", "exact", "flash", "float64"])
@pytest.mark.parametrize("sizes", SHAPES, ids=str)
def test_masks_and_shared_heads_are_right_and_give_the_same_bits_again(gpu, torch, sizes, kernel):
    if kernel in ("split", "split8", "exact") and gpu.props.cc < 80:
        pytest.skip("tensor cores of compute capability 8.0 are needed")
    work = Workload(FLOAT32, *sizes)
    q, k, v = inputs(torch, work)
    exact, sums = definition(torch, work, q, k, v)
    options = {"causal": work.causal, "kernel": kernel, "return_lse": kernel != "float64"}
    found = hw4cli.attention(q, k, v, **options)
    o, lse = found if kernel != "float64" else (found, None)
    assert (o.double() - exact).abs().max() <= (4e-3 if kernel in ("auto", "split", "split8") else 5e-5)
    if lse is not None:
        torch.testing.assert_close(lse.double(), sums, rtol=1e-5, atol=2e-3)
    again = hw4cli.attention(q, k, v, **options)
    assert torch.equal(again[0] if lse is not None else again, o)


def test_every_layout_is_computed_copied_where_it_must_be(torch):
    packed = 6 * torch.rand((2, 500, 8, 64), device="cuda") - 3
    q, k, v = packed.split((4, 2, 2), dim=2)
    plain = [x.transpose(1, 2).contiguous() for x in (q, k, v)]
    expected, sums = hw4cli.attention(*plain, causal=True, return_lse=True)
    out = torch.full_like(packed, float("nan"))[:, :, 2:6]
    o, lse = hw4cli.attention(q, k, v, causal=True, layout="BNHD", out=out, return_lse=True)
    assert o is out
    assert torch.equal(out.transpose(1, 2), expected)
    assert torch.equal(lse, sums)


@pytest.mark.parametrize("layout", ["BHND", "BNHD"])
def test_cupy_arrays_are_computed(gpu, layout):
    import cupy

    rng = np.random.default_rng(0)
    host = [rng.uniform(-3, 3, (2, heads, 300, 64)).astype(np.float32) for heads in (4, 2, 2)]
    expected, sums = hw4cli.attention(*host, causal=True, return_lse=True)
    order = (0, 1, 2, 3) if layout == "BHND" else (0, 2, 1, 3)
    arrays = [cupy.asarray(x).transpose(order) for x in host]
    o, lse = hw4cli.attention(*arrays, causal=True, layout=layout, return_lse=True)
    np.testing.assert_allclose(o.get().transpose(order), expected, atol=4e-3)
    np.testing.assert_allclose(lse.get(), sums, atol=1e-3)


def test_another_scale_counts_in_the_choice_of_the_kernel(torch):
    work = Workload(FLOAT32, 1, 2, 2, 200, 200, 64)
    q, k, v = inputs(torch, work)
    for scale in (0.01, 1.0, 5.0):
        exact, _ = definition(torch, work, q, k, v, scale)
        assert (hw4cli.attention(q, k, v, scale=scale).double() - exact).abs().max() <= 4e-3
    with pytest.raises(ValueError, match=r"max_error = 1e-06 is less than any kernel can keep"):
        hw4cli.attention(q, k, v, scale=5.0, max_error=1e-6)


def test_a_range_that_was_read_gives_the_same_kernel_as_one_that_is_stated(torch):
    q, k, v = inputs(torch, Workload(FLOAT32, 2, 3, 3, 300, 300, 64))
    for factor, allowed in ((1, None), (1, 1e-4), (40, None)):
        of_q, of_k, of_v = (float((factor * x).abs().max()) for x in (q, k, v))
        read = hw4cli.attention(factor * q, factor * k, factor * v, max_error=allowed)
        stated = hw4cli.attention(factor * q, factor * k, factor * v, max_error=allowed, bounds=(of_q, of_k, of_v))
        assert torch.equal(stated, read)


def captured(torch, **options):
    """A graph of one call, and what it writes to."""
    q, k, v = inputs(torch, Workload(FLOAT32, 1, 4, 2, 512, 512, 64))
    out, graph = torch.zeros_like(q), torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        hw4cli.attention(q, k, v, causal=True, out=out, **options)
    return graph, out, (q, k, v)


@pytest.mark.parametrize("options", [{}, {"bounds": (3, 3, 3)}, {"kernel": "flash"}, {"kernel": "split"}], ids=str)
def test_a_graph_captures_what_is_compiled_and_is_not_waited_for(gpu, torch, options):
    if gpu.props.cc < 80 and options.get("kernel") == "split":
        pytest.skip("tensor cores of compute capability 8.0 are needed")
    q, k, v = inputs(torch, Workload(FLOAT32, 1, 4, 2, 512, 512, 64))
    expected = hw4cli.attention(q, k, v, causal=True, **options)
    graph, out, arrays = captured(torch, **options)  # whose memory the graph reads
    others = [torch.full((1 << 22,), float("nan"), device="cuda") for _ in range(8)]  # not where the graph's scratch is
    for _ in range(3):
        assert torch.equal(arrays[0], q)
        graph.replay()
        torch.cuda.synchronize()
        assert torch.equal(out, expected)
        out.zero_()
    assert all(x.isnan().all() for x in others)


def test_a_graph_that_would_wait_for_the_range_is_refused_in_a_sentence(torch):
    with pytest.raises(ValueError, match=re.escape("which a CUDA graph cannot wait for: give bounds=")):
        captured(torch, max_error=1e-3)
    torch.cuda.synchronize()


def answered_by(torch, o, arrays, **options):
    """The kernels that give these bits."""
    found = {name: hw4cli.attention(*arrays, kernel=name, **options) for name in ("split", "exact", "flash", "float64")}
    return {name for name, other in found.items() if torch.equal(other.nan_to_num(7.5), o.nan_to_num(7.5))}


def range_of(torch, q, k, v):
    """The magnitudes, as the range check finds them or a little less."""
    norms = [float(x.double().square().sum(-1).max().sqrt()) for x in (q, k)]
    return Magnitudes(*(float(x.abs().max()) for x in (q, k, v)), *norms)


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("d", [32, 64, 128])
def test_the_gpu_chooses_a_kernel_that_is_careful_enough_around_every_limit(gpu, torch, d, causal):
    """V as large as a limit allows for the norms that there are, and a little less and more; the same from a graph."""
    if gpu.props.cc < 80:
        pytest.skip("tensor cores of compute capability 8.0 are needed")
    work = Workload(FLOAT32, 1, 4, 2, 300, 700, d)
    given = inputs(torch, work)
    arrays, graph = [x.clone() for x in given], torch.cuda.CUDAGraph()
    hw4cli.attention(*arrays, causal=causal)
    with torch.cuda.graph(graph):
        made = hw4cli.attention(*arrays, causal=causal)
    kernels, _ = candidates(AUTO, gpu.props, gpu.name, d, work.Nk, causal)
    seen = set()
    for scores in (0.01, 1.0, 2.0, 5.0, 12.0, 100.0):
        for size in (1e-4, 0.5, 1.0, *(step * most for step in (0.9, 0.999, 1.001, 1.1) for most in (1.0, 4.0, 7.0))):
            for x, other, factor in zip(arrays, given, (scores, 1.0, size), strict=True):
                x.copy_(other * factor)
            o = hw4cli.attention(*arrays, causal=causal)
            graph.replay()
            assert torch.equal(made, o)
            names = answered_by(torch, o, arrays, causal=causal) & {*kernels}
            known = range_of(torch, *arrays)
            assert any(name == kernels[-1] or suffices(name, known, d, work.Nk, gpu.props, SAFE) for name in names), (
                scores,
                size,
                names,
            )
            seen |= names
    assert len(seen) > 2


@pytest.mark.parametrize("wrong", [float("nan"), float("inf"), -float("inf")])
@pytest.mark.parametrize("part", [0, 1, 2])
def test_what_is_no_number_is_answered_by_the_last_kernel(torch, part, wrong):
    arrays = inputs(torch, Workload(FLOAT32, 1, 2, 2, 200, 200, 64))
    arrays[part][0, 1, 77, 5] = wrong
    assert "float64" in answered_by(torch, hw4cli.attention(*arrays), arrays)


def test_the_lse_of_a_choice_is_that_of_the_kernel_that_is_chosen(torch):
    arrays = inputs(torch, Workload(FLOAT32, 2, 4, 2, 200, 333, 64))
    for factor in (1.0, 2.0, 50.0):
        arrays[2] *= factor
        o, lse = hw4cli.attention(*arrays, causal=True, return_lse=True)
        (name, *_) = answered_by(torch, o, arrays, causal=True)
        assert torch.equal(hw4cli.attention(*arrays, causal=True, return_lse=True, kernel=name)[1], lse)


def test_what_is_passed_over_writes_nothing_into_memory_of_others(torch):
    arrays = inputs(torch, Workload(FLOAT32, 1, 4, 2, 512, 512, 64))
    expected = hw4cli.attention(*arrays)
    others = [torch.full((1 << 22,), float("nan"), device="cuda") for _ in range(8)]
    assert torch.equal(hw4cli.attention(*arrays), expected)
    assert all(x.isnan().all() for x in others)


@pytest.mark.parametrize("dtype", ["float32", "float16"])
def test_a_graph_of_what_is_not_compiled_is_refused_in_a_sentence(gpu, torch, dtype):
    if dtype == "float16" and not gpu.props.warpgroups:
        pytest.skip("16-bit attention needs compute capability 9.0")
    q = torch.zeros((1, 1, 64, 56), device="cuda", dtype=getattr(torch, dtype))  # a head size of no other test
    graph = torch.cuda.CUDAGraph()
    options: dict[str, Any] = {"kernel": "flash"} if dtype == "float32" else {}
    with pytest.raises(ValueError, match="is not compiled yet"), torch.cuda.graph(graph):
        hw4cli.attention(q, q, q, **options)
    torch.cuda.synchronize()


def test_nothing_deprecated_is_used(torch):
    q, k, v = inputs(torch, Workload(FLOAT32, 1, 1, 1, 64, 64, 32))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        hw4cli.attention(q, k, v)


@pytest.mark.parametrize("dtype", ["float32", "float16"])
def test_threads_on_streams_of_their_own_compute_at_once(gpu, torch, dtype):
    if dtype == "float16" and not gpu.props.warpgroups:
        pytest.skip("16-bit attention needs compute capability 9.0")
    works = [Workload(FLOAT32, 1, 4, 2, 100 + 50 * n, 300, 32 + 16 * (n % 3), n % 2 == 0) for n in range(6)]
    arrays = [[x.to(getattr(torch, dtype)) for x in inputs(torch, work)] for work in works]
    torch.cuda.synchronize()
    found: list[list[Any]] = [[] for _ in works]
    failures: list[Exception] = []

    def compute(n):
        try:
            with torch.cuda.stream(torch.cuda.Stream()):
                for _ in range(8):
                    found[n].append(hw4cli.attention(*arrays[n], causal=works[n].causal))
                torch.cuda.current_stream().synchronize()
        except Exception as error:
            failures.append(error)

    threads = [threading.Thread(target=compute, args=(n,)) for n in range(len(works))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []
    for n, work in enumerate(works):
        expected = hw4cli.attention(*arrays[n], causal=work.causal)
        assert all(torch.equal(o, expected) for o in found[n])


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_arrays_on_another_device_are_computed_there(gpu, torch, dtype):
    if torch.cuda.device_count() < 2:
        pytest.skip("needs two GPUs")
    if dtype == "bfloat16" and not gpu.props.warpgroups:
        pytest.skip("16-bit attention needs compute capability 9.0")
    q, k, v = (x.to(getattr(torch, dtype)) for x in inputs(torch, Workload(FLOAT32, 1, 4, 2, 500, 500, 64)))
    first = hw4cli.attention(q, k, v, causal=True)
    other = hw4cli.attention(*(x.to("cuda:1") for x in (q, k, v)), causal=True)
    assert other.device.index == 1 and torch.cuda.current_device() == 0
    assert torch.equal(other.to("cuda:0"), first)
    with pytest.raises(ValueError, match="q is on GPU 0, k on GPU 1: bring them together"):
        hw4cli.attention(q, k.to("cuda:1"), v)

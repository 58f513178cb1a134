"""Gradients on the GPU against float64: every element type, masks, shared heads, strides, hostile values; same bits."""

import numpy as np
import pytest
from gpuexact import exact_gradients

from hw4cli import attention_backward
from hw4cli.problem import oracle
from hw4cli.problem.workload import BFLOAT16, FLOAT16, FLOAT32, Workload

# Of the largest gradient: rounding of the results, and of O, from which delta is computed.
ALLOWED = {FLOAT32: 2e-5, FLOAT16: 2e-3, BFLOAT16: 1.6e-2}
WORKLOADS = [
    *(Workload(FLOAT32, 2, 2, 2, 300, 300, d, causal) for d in (4, 32, 64, 100, 128) for causal in (False, True)),
    *(Workload(dtype, 1, 6, 2, 257, 300, d, True, 43) for dtype in (FLOAT16, BFLOAT16) for d in (32, 64, 128)),
    Workload(FLOAT32, 1, 1, 1, 1, 5000, 64),
    Workload(FLOAT32, 3, 4, 1, 129, 4097, 40, True, 3968),
    Workload(FLOAT32, 1, 2, 2, 700, 300, 64, True, -400),
    Workload(FLOAT32, 1, 1, 1, 8192, 8192, 32),
]


@pytest.fixture(scope="module")
def torch():
    return pytest.importorskip("torch")


def operands(torch, work, factor=1.0):
    torch.manual_seed(0)
    sizes = [(work.heads, work.Nq), (work.heads, work.Nq), (work.kv_heads, work.Nk), (work.kv_heads, work.Nk)]
    dtype = getattr(torch, work.dtype)
    return [(factor * torch.randn(work.batch, *size, work.d, device="cuda")).to(dtype) for size in sizes]


def definition(torch, q, k, v, work):
    """O and the LSE, in float64."""
    k, v = (x.double().repeat_interleave(work.heads // work.kv_heads, dim=1) for x in (k, v))
    s = q.double() @ k.transpose(2, 3) * work.scale
    if work.causal:
        seen = torch.ones(work.Nq, work.Nk, dtype=torch.bool, device="cuda").tril(work.offset)
        s = s.masked_fill(~seen, -torch.inf)
    return torch.nan_to_num(s.softmax(3)) @ v, s.logsumexp(3)


@pytest.mark.parametrize("work", WORKLOADS, ids=str)
def test_gradients_are_right_and_have_the_same_bits_again(gpu, torch, work):
    do, q, k, v = operands(torch, work)
    o, lse = (x.to(y) for x, y in zip(definition(torch, q, k, v, work), (q.dtype, torch.float32), strict=True))
    got = attention_backward(do, q, k, v, o, lse, causal=work.causal)
    again = attention_backward(do, q, k, v, o, lse, causal=work.causal)
    exact = exact_gradients(do, q, k, v, causal=work.causal, offset=work.offset)
    for one, other, right in zip(got, again, exact, strict=True):
        assert torch.equal(one, other)
        error = np.abs(one.double().cpu().numpy() - right).max()
        assert error <= ALLOWED[work.dtype] * max(np.abs(right).max(), 1e-3), error


def test_a_hundred_runs_give_the_same_bits(gpu, torch):
    work = Workload(FLOAT32, 2, 8, 8, 1024, 1024, 64, True)
    do, q, k, v = operands(torch, work)
    o, lse = (x.float() for x in definition(torch, q, k, v, work))
    first = attention_backward(do, q, k, v, o, lse, causal=True)
    for _ in range(99):
        for one, other in zip(first, attention_backward(do, q, k, v, o, lse, causal=True), strict=True):
            assert torch.equal(one, other)


def test_the_oracle_gives_on_the_gpu_what_it_gives_on_the_cpu(gpu):
    draw = np.random.default_rng(0)
    do, q = draw.standard_normal((2, 2, 6, 130, 40))
    k, v = draw.standard_normal((2, 2, 3, 170, 40))
    for how in ({}, {"causal": True, "offset": -30}, {"causal": True, "offset": 40, "scale": 0.5}):
        right = oracle.exact_gradients(do, q, k, v, **how)
        for one, other in zip(oracle.exact_gradients(*map(gpu.cupy.asarray, (do, q, k, v)), **how), right, strict=True):
            assert np.abs(one.get() - other).max() <= 1e-12 * np.abs(other).max()

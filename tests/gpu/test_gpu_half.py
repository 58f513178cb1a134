"""hw4cli.attention on a GPU: arrays of CuPy and torch against float64, and the same bits every time."""

import re
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

import hw4cli
from hw4cli.plans.half import NAME as HALF
from hw4cli.plans.kernels16 import KERNELS16
from hw4cli.problem.workload import BFLOAT16, FLOAT16, Workload

SHAPES = [  # (batch, heads, kv_heads, Nq, Nk, d, causal)
    *((2, 4, 2, 1000, 1000, d, causal) for d in (64, 128) for causal in (False, True)),
    *((1, 3, 1, 129, 4097, d, causal) for d in (64, 128) for causal in (False, True)),
    (1, 8, 8, 1, 5000, 64, False),
    (2, 4, 2, 777, 900, 40, True),
    (2, 4, 2, 777, 900, 32, False),
    (2, 4, 4, 300, 200, 96, True),
    (1, 40, 40, 2048, 2048, 128, True),
    (3, 100, 50, 128, 128, 64, False),  # short rows, in more tiles than there are multiprocessors
    (2, 100, 100, 128, 97, 32, False),
    (2, 8, 4, 50, 60, 64, True),
    (5, 40, 40, 100, 128, 128, True),
]


@pytest.fixture(scope="module")
def torch(gpu):
    if gpu.props.cc < 80:
        pytest.skip("16-bit attention needs compute capability 8.0")
    return pytest.importorskip("torch")


def random(torch, shape, dtype, device="cuda"):
    torch.manual_seed(sum(shape))
    return torch.randn(shape, device=device, dtype=getattr(torch, dtype))


def inputs(torch, work):
    q = random(torch, (work.batch, work.heads, work.Nq, work.d), work.dtype)
    return q, *(random(torch, (work.batch, work.kv_heads, work.Nk, work.d), work.dtype) for _ in range(2))


def definition(torch, work, q, k, v):
    """O and the LSE in float64, by torch."""
    q, k, v = (x.double() for x in (q, k, v))
    k, v = (x.repeat_interleave(work.heads // work.kv_heads, dim=1) for x in (k, v))
    s = q @ k.mT / work.d**0.5
    if work.causal:
        last = torch.arange(work.Nq, device=q.device)[:, None] + work.Nk - work.Nq
        s = s.masked_fill(torch.arange(work.Nk, device=q.device) > last, float("-inf"))
    return torch.nan_to_num(torch.softmax(s, -1)) @ v, torch.logsumexp(s, -1)


@pytest.mark.parametrize(("batch", "keys"), [(1, 4096), (16, 1024), (64, 300)])
def test_steps_of_decoding_read_what_is_written_right_in_front_of_them(gpu, torch, batch, keys):
    """A launch may begin before the one in front has ended: another kernel, or that of a call whose O is its Q."""
    work = Workload(BFLOAT16, batch, 32, 8, 1, keys, 128)
    first, *whole = inputs(torch, work)
    whole[1] *= keys**0.5  # so that O is about as large as Q

    def steps(wait):
        (k, v), q, found = (torch.zeros_like(x) for x in whole), first, []
        for n in range(10):
            k.copy_(whole[0].roll(n, 2))
            v.copy_(whole[1].roll(2 * n, 2))
            for _ in range(3):
                q = hw4cli.attention(q, k, v)
                found.append(q)
                if wait:
                    torch.cuda.synchronize()
        return torch.stack(found)

    expected = steps(wait=True)
    assert len({row.float().sum().item() for row in expected}) > 10
    for _ in range(3):
        assert torch.equal(steps(wait=False), expected)


@pytest.mark.parametrize("kernel", KERNELS16)
@pytest.mark.parametrize("dtype", [FLOAT16, BFLOAT16])
@pytest.mark.parametrize("sizes", SHAPES, ids=str)
def test_16_bit_attention_is_right_and_gives_the_same_bits_again(gpu, torch, sizes, dtype, kernel):
    if kernel == HALF and not gpu.props.warpgroups:
        pytest.skip("half needs compute capability 9.0")
    work = Workload(dtype, *sizes)
    q, k, v = inputs(torch, work)
    o, lse = hw4cli.attention(q, k, v, causal=work.causal, return_lse=True, kernel=kernel)
    exact, sums = definition(torch, work, q, k, v)
    assert (o.double() - exact).norm() <= (1e-3 if dtype == FLOAT16 else 4e-3) * exact.norm()
    torch.testing.assert_close(lse.double(), sums, rtol=1e-5, atol=1e-3 if dtype == FLOAT16 else 5e-3)
    assert torch.equal(hw4cli.attention(q, k, v, causal=work.causal, kernel=kernel), o)


def test_heads_may_lie_apart_and_the_answer_go_elsewhere(torch):
    packed = random(torch, (2, 500, 8, 64), FLOAT16)
    q, k, v = packed.split((4, 2, 2), dim=2)
    out = torch.full_like(packed, float("nan"))[:, :, 2:6]
    assert hw4cli.attention(q, k, v, layout="BNHD", out=out) is out
    plain = hw4cli.attention(*(x.transpose(1, 2).contiguous() for x in (q, k, v)))
    assert torch.equal(out.transpose(1, 2), plain)


def test_torch_s_current_stream_is_used(torch):
    q, k, v = inputs(torch, Workload(FLOAT16, 1, 8, 8, 2048, 2048, 64))
    expected = hw4cli.attention(q, k, v)
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        late = q * 0
        for _ in range(50):
            late = late + q / 50
        o = hw4cli.attention(late.copy_(q), k, v)
    stream.synchronize()
    assert torch.equal(o, expected)


def test_a_thread_that_has_not_used_the_gpu_yet_may_call(torch):
    q, k, v = inputs(torch, Workload(FLOAT16, 1, 8, 8, 2048, 2048, 64))
    expected, out = hw4cli.attention(q, k, v), torch.zeros_like(q)
    copies = [x.clone() for x in (q, k, v)]  # at other addresses, for which nothing is prepared
    with ThreadPoolExecutor(1) as pool:
        pool.submit(hw4cli.attention, *copies, out=out).result()
    assert torch.equal(out, expected)


@pytest.mark.parametrize(
    "work", [Workload(BFLOAT16, 1, 4, 4, 512, 512, 128), Workload(BFLOAT16, 1, 8, 2, 1, 9000, 64)], ids=str
)
def test_a_cuda_graph_captures_it(torch, work):
    q, k, v = inputs(torch, work)
    expected = hw4cli.attention(q, k, v)
    out = torch.zeros_like(q)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        hw4cli.attention(q, k, v, out=out)
    graph.replay()
    torch.cuda.synchronize()
    assert torch.equal(out, expected)


def test_cupy_arrays_are_computed(gpu):
    if gpu.props.cc < 75:
        pytest.skip("16-bit attention needs compute capability 7.5")
    import cupy

    rng = np.random.default_rng(0)
    host = [rng.standard_normal((1, 2, 300, 64)).astype(np.float16) for _ in range(3)]
    o = hw4cli.attention(*map(cupy.asarray, host), causal=True)
    np.testing.assert_allclose(o.get(), hw4cli.attention(*host, causal=True), atol=3e-3)


@pytest.mark.parametrize("options", [{}, {"bounds": (3, 3, 3)}, {"kernel": "flash"}, {"max_error": 1e-4}], ids=str)
def test_float32_goes_to_the_ladder_s_kernels(gpu, options):
    import cupy

    rng = np.random.default_rng(0)
    host = [rng.uniform(-3, 3, (2, 3, 300, 64)).astype(np.float32) for _ in range(3)]
    o, lse = hw4cli.attention(*map(cupy.asarray, host), return_lse=True, **options)
    expected, sums = hw4cli.attention(*host, return_lse=True)
    np.testing.assert_allclose(o.get(), expected, atol=4e-3)
    np.testing.assert_allclose(lse.get(), sums, atol=1e-3)


WRONG = {
    "do not lie side by side": lambda x: x.mT.contiguous().mT,
    "give positive multiples of 8": lambda x: x[..., :12].as_strided((1, 2, 64, 64), (1, 4160, 65, 1)),
    "does not begin at a multiple of 16 bytes": lambda x: x.flatten()[4 : 4 + 8192].view(1, 2, 64, 64),
    "requires a gradient": lambda x: x.clone().requires_grad_(),
    "q is on cpu: move it to a GPU": lambda x: x.cpu(),
}


@pytest.mark.parametrize("sentence", WRONG)
def test_what_a_kernel_cannot_read_is_refused(torch, sentence):
    x = random(torch, (1, 2, 64, 64), FLOAT16)
    if "multiples" in sentence or "begin" in sentence:
        x = random(torch, (1, 2, 65, 64), FLOAT16)
    q = WRONG[sentence](x)
    rest = random(torch, (1, 2, 64, 64), FLOAT16)
    with pytest.raises(ValueError, match=re.escape(sentence)):
        hw4cli.attention(q, rest, rest)


@pytest.mark.parametrize("rows", [1, 7])
@pytest.mark.parametrize("d", [64, 128])
def test_few_rows_of_many_keys_are_right_and_keep_max_error(torch, rows, d):
    work = Workload(BFLOAT16, 3, 32, 8, rows, 20000, d, causal=True)
    q, k, v = inputs(torch, work)
    o, lse = hw4cli.attention(q, k, v, causal=True, return_lse=True)
    exact, sums = definition(torch, work, q, k, v)
    assert (o.double() - exact).norm() <= 4e-3 * exact.norm()
    torch.testing.assert_close(lse.double(), sums, rtol=1e-5, atol=5e-3)
    assert torch.equal(hw4cli.attention(q, k, v, causal=True), o)
    again = hw4cli.attention(q, k, v, causal=True, max_error=0.1)
    assert (again.double() - exact).abs().max() <= 0.1
    with pytest.raises(ValueError, match="max_error is 1e-06, and the error of half_split can be as large as"):
        hw4cli.attention(q, k, v, causal=True, max_error=1e-6, kernel="half_split")

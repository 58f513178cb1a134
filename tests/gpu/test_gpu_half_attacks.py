"""What 16-bit kernels on a GPU might get wrong: rare head sizes, odd strides, the ends of arrays, hostile numbers."""

import pytest
from test_gpu_half import definition

import hw4cli
from hw4cli.plans.half import NAME as HALF
from hw4cli.plans.kernels16 import KERNELS16, plan16
from hw4cli.problem.workload import BFLOAT16, FLOAT16, Workload

UNIT = {FLOAT16: 2.0**-11, BFLOAT16: 2.0**-8}


@pytest.fixture(scope="module")
def torch(gpu):
    if gpu.props.cc < 80:
        pytest.skip("16-bit attention needs compute capability 8.0")
    return pytest.importorskip("torch")


@pytest.fixture(params=KERNELS16)
def kernel(request, gpu):
    if request.param == HALF and not gpu.props.warpgroups:
        pytest.skip("half needs compute capability 9.0")
    return request.param


def apart(torch, shape, dtype, seed):
    """Random numbers in a view with gaps everywhere, and the array that holds them, NaN between them."""
    batch, heads, rows, d = shape
    whole = torch.full(
        (batch + 1, heads + 1, rows + 3, d + 24), float("nan"), dtype=getattr(torch, dtype), device="cuda"
    )
    view = whole[1:, :heads, 2 : 2 + rows, 8 : 8 + d]
    torch.manual_seed(seed)
    view.copy_(torch.randn(shape, device="cuda"))
    return whole, view


def assert_right(torch, work, q, k, v, o, lse=None):
    exact, sums = definition(torch, work, q, k, v)
    assert torch.isfinite(o).all()
    assert (o.double() - exact).norm() <= 2.5 * UNIT[work.dtype] * exact.norm()
    if lse is not None:
        torch.testing.assert_close(lse.double(), sums, rtol=1e-5, atol=2 * UNIT[work.dtype])


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("d", [8, 40, 80, 96, 120])
def test_nothing_beside_the_arrays_is_read_or_written(torch, kernel, d, causal):
    """Shared heads, other numbers of keys than of rows, gaps full of NaN between rows, heads and batches."""
    work = Workload(FLOAT16 if d % 16 else BFLOAT16, 2, 4, 2, 129, 333, d, causal, 204)
    (_, q), (_, k), (_, v) = (
        apart(torch, (2, heads, rows, d), work.dtype, seed)
        for seed, (heads, rows) in enumerate([(4, 129), (2, 333), (2, 333)])
    )
    whole, out = apart(torch, q.shape, work.dtype, 3)
    beside = torch.isnan(whole)
    o, lse = hw4cli.attention(q, k, v, causal=causal, kernel=kernel, out=out, return_lse=True)
    assert o is out
    assert torch.equal(torch.isnan(whole), beside)
    assert_right(torch, work, q, k, v, o, lse)


@pytest.mark.parametrize("sizes", [(1, 5000), (129, 4097), (200, 63), (4097, 129), (1, 1), (64, 65)], ids=str)
@pytest.mark.parametrize("align", ["bottom-right", "top-left"])
def test_masks_of_other_numbers_of_keys_than_of_rows_are_right(torch, kernel, sizes, align):
    rows, keys = sizes
    work = Workload(BFLOAT16, 1, 6, 2, rows, keys, 64, True, keys - rows if align == "bottom-right" else 0)
    torch.manual_seed(rows)
    q, k, v = (
        torch.randn((1, n, N, 64), device="cuda", dtype=torch.bfloat16) for n, N in ((6, rows), (2, keys), (2, keys))
    )
    o = hw4cli.attention(q, k, v, causal=True, align=align, kernel=kernel)
    last = torch.arange(rows, device="cuda")[:, None] + work.offset
    s = (q.double() @ k.double().repeat_interleave(3, dim=1).mT) / 8
    s = s.masked_fill(torch.arange(keys, device="cuda") > last, float("-inf"))
    exact = torch.nan_to_num(torch.softmax(s, -1)) @ v.double().repeat_interleave(3, dim=1)
    assert (o.double() - exact).norm() <= 2.5 * UNIT[BFLOAT16] * exact.norm()
    assert not o[:, :, : max(0, -work.offset)].any(), "rows without keys give 0"


def hostile(torch, name, shape):
    """Q, K and V whose scores do what the softmax finds hard."""
    torch.manual_seed(1)
    q, k, v = (torch.randn(shape, device="cuda") for _ in range(3))
    along = torch.linspace(0, 1, shape[2], device="cuda")[:, None]
    if name == "grow along the keys":
        k = k * 6 * along
    elif name == "fall far below 0":
        q, k = q.abs() * 4, -k.abs() * 4
    elif name == "rise from far below 0":
        q, k = torch.full_like(q, 4.0), (along - 1) * 8 + 0 * k
    elif name == "are hundreds":
        q, k = q * 20, k * 20
    elif name == "are all alike":
        k = k[:, :, :1].expand(shape).contiguous()
    elif name == "weigh the largest values":
        v = v.sign() * 60000
    return q, k, v


@pytest.mark.parametrize(
    "name",
    [
        "grow along the keys",
        "fall far below 0",
        "rise from far below 0",
        "are hundreds",
        "are all alike",
        "weigh the largest values",
    ],
)
@pytest.mark.parametrize("d", [64, 128])
def test_scores_that_the_softmax_finds_hard_are_weighed_right(torch, kernel, d, name):
    work = Workload.square(FLOAT16, 1, 2, 777, d, causal=d == 128)
    q, k, v = (x.half() for x in hostile(torch, name, (1, 2, 777, d)))
    o = hw4cli.attention(q, k, v, causal=work.causal, kernel=kernel)
    exact, _ = definition(torch, work, q, k, v)
    assert torch.isfinite(o).all()
    largest = 4 if name == "are hundreds" else 2.5  # scores are sums of float32: of hundreds, 2^-15 is cut off
    assert (o.double() - exact).abs().max() <= largest * UNIT[FLOAT16] * v.abs().max().double()


def test_which_block_takes_a_tile_changes_no_bit(gpu, torch):
    """Blocks take tiles as they come, in each run others."""
    if not gpu.props.warpgroups:
        pytest.skip("half needs compute capability 9.0")
    work = Workload.square(BFLOAT16, 1, 64, 2000, 128, causal=True)
    assert plan16(work, gpu.props, HALF).scratch, "tiles are counted on the GPU"
    torch.manual_seed(0)
    q, k, v = (torch.randn((1, 64, 2000, 128), device="cuda", dtype=torch.bfloat16) for _ in range(3))
    first = hw4cli.attention(q, k, v, causal=True)
    assert_right(torch, work, q, k, v, first)
    streams = [torch.cuda.Stream() for _ in range(4)]
    torch.cuda.synchronize()
    again = []
    for stream in streams * 3:
        with torch.cuda.stream(stream):
            again.append(hw4cli.attention(q, k, v, causal=True))
    torch.cuda.synchronize()
    assert all(torch.equal(o, first) for o in again)

"""Sequences of several lengths on a GPU, padded and packed, against float64; what is in no sequence is never read."""

import itertools
from typing import Any

import numpy as np
import pytest
from test_gpu_gradients import ALLOWED

from hw4cli import attention, attention_backward
from hw4cli.problem.oracle import exact_gradients, exact_heads
from hw4cli.problem.workload import BFLOAT16, FLOAT16, FLOAT32

pytestmark = pytest.mark.usefixtures("gpu")
LENGTHS = [0, 1, 127, 128, 129, 700, 333, 333]
ERROR = {FLOAT16: 4e-3, BFLOAT16: 3e-2, FLOAT32: 1e-5}  # of O, of elements around 1
KERNEL = {FLOAT16: "auto", BFLOAT16: "auto", FLOAT32: "flash"}  # whose O is as exact as gradients expect


@pytest.fixture(scope="module")
def torch():
    return pytest.importorskip("torch")


def packed(torch, dtype, lengths, d, heads=4, kv_heads=2, seed=0):
    """dO, Q, K and V (total, heads, d)."""
    random = torch.Generator("cuda").manual_seed(seed)
    counts, total = (heads, heads, kv_heads, kv_heads), sum(lengths)
    return [torch.randn(total, n, d, generator=random, device="cuda").to(getattr(torch, dtype)) for n in counts]


def starts_of(lengths):
    return [0, *itertools.accumulate(lengths)]


def assert_right(torch, found, arrays, starts, key_starts, causal, dtype):
    """O, the LSE, dQ, dK and dV of each sequence; zeros for one without keys or rows."""
    o, lse, *made = found
    for (row, end), (key, key_end) in zip(itertools.pairwise(starts), itertools.pairwise(key_starts), strict=True):
        mine, theirs = slice(row, end), slice(key, key_end)
        places = mine, mine, theirs, theirs
        do, q, k, v = (
            x[place].double().swapaxes(0, 1)[None].cpu().numpy() for x, place in zip(arrays, places, strict=True)
        )
        if row == end or key == key_end:
            rest = (o[mine], made[0][mine], made[1][theirs], made[2][theirs])
            assert not any(x.any() for x in rest) and bool((lse[:, mine] == -torch.inf).all())
            continue
        offset = key_end - key - (end - row)
        right, sums = exact_heads(q, k, v, causal=causal, offset=offset)
        gradients = exact_gradients(do, q, k, v, causal=causal, offset=offset)
        got = o[mine].double().swapaxes(0, 1).cpu().numpy()
        assert np.abs(got - right[0]).max() <= ERROR[dtype]
        np.testing.assert_allclose(lse[:, mine].cpu(), sums[0], atol=4e-3 if dtype == BFLOAT16 else 1e-3)
        for x, place, exact in zip(made, (mine, theirs, theirs), gradients, strict=True):
            got = x[place].double().swapaxes(0, 1).cpu().numpy()
            assert np.abs(got - exact[0]).max() <= ALLOWED[dtype] * max(1, np.abs(exact).max())


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize(("dtype", "d"), [(FLOAT16, 64), (BFLOAT16, 128), (FLOAT16, 40), (BFLOAT16, 20), (FLOAT32, 64)])
def test_packed_sequences_are_right_by_themselves_and_the_same_bits_again(torch, dtype, d, causal):
    arrays = packed(torch, dtype, LENGTHS, d)
    starts = starts_of(LENGTHS)
    asked = {"cu_seqlens_q": torch.tensor(starts, device="cuda"), "cu_seqlens_k": starts, "causal": causal}
    do, q, k, v = arrays

    def computed():
        o, lse = attention(q, k, v, layout="BNHD", return_lse=True, kernel=KERNEL[dtype], **asked)
        return o, lse, *attention_backward(do, q, k, v, o, lse, layout="BNHD", **asked)

    found = computed()
    assert_right(torch, found, arrays, starts, starts, causal, dtype)
    assert all(torch.equal(x, y) for x, y in zip(found, computed(), strict=True))


@pytest.mark.parametrize("kernel", ["half", "half_mma", "half_cores", "half_split"])
def test_each_kernel_of_16_bits_answers(torch, gpu, kernel):
    if kernel == "half" and not gpu.props.warpgroups:
        pytest.skip("needs compute capability 9.0")
    arrays = packed(torch, FLOAT16, LENGTHS, 128)
    starts = starts_of(LENGTHS)
    asked = {"cu_seqlens_q": starts, "cu_seqlens_k": starts, "causal": True, "layout": "BNHD"}
    do, q, k, v = arrays
    o, lse = attention(q, k, v, return_lse=True, kernel=kernel, **asked)
    found = o, lse, *attention_backward(do, q, k, v, o, lse, **asked)
    assert_right(torch, found, arrays, starts, starts, True, FLOAT16)


@pytest.mark.parametrize("rows", [1, 3])
@pytest.mark.parametrize(("dtype", "d"), [(FLOAT16, 64), (BFLOAT16, 128)])
def test_steps_of_decoding_split_the_keys_of_each_sequence(torch, dtype, d, rows):
    keys = [5000, 1, 0, 1700, 64, 130]
    _, q, *_ = packed(torch, dtype, [rows] * len(keys), d, heads=8)
    *_, k, v = packed(torch, dtype, [max(keys)] * len(keys), d, seed=1)
    q, k, v = (x.reshape(len(keys), -1, *x.shape[1:]) for x in (q, k, v))
    asked: dict[str, Any] = {"lengths": keys, "causal": True, "layout": "BNHD", "return_lse": True}
    o, lse = attention(q, k, v, **asked)
    for n, count in enumerate(keys):
        if not count:
            assert not o[n].any() and bool((lse[n] == -torch.inf).all())
            continue
        one = [x[n : n + 1].double().swapaxes(1, 2).cpu().numpy() for x in (q, k[:, :count], v[:, :count])]
        right, sums = exact_heads(*one, causal=True, offset=count - rows)
        assert np.abs(o[n].double().swapaxes(0, 1).cpu().numpy() - right[0]).max() <= ERROR[dtype]
        np.testing.assert_allclose(lse[n].cpu(), sums[0], atol=4e-3 if dtype == BFLOAT16 else 1e-3)
    again = attention(q, k, v, **asked)
    assert torch.equal(o, again[0]) and torch.equal(lse, again[1])


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("d", [64, 128])
@pytest.mark.parametrize("kernel", ["backward_once", "backward_wgmma", "backward_mma", "backward"])
def test_each_kernel_of_gradients_computes_many_short_sequences(torch, gpu, kernel, d, causal):
    """With the same bits in each run."""
    if kernel in ("backward_once", "backward_wgmma") and not gpu.props.warpgroups:
        pytest.skip("needs compute capability 9.0")
    lengths = np.random.default_rng(d).integers(0, 140, 90).tolist()
    arrays, starts = packed(torch, BFLOAT16, lengths, d), starts_of(lengths)
    asked = {"cu_seqlens_q": starts, "cu_seqlens_k": starts, "causal": causal, "layout": "BNHD"}
    do, q, k, v = arrays
    o, lse = attention(q, k, v, return_lse=True, **asked)
    found, *others = (attention_backward(do, q, k, v, o, lse, kernel=kernel, **asked) for _ in range(4))
    assert_right(torch, (o, lse, *found), arrays, starts, starts, causal, BFLOAT16)
    assert all(torch.equal(x, y) for other in others for x, y in zip(found, other, strict=True))


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("dtype", [FLOAT16, BFLOAT16])
def test_rows_and_keys_may_be_differently_many(torch, dtype, causal):
    rows, keys = [5, 300, 0, 129, 1, 64], [300, 5, 70, 0, 2000, 65]
    do, q, *_ = packed(torch, dtype, rows, 64)
    *_, k, v = packed(torch, dtype, keys, 64, seed=1)
    asked = {"cu_seqlens_q": starts_of(rows), "cu_seqlens_k": starts_of(keys), "causal": causal, "layout": "BNHD"}
    o, lse = attention(q, k, v, return_lse=True, **asked)
    found = o, lse, *attention_backward(do, q, k, v, o, lse, **asked)
    assert_right(torch, found, (do, q, k, v), starts_of(rows), starts_of(keys), causal, dtype)


@pytest.mark.parametrize("side", ["right", "left"])
@pytest.mark.parametrize(("dtype", "d"), [(FLOAT16, 64), (BFLOAT16, 128), (FLOAT16, 20), (FLOAT32, 64), (FLOAT32, 7)])
def test_padding_is_never_read_and_answered_with_zeros(torch, dtype, d, side):
    """Padding of NaN gives the bits of padding of zeros, and of the sequences alone."""
    arrays = packed(torch, dtype, LENGTHS, d)
    starts, most = starts_of(LENGTHS), max(LENGTHS)
    asked = {"lengths": LENGTHS, "q_lengths": LENGTHS, "padding": side, "causal": True, "layout": "BNHD"}
    found = []
    for filler in (0.0, float("nan")):
        padded = [x.new_full((len(LENGTHS), most, *x.shape[1:]), filler) for x in arrays]
        for n, length in enumerate(LENGTHS):
            some = slice(0, length) if side == "right" else slice(most - length, most)
            for whole, x in zip(padded, arrays, strict=True):
                whole[n, some] = x[starts[n] : starts[n] + length]
        do, q, k, v = padded
        for _ in range(2):  # the second call of its kind is found, and begins with memory that was in use
            o, lse = attention(q, k, v, return_lse=True, kernel=KERNEL[dtype], **asked)
            found.append((o, lse, *attention_backward(do, q, k, v, o, lse, **asked)))
            [torch.full_like(x, float("nan")) for x in found[-1]]
    assert all(torch.equal(x, y) for other in found[1:] for x, y in zip(found[0], other, strict=True))

    def cut(x, axis):
        some = (slice(0, n) if side == "right" else slice(most - n, most) for n in LENGTHS)
        return torch.cat([x[n].narrow(axis, s.start, s.stop - s.start) for n, s in enumerate(some)], axis)

    o, lse, *made = found[0]
    sequences = cut(o, 0), cut(lse, 1), *(cut(x, 0) for x in made)
    assert_right(torch, sequences, arrays, starts, starts, True, dtype)
    assert int(torch.count_nonzero(o).item()) == int(torch.count_nonzero(sequences[0]).item())


def test_arrays_of_cupy_have_sequences_too(torch, gpu):
    cupy = gpu.cupy
    _, q, k, v = packed(torch, FLOAT16, LENGTHS, 64)
    starts = cupy.asarray(starts_of(LENGTHS))
    asked = {"cu_seqlens_q": starts, "cu_seqlens_k": starts, "layout": "BNHD"}
    found = attention(*map(cupy.asarray, (q, k, v)), **asked)
    assert torch.equal(torch.as_tensor(found, device="cuda"), attention(q, k, v, **asked))


def test_torch_layers_of_padded_batches_learn(torch):
    import hw4cli.torch

    q, k, v = (torch.randn(4, 2, 130, 64, device="cuda", dtype=torch.bfloat16, requires_grad=True) for _ in range(3))
    lengths = torch.tensor([130, 64, 1, 0], device="cuda")
    seen = torch.arange(130, device="cuda") < lengths[:, None]
    o = hw4cli.torch.attention(q, k, v, lengths=lengths)
    mask = seen[:, None, None].expand(-1, -1, 130, -1).clone()
    mask[3] = True  # torch gives NaN where a row sees nothing
    right = torch.nn.functional.scaled_dot_product_attention(q, k, v, mask)
    torch.testing.assert_close(o[:3], right[:3], atol=2e-2, rtol=0)
    assert not o[3].any()
    ours = torch.autograd.grad(o[:3].float().square().sum(), (q, k, v))
    theirs = torch.autograd.grad(right[:3].float().square().sum(), (q, k, v))
    for x, y in zip(ours, theirs, strict=True):
        torch.testing.assert_close(x[:3], y[:3], atol=6e-2, rtol=2e-2)
    assert not ours[1][1, :, 64:].any() and not ours[0][3].any()


@pytest.mark.parametrize("change", [{}, {"softcap": 2.0}])
def test_a_graph_of_sequences_computes_what_is_in_the_arrays_when_it_is_replayed(torch, change):
    """Its table is its own: many calls lie between, which use the host's memory and the GPU's for other ones."""
    lengths = [LENGTHS[n % len(LENGTHS)] for n in range(240)]  # a table of more than a launch's argument
    do, q, k, v = packed(torch, FLOAT16, lengths, 64)
    starts = starts_of(lengths)
    asked = {"cu_seqlens_q": starts, "cu_seqlens_k": starts, "causal": True, "layout": "BNHD", **change}

    def step():
        o, lse = attention(q, k, v, return_lse=True, **asked)
        return o, lse, *attention_backward(do, q, k, v, o, lse, **asked)

    step()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        made = step()
    for seed in (1, 2):
        for x, other in zip((do, q, k, v), packed(torch, FLOAT16, lengths, 64, seed=seed), strict=True):
            x.copy_(other)
        for n in range(20):
            others = [0, n + 1, n + 301]
            some = packed(torch, FLOAT16, [n + 1, 300], 64)[1:]
            attention(*some, layout="BNHD", cu_seqlens_q=others, cu_seqlens_k=others)
        graph.replay()
        torch.cuda.synchronize()
        for found, expected in zip(made, step(), strict=True):
            assert torch.equal(found, expected)


def test_a_graph_that_is_captured_refuses_numbers_on_a_gpu(torch):
    _, q, k, v = packed(torch, FLOAT16, LENGTHS, 64)
    starts = starts_of(LENGTHS)
    on_gpu = torch.tensor(starts, device="cuda")
    before = attention(q, k, v, cu_seqlens_q=starts, cu_seqlens_k=starts, layout="BNHD")
    torch.cuda.synchronize()
    with pytest.raises(ValueError, match="cannot be waited for"), torch.cuda.graph(torch.cuda.CUDAGraph()):
        attention(q, k, v, cu_seqlens_q=on_gpu, cu_seqlens_k=starts, layout="BNHD")
    torch.cuda.synchronize()
    assert torch.equal(attention(q, k, v, cu_seqlens_q=starts, cu_seqlens_k=starts, layout="BNHD"), before)


@pytest.mark.parametrize("dtype", [FLOAT16, FLOAT32])
def test_packed_sequences_have_masks_slopes_and_padding_of_their_own(torch, dtype):
    """As the CPU computes them."""
    do, q, k, v = packed(torch, dtype, LENGTHS, 64)
    count, longest, starts = len(LENGTHS), max(LENGTHS), starts_of(LENGTHS)
    random = torch.Generator("cuda").manual_seed(3)
    mask = torch.randn(count, 1, longest, longest, generator=random, device="cuda")
    slopes = torch.rand(count, 4, generator=random, device="cuda") * 0.3
    used = [n - n // 5 for n in LENGTHS]
    asked = {"cu_seqlens_q": starts, "cu_seqlens_k": starts, "q_lengths": used, "lengths": used, "layout": "BNHD"}
    for more in ({"alibi_slopes": slopes, "causal": True}, {"attn_mask": mask, "score": "s * (b + 1) / 8"}):
        masked: dict[str, Any] = {"mask_gradient": True} if "attn_mask" in more else {}
        o, lse = attention(q, k, v, return_lse=True, kernel=KERNEL[dtype], **asked, **more)
        made = attention_backward(do, q, k, v, o, lse, **asked, **more, **masked)
        three = attention_backward(do, q, k, v, o, lse, **asked, **more)
        on_cpu = {name: x.cpu().numpy() if hasattr(x, "cpu") else x for name, x in more.items()}
        given = [x.float().cpu().numpy() for x in (do, q, k, v)]
        right = attention(*given[1:], return_lse=True, **(asked | on_cpu))
        right += attention_backward(*given, *right, **(asked | on_cpu | masked))
        np.testing.assert_allclose(o.float().cpu(), right[0], atol=2 * ERROR[dtype])
        for found in (made, three):
            for x, expected in zip(found, right[2:], strict=False):
                error = np.abs(x.float().cpu().numpy() - expected).max()
                assert error <= 4 * ALLOWED[dtype] * max(1, np.abs(expected).max())

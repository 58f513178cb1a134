"""Rows of more than 128 columns, and V of another number of columns, on a GPU against float64: every kernel, masks,
sequences, gradients, the same bits again."""

from typing import Any

import numpy as np
import pytest
from gpuexact import exact_gradients
from test_gpu_gradients import ALLOWED
from test_gpu_sequences import ERROR, KERNEL

from hw4cli import attention, attention_backward
from hw4cli.problem.oracle import exact_heads
from hw4cli.problem.workload import BFLOAT16, FLOAT16, FLOAT32

pytestmark = pytest.mark.usefixtures("gpu")
WIDTHS = [(129, 129), (136, 136), (160, 160), (192, 192), (199, 199), (200, 200), (255, 255), (256, 256)]
OTHERS = [(192, 128), (128, 192), (64, 40), (5, 250)]  # of Q and K, of V
# Nq, Nk, and the mask
MASKS: list[tuple[int, int, dict[str, Any]]] = [
    (300, 300, {}),
    (1, 700, {}),
    (1, 1, {"causal": True}),
    (257, 513, {"causal": True}),
    (400, 333, {"causal": True, "align": "top-left"}),
    (700, 700, {"causal": True, "window": (100, 0)}),
]


@pytest.fixture(scope="module")
def torch():
    return pytest.importorskip("torch")


def tensors(torch, dtype, Nq, Nk, d, dv, heads=4, kv_heads=2, batch=2):
    """dO, Q, K and V."""
    random = torch.Generator("cuda").manual_seed(d)
    shapes = (heads, Nq, dv), (heads, Nq, d), (kv_heads, Nk, d), (kv_heads, Nk, dv)
    return [torch.randn(batch, *x, generator=random, device="cuda").to(getattr(torch, dtype)) for x in shapes]


def mask_of(Nq, Nk, causal=False, align="bottom-right", window=None):
    """What the oracles are told of a mask."""
    if not causal:
        return {}
    offset = Nk - Nq if align == "bottom-right" else 0
    return {"causal": True, "offset": offset, **({"window": window[0] + 1} if window else {})}


def assert_right(torch, dtype, Nq, Nk, d, dv, options, kernel=None):
    arrays = do, q, k, v = tensors(torch, dtype, Nq, Nk, d, dv)
    mask = mask_of(Nq, Nk, **options)

    def computed():
        o, lse = attention(q, k, v, return_lse=True, kernel=kernel or KERNEL[dtype], **options)
        return o, lse, *attention_backward(do, q, k, v, o, lse, **options)

    found = computed()
    o, sums = exact_heads(*(x.double().cpu().numpy() for x in (q, k, v)), **mask)
    seen = np.isfinite(sums)
    np.testing.assert_allclose(found[1].cpu().numpy()[seen], sums[seen], atol=4e-3 if dtype == BFLOAT16 else 1e-3)
    assert np.abs(found[0].double().cpu().numpy() - o).max() <= ERROR[dtype]
    for got, one in zip(found[2:], exact_gradients(*arrays, **mask), strict=True):
        assert np.abs(got.double().cpu().numpy() - one).max() <= ALLOWED[dtype] * max(1, np.abs(one).max())
    assert all(torch.equal(x, y) for x, y in zip(found, computed(), strict=True))


@pytest.mark.parametrize("widths", [*WIDTHS, *OTHERS], ids=str)
@pytest.mark.parametrize("dtype", [FLOAT16, BFLOAT16, FLOAT32])
def test_wide_rows_and_their_gradients_are_right_and_the_same_bits_again(torch, dtype, widths):
    d, dv = widths
    for Nq, Nk, options in MASKS:
        assert_right(torch, dtype, Nq, Nk, d, dv, options)


@pytest.mark.parametrize("kernel", ["half", "half_mma", "half_cores", "half_split"])
@pytest.mark.parametrize("d", [136, 192, 256])
def test_each_kernel_of_16_bits_answers(torch, gpu, kernel, d):
    if kernel == "half" and not gpu.props.warpgroups:
        pytest.skip("needs compute capability 9.0")
    for Nq, Nk, options in MASKS:
        _, q, k, v = tensors(torch, FLOAT16, Nq, Nk, d, d)
        o = attention(q, k, v, kernel=kernel, **options)
        right, _ = exact_heads(*(x.double().cpu().numpy() for x in (q, k, v)), **mask_of(Nq, Nk, **options))
        assert np.abs(o.double().cpu().numpy() - right).max() <= ERROR[FLOAT16]


@pytest.mark.parametrize("dtype", [FLOAT16, BFLOAT16])
@pytest.mark.parametrize("d", [136, 192, 256])
def test_gradients_by_warpgroups_are_right_for_more_tasks_than_multiprocessors(torch, gpu, dtype, d):
    """Blocks claim one task after the other; both of a block's groups add up what is of the same keys."""
    if not gpu.props.warpgroups:
        pytest.skip("needs compute capability 9.0")
    for Nq, Nk, causal in ((1, 1, False), (63, 129, True), (200, 65, True), (333, 333, False), (333, 333, True)):
        arrays = do, q, k, v = tensors(torch, dtype, Nq, Nk, d, d, heads=120, kv_heads=60, batch=2)
        o, lse = attention(q, k, v, causal=causal, return_lse=True)
        runs = [attention_backward(do, q, k, v, o, lse, causal=causal, kernel="backward_wgmma") for _ in range(3)]
        for got, one in zip(runs[0], exact_gradients(*arrays, **mask_of(Nq, Nk, causal)), strict=True):
            assert np.abs(got.double().cpu().numpy() - one).max() <= ALLOWED[dtype] * max(1, np.abs(one).max())
        assert all(torch.equal(x, y) for run in runs[1:] for x, y in zip(runs[0], run, strict=True))


@pytest.mark.parametrize("d", [136, 256])
def test_gradients_of_sequences_have_wide_rows_too(torch, d):
    lengths = [300, 0, 1, 128, 299]
    do, q, k, v = tensors(torch, BFLOAT16, 300, 300, d, d, batch=5)
    asked: dict[str, Any] = {"causal": True, "lengths": lengths, "q_lengths": lengths}
    o, lse = attention(q, k, v, return_lse=True, **asked)
    found = attention_backward(do, q, k, v, o, lse, **asked)
    for batch, length in enumerate(lengths):
        assert not any(x[batch, :, length:].any() for x in found)
        if length:
            part = [x[batch : batch + 1, :, :length] for x in (do, q, k, v)]
            for got, one in zip(found, exact_gradients(*part, causal=True, offset=0), strict=True):
                error = np.abs(got[batch : batch + 1, :, :length].double().cpu().numpy() - one).max()
                assert error <= ALLOWED[BFLOAT16] * max(1, np.abs(one).max())


@pytest.mark.parametrize("large", [3.0, 40.0])
def test_float32_chooses_a_kernel_by_the_range(torch, large):
    _, q, k, v = tensors(torch, FLOAT32, 300, 300, 200, 200)
    o = attention(large * q, large * k, v)
    right, _ = exact_heads(*(x.double().cpu().numpy() for x in (large * q, large * k, v)))
    assert np.abs(o.double().cpu().numpy() - right).max() <= 4e-3


@pytest.mark.parametrize("widths", [(256, 256), (192, 128)], ids=str)
def test_sequences_have_wide_rows_too(torch, widths):
    d, dv = widths
    lengths = [300, 0, 1, 128, 299]
    _, q, k, v = tensors(torch, BFLOAT16, 300, 300, d, dv, batch=5)
    o = attention(q, k, v, causal=True, lengths=lengths, q_lengths=lengths)
    for batch, length in enumerate(lengths):
        assert not o[batch, :, length:].any()
        if length:
            part = [x[batch : batch + 1, :, :length].double().cpu().numpy() for x in (q, k, v)]
            right, _ = exact_heads(*part, causal=True, offset=0)
            assert np.abs(o[batch : batch + 1, :, :length].double().cpu().numpy() - right).max() <= ERROR[BFLOAT16]


@pytest.mark.parametrize("widths", [(256, 256), (192, 128)], ids=str)
@pytest.mark.parametrize("causal", [False, True])
def test_torch_s_autograd_has_the_gradients_of_its_own_attention(torch, widths, causal):
    import hw4cli.torch

    d, dv = widths
    do, *given = tensors(torch, BFLOAT16, 200, 200, d, dv, kv_heads=4)
    wide = [x.double().requires_grad_() for x in given]
    exact = torch.nn.functional.scaled_dot_product_attention(*wide, is_causal=causal)
    exact.backward(do.double())
    for _ in range(2):  # the second call is a repeated one
        own = q, k, v = [x.clone().requires_grad_() for x in given]
        o = hw4cli.torch.attention(q, k, v, is_causal=causal)
        assert o.shape == do.shape
        o.backward(do)
        assert (o.double() - exact).abs().max() <= ERROR[BFLOAT16]
        for x, right in zip(own, wide, strict=True):
            assert (x.grad.double() - right.grad).abs().max() <= 2 * ALLOWED[BFLOAT16] * max(1, right.grad.abs().max())

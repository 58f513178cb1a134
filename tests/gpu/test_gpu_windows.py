"""Windows of keys on a GPU against float64: every kernel and type, sequences, gradients, the same bits again."""

import itertools
from typing import Any

import numpy as np
import pytest
from test_gpu_gradients import ALLOWED
from test_gpu_sequences import ERROR, KERNEL

from hw4cli import attention, attention_backward
from hw4cli.problem.oracle import exact_gradients, exact_heads
from hw4cli.problem.workload import BFLOAT16, FLOAT16, FLOAT32

pytestmark = pytest.mark.usefixtures("gpu")
# Nq, Nk, causal, align, window
MASKS = [
    (1000, 1000, True, "bottom-right", (255, 0)),
    (777, 1300, False, "bottom-right", (100, 60)),
    (1300, 777, False, "top-left", (300, None)),
    (640, 640, False, "top-left", (None, 17)),
    (513, 2049, True, "top-left", (0, 0)),
    (3, 5000, True, "bottom-right", (1023, 0)),
    (100, 90, False, "bottom-right", (30, 5)),
]


@pytest.fixture(scope="module")
def torch():
    return pytest.importorskip("torch")


def tensors(torch, dtype, Nq, Nk, d, heads=4, kv_heads=2, seed=0):
    """dO, Q, K and V."""
    random = torch.Generator("cuda").manual_seed(seed)
    shapes = (heads, Nq), (heads, Nq), (kv_heads, Nk), (kv_heads, Nk)
    made = (torch.randn(2, *shape, d, generator=random, device="cuda") for shape in shapes)
    return [x.to(getattr(torch, dtype)) for x in made]


def exact(arrays, Nq, Nk, causal, align, window):
    """O, the LSE, dQ, dK and dV in float64."""
    own = Nk - Nq if align == "bottom-right" else 0
    left, right = (Nq + Nk if side is None else side for side in window)
    right = 0 if causal else right
    mask = {"causal": True, "offset": own + right, "window": left + right + 1}
    do, q, k, v = (x.double().cpu().numpy() for x in arrays)
    return *exact_heads(q, k, v, **mask), *exact_gradients(do, q, k, v, **mask)


@pytest.mark.parametrize("mask", MASKS, ids=str)
@pytest.mark.parametrize(("dtype", "d"), [(FLOAT16, 64), (BFLOAT16, 128), (FLOAT16, 40), (BFLOAT16, 20), (FLOAT32, 64)])
def test_windows_and_their_gradients_are_right_and_the_same_bits_again(torch, dtype, d, mask):
    Nq, Nk, causal, align, window = mask
    arrays = do, q, k, v = tensors(torch, dtype, Nq, Nk, d)
    asked = {"causal": causal, "align": align, "window": window}

    def computed():
        o, lse = attention(q, k, v, return_lse=True, kernel=KERNEL[dtype], **asked)
        return o, lse, *attention_backward(do, q, k, v, o, lse, **asked)

    found = computed()
    right = exact(arrays, Nq, Nk, causal, align, window)
    seen = np.isfinite(right[1])
    lse = found[1].cpu().numpy()
    assert (lse[~seen] == -np.inf).all()
    np.testing.assert_allclose(lse[seen], right[1][seen], atol=4e-3 if dtype == BFLOAT16 else 1e-3)
    assert np.abs(found[0].double().cpu().numpy() - right[0]).max() <= ERROR[dtype]
    for got, one in zip(found[2:], right[2:], strict=True):
        assert np.abs(got.double().cpu().numpy() - one).max() <= ALLOWED[dtype] * max(1, np.abs(one).max())
    assert all(torch.equal(x, y) for x, y in zip(found, computed(), strict=True))


@pytest.mark.parametrize("kernel", ["half", "half_mma", "half_cores", "half_split"])
def test_each_kernel_of_16_bits_answers(torch, gpu, kernel):
    if kernel == "half" and not gpu.props.warpgroups:
        pytest.skip("needs compute capability 9.0")
    for Nq, Nk, causal, align, window in MASKS:
        arrays = _, q, k, v = tensors(torch, FLOAT16, Nq, Nk, 128)
        o = attention(q, k, v, causal=causal, align=align, window=window, kernel=kernel)
        right = exact(arrays, Nq, Nk, causal, align, window)[0]
        assert np.abs(o.double().cpu().numpy() - right).max() <= ERROR[FLOAT16]


@pytest.mark.parametrize("kernel", ["backward", "backward_mma", "backward_wgmma", "backward_once", "backward_atomic"])
def test_each_kernel_of_gradients_answers(torch, gpu, kernel):
    if kernel not in ("backward", "backward_mma") and not gpu.props.warpgroups:
        pytest.skip("needs compute capability 9.0")
    for Nq, Nk, causal, align, window in MASKS:
        arrays = do, q, k, v = tensors(torch, FLOAT16, Nq, Nk, 64)
        asked: dict[str, Any] = {"causal": causal, "align": align, "window": window}
        o, lse = attention(q, k, v, return_lse=True, **asked)
        made = attention_backward(do, q, k, v, o, lse, kernel=kernel, **asked)
        for got, right in zip(made, exact(arrays, Nq, Nk, causal, align, window)[2:], strict=True):
            assert np.abs(got.double().cpu().numpy() - right).max() <= ALLOWED[FLOAT16] * max(1, np.abs(right).max())


@pytest.mark.parametrize("dtype", [FLOAT16, FLOAT32])
def test_each_packed_sequence_has_a_window_of_its_own(torch, dtype):
    lengths, window = [0, 1, 700, 333, 129, 1500], (200, 30)
    starts = np.cumsum([0, *lengths]).tolist()
    do, q, k, v = (x[0] for x in tensors(torch, dtype, sum(lengths), sum(lengths), 64))
    asked = {"window": window, "cu_seqlens_q": starts, "cu_seqlens_k": starts}
    o, lse = attention(q, k, v, return_lse=True, kernel=KERNEL[dtype], **asked)
    made = attention_backward(do, q, k, v, o, lse, **asked)
    for first, end in itertools.pairwise(starts):
        if first == end:
            continue
        parts = [x[None, :, first:end] for x in (do, q, k, v)]
        right = exact(parts, end - first, end - first, False, "bottom-right", window)
        assert np.abs(o[:, first:end].double().cpu().numpy() - right[0][0]).max() <= ERROR[dtype]
        for got, one in zip(made, right[2:], strict=True):
            error = np.abs(got[:, first:end].double().cpu().numpy() - one[0]).max()
            assert error <= ALLOWED[dtype] * max(1, np.abs(one).max())


OF_FLOAT32 = [("split", 32), ("split", 64), ("split8", 64), ("split", 128), ("exact", 64), ("exact", 128)]


@pytest.mark.parametrize("mask", MASKS, ids=str)
@pytest.mark.parametrize(("kernel", "d"), OF_FLOAT32)
def test_windows_of_float32_by_tensor_cores_are_right_and_the_same_bits_again(gpu, torch, kernel, d, mask):
    if gpu.props.cc < 80:
        pytest.skip("tensor cores of compute capability 8.0 are needed")
    Nq, Nk, causal, align, window = mask
    arrays = _, q, k, v = [x.clip(-3, 3) for x in tensors(torch, FLOAT32, Nq, Nk, d)]
    asked = {"causal": causal, "align": align, "window": window, "kernel": kernel, "return_lse": True}
    o, lse = attention(q, k, v, **asked)
    right, sums, *_ = exact(arrays, Nq, Nk, causal, align, window)
    assert np.abs(o.double().cpu().numpy() - right).max() <= (1.5e-3 if kernel == "exact" else 4e-3)
    np.testing.assert_allclose(lse.cpu().numpy(), sums, rtol=1e-5, atol=2e-3)
    assert all(torch.equal(x, y) for x, y in zip((o, lse), attention(q, k, v, **asked), strict=True))


def test_a_float32_window_of_large_scores_is_computed_in_float64(torch):
    arrays = _, q, k, v = tensors(torch, FLOAT32, 700, 700, 64)
    q *= 1e4
    o = attention(q, k, v, causal=True, window=(99, 0))
    right = exact(arrays, 700, 700, True, "bottom-right", (99, 0))[0]
    assert np.abs(o.double().cpu().numpy() - right).max() <= 1e-5

"""Changed scores of float32 tensors on a GPU that is made up: its kernels are executed on the CPU, as they are."""

import faketorch
import numpy as np
import pytest
from faketorch import Tensor
from scoredcases import cases, exact
from slow import quick_of_each, slow

import hw4cli

pytestmark = quick_of_each(1)


@pytest.fixture
def gpu(monkeypatch):
    return faketorch.install(monkeypatch)


def moved(x):
    if isinstance(x, dict):
        return {name: moved(value) for name, value in x.items()}
    return Tensor(x) if isinstance(x, np.ndarray) else x


def tensors(Nq, Nk, d=16, batch=2, heads=4, kv_heads=2):
    rng = np.random.default_rng(0)
    shapes = (batch, heads, Nq, d), (batch, kv_heads, Nk, d), (batch, kv_heads, Nk, d)
    return [rng.standard_normal(shape).astype(np.float32) for shape in shapes]


def assert_right(o, lse, right):
    there = np.isfinite(right[1])
    assert (lse[~there] == -np.inf).all()
    np.testing.assert_allclose(lse[there], right[1][there], atol=1e-5, rtol=1e-5)
    np.testing.assert_allclose(o, right[0], atol=2e-5)


@pytest.mark.parametrize(
    "name", ["all together", "ALiBi of each batch", "a table of buckets", "an additive mask of keys"]
)
def test_heads_that_share_keys_get_scores_of_their_own(gpu, name):
    arrays, case = tensors(40, 70), cases(2, 4, 40, 70)[name]
    o, lse = hw4cli.attention(*map(Tensor, arrays), return_lse=True, **moved(case.asked))
    q, k, v = arrays
    assert_right(o.array, lse.array, exact(q, q, k, v, *case.formulas(40, 70)))
    assert set(gpu.launched) == {"flash"}


@slow
def test_rows_that_kernels_cannot_load_are_copied_beside_a_mask(gpu):
    arrays, case = tensors(20, 33, d=13), cases(2, 4, 20, 33)["all together"]
    q, k, v = arrays
    o, lse = hw4cli.attention(*map(Tensor, arrays), return_lse=True, **moved(case.asked))
    assert_right(o.array, lse.array, exact(q, q, k, v, *case.formulas(20, 33)))


@slow
def test_each_padded_sequence_keeps_its_batch(gpu):
    arrays, case = tensors(30, 30, batch=3), cases(3, 4, 30, 30)["all together"]
    rows, keys = [12, 30, 30], [30, 17, 17]
    asked = {"score": "s * (b + 1) / 2", **{name: case.asked[name] for name in ("alibi_slopes", "attn_mask")}}
    o, lse = hw4cli.attention(*map(Tensor, arrays), return_lse=True, lengths=keys, q_lengths=rows, **moved(asked))
    slopes, mask = asked["alibi_slopes"], asked["attn_mask"]
    for b, (count, length) in enumerate(zip(rows, keys, strict=True)):
        q, k, v = (x[b : b + 1, :, :n] for x, n in zip(arrays, (count, length, length), strict=True))

        def change(s, _, h, i, j, b=b, behind=length - count):
            return (s - slopes[h] * abs(i + behind - j)) * (b + 1) / 2 + mask[b, 0, i, j], 1

        right = exact(q, q, k, v, change, lambda *_: True)
        assert_right(o.array[b : b + 1, :, :count], lse.array[b : b + 1, :, :count], right)
    assert not o.array[0, :, 12:].any()


def test_what_is_read_is_not_copied_if_it_need_not_be(gpu):
    arrays = tensors(20, 30)
    mask = np.random.default_rng(1).standard_normal((2, 60, 20)).astype(np.float32).swapaxes(1, 2)[:, None, :, ::2]
    faketorch.torch.allocated.clear()
    o, lse = hw4cli.attention(*map(Tensor, arrays), attn_mask=Tensor(mask), return_lse=True)
    assert not any(shape[-2:] == (20, 30) for _, shape in faketorch.torch.allocated)
    q, k, v = arrays
    assert_right(o.array, lse.array, exact(q, q, k, v, lambda s, *_: (s + mask, 1), lambda *_: True))

"""Changed scores of float32 tensors on a GPU that is made up: its kernels are executed on the CPU, as they are."""

import faketorch
import numpy as np
import pytest
from faketorch import Tensor
from scoredcases import cases, exact
from slow import quick_of_each, slow

import hw4cli
from hw4cli.arrays import repeated

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


LENGTHS = [3, 0, 129, 1, 128]
MASKS = {"each": (5, 2, 130, 131), "keys": (5, 1, 1, 131), "heads": (2, 130, 131), "one": (1, 1)}


@slow
@pytest.mark.parametrize(
    ("dtype", "is_packed", "names"), [("float16", True, ["each", "heads"]), ("float32", False, ["each", "keys", "one"])]
)
def test_the_gradient_of_a_mask_of_all_sequences_is_made_at_once(monkeypatch, dtype, is_packed, names):
    """As the CPU makes it, whichever dimensions are broadcast; in the same bits as sequence after sequence."""
    gpu, rng = faketorch.install_kernels(monkeypatch), np.random.default_rng(2)
    whole = [rng.standard_normal((5, 2, 130, 32)).astype(dtype) for _ in range(4)]
    asked = {"lengths": LENGTHS, "q_lengths": LENGTHS[::-1]}
    if is_packed:
        lengths = [LENGTHS[::-1], LENGTHS[::-1], LENGTHS, LENGTHS]  # of dO, Q, K and V
        whole = [
            np.concatenate([x[n, :, :length] for n, length in enumerate(some)], axis=1)
            for x, some in zip(whole, lengths, strict=True)
        ]
        starts = (np.cumsum([0, *some]).tolist() for some in (LENGTHS[::-1], LENGTHS))
        asked = dict(zip(("cu_seqlens_q", "cu_seqlens_k"), starts, strict=True))
    do, q, k, v = whole
    for name in names:
        shape = MASKS[name]
        if not is_packed:
            shape = tuple(130 if size == 131 else size for size in shape)
        mask = rng.standard_normal(shape).astype(np.float32)
        more = {**asked, "causal": True, "attn_mask": mask}
        o, lse = hw4cli.attention(q, k, v, return_lse=True, **more)
        right = hw4cli.attention_backward(do, q, k, v, o, lse, mask_gradient=True, **more)
        given, made = [aligned(x) for x in (do, q, k, v, o, lse)], []
        for room in (1 << 30, 1):
            monkeypatch.setattr("hw4cli.arrays.gradients.backward.SCORES_BYTES", room)
            repeated.BACKWARD.clear()
            gpu.launched.clear()
            found = hw4cli.attention_backward(*given, mask_gradient=True, **more | {"attn_mask": aligned(mask)})
            made.append([x.array for x in found])
            assert len(gpu.launched) == 3 * (1 if room > 1 else 3)  # two are of no rows or no keys
        for one, again, expected in zip(*made, right, strict=True):
            assert one.shape == expected.shape and one.dtype == expected.dtype
            error = np.abs(one.astype(float) - expected).max()
            assert error <= (2e-5 if dtype == "float32" else 4e-3) * max(1, np.abs(expected).max()), name
            assert np.array_equal(one, again) or name in ("heads", "one"), name  # of one sum, or of two
        if name == "each":
            for found, rows, keys in zip(made[0][3], LENGTHS[::-1], LENGTHS, strict=True):
                assert not found[:, rows:].any() and not found[:, :, keys:].any()


def aligned(array):
    made = faketorch.empty(array.shape, faketorch.DType(array.dtype.name), None)
    made.array[...] = array
    return made


def test_what_is_read_is_not_copied_if_it_need_not_be(gpu):
    arrays = tensors(20, 30)
    mask = np.random.default_rng(1).standard_normal((2, 60, 20)).astype(np.float32).swapaxes(1, 2)[:, None, :, ::2]
    faketorch.torch.allocated.clear()
    o, lse = hw4cli.attention(*map(Tensor, arrays), attn_mask=Tensor(mask), return_lse=True)
    assert not any(shape[-2:] == (20, 30) for _, shape in faketorch.torch.allocated)
    q, k, v = arrays
    assert_right(o.array, lse.array, exact(q, q, k, v, lambda s, *_: (s + mask, 1), lambda *_: True))

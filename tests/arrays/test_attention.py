"""hw4cli.attention on the CPU: right by the definition, and a clear sentence for what does not fit."""

import re

import numpy as np
import pytest
from definitions import definition

import hw4cli


def arrays(dtype="float32", q=(2, 4, 5, 16), kv=(2, 2, 7, 16)):
    rng = np.random.default_rng(0)
    return [rng.standard_normal(shape).astype(dtype) for shape in (q, kv, kv)]


@pytest.mark.parametrize("dtype", ["float16", "float32"])
@pytest.mark.parametrize("causal", [False, True])
def test_numpy_arrays_are_computed_on_the_cpu(dtype, causal):
    q, k, v = arrays(dtype)
    o, lse = hw4cli.attention(q, k, v, causal=causal, return_lse=True)
    expected, sums = definition(*(x.astype(np.float64) for x in (q, k, v)), 0.25, 2 if causal else None)
    assert (o.dtype, o.shape, lse.dtype) == (q.dtype, q.shape, np.float32)
    np.testing.assert_allclose(o, expected, atol=1e-3 if dtype == "float16" else 1e-6)
    np.testing.assert_allclose(lse, sums, atol=1e-5)


def test_a_causal_mask_may_be_aligned_at_the_top_left():
    q, k, v = arrays(q=(1, 2, 9, 16), kv=(1, 2, 4, 16))
    top = hw4cli.attention(q, k, v, causal=True, align="top-left")
    np.testing.assert_allclose(top[:, :, 0], v[:, :, 0], atol=1e-6)
    o, lse = hw4cli.attention(q, k, v, causal=True, return_lse=True)
    assert not o[:, :, :5].any()  # rows that see no key
    assert (lse[:, :, :5] == -np.inf).all()
    assert np.isfinite(lse[:, :, 5:]).all()


def test_rows_may_come_before_heads():
    q, k, v = arrays()
    o = hw4cli.attention(q, k, v, scale=0.5)
    swapped = hw4cli.attention(*(x.swapaxes(1, 2) for x in (q, k, v)), scale=0.5, layout="BNHD")
    np.testing.assert_array_equal(swapped.swapaxes(1, 2), o)


def test_the_answer_goes_where_the_caller_wants_it():
    q, k, v = arrays()
    out = np.full_like(q, np.nan)
    assert hw4cli.attention(q, k, v, out=out) is out
    np.testing.assert_array_equal(out, hw4cli.attention(q, k, v))


def wrong(**changes):
    q, k, v = arrays()
    return {"q": q, "k": k, "v": v, **changes}


def zeros(*shape, dtype=np.float32):
    return np.zeros(shape, dtype)


WRONG = {
    "q is a list: give an array of NumPy, CuPy or torch": (TypeError, {"q": [1]}),
    "k has a mask: give an array without one": (TypeError, {"k": np.ma.masked_array(zeros(2, 2, 7, 16))}),
    "q is int64: give float16, bfloat16 or float32": (TypeError, {"q": zeros(2, 4, 5, 16, dtype=np.int64)}),
    "q is float32, k float16: give one element type": (TypeError, {"k": zeros(2, 2, 7, 16, dtype=np.float16)}),
    "q has 3 dimensions: give four": (ValueError, {"q": zeros(2, 5, 16)}),
    "k and v differ in batch, heads or N": (ValueError, {"v": zeros(2, 2, 8, 16)}),
    "q and k differ in batch or d": (ValueError, {"q": zeros(2, 4, 5, 8)}),
    "q has 5 heads, which is not a multiple of the 2 of k and v": (ValueError, {"q": zeros(2, 5, 5, 16)}),
    "there is nothing to compute": (ValueError, {"q": zeros(2, 4, 0, 16)}),
    "d is 260: it must be between 1 and 256": (
        ValueError,
        {"q": zeros(1, 1, 2, 260), "k": zeros(1, 1, 2, 260), "v": zeros(1, 1, 2, 260)},
    ),
    "scale is -1: it must be a positive number": (ValueError, {"scale": -1}),
    "layout is 'BHDN': give 'BHND' or 'BNHD'": (ValueError, {"layout": "BHDN"}),
    "align is 'left': give 'bottom-right' or 'top-left'": (ValueError, {"align": "left"}),
    "kernel is 'half': on the CPU give 'auto'": (ValueError, {"kernel": "half"}),
    "bounds has 2 numbers: give three": (ValueError, {"bounds": (3, 3)}),
    "bounds is (3, -1, 3): the largest |element|": (ValueError, {"bounds": (3, -1, 3)}),
    "max_error is 0: it must be a positive number": (ValueError, {"max_error": 0}),
    "scale is 'half': give a number": (TypeError, {"scale": "half"}),
    "max_error is 'small': give a number": (TypeError, {"max_error": "small"}),
    "bounds is 3: give three numbers": (TypeError, {"bounds": 3}),
    "one of bounds is 'a': give a number": (TypeError, {"bounds": ("a", 3, 3)}),
    "causal is 'no': give True or False": (TypeError, {"causal": "no"}),
    "out is read-only: give an array that can be written": (
        ValueError,
        {"out": np.broadcast_to(np.float32(0), (2, 4, 5, 16))},
    ),
    "out has shape (2, 4, 5, 8): give that of q": (ValueError, {"out": zeros(2, 4, 5, 8)}),
    "q is float32, out float16: give one element type": (TypeError, {"out": zeros(2, 4, 5, 16, dtype=np.float16)}),
}


@pytest.mark.parametrize("sentence", WRONG)
def test_what_does_not_fit_is_refused_in_a_sentence(sentence):
    kind, changes = WRONG[sentence]
    with pytest.raises(kind, match=re.escape(sentence)):
        hw4cli.attention(**wrong(**changes))


@pytest.mark.parametrize(
    ("argument", "words"),
    [
        ({"dropout_p": 0.1}, "has no argument 'dropout_p': dropout is not supported"),
        ({"attn_bias": 1}, "has no argument 'attn_bias': here it is attn_mask="),
        ({"window_size": (64, 0)}, "has no argument 'window_size': here it is window="),
        ({"cache_seqlens": [3, 5]}, "has no argument 'cache_seqlens': a cache of keys that grows is not supported"),
        ({"is_causal": True}, "has no argument 'is_causal': here it is causal="),
        ({"casual": True}, "got an unexpected keyword argument 'casual'"),
    ],
)
def test_what_attention_does_not_have_is_refused_by_its_name(argument, words):
    q, k, v = arrays()
    with pytest.raises(TypeError, match=rf"^attention\(\) {words}$"):
        hw4cli.attention(q, k, v, **argument)
    with pytest.raises(TypeError, match=rf"^attention_backward\(\) {words}$"):
        hw4cli.attention_backward(q, q, k, v, q, None, **argument)


def test_an_error_that_float32_does_not_keep_is_kept_in_float64():
    q, k, v = arrays(q=(1, 2, 40, 16), kv=(1, 2, 700, 16))
    exact, _ = definition(*(x.astype(np.float64) for x in (q, k, v)), 0.25, None)
    usual, closer = (hw4cli.attention(q, k, v, max_error=allowed) for allowed in (1e-3, 1e-6))
    assert np.abs(closer - exact).max() <= 1e-6
    assert np.array_equal(usual, hw4cli.attention(q, k, v))
    assert not np.array_equal(usual, closer)
    assert np.array_equal(hw4cli.attention(q, k, v, max_error=1e-6, bounds=(5, 5, 5)), closer)


def test_an_error_that_nothing_keeps_is_refused():
    q, k, v = arrays()
    with pytest.raises(ValueError, match="max_error = 1e-12 is less than any kernel can keep"):
        hw4cli.attention(q, k, v, max_error=1e-12)

"""Sequences of several lengths in one call, padded and packed: each is as if it were alone, and nothing else counts."""

import re

import numpy as np
import pytest
from definitions import definition

from hw4cli import attention, attention_backward
from hw4cli.problem.oracle import exact_gradients

ODD = [0, 1, 127, 128, 129]
HEADS, KV_HEADS, D = 4, 2, 16
RIGHT = {"float32": 2e-6, "float16": 2e-3}


def padded(rows, keys, seed=0, dtype=np.float32):
    """dO, Q, K and V of as many batches as there are lengths."""
    rng, batch = np.random.default_rng(seed), len(ODD)
    shapes = (batch, HEADS, rows, D), (batch, HEADS, rows, D), (batch, KV_HEADS, keys, D), (batch, KV_HEADS, keys, D)
    return [rng.standard_normal(shape).astype(dtype) for shape in shapes]


def alone(do, q, k, v, causal):
    """O, the LSE, dQ, dK and dV of one sequence, in float64; nothing where there is nothing."""
    do, q, k, v = (x.astype(np.float64)[None] for x in (do, q, k, v))
    if not q.shape[2] or not k.shape[2]:
        return np.zeros(q.shape[1:]), np.full(q.shape[1:3], -np.inf), *(np.zeros(x.shape[1:]) for x in (q, k, v))
    offset = k.shape[2] - q.shape[2]
    o, lse = definition(q, k, v, last=offset if causal else None)
    gradients = exact_gradients(do, q, k, v, causal=causal, offset=offset)
    return tuple(x[0] for x in (o, lse, *gradients))


def poison(x, length, side):
    """NaN in all rows of a batch that are padding."""
    for batch, count in enumerate(length):
        x[batch, :, count:] = np.nan if side == "right" else x[batch, :, count:]
        x[batch, :, : x.shape[2] - count] = np.nan if side == "left" else x[batch, :, : x.shape[2] - count]


@pytest.mark.parametrize("dtype", RIGHT)
@pytest.mark.parametrize(("causal", "side"), [(False, "right"), (True, "right"), (True, "left"), (False, "left")])
def test_padded_sequences_are_computed_as_if_each_were_alone_whatever_lies_in_the_padding(dtype, causal, side):
    rows, keys = [130, 127, 0, 5, 129], ODD
    do, q, k, v = padded(130, 129, dtype=dtype)
    for x, length in ((do, rows), (q, rows), (k, keys), (v, keys)):
        poison(x, length, side)
    asked = {"lengths": keys, "q_lengths": rows, "padding": side, "causal": causal}
    o, lse = attention(q, k, v, return_lse=True, **asked)
    made = attention_backward(do, q, k, v, o, lse, **asked)
    for batch, (count, seen) in enumerate(zip(rows, keys, strict=True)):
        mine = slice(0, count) if side == "right" else slice(130 - count, 130)
        theirs = slice(0, seen) if side == "right" else slice(129 - seen, 129)
        parts = do[batch, :, mine], q[batch, :, mine], k[batch, :, theirs], v[batch, :, theirs]
        expected = alone(*parts, causal)
        places = mine, mine, mine, theirs, theirs
        for name, x, place, right in zip(
            ("O", "LSE", "dQ", "dK", "dV"), (o, lse, *made), places, expected, strict=True
        ):
            np.testing.assert_allclose(x[batch, :, place], right, atol=20 * RIGHT[dtype], err_msg=f"{name} {batch}")
            rest = np.delete(x[batch], np.arange(x.shape[2])[place], axis=1)
            assert (rest == (-np.inf if name == "LSE" else 0)).all(), f"{name} of what is none of sequence {batch}"


@pytest.mark.parametrize("layout", ["BHND", "BNHD"])
@pytest.mark.parametrize("causal", [False, True])
def test_packed_sequences_are_computed_as_if_each_were_alone(layout, causal):
    starts, key_starts = [0, 0, 1, 128, 256, 384, 390], [0, 7, 7, 200, 329, 458, 587]  # two are alike, some are empty
    rng = np.random.default_rng(1)
    do, q = rng.standard_normal((2, HEADS, 395, D)).astype(np.float32)  # five rows behind the last sequence
    k, v = rng.standard_normal((2, KV_HEADS, 587, D)).astype(np.float32)

    def turned(x):
        return x if layout == "BHND" else np.ascontiguousarray(x.swapaxes(0, 1))

    def back(x):
        return x if layout == "BHND" else x.swapaxes(0, 1)

    asked = {"cu_seqlens_q": np.array(starts, np.int32), "cu_seqlens_k": key_starts, "causal": causal, "layout": layout}
    o, lse = attention(*map(turned, (q, k, v)), return_lse=True, **asked)
    made = attention_backward(*map(turned, (do, q, k, v)), o, lse, **asked)
    assert (o.shape, lse.shape) == (turned(q).shape, (HEADS, 395))
    found = back(o), lse, *map(back, made)
    for n, (mine, theirs) in enumerate(zip(*(map(slice, s[:-1], s[1:]) for s in (starts, key_starts)), strict=True)):
        expected = alone(do[:, mine], q[:, mine], k[:, theirs], v[:, theirs], causal)
        for x, place, right in zip(found, (mine, mine, mine, theirs, theirs), expected, strict=True):
            np.testing.assert_allclose(x[:, place], right, atol=2e-5, err_msg=str(n))
    assert not found[0][:, 390:].any() and not found[2][:, 390:].any() and (lse[:, 390:] == -np.inf).all()


def test_rows_and_keys_at_the_same_starts_are_read_once_as_each_time_a_gpu_is_waited_for():
    class Starts(np.ndarray):
        read = 0

        def tolist(self):
            Starts.read += 1
            return super().tolist()

    starts = np.array([0, 3, 8]).view(Starts)
    x = np.random.default_rng(0).standard_normal((3, HEADS, 8, D)).astype(np.float32)
    o = attention(*x, cu_seqlens_q=starts, cu_seqlens_k=starts)
    assert Starts.read == 1
    np.testing.assert_array_equal(o, attention(*x, cu_seqlens_q=[0, 3, 8], cu_seqlens_k=[0, 3, 8]))


@pytest.mark.parametrize("side", ["right", "left"])
def test_packed_sequences_may_have_padding_of_their_own_that_is_never_read(side):
    starts, key_starts, rows, keys = [0, 40, 47, 130], [0, 30, 60, 187], [33, 0, 83], [30, 12, 120]
    rng = np.random.default_rng(2)
    do, q = rng.standard_normal((2, HEADS, 130, D)).astype(np.float32)
    k, v = rng.standard_normal((2, KV_HEADS, 187, D)).astype(np.float32)

    def some(starts, lengths, n):
        return (
            slice(starts[n], starts[n] + lengths[n])
            if side == "right"
            else slice(starts[n + 1] - lengths[n], starts[n + 1])
        )

    mine, theirs = ([some(*given, n) for n in range(3)] for given in ((starts, rows), (key_starts, keys)))
    none, no_key = np.ones(130, bool), np.ones(187, bool)
    for outside, used in ((none, mine), (no_key, theirs)):
        for part in used:
            outside[part] = False
    do[:, none] = q[:, none] = k[:, no_key] = v[:, no_key] = np.nan
    asked = {"cu_seqlens_q": starts, "cu_seqlens_k": key_starts, "lengths": keys, "q_lengths": rows, "padding": side}
    o, lse = attention(q, k, v, return_lse=True, causal=True, **asked)
    made = attention_backward(do, q, k, v, o, lse, causal=True, **asked)
    for n, (a, b) in enumerate(zip(mine, theirs, strict=True)):
        expected = alone(do[:, a], q[:, a], k[:, b], v[:, b], True)
        for x, place, right in zip((o, lse, *made), (a, a, a, b, b), expected, strict=True):
            np.testing.assert_allclose(x[:, place], right, atol=2e-5, err_msg=str(n))
    assert not o[:, none].any() and (lse[:, none] == -np.inf).all() and not made[0][:, none].any()
    assert not made[1][:, no_key].any() and not made[2][:, no_key].any()


def test_equal_lengths_are_the_call_without_lengths_bit_for_bit():
    _, q, k, v = padded(40, 50)
    plain = attention(q, k, v, causal=True)
    np.testing.assert_array_equal(attention(q, k, v, causal=True, lengths=[50] * 5), plain)
    packed = [x.swapaxes(0, 1).reshape(x.shape[1], -1, D) for x in (q, k, v)]
    starts = {"cu_seqlens_q": range(0, 201, 40), "cu_seqlens_k": range(0, 251, 50)}
    found = attention(*packed, causal=True, **starts)
    np.testing.assert_array_equal(found.reshape(HEADS, 5, 40, D).swapaxes(0, 1), plain)


def test_the_answer_of_sequences_goes_where_the_caller_wants_it_and_may_replace_q():
    _, q, k, v = padded(130, 129)
    asked = {"lengths": ODD, "q_lengths": [130, 127, 0, 5, 129], "padding": "left"}
    expected = attention(q, k, v, **asked)
    out = np.full_like(q, np.nan)
    assert attention(q, k, v, out=out, **asked) is out
    np.testing.assert_array_equal(out, expected)
    np.testing.assert_array_equal(attention(q, k, v, out=q, **asked), expected)


_, Q, K, V = padded(12, 9)
P, PK = Q[0], K[0]
WRONG = {
    "lengths has 2 numbers: give one for each of 5 batches": (ValueError, (Q, K, V), {"lengths": [1, 2]}),
    "lengths[1] is 10: it must be between 0 and 9": (ValueError, (Q, K, V), {"lengths": [1, 10, 1, 1, 1]}),
    "q_lengths[4] is -1: it must be between 0 and 12": (ValueError, (Q, K, V), {"q_lengths": [1, 1, 1, 1, -1]}),
    "lengths is an array (5,) of float64: give integers": (TypeError, (Q, K, V), {"lengths": np.ones(5)}),
    "lengths is an array (5, 1) of int64": (TypeError, (Q, K, V), {"lengths": np.ones((5, 1), int)}),
    "lengths is a int: give a list, or an array, of integers": (TypeError, (Q, K, V), {"lengths": 3}),
    "lengths is a list: give a list, or an array, of integers": (TypeError, (Q, K, V), {"lengths": [0.5] * 5}),
    "padding is 'top': give 'left' or 'right'": (ValueError, (Q, K, V), {"lengths": [1] * 5, "padding": "top"}),
    "padding is 'middle': give 'left' or 'right'": (ValueError, (Q, K, V), {"padding": "middle"}),
    "padding is None: give 'left' or 'right'": (ValueError, (Q, K, V), {"padding": None}),
    "padding is 'left', and how long it is, lengths or q_lengths say": (ValueError, (Q, K, V), {"padding": "left"}),
    "how long it is, lengths or q_lengths say: give these, or no padding": (
        ValueError,
        (P, PK, PK),
        {"cu_seqlens_q": [0, 5, 12], "cu_seqlens_k": [0, 4, 9], "padding": "left"},
    ),
    "lengths has 1 numbers: give one for each of 2 sequences": (
        ValueError,
        (P, PK, PK),
        {"lengths": [1], "cu_seqlens_q": [0, 5, 12], "cu_seqlens_k": [0, 4, 9]},
    ),
    "q_lengths[0] is 6: it must be between 0 and 5": (
        ValueError,
        (P, PK, PK),
        {"q_lengths": [6, 1], "cu_seqlens_q": [0, 5, 12], "cu_seqlens_k": [0, 4, 9]},
    ),
    "packed arrays need both cu_seqlens_q and cu_seqlens_k": (ValueError, (P, PK, PK), {"cu_seqlens_k": [0, 9]}),
    "q has 4 dimensions: packed arrays have three, here (heads, N, d)": (
        ValueError,
        (Q, K, V),
        {"cu_seqlens_q": [0, 12], "cu_seqlens_k": [0, 9]},
    ),
    "cu_seqlens_q must begin with 0": (ValueError, (P, PK, PK), {"cu_seqlens_q": [1, 12], "cu_seqlens_k": [0, 9]}),
    "cu_seqlens_k[2] is 3, less than the 5 before it": (
        ValueError,
        (P, PK, PK),
        {"cu_seqlens_q": [0, 6, 12], "cu_seqlens_k": [0, 5, 3]},
    ),
    "cu_seqlens_k ends at 10, and the arrays have 9 rows": (
        ValueError,
        (P, PK, PK),
        {"cu_seqlens_q": [0, 12], "cu_seqlens_k": [0, 10]},
    ),
    "cu_seqlens_q is of 1 sequences, cu_seqlens_k of 2: give as many of both": (
        ValueError,
        (P, PK, PK),
        {"cu_seqlens_q": [0, 12], "cu_seqlens_k": [0, 5, 9]},
    ),
    "has no argument 'max_seqlen_q': it follows from cu_seqlens": (TypeError, (Q, K, V), {"max_seqlen_q": 12}),
    "has no argument 'seqused_k': here it is lengths=": (TypeError, (Q, K, V), {"seqused_k": [1] * 5}),
    "scale is -1": (ValueError, (Q, K, V), {"lengths": [1] * 5, "scale": -1.0}),
    "kernel is 'half': on the CPU give 'auto'": (ValueError, (Q, K, V), {"lengths": [1] * 5, "kernel": "half"}),
}


@pytest.mark.parametrize("sentence", WRONG)
def test_lengths_that_do_not_fit_are_refused_before_anything_is_written(sentence):
    kind, arrays, asked = WRONG[sentence]
    out = np.full_like(arrays[0], 7)
    with pytest.raises(kind, match=re.escape(sentence)):
        attention(*arrays, out=out, **asked)
    assert (out == 7).all()


@pytest.mark.parametrize("sentence", [one for one in WRONG if "'half'" not in one])
def test_gradients_refuse_the_same_lengths(sentence):
    kind, (q, k, v), asked = WRONG[sentence]
    with pytest.raises(kind, match=re.escape(sentence)):
        attention_backward(q, q, k, v, q, np.zeros(q.shape[:-1], np.float32), **asked)

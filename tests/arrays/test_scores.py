"""Scores that are changed before the softmax, and masks: what arguments mean, by formulas, on the CPU."""

from itertools import pairwise

import numpy as np
import pytest
from scoredcases import NAMES, cases, exact
from test_windows import arrays, seen

from hw4cli import attention, attention_backward

RIGHT = {"float32": 1e-5, "float16": 4e-3}


def computed(do, q, k, v, masked=False, **asked):
    """O, the LSE and the gradients."""
    o, lse = attention(q, k, v, return_lse=True, **asked)
    return o, lse, *attention_backward(do, q, k, v, o, lse, **asked, **({"mask_gradient": True} if masked else {}))


def assert_right(found, right, dtype="float32"):
    for name, x, one in zip(("O", "LSE", "dQ", "dK", "dV"), found, right, strict=False):
        there = np.isfinite(one)
        assert (x[~there] == -np.inf).all(), name
        error = np.abs(x[there].astype(float) - one[there]).max(initial=0)
        assert error <= RIGHT[dtype] * max(1, np.abs(one[there]).max(initial=0)), name


def is_additive(asked):
    return "attn_mask" in asked and asked["attn_mask"].dtype != bool


def summed(dscore, mask):
    """The gradients of changed scores, in a mask's shape."""
    shape = (1,) * (4 - mask.ndim) + mask.shape
    for axis, size in enumerate(shape):
        dscore = dscore if size > 1 else dscore.sum(axis=axis, keepdims=True)
    return dscore.reshape(mask.shape)


@pytest.mark.parametrize("dtype", ["float32", "float16"])
@pytest.mark.parametrize("name", NAMES)
def test_scores_are_what_the_arguments_say_and_so_are_their_gradients(name, dtype):
    for Nq, Nk in ((33, 33), (20, 70), (1, 50)):
        case, (do, q, k, v) = cases(2, 4, Nq, Nk)[name], arrays(Nq, Nk, dtype)
        found = computed(do, q, k, v, masked=is_additive(case.asked), **case.asked)
        right = exact(do, q, k, v, *case.formulas(Nq, Nk))
        assert_right(found, right, dtype)
        if is_additive(case.asked):
            mask = case.asked["attn_mask"]
            assert found[5].shape == mask.shape and found[5].dtype == mask.dtype
            wanted = summed(right[5], mask)
            assert np.abs(found[5] - wanted).max() <= RIGHT[dtype] * max(1, np.abs(wanted).max())


@pytest.mark.parametrize(
    ("causal", "align", "window"),
    [(True, "bottom-right", None), (True, "top-left", (9, 0)), (False, "bottom-right", (5, 12))],
)
@pytest.mark.parametrize("name", NAMES)
def test_causal_masks_and_windows_hide_what_they_do_without_changes(name, causal, align, window):
    Nq, Nk = 40, 57
    case, (do, q, k, v) = cases(2, 4, Nq, Nk)[name], arrays(Nq, Nk)
    found = computed(do, q, k, v, causal=causal, align=align, window=window, **case.asked)
    assert_right(found, exact(do, q, k, v, *case.formulas(Nq, Nk, seen(Nq, Nk, causal, align, window))))


@pytest.mark.parametrize("name", NAMES)
def test_each_padded_sequence_counts_its_rows_and_keys_and_keeps_its_batch(name):
    rows, keys, Nq, Nk = [12, 1, 30], [30, 17, 30], 30, 30
    case, (do, q, k, v) = cases(3, 4, Nq, Nk)[name], arrays(Nq, Nk, batch=3)
    masked = is_additive(case.asked)
    found = computed(do, q, k, v, masked, causal=True, lengths=keys, q_lengths=rows, **case.asked)
    whole = np.zeros((3, 4, Nq, Nk))
    for batch, (count, length) in enumerate(zip(rows, keys, strict=True)):
        some = slice(batch, batch + 1)
        parts = do[some, :, :count], q[some, :, :count], k[some, :, :length], v[some, :, :length]
        change, keep = case.formulas(count, length, seen(count, length, True, "bottom-right", None))
        right = exact(
            *parts,
            lambda s, b, *at, of=batch, by=change: by(s, b + of, *at),
            lambda b, *at, of=batch, by=keep: by(b + of, *at),
        )
        assert_right([x[some, :, : length if n in (3, 4) else count] for n, x in enumerate(found[:5])], right)
        whole[some, :, :count, :length] = right[5]
    if masked:
        assert np.abs(found[5] - summed(whole, case.asked["attn_mask"])).max() <= 2e-5


@pytest.mark.parametrize("name", NAMES)
def test_packed_sequences_are_those_of_padded_arrays(name):
    """A mask's rows and keys are counted within each sequence; it may have more of them than the longest one."""
    lengths = [12, 1, 0, 30, 30]
    case, (do, q, k, v) = cases(5, 4, 33, 32)[name], arrays(30, 30, batch=5)
    given = [np.concatenate([x[b, :, :n] for b, n in enumerate(lengths)], axis=1) for x in (do, q, k, v)]
    starts, masked = np.cumsum([0, *lengths]), is_additive(case.asked)
    found = computed(*given, masked, cu_seqlens_q=starts, cu_seqlens_k=starts, **case.asked)
    whole = np.zeros((5, 4, 33, 32))
    for n, (first, end) in enumerate(pairwise(starts)):
        if first == end:
            continue
        parts, length = [x[n : n + 1, :, : end - first] for x in (do, q, k, v)], end - first
        change, keep = case.formulas(length, length)
        right = exact(
            *parts,
            lambda s, b, *at, of=n, by=change: by(s, b + of, *at),
            lambda b, *at, of=n, by=keep: by(b + of, *at),
        )
        assert_right([x[None, :, first:end] for x in found[:5]], right)
        whole[n, :, :length, :length] = right[5][0]
    if masked:
        assert found[5].shape == case.asked["attn_mask"].shape
        assert np.abs(found[5] - summed(whole, case.asked["attn_mask"])).max() <= 2e-5


@pytest.mark.parametrize(("rows", "keys"), [([3, 2, 1], [4, 7, 5]), ([6, 2, 1], [1, 3, 2])], ids=str)
def test_a_mask_of_packed_sequences_has_the_rows_and_keys_of_the_longest(rows, keys):
    (do, q, k, v), rng = arrays(sum(rows), sum(keys), batch=1), np.random.default_rng(3)
    starts = [[0, *np.cumsum(lengths).tolist()] for lengths in (rows, keys)]
    given, asked = [x[0] for x in (do, q, k, v)], {"cu_seqlens_q": starts[0], "cu_seqlens_k": starts[1]}
    mask = rng.standard_normal((3, 1, max(rows), max(keys)), np.float32)
    found, dmask = computed(*given, masked=True, attn_mask=mask, **asked), np.zeros_like(mask)
    for n, (a, b) in enumerate(zip(*map(pairwise, starts), strict=True)):
        of_rows, of_keys = slice(*a), slice(*b)
        parts = [x[:, :, some] for x, some in zip((do, q, k, v), (of_rows, of_rows, of_keys, of_keys), strict=True)]
        alone = computed(*parts, masked=True, attn_mask=mask[n : n + 1, :, : rows[n], : keys[n]])
        places = of_rows, of_rows, of_rows, of_keys, of_keys
        assert_right([x[None, :, some] for x, some in zip(found, places, strict=False)], alone)
        dmask[n, :, : rows[n], : keys[n]] = alone[5][0]
    np.testing.assert_allclose(found[5], dmask, atol=2e-5)
    for short in (mask[:, :, : max(rows) - 1], mask[..., : max(keys) - 1]):
        with pytest.raises(ValueError, match=rf"of the longest ones, here \(3, 4, {max(rows)}, {max(keys)}\)"):
            attention(*given[1:], attn_mask=short, **asked)


def test_the_gradient_of_a_mask_of_packed_sequences_is_that_of_few_at_a_time(monkeypatch):
    (do, q, k, v), mask = arrays(60, 60, batch=1), cases(6, 4, 10, 10)["an additive mask"].asked["attn_mask"]
    asked = {"cu_seqlens_q": range(0, 61, 10), "cu_seqlens_k": range(0, 61, 10), "attn_mask": mask}
    whole = computed(*(x[0] for x in (do, q, k, v)), masked=True, **asked)
    monkeypatch.setattr("hw4cli.arrays.gradients.backward.SCORES_BYTES", 2 * 4 * 4 * 10 * 10)
    for one, other in zip(whole, computed(*(x[0] for x in (do, q, k, v)), masked=True, **asked), strict=True):
        assert np.array_equal(one, other)


def test_an_expression_that_names_the_batch_means_the_sequence():
    do, q, k, v = arrays(20, 20, batch=3)
    numbers = np.array([3, 5, 7])
    asked = {"score": "s * (b + 1) + step[b // 2]", "arrays": {"step": numbers}, "keep": "j % 2 == b % 2 or i == j"}
    lengths = [20, 11, 7]
    found = computed(do, q, k, v, lengths=lengths, q_lengths=lengths, **asked)
    for n, length in enumerate(lengths):
        parts = [x[n : n + 1, :, :length] for x in (do, q, k, v)]
        right = exact(
            *parts,
            lambda s, b, h, i, j, n=n: (s * (n + 1) + numbers[n // 2], n + 1),
            lambda b, h, i, j, n=n: (j % 2 == n % 2) | (i == j),
        )
        assert_right([x[n : n + 1, :, :length] for x in found], right)
    starts = [0, 11, 20]
    packed = computed(*(x[0] for x in (do, q, k, v)), cu_seqlens_q=starts, cu_seqlens_k=starts, **asked)
    for n, some in enumerate((slice(0, 11), slice(11, 20))):
        parts = [x[:1, :, some] for x in (do, q, k, v)]
        right = exact(
            *parts,
            lambda s, *_, n=n: (s * (n + 1) + 3, n + 1),
            lambda b, h, i, j, n=n: (j % 2 == n) | (i == j),
        )
        assert_right([x[None, :, some] for x in packed], right)


def test_gradients_are_those_of_small_steps():
    rng = np.random.default_rng(3)
    for name in ("all together", "a steep expression", "softcap"):
        case, (do, q, k, v) = cases(1, 2, 6, 7)[name], arrays(6, 7, batch=1, heads=2, kv_heads=1, d=8)
        found = computed(do, q, k, v, masked=is_additive(case.asked), **case.asked)

        def loss(q, k, v, asked, do=do):
            return float((attention(q, k, v, **asked).astype(float) * do).sum())

        for place, gradient in enumerate(found[2:5]):
            step, given = rng.standard_normal(gradient.shape).astype(np.float32), [q, k, v]
            ends = []
            for sign in (1, -1):
                moved = [x + np.float32(sign * 1e-2) * step if n == place else x for n, x in enumerate(given)]
                ends.append(loss(*moved, case.asked))
            assert (ends[0] - ends[1]) / 2e-2 == pytest.approx((gradient * step).sum(), abs=5e-3, rel=5e-3)
        if is_additive(case.asked):
            step = rng.standard_normal(case.asked["attn_mask"].shape).astype(np.float32)
            ends = [
                loss(q, k, v, case.asked | {"attn_mask": case.asked["attn_mask"] + np.float32(sign * 1e-2) * step})
                for sign in (1, -1)
            ]
            assert (ends[0] - ends[1]) / 2e-2 == pytest.approx((found[5] * step).sum(), abs=5e-3, rel=5e-3)


def test_the_gradient_of_a_mask_is_summed_by_batches_where_all_would_be_too_much(monkeypatch):
    (do, q, k, v), case = arrays(20, 30, batch=5), cases(5, 4, 20, 30)["all together"]
    asked = case.asked | {"keep": "bits[i, j] or j == b"}
    whole = computed(do, q, k, v, masked=True, **asked)
    monkeypatch.setattr("hw4cli.arrays.gradients.backward.SCORES_BYTES", 2 * 4 * 4 * 20 * 30)
    for one, other in zip(whole, computed(do, q, k, v, masked=True, **asked), strict=True):
        assert np.array_equal(one, other)
    per_head = {"attn_mask": cases(5, 4, 20, 30)["an additive mask of heads"].asked["attn_mask"]}
    parts = computed(do, q, k, v, masked=True, **per_head)[5]
    monkeypatch.undo()
    assert np.allclose(parts, computed(do, q, k, v, masked=True, **per_head)[5], atol=1e-6)


def test_masks_are_read_where_they_lie_whatever_their_strides_and_types():
    do, q, k, v = arrays(20, 30)
    wide = np.random.default_rng(1).standard_normal((2, 30, 40)).astype(np.float32)
    for mask in (
        wide.swapaxes(1, 2)[:, None, ::2],
        np.broadcast_to(wide[0, :20, :30], (2, 4, 20, 30)),
        wide[0, :20, :30].astype(np.float64),
        wide[0, :20, :30].astype(np.float16),
        np.float32([[2.5]]),
        np.zeros((1, 1, 1, 1), bool),
    ):
        right = exact(
            do, q, k, v, lambda s, *_, m=mask: (s if m.dtype == bool else s + m, 1), lambda *_, m=mask: m.dtype != bool
        )
        masked = mask.dtype != bool
        found = computed(do, q, k, v, masked, attn_mask=mask)
        assert_right(found, right)
        if masked:
            assert found[5].dtype == mask.dtype and np.abs(found[5] - summed(right[5], mask)).max() <= 2e-3


def test_a_score_that_changes_nothing_gives_the_bits_of_none():
    _, q, k, v = arrays(40, 50)
    assert np.array_equal(attention(q, k, v), attention(q, k, v, score="s"))
    assert np.array_equal(attention(q, k, v), attention(q, k, v, keep="i >= 0"))


def test_values_of_another_d_and_rows_before_heads_are_computed():
    do, q, k, v = arrays(20, 30)
    case = cases(2, 4, 20, 30)["all together"]
    do, v = do[..., :11], v[..., :11]
    right = exact(do, q, k, v, *case.formulas(20, 30))
    assert_right(computed(do, q, k, v, True, **case.asked), right)
    turned = [x.swapaxes(1, 2) for x in (do, q, k, v)]
    o, lse, *made = computed(*turned, True, layout="BNHD", **case.asked)
    assert_right([o.swapaxes(1, 2), lse, *(x.swapaxes(1, 2) for x in made[:3])], right)


def test_bits_are_the_same_again():
    do, q, k, v = arrays(70, 90)
    case = cases(2, 4, 70, 90)["all together"]
    for one, other in zip(*(computed(do, q, k, v, True, **case.asked) for _ in range(2)), strict=True):
        assert np.array_equal(one, other)


Q = np.zeros((2, 4, 5, 8), np.float32)
REFUSED = {
    "a score that is none": ({"score": "s +"}, ValueError, r"score 's \+' is no expression"),
    "a score of words": ({"score": 3}, TypeError, "score is a int: give an expression as a text"),
    "an unknown name": ({"score": "s + x"}, ValueError, "x is none of s, b, h, i, j, Nq, Nk"),
    "a score that is true": ({"score": "s > 0"}, ValueError, "give a number"),
    "a keep that is a number": ({"keep": "i"}, ValueError, "give true or false"),
    "a keep by scores": ({"keep": "s > 0"}, ValueError, "s is none of"),
    "an empty text": ({"score": ""}, ValueError, "score '' is no expression"),
    "arrays that are none": ({"score": "s", "arrays": [Q]}, TypeError, "arrays is a list: give a dictionary"),
    "an array that none names": ({"score": "s", "arrays": {"a": Q}}, ValueError, "arrays has 'a', which neither"),
    "an array of nothing": ({"score": "s + a[0]", "arrays": {"a": Q[0, 0, 0, :0]}}, ValueError, "none of them empty"),
    "an array of five dimensions": ({"score": "s", "arrays": {"a": Q[None]}}, ValueError, "give 1 to 4 dimensions"),
    "a list": ({"score": "s + a[0]", "arrays": {"a": [1.0]}}, TypeError, r"arrays\['a'\] is a list: give an array"),
    "complex numbers": ({"score": "s + a[0]", "arrays": {"a": np.ones(2, complex)}}, TypeError, "is complex128"),
    "a name of ours": ({"score": "s", "arrays": {"exp": Q[0, 0, 0]}}, ValueError, "arrays has the name 'exp'"),
    "a name with a line": ({"score": "s", "arrays": {"_a": Q[0, 0, 0]}}, ValueError, "arrays has the name '_a'"),
    "a word of Python": ({"score": "s", "arrays": {"if": Q[0, 0, 0]}}, ValueError, "arrays has the name 'if'"),
    "too many arrays": (
        {
            "score": "s + a[i] + c[i] + e[i] + f[i]",
            "arrays": dict.fromkeys("acef", Q[0, 0, 0]),
            "attn_mask": Q[..., :5],
        },
        ValueError,
        "are 5: give at most 4",
    ),
    "a cap of nothing": ({"softcap": 0}, ValueError, "softcap is 0: it must be a positive number"),
    "a cap below 0": ({"softcap": -2.0}, ValueError, "softcap is -2"),
    "a cap without an end": ({"softcap": float("inf")}, ValueError, "softcap is inf"),
    "a cap that is none": ({"softcap": "3"}, TypeError, "softcap is '3': give a number"),
    "slopes of other heads": ({"alibi_slopes": Q[0, 0, 0]}, ValueError, r"alibi_slopes has the shape \(8,\)"),
    "slopes that are whole": ({"alibi_slopes": np.ones(4, int)}, TypeError, "alibi_slopes are no floating-point"),
    "a list of slopes": ({"alibi_slopes": [1, 2, 3, 4]}, TypeError, "alibi_slopes is a list"),
    "a mask that does not fit": ({"attn_mask": np.ones((5, 6), bool)}, ValueError, r"attn_mask has the shape \(5, 6\)"),
    "a mask of one dimension": ({"attn_mask": np.ones(5, bool)}, ValueError, r"attn_mask has the shape \(5,\)"),
    "a mask of whole numbers": ({"attn_mask": np.ones((5, 5), int)}, TypeError, "attn_mask is of whole numbers"),
    "an error of changed scores": ({"softcap": 3, "max_error": 1e-3}, ValueError, "max_error is that of scores as"),
    "a mask that is smaller than a sequence": (
        {"attn_mask": np.ones((2, 1, 3, 2)), "packed": True},
        ValueError,
        r"give \(sequences, heads, Nq, Nk\) of the longest ones, here \(2, 4, 3, 3\)",
    ),
    "a mask of other sequences": ({"attn_mask": np.ones((3, 1, 3, 3)), "packed": True}, ValueError, "sequences"),
    "slopes of all packed sequences": ({"alibi_slopes": np.ones((1, 4)), "packed": True}, None, ""),
    "slopes of other sequences": (
        {"alibi_slopes": np.ones((3, 4)), "packed": True},
        ValueError,
        r"give \(heads,\) or \(sequences, heads\), here \(2, 4\)",
    ),
    "a mask behind padding": (
        {"attn_mask": np.ones((5, 5)), "lengths": [3, 5], "padding": "left"},
        ValueError,
        "let the mask hide the padding",
    ),
    "a bias": ({"bias": Q}, TypeError, r"attention\(\) has no argument 'bias': here it is attn_mask="),
    "a mask by another name": ({"mask": Q}, TypeError, r"has no argument 'mask': here it is attn_mask="),
    "dropout": ({"dropout_p": 0.1}, TypeError, "dropout is not supported"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_cannot_be_computed_is_refused_in_a_sentence_before_anything_is(name, monkeypatch):
    asked, kind, words = REFUSED[name]
    given = [Q, Q, Q]
    if asked.get("packed"):
        asked = {key: value for key, value in asked.items() if key != "packed"}
        asked |= {"cu_seqlens_q": [0, 2, 5], "cu_seqlens_k": [0, 2, 5]}
        given = [x[0] for x in given]
    if kind is None:
        assert attention(*given, **asked).shape == given[0].shape
        return
    monkeypatch.setattr("hw4cli.arrays.attention.attention_on_cpu", lambda *_: pytest.fail("computed"))
    out = np.full_like(given[0], 7)
    with pytest.raises(kind, match=words):
        attention(*given, out=out, **asked)
    assert (out == 7).all()


def test_the_gradient_of_a_mask_is_of_one_that_is_added():
    o, lse = attention(Q, Q, Q, return_lse=True)
    for asked in ({}, {"softcap": 3.0}, {"attn_mask": np.ones((5, 5), bool)}):
        with pytest.raises(ValueError, match="mask_gradient is that of an additive attn_mask"):
            attention_backward(o, Q, Q, Q, o, lse, mask_gradient=True, **asked)
    with pytest.raises(TypeError, match="mask_gradient is 1: give True or False"):
        attention_backward(o, Q, Q, Q, o, lse, mask_gradient=1)


def test_more_rows_than_float32_counts_are_refused_in_a_sentence():
    q, k = np.ones((1, 1, 1, 8), np.float16), np.broadcast_to(np.float16(1), (1, 1, 1 << 24, 8))
    with pytest.raises(ValueError, match="there are 16,777,216 rows or keys: scores are changed of fewer than"):
        attention(q, k, k, softcap=30.0)

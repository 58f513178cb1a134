"""Windows of keys: which keys a row sees, by the definition of each argument, forward and backward, on the CPU."""

import numpy as np
import pytest
import scoredcases

from hw4cli import attention, attention_backward
from hw4cli.arrays.arguments import checked_window, mask_of
from hw4cli.arrays.attention import check_window
from hw4cli.errors import MachineError
from hw4cli.plans.backwardcut import Cut
from hw4cli.plans.gradients import GRADIENTS, fastest
from hw4cli.plans.kernels16 import kernel16
from hw4cli.plans.ladder import VARIANTS
from hw4cli.plans.plan import DEVICES
from hw4cli.problem.workload import FLOAT16, FLOAT32, Workload

BOTTOM, TOP = "bottom-right", "top-left"
RIGHT = {"float32": 5e-6, "float16": 4e-3}


def seen(Nq, Nk, causal, align, window):
    """Which keys a row sees: as flash-attn's documentation has it, word for word."""
    own = np.arange(Nq)[:, None] + (Nk - Nq if align == BOTTOM else 0)
    left, right = (10**9 if side in (None, -1) else side for side in window or (None, None))
    key = np.arange(Nk)
    return (own - left <= key) & (key <= own + (0 if causal else right))


def exact(do, q, k, v, mask):
    """O, the LSE, dQ, dK and dV, by the formulas."""
    return scoredcases.exact(do, q, k, v, lambda s, *_: (s, 1), lambda *_: mask)[:5]


def arrays(Nq, Nk, dtype="float32", batch=2, heads=4, kv_heads=2, d=16, seed=0):
    rng = np.random.default_rng(seed)
    shapes = (heads, Nq), (heads, Nq), (kv_heads, Nk), (kv_heads, Nk)
    return [rng.standard_normal((batch, h, n, d)).astype(dtype) for h, n in shapes]


def assert_right(do, q, k, v, mask, found, dtype="float32"):
    for name, x, right in zip(("O", "LSE", "dQ", "dK", "dV"), found, exact(do, q, k, v, mask), strict=True):
        there = np.isfinite(right)
        assert (x[~there] == -np.inf).all(), name
        assert np.abs(x[there] - right[there]).max(initial=0) <= RIGHT[dtype] * max(1, np.abs(right[there]).max()), name


def computed(do, q, k, v, **asked):
    o, lse = attention(q, k, v, return_lse=True, **asked)
    return o, lse, *attention_backward(do, q, k, v, o, lse, **asked)


WINDOWS = [(0, 0), (3, 5), (None, 4), (7, None), (-1, 0), (40, 2), (1000, 1000), (2, 10**15), None]


@pytest.mark.parametrize("align", [BOTTOM, TOP])
@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("window", WINDOWS)
def test_a_row_sees_the_keys_of_its_window_and_no_others(window, causal, align):
    for Nq, Nk in ((33, 33), (20, 70), (70, 20), (1, 50), (50, 1)):
        do, q, k, v = arrays(Nq, Nk)
        asked = {"causal": causal, "align": align, "window": window}
        assert_right(do, q, k, v, seen(Nq, Nk, causal, align, window), computed(do, q, k, v, **asked))


def test_what_no_row_of_a_window_sees_may_be_anything():
    do, q, k, v = arrays(9, 60, "float16")
    k[:, :, :40] = v[:, :, :40] = np.nan
    found = computed(do, q, k, v, causal=True, window=(11, 0))
    mask = seen(9, 60, True, BOTTOM, (11, 0))
    k[:, :, :40] = v[:, :, :40] = 0
    assert_right(do, q, k, v, mask, found, "float16")
    assert not found[3][:, :, :40].any() and not found[4][:, :, :40].any()


@pytest.mark.parametrize("align", [BOTTOM, TOP])
@pytest.mark.parametrize("window", [(5, 3), (None, 2), (9, None)])
def test_each_sequence_has_a_window_of_its_own(window, align):
    rows, keys = [12, 1, 30, 0], [30, 17, 5, 9]
    do, q, k, v = arrays(30, 30, batch=4)
    asked = {"align": align, "window": window}
    found = computed(do, q, k, v, lengths=keys, q_lengths=rows, **asked)
    for batch, (count, length) in enumerate(zip(rows, keys, strict=True)):
        some = slice(batch, batch + 1)
        parts = do[some, :, :count], q[some, :, :count], k[some, :, :length], v[some, :, :length]
        if count:
            own = [x[some, :, : length if n > 2 else count] for n, x in enumerate(found)]
            assert_right(*parts, seen(count, length, False, align, window), own)
    packed = [np.concatenate([x[b, :, : n[b]] for b in range(4)], axis=1) for x, n in ((q, rows), (k, keys), (v, keys))]
    starts = {"cu_seqlens_q": np.cumsum([0, *rows]), "cu_seqlens_k": np.cumsum([0, *keys])}
    o = attention(*packed, **starts, **asked)
    assert np.allclose(o, np.concatenate([found[0][b, :, : rows[b]] for b in range(4)], axis=1), atol=1e-6)


def test_rows_that_see_no_key_are_0_and_their_lse_is_minus_infinity():
    do, q, k, v = arrays(40, 10)
    found = computed(do, q, k, v, align=TOP, window=(4, 0))
    assert not found[0][:, :, 14:].any() and (found[1][:, :, 14:] == -np.inf).all() and not found[2][:, :, 14:].any()
    assert found[0][:, :, :14].all()


NO_WINDOW = {
    "a text": "3,4",
    "one number": (3,),
    "three": (1, 2, 3),
    "a number alone": 128,
    "no whole number": (1.5, 0),
    "flags": (True, True),
}


@pytest.mark.parametrize("given", NO_WINDOW.values(), ids=NO_WINDOW)
def test_what_is_no_window_is_a_sentence_that_says_what_one_is(given):
    with pytest.raises(TypeError, match=r"^window is .*: give \(left, right\), how many keys before and behind"):
        attention(*arrays(5, 5)[1:], window=given)


def test_a_side_of_fewer_than_no_keys_is_refused():
    with pytest.raises(ValueError, match="give numbers from 0 on, or None for all keys of a side"):
        attention(*arrays(5, 5)[1:], window=(-2, 0))
    with pytest.raises(TypeError, match="has no argument 'window_size': here it is window="):
        attention(*arrays(5, 5)[1:], window_size=(2, 0))


def test_a_window_that_hides_nothing_is_none():
    for window in ((49, None), (200, 200), (49, 29), None):
        assert mask_of(30, 50, False, BOTTOM, checked_window(window)) == (False, 0, 0)
    assert mask_of(30, 50, True, BOTTOM, (49, 3)) == mask_of(30, 50, True, BOTTOM, None) == (True, 20, 0)
    assert mask_of(30, 50, False, BOTTOM, (48, 29)) == (True, 49, 78)
    assert checked_window((None, -1)) is None


def test_work_is_that_of_the_pairs_in_the_window():
    for Nq, Nk, offset, window in ((30, 50, 20, 7), (50, 30, -20, 64), (9, 9, 3, 1), (40, 10, 0, 4), (7, 90, -3, 2)):
        work = Workload(FLOAT32, 2, 3, 1, Nq, Nk, 8, True, offset, window=window)
        pairs = sum(len(work.keys_of(row)) for row in range(Nq))
        assert work.pairs == 6 * pairs and work.flops == 4 * 8 * 6 * pairs
        assert 6 * pairs <= work.computed_pairs(4, 4) <= 6 * Nq * Nk
        assert work.computed_pairs(1, 1) == 6 * pairs


def test_auto_takes_kernels_that_compute_windows_and_names_them_where_another_was_asked_for():
    work = Workload(FLOAT16, 2, 16, 16, 4096, 4096, 64, True, window=512)
    for cc, kernel in ((61, "half_cores"), (80, "half_mma"), (90, "half")):
        assert kernel16(work, DEVICES[cc]) == kernel
    for cc, kernel in ((61, "backward"), (80, "backward_mma"), (90, "backward_once")):
        assert fastest(work, DEVICES[cc]) == kernel
    able = "'auto' or 'flash' or 'split' or 'split8' or 'exact' or 'float64'"
    with pytest.raises(ValueError, match=f"kernel 'shared' computes no windows of keys: give {able}"):
        check_window("shared", work, VARIANTS)
    with pytest.raises(MachineError, match="kernel shared computes no windows"):
        VARIANTS["shared"].plan(work, DEVICES[90])
    with pytest.raises(MachineError, match="windows of keys without parts of heads or rows"):
        GRADIENTS["backward_once"].plan(work, DEVICES[90], Cut(0, 1, 2))

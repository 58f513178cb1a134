"""Changed scores and masks in the kernels for arrays, executed on the CPU: right, and without a finding."""

import re
from dataclasses import replace

import numpy as np
import pytest
from halves import ALLOWED, SUMS, numbers, random_words, rounded
from scoredcases import cases, exact
from slow import quick_of_each, slow, slow_of_each

from hw4cli.arrays.emulated import run_half
from hw4cli.arrays.gradients.emulated import run_backward
from hw4cli.arrays.operand import operand
from hw4cli.arrays.scored import Words, scored
from hw4cli.plans import half
from hw4cli.plans.gradients import GRADIENTS
from hw4cli.plans.kernels16 import ENTRIES16, plan16
from hw4cli.plans.plan import DEVICES
from hw4cli.problem.scores import Named, Score
from hw4cli.problem.workload import BFLOAT16, FLOAT16, FLOAT32, Span, Workload
from hw4cli.resources import data_path

pytestmark = quick_of_each(1)

# Of a kernel, the compute capability and the sizes; half_short is what `half` is of short rows.
FORWARD = {
    "half_cores": (61, FLOAT16, 70, 90, 40),
    "half": (90, BFLOAT16, 200, 330, 64),
    "half_short": (90, FLOAT16, 75, 80, 64),
    "half_mma": (80, BFLOAT16, 130, 150, 128),
    "half_split": (80, FLOAT16, 2, 700, 64),
}
BACKWARD = {
    "backward": (80, FLOAT32, 70, 90, 32),
    "backward_mma": (80, FLOAT16, 130, 100, 64),
    "backward_wgmma": (90, BFLOAT16, 130, 200, 64),
    "backward_once": (90, FLOAT16, 130, 200, 64),
    "backward_atomic": (90, FLOAT16, 130, 200, 64),
}
WITH_WIDE = {**BACKWARD, "backward_wgmma, wide": (90, FLOAT16, 70, 130, 160)}
TOGETHER, EMPTY, ADDED = "all together", "a mask with an empty row", "an additive mask with holes"
# Packed: of four sequences the second one is empty.
SPANS = (Span(0, 0, 70, 0, 33, -37, 0), Span(0, 70, 1, 33, 150, 149, 2), Span(0, 71, 130, 183, 129, -1, 3))
ERROR = {FLOAT16: 4e-3, BFLOAT16: 3e-2, FLOAT32: 1e-5}  # of the largest gradient
LARGEST = 4  # by which "all together" may widen a score's rounding


def those(entries, kernels, kind, beside):
    """Kernels that change scores, with all that is asked for at once, and some of them with one kind of change."""
    known = [(TOGETHER, name) for name in kernels if entries[name.partition(",")[0]].scores]
    known += [(kind, name) for name in kernels if entries[name.partition(",")[0]].scores and beside(name)]
    return [pytest.param(*one, id=", ".join(one)) for one in known]


def asked(work, case, q, gradient=False, packed=(4, 130, 150)):
    """The workload with what is asked for, and the arrays that it names; `packed`: of sequences, the longest."""
    packed = packed if work.sequences else None
    like_q = replace(operand("q", q, "BHND"), dtype=work.dtype)
    found = scored(Words(**case.asked), like_q, work, packed=packed, gradient=gradient)
    return found.of(work), found.given


def visible(work):
    """Which keys a row sees of what is no score's."""
    own = np.arange(work.Nq)[:, None] + work.offset
    key = np.arange(work.Nk)
    return (key <= own) & (key > own - (work.window or work.Nk + work.Nq)) if work.causal else key >= 0 * own


def parts_of(span, words, *of_rows):
    """A sequence of Q, K and V, and before these of others like Q."""
    rows, keys = slice(span.row, span.row + span.rows), slice(span.key, span.key + span.keys)
    q, k, v = words
    return *(x[:, :, rows] for x in (*of_rows, q)), k[:, :, keys], v[:, :, keys]


def formulas_of(case, plain, span):
    """What a case means of one sequence."""
    change, keep = case.formulas(span.rows, span.keys, visible(plain.alone(span)))
    n = span.number
    return lambda s, b, *at: change(s, b + n, *at), lambda b, *at: keep(b + n, *at)


@pytest.mark.parametrize(("kind", "kernel"), those(ENTRIES16, FORWARD, EMPTY, ["half", "half_mma"].__contains__))
def test_every_kernel_changes_scores(kernel, kind):
    cc, dtype, Nq, Nk, d = FORWARD[kernel]
    plain = Workload(dtype, 2, 2, 1, Nq, Nk, d, True, Nk - Nq + 3, window=Nk // 2)
    case = cases(2, 2, Nq, Nk)[kind]
    words = random_words(plain, factor=0.7)
    work, views = asked(plain, case, words[0])
    outcome = run_half(work, *words, kernel="half" if kernel == "half_short" else kernel, cc=cc, views=views)
    assert [str(finding) for finding in outcome.findings] == [] and outcome.finished
    q, k, v = (numbers(x, dtype) for x in words)
    o, lse, *_ = exact(q, q, k, v, *case.formulas(Nq, Nk, visible(plain)))
    assert np.abs(numbers(outcome.o, dtype) - o).max() <= 2 * ALLOWED[dtype]
    there = np.isfinite(lse)
    assert (outcome.lse[~there] == -np.inf).all()
    np.testing.assert_allclose(outcome.lse[there], lse[there], rtol=1e-5, atol=2 * SUMS[dtype])


@pytest.mark.parametrize("kernel", [name for name in FORWARD if ENTRIES16[name].scores and ENTRIES16[name].sequences])
def test_each_sequence_counts_its_rows_and_keys_and_has_its_number(kernel):
    cc, dtype, *_ = FORWARD[kernel]
    plain = Workload(dtype, 1, 2, 2, 201, 312, 64, True, sequences=SPANS)
    case = cases(4, 2, 130, 150)[TOGETHER]
    words = random_words(plain, factor=0.7)
    work, views = asked(plain, case, words[0])
    outcome = run_half(work, *words, kernel=kernel, cc=cc, views=views)
    assert [str(finding) for finding in outcome.findings] == [] and outcome.finished
    for span in SPANS:
        q, k, v = (numbers(x, dtype) for x in parts_of(span, words))
        o, *_ = exact(q, q, k, v, *formulas_of(case, plain, span))
        found = outcome.o[:, :, span.row : span.row + span.rows]
        assert np.abs(numbers(found, dtype) - o).max() <= 2 * ALLOWED[dtype]


@slow
@pytest.mark.parametrize("kernel", [name for name in BACKWARD if GRADIENTS[name].sequences and GRADIENTS[name].scores])
def test_gradients_of_sequences_are_those_of_each_by_its_number(kernel):
    cc, dtype, *_ = BACKWARD[kernel]
    plain = Workload(dtype, 1, 2, 1, 201, 312, 64, True, sequences=SPANS)
    case = cases(4, 2, 130, 150)[TOGETHER]
    rng = np.random.default_rng(6)
    do, q, k, v = (
        rng.standard_normal((1, heads, rows, 64)) for heads, rows in ((2, 201), (2, 201), (1, 312), (1, 312))
    )
    words = [rounded(x, dtype) for x in (do, 0.7 * q, k, v)]
    do, q, k, v = (numbers(x, dtype) for x in words)
    o, lse = np.zeros_like(q), np.full((1, 2, 201), -np.inf)
    right = [np.zeros_like(x) for x in (q, k, v)]
    for span in SPANS:
        rows, keys = slice(span.row, span.row + span.rows), slice(span.key, span.key + span.keys)
        of_do, *others = parts_of(span, (q, k, v), do)
        found = exact(of_do, *others, *formulas_of(case, plain, span))
        for x, part, one in zip((o, lse, *right), (rows, rows, rows, keys, keys), found[:5], strict=True):
            x[:, :, part] = one
    work, views = asked(plain, case, words[1])
    outcome = run_backward(work, *words, rounded(o, dtype), lse.astype(np.float32), kernel=kernel, cc=cc, views=views)
    assert [str(finding) for finding in outcome.findings] == [] and outcome.finished
    for got, one, keys in zip(outcome.gradients, right, (False, True, True), strict=True):
        for span in SPANS:
            first, count = (span.key, span.keys) if keys else (span.row, span.rows)
            some = slice(first, first + count)
            error = np.abs(numbers(got[:, :, some], dtype) - one[:, :, some]).max()
            assert error <= LARGEST * ERROR[dtype] * max(1, np.abs(one).max())


# Of three sequences, the number 3 among them has no keys; what lies behind their rows and keys is of none.
RAGGED = (Span(0, 0, 127, 0, 33, -94, 2), Span(0, 127, 1, 33, 128, 127, 4), Span(0, 130, 33, 161, 129, 96, 5))


@slow
@pytest.mark.parametrize("dtype", [FLOAT16, FLOAT32, BFLOAT16])
def test_gradients_of_scores_of_all_sequences_are_made_at_once_and_are_0_in_the_padding(dtype):
    """They lie by the sequences' numbers, from the first one's on, in as many rows and keys as the longest have."""
    heads, d, (Nq, Nk) = 2, 32, (163, 290)
    plain = Workload(dtype, 1, heads, 1, Nq, Nk, d, True, window=100, sequences=RAGGED)
    case, rng = cases(6, heads, 127, 129)["an additive mask"], np.random.default_rng(9)
    given = [rng.standard_normal((1, count, rows, d)) for count, rows in ((heads, Nq), (heads, Nq), (1, Nk), (1, Nk))]
    words = [x.astype(np.float32) if dtype == FLOAT32 else rounded(x, dtype) for x in given]
    do, q, k, v = (x.astype(float) if dtype == FLOAT32 else numbers(x, dtype) for x in words)
    work, views = asked(plain, case, words[1], gradient=True, packed=(6, 127, 129))
    assert work.of_scores == (4, heads, 127, 129)
    o, lse, right = np.zeros_like(q), np.full((1, heads, Nq), -np.inf), np.full(work.of_scores, np.nan)
    for span in RAGGED:
        of_do, *others = parts_of(span, (q, k, v), do)
        found = exact(of_do, *others, *formulas_of(case, plain, span))
        rows = slice(span.row, span.row + span.rows)
        o[:, :, rows], lse[:, :, rows] = found[:2]
        right[span.number - 2, :, : span.rows, : span.keys] = found[5][0]
    o = o.astype(np.float32) if dtype == FLOAT32 else rounded(o, dtype)
    scores = np.zeros(work.of_scores, np.float32)
    outcome = run_backward(
        work, *words, o, lse.astype(np.float32), kernel="backward_mma", cc=80, views=views, scores=scores
    )
    assert [str(finding) for finding in outcome.findings] == [] and outcome.finished
    padding = np.isnan(right)
    assert padding[1].all() and not scores[padding].any()
    assert np.abs(scores - right)[~padding].max() <= LARGEST * ERROR[dtype] * np.abs(right[~padding]).max()


SLOPES = Named("slopes", "float32", (2,), (1,), True)
ROWS = Named("rows", "bool", (2, 200, 336), (200 * 336, 336, 1), True)
KEYS = Named("keys", "element", (2, 336), (336, 1), True)
WIDE = Named("wide", "float32", (2, 200, 336), (200 * 336, 336, 1), True)
QUICKLY = {
    "a line": ("2 * s - slopes[h] * max(i - j, -9) + 0.1 * j", "", (SLOPES,), "SCORE_LINEAR"),
    "a steep line and rows of a mask": ("s - 2.5 * abs(i + Nk - Nq - j)", "rows[h, i, j]", (ROWS,), "SCORE_ACROSS"),
    "a mild cap": ("CAP * tanh(s / CAP)", "", (), "SCORE_TANH"),  # of which all scores are below a quarter
    "a cap": ("CAP * tanh(s / CAP)", "", (), "SCORE_TANH"),  # a half
    "a hard cap and a mask": ("0.7 * tanh(s / 0.7)", "rows[h, i, j] or i == j", (ROWS,), "SCORE_TANH"),
    "keys that all rows see": ("s + keys[b, j]", "", (KEYS,), "SCORE_SHARED"),
    "an array of float32": ("s + wide[h, i, j]", "", (WIDE,), "SCORE_SHARED"),
}


@slow
@pytest.mark.parametrize("kind", QUICKLY)
def test_half_changes_scores_by_tiles(kind):
    change, keep, named, macro = QUICKLY[kind]
    rng = np.random.default_rng(3)
    given = {
        "slopes": np.float32([0.5, 0.01]),
        "rows": rng.random((2, 200, 336)) < 0.6,
        "keys": rounded(rng.standard_normal((2, 336)), BFLOAT16),
        "wide": rng.standard_normal((2, 200, 336)).astype(np.float32),
    }
    views = tuple(given[one.name] for one in named)
    plain = Workload(BFLOAT16, 2, 2, 1, 200, 336, 64, "mask" in kind, 136, window=250 if "mask" in kind else 0)
    words = random_words(plain)
    q, k, v = (numbers(x, BFLOAT16) for x in words)
    cap = np.abs(q @ k.swapaxes(-1, -2)).max() / 8 * (4 if kind == "a mild cap" else 2)
    score = Score(change.replace("CAP", f"{cap:.4}"), keep, named)
    work = replace(plain, score=score)
    assert macro in plan16(work, DEVICES[90], "half").macros
    outcome = run_half(work, *words, kernel="half", cc=90, views=views)
    assert [str(finding) for finding in outcome.findings] == [] and outcome.finished
    read = tuple(numbers(x, BFLOAT16) if x.dtype == np.uint16 else x for x in views)

    def evaluated(s, b, h, i, j):
        places = {"b": b, "h": h, "i": i, "j": j, "Nq": 200, "Nk": 336}
        return score.evaluate(s, places, read)[0], 1

    o, lse, *_ = exact(q, q, k, v, evaluated, lambda b, h, i, j: visible(plain)[i, j])
    assert np.abs(numbers(outcome.o, BFLOAT16) - o).max() <= 2 * ALLOWED[BFLOAT16]
    there = np.isfinite(lse)
    assert (outcome.lse[~there] == -np.inf).all() and there.any()
    np.testing.assert_allclose(outcome.lse[there], lse[there], rtol=1e-5, atol=2 * SUMS[BFLOAT16] + 2**-11)


# ---- Which pairs have a score, found before

# What is asked for beside causal, the mask's shape, as kernels index it, and d.
KEPT = {
    "of all heads": ("", (130, 530), "i, j", 128),
    "of a batch, causal": ("", (2, 1, 130, 530), "b, 0, i, j", 128),
    "of keys, under a cap": ("1.5 * tanh(s / 1.5)", (2, 530), "b, j", 64),
    "of all heads, squared": ("s * abs(s) / 3", (130, 530), "i, j", 64),
}


def kept_by(mask, indices, change=""):
    """The score of pairs that a boolean mask keeps."""
    steps = tuple(stride // mask.itemsize for stride in mask.strides)
    return Score(change, f"mask[{indices}]", (Named("mask", "bool", mask.shape, steps),))


@slow
@pytest.mark.parametrize("kind", KEPT)
def test_half_finds_once_for_all_heads_which_pairs_have_a_score(kind, monkeypatch):
    monkeypatch.setattr(half, "LEAST_SHARING", 1)
    change, shape, indices, d = KEPT[kind]
    mask = np.random.default_rng(3).random(shape) < 0.3
    mask[..., 64:384] |= mask[..., :1]  # tiles of which some rows see all
    mask[..., 384:448] = True  # and one of which all do
    if "squared" in kind:
        mask[7] = False  # a row that sees no key
    plain = Workload(BFLOAT16, 2, 2, 1, 130, 530, d, "causal" in kind, 300)
    words = random_words(plain)
    score = kept_by(mask, indices, change)
    work = replace(plain, score=score)
    assert plan16(work, DEVICES[90], "half").launches[0].symbol == "half_bits"
    outcome = run_half(work, *words, kernel="half", cc=90, views=(mask,))
    assert [str(finding) for finding in outcome.findings] == [] and outcome.finished
    q, k, v = (numbers(x, BFLOAT16) for x in words)

    def changed(s, b, h, i, j):
        return Score(change).evaluate(s, {"b": b, "h": h, "i": i, "j": j, "Nq": 130, "Nk": 530}, ())[0], 1

    def keep(b, h, i, j):
        places = {"b": b, "i": i, "j": j, "0": 0 * b}
        return visible(plain)[i, j] & mask[tuple(places[name] for name in indices.split(", "))]

    o, lse, *_ = exact(q, q, k, v, changed, keep)
    assert np.abs(numbers(outcome.o, BFLOAT16) - o).max() <= 2 * ALLOWED[BFLOAT16]
    there = np.isfinite(lse)
    assert (outcome.lse[~there] == -np.inf).all() and there.any()
    np.testing.assert_allclose(outcome.lse[there], lse[there], rtol=1e-5, atol=2 * SUMS[BFLOAT16] + 2**-11)


def test_each_tile_looks_for_pairs_itself_where_few_heads_share_what_would_be_found():
    def starts_with_bits(indices, shape, causal=False, **sizes):
        asked = {"batch": 2, "heads": 12, "Nq": 600, "Nk": 600, **sizes}
        mask = np.broadcast_to(np.bool_(True), shape)
        work = Workload(BFLOAT16, asked["batch"], asked["heads"], 1, asked["Nq"], asked["Nk"], 128, causal)
        planned = plan16(replace(work, score=kept_by(mask, indices)), DEVICES[90], "half")
        return planned.launches[0].symbol == "half_bits"

    assert starts_with_bits("i, j", (600, 600)) and starts_with_bits("b, 0, i, j", (2, 1, 600, 600))
    assert not starts_with_bits("0, h, i, j", (1, 12, 600, 600))
    assert not starts_with_bits("b, 0, i, j", (2, 1, 600, 600), heads=8)
    assert not starts_with_bits("b, 0, i, j", (2, 1, 600, 600), causal=True)  # half of the pairs are looked for in vain
    assert not starts_with_bits("i, j", (600, 200), Nk=200)  # so few keys that it would hardly be noticed
    assert not starts_with_bits("i, j", (1 << 17, 1 << 17), Nq=1 << 17, Nk=1 << 17)  # 2 GB of bits


# ---- Caps, of which most scores are small


def test_polynomials_are_as_near_to_tanh_as_is_said_of_them():
    """In float32's arithmetic; the relative error of a number is that of one half as large and less, too, so that tiny
    ones need not be tried."""
    text = (data_path("kernels") / "scored.cuh").read_text(encoding="utf-8")
    rows = [re.findall(r"-?0\.\d+(?=f)", row) for row in re.findall(r"\{([^{}]*)\}", text.partition("OF[][5] = {")[2])]
    said = {2: 0.15, 3: 0.4, 5: 1}
    assert [len(row) for row in rows[:4]] == [2, 3, 0, 5]
    for terms, end in said.items():
        x = np.linspace(2**-20, end, 1 << 18, dtype=np.float32)
        sum_, *others = (np.float32(c) for c in reversed(rows[terms - 2]))
        for c in others:
            sum_ = sum_ * (x * x) + c
        error = np.abs((x * sum_).astype(float) / np.tanh(x.astype(float)) - 1)
        assert error.max() <= 2**-16.8


@slow
@pytest.mark.parametrize(("dtype", "d"), [(BFLOAT16, 128), (FLOAT16, 64)])
@pytest.mark.parametrize("kind", ["small", "a large one", "large ones", "a maximum that moves", "a NaN"])
def test_scores_that_were_taken_for_small_are_computed_again(kind, dtype, d):
    """They are weighed before it is known whether they are small, of a group of 64 rows together."""
    Nq, Nk = 130, 800
    plain = Workload(dtype, 1, 2, 1, Nq, Nk, d)
    q, k, v = random_words(plain)
    cap = 60.0
    if kind == "large ones":
        k[:, :, 500:] = rounded(9 * numbers(k[:, :, 500:], dtype), dtype)
    elif kind == "a NaN":
        k[0, 0, 600] = rounded(np.float32(np.nan), dtype)
    elif kind != "small":  # 25, beyond 0.4 of the cap; or 11
        row = numbers(q[0, 0, 100], dtype)
        k[0, 0, 600] = rounded(row * (25 if kind == "a large one" else 11) * d**0.5 / (row @ row), dtype)
    score = Score(f"{cap} * tanh(s / {cap})")
    work = replace(plain, score=score)
    outcome = run_half(work, q, k, v, kernel="half", cc=90)
    assert [str(finding) for finding in outcome.findings] == [] and outcome.finished
    if kind == "a NaN":
        assert np.isnan(numbers(outcome.o, dtype)).all()
        return
    right = [numbers(x, dtype) for x in (q, q, k, v)]
    o, lse, *_ = exact(*right, lambda s, *_: (cap * np.tanh(s / cap), 1), lambda b, h, i, j: (b + h + i + j) >= 0)
    assert np.abs(numbers(outcome.o, dtype) - o).max() <= 2 * ALLOWED[dtype]
    np.testing.assert_allclose(outcome.lse, lse, rtol=2**-16.8, atol=2 * SUMS[dtype])


# ---- Lines, as half computes them


def along_a_line(words, slopes, change, causal=False, dtype=BFLOAT16):
    """O and the LSE that `half` gives on the CPU for Q, K and V whose scores a change makes a line, and float64's."""
    q, k, v = words
    (_, heads, Nq, d), Nk = q.shape, k.shape[2]
    score = Score(change, arrays=(Named("slopes", "float32", (heads,), (1,), True),))
    work = Workload(dtype, 1, heads, heads, Nq, Nk, d, causal, Nk - Nq, score=score)
    assert plan16(work, DEVICES[90], "half").macros["SCORE_RISES"] == 1
    outcome = run_half(work, q, k, v, kernel="half", cc=90, views=(slopes,))
    assert [str(finding) for finding in outcome.findings] == [] and outcome.finished

    def evaluated(s, b, h, i, j):
        places = {"b": b, "h": h, "i": i, "j": j, "Nq": Nq, "Nk": Nk}
        return score.evaluate(s, places, (slopes.astype(float),))[0], 1

    right = exact(*(numbers(x, dtype) for x in (q, q, k, v)), evaluated, lambda b, h, i, j: visible(work)[i, j])
    return numbers(outcome.o, dtype), outcome.lse, *right[:2]


def line_words(heads, Nq, Nk, d, dtype=BFLOAT16):
    """Random Q, K and V of one batch."""
    return random_words(Workload(dtype, 1, heads, heads, Nq, Nk, d))


ALIBI = "s - slopes[h] * abs(i + Nk - Nq - j)"
AWAY = {
    "ALiBi": (ALIBI, False),
    "causal ALiBi": (ALIBI, True),
    "ALiBi, with its distance the other way round": ("s - slopes[h] * abs(j - Nk - i + Nq)", True),
    "up to the last key": ("s + slopes[h] * j", False),
    "down from the first key": ("s - slopes[h] * j", False),
    "up on both sides": ("s + slopes[h] * abs(i - j)", False),
    "up, and level": ("s + slopes[h] * min(j - i, 40)", False),
}


@slow_of_each(7)  # each kind, and both types
@slow
@pytest.mark.parametrize("dtype", [FLOAT16, BFLOAT16])
@pytest.mark.parametrize("kind", AWAY)
def test_lines_are_followed_from_where_they_are_highest(kind, dtype):
    """To float32's digits, whatever the slope's digits: at d = 32 the LSE has not lost any of them to rounded P."""
    change, causal = AWAY[kind]
    slopes = np.float32([0.123456789, 3e-4, 1e-30, 0, 4, -0.0371])
    words = line_words(len(slopes), 200, 700, 32, dtype)
    o, lse, right, right_lse = along_a_line(words, slopes, change, causal, dtype)
    assert np.abs(o - right).max() <= 2 * ALLOWED[dtype]
    np.testing.assert_allclose(lse, right_lse, rtol=2**-22, atol=3e-5)


@slow
def test_tiles_in_which_no_key_has_a_weight_are_passed_by_and_a_key_that_outweighs_its_line_is_not():
    words = line_words(1, 200, 1500, 128)
    slopes = np.float32([0.5])
    clean = along_a_line(words, slopes, ALIBI)
    q, k, v = words
    v[:, :, 80:800] = rounded(np.float32(np.nan), BFLOAT16)  # what is added is seen; the last tile always is
    o, lse, *_ = along_a_line(words, slopes, ALIBI)
    np.testing.assert_array_equal(o, clean[0])
    np.testing.assert_array_equal(lse, clean[1])
    q, k, v = line_words(1, 200, 1500, 128)
    k[0, 0, 77] = rounded(70 * numbers(q[0, 0, 130], BFLOAT16), BFLOAT16)  # about 790 above, 640 to 670 below
    o, lse, right, right_lse = along_a_line((q, k, v), slopes, ALIBI)
    assert np.abs(right[0, 0, 130] - numbers(v[0, 0, 77], BFLOAT16)).max() < 1e-3
    assert np.abs(o - right).max() <= 2 * ALLOWED[BFLOAT16]
    np.testing.assert_allclose(lse, right_lse, rtol=1e-5)


@slow
@pytest.mark.parametrize("slope", [1e4, 1e6, np.inf, np.nan])
def test_lines_too_steep_for_tensor_cores_are_computed_score_by_score(slope):
    o, lse, right, right_lse = along_a_line(line_words(1, 130, 200, 64), np.float32([slope]), ALIBI)
    if np.isfinite(slope):
        assert np.abs(o - right).max() <= 2 * ALLOWED[BFLOAT16]
        np.testing.assert_allclose(lse, right_lse, rtol=1e-5, atol=2 * SUMS[BFLOAT16])
    else:
        assert np.isnan(o).all()


@slow
def test_elements_of_16_bits_are_read_as_those_of_q():
    plain = Workload(BFLOAT16, 1, 2, 2, 40, 50, 64)
    words = random_words(plain)
    bias = rounded(np.random.default_rng(2).standard_normal((40, 50)), BFLOAT16)
    work, _ = asked(plain, cases(1, 2, 40, 50)["an additive mask of heads"], words[0])
    (named,) = work.score.arrays
    named = named._replace(kind="element", shape=(40, 50), strides=(50, 1))
    score = replace(work.score, change=f"s + {named.name}[i, j]", arrays=(named,))
    outcome = run_half(replace(work, score=score), *words, kernel="half_mma", cc=80, views=(bias,))
    q, k, v = (numbers(x, BFLOAT16) for x in words)
    o, *_ = exact(q, q, k, v, lambda s, *_: (s + numbers(bias, BFLOAT16), 1), lambda *_: True)
    assert outcome.findings == () and np.abs(numbers(outcome.o, BFLOAT16) - o).max() <= ALLOWED[BFLOAT16]


@slow_of_each(3)
@pytest.mark.parametrize(
    ("kind", "kernel"), those(GRADIENTS, WITH_WIDE, ADDED, ["backward", "backward_mma"].__contains__)
)
def test_every_kernel_of_gradients_derives_them(kernel, kind):
    cc, dtype, Nq, Nk, d = WITH_WIDE[kernel]
    kernel = kernel.partition(",")[0]
    plain = Workload(dtype, 2, 2, 1, Nq, Nk, d, True, Nk - Nq + 3, window=Nk // 2)
    case = cases(2, 2, Nq, Nk)[kind]
    rng = np.random.default_rng(5)
    given = [rng.standard_normal((2, heads, rows, d)) for heads, rows in ((2, Nq), (2, Nq), (1, Nk), (1, Nk))]
    given[1] *= 0.7
    words = [x.astype(np.float32) if dtype == FLOAT32 else rounded(x, dtype) for x in given]
    right = [x.astype(float) if dtype == FLOAT32 else numbers(x, dtype) for x in words]
    o, lse, *gradients, dscore = exact(*right, *case.formulas(Nq, Nk, visible(plain)))
    passed = o.astype(np.float32) if dtype == FLOAT32 else rounded(o, dtype)
    wants = kind == ADDED
    work, views = asked(plain, case, words[1], gradient=wants)
    scores = np.zeros((2, 2, Nq, Nk), np.float32) if wants else None
    outcome = run_backward(
        work, *words, passed, lse.astype(np.float32), kernel=kernel, cc=cc, views=views, scores=scores
    )
    assert [str(finding) for finding in outcome.findings] == [] and outcome.finished
    found = [x.astype(float) if dtype == FLOAT32 else numbers(x, dtype) for x in outcome.gradients]
    for got, one in zip(
        [*found, *([scores] if wants else [])], [*gradients, *([dscore] if wants else [])], strict=True
    ):
        assert np.abs(got - one).max() <= LARGEST * ERROR[dtype] * max(1, np.abs(one).max())


@slow
@pytest.mark.parametrize("cap", [1e-5, 1e-3, 1e5, 1e7])
def test_caps_far_below_or_beyond_all_scores_are_right_as_well(cap):
    """Small ones leave hardly a gradient, large ones hardly change a score."""
    plain = Workload(FLOAT16, 1, 2, 1, 70, 150, 64)
    words = random_words(plain)
    work = replace(plain, score=Score(f"{cap} * tanh(s / {cap})"))

    def change(s, *_):
        found = np.tanh(s / cap)
        return cap * found, 1 - found**2

    q, k, v = (numbers(x, FLOAT16) for x in words)
    do = numbers(random_words(plain, seed=2)[0], FLOAT16)
    o, lse, *right = exact(do, q, k, v, change, lambda b, h, i, j: (b + h + i + j) >= 0)
    outcome = run_half(work, *words, kernel="half", cc=90)
    assert np.abs(numbers(outcome.o, FLOAT16) - o).max() <= ALLOWED[FLOAT16]
    np.testing.assert_allclose(outcome.lse, lse, rtol=2**-16.8, atol=SUMS[FLOAT16])
    given = rounded(do, FLOAT16), *words, rounded(o, FLOAT16), lse.astype(np.float32)
    for kernel in ("backward_once", "backward"):
        made = run_backward(work, *given, kernel=kernel, cc=90)
        for found, one in zip(made.gradients, right, strict=False):
            reach = max(1e-3, np.abs(one).max())
            assert np.abs(numbers(found, FLOAT16) - one).max() <= ERROR[FLOAT16] * reach, kernel

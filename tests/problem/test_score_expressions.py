"""Expressions of scores: what is understood, what is refused, what they give, and their slopes."""

import ast
import math
import re

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hw4cli.errors import InputError
from hw4cli.problem.scores import BOOL, FLOAT, LONGEST, Named, Score, parsed

BIAS = Named("bias", "float32", (2, 3, 4, 5), (60, 20, 5, 1))
DOC = Named("doc", "int32", (5,), (1,))
SEEN = Named("seen", "bool", (4, 5), (5, 1))
HALF = Named("half", "element", (5,), (1,))
ARRAYS = BIAS, DOC, SEEN, HALF
NAMED = {one.name: one for one in ARRAYS}
RNG = np.random.default_rng(0)
GIVEN = (
    RNG.standard_normal((2, 3, 4, 5)).astype(np.float32),
    RNG.integers(-2, 4, 5).astype(np.int32),
    RNG.random((4, 5)) < 0.5,
    RNG.standard_normal(5).astype(np.float16),
)


def evaluated(score, s, b=1, h=2, arrays=GIVEN, slope=False, Nq=4, Nk=5):
    """Scores (Nq, Nk), and slopes."""
    places = {"b": b, "h": h, "i": np.arange(Nq)[:, None], "j": np.arange(Nk)[None, :], "Nq": Nq, "Nk": Nk}
    with np.errstate(all="ignore"):
        return score.evaluate(s, places, arrays, slope)


# ---- Plainly, pair by pair


def plainly(words, s, i, j, b=1, h=2, Nq=4, Nk=5):
    """What Python's own arithmetic makes of an expression, an element of an array being that within it."""

    class Within:
        def __init__(self, array):
            self.array = array

        def __getitem__(self, index):
            index = index if isinstance(index, tuple) else (index,)
            at = tuple(min(max(n, 0), size - 1) for n, size in zip(index, self.array.shape, strict=True))
            return self.array[at].item()

    names = {one.name: Within(array) for one, array in zip(ARRAYS, GIVEN, strict=True)}
    names |= {"s": s, "b": b, "h": h, "i": i, "j": j, "Nq": Nq, "Nk": Nk, "inf": math.inf}
    names |= {"exp": math.exp, "log": math.log, "sqrt": math.sqrt, "tanh": math.tanh}
    return eval(words, {"__builtins__": {}, "abs": abs, "min": min, "max": max}, names)


whole = st.recursive(
    st.sampled_from(["b", "h", "i", "j", "Nq", "Nk", "0", "1", "7", "doc[j]", "doc[i + j - 9]"]),
    lambda part: st.one_of(
        st.tuples(part, st.sampled_from(["+", "-", "*"]), part).map(lambda x: f"({x[0]} {x[1]} {x[2]})"),
        st.tuples(part, st.sampled_from(["//", "%"]), st.integers(1, 9)).map(lambda x: f"({x[0]} {x[1]} {x[2]})"),
        part.map(lambda x: f"-{x}"),
        part.map(lambda x: f"abs({x})"),
        st.tuples(st.sampled_from(["min", "max"]), part, part).map(lambda x: f"{x[0]}({x[1]}, {x[2]})"),
    ),
    max_leaves=4,
)
truth = st.recursive(
    st.one_of(
        st.tuples(whole, st.sampled_from(["<", "<=", ">", ">=", "==", "!="]), whole).map(" ".join),
        st.just("seen[i, j]"),
        st.tuples(whole, whole, whole).map(lambda x: f"{x[0]} <= {x[1]} < {x[2]}"),
    ),
    lambda part: st.one_of(
        st.tuples(part, st.sampled_from(["and", "or"]), part).map(lambda x: f"({x[0]} {x[1]} {x[2]})"),
        part.map(lambda x: f"(not {x})"),
    ),
    max_leaves=3,
)
number = st.recursive(
    st.one_of(
        st.sampled_from(["s", "0.5", "2", "bias[b, h, i, j]", "half[j]", "bias[i, j - 3, 1, 9]"]),
        whole.map(lambda x: f"(0.1 * {x})"),
    ),
    lambda part: st.one_of(
        st.tuples(part, st.sampled_from(["+", "-", "*"]), part).map(lambda x: f"({x[0]} {x[1]} {x[2]})"),
        part.map(lambda x: f"({x} / 3)"),
        st.tuples(part, part).map(lambda x: f"({x[0]} / (1 + abs({x[1]})))"),
        part.map(lambda x: f"tanh({x})"),
        part.map(lambda x: f"exp(min({x}, 2.0))"),
        part.map(lambda x: f"log(1 + abs({x}))"),
        part.map(lambda x: f"sqrt(1 + abs({x}))"),
        part.map(lambda x: f"-tanh({x}) ** 3"),
        st.tuples(part, truth, part).map(lambda x: f"({x[0]} if {x[1]} else {x[2]})"),
        st.tuples(st.sampled_from(["min", "max"]), part, part).map(lambda x: f"{x[0]}({x[1]}, {x[2]})"),
    ),
    max_leaves=6,
)


@settings(max_examples=80, deadline=None)
@given(number, truth, st.floats(-3, 3))
def test_any_expression_is_what_python_makes_of_it(words, keep, start):
    s = start + np.arange(20.0).reshape(4, 5) / 7
    found, slopes = evaluated(Score(words, keep, ARRAYS), s, slope=True)
    for (i, j), x in np.ndenumerate(s):
        if not plainly(keep, None, i, j):
            assert found[i, j] == -np.inf and slopes[i, j] == 0
        else:
            assert found[i, j] == pytest.approx(plainly(words, float(x), i, j), rel=1e-6, abs=1e-6)


@settings(max_examples=80, deadline=None)
@given(number, st.floats(-3, 3))
def test_any_slope_is_that_of_a_small_step(words, start):
    s = (
        start + np.arange(20.0).reshape(4, 5) / 7 + math.pi / 1000
    )  # beside corners that only touch, as min(abs(s), 0) does
    _, slopes = evaluated(Score(words, "", ARRAYS), s, slope=True)
    step = 1e-6
    above, below = (evaluated(Score(words, "", ARRAYS), s + by, slope=False)[0] for by in (step, -step))
    middle = evaluated(Score(words, "", ARRAYS), s)[0]
    right, left = (above - middle) / step, (middle - below) / step
    smooth = abs(right - left) <= 1e-3 * np.maximum(1, abs(right))  # no corner lies here
    np.testing.assert_allclose(slopes[smooth], right[smooth], rtol=3e-3, atol=3e-3)


SLOPES = {
    "s": lambda s: 1 + 0 * s,
    "2 * tanh(s / 2)": lambda s: 1 - np.tanh(s / 2) ** 2,
    "exp(s)": np.exp,
    "log(s + 9)": lambda s: 1 / (s + 9),
    "sqrt(s + 9)": lambda s: 0.5 / np.sqrt(s + 9),
    "abs(s)": np.sign,
    "min(s, 0.0)": lambda s: np.where(s < 0, 1, 0),
    "max(s, 2 * s)": lambda s: np.where(s > 0, 2, 1),
    "s ** 3": lambda s: 3 * s**2,
    "s * s": lambda s: 2 * s,
    "1 / (s + 9)": lambda s: -1 / (s + 9) ** 2,
    "s / (s + 9)": lambda s: 9 / (s + 9) ** 2,
    "-s": lambda s: -1 + 0 * s,
    "3 - s": lambda s: -1 + 0 * s,
    "+s if s > 1 else s ** 2": lambda s: np.where(s > 1, 1, 2 * s),
    "i - j": lambda s: 0 * s,
    "5": lambda s: 0 * s,
    "s * bias[b, h, i, j]": lambda s: GIVEN[0][1, 2].astype(float) + 0 * s,
    "s - 0.1f * abs(i - j)": lambda s: 1 + 0 * s,
    "s * (i + 1) - s * i": lambda s: 1 + 0 * s,
}


@pytest.mark.parametrize("words", SLOPES)
def test_the_slope_of_each_function_is_its_derivative(words):
    s = np.linspace(-2.9, 3.1, 20).reshape(4, 5)
    found = evaluated(Score(words, "", ARRAYS), s, slope=True)[1]
    np.testing.assert_allclose(found, SLOPES[words](s), rtol=1e-6)


def test_whether_a_slope_is_1_everywhere_is_known_of_biases():
    for words in ("", "s", "s + 1", "bias[b, h, i, j] + s", "s - 0.5 * abs(i - j) * h", "s + (1 if seen[i, j] else 2)"):
        assert Score(words, "seen[i, j]", ARRAYS).keeps_slope, words
    for words in ("2 * s", "tanh(s)", "-s", "0", "s if i > j else 2 * s", "s * s", "max(s, 0)"):
        assert not Score(words, "", ARRAYS).keeps_slope, words


def test_words_of_c_are_understood():
    s = np.zeros((4, 5))
    for theirs, ours in (
        ("s - 0.1f * 2.F", "s - 0.1 * 2."),
        ("s + (i if j > i && i != 2 else j)", "s + (i if j > i and i != 2 else j)"),
    ):
        assert np.array_equal(evaluated(Score(theirs, "", ARRAYS), s)[0], evaluated(Score(ours, "", ARRAYS), s)[0])
    for theirs, ours in (
        ("!(i < j) || j == 4", "not (i < j) or j == 4"),
        ("!seen[i, j] && i != j", "not seen[i, j] and i != j"),
    ):
        assert np.array_equal(evaluated(Score("", theirs, ARRAYS), s)[0], evaluated(Score("", ours, ARRAYS), s)[0])


def test_only_a_number_loses_the_f_of_c():
    array = Named("w1f", "float32", (5,), (1,))
    found = evaluated(Score("s + w1f[j] * 0x1f", "", (array,)), np.zeros((4, 5)), arrays=(np.ones(5),))[0]
    assert (found == 31).all()


def test_whole_numbers_divide_downwards_and_an_index_stays_within_its_array():
    s = np.zeros((4, 5))
    found = evaluated(Score("s + (i - 3) // 2 + (i - 3) % 2 / 10", "", ARRAYS), s)[0]
    np.testing.assert_allclose(found[:, 0], [-2 + 0.1, -1, -1 + 0.1, 0])
    beyond = evaluated(Score("s + doc[j - 2] + doc[j + 99]", "", ARRAYS), s)[0]
    assert np.array_equal(beyond[0], GIVEN[1][[0, 0, 0, 1, 2]] + GIVEN[1][4])


def test_scores_stay_of_their_type():
    for dtype in (np.float32, np.float64):
        found, slopes = evaluated(
            Score("tanh(s) + 0.1 * (i - j) + bias[b, h, i, j]", "i > j", ARRAYS), np.zeros((4, 5), dtype), slope=True
        )
        assert found.dtype == slopes.dtype == dtype


REFUSED = {
    "s +": "score 's +' is no expression",
    "": "score '' is no expression",
    "s ? 1 : 2": "is no expression: of C's c ? x : y write x if c else y",
    "i > j": "is true or false: give a number",
    "(i > j) + s": "i > j is true or false, and no number",
    "x + s": "x is none of s, b, h, i, j, Nq, Nk, bias, doc, seen, half",
    "bias": "bias is an array: name an element, bias[…]",
    "bias[i, j]": "bias has 4 dimensions, not 2",
    "doc[s]": "doc[s]: an index is a whole number",
    "doc[0.5]": "doc[0.5]: an index is a whole number",
    "doc[1:2]": "doc[1:2]: an index is a whole number",
    "other[i]": "other is no array that was given: bias, doc, seen, half",
    "s // 2": "s // 2: // is of whole numbers",
    "i % j": "the right side of % must be a number from 1 on",
    "i // 0": "the right side of // must be a number from 1 on",
    "s ** 0.5": "a power must be a whole number from 1 to 8",
    "s ** 2.0": "a power must be a whole number from 1 to 8",
    "s ** 9": "a power must be a whole number from 1 to 8",
    "s ** -1": "a power must be a whole number from 1 to 8",
    "sin(s)": "sin() is none of abs, exp, log, sqrt, tanh, min, max",
    "min(s)": "min() takes 2 numbers, not 1",
    "exp(s, s)": "exp() takes 1 number, not 2",
    "exp(x=s)": "exp() is none of",
    "s if 1 else 2": "1 is a number, and not true or false: compare it",
    "s if i > j else i > j": "is a number in one case, and true or false in the other",
    "4294967296": "does not fit 32 bits: write 4294967296.0",
    "s + 1e39": "does not fit float32",
    "s + 1e999": "does not fit float32",
    "'text'": "is not understood",
    "s.real": "is not understood",
    "[s]": "is not understood",
    "(lambda: s)()": "is not understood",
    "s @ s": "is not understood",
    "i & j": "is not understood",
    "~i": "is not understood",
    "__import__('os')": "__import__() is none of",
    "s if i in (1, 2) else 0": "is not understood",
    "(i := 3)": "is not understood",
    "s; s": "is no expression",
    "s\x00": "is no expression",
    "s + " * 700 + "s": f"give at most {LONGEST:,}",
    "(" * 900 + "s" + ")" * 900: "is no expression",
    "-" * 1900 + "s": "score ",
    "1j": "is not understood",
    "None": "is not understood",
    "...": "is not understood",
    "True": "is true or false: give a number",
}


@pytest.mark.parametrize("words", REFUSED)
def test_what_is_no_score_is_refused_in_a_sentence(words):
    with pytest.raises(InputError, match=re.escape(REFUSED[words])) as caught:
        parsed("score", words, NAMED, FLOAT)
    assert str(caught.value).startswith("score ") and "\n" not in str(caught.value)


def test_what_is_no_condition_is_refused_in_a_sentence():
    for words, found in {
        "i": "keep 'i' is a number: give true or false",
        "s > 0": "s is none of b, h, i, j, Nq, Nk, bias",
        "i and j": "i is a number, and not true or false: compare it",
        "not i": "i is a number, and not true or false",
        "seen": "seen is an array: name an element",
        "i is j": "is not understood",
    }.items():
        with pytest.raises(InputError, match=re.escape(found)):
            parsed("keep", words, NAMED, BOOL)


def test_texts_for_kernels_name_what_they_are_of():
    texts = Score(
        "2 * tanh(s / 2) + bias[b, h, i, j] + half[j]", "doc[i] == doc[j] and seen[i, j] or not i > 3", ARRAYS
    ).texts
    assert "+tile)" in texts["SCORE"]
    assert texts["SCORE_TILE"] == "row_at<float>(w.views[0],b,h,i)"  # read as tiles
    assert "element_at<ScoreElement>(w.views[3],j)" in texts["SCORE"]
    assert "element_at<int>(w.views[1],i)==element_at<int>(w.views[1],j)" in texts["SCORE_KEEPS"]
    assert "element_at<unsigned char>(w.views[2],i,j)!=0" in texts["SCORE_KEEPS"] and "!(" in texts["SCORE_KEEPS"]
    assert "SCORE_KEEPS" not in Score("s").texts
    assert not any(character in text for text in texts.values() for character in "\n\"'\\")  # of options


# ---- What kernels take out of a score

LINES = (
    "s + 0.5 * j",
    "s - 0.25 * abs(i + Nk - Nq - j)",
    "2 * s - 0.5 * max(i - j, -1) + min(2 * j, i) * h",
    "s + bias[b, h, 1, 2] * (j - i) / 4.0 + half[i]",
    "-(-s) + abs(half[i]) - 3 * (j - 1) * 2",
    "3 * s + j",
    "s / 4.0 + abs(j - 2) + abs(i - j)",
    "s",
)


def meaning(tree, s):
    """A part of an expression, for each pair."""
    words = ast.unparse(tree)
    arrays = [n for n, one in enumerate(ARRAYS) if f"{one.name}[" in words]
    return evaluated(Score(words, arrays=tuple(ARRAYS[n] for n in arrays)), s, arrays=[GIVEN[n] for n in arrays])[0]


def test_a_line_rises_unless_its_step_is_0():
    rise = {words: Score(words, arrays=ARRAYS).rises for words in (*LINES, "s + half[i]", "s * s + j")}
    assert [words for words, rises in rise.items() if not rises] == ["s", "s + half[i]", "s * s + j"]


@pytest.mark.parametrize("words", LINES)
def test_a_line_grows_by_its_step_wherever_it_has_no_bend(words):
    score, s = Score(words, arrays=ARRAYS), RNG.standard_normal((4, 5))
    rest, step, bends = score.line
    rests, steps = (np.broadcast_to(meaning(tree, s), s.shape) for tree in (rest, step))
    np.testing.assert_allclose(evaluated(score, s)[0], score.folded.inner * s + rests, rtol=1e-6)
    below = np.array([np.broadcast_to(meaning(tree, s) < 0, s.shape) for tree in bends], bool).reshape(-1, *s.shape)
    for i in range(4):
        for first in range(5):
            for last in range(first + 1, 5):  # a stretch on one side of all bends
                if (below[:, i, first] == below[:, i, last]).all():
                    assert rests[i, last] - rests[i, first] == pytest.approx((last - first) * steps[i, first], abs=1e-6)


@pytest.mark.parametrize(
    "words",
    [
        *(
            "s * s",
            "tanh(s) * 3",
            "abs(s)",
            "s if s > 0 else s - 5",
            "max(s, 1)",
            "s + j * j",
            "s + i * j",
        ),
        *("s + half[j]", "s + j // 2", "s + j % 2", "s + j ** 2", "s if i > j else s + 1", "s + abs(j * j - i)"),
        *("s + exp(0.1 * j)", "s + abs(abs(j - i) - 2)", "s + 1.0 / (j + 1)", "s + (s - s) * j"),
    ],
)
def test_what_is_no_line_is_none(words):
    assert Score(words, arrays=ARRAYS).line is None


@pytest.mark.parametrize(
    ("words", "core", "inner", "outer"),
    [
        ("30.0 * tanh(s / 30.0)", "tanh(s)", 1 / 30, 30),
        ("tanh(2 * s) / 4", "tanh(s)", 2, 0.25),
        ("3 * (2 * s)", "s", 2, 3),
        ("s * 2 + tanh(s * 2)", "s + tanh(s)", 2, 1),
        ("s * 2 + tanh(s * 3)", "s * 2 + tanh(s * 3)", 1, 1),
        ("2 * s + s", "2 * s + s", 1, 1),
        ("-2 * tanh(s)", "-2 * tanh(s)", 1, 1),  # weights grow with scores
        ("1e30 * tanh(s)", "1e+30 * tanh(s)", 1, 1),
        ("0 * s", "0 * s", 1, 1),
        ("j * 2", "j * 2", 1, 1),
    ],
)
def test_constants_around_a_score_and_around_s_are_taken_out(words, core, inner, outer):
    score, s = Score(words, arrays=ARRAYS), RNG.standard_normal((4, 5))
    found = score.folded
    assert (ast.unparse(found.core), found.inner, found.outer) == (core, pytest.approx(inner), pytest.approx(outer))
    np.testing.assert_allclose(outer * meaning(found.core, inner * s), evaluated(score, s)[0], rtol=1e-6)
    assert ast.unparse(score.trees[0]) == ast.unparse(ast.parse(words, mode="eval").body)  # as it was


@pytest.mark.parametrize(
    ("words", "is_enlarged"),
    [
        ("50.0 * tanh(s / 50.0) + bias[b, h, i, j]", False),
        ("-tanh(s) * 8 * 32", False),
        ("tanh(s) / 0.01 - s * 1e9", False),
        ("1e5 * tanh(s / 1e5)", True),
        ("j + tanh(s) / 1e-4", True),
        ("tanh(1000 * tanh(s))", True),
        ("bias[b, h, i, j] * tanh(s)", True),  # by how much is not known
        ("tanh(s) ** 2", True),
        ("1e9 * s", False),
    ],
)
def test_a_tanh_that_may_be_multiplied_by_much_is_one_whose_small_numbers_count(words, is_enlarged):
    assert ("SCORE_ENLARGED" in Score(words, arrays=ARRAYS).numbers) == is_enlarged


def test_slopes_come_from_weights_where_these_know_a_score_well_enough_for_its_cap():
    assert "SCORE_SLOPE_AFTER" in Score("0.1 * tanh(s / 0.1)").texts
    assert "SCORE_SLOPE_AFTER" not in Score("1e-3 * tanh(s / 1e-3)").texts


def test_an_array_of_one_row_for_all_is_read_as_tiles_too():
    rows = Named("rows", "bool", (2, 3, 4, 64), (768, 256, 64, 1), True)
    keys = Named("keys", "element", (2, 64), (64, 1), True)
    for score, has_rows, of_heads, size in (
        (Score("s", "rows[b, h, i, j]", (rows,)), True, False, 1),
        (Score("s", "rows[0, h, i, j]", (rows,)), True, True, 1),
        (Score("s + keys[b, j]", "", (keys,)), False, False, 2),
        (Score("s + keys[1, j]", "", (keys._replace(strides=(72, 1)),)), False, False, 2),
        (Score("s + keys[1, j]", "", (keys._replace(strides=(68, 1)),)), False, False, 0),
        (Score("s", "rows[0, h, i, j]", (rows._replace(strides=(768, 256, 72, 1)),)), True, True, 0),
        (Score("s", "rows[0, h, i, j]", (rows._replace(aligned=False),)), True, True, 0),
    ):
        assert score.tile and (score.tile_has_rows, score.tile_is_of_heads) == (has_rows, of_heads)
        assert (score.copied_bytes(64), score.copied_bytes(65)) == (size, 0)
    assert Score("s + keys[b, j] + keys[b, i]", "", (keys,)).tile == ""

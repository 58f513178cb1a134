"""What is right and what is not: the comparison."""

import numpy as np
import pytest
from definitions import of_block
from helpers import definition, random_block
from hypothesis import given
from hypothesis import strategies as st

from hw4cli.problem.verdict import Comparison
from hw4cli.problem.workload import Shape

SHAPE = Shape(3, 130, 32)
BLOCK = random_block(SHAPE.B, SHAPE.N, SHAPE.d, seed=5)
ANSWER = definition(BLOCK).astype(np.float32)


def compare(got, answer=ANSWER, chunk=None):
    result = Comparison()
    got, answer = got.ravel(), answer.ravel()
    chunk = chunk or len(got)
    for start in range(0, len(got), chunk):
        result.add(got[start : start + chunk], answer[start : start + chunk])
    return result


def no_scale():
    block = BLOCK.copy()
    block[:, 0] *= np.sqrt(SHAPE.d)
    return definition(block)


def one_key_dropped():
    return of_block(BLOCK, keys=slice(0, SHAPE.N - 1))


def with_(change):
    out = ANSWER.copy()
    change(out)
    return out


KNOWN_WRONG = {
    "one NaN": lambda: with_(lambda o: o.__setitem__((1, 2, 3), np.nan)),
    "all NaN": lambda: np.full_like(ANSWER, np.nan),
    "one Inf": lambda: with_(lambda o: o.__setitem__((2, 129, 31), np.inf)),
    "zeros": lambda: np.zeros_like(ANSWER),
    "mean of V": lambda: np.broadcast_to(BLOCK[:, 2].mean(axis=1, keepdims=True), ANSWER.shape),
    "V itself": lambda: BLOCK[:, 2],
    "no 1/sqrt(d)": no_scale,
    "one key dropped": one_key_dropped,
    "last row lost": lambda: with_(lambda o: o.__setitem__((slice(None), -1), 0)),
    "last tile lost": lambda: with_(lambda o: o.__setitem__((slice(None), slice(128, None)), 0)),
    "batches swapped": lambda: ANSWER[[1, 0, 2]],
    "one element off by 6e-3": lambda: with_(lambda o: o.__setitem__((0, 0, 0), o[0, 0, 0] + 6e-3)),
}


@pytest.mark.parametrize("name", KNOWN_WRONG)
@pytest.mark.parametrize("chunk", [None, 1000])
def test_known_wrong_outputs_are_rejected(name, chunk):
    assert not compare(np.ascontiguousarray(KNOWN_WRONG[name](), np.float32), chunk=chunk).right


def test_the_answer_and_a_float32_computation_are_right():
    assert compare(ANSWER).right
    assert compare(ANSWER + np.float32(4.9e-3)).right


def test_nan_is_wrong_even_where_the_answer_is_nan_and_such_an_answer_is_refused():
    broken = np.array([1, np.nan], np.float32)
    with pytest.raises(ValueError, match="answer"):
        Comparison().add(broken, broken)


@given(
    errors=st.lists(st.floats(-0.02, 0.02), min_size=1, max_size=50),
    chunk=st.integers(1, 50),
    bad=st.one_of(st.none(), st.integers(0, 49)),
)
def test_comparison_by_chunks_is_the_plain_definition(errors, chunk, bad):
    answer = np.linspace(-3, 3, len(errors), dtype=np.float32)
    got = answer + np.array(errors, np.float32)
    if bad is not None and bad < len(errors):
        got[bad] = np.nan
    result = compare(got, answer, chunk)
    error = np.abs(got.astype(np.float64) - answer.astype(np.float64))
    wrong = ~(error <= 5e-3)
    assert result.count == len(errors)
    assert result.wrong == wrong.sum()
    assert result.right == (not wrong.any())
    assert result.not_finite == np.isnan(error).sum()
    assert result.first == (int(wrong.argmax()) if wrong.any() else None)
    finite = np.where(np.isnan(error), 0, error)
    assert result.max_error == pytest.approx(finite.max(), rel=1e-5, abs=1e-12)
    if np.isnan(error).any():
        assert result.worst == int(np.isnan(error).argmax())


def test_nothing_but_a_number_is_within_an_infinite_tolerance():
    comparison = Comparison(tolerance=np.inf)
    comparison.add(np.array([1e30, np.inf, np.nan], np.float32), np.zeros(3, np.float32))
    assert (comparison.wrong, comparison.not_finite) == (2, 2)


def test_the_reason_names_count_first_and_worst_place():
    out = with_(lambda o: o.__setitem__((slice(1, 3), 7, 5), [50.0, 90.0]))
    reason = compare(out).reason(SHAPE)
    assert "2 of 12,480" in reason
    assert "first at batch 1, row 7, column 5" in reason
    assert "worst at batch 2, row 7, column 5" in reason

"""When a mistake is named: only if its result is wrong, too, and fits the output far better than the answer does."""

from math import log

import numpy as np
from numpy.typing import NDArray

Doubles = NDArray[np.float64]

TIMES = 4.0  # how many times nearer than the exact answer a mistake must be to the output
EXACT = 1e-6  # of an error: a mistake whose result differs by less equals the output
PRECISE = 2e-3  # of the largest number of a mistake's row: a program may round so coarsely
CERTAINTY = 25.0  # natural logarithm of the odds against chance; a few hundred mistakes are tried


def misfit(
    got: Doubles,
    exact: Doubles,
    mistaken: Doubles,
    *,
    tolerance: float,
    times: float = TIMES,
    in_each_row: bool = True,
    fitted: int = 0,
    choices: int = 1,
) -> float | None:
    """The RMS difference of a mistake's rows from the output's, or None unless the evidence for it is decisive.

    All arrays are (rows, d). The mistake's result must be wrong for this input, and `times` nearer to the output than
    the exact answer and than zeros are, by RMS and by maximum, and half of that in each row, unless `in_each_row` is
    false. Few elements must fit better: noise is nearer by a factor f in n elements with odds of f to the power of -n.
    `fitted` parameters of the mistake were taken from the output: they are no evidence. If it is the best one of so
    many `choices`, more evidence is needed.
    """
    if not np.isfinite(mistaken).all() or np.abs(mistaken - exact).max() <= tolerance:
        return None
    left = got - mistaken
    if in_each_row and not fits(got, mistaken, tolerance).all():
        return None
    for error in (got - exact, got):
        if times * _rms(left) > _rms(error) or times * np.abs(left).max() > np.abs(error).max():
            return None
        if in_each_row and (_rms(left, axis=1) > _rms(error, axis=1) * 2 / times).any():
            return None
        if _log_odds(error, left, fitted / len(got)) < CERTAINTY + log(choices):
            return None
    return float(_rms(left))


def fits(got: Doubles, mistaken: Doubles, tolerance: float) -> NDArray[np.bool_]:
    """Which elements, (rows, d), are those of a mistake, as far as its program's rounding may differ."""
    largest = np.abs(mistaken).max(axis=1, keepdims=True)
    return np.asarray(np.abs(got - mistaken) <= np.maximum(tolerance, PRECISE * largest))


def _log_odds(error: Doubles, left: Doubles, fitted: float) -> float:
    """The evidence of all rows together: of each, how much nearer it is, in how many elements. A few large errors count
    as few, however many elements there are (the participation ratio), less the parameters fitted to the row."""
    some = np.abs(error).max(axis=1) > 0
    error, left = error[some], left[some]
    share = (error / np.abs(error).max(axis=1, keepdims=True)) ** 2
    independent = share.sum(axis=1) ** 2 / (share**2).sum(axis=1) - fitted
    before, after = _rms(error, axis=1), _rms(left, axis=1)
    return float((independent * np.log(before / np.maximum(after, EXACT * before))).sum())


def _rms(values: Doubles, axis: int | None = None) -> Doubles:
    return np.asarray(np.sqrt((values**2).mean(axis=axis)))

"""Why rows are NaN or Inf: scores, exp or sums that overflow float32 or fp16."""

import math
from dataclasses import dataclass

import numpy as np

from hw4cli.judge.diagnosis.evidence import Doubles
from hw4cli.judge.diagnosis.sample import Matrices, Sample, spread
from hw4cli.problem.errormap import NOT_FINITE, WRONG, ErrorMap, Flags

FLOAT32_EXP = math.log(float(np.finfo(np.float32).max))  # expf is Inf above it
FLOAT32_ZERO = 95.0, 0.1  # expf is 0 below minus this, within a tenth: fast versions have no subnormal numbers
FP16_MAX = 65504.0
ROWS = 24  # of those with NaN or Inf, and of the others of the same batch
BATCHES = 1 << 16  # of which the one with the most such rows is taken
MAX_SCORES = 1 << 21  # looked at in one go
CHANCE = 1e-3  # that the rows with NaN or Inf are by chance just those beyond fp16's limit


@dataclass(frozen=True)
class Limit:
    """A number of each row that must not exceed a limit, and the description of a row where it does."""

    phrase: str
    values: Doubles
    limit: float
    near: float = 0.02  # of the limit: a row whose number is so near may be on either side
    sign: int = 1
    unscaled: bool = False  # without 1/sqrt(d): then the finite rows are wrong, too
    usual: bool = True  # of float32, which programs normally use; fp16 needs evidence


def why_not_finite(errors: ErrorMap, matrices: Matrices) -> str | None:
    """The limit that the rows with NaN or Inf, and no others, exceed."""
    step = -(-errors.shape.B // BATCHES)
    counts = (errors.marks[::step] == NOT_FINITE).sum(axis=1)
    if not counts.any():
        return None
    batch = step * int(counts.argmax())
    bad = np.asarray(errors.marks[batch] == NOT_FINITE)
    most = max(1, min(ROWS, MAX_SCORES // errors.shape.N // 2))
    rows = np.concatenate([spread(np.flatnonzero(bad), most), spread(np.flatnonzero(~bad), most)])
    sample = matrices.sample(batch, rows)
    wrong_too = bad.all() or (errors.marks[batch] == WRONG).sum() > (errors.marks[batch] == 0).sum()
    for limit in _limits(sample):
        if _fits(limit, bad[rows]) and (wrong_too or not limit.unscaled):
            return limit.phrase.format(limit.sign * limit.values[0])
    return None


def _limits(sample: Sample) -> list[Limit]:
    scores, raw = sample.scores, sample.raw
    top, raw_top = scores.max(axis=1), raw.max(axis=1)
    logs = top + np.log(np.exp(scores - top[:, None]).sum(axis=1))
    inputs = np.full(len(top), max(np.abs(sample.k).max(), np.abs(sample.v).max()), np.float64)
    half, exp_half = f"in fp16, whose largest number is {FP16_MAX:.0f}", math.log(FP16_MAX)
    score, product = "that row's largest score is {:.1f}", "that row's largest Q·K is {:.1f}"
    total = "that row's sum of exp has the logarithm {:.1f}"
    return [
        Limit(f"exp overflows: {score}, so its maximum must be subtracted first", top, FLOAT32_EXP),
        Limit(f"the sum l overflows: {total}; subtract the row's maximum first", logs, FLOAT32_EXP),
        Limit(f"exp is 0 for all keys: {score}; subtract it first", -top, *FLOAT32_ZERO, sign=-1),
        Limit(
            f"exp would overflow there without the factor 1/sqrt(d): {product}",
            raw_top,
            FLOAT32_EXP,
            unscaled=True,
            usual=False,
        ),
        Limit(f"an input of {{:.0f}} overflows {half}", inputs, FP16_MAX),
        Limit(f"QKᵀ overflows {half}: {product}", raw_top, FP16_MAX, usual=False),
        Limit(f"S overflows {half}: {score}", top, FP16_MAX, usual=False),
        Limit(f"exp overflows {half}: {score}", top, exp_half, usual=False),
        Limit(f"the sum l overflows {half}: {total}", logs, exp_half, usual=False),
        Limit(
            f"exp overflows {half}, without the factor 1/sqrt(d): {product}",
            raw_top,
            exp_half,
            unscaled=True,
            usual=False,
        ),
    ]


def _fits(limit: Limit, bad: Flags) -> bool:
    """Whether exactly the rows with NaN or Inf exceed the limit; for fp16, not by chance."""
    clear = np.abs(limit.values - limit.limit) > limit.near * limit.limit
    beyond, bad = (limit.values > limit.limit)[clear], bad[clear]
    if not bad.any() or (beyond != bad).any():
        return False
    # The probability that rows chosen at random are exactly those.
    share = (beyond.sum() + 1) / (len(beyond) + 2)
    return limit.usual or share ** bad.sum() * (1 - share) ** (~bad).sum() < CHANCE

"""Mistakes in the formula: each is a phrase behind "attention computed", and the rows of O that it gives."""

import math
from collections.abc import Callable, Iterator
from functools import cache, partial

import numpy as np

from hw4cli.judge.diagnosis.evidence import Doubles
from hw4cli.judge.diagnosis.sample import KEYS, Sample, dot_products, softmax
from hw4cli.problem.casefile import Floats
from hw4cli.problem.errormap import TILES
from hw4cli.text.words import counted

# The phrase, and a function that computes the rows, mostly from what the sample keeps.
Mistake = tuple[str, Callable[[], Doubles]]

AS_NEAR = 1e-5  # differences that float32 may make
CAUSAL = "(keys up to the row's own only): where that is wanted, --causal compares with causal answers"
SHORTER = (16, 32, 64, 96)  # numbers of columns that a program for another d may have used


def formula_mistakes(sample: Sample) -> Iterator[Mistake]:
    """Wrong scales, no softmax or a wrong one, keys that are left out."""
    s, raw, (N, d) = sample.scores, sample.raw, sample.k.shape
    attend, mix = sample.attend, sample.mix
    keys, own = np.arange(N), sample.rows[:, None]

    @cache
    def largest() -> Doubles:
        return np.asarray(s.max(axis=1, keepdims=True))

    def kept(keep: np.ndarray, scores: Doubles = s) -> Doubles:
        return attend(np.where(keep, scores, -np.inf))

    def with_zeros(count: int) -> Doubles:
        """`count` more keys whose scores and values are 0."""
        m = np.maximum(largest(), 0)
        p = np.exp(s - m)
        return mix(p / (p.sum(axis=1, keepdims=True) + count * np.exp(-m)))

    yield "without the factor 1/sqrt(d)", lambda: attend(raw)
    yield "with 1/d instead of 1/sqrt(d)", lambda: attend(raw / d)
    yield "with sqrt(d) instead of 1/sqrt(d)", lambda: attend(raw * math.sqrt(d))
    yield "with 1/sqrt(N) instead of 1/sqrt(d)", lambda: attend(raw / math.sqrt(N))
    for other in (32, 64, 128):
        if other != d:
            yield f"with 1/sqrt({other}), though d is {d}", partial(attend, raw / math.sqrt(other))
    yield "with the sign of the scores reversed", lambda: attend(-s)
    yield "with 2^S instead of e^S", lambda: attend(s * math.log(2))
    yield "with e^S of scores that were multiplied by log2(e), as for exp2", lambda: attend(s / math.log(2))
    yield "when all keys weigh the same (the mean of V)", lambda: mix(np.full_like(s, 1 / N))
    yield "when rows are not divided by their sum l", lambda: mix(np.exp(s - largest()))
    yield (
        "when rows are not divided by their sum l, nor their maximum subtracted",
        lambda: mix(np.exp(s - largest())) * np.exp(largest()),
    )
    yield "without the softmax (S times V)", lambda: mix(s)
    yield "without the softmax and the factor 1/sqrt(d) (QKᵀ times V)", lambda: mix(raw)
    yield "with the softmax twice", lambda: attend(softmax(s))
    yield f"with a causal mask {CAUSAL}", lambda: kept(keys <= own)
    yield "with a causal mask that leaves out the row's own key", lambda: kept(keys < own)
    yield "with a causal mask the wrong way round (keys from the row's own on)", lambda: kept(keys >= own)
    if N > 1:
        yield "without the last key", lambda: kept(keys < N - 1)
        yield "without the first key", lambda: kept(keys > 0)
        yield "with one key of zeros too many (or a sum l that begins at 1)", lambda: with_zeros(1)
    for padding, tiles in _paddings(N).items():
        if padding > 1:
            phrase = f"with {padding} keys of zeros behind the last (tiles of {tiles} keys)"
            yield phrase, partial(with_zeros, padding)
    for columns in SHORTER:
        if columns < d:
            short = dot_products(sample.q[:, :columns], sample.k[:, :columns]).astype(np.float64)
            for divisor in (d, columns):
                phrase = f"when QKᵀ adds up the first {columns} of {d} columns only"
                if divisor == columns:
                    phrase += f" and is divided by sqrt({columns})"
                yield phrase, partial(attend, short / math.sqrt(divisor))


def keys_left_out(sample: Sample, first: int, last: int) -> Iterator[Mistake]:
    """Without so many of the first keys, or of the last ones: numbers that belong to no tile."""
    N, keys = len(sample.k), np.arange(len(sample.k))
    for count, alone, without, keep in (
        (last, "first", "last", keys < N - last),
        (first, "last", "first", keys >= first),
    ):
        if 1 < count < N:
            phrase = f"without the {without} {count} keys"
            if count > N // 2:
                phrase = f"from the {alone} {counted(N - count, 'key')} alone"
            yield phrase, partial(_attend_some, sample, keep)


def _attend_some(sample: Sample, keep: np.ndarray) -> Doubles:
    return sample.attend(np.where(keep, sample.scores, -np.inf))


def fewest_left_out(parts: list[tuple[Sample, Doubles]]) -> tuple[int, int]:
    """How many of the first keys, and of the last ones, a program left out whose rows are nearest to those of each
    sample; of several numbers that are as near, the smallest."""
    front, back = [], []
    for sample, got in parts:
        p = np.exp(sample.scores - sample.scores.max(axis=1, keepdims=True))
        front.append(_misses(p, sample.v, got))
        back.append(_misses(p[:, ::-1], sample.v[::-1], got))
    first, last = (_most_within_noise(np.max(misses, axis=0)) for misses in (back, front))
    return first, last


def _misses(p: Doubles, v: Floats, got: Doubles) -> Doubles:
    """How far the mean of V (N, d), weighted by the first 1, 2, … of the weights p (rows, N), is off these rows."""
    misses = np.zeros(len(v))
    for weights, row in zip(p, got, strict=True):
        total, o = 0.0, np.zeros(v.shape[1])
        for start in range(0, len(v), KEYS):
            part = slice(start, start + KEYS)
            totals = total + np.cumsum(weights[part])
            sums = o + np.cumsum(weights[part, None] * v[part], axis=0)
            with np.errstate(all="ignore"):
                miss = np.abs(sums / totals[:, None] - row).max(axis=1)
            misses[part] = np.maximum(misses[part], np.where(totals > 0, miss, np.inf))
            total, o = totals[-1], sums[-1]
    return misses


def _most_within_noise(misses: Doubles) -> int:
    """How many are left out by the longest of the sums that are nearest."""
    return len(misses) - 1 - int(np.flatnonzero(misses <= misses.min() + AS_NEAR)[-1])


def causal_mistakes(sample: Sample) -> Iterator[Mistake]:
    """The same where the answer is causal: the mask is missing or wrong, or the scale."""
    s, raw, d = sample.scores, sample.raw, sample.k.shape[1]
    seen = sample.up_to()

    def kept(keep: np.ndarray, scores: Doubles) -> Doubles:
        return sample.attend(np.where(keep, scores, -np.inf))

    yield "without the causal mask", lambda: sample.attend(s)
    yield "with a causal mask that lets each row see one key too many", lambda: kept(sample.up_to(1), s)
    yield "with a causal mask that leaves out the row's own key", lambda: kept(sample.up_to(-1), s)
    yield "with a causal mask the wrong way round (keys from the row's own on)", lambda: kept(~sample.up_to(-1), s)
    yield "without the factor 1/sqrt(d)", lambda: kept(seen, raw)
    yield "with 1/d instead of 1/sqrt(d)", lambda: kept(seen, raw / d)
    yield "when masked scores are 0, not minus infinity", lambda: sample.attend(np.where(seen, s, 0))


def _paddings(N: int) -> dict[int, str]:
    """How many keys are missing in the last tile, and for which tiles."""
    found: dict[int, list[str]] = {}
    for tile in TILES:
        if N % tile:
            found.setdefault(-N % tile, []).append(str(tile))
    return {padding: " or ".join(tiles) for padding, tiles in found.items()}

"""The corrections of a score in 8-bit integers: no kernel computes them, docs/accuracy.md proves how wrong they can be.

Q and K are scaled by FACTOR, so that elements up to 3 are below 1: q k = hi hi' + (lo k + q lo'), the second part as
products of integers, whose sums are exact.
"""

import math
import re

import numpy as np
import pytest
from emulation import adversaries, fp16, uniform
from helpers import ROOT

from hw4cli.compute.bounds import SAFE, TYPICAL, Shares, half_ulp16, shares
from hw4cli.compute.plan import DEVICES

FACTOR = np.float32(1364 / 4096)
ONE, FINE = 127, 2.0**12  # the integer of 1; a second term is at most 1/FINE
UNIT = 1 / (ONE**2 * FINE)  # what 1 is in a sum of products of integers


def integers(x):
    """x and its second term as integers of 8 bits; for |x| up to 1."""
    scaled = (x * FACTOR).astype(np.float64)
    whole, second = np.rint(ONE * scaled), np.rint(ONE * FINE * (scaled - fp16(x * FACTOR)))
    assert max(np.abs(whole).max(), np.abs(second).max()) <= ONE
    return whole, second


def corrections(q, k):
    """lo k + q lo' of all rows with all keys, in units of 1 / FACTOR², exact but for the roundings to integers."""
    (q8, q_lo), (k8, k_lo) = integers(q), integers(k)
    total = q_lo @ k8.T + q8 @ k_lo.T
    assert np.abs(total).max() < 2**22  # so an int32, and the bits of a float beside 1.5 * 2^23, hold it
    return total * UNIT


def score_errors(q, k):
    """What is wrong with scores, in natural units."""
    x, y = (part * FACTOR for part in (q, k))
    exact = x.astype(np.float64) @ y.astype(np.float64).T
    return (fp16(x) @ fp16(y).T + corrections(q, k) - exact) / float(FACTOR) ** 2 / np.sqrt(q.shape[1])


def allowed(d):
    """The bound for them, for elements up to 3."""
    x = 3 * float(FACTOR)
    lo = half_ulp16(x)
    rounded = (ONE * (x + lo * FINE) / 2 + 1 / 4) * UNIT
    return d * (2 * rounded + lo * lo) / float(FACTOR) ** 2 / math.sqrt(d)


def weigh(s, v):
    p = np.exp(s - s.max(axis=1, keepdims=True))
    return p @ v.astype(np.float64) / p.sum(axis=1, keepdims=True)


def opposite_corrections(rng, N, d):
    """Two keys of one score whose corrections are wrong the one way and the other, with opposite values; all other keys
    are far below."""
    near_3 = rng.uniform(2.9, 3, 4000).astype(np.float32)
    keys = np.concatenate([near_3, -near_3])
    wrong = [score_errors(x.reshape(1, 1), keys[:, None])[0] for x in near_3[:400]]
    # Two elements of q, of which one is wrong upwards with positive keys, one with negative ones: scores are about 0.
    sign, spread = np.array([(np.sign(keys[np.argmax(w)]), np.ptp(w)) for w in wrong]).T
    a, b = (near_3[np.argmax(np.where(sign == s, spread, 0))] for s in (1, -1))
    q, k = np.where(np.arange(d) % 2, b, a), np.full((N, d), -3, np.float32)
    for c in range(d):
        wrong = score_errors(q[c].reshape(1, 1), keys[:, None])[0]
        k[0, c], k[1, c] = keys[np.argmax(wrong)], keys[np.argmin(wrong)]
    for c in range(d):  # makes the two scores equal, in as few columns as that takes
        rest = float(q.astype(float) @ (k[1].astype(float) - k[0])) / float(q[c])
        k[0, c] = np.clip(k[0, c] + rest, -3, 3)
    v = uniform(rng, (N, d))
    v[0], v[1] = 3, -3
    return q[None], k, v


@pytest.mark.parametrize("d", [32, 64])
def test_no_adversary_makes_corrections_in_int8_worse_than_is_proven(d):
    cases = {name: parts for name, *parts in adversaries(256, d) if max(np.abs(x).max() for x in parts) <= 3}
    cases["corrections that are wrong in opposite ways"] = opposite_corrections(np.random.default_rng(5), 256, d)
    assert len(cases) > 10
    proven = Shares(3.0, weights={"corrections in int8": allowed(d)}).total()
    for name, (q, k, v) in cases.items():
        errors = score_errors(q, k)
        assert np.abs(errors).max() <= allowed(d), name
        s = q.astype(np.float64) @ k.astype(np.float64).T / np.sqrt(d)
        assert np.abs(weigh(s + errors, v) - weigh(s, v)).max() <= proven, name


@pytest.mark.parametrize("d", [32, 64])
def test_an_adversary_reaches_most_of_what_is_proven(d):
    q, k, v = opposite_corrections(np.random.default_rng(5), 2, d)
    errors = score_errors(q, k)
    assert np.ptp(errors) / 2 >= 0.5 * allowed(d)
    s = q.astype(np.float64) @ k.astype(np.float64).T / np.sqrt(d)
    assert np.abs(weigh(s + errors, v) - weigh(s, v)).max() >= 0.4 * 3 * allowed(d)


def test_the_page_says_how_wrong_a_score_can_be_and_all_of_it_stays_below_what_is_allowed():
    page = (ROOT / "docs/accuracy.md").read_text()
    told = re.findall(r"(\d\.\d+e-\d)\s+at\s+d\s+=\s+(\d+)\s+in\s+a\s+score", page)
    assert [int(d) for _, d in told] == [32, 64]
    for error, d in ((float(error), int(d)) for error, d in told):
        assert error == pytest.approx(allowed(d), rel=0.01)
        found = shares("split", TYPICAL, d, 32768, DEVICES[90])
        found.weights["corrections in int8"] = allowed(d)  # and those of fp16 still counted
        assert found.total() <= SAFE

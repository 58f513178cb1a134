"""split8's products with second terms as 8-bit integers: how wrong they make a score and an answer, emulated."""

import math
import re

import numpy as np
import pytest
from definitions import definition
from emulation import adversaries, split_attention, uniform
from helpers import ROOT
from secondterms import corrections, fp16
from slow import quick_of_each

from hw4cli.plans.bounds import SAFE, bound, shares
from hw4cli.plans.ladder import VARIANTS
from hw4cli.plans.plan import DEVICES
from hw4cli.plans.tensor import policy
from hw4cli.problem.terms import QK_FACTOR, by_integers
from hw4cli.problem.workload import Magnitudes

FACTOR, N = np.float32(QK_FACTOR), 600
TYPICAL = Magnitudes(3.0, 3.0, 3.0)


def magnitudes(*parts):
    norms = (float(np.linalg.norm(part.astype(np.float64), axis=1).max()) for part in parts[:2])
    return Magnitudes(*(float(np.abs(part).max()) for part in parts), *norms)


def score_errors(q, k):
    """What is wrong with scores, in natural units."""
    x, y = (part * FACTOR for part in (q, k))
    exact = q.astype(np.float64) @ k.astype(np.float64).T
    return ((fp16(x) @ fp16(y).T + corrections(x, y)) / float(FACTOR) ** 2 - exact) / math.sqrt(q.shape[1])


def allowed(*found, d):
    """The bound for them, and for the two roundings of elements that are scaled."""
    values = Magnitudes(*found)
    norms = values.norms(d)
    return by_integers(values, d).left_out * math.log(2) + 2.01 * 2.0**-24 * norms[0] * norms[1] / math.sqrt(d)


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


@quick_of_each(1)
@pytest.mark.parametrize(("d", "cc"), [(36, 90), (64, 90), (32, 80), (64, 80)])
def test_no_adversary_gets_past_the_bound(d, cc):
    props = DEVICES[cc]
    cases = {name: parts for name, *parts in adversaries(N, d) if by_integers(magnitudes(*parts), d)}
    cases["corrections that are wrong in opposite ways"] = opposite_corrections(np.random.default_rng(5), N, d)
    largest = np.float32(1 / QK_FACTOR / (1 + 2.0**-22))
    cases["as large as it may be"] = tuple(largest * np.sign(uniform(np.random.default_rng(6), (N, d))) for _ in "QKV")
    assert len(cases) > 12
    adds = policy(VARIANTS["split8"].pieces, N, d, props)
    assert adds.integers
    for name, (q, k, v) in cases.items():
        q, found = q[:4], magnitudes(q[:4], k, v)
        assert np.abs(score_errors(q, k)).max() <= allowed(*found, d=d), name
        exact, _ = definition(q, k, v)
        assert np.abs(split_attention(q, k, v, adds, cc) - exact).max() <= bound("split8", found, d, N, props), name


@pytest.mark.parametrize("d", [36, 64])
def test_an_adversary_reaches_most_of_what_is_proven(d):
    q, k, _ = opposite_corrections(np.random.default_rng(5), 2, d)
    assert np.ptp(score_errors(q, k)) / 2 >= 0.5 * allowed(3, 3, 3, d=d)


def test_elements_that_pass_what_integers_hold_have_no_bound():
    for q, k in ((3.003, 3), (3, 3.003), (math.inf, 3), (3, math.nan)):
        assert bound("split8", Magnitudes(q, k, 3), 64, 8192) == math.inf
    assert bound("split8", Magnitudes(3.0029, 3.0029, 3), 64, 32768) < SAFE


@pytest.mark.parametrize(
    ("d", "keys", "cc"), [(64, 512, 90), (32, 8192, 90), (96, 8192, 90), (64, 256, 80), (96, 8192, 80)]
)
def test_where_it_does_as_split_does_it_is_as_exact(d, keys, cc):
    props = DEVICES[cc]
    assert policy(VARIANTS["split8"].pieces, keys, d, props) == policy(VARIANTS["split"].pieces, keys, d, props)
    assert bound("split8", (4, 4, 2), d, keys, props) == bound("split", (4, 4, 2), d, keys, props)


@pytest.mark.parametrize("cc", [cc for cc in DEVICES if cc >= 80])
@pytest.mark.parametrize("d", [32, 64])
def test_on_every_gpu_that_has_it_the_assignments_range_is_within_what_is_allowed(d, cc):
    """Where tensor cores cut off more, as on 8.0, split's sums are not: they end too far from where they begin."""
    for N in (257, 4096, 32768):
        assert bound("split8", TYPICAL, d, N, DEVICES[cc]) <= SAFE
    if cc in (80, 86, 89, 120):
        assert bound("split", TYPICAL, d, 32768, DEVICES[cc]) > SAFE


def test_the_page_says_how_wrong_a_score_can_be():
    page = (ROOT / "docs/accuracy.md").read_text()
    (stated,) = re.findall(r"(\d\.\d+e-\d)\s+in\s+a\s+score\s+at\s+d\s+=\s+64", page)
    assert float(stated) == pytest.approx(by_integers(TYPICAL, 64).left_out * math.log(2), rel=0.01)
    assert shares("split8", TYPICAL, 64, 32768).total() <= SAFE

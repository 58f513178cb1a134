"""The figures of samples: mean, standard error, fastest, slowest."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hw4cli.lab.times import Times, milliseconds


@given(st.lists(st.floats(0.01, 1000), min_size=2, max_size=100))
def test_figures_are_those_of_the_samples(samples):
    times = Times.of(samples)
    assert times.mean == pytest.approx(np.mean(samples))
    assert times.error == pytest.approx(np.std(samples, ddof=1) / len(samples) ** 0.5, abs=1e-9)
    assert (times.fastest, times.slowest, times.count) == (min(samples), max(samples), len(samples))
    low, high = times.interval
    assert low <= times.mean <= high


def test_a_line_shows_them_with_three_decimals_or_four_digits():
    assert str(Times(13.4021, 0.0109, 13.3771, 13.4884, 20)) == (
        "13.402 ± 0.011 ms, fastest 13.377, slowest 13.488, 20 samples"
    )
    assert [milliseconds(value) for value in (757, 1.0, 0.83891, 0.05)] == ["757.000", "1.000", "0.8389", "0.05000"]


def test_the_interval_holds_the_true_mean_about_as_often_as_it_says():
    random = np.random.default_rng(0)
    intervals = [Times.of(list(random.normal(10, 1, 20))).interval for _ in range(1000)]
    assert 0.91 < np.mean([low <= 10 <= high for low, high in intervals]) < 0.98

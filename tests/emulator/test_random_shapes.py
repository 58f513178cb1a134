"""Random legal shapes for every kernel of the registry (benchmarks/measure/random_shapes.py)."""

import os
import random

import pytest

from benchmarks.measure import random_shapes
from hw4cli.plans.registry import KERNELS


@pytest.mark.parametrize("kernel", KERNELS)
def test_a_seed_draws_the_same_legal_shapes_again(kernel):
    first, again = (random_shapes.draws(kernel, random.Random(f"7 {kernel}")) for _ in range(2))
    assert first
    assert [*map(str, first)] == [*map(str, again)]
    sizes = [(one.work.B * one.work.Nq * one.work.Nk * one.work.d) for one in first]
    assert max(sizes) <= random_shapes.WORK


@pytest.mark.parametrize("kernel", ["columns", "absmax", "naive", "half_cores", "backward"])
def test_right_kernels_have_no_finding(kernel):
    (draw, *_) = random_shapes.draws(kernel, random.Random(f"3 {kernel}"))
    assert random_shapes.checked(draw) == []


def test_a_process_that_ends_is_a_finding(monkeypatch):
    monkeypatch.setattr(random_shapes, "problems", lambda draw: os._exit(5))
    (draw, *_) = random_shapes.draws("columns", random.Random(1))
    assert random_shapes.checked(draw) == ["the process ended with 5"]

"""Random cases on the GPU, the same every time: kernels one by one, and whole files through the command."""

import re

import numpy as np
import pytest
from helpers import read_output, write_case

from hw4cli.lab.randomcases import RandomCase, draw
from hw4cli.lab.selftest import LEAST, GpuBackend, run_case
from hw4cli.plans.ladder import FALLBACK, VARIANTS
from hw4cli.problem.workload import Shape

SEED, CASES, CHAINS = 0, 500, 3


def plans(props):
    """What these tests compile, with the oracle's."""
    for case in (draw(SEED, number) for number in range(CASES)):
        for kernel in {case.kernel, FALLBACK}:
            if VARIANTS[kernel].least_cc <= props.cc:
                yield VARIANTS[kernel].plan(case.shape, props)


@pytest.fixture(scope="module")
def backend(gpu):
    import cupy

    backend = GpuBackend(gpu)
    yield backend
    del backend
    cupy.get_default_memory_pool().free_all_blocks()


@pytest.mark.parametrize(
    "number", [pytest.param(n, marks=pytest.mark.chain(f"random {n % CHAINS}")) for n in range(CASES)]
)
def test_a_random_case_is_right(backend, number):
    case = draw(SEED, number)
    outcome = run_case(case, backend)
    if outcome.skipped:
        pytest.skip(outcome.skipped)
    assert not outcome.wrong, f"{case}: {outcome.wrong}\n{case.command}"


def scaled_k(N, d, factor):
    """Uniform values, with K times a factor that grows from key to key."""
    block = RandomCase("", Shape(1, N, d), "uniform", 1).block()
    block[:, 1] *= (factor * np.arange(N, dtype=np.float32) / N)[:, None]
    return block


FILES = {
    "an odd number of keys": lambda: RandomCase("", Shape(1, 40001, 64), "uniform", 1).block(),
    "steeply rising scores": lambda: scaled_k(16385, 32, 8),
    "steeply rising scores, in tasks of two blocks": lambda: np.repeat(scaled_k(6001, 64, 8), 5, axis=0),
    "plateaus": lambda: RandomCase("", Shape(1, 20001, 128), "plateaus in scores", 1).block(),
    "the edge of float32": lambda: RandomCase("", Shape(2, 8191, 36), "scores at the edge of float32", 1).block(),
    "large and small batches": lambda: RandomCase("", Shape(301, 513, 64), "every second batch scaled", 1).block(),
    "huge V": lambda: RandomCase("", Shape(37, 1023, 4), "huge V", 1).block(),
}


@pytest.mark.parametrize("kernel", ["auto", "split", "split8", "exact", "flash"])
@pytest.mark.parametrize("name", FILES)
def test_a_file_is_right_within_the_bound_that_the_command_tells(backend, hw4, prepared, tmp_path, name, kernel):
    if kernel != "auto" and backend.props.cc < VARIANTS[kernel].least_cc:
        pytest.skip(f"{kernel} needs compute capability {VARIANTS[kernel].least_cc / 10}")
    block = FILES[name]()
    B, _, N, d = block.shape
    if kernel == "auto":
        prepared(Shape(B, N, d))
    source = write_case(tmp_path / "in", block)
    result = hw4("--device", "cuda", "--kernel", kernel, source, tmp_path / "out", "--timing")
    assert result.returncode == 0, result.stderr
    stated = max(float(bound) for bound in re.findall(r"error at most ([\d.e+-]+\d)", result.stderr))
    error = np.abs(read_output(tmp_path / "out", Shape(B, N, d)) - backend.oracle(block)).max()
    assert error <= stated + LEAST, result.stderr

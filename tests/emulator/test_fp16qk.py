"""fp16qk on data of the assignment: an answer that the judge refuses, and that hw4 does not give."""

import numpy as np
import pytest
from helpers import write_case
from slow import few, slow

from hw4cli.emulator.build import PLAIN, shared_object
from hw4cli.emulator.library import Library
from hw4cli.plans.bounds import bound
from hw4cli.plans.ladder import VARIANTS
from hw4cli.plans.plan import DEVICES
from hw4cli.problem.casefile import magnitudes_of
from hw4cli.problem.oracle import exact_attention
from hw4cli.problem.rules import TOLERANCE
from hw4cli.problem.suite import cases, uniform
from hw4cli.problem.workload import Shape
from hw4cli.resources import kernel_path

BATCH = 13  # of t06, where the error is largest


def t06():
    """One batch of the case t06: (1, 3, N, d)."""
    case = cases()["t06"]
    values = np.concatenate(list(uniform(case.seed, 3 * case.shape.elements)))
    return values.reshape(-1, 3, case.shape.N, case.shape.d)[BATCH : BATCH + 1]


@pytest.mark.parametrize("cc", few((80, 75), 1))
def test_the_judge_would_refuse_its_answer_to_t06(cc):
    """Also on a T4 (7.5), whose tensor cores take 8 columns at a time where later ones take 16."""
    block = t06()
    plan = VARIANTS["fp16qk"].plan(Shape(1, *block.shape[2:]), DEVICES[cc])
    library = Library(shared_object(kernel_path("fp16qk"), plan.macros, cc, 32, PLAIN))
    error = np.abs(library.run(plan, block, watched=False).o - exact_attention(block)).max()
    assert TOLERANCE < error < 1.2 * TOLERANCE
    assert error < bound("fp16qk", magnitudes_of(block), *block.shape[:1:-1])


@slow
def test_asked_for_it_lets_a_more_exact_kernel_answer_and_says_so(hw4, tmp_path):
    block = t06()[:, :, :40]
    source = write_case(tmp_path / "in", block)
    done = hw4("--device", "emulate", "--kernel", "fp16qk", source, tmp_path / "out")
    assert done.returncode == 0, done.stderr
    assert "1 batch had values too large for fp16qk: computed more exactly, 1 in flash" in done.stderr
    answer = np.fromfile(tmp_path / "out", np.float32).reshape(block[:, 0].shape)
    assert np.abs(answer - exact_attention(block)).max() < 1e-4

"""`flash` where the keys are in parts, and one part has no running maximum: executed on the CPU."""

import math
from dataclasses import replace

import numpy as np
import pytest

from hw4cli.emulator.build import PLAIN, shared_object
from hw4cli.emulator.library import Library
from hw4cli.plans.bounds import bound
from hw4cli.plans.ladder import VARIANTS
from hw4cli.plans.plan import DEVICES
from hw4cli.problem.casefile import magnitudes_of
from hw4cli.problem.oracle import exact_attention
from hw4cli.problem.workload import Shape
from hw4cli.resources import kernel_path

Q = 3.0  # all elements of Q; a key's are equal, too


def one_key_a_part(shape, scores):
    """Of each part of the keys one with this score, in units of log2; all others are far below."""
    block = np.zeros((shape.B, 3, shape.N, shape.d), np.float32)
    block[:, 0], block[:, 1] = Q, -1
    for part, score in enumerate(scores):
        key = (2 * part + 1) * shape.N // (2 * len(scores))
        block[:, 1, key] = score * math.log(2) / (math.sqrt(shape.d) * Q)
        block[:, 2, key] = 3 * (-1) ** part
    return block


@pytest.mark.parametrize(
    "scores", [(119, 127), (127, 119), (119, 126.5, 118), (119.75, 112), (-60, -63), (0, 125, 119)]
)
@pytest.mark.parametrize("cc", [61, 80])
def test_a_part_without_a_running_maximum_keeps_its_weight_beside_one_with_a_larger(cc, scores):
    """Its m is 0 and its l up to 2^120: beside an m of 127, 2^-127 is 0 to a GPU, but 2^120 times as much is not."""
    shape = Shape(1, 700, 32)
    plan = replace(VARIANTS["flash"], splits=lambda *_: len(scores)).plan(shape, DEVICES[cc])
    block = one_key_a_part(shape, scores)
    o = Library(shared_object(kernel_path("flash"), plan.macros, cc, 32, PLAIN)).run(plan, block).o
    error = np.abs(o - exact_attention(block)).max()
    assert error <= bound("flash", magnitudes_of(block), shape.d, shape.N, DEVICES[cc])

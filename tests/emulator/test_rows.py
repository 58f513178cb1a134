"""Kernels that compute only some rows of Q, executed on the CPU."""

from dataclasses import replace

import numpy as np
import pytest
from helpers import random_block

from hw4cli.emulator.build import PLAIN, shared_object
from hw4cli.emulator.library import Library
from hw4cli.plans.ladder import VARIANTS
from hw4cli.plans.plan import DEVICES
from hw4cli.problem.workload import Shape
from hw4cli.resources import kernel_path


@pytest.mark.parametrize(
    ("name", "cc", "causal", "splits"), [("flash", 80, True, 3), ("split", 90, False, 3), ("split", 90, True, 1)]
)
def test_a_range_of_rows_has_the_bits_that_it_has_in_the_whole(name, cc, causal, splits):
    shape, first, rows = Shape(1, 530, 32, causal), 256, 140
    block = random_block(shape.B, shape.N, shape.d)
    variant = replace(VARIANTS[name], splits=lambda *_: splits)
    whole, some = (variant.plan(one, DEVICES[cc]) for one in (shape, Shape(1, shape.N, shape.d, causal, rows)))
    assert whole.options == some.options
    assert sum(step.grid for step in some.launches) < sum(step.grid for step in whole.launches)
    library = Library(shared_object(kernel_path(whole.source), whole.macros, DEVICES[cc].cc, 32, PLAIN))
    library.add_as(cc)
    expected = library.run(whole, block, watched=False).o
    got = library.run(some, block, watched=False, rows=(first, rows)).o
    assert np.array_equal(got[:, first : first + rows], expected[:, first : first + rows])
    assert np.isnan(got[:, :first]).all()
    assert np.isnan(got[:, first + rows :]).all()

"""The kernels' own tensor-core instructions, on the CPU: what tests/gpu compares with a GPU, bit by bit."""

import numpy as np
import pytest
from instructions import PROBES, on_the_cpu, operands


@pytest.mark.parametrize("name", PROBES)
def test_an_instruction_computes_the_same_sums_cut_off_or_not(name):
    block = operands(1)
    exact, cut_off = (on_the_cpu(name, block, cc) for cc in (0, 90))
    changed = ~np.isnan(exact)
    assert changed.any()
    np.testing.assert_array_equal(changed, ~np.isnan(cut_off))
    np.testing.assert_allclose(cut_off[changed], exact[changed], rtol=1e-3, atol=1e-3)
    assert (exact[changed] != cut_off[changed]).any() == (name != "one_load")

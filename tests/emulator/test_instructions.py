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


def test_sums_are_cut_off_where_an_h100_cuts_them_off():
    """Five sums in which a product that is aligned by its own exponent, not its factors', gives another last bit."""
    sums = on_the_cpu("one_mma", operands(0), 90).view(np.uint32).ravel()
    assert sums[[2, 11, 34, 44, 67]].tolist() == [3235330320, 3263244816, 1099208687, 1057041454, 1027435450]

"""What a first run compiles beside its own kernel: all that the assignment's other files need."""

from dataclasses import replace

import pytest

from hw4cli.compute.dispatch import AUTO, Choice, candidates
from hw4cli.compute.plan import DEVICES
from hw4cli.compute.variants import VARIANTS
from hw4cli.device.gpu import kernel_of
from hw4cli.problem import suite
from hw4cli.stream.cudadevice import first_plans
from hw4cli.stream.layout import choose_layout


@pytest.mark.parametrize("cc", DEVICES)
@pytest.mark.parametrize("causal", [False, True])
def test_all_parts_of_all_thirty_files_have_their_kernels_after_a_first_run(cc, causal):
    props = DEVICES[cc]
    compiled = {kernel_of(plan) for plan in first_plans(AUTO, None, props, "", causal)}
    for name, case in suite.cases().items():
        shape = replace(case.shape, causal=causal)
        order, why = candidates(AUTO, props, "", shape.d, shape.N, causal)
        first = VARIANTS[Choice(order, why, shape.d, shape.N, props, None).first]
        for part in choose_layout(shape, cores=1, whole_batches=True).parts(shape):
            assert kernel_of(first.plan(shape.with_batches(part.batches), props)) in compiled, (name, part)

"""`hw4 selftest` on a GPU, tried on one that there is not: what only memory on a GPU shows is found, too."""

import numpy as np
import pytest
from fakegpu import FakeGpu

from hw4cli.errors import MachineError
from hw4cli.lab import selftest
from hw4cli.lab.randomcases import RandomCase
from hw4cli.lab.selftest import GpuBackend, outcomes, run_case
from hw4cli.plans.plan import DEVICES
from hw4cli.problem.workload import Shape

ON_GPU = RandomCase("exact", Shape(3, 600, 8), "uniform", 4)


def raising(error):
    def also(inputs, outputs):
        raise error

    return also


def test_a_right_kernel_on_a_gpu_passes_and_its_scratch_is_other_poison_every_time():
    gpu = FakeGpu()
    outcome = run_case(ON_GPU, GpuBackend(gpu))
    assert (outcome.wrong, outcome.skipped) == ("", "")
    assert [np.unique(scratch.values).tolist() for scratch in gpu.scratches] == [[255], [0]]


@pytest.mark.parametrize("place", [-1, 0])
def test_a_kernel_that_writes_beside_its_output_is_found(place):
    def also(inputs, outputs):
        whole = outputs.values.base
        whole[selftest.GUARD - 1 if place == 0 else -selftest.GUARD] = 0

    assert run_case(ON_GPU, GpuBackend(FakeGpu(also))).wrong == "the kernel wrote outside its output"


def test_a_kernel_that_reads_beyond_its_input_meets_nan():
    def also(inputs, outputs):
        whole = inputs.values.base
        outputs.values[-1, -1] += 0 * whole[-selftest.GUARD]

    assert "8 elements " in run_case(ON_GPU, GpuBackend(FakeGpu(also))).wrong


def test_a_wrong_absmax_of_the_input_is_found():
    outcome = run_case(ON_GPU, GpuBackend(FakeGpu(found=lambda block: (1, 2, 3))))
    assert outcome.wrong.startswith("|Q|, |K|, |V| reach (")
    assert outcome.wrong.endswith("but (1.0, 2.0, 3.0) was found")


def test_what_a_gpu_cannot_run_is_skipped():
    old = FakeGpu()
    old.props = DEVICES[61]
    assert run_case(ON_GPU, GpuBackend(old)).skipped == "kernel exact needs compute capability 8.0, this GPU has 6.1"
    small = FakeGpu(raising(MemoryError()))
    assert run_case(ON_GPU, GpuBackend(small)).skipped == "kernel exact would need more memory than this GPU has"


def test_after_a_kernel_that_failed_nothing_more_is_asked_of_the_gpu():
    broken = GpuBackend(FakeGpu(raising(MachineError("the GPU failed in kernel exact: cudaErrorMisalignedAddress"))))
    found = list(outcomes(broken, lambda number: ON_GPU, 60))
    assert [outcome.wrong for outcome in found] == ["the GPU failed in kernel exact: cudaErrorMisalignedAddress"]

"""16-bit attention for AMD's GPUs: half_cores compiled by hiprtc, without such a GPU."""

import pytest
from slow import quick_of_each

from hw4cli.device.hip.codeobject import kernels_of
from hw4cli.device.hip.hiprtc import OPTIONS
from hw4cli.device.kernelcheck import compiler_for
from hw4cli.errors import MachineError
from hw4cli.plans.halfmma import CORES, cores_plan
from hw4cli.plans.kernels16 import kernel16
from hw4cli.plans.plan import AMD_DEVICES
from hw4cli.problem.workload import BFLOAT16, FLOAT16, Workload
from hw4cli.resources import kernel_source

pytestmark = quick_of_each(2)


@pytest.mark.parametrize("dtype", [FLOAT16, BFLOAT16])
@pytest.mark.parametrize("gfx", ["gfx90a", "gfx1030"])
def test_half_cores_compiles_for_amds_gpus_without_spills_and_its_blocks_fit(gfx, dtype):
    props = AMD_DEVICES[gfx]
    try:
        compiler = compiler_for(props)
    except MachineError as reason:
        pytest.skip(f"needs hiprtc: {reason}")
    work = Workload.square(dtype, 1, 2, 1024, 128, causal=True)
    planned = cores_plan(work, props)
    code = compiler.compile(kernel_source(CORES, hip=True), "half_cores.hip", (*OPTIONS, *planned.options))
    used = kernels_of(code)[CORES]
    assert used.spilled == 0
    assert used.shared + planned.launches[0].shared <= props.shared_limit


def test_amds_gpus_get_half_cores():
    assert kernel16(Workload.square(FLOAT16, 1, 1, 128, 64), AMD_DEVICES["gfx90a"]) == CORES

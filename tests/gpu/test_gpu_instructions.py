"""The tensor cores of this GPU and those that are emulated: the same bits."""

import numpy as np
import pytest
from instructions import PROBES, SHARED, SOURCE, macros, on_the_cpu, operands, plan_of

from hw4cli.plans.launch import arguments, block_matrices
from hw4cli.problem.workload import Shape
from hw4cli.resources import data_path, spliced


def on_the_gpu(gpu, name, block):
    import cupy

    plan, by_group = plan_of(name), PROBES[name][2]
    options = ("-std=c++17", *(["-arch=sm_90a"] if by_group else []))
    options += tuple(f"-D{key}={value}" for key, value in macros(by_group).items())
    text = spliced(SOURCE, (SOURCE.parent, data_path("kernels")))
    launch = plan.launches[0]
    kernel = cupy.RawModule(code=text, options=options).get_function(launch.symbol)
    inputs, scratch = cupy.asarray(block), cupy.zeros(16, np.uint8)
    outputs = cupy.full(block[:, 0].shape, np.nan, np.float32)
    shape = Shape(1, *block.shape[2:])
    passed = arguments(plan, shape, block_matrices(shape, inputs.data.ptr, outputs.data.ptr), scratch.data.ptr)
    params = np.frombuffer(passed, np.dtype((np.void, len(passed))))
    kernel((launch.grid,), (launch.block,), (params,), shared_mem=SHARED)
    return outputs.get()


@pytest.mark.parametrize("name", PROBES)
def test_emulated_tensor_cores_give_the_bits_of_real_ones(gpu, name):
    if gpu.props.cc < 80:
        pytest.skip("needs mma.sync of 16x8x16: compute capability 8.0")
    if PROBES[name][2] and not gpu.props.warpgroups:
        pytest.skip("this GPU has no warp groups")
    for seed in range(12):
        block = operands(seed)
        real, emulated = on_the_gpu(gpu, name, block), on_the_cpu(name, block, gpu.props.cc)
        written = ~np.isnan(emulated)
        np.testing.assert_array_equal(~np.isnan(real), written)
        np.testing.assert_array_equal(real[written].view(np.uint32), emulated[written].view(np.uint32))

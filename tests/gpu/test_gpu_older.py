"""The kernels as GPUs before Ampere get them: PTX for compute capability 7.5, compiled for this GPU by the driver."""

import shutil
import subprocess
from typing import Any

import numpy as np
import pytest
from gpuexact import exact_attention
from helpers import random_block

from hw4cli.plans.ladder import VARIANTS
from hw4cli.plans.plan import DEVICES
from hw4cli.problem.workload import Shape
from hw4cli.resources import kernel_source

nvcc = shutil.which("nvcc")


@pytest.mark.skipif(nvcc is None, reason="nvcc is not installed")
@pytest.mark.parametrize("shape", [(3, 200, 32), (2, 129, 64), (1, 1100, 64), (2, 333, 36), (2, 200, 128), (1, 5, 100)])
@pytest.mark.parametrize("cc", [61, 75])
def test_flash_is_right_without_asynchronous_copies(gpu, monkeypatch, tmp_path, shape, cc):
    """The tiles are those of the older GPU, too; its code is compiled as for 7.5, the oldest that CUDA 13 knows."""
    import cupy

    plan = VARIANTS["flash"].plan(Shape(*shape), DEVICES[cc])
    (tmp_path / "flash.cu").write_text(kernel_source("flash"))
    command: list[Any] = [
        nvcc,
        "-ptx",
        "-arch=compute_75",
        "-std=c++17",
        "-ftz=true",
        *plan.options,
        "flash.cu",
        "-o",
        "flash.ptx",
    ]
    subprocess.run(command, cwd=tmp_path, check=True, capture_output=True)
    module = cupy.RawModule(path=str(tmp_path / "flash.ptx"))
    functions = [module.get_function(launch.symbol) for launch in plan.launches]
    for function, launch in zip(functions, plan.launches, strict=True):
        if launch.shared > 48 << 10:
            function.max_dynamic_shared_size_bytes = launch.shared
    monkeypatch.setattr(gpu, "functions", lambda _: functions)
    block = random_block(*shape)
    for factor in (1, 30):  # the second takes the way with a running maximum
        inputs, outputs = gpu.upload(block * np.float32(factor)), gpu.empty((shape[0], *shape[1:]))
        outputs.data.memset(0xFF, outputs.nbytes)
        gpu.compute(plan, inputs, outputs)
        expected = exact_attention(block * np.float32(factor))
        assert np.abs(outputs.get() - expected).max() <= (2e-5 if factor == 1 else 0.2)

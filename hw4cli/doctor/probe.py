"""cupy, NVRTC and the GPU, and whether a newly compiled kernel is right: `python -m hw4cli.doctor.probe`.

It runs in its own process, because a broken driver may crash it or make it hang; it prints one JSON object.
"""

import json
import os
from typing import Any

from hw4cli.errors import MachineError, first_line


def probe() -> dict[str, Any]:
    """The facts by name; a step that fails leaves its reason under "no cupy", "no NVRTC", "no GPU" or "no kernel"."""
    os.environ["CUPY_CACHE_IN_MEMORY"] = "1"  # the kernel is compiled, not taken from the cache
    from hw4cli.device.gpu import Gpu, import_cupy
    from hw4cli.plans.dispatch import auto_by_length

    facts: dict[str, Any] = {}
    try:
        cupy = import_cupy()
    except MachineError as error:
        return {"no cupy": str(error), **_nvrtc()}
    facts.update(cupy=cupy.__version__, headers=_headers(cupy), hip=bool(cupy.cuda.runtime.is_hip))
    try:
        facts["nvrtc"] = ".".join(map(str, cupy.cuda.nvrtc.getVersion()))
    except (RuntimeError, ImportError, OSError) as error:
        facts["no NVRTC"] = first_line(error)
    try:
        gpu = Gpu()
    except MachineError as error:
        return {**facts, "no GPU": str(error)}
    choice = "; ".join(f"{kernels[0]}, {why}" for _, kernels, why in auto_by_length(gpu.props, gpu.name, 64))
    facts.update(gpu=gpu.name, architecture=gpu.props.architecture, choice=choice)
    try:
        return {**facts, "kernel error": _kernel_error(gpu)}
    except (MachineError, RuntimeError) as error:
        return {**facts, "no kernel": first_line(error)}


def _nvrtc() -> dict[str, str]:
    """The NVRTC by which `hw4 check` compiles without cupy and without a GPU, if there is one."""
    from hw4cli.device.kernelcheck import compiler_for
    from hw4cli.plans.plan import DEVICES

    try:
        return {"nvrtc": compiler_for(DEVICES[90]).version}
    except MachineError:
        return {}


def _kernel_error(gpu: Any) -> float:
    """The largest error of the default kernel on a small case with tails, against the oracle on the CPU."""
    import numpy as np

    from hw4cli.plans.ladder import DEFAULT
    from hw4cli.problem.arrays import random_input
    from hw4cli.problem.oracle import exact_attention
    from hw4cli.problem.workload import Workload

    block = random_input(Workload.one_head(2, 130, 32), seed=0)
    return float(np.abs(gpu.attention(block, DEFAULT) - exact_attention(block)).max())  # NaN stays NaN


def _headers(cupy: Any) -> str | None:
    """The folder of CUDA's headers, found as cupy finds it: by cuda-pathfinder (cupy 14 on), else under CUDA's root."""
    try:
        from cuda.pathfinder import find_nvidia_header_directory

        found: str | None = find_nvidia_header_directory("cudart")
    except ImportError:
        root = cupy.cuda.get_cuda_path()
        found = root and f"{root}/include"
    return found


if __name__ == "__main__":
    print(json.dumps(probe()))

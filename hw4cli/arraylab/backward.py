"""hw4's gradients, as an implementation to be measured: the backward pass, or both passes."""

from dataclasses import replace
from typing import Any

import numpy as np

from hw4cli.arraylab.inputs import DeviceArrays, GradientArrays
from hw4cli.arraylab.named import NamedWorkload
from hw4cli.arraylab.ours import Implementation, Work
from hw4cli.arraylab.passes import BACKWARD
from hw4cli.arrays.attention import attention_on_gpu
from hw4cli.arrays.operand import Operand, operand
from hw4cli.arrays.workload import FLOAT32, Workload
from hw4cli.compute.dispatch import AUTO
from hw4cli.device.gpu import Gpu
from hw4cli.device.timing import GpuTimer
from hw4cli.gradients.backward import FLOAT32_FORWARD, backward_on_gpu
from hw4cli.gradients.ongpu import BackwardOnGpu

NAMES = ("q", "k", "v", "o", "do", "dq", "dk", "dv")
OURS = "hw4"  # both passes, each by the kernel that is chosen for it


def gradient_implementation(gpu: Gpu, timer: GpuTimer, work: Workload, direction: str) -> Implementation:
    """The kernels that `attention_backward` chooses for a workload; for both passes behind those of `attention`.

    Raises MachineError where no kernel computes it.
    """
    planned = BackwardOnGpu(gpu).plan(work)

    def prepare(case: NamedWorkload, arrays: DeviceArrays) -> tuple[Work, dict[str, Any]]:
        assert isinstance(arrays, GradientArrays)
        q, k, v, o, do, dq, dk, dv = (_operand(name, arrays, work) for name in NAMES)
        lse = operand("lse", arrays.lse[..., None], "BHND")
        kernel = FLOAT32_FORWARD if work.dtype == FLOAT32 else AUTO

        def forward() -> None:
            attention_on_gpu(work, (q, k, v, o), arrays.lse, case.scale, kernel, None, None)

        def backward() -> Any:
            backward_on_gpu(work, (q, k, v, o, do), lse, (dq, dk, dv), case.scale)
            return arrays.dq, arrays.dk, arrays.dv

        def both() -> Any:
            forward()
            return arrays.o, *backward()

        forward()
        if direction != BACKWARD:
            return both, {}
        found = timer.resources(planned)
        return backward, {key: getattr(found, key) for key in ("registers", "shared_bytes", "occupancy")}

    return Implementation(planned.variant if direction == BACKWARD else OURS, prepare)


def _operand(name: str, arrays: GradientArrays, work: Workload) -> Operand:
    """An array of words as one of the workload's element type."""
    words = getattr(arrays, name)
    return replace(operand(name, words.view(np.float32) if work.dtype == FLOAT32 else words, "BHND"), dtype=work.dtype)

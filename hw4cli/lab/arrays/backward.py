"""hw4's gradients, as an implementation to be measured: the backward pass, or both passes."""

from typing import Any

from hw4cli.arrays.attention import attention_on_gpu
from hw4cli.arrays.gradients.backward import FLOAT32_FORWARD, backward_on_gpu
from hw4cli.arrays.gradients.ongpu import BackwardOnGpu
from hw4cli.arrays.operand import operand
from hw4cli.device.gpu import Gpu
from hw4cli.device.timing import GpuTimer
from hw4cli.lab.arrays.inputs import DeviceArrays, GradientArrays
from hw4cli.lab.arrays.named import NamedWorkload
from hw4cli.lab.arrays.ours import Implementation, Work, operands_of
from hw4cli.lab.arrays.passes import BOTH
from hw4cli.plans import gradients as choice
from hw4cli.plans.dispatch import AUTO
from hw4cli.plans.plan import DeviceProperties, Plan
from hw4cli.problem.workload import FLOAT32, Workload

GRADIENT_KERNELS = tuple(choice.DESIGNS)


def computes_gradients(kernel: str, work: Workload, props: DeviceProperties) -> bool:
    """Whether a kernel of gradients computes a workload on such a GPU."""
    return choice.takes(kernel, work, props)


def gradient_implementation(
    gpu: Gpu, timer: GpuTimer, direction: str, work: Workload, kernel: str | None = None
) -> Implementation:
    """A kernel of gradients, or the one that `attention_backward` chooses for a workload; for both passes behind the
    kernel that `attention` chooses."""
    name = kernel or choice.fastest(work, gpu.props)

    def prepare(case: NamedWorkload, arrays: DeviceArrays) -> tuple[Work, dict[str, Any]]:
        planned = BackwardOnGpu(gpu).plan(work, name)
        assert isinstance(arrays, GradientArrays)
        (q, k, v, o, do), (dq, dk, dv) = operands_of(work, arrays, ("q", "k", "v", "o", "do"), ("dq", "dk", "dv"))
        lse = operand("lse", arrays.lse[..., None], "BHND")
        kernel = FLOAT32_FORWARD if work.dtype == FLOAT32 else AUTO

        def forward() -> None:
            attention_on_gpu(work, (q, k, v, o), arrays.lse, case.scale, kernel, None, None)

        def backward() -> Any:
            backward_on_gpu(work, (q, k, v, o, do), lse, (dq, dk, dv), case.scale, name)
            return arrays.dq, arrays.dk, arrays.dv

        def both() -> Any:
            forward()
            return arrays.o, *backward()

        forward()
        found = timer.resources(planned)
        return both if direction == BOTH else backward, {
            key: getattr(found, key) for key in ("registers", "shared_bytes", "occupancy")
        }

    def planned_for(work: Workload) -> Plan:
        return choice.plan(work, gpu.props, name)

    return Implementation(name, prepare, planned=planned_for, repeats=name in choice.FASTEST_FIRST)

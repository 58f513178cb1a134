"""Gradients of arrays on a GPU: launches on the caller's stream."""

from functools import lru_cache
from typing import Any

from hw4cli.arrays.ongpu import REMEMBERED, encode
from hw4cli.device.gpu import Gpu
from hw4cli.device.launcher import Addresses, Argument, Prepared, Step, prepared
from hw4cli.plans import gradients as choice
from hw4cli.plans.backward import Arrays
from hw4cli.plans.dispatch import AUTO
from hw4cli.plans.launch import Matrix, Steps
from hw4cli.plans.plan import Plan
from hw4cli.problem.workload import Workload


class BackwardOnGpu:
    """The kernels of gradients on one GPU; plans, and launches that are prepared for arrays of a geometry, are kept."""

    def __init__(self, gpu: Gpu) -> None:
        self.gpu = gpu
        self.planned = lru_cache(REMEMBERED)(self.plan)
        self.prepared = lru_cache(REMEMBERED)(self._prepare)

    def plan(self, work: Workload, kernel: str = AUTO) -> Plan:
        """The launches for a workload by the fastest kernel, or the one named, compiled. Raises MachineError where it
        does not run."""
        planned = choice.plan(work, self.gpu.props, kernel)
        self.gpu.functions(planned)
        return planned

    def launch(self, work: Workload, arrays: Arrays, stream: Any, kernel: str = AUTO) -> None:
        """Enqueue a plan's launches on a stream of cupy's, on the current device; does not wait."""
        steps = tuple(m.steps for m in arrays.matrices)
        launches = self.prepared(work, steps, kernel, arrays.whole)
        launches.enqueue((*(m.data for m in arrays.matrices), arrays.lse, arrays.scratch), stream.ptr)

    def _prepare(self, work: Workload, steps: tuple[Steps, ...], kernel: str = AUTO, whole: bool = True) -> Prepared:
        """The launches for q, k, v, o, do, dq, dk and dv of these strides: their addresses, the LSE's and that of
        scratch are asked for. Compiles the kernels, on the current device."""
        planned = self.planned(work, kernel)

        def make(addresses: Addresses) -> bytes:
            matrices = tuple(Matrix(at, *step) for at, step in zip(addresses, steps, strict=False))
            lse, scratch = addresses[8:]
            return choice.arguments(planned, work, Arrays(matrices, lse, scratch, whole), encode)

        step = Step(Argument(make, 10), self.gpu.functions(planned), planned.launches)
        return prepared(self.gpu, (step,), planned.scratch)

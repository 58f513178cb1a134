"""Gradients of arrays on a GPU: launches on the caller's stream."""

from dataclasses import replace
from functools import lru_cache
from typing import Any

import numpy as np

from hw4cli.arrays.ongpu import encode
from hw4cli.device.gpu import Gpu
from hw4cli.plans import gradients as choice
from hw4cli.plans.backward import Arrays
from hw4cli.plans.dispatch import AUTO
from hw4cli.plans.plan import Plan
from hw4cli.problem.workload import Workload

REMEMBERED = 256  # plans, and launches whose arguments are kept


class BackwardOnGpu:
    """The kernels of gradients on one GPU; launches that are repeated cost a look-up."""

    def __init__(self, gpu: Gpu) -> None:
        self.gpu = gpu
        self.planned = lru_cache(REMEMBERED)(self.plan)
        self._prepared = lru_cache(REMEMBERED)(self._prepare)

    def plan(self, work: Workload, kernel: str = AUTO) -> Plan:
        """The launches for a workload by the fastest kernel, or the one named, compiled. Raises MachineError where it
        does not run."""
        planned = choice.plan(work, self.gpu.props, kernel)
        self.gpu.functions(planned)
        return planned

    def launch(self, work: Workload, arrays: Arrays, scale: float, stream: Any, kernel: str = AUTO) -> None:
        """Enqueue a plan's launches on a stream of cupy's, on the current device; does not wait."""
        params, launches = self._prepared(work, arrays, scale, kernel)
        with stream:
            for function, step in launches:
                function((step.grid,), (step.block,), params, shared_mem=step.shared)

    def _prepare(self, work: Workload, arrays: Arrays, scale: float, kernel: str) -> tuple[Any, ...]:
        planned = self.planned(work, kernel)
        passed = choice.arguments(planned, replace(work, scale=scale), arrays, encode)
        params = np.frombuffer(passed, f"V{len(passed)}")  # cupy passes an array of one element by value
        return (params,), tuple(zip(self.gpu.functions(planned), planned.launches, strict=True))

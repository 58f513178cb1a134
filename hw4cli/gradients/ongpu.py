"""Gradients of arrays on a GPU: launches on the caller's stream."""

from functools import lru_cache
from typing import Any

import numpy as np

from hw4cli.arrays.workload import Workload
from hw4cli.compute.plan import Plan
from hw4cli.device.gpu import Gpu
from hw4cli.gradients.plan import Arrays, Tile, arguments, plan

REMEMBERED = 256  # plans that are kept


class BackwardOnGpu:
    """kernels/backward.cu on one GPU."""

    def __init__(self, gpu: Gpu) -> None:
        self.gpu = gpu
        self._planned = lru_cache(REMEMBERED)(self.plan)

    def plan(self, work: Workload, tile: Tile | None = None) -> Plan:
        """The launches for a workload, compiled. Raises MachineError where no tile fits."""
        planned = plan(work, self.gpu.props, tile)
        self.gpu.functions(planned)
        return planned

    def launch(self, work: Workload, arrays: Arrays, scale: float, stream: Any, tile: Tile | None = None) -> None:
        """Enqueue the launches on a stream of cupy's, on the current device; does not wait."""
        planned = self._planned(work, tile)
        passed = arguments(work, arrays, scale)
        params = np.frombuffer(passed, f"V{len(passed)}")  # cupy passes an array of one element by value
        with stream:
            for function, step in zip(self.gpu.functions(planned), planned.launches, strict=True):
                function((step.grid,), (step.block,), (params,), shared_mem=step.shared)

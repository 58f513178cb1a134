"""The device `emulate`: the GPU's kernels themselves, executed on the CPU, for small files."""

import threading
from concurrent.futures import CancelledError

import numpy as np

from hw4cli.device.ownkernel import kernel_named
from hw4cli.emulator.build import PLAIN, check_kernels, shared_object
from hw4cli.emulator.library import Library
from hw4cli.errors import InputError
from hw4cli.plans.dispatch import Choice, candidates
from hw4cli.plans.ladder import VARIANTS
from hw4cli.plans.plan import DEVICES, ONE_CORE, Plan
from hw4cli.problem.casefile import FLOAT32, Floats
from hw4cli.problem.workload import Workload
from hw4cli.resources import is_own_kernel, kernel_path
from hw4cli.stream.cpudevice import CpuDevice
from hw4cli.stream.layout import Layout
from hw4cli.stream.timeline import Timeline
from hw4cli.text.progress import Advance

EMULATED = DEVICES[80]  # the GPU that is emulated
LONGEST = 600.0  # seconds of work that are begun


class EmulatedDevice(CpuDevice):
    """A GPU of compute capability 8.0 that has one core of this machine's CPU.

    Raises InputError if the shape would take too long, MachineError if there is no C++ compiler.
    """

    def __init__(
        self, kernel: str, max_error: float | None, shape: Workload, layout: Layout, timeline: Timeline
    ) -> None:
        kernels, why = candidates(kernel, EMULATED, "", shape.d, shape.N, shape.causal)
        super().__init__(Choice(kernels, why, shape.d, shape.N, EMULATED, max_error), shape, layout, timeline)
        self._libraries: dict[str, tuple[Plan, Library]] = {}
        self._one_at_a_time = threading.Lock()
        first = self.choice.first
        check_size(shape, first)
        with timeline("compile"):
            self._library(first)

    def attention(self, block: Floats, kernel: str, advance: Advance) -> Floats:
        """O of a block (n, 3, N, d), batch by batch. Raises CancelledError after `cancel`."""
        o = np.empty((len(block), *block.shape[2:]), FLOAT32)
        with self._one_at_a_time:
            plan, library = self._library(kernel)
            for batch in range(len(block)):
                o[batch] = library.run(plan, block[batch : batch + 1], watched=False).o[0]
                if self.cancelled.is_set():
                    raise CancelledError
                advance(block.shape[2])
        return o

    def cancel(self) -> None:
        """End the computation that is under way before its next block."""
        super().cancel()
        for _, library in list(self._libraries.values()):
            library.stop()

    def _library(self, kernel: str) -> tuple[Plan, Library]:
        """A kernel's plan for one batch, and its shared object, compiled on first use."""
        if kernel not in self._libraries:
            plan = kernel_named(kernel).plan(self._shape.with_batches(1), EMULATED)
            path = shared_object(kernel_path(plan.source), plan.defines, EMULATED.cc, 32, PLAIN)
            if is_own_kernel(kernel):
                check_kernels(kernel, kernel_path(kernel), path, [launch.symbol for launch in plan.launches])
            library = Library(path)
            library.add_as(EMULATED.cc)
            self._libraries[kernel] = plan, library
        return self._libraries[kernel]


def check_size(shape: Workload, kernel: str) -> None:
    """Raise InputError, with an estimate, if a shape is too large to be emulated."""
    seconds = shape.flops / (VARIANTS[kernel].emulated if kernel in VARIANTS else ONE_CORE)
    if seconds > LONGEST:
        long = f"{seconds / 3600:,.0f} hours" if seconds > 2 * 3600 else f"{seconds / 60:.0f} minutes"
        raise InputError(
            f"--device emulate would take about {long} for (B, N, d) = {shape} with kernel {kernel}: it is for "
            f"{LONGEST / 60:.0f} minutes of work at most (--device cpu is much faster)"
        )

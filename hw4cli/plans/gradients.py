"""Which kernel computes the gradients of a workload on a GPU: the fastest that runs there."""

from collections.abc import Callable
from typing import Any, Protocol

from hw4cli.plans import backward as cores
from hw4cli.plans import backwardmma as mma
from hw4cli.plans import backwardwgmma as hopper
from hw4cli.plans.backward import Arrays
from hw4cli.plans.backwardonce import ATOMIC, ONCE
from hw4cli.plans.dispatch import AUTO
from hw4cli.plans.half import Box
from hw4cli.plans.plan import DeviceProperties, Plan
from hw4cli.problem.workload import Workload


class Kernel(Protocol):
    """A module of this package: a kernel's file, where it runs, its launches."""

    def takes(self, work: Workload, props: DeviceProperties) -> bool:
        """Whether the kernel computes the workload on such a GPU."""

    def plan(self, work: Workload, props: DeviceProperties, tile: Any = None) -> Plan:
        """The launches, by the kernel's best tile or another one. Raises MachineError where it does not run."""


class Design(Kernel, Protocol):
    """One whose threads load what they need."""

    def arguments(self, work: Workload, arrays: Arrays, scale: float) -> bytes:
        """The one argument of each launch."""


class Copying(Kernel, Protocol):
    """One for which the copy engine brings tiles, and whose blocks take task after task."""

    def arguments(
        self, work: Workload, arrays: Arrays, scale: float, planned: Plan, encode: Callable[[Box], bytes]
    ) -> bytes:
        """The one argument of each launch; `encode` makes tensor maps."""


COPYING: dict[str, Copying] = {ONCE.name: ONCE, hopper.NAME: hopper, ATOMIC.name: ATOMIC}
LOADING: dict[str, Design] = {mma.NAME: mma, cores.NAME: cores}
# From the fastest on; the last one runs everywhere. What has other bits in each run is not among them.
FASTEST_FIRST = (ONCE.name, hopper.NAME, mma.NAME, cores.NAME)
DESIGNS: dict[str, Kernel] = {name: {**COPYING, **LOADING}[name] for name in (*FASTEST_FIRST, ATOMIC.name)}


def fastest(work: Workload, props: DeviceProperties) -> str:
    """The name of the fastest kernel for a workload that gives the same bits in every run."""
    return next(name for name in FASTEST_FIRST if takes(name, work, props))


def takes(kernel: str, work: Workload, props: DeviceProperties) -> bool:
    """Whether a kernel computes a workload, in rows that kernels can load, on such a GPU."""
    return DESIGNS[kernel].takes(work.stored, props)


def plan(work: Workload, props: DeviceProperties, kernel: str = AUTO, tile: Any = None) -> Plan:
    """The launches for a workload, in rows that kernels can load: of the kernel named or else the fastest, with another
    tile of its if one is given.

    Raises MachineError where it does not run.
    """
    named = fastest(work, props) if kernel == AUTO else kernel
    return DESIGNS[named].plan(work.stored, props, tile)


def arguments(planned: Plan, work: Workload, arrays: Arrays, scale: float, encode: Callable[[Box], bytes]) -> bytes:
    """The one argument of each of a plan's launches. `encode` makes a tensor map's 128 bytes."""
    work = work.stored
    if planned.variant in COPYING:
        return COPYING[planned.variant].arguments(work, arrays, scale, planned, encode)
    return LOADING[planned.variant].arguments(work, arrays, scale)

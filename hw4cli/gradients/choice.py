"""Which kernel computes the gradients of a workload on a GPU: the fastest that runs there."""

from collections.abc import Callable
from typing import Any, Protocol

from hw4cli.arrays.half import Box
from hw4cli.arrays.workload import Workload
from hw4cli.compute.dispatch import AUTO
from hw4cli.compute.plan import DeviceProperties, Plan
from hw4cli.gradients import hopper, mma, once
from hw4cli.gradients import plan as cores
from hw4cli.gradients.plan import Arrays


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


COPYING: dict[str, Copying] = {once.NAME: once, hopper.NAME: hopper}
LOADING: dict[str, Design] = {mma.NAME: mma, cores.NAME: cores}
DESIGNS: dict[str, Kernel] = {**COPYING, **LOADING}  # from the fastest on; the last one runs everywhere


def plan(work: Workload, props: DeviceProperties, kernel: str = AUTO, tile: Any = None) -> Plan:
    """The launches for a workload, of the kernel named or else the fastest, with another tile of its if one is given.

    Raises MachineError where it does not run.
    """
    named = kernel
    if kernel == AUTO:
        named = next(name for name, design in DESIGNS.items() if design.takes(work, props))
    return DESIGNS[named].plan(work, props, tile)


def arguments(planned: Plan, work: Workload, arrays: Arrays, scale: float, encode: Callable[[Box], bytes]) -> bytes:
    """The one argument of each of a plan's launches. `encode` makes a tensor map's 128 bytes."""
    if planned.variant in COPYING:
        return COPYING[planned.variant].arguments(work, arrays, scale, planned, encode)
    return LOADING[planned.variant].arguments(work, arrays, scale)

"""Which kernel computes the gradients of a workload on a GPU: the fastest that runs there."""

from typing import Any, Protocol

from hw4cli.arrays.workload import Workload
from hw4cli.compute.plan import DeviceProperties, Plan
from hw4cli.gradients import mma
from hw4cli.gradients import plan as cores
from hw4cli.gradients.plan import Arrays


class Design(Protocol):
    """A module of this package: a kernel's file, where it runs, its launches, and what they are passed."""

    def takes(self, work: Workload, props: DeviceProperties) -> bool:
        """Whether the kernel computes the workload on such a GPU."""

    def plan(self, work: Workload, props: DeviceProperties, tile: Any = None) -> Plan:
        """The launches, by the kernel's best tile or another one. Raises MachineError where it does not run."""

    def arguments(self, work: Workload, arrays: Arrays, scale: float) -> bytes:
        """The one argument of each launch."""


# From the fastest on; the last one runs everywhere.
DESIGNS: dict[str, Design] = {mma.NAME: mma, cores.NAME: cores}


def plan(work: Workload, props: DeviceProperties, kernel: str | None = None, tile: Any = None) -> Plan:
    """The launches for a workload, of the kernel named or else the fastest, with another tile of its if one is given.

    Raises MachineError where it does not run.
    """
    named = kernel or next(name for name, design in DESIGNS.items() if design.takes(work, props))
    return DESIGNS[named].plan(work, props, tile)


def arguments(planned: Plan, work: Workload, arrays: Arrays, scale: float) -> bytes:
    """The one argument of each of a plan's launches."""
    return DESIGNS[planned.variant].arguments(work, arrays, scale)

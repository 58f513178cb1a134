"""The kernels for 16-bit numbers: which one answers where, their plans and arguments under one form."""

from collections.abc import Callable
from typing import Any

from hw4cli.arrays import half, halfmma
from hw4cli.arrays.half import Arrays, Box
from hw4cli.arrays.workload import Workload
from hw4cli.compute.dispatch import AUTO
from hw4cli.compute.plan import DeviceProperties, Plan
from hw4cli.errors import MachineError

KERNELS16 = (half.NAME, halfmma.NAME)


def kernel16(work: Workload, props: DeviceProperties, name: str = AUTO) -> str:
    """The kernel that is named, or else the fastest that runs. Raises MachineError if none does."""
    if name != AUTO:
        return name
    if props.warpgroups:
        return half.NAME
    if halfmma.runs(work, props):
        return halfmma.NAME
    raise MachineError(
        f"attention of {work.dtype} needs compute capability {halfmma.least(work) / 10} so far; "
        f"this GPU has {props.cc / 10}: convert the arrays to float32"
    )


def plan16(work: Workload, props: DeviceProperties, name: str = AUTO, tiling: Any = None) -> Plan:
    """The launch for a workload, with a tiling of the kernel's own if one is given.

    Raises MachineError where the kernel does not run.
    """
    kernel = kernel16(work, props, name)
    return half.plan(work, props, tiling) if kernel == half.NAME else halfmma.plan(work, props, tiling)


def arguments16(work: Workload, planned: Plan, arrays: Arrays, scale: float, encode: Callable[[Box], bytes]) -> bytes:
    """The launch's one argument. `encode` makes a tensor map's 128 bytes."""
    if planned.variant == half.NAME:
        return half.arguments(work, planned, arrays, scale, encode)
    return halfmma.arguments(work, planned, arrays, scale)

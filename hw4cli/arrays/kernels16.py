"""The kernels for 16-bit numbers: which one answers where, their plans and arguments under one form."""

from collections.abc import Callable
from typing import Any

from hw4cli.arrays import half, halfmma, halfsplit
from hw4cli.arrays.half import Arrays, Box
from hw4cli.arrays.workload import Workload
from hw4cli.compute.dispatch import AUTO
from hw4cli.compute.plan import DeviceProperties, Plan
from hw4cli.errors import MachineError

KERNELS16 = (half.NAME, halfmma.NAME, halfsplit.NAME)
ROWS = 128  # of a tile, about, where the keys are not split
FEW_ROWS, MANY_KEYS = 64, 1024


def splits_keys(work: Workload, props: DeviceProperties) -> bool:
    """Whether splitting the keys is worth it: few rows share much, or few multiprocessors would have a tile of rows."""
    few_tiles = 4 * work.row_tiles(ROWS) <= props.sms
    return halfsplit.packed_rows(work) <= FEW_ROWS or (few_tiles and work.Nk >= MANY_KEYS)


def kernel16(work: Workload, props: DeviceProperties, name: str = AUTO) -> str:
    """The kernel that is named, or else the fastest that runs. Raises MachineError if none does."""
    if name != AUTO:
        return name
    if not halfmma.runs(work, props):
        raise MachineError(
            f"attention of {work.dtype} needs compute capability {halfmma.least(work) / 10} so far; "
            f"this GPU has {props.cc / 10}: convert the arrays to float32"
        )
    if splits_keys(work, props):
        return halfsplit.NAME
    return half.NAME if props.warpgroups else halfmma.NAME


def plan16(work: Workload, props: DeviceProperties, name: str = AUTO, tiling: Any = None) -> Plan:
    """The launches for a workload, with a tiling of the kernel's own if one is given.

    Raises MachineError where the kernel does not run.
    """
    plans: dict[str, Callable[..., Plan]] = {
        half.NAME: half.plan,
        halfmma.NAME: halfmma.plan,
        halfsplit.NAME: halfsplit.plan,
    }
    return plans[kernel16(work, props, name)](work, props, tiling)


def arguments16(work: Workload, planned: Plan, arrays: Arrays, scale: float, encode: Callable[[Box], bytes]) -> bytes:
    """The launches' one argument. `encode` makes a tensor map's 128 bytes."""
    if planned.variant == halfmma.NAME:
        return halfmma.arguments(work, planned, arrays, scale)
    if planned.variant == halfsplit.NAME:
        return halfsplit.arguments(work, planned, arrays, scale)
    return half.arguments(work, planned, arrays, scale, encode)

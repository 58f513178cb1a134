"""When one block copies, multiplies and takes exponentials: the stamps of kernels/stamps.cuh, as a record."""

from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hw4cli import __version__
from hw4cli.device.gpu import Gpu
from hw4cli.device.timing import GpuTimer
from hw4cli.errors import InputError
from hw4cli.lab.cases import ArrayCase
from hw4cli.lab.kernels import ArrayKernel
from hw4cli.lab.record import provenance
from hw4cli.lab.tables import SCHEMA, TIMELINE
from hw4cli.plans.kernels16 import plan16
from hw4cli.plans.plan import Plan
from hw4cli.plans.registry import KERNELS
from hw4cli.problem.arrays import random_input
from hw4cli.problem.workload import Workload
from hw4cli.system.machine import machine

ACTIVITIES = ("copy", "copy of V", "S = Q Kᵀ", "exponentials", "O += P V")  # in the order of stamps.cuh
TILES = 24  # from the first on
SYMBOL = "stamps"  # of the array, and of the header


def stamped(plan: Plan, block: int) -> Plan:
    """The plan, compiled so that the warps of one block of its main launch leave stamps.

    Raises InputError if the kernel leaves none, or there is no such block.
    """
    blocks = plan.launches[plan.main].grid
    if not leaves_stamps(plan):
        raise InputError(
            f"kernel {plan.variant} leaves no stamps here: flash does, split where warpgroups multiply "
            "(compute capability 9.0, d from 8 to 64, more than 512 keys), and half with more than 128 keys"
        )
    if not 0 <= block < blocks:
        raise InputError(f"there is no block {block}: this launch has {blocks:,}, the first is 0")
    return replace(plan, macros={**plan.macros, "STAMPS": TILES, "STAMPED": block})


def leaves_stamps(plan: Plan) -> bool:
    """Whether the code of a plan says what it does when: its copies run beside its work, and each is a statement."""
    entry = KERNELS.get(plan.variant)
    warpgroups = plan.macros.get("WARPGROUPS") and not plan.macros.get("INBLOCK")
    return entry is not None and entry.stamps and bool(warpgroups or not getattr(entry, "pieces", None))


def stamps_shape(plan: Plan) -> tuple[int, ...]:
    """Warps, tiles, activities, begin and end."""
    return plan.macros["THREADS"] // 32, TILES, len(ACTIVITIES), 2


def spans(stamps: NDArray[np.int64]) -> list[list[int]]:
    """[warp, tile, activity, begin, end] of all that was begun and ended, in clocks from the first stamp on."""
    if not stamps.any():
        return []
    first = int(stamps[stamps > 0].min())
    found = []
    for warp, tile, activity in np.ndindex(*stamps.shape[:3]):
        begin, end = (int(clock) for clock in stamps[warp, tile, activity])
        if 0 < begin < end:
            found.append([warp, tile, activity, begin - first, end - first])
    return found


def row(plan: Plan, shape: Workload, block: int, stamps: NDArray[np.int64], case: str = "") -> dict[str, Any]:
    """A record's row. A tile of stamps is so many keys: those that are weighed together. Of arrays, `case` is the
    workload's name, and heads count as batches."""
    macros, B = plan.macros, shape.batch * shape.heads
    return {
        "kernel": plan.variant,
        "case": case or f"{B}x{shape.Nk}x{shape.d}",
        "shape": [B, shape.Nk, shape.d],
        "status": "ok",
        "reason": "",
        "block": block,
        "keys": macros.get("SUB", macros["BC"]) if macros.get("WARPGROUPS") else macros["BC"],
        "spans": spans(stamps),
    }


def measure(gpu: Gpu, kernel: str, shape: Workload, block: int) -> dict[str, Any]:
    """Launch a kernel twice, and read the stamps of the second time.

    Raises InputError as `stamped` does, and MachineError.
    """
    plan = stamped(gpu.plan(kernel, shape), block)
    with gpu.translated_errors(plan, shape):
        inputs, outputs = gpu.upload(random_input(shape, seed=1)), gpu.empty((shape.B, shape.N, shape.d))
        for _ in range(2):
            gpu.compute(plan, inputs, outputs)
        gpu.wait()
        return row(plan, shape, block, gpu.read(plan, SYMBOL, stamps_shape(plan)))


def measure_arrays(timer: GpuTimer, kernel: str, case: ArrayCase, block: int) -> dict[str, Any]:
    """The same of a kernel of 16 bits on a workload's arrays."""

    def planner(*asked: Any) -> Plan:
        return stamped(plan16(*asked), block)

    contender = ArrayKernel(timer, kernel, case, planner=planner)
    plan = contender.planned()
    with case.guarded(timer.gpu):
        contender.prepare(case.opened(timer.gpu))
        for _ in range(2):
            contender.run()
    return row(plan, case.work, block, timer.gpu.read(plan, SYMBOL, stamps_shape(plan)), case.name)


def record(timer: GpuTimer, rows: list[dict[str, Any]]) -> dict[str, Any]:
    """The record: machine, software, commit, date, method, rows."""
    return {
        "schema": SCHEMA,
        "kind": TIMELINE,
        **provenance(),
        "hw4": __version__,
        "machine": machine(timer.machine()),
        "clocks": timer.clocks(),
        "activities": ACTIVITIES,
        "method": {"timer": "clock64 of one multiprocessor, first lanes of warps", "cache": "the second launch of two"},
        "rows": rows,
    }

"""The kernels for 16-bit numbers on a GPU: tensor maps by the driver, and launches on the caller's stream."""

import ctypes
from collections.abc import Callable, Hashable
from functools import lru_cache
from typing import Any

from hw4cli.device.driver import driver
from hw4cli.device.gpu import Gpu
from hw4cli.device.launcher import Addresses, Argument, Make, Places, Prepared, Step, prepared
from hw4cli.device.tuning.store import Tilings, machine_of
from hw4cli.errors import MachineError
from hw4cli.plans.dispatch import AUTO
from hw4cli.plans.half import MAP_BYTES, Arrays
from hw4cli.plans.kernels16 import ENTRIES16, arguments16, kernel16, key_step, plan16
from hw4cli.plans.launch import Box, Matrix, Steps
from hw4cli.plans.plan import DeviceProperties, Plan
from hw4cli.problem.workload import Workload

# CUtensorMapDataType, CUtensorMapSwizzle (128 bytes), CUtensorMapL2promotion (256 bytes) of the driver's API.
FLOAT16_TENSOR, BFLOAT16_TENSOR, SWIZZLE_128, PROMOTE_256 = 6, 9, 3, 3
REMEMBERED = 256  # plans, and calls whose launches are prepared


def encode(box: Box) -> bytes:
    """A tensor map; the driver writes it to an address that is a multiple of 64."""
    buffer = (ctypes.c_char * (MAP_BYTES + 64))()
    at = -(-ctypes.addressof(buffer) // 64) * 64
    sizes, strides = (ctypes.c_uint64 * 4)(*box.sizes), (ctypes.c_uint64 * 3)(*box.strides)
    shape, steps = (ctypes.c_uint32 * 4)(*box.box), (ctypes.c_uint32 * 4)(1, 1, 1, 1)
    element = BFLOAT16_TENSOR if box.bfloat else FLOAT16_TENSOR
    status = driver().cuTensorMapEncodeTiled(
        *(ctypes.c_void_p(at), element, 4, ctypes.c_void_p(box.address), sizes, strides, shape, steps),
        *(0, SWIZZLE_128 if box.swizzled else 0, PROMOTE_256, 0),
    )
    if status:
        raise MachineError(
            f"the driver refuses a tensor map (error {status}) of sizes {box.sizes}, strides {box.strides}"
        )
    return ctypes.string_at(at, MAP_BYTES)


def tuned(gpu: Gpu) -> Callable[..., Plan]:
    """What plans as `plan16` does, but where neither kernel nor tiling is named takes the tiling that `hw4 tune` kept
    for the workload on this GPU, if it did and it is one of the kernel's space."""
    tilings = Tilings(machine_of(gpu))

    def planner(work: Workload, props: DeviceProperties, kernel: str = AUTO, tiling: Any = None) -> Plan:
        if kernel == AUTO and tiling is None:
            name = kernel16(work, props)
            entry = ENTRIES16[name]
            kept = tilings.of(work, name, entry.tile(work, props)) if entry.tile else None
            if kept in entry.space:
                plan = plan16(work, props, name, kept)
                if max(launch.shared for launch in plan.launches) <= props.shared_limit:
                    return plan
            return plan16(work, props, name)
        return plan16(work, props, kernel, tiling)

    return planner


class HalfOnGpu:
    """The kernels on one GPU; plans, and launches that are prepared for arrays of a geometry, are kept."""

    def __init__(self, gpu: Gpu, planner: Callable[..., Plan] = plan16) -> None:
        self.gpu = gpu
        self.prepared = lru_cache(REMEMBERED)(self._prepare)
        self._planned = lru_cache(REMEMBERED)(planner)
        self._compiled = Compiled(gpu)

    def planned(self, work: Workload, kernel: str = AUTO, tiling: Any = None) -> Plan:
        """The launch for a workload, not yet compiled. Raises MachineError where the kernel does not run."""
        return self._planned(work, self.gpu.props, kernel, tiling)

    def plan(self, work: Workload, tiling: Any = None, kernel: str = AUTO) -> Plan:
        """The same, compiled."""
        planned = self.planned(work, kernel, tiling)
        self.gpu.functions(planned)
        return planned

    def launch(self, work: Workload, arrays: Arrays, stream: Any, tiling: Any = None, kernel: str = AUTO) -> None:
        """Enqueue the kernel on a stream of cupy's, on the current device; does not wait."""
        matrices = arrays[:4]
        launches = self.prepared(work, tuple(m.steps for m in matrices), kernel, tiling)
        launches.enqueue((*(m.data for m in matrices), *arrays.views, arrays.lse, arrays.scratch), stream.ptr)

    def _prepare(self, work: Workload, steps: tuple[Steps, ...], kernel: str = AUTO, tiling: Any = None) -> Prepared:
        """The launches for q, k, v and o of these strides: their addresses, those of the arrays that a score names, the
        LSE's and that of scratch are asked for. Compiles the kernel, on the current device."""
        planned = self.planned(work, kernel, tiling)
        step = self._compiled.step(planned, _argument(work, planned, steps), _count(work))
        return prepared(self.gpu, (step,), planned.scratch)

    def of_other_keys(self, work: Workload, kernel: str) -> Callable[[Workload, tuple[Steps, ...]], Prepared]:
        """What prepares launches as `prepared` does, for workloads that differ from this one, which has one length and
        no score, in the number of keys and what a mask makes of it, as steps of decoding do. Numbers of keys that are
        planned alike share a plan, its compiled functions, and the launches but for their argument."""
        known: dict[Hashable, tuple[Plan, Prepared, Argument]] = {}
        together = key_step(work, self.gpu.props, kernel)

        def of(found: Workload, steps: tuple[Steps, ...]) -> Prepared:
            if not together:
                return self._prepare(found, steps, kernel)
            alike = -(-found.Nk // together), found.causal, found.window
            if (like := known.get(alike)) is not None:
                planned, launches, argument = like
                return launches.of(argument.like(_argument(found, planned, steps)))
            planned = self.planned(found, kernel)
            step = self._compiled.step(planned, _argument(found, planned, steps), _count(found))
            launches = prepared(self.gpu, (step,), planned.scratch)
            if launches.is_filled:
                if len(known) >= REMEMBERED:
                    known.clear()
                known[alike] = planned, launches, step.argument
            return launches

        return of


def _argument(work: Workload, planned: Plan, steps: tuple[Steps, ...]) -> Make:
    """What makes the launches' one argument, for the addresses of q, k, v and o of these strides, those of the arrays
    that a score names, the LSE's and that of scratch."""

    def make(addresses: Addresses) -> bytes:
        q, k, v, o = [Matrix(at, *step) for at, step in zip(addresses, steps, strict=False)]
        *views, lse, scratch = addresses[4:]
        return arguments16(work, planned, Arrays(q, k, v, o, lse, scratch, tuple(views)), encode)

    return make


def _count(work: Workload) -> int:
    """How many addresses are asked for."""
    return 6 + (len(work.score.arrays) if work.score else 0)


class Compiled:
    """The launches of plans on one GPU. Plans that differ in sizes alone share compiled functions, and addresses stand
    at the same places of what these are passed: both are kept, as they take longer to find than all else."""

    def __init__(self, gpu: Gpu) -> None:
        self._gpu = gpu
        self._forms: dict[Hashable, tuple[Any, Places | None]] = {}

    def step(self, planned: Plan, make: Make, count: int) -> Step:
        """A plan's launches for so many addresses, of which `make` makes the argument. Compiles them, on the current
        device."""
        symbols = tuple([(launch.symbol, launch.shared) for launch in planned.launches])
        form = planned.variant, tuple(planned.macros.items()), planned.score, symbols, count
        functions, places = self._forms.get(form) or (self._gpu.functions(planned), None)
        argument = Argument(make, count, places)
        if len(self._forms) >= REMEMBERED:
            self._forms = {}
        self._forms[form] = functions, argument.places
        return Step(argument, functions, planned.launches, 0, planned.table, planned.layout.sequences)

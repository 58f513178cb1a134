"""The kernels for 16-bit numbers on a GPU: tensor maps by the driver, and launches on the caller's stream."""

import ctypes
import struct
from collections.abc import Callable, Hashable
from dataclasses import replace
from functools import lru_cache
from typing import Any, NamedTuple

from hw4cli.device.driver import driver
from hw4cli.device.gpu import Gpu
from hw4cli.device.launcher import Addresses, Argument, Make, Places, Prepared, Step, prepared
from hw4cli.device.tuning.store import Tilings, machine_of
from hw4cli.errors import MachineError
from hw4cli.plans.dispatch import AUTO
from hw4cli.plans.half import MAP_BYTES, Arrays
from hw4cli.plans.kernels16 import ENTRIES16, are_many, arguments16, kernel16, key_step, length_step, plan16, table16
from hw4cli.plans.launch import Box, Matrix, Steps
from hw4cli.plans.plan import DeviceProperties, Plan
from hw4cli.problem.workload import Span, Workload

# CUtensorMapDataType, CUtensorMapSwizzle (128 bytes), CUtensorMapL2promotion (256 bytes) of the driver's API.
FLOAT16_TENSOR, BFLOAT16_TENSOR, SWIZZLE_128, PROMOTE_256 = 6, 9, 3, 3
WORD, SIZES, MASK = struct.Struct("<Q"), struct.Struct("<2i"), (1 << 64) - 1
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

    def prepared_for_sizes(self, work: Workload, planned: Plan, of_q: Steps, of_o: Steps) -> Prepared:
        """The launches for all numbers of keys that are planned as this one is, and for K and V of any strides: behind
        the address of O they ask for these strides, and for a word of the number of keys and, in its upper half, the
        mask's offset. Kernels that plan so have both in one word."""

        def make(numbers: Addresses) -> bytes:
            q, k, v, o, *steps, sizes, lse, scratch = numbers
            keys, offset = SIZES.unpack(WORD.pack(sizes))
            of = Matrix(q, *of_q), Matrix(k, *steps[:3]), Matrix(v, *steps[3:]), Matrix(o, *of_o)
            found = replace(work, Nk=keys, offset=offset)
            return arguments16(found, planned, Arrays(*of, lse, scratch), encode)

        return prepared(self.gpu, (self._compiled.step(planned, make, 6 + 7),), planned.scratch)

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


class Keys(NamedTuple):
    """What calls may differ in that meet the same Q: how many keys, how these and the values lie, the mask, and the
    sequences, where these are of several lengths."""

    number: int
    of_k: Steps
    of_v: Steps
    causal: bool
    offset: int
    window: int
    sequences: tuple[Span, ...] = ()


class Other(NamedTuple):
    """Launches for other keys, their plan, and whether they ask for strides and sizes, as for addresses."""

    launches: Prepared
    planned: Plan
    asks: bool


class OtherKeys:
    """Launches for workloads that differ from one in their keys, as steps of decoding do. Numbers of keys that are
    known to be planned alike, as they are without a score, share the launches: these ask for strides and sizes. So do
    lengths of sequences of few rows, which stand in a table; where their keys are not split, for the same arrays alone:
    launches have tensor maps of these."""

    def __init__(self, kernels: HalfOnGpu, work: Workload, of_q: Steps, of_o: Steps, kernel: str) -> None:
        self._kernels, self._work, self._of_q, self._of_o, self._kernel = kernels, work, of_q, of_o, kernel
        props = kernels.gpu.props
        self._together = length_step(work, props) if work.sequences else key_step(work, props, kernel)
        self._known: dict[Hashable, Other] = {}

    def known(self, asked: Keys) -> tuple[Prepared, Addresses, bytes] | None:
        """The launches, what they ask for behind the address of O, and their table; None if they are yet to be
        prepared."""
        alike = self._alike(asked)
        other = self._known.get(alike)
        if other is None and asked.sequences:
            other = self._known.get((alike, asked[:-1]))
        return None if other is None else self._filled(other, asked)

    def prepare(self, asked: Keys) -> tuple[Prepared, Addresses, bytes]:
        """The same; compiles the kernel, on the current device. Raises MachineError where it does not run."""
        keys, of_k, of_v, causal, offset, window, sequences = asked
        work = replace(self._work, Nk=keys, offset=offset, causal=causal, window=window, sequences=sequences)
        planned, alike = self._kernels.planned(work, self._kernel), self._alike(asked)
        asks = self._together > 0 and ENTRIES16[planned.variant].key_step is not None
        if asks:
            launches = self._kernels.prepared_for_sizes(work, planned, self._of_q, self._of_o)
        else:
            launches = self._kernels.prepared(work, (self._of_q, of_k, of_v, self._of_o), self._kernel)
        if len(self._known) >= REMEMBERED:
            self._known = {}
        self._known[(alike, asked[:-1]) if sequences and not asks else alike] = other = Other(launches, planned, asks)
        return self._filled(other, asked)

    def _alike(self, asked: Keys) -> Hashable:
        """Equal for what has the same launches, if these ask for sizes."""
        keys, _, _, causal, _, window, sequences = asked
        if not self._together:
            return asked
        if not sequences:
            return -(-keys // self._together), causal, window
        most = max([span.keys for span in sequences])
        return -(-most // self._together), causal, window, are_many(most), *[span.rows for span in sequences]

    def _filled(self, other: Other, asked: Keys) -> tuple[Prepared, Addresses, bytes]:
        launches, planned, asks = other
        keys, of_k, of_v, _, offset, _, sequences = asked
        table = table16(sequences, self._work, planned) if sequences else b""
        return launches, (*of_k, *of_v, keys + (offset << 32) & MASK) if asks else (), table


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

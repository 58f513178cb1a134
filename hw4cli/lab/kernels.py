"""hw4's kernels as contenders: of files, of arrays, of gradients."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np

from hw4cli.arrays.attention import attention_on_gpu
from hw4cli.arrays.float32 import Float32OnGpu
from hw4cli.arrays.gradients.backward import FLOAT32_FORWARD, backward_on_gpu
from hw4cli.arrays.gradients.ongpu import BackwardOnGpu
from hw4cli.arrays.ongpu import HalfOnGpu
from hw4cli.arrays.operand import Operand, operand
from hw4cli.arrays.staged import Staged
from hw4cli.device.ownkernel import kernel_named
from hw4cli.device.timing import GpuTimer
from hw4cli.errors import MachineError
from hw4cli.lab.arrays.inputs import DeviceArrays
from hw4cli.lab.cases import ArrayCase, FileCase, FileData, ForwardData, GradientData
from hw4cli.lab.contender import Contender
from hw4cli.lab.tables import BOTH
from hw4cli.plans import gradients as choice
from hw4cli.plans.dispatch import AUTO
from hw4cli.plans.half import Arrays
from hw4cli.plans.halfmma import SPLIT
from hw4cli.plans.kernels16 import ENTRIES16, KERNELS16, plan16
from hw4cli.plans.ladder import VARIANTS
from hw4cli.plans.plan import DeviceProperties, Plan, Tile, knobs_of
from hw4cli.problem.workload import FLOAT32, Workload

KERNELS = (*KERNELS16, *VARIANTS)  # of arrays
GRADIENT_KERNELS = tuple(choice.GRADIENTS)


def named(kernel: str, tile: Tile) -> str:
    """A kernel with a tile, as tables have it: "flash 128x32", "flash 128x32 BLOCKS=4"."""
    return " ".join([f"{kernel} {tile['BR']}x{tile['BC']}", *knobs_of(tile)])


def resources(timer: GpuTimer, plan: Plan) -> dict[str, Any]:
    """What a plan takes of the GPU, by the names of KernelResult's fields."""
    found = timer.resources(plan)
    return {key: getattr(found, key) for key in ("registers", "shared_bytes", "occupancy")}


class FileKernel(Contender):
    """A kernel of the ladder, or in a user's file, on a case of files; with its best tile or a given one."""

    def __init__(self, timer: GpuTimer, kernel: str, case: FileCase, tile: Tile | None = None) -> None:
        super().__init__(named(kernel, tile) if tile else kernel)
        self._timer, self._kernel, self._work, self._tile = timer, kernel, case.work, tile

    def planned(self) -> Plan:
        """Its launches, not yet compiled. MachineError where it cannot run."""
        return kernel_named(self._kernel).plan(self._work, self._timer.gpu.props, self._tile)

    def prepare(self, data: FileData) -> dict[str, Any]:
        """Compile it. MachineError where it cannot run."""
        self._data, self._plan = data, self._timer.gpu.plan(self._kernel, self._work, self._tile)
        share = self._work.computed_share(self._plan.macros["BR"], self._plan.macros["BC"])
        return {**resources(self._timer, self._plan), "pairs_percent": 100 * share}

    def run(self) -> None:
        """Enqueue its launches."""
        gpu = self._timer.gpu
        with gpu.translated_errors(self._plan, self._work):
            gpu.compute(self._plan, self._data.inputs, self._data.outputs)

    def answer(self) -> tuple[Any, ...]:
        """O (B, N, d)."""
        return (self._data.outputs,)


class ArrayKernel(Contender):
    """A kernel of 16 bits, or one of the ladder, on arrays; of 16 bits, with a tiling of its own, and a title."""

    def __init__(
        self,
        timer: GpuTimer,
        kernel: str,
        case: ArrayCase,
        tiling: Any = None,
        title: str = "",
        planner: Callable[..., Plan] = plan16,
    ) -> None:
        super().__init__(title or kernel)
        self._timer, self._kernel, self._case, self._tiling = timer, kernel, case, tiling
        self._half, self._float32 = HalfOnGpu(timer.gpu, planner), Float32OnGpu(timer.gpu)

    @property
    def _work(self) -> Workload:
        """What the kernel computes: all in rows of one width, if it takes no others."""
        work, own = self._case.work, self._kernel in KERNELS16 and ENTRIES16[self._kernel].values
        return work if own else work.of_one_width

    def planned(self) -> Plan:
        """Its launches, not yet compiled. MachineError where it cannot run."""
        check_type(self._kernel, self._work)
        if self._kernel in KERNELS16:
            return self._half.planned(self._work, self._kernel, self._tiling)
        return self._float32.plan(self._work, self._kernel)

    def prepare(self, data: ForwardData) -> dict[str, Any]:
        """Compile it, and take its scratch memory. MachineError where it cannot run."""
        gpu, work, planned = self._timer.gpu, self._work, self.planned()
        gpu.functions(planned)
        self._arrays, stream = data.arrays, gpu.cupy.cuda.Stream.null
        given, made = operands_of(work, data.arrays, "qkv", "o")
        self._staged = Staged(gpu, stream, given, made, alike=not work.dv)
        (q, k, v), (o,) = self._staged.given, self._staged.made
        self._launch: Callable[[], object]
        if self._kernel in KERNELS16:
            self._scratch = gpu.cupy.ndarray(max(1, planned.scratch), np.uint8)  # kept: a pointer alone would not
            there = Arrays(q.matrix, k.matrix, v.matrix, o.matrix)._replace(scratch=self._scratch.data.ptr)
            self._launch = partial(self._half.launch, work, there, stream, self._tiling, self._kernel)
        else:
            self._launch = partial(self._float32.compute, work, (q, k, v, o), None, self._kernel, stream)
        return {**resources(self._timer, planned), "pairs_percent": pairs_percent(work, planned)}

    def run(self) -> None:
        """Enqueue its launches."""
        with self._staged:
            self._launch()

    def answer(self) -> tuple[Any, ...]:
        """O, in words (batch, heads, N, d)."""
        return (self._arrays.o,)


class GradientKernel(Contender):
    """A kernel of gradients, or the one that `attention_backward` chooses: the backward pass, or both passes behind the
    kernel that `attention` chooses."""

    def __init__(self, timer: GpuTimer, case: ArrayCase, kernel: str | None = None) -> None:
        props = timer.gpu.props
        name = kernel or choice.fastest(choice.as_computed(case.work, props), props)
        super().__init__(name, repeats=choice.GRADIENTS[name].repeatable)
        self._timer, self._case = timer, case
        self._work = choice.as_computed(case.work, props, name)

    def planned(self) -> Plan:
        """Its launches, not yet compiled. MachineError where it cannot run."""
        return choice.plan(self._work, self._timer.gpu.props, self.name)

    def prepare(self, data: GradientData) -> dict[str, Any]:
        """Compile it, and compute O and the LSE. MachineError where it cannot run."""
        work, arrays = self._case.work, data.gradients
        planned = BackwardOnGpu(self._timer.gpu).plan(self._work, self.name)
        given, made = operands_of(work, arrays, ("q", "k", "v", "o", "do"), ("dq", "dk", "dv"))
        lse = operand("lse", arrays.lse[..., None], "BHND")
        forward = FLOAT32_FORWARD if work.dtype == FLOAT32 else AUTO
        self._arrays, operands = arrays, (given[0], given[1], given[2], given[3])
        self._forward = partial(attention_on_gpu, work, operands, arrays.lse, forward, None, None)
        self._backward = partial(backward_on_gpu, work, tuple(given), lse, tuple(made), self.name)
        self._forward()
        return resources(self._timer, planned)

    def run(self) -> None:
        """Enqueue the launches of the pass, or of both."""
        if self._case.direction == BOTH:
            self._forward()
        self._backward()

    def answer(self) -> tuple[Any, ...]:
        """dQ, dK and dV, of both passes behind O, in words."""
        gradients = self._arrays.dq, self._arrays.dk, self._arrays.dv
        return (self._arrays.o, *gradients) if self._case.direction == BOTH else gradients


def operands_of(work: Workload, arrays: DeviceArrays, *names: Sequence[str]) -> list[list[Operand]]:
    """Arrays of words, by their names, as operands of the workload's element type."""

    def one(name: str) -> Operand:
        words = getattr(arrays, name)
        float32 = work.dtype == FLOAT32
        return replace(operand(name, words.view(np.float32) if float32 else words, "BHND"), dtype=work.dtype)

    return [list(map(one, some)) for some in names]


def takes(kernel: str, work: Workload) -> bool:
    """Whether a kernel is for the workload's element type."""
    return (kernel in KERNELS16) == (work.dtype != FLOAT32)


def check_type(kernel: str, work: Workload) -> None:
    """Raise MachineError where a kernel does not take the workload's element type."""
    if not takes(kernel, work):
        wanted = "float16 and bfloat16" if kernel in KERNELS16 else "float32"
        raise MachineError(f"kernel {kernel} is for {wanted}, and the workload's elements are {work.dtype}")


def computes_gradients(kernel: str, work: Workload, props: DeviceProperties) -> bool:
    """Whether a kernel of gradients computes a workload on such a GPU."""
    return choice.takes(kernel, choice.as_computed(work, props, kernel), props)


def pairs_percent(work: Workload, planned: Plan) -> float | None:
    """Of all pairs of a row and a key, the share in tiles that a plan computes. half: of each group of warps.

    None where heads share tiles of rows (half_split).
    """
    if planned.variant == SPLIT:
        return None
    rows = planned.macros["BR"] // planned.macros.get("GROUPS", 1)
    return 100 * work.computed_share(rows, planned.macros["BC"])


def contender_named(
    timer: GpuTimer, kernel: str, case: FileCase | ArrayCase, tile: Tile | None = None, tiling: Any = None
) -> Contender:
    """A kernel of hw4's, or of a user's, on a case; of files with a tile, of 16 bits with a tiling, if one is given."""
    if isinstance(case, FileCase):
        return FileKernel(timer, kernel, case, tile)
    return (
        GradientKernel(timer, case, kernel) if kernel in GRADIENT_KERNELS else ArrayKernel(timer, kernel, case, tiling)
    )

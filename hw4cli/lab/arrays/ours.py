"""hw4's kernels for arrays, as implementations to be measured."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from hw4cli.arrays.float32 import Float32OnGpu
from hw4cli.arrays.ongpu import HalfOnGpu
from hw4cli.arrays.operand import Operand, operand
from hw4cli.arrays.staged import Staged
from hw4cli.device.gpu import Gpu
from hw4cli.device.timing import GpuTimer
from hw4cli.errors import MachineError
from hw4cli.lab.arrays.inputs import DeviceArrays
from hw4cli.lab.arrays.named import NamedWorkload
from hw4cli.plans.half import Arrays
from hw4cli.plans.halfmma import SPLIT
from hw4cli.plans.kernels16 import KERNELS16
from hw4cli.plans.plan import Plan
from hw4cli.plans.registry import VARIANTS
from hw4cli.problem.workload import FLOAT32, Workload

KERNELS = (*KERNELS16, *VARIANTS)
Work = Callable[[], Any]  # computes O once more; returns it as an array of words (batch, heads, N, d)


@dataclass(frozen=True)
class Implementation:
    """What is measured: a name, and for a workload and its arrays the work, and what it takes of the GPU.

    `prepare` raises MachineError where it cannot compute the workload. `ours`: a kernel of hw4's, which must give the
    same bits again unless it is known not to (`repeats`); `planned`: its launches for a workload, not yet compiled.
    """

    name: str
    prepare: Callable[[NamedWorkload, DeviceArrays], tuple[Work, dict[str, Any]]]
    ours: bool = True
    planned: Callable[[Workload], Plan] | None = None
    repeats: bool = True


def implementation(gpu: Gpu, timer: GpuTimer, name: str, tiling: Any = None, title: str = "") -> Implementation:
    """A kernel of 16 bits, or one of the ladder, by its name; of 16 bits, with a tiling of its own, and a title."""
    half, float32 = HalfOnGpu(gpu), Float32OnGpu(gpu)

    def planned_for(work: Workload) -> Plan:
        return half.planned(work, name, tiling) if name in KERNELS16 else float32.plan(work, name)

    def prepare(case: NamedWorkload, arrays: DeviceArrays) -> tuple[Work, dict[str, Any]]:
        work, stream = case.work, gpu.cupy.cuda.Stream.null
        check_type(name, work)
        planned = planned_for(work)
        gpu.functions(planned)
        staged = Staged(gpu, stream, *operands_of(work, arrays, "qkv", "o"))
        (q, k, v), (o,) = staged.given, staged.made
        if name in KERNELS16:
            scratch = gpu.cupy.ndarray(max(1, planned.scratch), np.uint8)
            there = Arrays(q.matrix, k.matrix, v.matrix, o.matrix)

            def run() -> Any:  # which keeps the scratch: a pointer alone would not
                with staged:
                    half.launch(work, there._replace(scratch=scratch.data.ptr), case.scale, stream, tiling, name)
                return arrays.o
        else:

            def run() -> Any:
                with staged:
                    float32.compute(work, (q, k, v, o), None, case.scale, name, stream)
                return arrays.o

        found = timer.resources(planned)
        facts = {key: getattr(found, key) for key in ("registers", "shared_bytes", "occupancy")}
        return run, {**facts, "pairs_percent": pairs_percent(work, planned)}

    return Implementation(title or name, prepare, planned=planned_for)


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


def pairs_percent(work: Workload, planned: Plan) -> float | None:
    """Of all pairs of a row and a key, the share in tiles that a plan computes. half: of each group of warps.

    None where heads share tiles of rows (half_split).
    """
    if planned.variant == SPLIT:
        return None
    rows = planned.macros["BR"] // planned.macros.get("GROUPS", 1)
    whole = work.batch * work.heads * work.Nq * work.Nk
    return 100 * work.computed_pairs(rows, planned.macros["BC"]) / whole

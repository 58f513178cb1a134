"""The process that a profiler watches: it runs kernels on arrays, each once to warm up and once to be profiled."""

import json
import sys
from collections.abc import Callable
from dataclasses import replace

import numpy as np

from hw4cli.arrays.gradients.ongpu import BackwardOnGpu
from hw4cli.arrays.ongpu import HalfOnGpu
from hw4cli.device.gpu import Gpu
from hw4cli.errors import Hw4Error, MachineError
from hw4cli.lab.arraymodel.gradients import BACKWARD
from hw4cli.lab.arraymodel.launches import plan_of
from hw4cli.lab.arrays.inputs import WORDS, DeviceArrays, matrix, on_device
from hw4cli.lab.arrays.named import NamedWorkload, workload
from hw4cli.lab.bench import compile_side_by_side
from hw4cli.plans.backward import Arrays as BackwardArrays
from hw4cli.plans.half import Arrays
from hw4cli.system.importing import Importing


def arguments(kernels: list[str], text: str) -> str:
    """What `main` takes as its one argument."""
    return json.dumps({"kernels": kernels, "workload": text})


def main() -> None:
    """Run the kernels of the argument; each one's second run lies between cudaProfilerStart and cudaProfilerStop."""
    asked = json.loads(sys.argv[1])
    try:
        with Importing():
            gpu = Gpu()
        run(gpu, asked["kernels"], workload(asked["workload"]))
    except Hw4Error as error:
        print(f"hw4: {error}", file=sys.stderr)
        raise SystemExit(error.exit_code) from None


def run(gpu: Gpu, kernels: list[str], case: NamedWorkload) -> None:
    """Run kernels on a workload's random values, in rows that they can load, the second time with the profiler on."""
    case = replace(case, work=case.work.stored)
    runtime, memory = gpu.cupy.cuda.runtime, gpu.cupy.cuda.memory
    try:
        compile_side_by_side(gpu, [plan_of(name, case.work, gpu.props) for name in kernels])
        arrays = on_device(case, gpu.cupy)
        for name in kernels:
            go = runner(gpu, name, case, arrays)
            go()
            gpu.wait()
            runtime.profilerStart()
            go()
            gpu.wait()
            runtime.profilerStop()
    except memory.OutOfMemoryError:
        raise MachineError(f"the GPU has not enough memory for {case}") from None


def runner(gpu: Gpu, name: str, case: NamedWorkload, arrays: DeviceArrays) -> Callable[[], None]:
    """What enqueues a kernel of arrays once more, all its launches, and keeps what these work on.

    Raises MachineError where it does not run.
    """
    return _backward(gpu, name, case, arrays) if name in BACKWARD else _forward(gpu, name, case, arrays)


def _forward(gpu: Gpu, name: str, case: NamedWorkload, arrays: DeviceArrays) -> Callable[[], None]:
    half = HalfOnGpu(gpu)
    scratch = gpu.cupy.ndarray(max(1, half.plan(case.work, kernel=name).scratch), np.uint8)
    where, stream = Arrays(*arrays.matrices), gpu.cupy.cuda.Stream.null
    return lambda: half.launch(case.work, where._replace(scratch=scratch.data.ptr), case.scale, stream, kernel=name)


def _backward(gpu: Gpu, name: str, case: NamedWorkload, arrays: DeviceArrays) -> Callable[[], None]:
    """Gradients of made-up values: O and dO have those of Q, and the LSE is 0, which changes nothing that is counted.
    They lie in memory of their own: what is read twice would be found in a cache."""
    work, cupy, backward = case.work, gpu.cupy, BackwardOnGpu(gpu)
    planned = backward.plan(work, name)
    o, do, *made = (cupy.ndarray(x.shape, WORDS[work.dtype]) for x in 2 * [arrays.q] + [arrays.q, arrays.k, arrays.v])
    lse = cupy.ndarray((work.batch, work.heads, work.Nq), np.float32)
    scratch = cupy.ndarray(max(1, planned.scratch), np.uint8)
    for one in (lse, scratch):
        one.data.memset(0, one.nbytes)
    for one in (o, do):
        cupy.copyto(one, arrays.q)
    given = (arrays.q, arrays.k, arrays.v, o, do)

    def run() -> None:
        where = BackwardArrays(tuple(map(matrix, (*given, *made))), lse.data.ptr, scratch.data.ptr)
        backward.launch(work, where, case.scale, cupy.cuda.Stream.null, planned)

    return run

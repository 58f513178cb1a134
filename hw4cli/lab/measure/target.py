"""The process that a profiler watches: it runs kernels on a shape, each once to warm up and once to be profiled."""

import json
import sys

from hw4cli.device.gpu import Gpu
from hw4cli.device.ownkernel import kernel_named
from hw4cli.errors import Hw4Error
from hw4cli.lab.bench import compile_side_by_side, upload_case
from hw4cli.problem.workload import Workload
from hw4cli.system.importing import Importing


def arguments(kernels: list[str], shape: Workload, seed: int, tile: dict[str, int] | None = None) -> str:
    """What `main` takes as its one argument."""
    asked = {"kernels": kernels, "shape": [*shape.sizes, shape.causal], "seed": seed, "tile": tile}
    return json.dumps(asked)


def main() -> None:
    """Run the kernels of the argument; each one's second run lies between cudaProfilerStart and cudaProfilerStop."""
    asked = json.loads(sys.argv[1])
    try:
        with Importing():
            gpu = Gpu()
        run(gpu, asked["kernels"], Workload.one_head(*asked["shape"]), asked["seed"], asked["tile"])
    except Hw4Error as error:
        print(f"hw4: {error}", file=sys.stderr)
        raise SystemExit(error.exit_code) from None


def run(gpu: Gpu, kernels: list[str], shape: Workload, seed: int, tile: dict[str, int] | None) -> None:
    """Run kernels on a shape's random values, in rows that they can load, the second time with the profiler on."""
    shape = shape.stored
    runtime = gpu.cupy.cuda.runtime
    compile_side_by_side(gpu, [kernel_named(name).plan(shape, gpu.props, tile) for name in kernels])
    plans = [gpu.plan(name, shape, tile) for name in kernels]
    with gpu.translated_errors(plans[0], shape):
        inputs, outputs = upload_case(gpu, shape, seed), gpu.empty((shape.B, shape.N, shape.d))
    for plan in plans:
        with gpu.translated_errors(plan, shape):
            gpu.compute(plan, inputs, outputs)
            gpu.wait()
            runtime.profilerStart()
            gpu.compute(plan, inputs, outputs)
            gpu.wait()
            runtime.profilerStop()

"""The process that a profiler watches: it runs kernels, of files or arrays, once to warm up and once to be profiled."""

import json
import sys
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from hw4cli.device.gpu import Gpu
from hw4cli.device.timing import GpuTimer
from hw4cli.errors import Hw4Error
from hw4cli.lab.arrays.named import workload
from hw4cli.lab.candidates import tiling_of
from hw4cli.lab.cases import ArrayCase, FileCase
from hw4cli.lab.contender import Contender, compile_side_by_side
from hw4cli.lab.kernels import GRADIENT_KERNELS, contender_named
from hw4cli.lab.tables import BACKWARD, FORWARD
from hw4cli.plans.plan import Tile
from hw4cli.problem.workload import Workload
from hw4cli.system.importing import Importing


def of_files(kernels: Sequence[str], shape: Workload, seed: int, tile: Tile | None = None) -> str:
    """What `main` takes as its one argument, for kernels on a case of files."""
    return json.dumps({"kernels": kernels, "shape": [*shape.sizes, shape.causal], "seed": seed, "tile": tile})


def of_arrays(kernels: Sequence[str], text: str, tile: Tile | None = None) -> str:
    """The same for kernels on a workload of arrays."""
    return json.dumps({"kernels": kernels, "workload": text, "tile": tile})


def main() -> None:
    """Run the kernels of the argument; each one's second run lies between cudaProfilerStart and cudaProfilerStop."""
    asked = json.loads(sys.argv[1])
    try:
        with Importing():
            gpu = Gpu()
        run(gpu, asked["kernels"], asked)
    except Hw4Error as error:
        print(f"hw4: {error}", file=sys.stderr)
        raise SystemExit(error.exit_code) from None


def run(gpu: Gpu, kernels: Sequence[str], asked: dict[str, Any]) -> None:
    """Run kernels on a case's numbers, in rows that they can load, the second time with the profiler on."""
    runtime, timer, case = gpu.cupy.cuda.runtime, GpuTimer(gpu), case_for(kernels, asked)
    contenders = [_contender(timer, name, case, asked.get("tile")) for name in kernels]
    plans = [plan for one in contenders if (plan := one.planned())]
    compile_side_by_side(gpu, plans)
    with case.guarded(gpu):
        data = case.opened(gpu, plans[0])
        for one in contenders:
            one.prepare(data)
            one.run()
            gpu.wait()
            runtime.profilerStart()
            one.run()
            gpu.wait()
            runtime.profilerStop()


def _contender(timer: GpuTimer, name: str, case: FileCase | ArrayCase, tile: Tile | None) -> Contender:
    """A kernel with the tile that is asked for."""
    if tile is None:
        return contender_named(timer, name, case)
    if isinstance(case, FileCase):
        return contender_named(timer, name, case, tile)
    return contender_named(timer, name, case, tiling=tiling_of(name, case.work, timer.gpu.props, tile))


def case_for(kernels: Sequence[str], asked: dict[str, Any]) -> FileCase | ArrayCase:
    """The case, with rows that kernels can load; where one of the kernels computes gradients, with what these need."""
    if "shape" in asked:
        return FileCase("", Workload.one_head(*asked["shape"]).stored, asked["seed"])
    case = workload(asked["workload"])
    direction = BACKWARD if {*kernels} & {*GRADIENT_KERNELS} else FORWARD
    return ArrayCase(replace(case, work=case.work.stored), direction)

"""`split` and `split8` by mma.sync alone, as on tensor cores before Hopper's, beside what a Hopper GPU takes.

python -m benchmarks.measure.without_warpgroups --cases t22,t30 --output benchmarks/h200-split-mma.json
"""

import argparse
from dataclasses import replace

from benchmarks.measure.scripts import end_with, new_file
from hw4cli.cli.benchcommand.shown import announce, publish
from hw4cli.device.gpu import Gpu
from hw4cli.device.timing import GpuTimer
from hw4cli.lab.cases import FileCase
from hw4cli.lab.contender import Contender, compile_side_by_side, measure
from hw4cli.lab.kernels import FileKernel
from hw4cli.lab.record import benchmark_record
from hw4cli.lab.sampling import Sampling
from hw4cli.plans.ladder import VARIANTS
from hw4cli.problem import suite

KERNELS = "split", "split8"
CASES = "t12,t21,t22,t24,t25,t28,t29,t30"


def by_warps(timer: GpuTimer, case: FileCase) -> list[Contender]:
    """The kernels as a GPU takes them whose warpgroups do not multiply. In records they have no kernel's name, so that
    nothing chooses by these times."""
    found: list[Contender] = [FileKernel(timer, name, case) for name in KERNELS]
    for one in found:
        one.name = f"{one.name}-mma"
    return found


def main() -> int:
    """Check, measure, write the record; 1 if an answer was wrong."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--cases", default=CASES)
    parser.add_argument("--samples", type=int, default=20, help="of each kernel and case, at most")
    parser.add_argument("--output", type=new_file)
    options = parser.parse_args()
    gpu, other = Gpu(), Gpu()
    other.props = replace(other.props, warpgroups=False)
    timer = GpuTimer(gpu)
    sgemm = timer.sgemm_tflops()
    cases = [FileCase(case.name, case.shape, case.seed, sgemm) for case in suite.select([options.cases])]
    for one in (gpu, other):
        plans = (VARIANTS[name].plan(case.work, one.props) for case in cases for name in KERNELS)
        compile_side_by_side(one, plans)
    before = timer.clocks()
    rows = []
    for case in cases:
        announce(case.name)
        contenders = [*by_warps(GpuTimer(other), case), *(FileKernel(timer, name, case) for name in KERNELS)]
        rows += measure(timer, contenders, case, Sampling(options.samples))
    outputs = [options.output] if options.output else []
    publish(benchmark_record(timer, rows, sgemm, cold=True, before=before), False, outputs)
    return int(any(row.status != "ok" for row in rows))


if __name__ == "__main__":
    end_with(main)

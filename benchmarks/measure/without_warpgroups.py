"""`split` and `split8` by mma.sync alone, as on tensor cores before Hopper's, beside what a Hopper GPU takes.

python -m benchmarks.measure.without_warpgroups --cases t22,t30 --output benchmarks/h200-split-mma.json
"""

import argparse
from dataclasses import replace

from benchmarks.measure.scripts import end_with, new_file
from hw4cli.cli.benchcommand.shown import announce, publish
from hw4cli.device.gpu import Gpu
from hw4cli.device.timing import GpuTimer
from hw4cli.lab.bench import Implementation, compile_side_by_side, kernel_implementation, measure
from hw4cli.lab.record import benchmark_record
from hw4cli.lab.sampling import Sampling
from hw4cli.plans.registry import VARIANTS
from hw4cli.problem import suite

KERNELS = "split", "split8"
CASES = "t12,t21,t22,t24,t25,t28,t29,t30"


def by_warps(gpu: Gpu) -> list[Implementation]:
    """The kernels as a GPU takes them whose warpgroups do not multiply. In records they have no kernel's name, so that
    nothing chooses by these times."""
    gpu.props = replace(gpu.props, warpgroups=False)
    timer = GpuTimer(gpu)
    return [Implementation(f"{name}-mma", kernel_implementation(gpu, timer, name).prepare) for name in KERNELS]


def main() -> int:
    """Check, measure, write the record; 1 if an answer was wrong."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--cases", default=CASES)
    parser.add_argument("--samples", type=int, default=20, help="of each kernel and case, at most")
    parser.add_argument("--output", type=new_file)
    options = parser.parse_args()
    cases = [(case.name, case.shape, case.seed) for case in suite.select([options.cases])]
    gpu, other = Gpu(), Gpu()
    timer, warps = GpuTimer(gpu), by_warps(other)
    implementations = [*warps, *(kernel_implementation(gpu, timer, name) for name in KERNELS)]
    for one in (gpu, other):
        plans = (VARIANTS[name].plan(shape, one.props) for _, shape, _ in cases for name in KERNELS)
        compile_side_by_side(one, plans)
    before, sgemm = timer.clocks(), timer.sgemm_tflops()
    rows = []
    for case in cases:
        announce(case[0])
        rows += measure(timer, implementations, case, sgemm, Sampling(options.samples))
    outputs = [options.output] if options.output else []
    publish(benchmark_record(timer, rows, sgemm, cold=True, before=before), False, outputs)
    return int(any(row.status != "ok" for row in rows))


if __name__ == "__main__":
    end_with(main)

"""`split` by mma.sync alone, as on tensor cores before Hopper's, beside what a Hopper GPU takes: a record of its own.

python -m benchmarks.without_warpgroups --cases t22,t30 --output benchmarks/h200-split-mma.json
"""

import argparse
from dataclasses import replace

from benchmarks.scripts import end_with, new_file
from hw4cli.benchcommand.shown import announce, publish
from hw4cli.compute.variants import VARIANTS
from hw4cli.device.gpu import Gpu
from hw4cli.device.timing import GpuTimer
from hw4cli.lab.bench import Implementation, compile_side_by_side, kernel_implementation, measure
from hw4cli.lab.record import benchmark_record
from hw4cli.lab.sampling import Rule
from hw4cli.problem import suite

KERNEL = "split"
NAME = f"{KERNEL}-mma"  # in records; no kernel's name, so that nothing chooses by these times
CASES = "t12,t21,t22,t28,t29,t30"


def by_warps(gpu: Gpu) -> Implementation:
    """The kernel as a GPU takes it whose warpgroups do not multiply."""
    gpu.props = replace(gpu.props, warpgroups=False)
    return Implementation(NAME, kernel_implementation(gpu, GpuTimer(gpu), KERNEL).prepare)


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
    implementations = [warps, kernel_implementation(gpu, timer, KERNEL)]
    for one in (gpu, other):
        compile_side_by_side(one, (VARIANTS[KERNEL].plan(shape, one.props) for _, shape, _ in cases))
    before, sgemm = timer.clocks(), timer.sgemm_tflops()
    rows = []
    for case in cases:
        announce(case[0])
        rows += measure(timer, implementations, case, sgemm, True, rule=Rule(options.samples))
    publish(benchmark_record(timer, rows, sgemm, cold=True, before=before), "table", options.output)
    return int(any(row.status != "ok" for row in rows))


if __name__ == "__main__":
    end_with(main)

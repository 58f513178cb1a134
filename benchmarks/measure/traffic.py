"""What kernels move, counted by Nsight Compute: a line for each launch, to hold the models against.

    python -m benchmarks.measure.traffic --output benchmarks/h200-traffic.csv

Each kernel runs twice in a process of its own kind, and the second run is counted, with an empty L2 cache before.
"""

import argparse
import sys
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np

from benchmarks.measure.scripts import end_with, new_file, write_lines

SHAPES = "4,16384,64", "16,4096,64", "8,16384,64", "100,4096,64", "500,2048,64", "9600,128,64", "4,32768,32"
SPLITS = {"4,16384,64": (1, 2, 8), "16,4096,64": (1, 4)}  # of flash, beside its own
RUNG_SHAPES = "8,2048,64", "8,2048,32"
OTHER_SHAPES = {"split8": ("16,4096,64",)}  # of a kernel that is for long rows
PAPER_SHAPES = "4,4096,64", "8,4096,64", "16,4096,64", "24,4096,64", "64,1024,64"  # its matrices against the L2 cache
ARRAYS = {
    "lm8k": ("half", "half_mma"),
    "lm8k-causal": ("half", "half_mma"),
    "heads64": ("half", "half_mma"),
    "lm16k": ("half",),
    "gqa": ("half",),
    "t22-half": ("half",),
    "B=1 H=8 N=4096 d=64 dtype=fp16": ("half", "half_mma", "half_cores", "half_split", "backward"),
    "decode": ("half_split",),
    "chunk": ("half_mma", "half_split"),
    "B=1 H=16 N=4096 d=64 dtype=fp16": ("backward", "backward_mma"),
}
ONE_PASS_OR_TWO: tuple[str, ...] = ("backward_once", "backward_wgmma")
GRADIENTS = dict.fromkeys(("lm8k", "lm8k-causal", "heads64", "lm16k", "gqa"), ONE_PASS_OR_TWO)
GROUPS = ("flash", "split", "arrays", "gradients", "rungs", "paper")
COLUMNS = (
    *("kernel", "workload", "causal", "splits", "launch", "grid"),
    *("dram_read", "dram_written", "l2_to_l1", "l1_to_l2", "shared_traffic", "ms"),
)
MARK = "counted"
Job = tuple[list[str], Any, Callable[[], object]]  # the first columns, the plan, what runs it


def shape_of(text: str) -> Any:
    """The Shape of B,N,d."""
    from hw4cli.problem.workload import Shape

    B, N, d = map(int, text.split(","))
    return Shape(B, N, d)


def of_shapes(gpu: Any, kernels: tuple[str, ...]) -> Iterator[Job]:
    """Kernels of files' cases."""
    from hw4cli.lab.cases import upload_case
    from hw4cli.plans.ladder import VARIANTS

    for text in SHAPES:
        shape = shape_of(text)
        inputs, outputs = upload_case(gpu, shape, 0), gpu.empty((shape.B, shape.N, shape.d))
        for kernel in kernels:
            variant = VARIANTS[kernel]
            own = variant.plan(shape, gpu.props)
            plans = [own, variant.plan(replace(shape, causal=True), gpu.props)]
            for splits in SPLITS.get(text, ()) if kernel == "flash" else ():
                plans.append(replace(variant, splits=lambda *_, n=splits: n).plan(shape, gpu.props))
            for plan in plans:
                first = [kernel, text, str(plan.macros.get("CAUSAL", 0)), str(plan.splits)]
                yield first, plan, partial(gpu.compute, plan, inputs, outputs)


def of_rungs(gpu: Any) -> Iterator[Job]:
    """All other kernels of files, compiled side by side."""
    from hw4cli.plans.ladder import VARIANTS

    names = [name for name in VARIANTS if name not in ("flash", "split", "paper")]
    yield from of_plain(gpu, [(name, text) for name in names for text in OTHER_SHAPES.get(name, RUNG_SHAPES)])


def of_plain(gpu: Any, chosen: list[tuple[str, str]]) -> Iterator[Job]:
    """Kernels on shapes, without a mask."""
    from hw4cli.lab.cases import upload_case
    from hw4cli.lab.contender import compile_side_by_side
    from hw4cli.plans.ladder import VARIANTS

    shapes = {text: shape_of(text) for _, text in chosen}
    plans = {(name, text): VARIANTS[name].plan(shapes[text], gpu.props) for name, text in chosen}
    compile_side_by_side(gpu, plans.values())
    for (name, text), plan in plans.items():
        shape = shapes[text]
        inputs, outputs = upload_case(gpu, shape, 0), gpu.empty((shape.B, shape.N, shape.d))
        yield [name, text, "0", str(plan.splits)], plan, partial(gpu.compute, plan, inputs, outputs)


def of_arrays(gpu: Any, chosen: dict[str, tuple[str, ...]]) -> Iterator[Job]:
    """Kernels of arrays."""
    from hw4cli.device.timing import GpuTimer
    from hw4cli.lab.candidates import plan_of
    from hw4cli.lab.kernels import contender_named
    from hw4cli.lab.target import case_for

    for text, kernels in chosen.items():
        case = case_for(kernels, {"workload": text})
        data = case.opened(gpu)
        for kernel in kernels:
            plan = plan_of(kernel, case.work, gpu.props)
            one = contender_named(GpuTimer(gpu), kernel, case)
            one.prepare(data)
            yield [kernel, text, str(int(case.work.causal)), str(plan.splits)], plan, one.run


def target(group: str) -> None:
    """The process that is profiled."""
    from hw4cli.device.gpu import Gpu

    gpu = Gpu()
    runtime = gpu.cupy.cuda.runtime
    arrays: dict[str, dict[str, tuple[str, ...]]] = {"arrays": ARRAYS, "gradients": GRADIENTS}
    if group in arrays:
        jobs = of_arrays(gpu, arrays[group])
    elif group == "rungs":
        jobs = of_rungs(gpu)
    elif group == "paper":
        jobs = of_plain(gpu, [("paper", text) for text in PAPER_SHAPES])
    else:
        jobs = of_shapes(gpu, (group,))
    for first, plan, go in jobs:
        go()
        gpu.wait()
        for step in plan.launches:
            print(MARK, *first, step.symbol, step.grid, sep="|", flush=True)
        runtime.profilerStart()
        go()
        gpu.wait()
        runtime.profilerStop()


def measured(group: str) -> Iterator[list[str]]:
    """The lines of a group."""
    from hw4cli.lab.measure.counters import read_launches
    from hw4cli.lab.measure.metrics import DURATION, MOVED, NCU, value_of
    from hw4cli.lab.measure.profilers import Profiler, find_tool, profile_text

    metrics = (*MOVED, DURATION)
    counters = [name for metric in metrics for name in metric.counters(NCU)]
    command = [sys.executable, "-m", "benchmarks.measure.traffic", "--target", group]
    text, _ = profile_text(Profiler(NCU, find_tool(NCU)), counters, command, from_start=False)
    marks = [line.split("|")[1:] for line in text.splitlines() if line.startswith(f"{MARK}|")]
    for words, one in zip(marks, read_launches(text)[1], strict=True):
        values = [value_of(metric, NCU, one.values) for metric in metrics]
        yield [*words, *("" if value is None else np.format_float_positional(value, 3) for value in values)]


def main() -> None:
    """Count, and write the lines."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--output", type=new_file, required="--target" not in sys.argv)
    parser.add_argument("--target", choices=GROUPS)
    parser.add_argument("--groups", nargs="+", choices=GROUPS, default=GROUPS)
    options = parser.parse_args()
    if options.target:
        return target(options.target)
    lines: list[Iterable[object]] = [COLUMNS]
    for group in options.groups:
        for line in measured(group):
            lines.append(line)
            print(*line, flush=True)
    write_lines(options.output, lines)
    return None


if __name__ == "__main__":
    end_with(main)

"""`hw4 bench` of kernels on cases of files."""

from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

import click

from hw4cli.cli.benchcommand.compared import compared, older_record
from hw4cli.cli.benchcommand.shown import announce, publish
from hw4cli.cli.terminal.bar import LiveTable
from hw4cli.cli.terminal.grammar import What
from hw4cli.cli.terminal.launches import ALL, with_ladder
from hw4cli.errors import Hw4Error, MachineError
from hw4cli.plans.kernels16 import KERNELS16
from hw4cli.plans.registry import DEFAULT, FALLBACK
from hw4cli.problem.workload import Workload
from hw4cli.system.importing import Importing
from hw4cli.text.words import print_message

if TYPE_CHECKING:
    from hw4cli.device.gpu import Gpu
    from hw4cli.device.timing import GpuTimer
    from hw4cli.lab.bench import Implementation, KernelResult
    from hw4cli.lab.sampling import Measurement, Sampling
    from hw4cli.plans.plan import Plan


def bench_kernels(
    ctx: click.Context,
    what: What,
    as_json: bool,
    outputs: Sequence[Path],
    causal: bool,
    tiles: list[dict[str, int]],
    peers: tuple[str, ...],
    older: Path | None,
    sampling: "Sampling",
) -> int:
    """Time kernels of files' cases, and print the record; the command's exit status."""
    with Importing():
        from hw4cli.device.gpu import Gpu
        from hw4cli.device.timing import GpuTimer
        from hw4cli.lab.bench import compile_side_by_side, measure
        from hw4cli.lab.record import benchmark_record
        from hw4cli.lab.times import median_interval

    then = older_record(older, cold=sampling.cold)
    _check_kernels(ctx, what.kernels)
    chosen = what.named_shapes(ctx, causal)
    names = with_ladder(what.kernels or (DEFAULT,))
    gpu = Gpu()
    timer = GpuTimer(gpu)
    implementations = _implementations(gpu, timer, names, tiles, peers)
    compile_side_by_side(gpu, _plans(gpu, names, tiles, [shape for _, shape, _ in chosen]))
    before, sgemm = timer.clocks(), timer.sgemm_tflops()
    rows: list[KernelResult] = []
    with LiveTable(["kernel", "case", "median ms", "±", "n"]) as live:
        for case in chosen:
            announce(case[0])

            def show(one: "Measurement", case: str = case[0]) -> None:
                median, low, high = median_interval(one.times)
                spread = f"{(high - low) / 2 / median:.1%}"
                live.update((one.name, case), [one.name, case, f"{median:.4g}", spread, str(len(one.samples))])

            rows += measure(timer, implementations, case, sgemm, sampling, show)
    publish(benchmark_record(timer, rows, sgemm, cold=sampling.cold, before=before), as_json, outputs)
    slower = then is not None and compared(rows, then, older, gpu.name)
    bad = slower or any(row.status != "ok" for row in rows)
    return 1 if bad else 0


def _check_kernels(ctx: click.Context, kernels: tuple[str, ...]) -> None:
    """Before a GPU is opened: a usage error for a kernel of arrays, InputError or KernelError for a bad file."""
    from hw4cli.device.ownkernel import kernel_named
    from hw4cli.lab.arrays.backward import GRADIENT_KERNELS

    for name in kernels:
        if name in KERNELS16:
            raise click.UsageError(f"{name} computes arrays of 16 bits: name a workload, as in tilelang", ctx)
        if name in GRADIENT_KERNELS:
            raise click.UsageError(f"{name} computes gradients of arrays: name a workload, with --pass bwd", ctx)
        if name != ALL:
            kernel_named(name)


def _plans(gpu: "Gpu", names: list[str], tiles: list[dict[str, int]], shapes: list[Workload]) -> "Iterator[Plan]":
    """What will be run, as far as the GPU starts it."""
    from hw4cli.device.ownkernel import kernel_named

    for name in [*names, FALLBACK]:
        for shape in shapes:
            for tile in _choices(tiles) if name != FALLBACK else [None]:
                with suppress(Hw4Error, ArithmeticError, StopIteration):
                    yield kernel_named(name).plan(shape, gpu.props, tile)


def _choices(tiles: list[dict[str, int]]) -> list[dict[str, int] | None]:
    """The tiles to try; None is a kernel's own."""
    return [*tiles] or [None]


def _implementations(
    gpu: "Gpu", timer: "GpuTimer", names: list[str], tiles: list[dict[str, int]], peers: tuple[str, ...]
) -> "list[Implementation]":
    from hw4cli.lab.bench import kernel_implementation

    implementations = [kernel_implementation(gpu, timer, name, tile) for name in names for tile in _choices(tiles)]
    if peers:
        from hw4cli.lab.baselines import torch_implementations

        try:
            implementations += torch_implementations(gpu)
        except MachineError as reason:
            print_message(reason)
    return implementations

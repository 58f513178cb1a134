"""`hw4 selftest`: whether the kernels are right on this machine."""

import json
import os
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING, Any

import click

from hw4cli.cli.terminal.grammar import KERNELS, SHAPES, What, what_argument
from hw4cli.cli.terminal.options import is_given, json_option, shared
from hw4cli.cli.terminal.params import Number, OneOf, Whole
from hw4cli.errors import MachineError
from hw4cli.plans.ladder import VARIANTS
from hw4cli.system.importing import Importing
from hw4cli.system.interrupts import end_if_stuck
from hw4cli.text.words import columns, counted

if TYPE_CHECKING:
    from hw4cli.lab.selftest import Backend, Outcome, Summary

SCHEMA = 1
ORDER = ["float32", *VARIANTS]  # the CPU's, then the ladder
EVERY = 10.0  # seconds between two lines of progress, where there is no terminal for a bar


@click.command()
@what_argument(KERNELS, SHAPES, kernels=ORDER)
@click.option(
    "--minutes",
    metavar="M",
    type=Number(0, 10_000, min_open=True),
    default=1.0,
    show_default=True,
    help="How long to draw and run cases.",
)
@shared("seed", metavar="S", type=Whole(min=0), default=0, show_default=True)
@click.option("--number", metavar="N", type=Whole(min=0), help="Run only this case of the seed.")
@shared("device", type=OneOf(["auto", "cuda", "cpu"]), default="auto", show_default=True)
@json_option
@click.pass_context
def selftest(
    ctx: click.Context, /, what: What, minutes: float, seed: int, number: int | None, device: str, as_json: bool
) -> int:
    """Test the kernels on random shapes and data.

    \b
    hw4 selftest --minutes 5   all that this machine computes with
    hw4 selftest flash         one kernel
    hw4 selftest flash 4,2048,64   on this shape, each kind of data
    hw4 selftest --device cpu  NumPy in float32 and float64

    Every answer is compared with float64, and its error with the bound that is stated for the kernel and the data.
    A case is a kernel, a shape and a kind of data; the seed and its number determine it. For each case that is wrong,
    the command that repeats it is printed. Exit status 0 if all are right, 1 if any is wrong, 3 if there is no GPU for
    a kernel that is named.
    """
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # as in hw4 run
    with Importing():
        from hw4cli.lab.randomcases import draw, on_shape
        from hw4cli.lab.selftest import Summary, outcomes, run_case

    if number is not None and is_given(ctx, "minutes"):
        raise click.UsageError("--minutes does not go with --number", ctx)
    if what.shapes and (number is not None or is_given(ctx, "minutes")):
        option = "--number" if number is not None else "--minutes"
        raise click.UsageError(f"{option} is of random shapes: leave it out where a shape is named", ctx)
    if len(what.kernels) > 1:
        raise click.UsageError(f"one kernel is tested at a time, and these are {len(what.kernels)}", ctx)
    kernel = what.kernels[0] if what.kernels else None
    device = _chosen_device(kernel) if device == "auto" else device
    drawn = partial(draw, seed, device=device, kernel=kernel)
    chosen = [case for shape in what.shapes for case in on_shape(shape, seed, device, kernel)]
    drawn(number or 0)  # raises InputError for a kernel that the device does not have
    backend = _backend(device, kernel)
    summary, start, interrupted = Summary(), time.monotonic(), False
    try:
        if chosen:
            click.echo(f"testing {counted(len(chosen), 'case')} on {backend.name}", err=True)
            for case in chosen:
                summary.add(run_case(case, backend))
        elif number is None:
            click.echo(f"testing {backend.name} for {minutes:g} minute{'' if minutes == 1 else 's'}", err=True)
            with _progress_display(summary, 60 * minutes) as show_outcome:
                for outcome in outcomes(backend, drawn, 60 * minutes):
                    summary.add(outcome)
                    show_outcome(outcome)
        else:
            click.echo(f"testing {drawn(number)}, on {backend.name}", err=True)
            summary.add(run_case(drawn(number), backend))
    except KeyboardInterrupt:
        interrupted = True
    found = document(summary, seed, backend.name, time.monotonic() - start, interrupted)
    click.echo(json.dumps(found, indent=1) if as_json else text(found), nl=as_json)
    if interrupted:
        raise KeyboardInterrupt
    if not summary.cases:
        raise MachineError("no case could be made on this machine")
    return 1 if summary.wrong else 0


def _chosen_device(kernel: str | None) -> str:
    """Where --device auto computes: on the GPU where one can be used, or where a kernel for one is named."""
    from hw4cli.device.gpu import Gpu

    if kernel in VARIANTS:
        return "cuda"
    try:
        Gpu()
    except MachineError:
        return "cpu"
    return "cuda"


def _backend(device: str, kernel: str | None) -> "Backend":
    """What is to be tested. MachineError if there is no GPU, or none for this kernel."""
    from hw4cli.device.gpu import Gpu
    from hw4cli.lab.selftest import CpuBackend, GpuBackend
    from hw4cli.problem.workload import Workload

    if device == "cpu":
        return CpuBackend()
    end_if_stuck()
    gpu = Gpu()
    if kernel:
        VARIANTS[kernel].plan(Workload.one_head(1, 128, 64), gpu.props)
    return GpuBackend(gpu)


@contextmanager
def _progress_display(summary: "Summary", seconds: float) -> "Iterator[Callable[[Outcome], None]]":
    """A bar on a terminal, elsewhere a line every few seconds; and every case that is wrong, at once."""
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

    console = Console(stderr=True, soft_wrap=True, highlight=False)
    columns = (BarColumn(), TimeElapsedColumn(), TextColumn("{task.description}"))
    start, lines = time.monotonic(), 0
    with Progress(*columns, console=console, disable=not sys.stderr.isatty(), transient=True) as progress:
        task = progress.add_task("", total=seconds)

        def show_outcome(outcome: "Outcome") -> None:
            nonlocal lines
            passed, state = time.monotonic() - start, f"{counted(summary.cases, 'case')}, {len(summary.wrong)} wrong"
            progress.update(task, completed=passed, description=state)
            if outcome.wrong:
                console.print(f"wrong: {outcome.case.command}")
            if progress.disable and passed // EVERY > lines:
                lines = int(passed // EVERY)
                console.print(f"{passed:.0f} s: {state}")

        yield show_outcome


def document(summary: "Summary", seed: int, device: str, seconds: float, interrupted: bool) -> dict[str, Any]:
    """The summary as JSON; docs/selftest.md describes the fields."""
    return {
        "schema": SCHEMA,
        "device": device,
        "seed": seed,
        "seconds": round(seconds, 1),
        "interrupted": interrupted,
        "cases": summary.cases,
        "kernels": {
            name: {
                "right": tally.right,
                "max_error": tally.error,
                "rms_error": tally.rms,
                "share_of_allowed": tally.share,
            }
            for name, tally in sorted(summary.kernels.items(), key=lambda item: ORDER.index(item[0]))
        },
        "wrong": [
            {
                "kernel": case.kernel,
                "shape": [case.shape.B, case.shape.N, case.shape.d],
                "data": case.kind,
                "reason": outcome.wrong,
                "command": case.command,
            }
            for outcome in summary.wrong
            for case in [outcome.case]
        ],
        "skipped": dict(summary.skipped),
    }


def text(found: dict[str, Any]) -> str:
    """The summary for people."""
    from hw4cli.text.tables import plain

    header = ["kernel", "right", "max error / |V|", "RMS error / |V|", "of what is allowed"]
    rows = []
    for name, row in found["kernels"].items():
        errors = f"{row['max_error']:.1e}", f"{row['rms_error']:.1e}"
        rows.append([name, str(row["right"]), *errors, f"{row['share_of_allowed']:.0%}"])
    lines = [plain(header, rows, columns(sys.stdout))] if rows else []
    for one in found["wrong"]:
        shape = "({}, {}, {})".format(*one["shape"])
        lines.append(f"wrong: {one['kernel']} on {shape}, {one['data']}: {one['reason']}\n  {one['command']}\n")
    lines += [f"skipped: {counted(times, 'case')}, {reason}\n" for reason, times in found["skipped"].items()]
    verdict = f"{len(found['wrong'])} wrong" if found["wrong"] else "all right" if found["cases"] else "nothing tested"
    where = f"seed {found['seed']}, {found['seconds']:.0f} s on {found['device']}"
    return "".join([*lines, f"{counted(found['cases'], 'case')}, {verdict} ({where})\n"])

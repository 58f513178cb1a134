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

from hw4cli.compute.variants import VARIANTS
from hw4cli.errors import MachineError
from hw4cli.system.importing import Importing
from hw4cli.terminal.params import Number, OneOf, Whole
from hw4cli.text.words import columns, counted

if TYPE_CHECKING:
    from hw4cli.lab.selftest import Outcome, Subject, Summary

SCHEMA = 1
ORDER = ["float32", *VARIANTS]  # the CPU's, then the ladder
EVERY = 10.0  # seconds between two lines that tell how far it is, where there is no terminal for a bar


@click.command()
@click.option(
    "--minutes",
    metavar="M",
    type=Number(0, 10_000, min_open=True),
    default=1.0,
    show_default=True,
    help="How long to go on drawing cases.",
)
@click.option("--seed", metavar="S", type=Whole(min=0), default=0, show_default=True, help="Another seed, other cases.")
@click.option("--case", "number", metavar="N", type=Whole(min=0), help="Make this one case of the seed.")
@click.option("--kernel", type=OneOf(ORDER), metavar="KERNEL", help="Test this one kernel.  [default: all]")
@click.option(
    "--device",
    type=OneOf(["cuda", "cpu"]),
    default="cuda",
    show_default=True,
    help="What to test; the CPU computes in float32 or float64.",
)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON document, described in docs/selftest.md.")
@click.pass_context
def selftest(
    ctx: click.Context, minutes: float, seed: int, number: int | None, kernel: str | None, device: str, as_json: bool
) -> int:
    """Test the kernels on random shapes and data.

    Every answer is held against float64 and against the bound that is stated for the kernel and the data.
    A case is a kernel, a shape and a kind of data, and follows from its number and the seed. Each case that is wrong is
    told as the command that repeats it. Exit status 0 if all are right, 1 if any is wrong, 3 if there is no GPU.
    """
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # as in hw4 run
    with Importing():
        from hw4cli.lab.randomcases import draw
        from hw4cli.lab.selftest import Summary, examine, outcomes

    given = ctx.get_parameter_source("minutes") is click.core.ParameterSource.COMMANDLINE
    if number is not None and given:
        raise click.UsageError("--minutes does not go with --case", ctx)
    drawn = partial(draw, seed, device=device, kernel=kernel)
    drawn(number or 0)  # refuses a kernel that the device has not
    subject = _subject(device, kernel)
    summary, start, interrupted = Summary(), time.monotonic(), False
    try:
        if number is None:
            click.echo(f"testing {subject.name} for {minutes:g} minute{'' if minutes == 1 else 's'}", err=True)
            with _watched(summary, 60 * minutes) as tell:
                for outcome in outcomes(subject, drawn, 60 * minutes):
                    summary.add(outcome)
                    tell(outcome)
        else:
            click.echo(f"testing {drawn(number)}, on {subject.name}", err=True)
            summary.add(examine(drawn(number), subject))
    except KeyboardInterrupt:
        interrupted = True
    found = document(summary, seed, subject.name, time.monotonic() - start, interrupted)
    click.echo(json.dumps(found, indent=1) if as_json else text(found), nl=as_json)
    if interrupted:
        raise KeyboardInterrupt
    if not summary.cases:
        raise MachineError("no case could be made on this machine")
    return 1 if summary.wrong else 0


def _subject(device: str, kernel: str | None) -> "Subject":
    """What is to be tested. MachineError if there is no GPU, or none for this kernel."""
    from hw4cli.device.gpu import Gpu
    from hw4cli.lab.selftest import OnCpu, OnGpu
    from hw4cli.problem.shape import Shape

    if device == "cpu":
        return OnCpu()
    gpu = Gpu()
    if kernel:
        VARIANTS[kernel].plan(Shape(1, 128, 64), gpu.chip)
    return OnGpu(gpu)


@contextmanager
def _watched(summary: "Summary", seconds: float) -> "Iterator[Callable[[Outcome], None]]":
    """A bar on a terminal, now and then a line elsewhere; and every case that is wrong, at once."""
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

    console = Console(stderr=True, soft_wrap=True, highlight=False)
    columns = (BarColumn(), TimeElapsedColumn(), TextColumn("{task.description}"))
    start, lines = time.monotonic(), 0
    with Progress(*columns, console=console, disable=not sys.stderr.isatty(), transient=True) as progress:
        task = progress.add_task("", total=seconds)

        def tell(outcome: "Outcome") -> None:
            nonlocal lines
            passed, state = time.monotonic() - start, f"{counted(summary.cases, 'case')}, {len(summary.wrong)} wrong"
            progress.update(task, completed=passed, description=state)
            if outcome.wrong:
                console.print(f"wrong: {outcome.trial.command}")
            if progress.disable and passed // EVERY > lines:
                lines = int(passed // EVERY)
                console.print(f"{passed:.0f} s: {state}")

        yield tell


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
            name: {"right": tally.right, "max_error": tally.error, "share_of_allowed": tally.share}
            for name, tally in sorted(summary.kernels.items(), key=lambda item: ORDER.index(item[0]))
        },
        "wrong": [
            {
                "kernel": trial.kernel,
                "shape": [trial.shape.B, trial.shape.N, trial.shape.d],
                "data": trial.kind,
                "reason": outcome.wrong,
                "command": trial.command,
            }
            for outcome in summary.wrong
            for trial in [outcome.trial]
        ],
        "skipped": dict(summary.skipped),
    }


def text(found: dict[str, Any]) -> str:
    """The summary for people."""
    from hw4cli.text.tables import plain

    rows = [
        [name, str(row["right"]), f"{row['max_error']:.1e}", f"{row['share_of_allowed']:.0%}"]
        for name, row in found["kernels"].items()
    ]
    lines = (
        [plain(["kernel", "right", "max error / |V|", "of what is allowed"], rows, columns(sys.stdout))] if rows else []
    )
    for one in found["wrong"]:
        shape = "({}, {}, {})".format(*one["shape"])
        lines.append(f"wrong: {one['kernel']} on {shape}, {one['data']}: {one['reason']}\n  {one['command']}\n")
    lines += [f"skipped: {counted(times, 'case')}, {reason}\n" for reason, times in found["skipped"].items()]
    verdict = f"{len(found['wrong'])} wrong" if found["wrong"] else "all right" if found["cases"] else "nothing tested"
    where = f"seed {found['seed']}, {found['seconds']:.0f} s on {found['device']}"
    return "".join([*lines, f"{counted(found['cases'], 'case')}, {verdict} ({where})\n"])

"""`hw4 doctor`: what this machine has and lacks."""

import json
import os
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from hw4cli.cli.terminal.grammar import CASES, WORKLOADS, What, what_argument
from hw4cli.cli.terminal.options import causal_option, folder_option, json_option, program_command, suite_option
from hw4cli.errors import MachineError
from hw4cli.resources import has_solution
from hw4cli.system.importing import BLAS_THREADS, Importing
from hw4cli.text.words import counted, print_message, printable, wrapped

if TYPE_CHECKING:
    from hw4cli.doctor.checks import Report

SCHEMA = 1
BAR_DELAY = 0.5  # seconds
COLOURS = {"ok": "green", "warning": "yellow", "missing": "cyan"}
MARK = len("missing  ")
CANNOT = 3
LARGE = (8, 1 << 20, 64)  # the file that --measure predicts
PREDICTED = ((1, 1), (2, 1), (4, 1), (8, 1), (8, 4), (8, 16))  # on so many GPUs of so many nodes
WORDS = {
    "cache_read": "read from the page cache",
    "cache_write": "written to the page cache",
    "disk_read": "read from the disk",
    "to_gpu": "copied to a GPU",
    "from_gpu": "copied from a GPU",
    "flops": "computed",
    "opening": "opening a further GPU",
    "starting": "stream of a small file",
}


@click.command()
@what_argument(CASES, WORKLOADS)
@folder_option
@suite_option
@click.option(
    "--measure",
    is_flag=True,
    help="Measure this machine's rates, and predict a large file's time on many GPUs and nodes.",
)
@click.option("--prepare", is_flag=True, help="Check nothing; compile all kernels that may be needed on the GPUs here.")
@causal_option
@json_option
@click.pass_context
def doctor(
    ctx: click.Context, /, what: What, folder: Path, measure: bool, prepare: bool, causal: bool, as_json: bool
) -> int:
    """Check what this machine has and lacks, and what to do.

    \b
    hw4 doctor                   a check, with what to do about each problem
    hw4 doctor --measure         also rates, and what they predict
    hw4 doctor --prepare         compile what the thirty cases may need
    hw4 doctor --prepare t01-t10 lm8k    of these cases and arrays alone

    Runs a small case to see where `hw4 INPUTFILE OUTPUTFILE` runs. Exit status 0 if it runs, on the GPU or on the
    CPU; 3 if not. "warning" is a problem, with what to do; "missing" is not installed or not there, with what it is
    needed for.

    With --prepare, kernels are compiled and kept, so that no first run has to do it: exit status 0 if all are there.
    """
    if not has_solution() and (prepare or measure):
        raise click.UsageError("--prepare and --measure are of hw4 with its kernels: this is the judge alone", ctx)
    _check_together(ctx, prepare, measure=measure, CASE=what.cases, WORKLOAD=what.workloads, causal=causal)
    if prepare:
        return compile_kernels(what, causal, as_json)
    with Importing():
        from hw4cli.doctor.checks import run_checks

    command, env = program_command(None, ctx)
    os.environ.setdefault(BLAS_THREADS, "1")  # checks import NumPy in threads
    report = run_checks(command[:-1], env, folder)
    found = measurements(folder) if measure else {}
    if as_json:
        click.echo(json.dumps({**document(report), **found}, indent=1))
    else:
        show(report)
        show_measurements(found)
    return 0 if report.target.on else CANNOT


def _check_together(ctx: click.Context, prepare: bool, measure: bool, **only: object) -> None:
    """Raise UsageError for what does not go together."""
    if prepare and measure:
        raise click.UsageError("--prepare and --measure do not go together", ctx)
    for name, value in only.items():
        if value and not prepare:
            raise click.UsageError(f"{name if name.isupper() else f'--{name}'} needs --prepare", ctx)


def compile_kernels(what: What, causal: bool, as_json: bool) -> int:
    """Compile what cases and workloads need, with a bar on a terminal, and say what was done; the exit status."""
    with Importing():
        from hw4cli.cli.terminal.bar import Bar
        from hw4cli.doctor import bytecode
        from hw4cli.doctor.prepare import prepare
        from hw4cli.lab.arrays.named import workload
        from hw4cli.problem import suite
        from hw4cli.text.progress import Progress

    named = [workload(text) for text in what.workloads]
    chosen = suite.select([what.cases] if what.cases else []) if what.cases or not what.workloads else []
    progress = Progress()
    with Bar("compiling kernels", progress, BAR_DELAY):
        prepared = prepare([case.as_causal(causal).shape for case in chosen], named, progress)
    problems, uncompiled = [one.problem for one in prepared if one.problem], dict[Path, Path]()
    try:
        uncompiled = bytecode.missing(bytecode.sources_of_a_run())
    except MachineError as error:  # the kernels are there all the same
        problems.append(str(error))
    modules = bytecode.compile_sources(uncompiled.items())
    if as_json:
        document = {"schema": SCHEMA, "prepared": [asdict(one) for one in prepared], "modules": modules}
        click.echo(json.dumps(document, indent=1))
        return CANNOT if problems else 0
    for one in prepared:
        done = f"{counted(one.compiled, 'kernel')} compiled in {one.seconds:.1f} s" if one.compiled else "nothing to do"
        click.echo(printable(f"{one.gpu}: {done}, {one.there} were there, in {one.folder}"))
    if uncompiled:
        rest = "" if modules == len(uncompiled) else f" of {len(uncompiled)}; the others' folders cannot be written"
        click.echo(f"Python: bytecode of {counted(modules, 'module')} kept{rest}")
    for sentence in problems:
        print_message(sentence)
    return CANNOT if problems else 0


def measurements(folder: Path) -> dict[str, Any]:
    """The machine's rates for files in a folder, and what they predict, as JSON."""
    with Importing():
        from hw4cli.doctor.measure import measured
        from hw4cli.problem.workload import Workload
        from hw4cli.stream.nodes.model import predicted

    place = next(one for one in (folder, *folder.absolute().parents) if one.is_dir())  # where it will be
    rates, by = measured(place)
    shape = Workload.one_head(*LARGE)
    places = PREDICTED if rates.to_gpu else ()
    rows = [asdict(predicted(shape, rates, gpus, nodes)) for gpus, nodes in places]
    return {"measured": {**asdict(rates), "by": by}, "predicted": {"shape": LARGE, "rows": rows}}


def show_measurements(found: dict[str, Any]) -> None:
    """The rates and predictions for people."""
    if not found:
        return
    rates = {name: value for name, value in found["measured"].items() if isinstance(value, float) and value}
    units = {"flops": (1e12, "TFLOP/s"), "opening": (1, "s"), "starting": (1, "s")}
    click.echo("\nMeasured")
    for name, value in rates.items():
        scale, unit = units.get(name, (1e9, "GB/s"))
        click.echo(f"  {WORDS[name]:<28} {value / scale:8.3g} {unit}")
    click.echo(f"  computed by {found['measured']['by']}")
    if not found["predicted"]["rows"]:
        return
    click.echo(f"\nPredicted for a file of (B, N, d) = {LARGE} in the page cache")
    for row in found["predicted"]["rows"]:
        where = f"{row['nodes']} x {row['gpus']} GPUs" if row["nodes"] > 1 else counted(row["gpus"], "GPU")
        limit = f"efficiency {row['efficiency']:.2f}, limited by {row['limit']}"
        click.echo(f"  {where:<14} {row['seconds']:10.3f} s   {limit}")


def document(report: "Report") -> dict[str, Any]:
    """The report as JSON; docs/doctor.md describes the fields."""
    target = report.target
    return {
        "schema": SCHEMA,
        "runs": {"on": target.on, "device": target.device, "because": target.because},
        "findings": [
            {"group": group, "name": line.name, "state": line.state, "found": line.found, "advice": line.advice}
            for group, lines in report.groups.items()
            for line in lines
        ],
    }


def show(report: "Report") -> None:
    """The report for people: groups, aligned columns, advice under what it is for."""
    from rich.text import Text

    from hw4cli.cli.terminal.console import stdout_console

    console, width = stdout_console()
    console.soft_wrap = True
    names = max(len(line.name) for lines in report.groups.values() for line in lines)
    for group, lines in report.groups.items():
        console.print(Text(group, style="bold"))
        for line in lines:
            head = Text(f"  {line.state:<{MARK}}", style=COLOURS[line.state])
            indent = " " * (len(head) + names + 2)
            console.print(head.append(f"{line.name:<{names}}  ", style="default"), end="")
            console.print(Text(wrapped(printable(line.found), width, indent).lstrip(" ")))
            if line.advice:
                console.print(Text(wrapped(printable(f"→ {line.advice}"), width, " " * (MARK + 2))))
        console.print()
    style = "bold green" if report.target.on else "bold red"
    console.print(Text(wrapped(printable(report.target), width), style=style))

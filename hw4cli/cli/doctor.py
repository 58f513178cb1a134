"""`hw4 doctor`: what this machine has and lacks."""

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from hw4cli.system.importing import Importing
from hw4cli.terminal.options import command_of, folder_option
from hw4cli.text.words import printable, wrapped

if TYPE_CHECKING:
    from hw4cli.doctor.checks import Report

SCHEMA = 1
COLOURS = {"ok": "green", "warning": "yellow", "missing": "cyan"}
MARK = len("missing  ")
CANNOT = 3


@click.command()
@folder_option("Where the cases are to be (see hw4 gen).")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON document, described in docs/doctor.md.")
@click.pass_context
def doctor(ctx: click.Context, folder: Path, as_json: bool) -> int:
    """Tell what this machine has and lacks, and what to do about it.

    Runs a small case to see whether, and where, `hw4 INPUTFILE OUTPUTFILE` will run. Exit status 0 if it will,
    on the GPU or on the CPU; 3 if not. "warning" is something to mend; "missing" is not here, and the line says
    what for it would be needed.
    """
    with Importing():
        from hw4cli.doctor.checks import examine

    command, env = command_of(None, ctx)
    report = examine(command[:-1], env, folder)
    if as_json:
        click.echo(json.dumps(document(report), indent=1))
    else:
        show(report)
    return 0 if report.verdict.on else CANNOT


def document(report: "Report") -> dict[str, Any]:
    """The report as JSON; docs/doctor.md describes the fields."""
    verdict = report.verdict
    return {
        "schema": SCHEMA,
        "runs": {"on": verdict.on, "device": verdict.device, "because": verdict.because},
        "findings": [
            {"group": group, "name": line.name, "state": line.state, "found": line.found, "advice": line.advice}
            for group, lines in report.groups.items()
            for line in lines
        ],
    }


def show(report: "Report") -> None:
    """The report for people: groups, aligned columns, advice under what it is for."""
    from rich.text import Text

    from hw4cli.terminal.console import stdout_console

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
    style = "bold green" if report.verdict.on else "bold red"
    console.print(Text(wrapped(printable(report.verdict), width), style=style))

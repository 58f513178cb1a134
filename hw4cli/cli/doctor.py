"""`hw4 doctor`: what this machine has and lacks."""

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from hw4cli.system.importing import Importing
from hw4cli.terminal.options import folder_option, json_option, program_command
from hw4cli.text.words import printable, wrapped

if TYPE_CHECKING:
    from hw4cli.doctor.checks import Report

SCHEMA = 1
COLOURS = {"ok": "green", "warning": "yellow", "missing": "cyan"}
MARK = len("missing  ")
CANNOT = 3


@click.command()
@folder_option("Where the cases are or will be (see hw4 gen).")
@json_option("doctor")
@click.pass_context
def doctor(ctx: click.Context, folder: Path, as_json: bool) -> int:
    """Check what this machine has and lacks for hw4, and show what to do about it.

    Runs a small case to see where `hw4 INPUTFILE OUTPUTFILE` runs. Exit status 0 if it runs, on the GPU or on the
    CPU; 3 if not. "warning" is a problem, with what to do; "missing" is not installed or not there, with what it is
    needed for.
    """
    with Importing():
        from hw4cli.doctor.checks import run_checks

    command, env = program_command(None, ctx)
    report = run_checks(command[:-1], env, folder)
    if as_json:
        click.echo(json.dumps(document(report), indent=1))
    else:
        show(report)
    return 0 if report.target.on else CANNOT


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
    style = "bold green" if report.target.on else "bold red"
    console.print(Text(wrapped(printable(report.target), width), style=style))

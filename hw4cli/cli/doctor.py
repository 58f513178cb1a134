"""`hw4 doctor`: what this machine has and lacks."""

import json
import textwrap
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from hw4cli.cli.options import command_of, folder_option

if TYPE_CHECKING:
    from hw4cli.doctor import Report

SCHEMA = 1
COLOURS = {"ok": "green", "warning": "yellow", "missing": "cyan"}
MARK = len("missing  ")
PIPE_WIDTH = 10_000  # whoever searches the lines finds each of them whole
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
    from hw4cli.doctor import examine

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
    from rich.console import Console
    from rich.text import Text

    console = Console(highlight=False, soft_wrap=True)
    width = console.width if console.is_terminal else PIPE_WIDTH
    names = max(len(line.name) for lines in report.groups.values() for line in lines)
    for group, lines in report.groups.items():
        console.print(Text(group, style="bold"))
        for line in lines:
            head = Text(f"  {line.state:<{MARK}}", style=COLOURS[line.state])
            indent = " " * (len(head) + names + 2)
            console.print(head.append(f"{line.name:<{names}}  ", style="default"), end="")
            console.print(Text(wrapped(line.found, width, indent).lstrip(" ")))
            if line.advice:
                console.print(Text(wrapped(f"→ {line.advice}", width, " " * len(indent[: MARK + 2]))))
        console.print()
    style = "bold green" if report.verdict.on else "bold red"
    console.print(Text(wrapped(str(report.verdict), width, ""), style=style))


def wrapped(text: str, width: int, indent: str) -> str:
    """A text in lines of at most `width` columns, each indented; paths and options stay whole."""
    return textwrap.fill(
        text, width, initial_indent=indent, subsequent_indent=indent, break_on_hyphens=False, break_long_words=False
    )

"""`hw4 bench --end-to-end`: wall times of whole programs."""

import statistics
from pathlib import Path

import click

from hw4cli.benchcommand.shown import announce, publish
from hw4cli.system.importing import Importing
from hw4cli.terminal.bar import LiveTable
from hw4cli.terminal.options import program_command
from hw4cli.text.words import print_message


def bench_programs(
    ctx: click.Context,
    cases: str,
    form: str,
    output: Path | None,
    programs: tuple[str, ...],
    folder: Path,
    runs: int,
    cold: bool,
) -> int:
    """Time programs on cases, and print the record; the command's exit status."""
    with Importing():
        from hw4cli.judge.runcase import check_present
        from hw4cli.lab import endtoend
        from hw4cli.problem import suite

    if not cases:
        raise click.UsageError("name the cases, as in --cases t01,t11-t13", ctx)
    selected = suite.select([cases])
    commands = [(" ".join(program.split()), *program_command(program, ctx)) for program in programs]
    compared = endtoend.with_distinct_names(
        [endtoend.Program(*command) for command in (*commands, ("hw4", *program_command(None, ctx)))]
    )
    check_present(selected, folder)
    rows: list[endtoend.ProgramResult] = []
    with LiveTable(["case", "program", "median s", "runs"]) as live:
        for case in selected:
            announce(case.name)

            def show(one: endtoend.ProgramMeasurement, case: str = case.name) -> None:
                name, seconds = one.program.name, one.seconds
                middle = f"{statistics.median(seconds):.3f}" if seconds else one.status
                live.update((name, case), [case, name, middle, f"{len(seconds)} of {runs}"])

            rows += endtoend.measure(compared, case, folder, runs, cold, print_message, show)
    result = endtoend.program_record(compared, [*rows, *endtoend.sums(rows)], runs, cold)
    publish(result, form, output)
    return 0 if all(row.status == "ok" for row in rows) else 1

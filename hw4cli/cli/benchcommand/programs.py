"""`hw4 bench CASES --program`: wall times of whole programs."""

import statistics
from collections.abc import Sequence
from pathlib import Path

import click

from hw4cli.cli.benchcommand.shown import announce, publish
from hw4cli.cli.terminal.bar import LiveTable
from hw4cli.cli.terminal.grammar import What
from hw4cli.cli.terminal.options import program_command
from hw4cli.cli.terminal.preparing import prepare_kernels
from hw4cli.system.importing import Importing
from hw4cli.text.words import print_message


def bench_programs(
    ctx: click.Context,
    what: What,
    programs: Sequence[str],
    folder: Path,
    runs: int,
    cold: bool,
    as_json: bool,
    outputs: Sequence[Path],
) -> int:
    """Time programs on cases, and print the record; the command's exit status.

    hw4 itself always takes part: a program of this name is none other.
    """
    with Importing():
        from hw4cli.lab import endtoend
        from hw4cli.problem import suite
        from hw4cli.problem.casecheck import check_present

    if not what.cases:
        raise click.UsageError("name the cases, as in t01 t11-t13", ctx)
    selected = suite.select([what.cases])
    programs = [program for program in programs if program != "hw4"]
    commands = [(" ".join(program.split()), *program_command(program, ctx)) for program in programs]
    compared = endtoend.with_distinct_names(
        [endtoend.Program(*command) for command in (*commands, ("hw4", *program_command(None, ctx)))]
    )
    check_present(selected, folder)
    prepare_kernels(*program_command(None, ctx), selected)
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
    publish(result, as_json, outputs)
    return 0 if all(row.status == "ok" for row in rows) else 1

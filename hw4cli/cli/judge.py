"""`hw4 judge`: run a program on the cases, and judge it."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from hw4cli.cli.options import command_of, finite, folder_option

if TYPE_CHECKING:
    from rich.console import Console

    from hw4cli.record import Result, Standing

COLUMNS = "{:<5} {:<18} {:<5} {:>8} {:>6} {:>9}  {}"
COLOURS = {"AC": "green", "TLE": "yellow", "TLE+": "red", "NA": "red", "JE": "magenta"}


@click.command()
@click.argument("cases", nargs=-1)
@folder_option("Where the cases are (see hw4 gen).")
@click.option(
    "--program",
    metavar="COMMAND",
    help="What to judge: a command that takes INPUTFILE OUTPUTFILE.  [default: hw4 itself]",
)
@click.option(
    "--penalty",
    type=click.FloatRange(0, 1e9),
    callback=finite,
    default=60,
    show_default=True,
    help="Seconds a case that is not AC.",
)
@click.pass_context
def judge(ctx: click.Context, cases: tuple[str, ...], folder: Path, program: str | None, penalty: float) -> int:
    """Run a program on CASES (default: all thirty) and judge it by the assignment's rules.

    A run is killed 10 s past the case's limit (TLE+); wall time over the limit is TLE; any other failure, or an
    element off by more than 5e-3, is NA; else AC. JE is a failure of the judge itself. Time is the sum over AC
    cases. Exit status 0 if all are AC, 1 if not, 3 if cases are missing or the judge failed.
    """
    from rich.console import Console

    from hw4cli import suite
    from hw4cli.judge import Settings, check_present, judge_case
    from hw4cli.record import Rules, combine, standing

    selected = suite.select(cases)
    command, env = command_of(program, ctx)
    check_present(selected, folder)
    console = Console(highlight=False)
    _print_row(console, ("case", "(B, N, d)", "", "time s", "limit", "max error", ""), "bold")
    results = []
    for case in selected:
        with console.status(f"{case.name} is running"):
            result = combine([judge_case(case, command, folder, Settings(env))])
        results.append(result)
        _print_result(console, result)
    summary = standing("", results, [case.name for case in selected], Rules(penalty=penalty))
    _print_summary(summary)
    if summary.score is None:
        return 3
    return 0 if summary.passed == len(selected) else 1


def _print_row(console: "Console", cells: Sequence[str], style: str = "") -> None:
    from rich.text import Text

    console.print(Text(COLUMNS.format(*cells).rstrip(), style=style), soft_wrap=True)


def _print_result(console: "Console", result: "Result") -> None:
    def number(value: float | None, form: str) -> str:
        return "-" if value is None else format(value, form)

    cells = (
        result.case,
        str(tuple(result.shape)),
        str(result.verdict),
        number(result.wall, ".2f"),
        f"{result.limit:g}",
        number(result.max_error, ".1e"),
        result.reason,
    )
    _print_row(console, cells, COLOURS[result.verdict])


def _print_summary(standing: "Standing") -> None:
    click.echo()
    score = "not known" if standing.score is None else standing.score
    click.echo(f"{standing.passed} of {len(standing.cases)} cases AC, score {score}")
    total = standing.time + standing.penalty
    click.echo(f"Time {standing.time:.2f} s + Penalty {standing.penalty:.2f} s = {total:.2f} s")
    failed = sum(result.verdict == "JE" for result in standing.results.values())
    if failed:
        click.echo(f"{failed} case(s) could not be judged and are not counted")

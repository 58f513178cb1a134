"""`hw4 judge`: run a program on the cases, and judge it."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from hw4cli.cli.options import command_of, finite, folder_option

if TYPE_CHECKING:
    from rich.console import Console

    from hw4cli.verdict import Result

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
    from hw4cli.judge import check_present, judge_case
    from hw4cli.verdict import Verdict

    selected = suite.select(cases)
    command, env = command_of(program, ctx)
    check_present(selected, folder)
    console = Console(highlight=False)
    _print_row(console, ("case", "(B, N, d)", "", "time s", "limit", "max error", ""), "bold")
    results = []
    for case in selected:
        with console.status(f"{case.name} is running"):
            result = judge_case(case, command, folder, env)
        results.append(result)
        _print_result(console, result)
    _print_score(results, penalty)
    if any(result.verdict is Verdict.JE for result in results):
        return 3
    return 0 if all(result.verdict is Verdict.AC for result in results) else 1


def _print_row(console: "Console", cells: Sequence[str], style: str = "") -> None:
    from rich.text import Text

    console.print(Text(COLUMNS.format(*cells).rstrip(), style=style), soft_wrap=True)


def _print_result(console: "Console", result: "Result") -> None:
    def number(value: float | None, form: str) -> str:
        return "-" if value is None else format(value, form)

    cells = (
        result.case,
        str(result.shape),
        str(result.verdict),
        number(result.wall, ".2f"),
        f"{result.limit:g}",
        number(result.max_error, ".1e"),
        result.reason,
    )
    _print_row(console, cells, COLOURS[result.verdict])


def _print_score(results: "list[Result]", penalty: float) -> None:
    from hw4cli.verdict import Verdict, score, time_and_penalty

    judged = [result for result in results if result.verdict is not Verdict.JE]
    passed = sum(result.verdict is Verdict.AC for result in judged)
    time, penalties = time_and_penalty(judged, penalty)
    click.echo()
    known = len(judged) == len(results)
    click.echo(f"{passed} of {len(results)} cases AC, score {score(judged) if known else 'not known'}")
    click.echo(f"Time {time:.2f} s + Penalty {penalties:.2f} s = {time + penalties:.2f} s")
    if not known:
        click.echo(f"{len(results) - len(judged)} case(s) could not be judged and are not counted")

"""`hw4 scoreboard`: the ranking of everyone judged into a folder, here and as a page."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from hw4cli.cli.options import FILE, limits_option, rules_options

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    from hw4cli.record import Rules, Standing

SIGNS = {
    "AC": (".", "green"),
    "TLE": ("T", "yellow"),
    "TLE+": ("+", "red"),
    "NA": ("N", "red"),
    "JE": ("J", "magenta"),
    "not run": ("-", "dim"),
}
LONGEST_USER = 40  # characters of a name that are shown where there is room


@click.command()
@click.argument("folder", metavar="DIR", type=FILE)
@click.option(
    "--html", type=FILE, metavar="FILE", help="Write the board as a page, too: one file, to open or to publish."
)
@click.option("--title", metavar="TEXT", help="The page's title.  [default: DIR's name]")
@limits_option("Another time limit; may be given several times.")
@rules_options(tolerance=None, penalty=None, rank_by=None)
@click.option("--json", "as_json", is_flag=True, help="Print results.json instead of the table.")
def scoreboard(folder: Path, html: Path | None, title: str | None, as_json: bool, **wanted: Any) -> None:
    """Show the ranking of everyone judged into DIR, by `hw4 judge --output` or `hw4 judge --class`.

    Passed is the number of cases that are AC, Time their sum in seconds, Penalty a set time for each other case; a
    JE, the judge's own failure, costs nothing and leaves score and rank open. Nothing is run or changed.
    """
    from rich.console import Console

    from hw4cli.standings import as_judged, changed, decide, read

    entries = read(folder)
    rules = changed(as_judged(entries), **wanted)
    standings = decide(entries, rules)
    if html is not None:
        _write(html, standings, rules, title or folder.resolve().name)
    if as_json:
        from hw4cli.results import json_text

        click.echo(json_text(standings, rules), nl=False)
    else:
        console = Console(highlight=False)
        if not console.is_terminal:
            console = Console(highlight=False, width=10_000)  # a pipe cuts nothing off
        console.print(_table(standings, console))
        _print_below(console, standings, rules)
    if html is not None:
        click.echo(f"wrote {html}", err=True)


def _write(path: Path, standings: "Sequence[Standing]", rules: "Rules", title: str) -> None:
    from datetime import datetime

    from hw4cli.casefile import write_text
    from hw4cli.scoreboard import page

    write_text(path, page(standings, rules, title, datetime.now().astimezone()))


def _table(standings: "Sequence[Standing]", console: "Console") -> "Table":
    from rich.table import Table

    cases = standings[0].cases
    users = [_shown(one.user) for one in standings]
    header = ("Rank", "Passed", "Time", "Penalty", "Score")
    numbers = [_numbers(one) for one in standings]
    tens = "".join(case[:9].ljust(10) for case in cases[::10]).rstrip()  # stands above every tenth sign
    taken = sum(max(map(len, column)) + 1 for column in zip(header, *numbers, strict=True))
    room = console.width - taken - max(len(cases), len(tens)) - 1
    widest = max(user.cell_len for user in users)
    table = Table(box=None, padding=(0, 1, 0, 0), pad_edge=False, header_style="bold")
    table.add_column("User", width=max(8, min(widest, LONGEST_USER, room)), no_wrap=True, overflow="ellipsis")
    for name in header:
        table.add_column(name, justify="right", no_wrap=True)
    table.add_column(_shown(tens), no_wrap=True)
    for user, row, one in zip(users, numbers, standings, strict=True):
        table.add_row(user, *row, _strip(one))
    return table


def _numbers(one: "Standing") -> list[str]:
    score = "-" if one.score is None else str(one.score)
    return [str(one.rank or "-"), str(one.passed), f"{one.time:.2f}", f"{one.penalty:g}", score]


def _strip(one: "Standing") -> "Text":
    """A sign for each case."""
    from itertools import groupby

    from rich.text import Text

    words = [str(one.results[case].verdict) if case in one.results else "not run" for case in one.cases]
    runs = [(SIGNS[word], len(list(run))) for word, run in groupby(words)]
    return Text.assemble(*((sign * count, style) for (sign, style), count in runs))


def _print_below(console: "Console", standings: "Sequence[Standing]", rules: "Rules") -> None:
    """The legend, the rules, and what is to be said of single users."""
    from rich.text import Text

    legend = Text("\n")
    for word, (sign, style) in SIGNS.items():
        legend.append(sign, style).append(f" {word}   ")
    by = {"time": "Time + Penalty", "passed": "Passed, then Time"}[rules.rank_by]
    console.print(legend.append(f"ranked by {by}"), soft_wrap=True)
    for one in standings:
        close = [case for case, result in one.results.items() if result.borderline]
        first = one.note.strip().partition("\n")[0]
        for note in filter(None, (first, close and f"borderline in {' '.join(close)}")):
            console.print(_shown(f"{one.user}: {note}"), soft_wrap=True)


def _shown(text: str) -> "Text":
    """Text that cannot steer the terminal: names and notes are anybody's."""
    from rich.text import Text

    from hw4cli.tables import printable

    return Text(printable(text))

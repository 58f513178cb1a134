"""`hw4 scoreboard`: the ranking of all users judged into a folder, on the terminal and as a page."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from hw4cli.system.importing import Importing
from hw4cli.terminal.options import FILE, limits_option, rules_options
from hw4cli.terminal.params import FOLDER
from hw4cli.text.words import printable

if TYPE_CHECKING:
    from hw4cli.scoring.record import Rules, Standing


@click.command()
@click.argument("folder", metavar="DIR", type=FOLDER)
@click.option(
    "--html", type=FILE, metavar="FILE", help="Also write the board as a page: one file, to open or to publish."
)
@click.option(
    "--anonymous", is_flag=True, help="Show pseudonyms; DIR/pseudonyms.json, which only you can read, has the names."
)
@click.option("--title", metavar="TEXT", help="The page's title.  [default: DIR's name]")
@limits_option("Time limit of these cases; may be given several times.")
@rules_options(tolerance=None, penalty=None, rank_by=None)
@click.option("--json", "as_json", is_flag=True, help="Print results.json instead of the table.")
def scoreboard(
    folder: Path, html: Path | None, title: str | None, as_json: bool, anonymous: bool, **wanted: Any
) -> int:
    """Show the ranking of everyone judged into DIR, by `hw4 judge --output` or `hw4 judge --class`.

    Passed is the number of cases that are AC, Time their sum in seconds, Penalty a fixed time for each other case; a
    JE, a failure of the judge, has no penalty and leaves score and rank open. Nothing is run or changed.

    Exit status 3 if a journal is damaged, so that results may be lost; these users have no score.
    """
    with Importing():
        from hw4cli.scoring.pseudonyms import NAME, pseudonyms
        from hw4cli.scoring.standings import anonymize, compute, journal_paths, read, recorded_rules, with_changes
        from hw4cli.system.files import check_place
        from hw4cli.terminal.ranking import print_board, report_lost

    if html is not None:
        check_place(html, *journal_paths(folder), folder / NAME)
    entries = read(folder)
    rules = with_changes(recorded_rules(entries), **wanted)
    standings = compute(entries, rules)
    if anonymous:
        standings = anonymize(standings, pseudonyms(folder, [one.user for one in standings]), rules)
    if html is not None:
        _write(html, standings, rules, title or folder.resolve().name)
    if as_json:
        from hw4cli.scoring.results import json_text

        click.echo(json_text(standings, rules), nl=False)
    else:
        print_board(standings, rules)
    if html is not None:
        click.echo(printable(f"wrote {html}"), err=True)
    return report_lost(standings)


def _write(path: Path, standings: "Sequence[Standing]", rules: "Rules", title: str) -> None:
    from hw4cli.scoring.scoreboard import page
    from hw4cli.system.files import write_text
    from hw4cli.text.dates import now

    write_text(path, page(standings, rules, title, now()))

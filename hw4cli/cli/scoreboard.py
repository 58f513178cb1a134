"""`hw4 scoreboard`: the ranking of all users judged into a folder, on the terminal and as a page."""

from pathlib import Path
from typing import Any

import click

from hw4cli.cli.terminal.options import json_option, output_option, rules_options, shared, write_outputs
from hw4cli.cli.terminal.params import FOLDER
from hw4cli.cli.terminal.sections import Sections
from hw4cli.system.importing import Importing
from hw4cli.text.words import printable


@click.command(cls=Sections, rare=["title", "limits", "tolerance", "penalty", "rank_by", "step", "due", "late_policy"])
@click.argument("folder", metavar="DIR", type=FOLDER)
@click.option(
    "--anonymous", is_flag=True, help="Show pseudonyms; DIR/pseudonyms.json, which only you can read, has the names."
)
@shared("title", metavar="TEXT")
@rules_options
@json_option
@output_option(".html", ".json", ".csv", ".md")
def scoreboard(
    folder: Path, title: str | None, as_json: bool, anonymous: bool, outputs: tuple[Path, ...], **wanted: Any
) -> int:
    """Show the ranking of everyone who was judged.

    \b
    hw4 scoreboard results                      on the terminal
    hw4 scoreboard results -o board.html        also as a page, to publish
    hw4 scoreboard results --rank-by passed     by other rules

    DIR is what `hw4 judge -o DIR` wrote, of a class or of one program. Passed is the number of cases that are AC, Time
    their sum in seconds, Penalty a fixed time for each other case; a JE, a failure of the judge, has no penalty and
    leaves score and rank open. Nothing is run or changed.

    Exit status 3 if a journal is damaged, so that results may be lost; these users have no score.
    """
    with Importing():
        from hw4cli.cli.terminal.ranking import print_board, report_lost
        from hw4cli.judge.scoring import results, storedrules
        from hw4cli.judge.scoring.pseudonyms import NAME, pseudonyms
        from hw4cli.judge.scoring.standings import anonymize, compute, journal_paths, read, rules_of, with_changes
        from hw4cli.system.files import check_place

    for path in outputs:
        check_place(path, *journal_paths(folder), folder / NAME, folder / storedrules.NAME)
    entries = read(folder)
    rules = with_changes(rules_of(folder, entries), **wanted)
    standings = compute(entries, rules)
    if anonymous:
        standings = anonymize(standings, pseudonyms(folder, [one.user for one in standings]), rules)

    def board_page() -> str:
        from hw4cli.judge.scoring.scoreboard import page
        from hw4cli.text.dates import now

        return page(standings, rules, title or folder.resolve().name, now())

    texts = {
        ".html": board_page,
        ".json": lambda: results.json_text(standings, rules),
        ".csv": lambda: results.csv_text(standings),
        ".md": lambda: results.markdown(standings, rules),
    }
    write_outputs(outputs, texts)  # first: where that fails, nothing is printed
    if as_json:
        click.echo(results.json_text(standings, rules), nl=False)
    else:
        print_board(standings, rules)
    for path in outputs:
        click.echo(printable(f"wrote {path}"), err=True)
    return report_lost(standings)

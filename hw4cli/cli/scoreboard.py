"""`hw4 scoreboard`: the ranking of all users judged into a folder, on the terminal and as a page."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import click

from hw4cli.cli.terminal.options import RULES, json_option, output_option, rules_options, shared, write_outputs
from hw4cli.cli.terminal.params import FOLDER
from hw4cli.cli.terminal.sections import Sections
from hw4cli.system.importing import Importing
from hw4cli.text.words import printable


@click.command(cls=Sections, rare=["title", *RULES])
@click.argument("folders", metavar="DIR...", type=FOLDER, nargs=-1, required=True)
@click.option(
    "--anonymous", is_flag=True, help="Show pseudonyms; DIR/pseudonyms.json, which only you can read, has the names."
)
@shared("title", metavar="TEXT")
@rules_options
@json_option
@output_option(".html", ".json", ".csv", ".md")
def scoreboard(
    folders: tuple[Path, ...],
    title: str | None,
    as_json: bool,
    anonymous: bool,
    outputs: tuple[Path, ...],
    **wanted: Any,
) -> int:
    """Show the ranking of everyone who was judged.

    \b
    hw4 scoreboard results                      on the terminal
    hw4 scoreboard results -o board.html        also as a page, to publish
    hw4 scoreboard results --rank-by passed     by other rules
    hw4 scoreboard hw4 hw4-amd -o boards.html   several, with an index

    DIR is what `hw4 judge -o DIR` wrote, of a class or of one program. Passed is the number of cases that are AC, Time
    their sum in seconds, Penalty a fixed time for each other case; a JE, a failure of the judge, has no penalty and
    leaves score and rank open. Nothing is run or changed. Of several DIR, boards.html is an index that leads to
    boards-DIR.html of each, and each leads back.

    Exit status 3 if a journal is damaged, so that results may be lost; these users have no score.
    """
    with Importing():
        from hw4cli.cli.terminal.ranking import print_board, report_lost
        from hw4cli.judge.scoring import results, storedrules
        from hw4cli.judge.scoring.pseudonyms import NAME, pseudonyms
        from hw4cli.judge.scoring.scoreboard import Named, index_page, page
        from hw4cli.judge.scoring.standings import anonymize, compute, journal_paths, read, rules_of, with_changes
        from hw4cli.system.files import check_place, write_text
        from hw4cli.text.dates import now

    names = [folder.resolve().name for folder in folders]
    if len(folders) > 1:
        _check_several(names, as_json, outputs)

    def board(folder: Path, name: str) -> Named:
        entries = read(folder)
        rules = with_changes(rules_of(folder, entries), **wanted)
        standings = compute(entries, rules)
        if anonymous:
            standings = anonymize(standings, pseudonyms(folder, [one.user for one in standings]), rules)
        return Named(name, standings, rules)

    written = [(path, path) if len(folders) == 1 else (path, _beside(path, name)) for path in outputs for name in names]
    for path in {*outputs, *(place for _, place in written)}:
        for folder in folders:
            check_place(path, *journal_paths(folder), folder / NAME, folder / storedrules.NAME)
    boards = [board(folder, name) for folder, name in zip(folders, names, strict=True)]
    date = now()
    if len(boards) == 1:
        (only,) = boards
        texts = {
            ".html": lambda: page(only.standings, only.rules, title or only.name, date),
            ".json": lambda: results.json_text(only.standings, only.rules),
            ".csv": lambda: results.csv_text(only.standings),
            ".md": lambda: results.markdown(only.standings, only.rules),
        }
        write_outputs(outputs, texts)  # first: where that fails, nothing is printed
    for path in outputs if len(boards) > 1 else ():
        for one in boards:  # first: an index leads nowhere else
            text = page(one.standings, one.rules, one.name, date, index=path.name)
            write_text(_beside(path, one.name), text)
        places = {one.name: _beside(path, one.name).name for one in boards}
        write_text(path, index_page(boards, places, title or "Scoreboards", date))
    for number, one in enumerate(boards):
        if as_json:
            click.echo(results.json_text(one.standings, one.rules), nl=False)
            continue
        if len(boards) > 1:
            click.echo(f"{chr(10) * bool(number)}{printable(one.name)}")
        print_board(one.standings, one.rules)
    for path in dict.fromkeys([*outputs, *(place for _, place in written)]):
        click.echo(printable(f"wrote {path}"), err=True)
    return report_lost([standing for one in boards for standing in one.standings])


def _check_several(names: Sequence[str], as_json: bool, outputs: Sequence[Path]) -> None:
    """Raise UsageError where several boards cannot be shown as asked."""
    if twice := sorted({name for name in names if names.count(name) > 1}):
        raise click.UsageError(f"two folders are called {printable(twice[0])}: boards are named after their folders")
    if as_json:
        raise click.UsageError("--json is of one DIR: leave out the others")
    if other := [path for path in outputs if path.suffix != ".html"]:
        raise click.UsageError(f"{printable(other[0])}: of several DIR there are pages alone (-o boards.html)")


def _beside(index: Path, name: str) -> Path:
    """The page of a board, beside the index."""
    return index.with_name(f"{index.stem}-{name}{index.suffix}")

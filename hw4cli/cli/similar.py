"""`hw4 similar`: which programs of a class are similar, and in which lines."""

import sys
from collections.abc import Sequence
from itertools import zip_longest
from pathlib import Path
from typing import TYPE_CHECKING

import click

from hw4cli.cli.terminal.options import json_option, output_option, write_outputs
from hw4cli.cli.terminal.params import FOLDER, Number, PathName, complete_user
from hw4cli.errors import InputError, MachineError
from hw4cli.system.importing import Importing
from hw4cli.text.words import columns, print_message, printable, wrapped

if TYPE_CHECKING:
    from hw4cli.judge.similarity.pairs import Pair
    from hw4cli.judge.similarity.report import Similarities
    from hw4cli.judge.similarity.works import Work

PRIVATE = 0o600
MOST_ROWS = 40  # pairs in a table on the terminal
FEW = 10  # pairs of one student
PLAIN_WIDTH = 160  # of lines side by side where the output is no terminal
NUMBER = 5  # columns of a line's number


@click.command()
@click.argument("submissions", metavar="SUBMISSIONS", type=FOLDER)
@click.argument("users", nargs=-1, metavar="[USER [USER]]", shell_complete=complete_user)
@click.option(
    "--exclude",
    "excluded",
    multiple=True,
    type=PathName(path_type=Path),
    metavar="DIR|FILE",
    help="Starter code, which does not count; may be given several times.",
)
@click.option(
    "--with",
    "former",
    multiple=True,
    type=FOLDER,
    metavar="DIR",
    help="Compare with the submissions of a former year, too; may be given several times.",
)
@click.option(
    "--threshold",
    type=Number(0, 100),
    metavar="PERCENT",
    help="List pairs that are at least this similar.  [default: 40]",
)
@json_option
@output_option(".html", ".json", ".csv")
def similar(
    submissions: Path,
    users: tuple[str, ...],
    excluded: tuple[Path, ...],
    former: tuple[Path, ...],
    threshold: float | None,
    as_json: bool,
    outputs: tuple[Path, ...],
) -> int:
    """Show which programs of a class are similar.

    \b
    hw4 similar submissions                    the pairs, the most similar first
    hw4 similar submissions -o pairs.html      with their lines side by side
    hw4 similar submissions ann                the programs that ann's is like
    hw4 similar submissions ann bob            their common lines
    hw4 similar submissions --with 2025 --exclude starter

    Submissions are read as `hw4 judge --class` reads them. Names, comments, numbers, types, the format, the order of
    functions and the files that hold them do not count; what hw4 kit writes does not, either. hw4's own programs are
    compared with, too. The number is no proof: docs/similar.md says what it means.

    Exit status 3 if a submission cannot be read before you unpack it.
    """
    with Importing():
        from hw4cli.judge.similarity import report
        from hw4cli.judge.similarity.pairs import THRESHOLD
        from hw4cli.system.files import check_place
        from hw4cli.text.dates import now

    if len(users) > 2:
        raise InputError("name one student, or the two of a pair")
    for path in outputs:
        check_place(path)
    found, unread = _compared(submissions, users, excluded, former, THRESHOLD if threshold is None else threshold)
    title = submissions.resolve().name
    texts = {
        ".html": lambda: report.page(found, title, now()),
        ".json": lambda: report.json_text(found),
        ".csv": lambda: report.csv_text(found),
    }
    write_outputs(outputs, texts, PRIVATE)  # they quote the students' programs
    if as_json:
        click.echo(report.json_text(found), nl=False)
    else:
        _print(found)
    for path in outputs:
        click.echo(printable(f"wrote {path}"), err=True)
    for remark in found.remarks():
        print_message(remark)
    return MachineError.exit_code if unread else 0


def _compared(
    folder: Path, users: Sequence[str], excluded: Sequence[Path], former: Sequence[Path], threshold: float
) -> "tuple[Similarities, bool]":
    """The result, and whether a submission is a file that first has to be unpacked by hand."""
    with Importing():
        from hw4cli.judge.similarity import pairs, report, works
        from hw4cli.judge.submission import scan

    for one in former:
        if one.resolve() == folder.resolve():
            raise InputError(f"--with {one} is the class itself")
    starter = works.starter_code(excluded)
    submissions = scan(folder)
    found, missing = works.taken_in(submissions, starter)
    others = works.own_work(starter)
    unread = any(one.homeless for one in submissions)
    for one in former:
        theirs, lost = works.taken_in(scan(one), starter, f"{printable(one.name or one)}/")
        others += theirs
        missing = {**missing, **lost}
    sought = [_sought(user, [*found, *others], missing) for user in users]
    if len(sought) == 2:
        first, second = sorted(sought, key=lambda one: one.is_own)
        chosen = [pairs.compared(first, second)]
    elif sought:
        chosen = pairs.ranked([pairs.compared(sought[0], one) for one in (*found, *others) if one is not sought[0]])[
            :FEW
        ]
    else:
        chosen = pairs.similar(found, others, threshold)
    return report.Similarities(found, others, chosen, pairs.usual(found), missing, threshold, users), unread


def _sought(user: str, works: "Sequence[Work]", missing: dict[str, str]) -> "Work":
    """The work of a student. InputError if there is none."""
    for one in works:
        if one.label == user:
            return one
    if user in missing:
        raise InputError(f"{user} is not compared: {missing[user]}")
    raise InputError(f"there is no submission of {user!r}")


def _print(found: "Similarities") -> None:
    from hw4cli.judge.similarity.report import COLUMNS, MEANING, cells
    from hw4cli.text import tables

    width = columns(sys.stdout)
    if found.pairs:
        rows = [cells(pair) for pair in found.pairs[:MOST_ROWS]]
        click.echo(tables.plain(COLUMNS, rows, width))
    if len(found.pairs) > MOST_ROWS:
        click.echo(f"… and {len(found.pairs) - MOST_ROWS:,} more pairs: -o FILE.csv has all\n")
    if len(found.sought) == 2:
        _print_lines(found.pairs[0], width or PLAIN_WIDTH)
    click.echo(wrapped(" ".join([*found.sentences(), MEANING]), width))


def _print_lines(pair: "Pair", width: int) -> None:
    """The common lines of a pair, side by side."""
    from hw4cli.judge.similarity.report import where

    half = (width - 3) // 2
    for one, other in pair.extracts:
        sides = [(pair.first, one), (pair.second, other)]
        heads = [_cut(f"{work.label}: {where(work, extract)}", half) for work, extract in sides]
        click.echo(f"{heads[0]} | {heads[1]}".rstrip())
        columns_of_lines = [
            [
                _cut(f"{number:>{NUMBER}}{'*' if number in extract.common else ' '} {text}", half)
                for number, text in enumerate(
                    work.sources[extract.source].lines[extract.first - 1 : extract.last], extract.first
                )
            ]
            for work, extract in sides
        ]
        for mine, theirs in zip_longest(*columns_of_lines, fillvalue=" " * half):
            click.echo(f"{mine} | {theirs}".rstrip())
        click.echo()


def _cut(text: str, width: int) -> str:
    """A text that takes just so many columns of a terminal."""
    from rich.cells import cell_len, set_cell_size

    text = printable(text.expandtabs(4))
    return set_cell_size(text, width) if cell_len(text) <= width else set_cell_size(text, width - 1) + "…"

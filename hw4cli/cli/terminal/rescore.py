"""`hw4 judge --rescore`: decide again, by other rules, what was judged before. Nothing runs."""

import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from hw4cli.system.importing import Importing
from hw4cli.text.words import columns, counted, print_message, printable

if TYPE_CHECKING:
    from hw4cli.judge.scoring.record import Rules, Standing

CHANGES_SHOWN = 20
LONGEST_USER = 24  # characters of a name on a terminal


def rescore(folder: Path, output: Path | None, as_json: bool, **wanted: Any) -> int:
    """Apply other rules to what `hw4 judge -o DIR` ran, without running anything. The exit status.

    The folder is one program's, or a class's with a folder for each user. Rules that are not `wanted` stay as they are
    stored. The rules and the results' files are written again, or the results into `output`; the journals stay as they
    are. A run that was killed before a longer limit stays TLE+, with a message: only a new run can show whether it
    ends.
    """
    with Importing():
        from hw4cli.cli.terminal.ranking import report_lost
        from hw4cli.judge import handout
        from hw4cli.judge.scoring import journal, regrades, results, standings, storedrules
        from hw4cli.judge.scoring.pseudonyms import pseudonyms
        from hw4cli.system.files import locked, make_folder

    entries = standings.read(folder)
    make_folder(output or folder)
    in_place = output is None or output.samefile(folder)
    with locked(folder):  # so that of two at once, the second changes the first one's rules
        kept = standings.rules_of(folder, entries)
        rules = standings.with_changes(kept, **wanted)
        before, after = standings.compute(entries, kept), standings.compute(entries, rules)
        if in_place and rules != kept:
            storedrules.write(folder, rules)
        of_class = in_place and any((folder / one.user / journal.NAME).is_file() for one in after)
        if of_class:
            regrades.note(folder, after, rules)
        results.write(output or folder, after, rules)
        if of_class:
            handout.write(folder, after, rules, pseudonyms(folder, [one.user for one in after]))
    if as_json:
        click.echo(results.json_text(after, rules), nl=False)
    else:
        _print(after, rules)
        _print_changes(before, after)
    _tell_unknown(after)
    return report_lost(after)


def _print(standings: "Sequence[Standing]", rules: "Rules") -> None:
    """The cases of one user, or the ranking of many."""
    from hw4cli.cli.terminal.casetable import CaseTable
    from hw4cli.judge.scoring.results import STANDING_COLUMNS, standing_cells
    from hw4cli.text import tables

    if len(standings) > 1:
        width = columns(sys.stdout)
        rows = [standing_cells(_shortened(one) if width else one) for one in standings]
        click.echo(tables.plain(STANDING_COLUMNS, rows, width), nl=False)
        return
    [one] = standings
    judged = [one.results[case] for case in one.cases if case in one.results]
    with CaseTable(rules, repeated=any(result.attempts > 1 for result in judged)) as table:
        for result in judged:
            table.judged(result)
        table.ended(one)


def _shortened(one: "Standing") -> "Standing":
    """A standing whose texts leave a terminal's lines to the numbers."""
    user = one.user if len(one.user) <= LONGEST_USER else f"{one.user[: LONGEST_USER - 1]}…"
    return replace(one, user=user, note=one.note.strip().partition("\n")[0])


def _print_changes(before: "Sequence[Standing]", after: "Sequence[Standing]") -> None:
    """The verdicts that the rules have changed, as many as one wants to read."""

    def who(one: "Standing") -> tuple[str, str]:
        return one.user, str(one.session.get("started"))

    changes = [
        f"{now.user} {case}: {then.results[case].verdict} → {result.verdict}"
        for then, now in zip(sorted(before, key=who), sorted(after, key=who), strict=True)
        for case, result in now.results.items()
        if case in then.results and result.verdict is not then.results[case].verdict
    ]
    click.echo(f"\n{counted(len(changes), 'verdict') if changes else 'no verdict'} changed")
    for change in changes[:CHANGES_SHOWN]:
        click.echo(f"  {printable(change)}")
    if len(changes) > CHANGES_SHOWN:
        click.echo(f"  … and {len(changes) - CHANGES_SHOWN} more")


def _tell_unknown(standings: "Sequence[Standing]") -> None:
    unknown = [f"{one.user} {case}" for one in standings for case, result in one.results.items() if result.unknown]
    if unknown:
        names = ", ".join(unknown[:CHANGES_SHOWN]) + (", …" if len(unknown) > CHANGES_SHOWN else "")
        print_message(
            f"{counted(len(unknown), 'case')} killed before the longer limit, and TLE+ until run again: {names}"
        )

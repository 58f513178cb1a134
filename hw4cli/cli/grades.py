"""`hw4 grades`: the gradebook of everyone who was judged, or Gradescope's results of one student."""

import sys
from pathlib import Path
from typing import Any

import click

from hw4cli.cli.terminal.options import FILE, json_option, output_option, rules_options, write_outputs
from hw4cli.cli.terminal.params import FOLDER
from hw4cli.cli.terminal.sections import Sections
from hw4cli.system.importing import Importing
from hw4cli.text.words import columns, printable


@click.command(cls=Sections, rare=["limits", "tolerance", "penalty", "rank_by", "step", "due", "hidden"])
@click.argument("folder", metavar="DIR", type=FOLDER)
@click.option(
    "--points",
    type=FILE,
    metavar="CSV",
    help="Add the points of this table, id,performance,report, or of a filled gradebook.",
)
@click.option(
    "--metadata",
    type=FILE,
    metavar="JSON",
    help="Gradescope's submission_metadata.json, which has the due date and the time of submission.",
)
@click.option("--hidden", is_flag=True, help="Show the tests on Gradescope only after the grades are published.")
@rules_options
@json_option
@output_option(".csv", ".json")
def grades(
    folder: Path,
    points: Path | None,
    metadata: Path | None,
    hidden: bool,
    as_json: bool,
    outputs: tuple[Path, ...],
    **wanted: Any,
) -> int:
    """Write the gradebook of everyone who was judged.

    \b
    hw4 grades results -o gradebook.csv        a row a student, to import
    hw4 grades results --points gradebook.csv  with the columns that you filled
    hw4 grades results/ann -o results.json     of one: Gradescope's document

    The judge gives 60 points; performance and report, 20 each, are yours to give. docs/grading.md has more.

    Exit status 3 if a journal is damaged, or if the judge failed on the one whose document is wanted.
    """
    with Importing():
        from hw4cli.cli.terminal.ranking import report_lost
        from hw4cli.errors import InputError
        from hw4cli.judge.scoring import gradebook, gradescope, journal, storedrules
        from hw4cli.judge.scoring.standings import compute, journal_paths, read, rules_of, with_changes
        from hw4cli.system.files import check_place
        from hw4cli.text import tables

    for path in outputs:
        check_place(path, *journal_paths(folder))
    entries = read(folder)
    of_class = (folder / journal.NAME).is_file() and (folder.parent / storedrules.NAME).is_file()
    rules = with_changes(rules_of(folder.parent if of_class else folder, entries), **wanted)
    standings = compute(entries, rules)
    single = as_json or metadata or any(path.suffix == ".json" for path in outputs)
    if single and len(standings) > 1:
        raise InputError(f"Gradescope's documents are of one student: name one's folder, such as {folder}/USER")
    if metadata:
        one, rules = gradescope.with_metadata(standings[0], rules, gradescope.read_metadata(metadata))
        standings = [one]
    found = gradebook.grades(standings, rules, gradebook.read_table(points) if points else None)
    texts = {
        ".csv": lambda: gradebook.csv_text(found),
        ".json": lambda: gradescope.results_text(found[0], hidden),
    }
    write_outputs(outputs, texts)  # first: where that fails, nothing is printed
    if as_json:
        click.echo(gradescope.results_text(found[0], hidden), nl=False)
    else:
        rows = [[printable(cell) for cell in gradebook.cells(one)] for one in found]
        click.echo(tables.plain(gradebook.COLUMNS, rows, columns(sys.stdout)), nl=False)
        if rules.late_policy:
            click.echo(f"\nlate: {rules.late_policy}")
    for path in outputs:
        click.echo(printable(f"wrote {path}"), err=True)
    return report_lost(standings) or (3 if single and standings[0].score is None else 0)

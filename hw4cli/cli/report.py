"""`hw4 report`: the assignment's report, or the work log, from a folder of records."""

import sys
from pathlib import Path
from shlex import quote
from typing import TYPE_CHECKING

import click

from hw4cli.cli.terminal.grammar import CASES, KERNELS, SHAPES, What, what_argument
from hw4cli.cli.terminal.options import output_option, shared
from hw4cli.cli.terminal.params import FOLDER, OneOf
from hw4cli.plans.ladder import VARIANTS
from hw4cli.system.importing import Importing
from hw4cli.text.words import columns, counted, printable, wrapped

if TYPE_CHECKING:
    from hw4cli.show.report.check import Lack

FORMS = ["assignment", "worklog", "demo"]


@click.command()
@click.argument("folder", metavar="DIR", type=FOLDER)
@what_argument(KERNELS, CASES, SHAPES, kernels=list(VARIANTS))
@click.option(
    "--form",
    type=OneOf(FORMS),
    default=FORMS[0],
    show_default=True,
    help="The assignment's sections 1.a to 5.b (report.md), a log of each optimisation (worklog.md), or questions for "
    "a demonstration (demo.md).",
)
@output_option(".pdf")
@click.option("--check", is_flag=True, help="Write nothing; list what is missing or does not agree.")
@shared("force", is_flag=True)
@click.pass_context
def report(
    ctx: click.Context, /, folder: Path, what: What, form: str, outputs: tuple[Path, ...], check: bool, force: bool
) -> int:
    """Write the assignment's report from a folder of records.

    \b
    hw4 report mine                            about your fastest kernel
    hw4 report mine flash t28                  about this one, on this case
    hw4 report mine -o hw4_112000000.pdf       also prints it; needs Chromium
    hw4 report mine --check                    what is still missing
    hw4 report mine --form demo                questions to its author

    DIR, or folders in it, hold what `hw4 bench`, `tune`, `profile`, `check` and `judge` wrote by -o; a record that is
    not used is named. Into DIR go report.md, its charts in figures/, and report.html. Your words go between the blocks
    of report.md: a later run renews the blocks (between marks <!-- hw4: ... -->) and nothing else. Where text would be
    lost, --force keeps a copy as report-1.md.

    Exit status 1 if --check finds something.
    """
    pdf, kernel = (outputs or (None,))[-1], (what.kernels or (None,))[-1]
    cases = [*filter(None, what.cases.split(",")), *("x".join(map(str, shape.sizes)) for shape in what.shapes)]
    if len(outputs) > 1 or len(what.kernels) > 1 or len(cases) > 1:
        raise click.UsageError("a report is one, about one kernel and one case", ctx)
    case = cases[0] if cases else None  # as the records name it
    if check and (pdf or force):
        raise click.UsageError(f"--check writes nothing: leave out {'--output' if pdf else '--force'}", ctx)
    with Importing():
        from hw4cli.show.report import page
        from hw4cli.show.report import pdf as printer
        from hw4cli.show.report.check import lacks
        from hw4cli.show.report.document import blanks, lacking
        from hw4cli.show.report.material import check_kernel, gathered
        from hw4cli.show.report.write import FORMS as FILES
        from hw4cli.show.report.write import check_page, check_places, settings_of, write_report
        from hw4cli.system.files import write_text

    path = folder / f"{FILES[form]}.md"
    check_places(folder, path.name, path.with_suffix(".html").name)
    kept = settings_of(path, form)
    material = gathered(
        folder, kernel or kept.get("kernel", ""), case or kept.get("case", ""), named=kernel is not None
    )
    check_kernel(material)
    if check:
        return _print(lacks(path, material, form))
    html = path.with_suffix(".html")
    check_page(html, force)
    if pdf:
        printer.check_target(pdf)
    text = write_report(path, material, form, force)
    write_text(html, page.page(text, folder))
    _say(f"wrote {path}, {html}")
    if pdf:
        printer.print_page(html, pdf)
        _say(f"wrote {pdf}")
    for problem in (*material.problems, *material.unused):
        _say(problem)
    if open_ends := len(blanks(text)) + len(lacking(text)):
        again = quote(str(folder)) + ("" if form == FORMS[0] else f" --form {form}")
        _say(f"{counted(open_ends, 'blank')} left: `hw4 report {again} --check` lists what is missing")
    return 0


def _print(found: "list[Lack]") -> int:
    for one in found:
        click.echo(wrapped(printable(f"{one.where}: {one.what}"), columns(sys.stdout), " " * 4, first=""))
    _say(f"{counted(len(found), 'thing')} to do" if found else "nothing is missing")
    return 1 if found else 0


def _say(sentence: str) -> None:
    click.echo(wrapped(printable(sentence), columns(sys.stderr), " " * 4, first=""), err=True)

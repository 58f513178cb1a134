"""`hw4 lab`: records as a page to look at."""

from pathlib import Path

import click

from hw4cli.system.importing import Importing
from hw4cli.terminal.options import FILE
from hw4cli.text.words import printable


@click.command()
@click.argument("records", nargs=-1, required=True, type=FILE, metavar="RECORDS...")
@click.option("--html", type=FILE, required=True, metavar="FILE", help="The page: one file, to open or to publish.")
@click.option("--title", metavar="TEXT", default="hw4 lab", show_default=True, help="The page's title.")
def lab(records: tuple[Path, ...], html: Path, title: str) -> None:
    """Make one page of RECORDS, to choose and to compare in: it needs a browser and nothing else.

    RECORDS are what `hw4 bench --output` wrote, of kernels, tiles or whole programs, on any GPUs. The page shows times,
    rates and errors over N or case by case, the ladder, tiles, programs, and each kernel's source. Example: hw4 lab
    benchmarks/*.json --html lab.html
    """
    with Importing():
        from hw4cli.show.labpage import page
        from hw4cli.show.records import load
        from hw4cli.system.files import check_place, write_text

    check_place(html, *records)
    write_text(html, page([load(path) for path in records], title))
    click.echo(printable(f"wrote {html}"), err=True)

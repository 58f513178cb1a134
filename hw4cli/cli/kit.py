"""`hw4 kit`: a folder to begin the homework in."""

from pathlib import Path

import click

from hw4cli.cli.terminal.options import suite_option
from hw4cli.cli.terminal.params import FOLDER, complete_cases
from hw4cli.errors import InputError
from hw4cli.resources import data_path
from hw4cli.system.importing import Importing
from hw4cli.text.words import printable

# What is in the folder, by the name of its template.
FILES = {
    "hw4.cu": "kit-hw4.cu.txt",
    "Makefile": "kit-makefile.txt",
    "judge.slurm": "kit-judge.slurm.txt",
    "README.md": "kit-readme.md",
}


@click.command()
@click.argument("folder", metavar="DIR", type=FOLDER)
@click.argument("cases", nargs=-1, metavar="[CASE ...]", shell_complete=complete_cases)
@suite_option
def kit(folder: Path, cases: tuple[str, ...]) -> None:
    """Make a folder to begin the homework in.

    \b
    hw4 kit mine             with the case t01 and its answer
    hw4 kit mine t01-t10     with more of them

    DIR gets an hw4.cu that reads the input and writes the output, with the kernel left to write, a Makefile, the cases,
    a script for Slurm and a README. What is in it already is left alone.
    """
    with Importing():
        from hw4cli.judge.casewatch import gen_in_subprocess
        from hw4cli.problem import suite
        from hw4cli.system.files import make_folder, write_text

    names = [case.name for case in suite.select(cases or list(suite.cases())[:1])]
    there = [name for name in FILES if (folder / name).exists() or (folder / name).is_symlink()]
    cases_there = all((folder / "testcases" / f"{name}{end}").exists() for name in names for end in ("", ".out"))
    if len(there) == len(FILES) and cases_there:  # else it was interrupted, or more cases are wanted
        raise InputError(f"{folder} has {', '.join(there)} already: take another folder")
    make_folder(folder)
    for name, template in FILES.items():
        if name not in there:
            write_text(folder / name, data_path(f"templates/{template}").read_text(encoding="utf-8"))
    make_folder(folder / "testcases")
    gen_in_subprocess([*names, "--dir", str(folder / "testcases")], force=False)
    for name in FILES:
        click.echo(printable(f"{'kept ' if name in there else ''}{folder / name}"))
    click.echo(printable(f"{folder / 'testcases'}: {' '.join(names)}"))

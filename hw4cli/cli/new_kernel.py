"""`hw4 new-kernel`: the file of a new kernel."""

import shlex
import sys
from pathlib import Path

import click

from hw4cli.cli.terminal.options import FILE
from hw4cli.cli.terminal.params import OneOf
from hw4cli.errors import InputError
from hw4cli.plans.ladder import VARIANTS
from hw4cli.resources import data_path
from hw4cli.system.importing import Importing
from hw4cli.text.words import columns, wrapped

FIRST = """\
{path} is the code of {base} under its own name: change it, and fill in its first lines."""
COMMANDS = """
  hw4 check {path}
      compiles it for every architecture, without a GPU
  hw4 check {path} --run
      executes it on the CPU, and looks for races and other mistakes
  hw4 testcases/t01 my.out --kernel {path}
      computes with it; without a GPU, a small file by --device emulate
  hw4 bench {base} {path} t28
      checks and times it
"""
RUNG = "To make it a rung of the ladder, {move}put this entry into {place}, behind {constant}:"
LAST = """\
Where it differs from {base} in tiles, threads, shared memory or launches, give the entry these fields, too \
(docs/architecture.md, "Adding a rung of the ladder"). `make test` tests it."""


@click.command()
@click.argument("file", type=FILE)
@click.option(
    "--from",
    "base",
    type=OneOf([*VARIANTS]),
    default="naive",
    show_default=True,
    metavar="KERNEL",
    help="The kernel of the ladder to begin from.",
)
def new_kernel(file: Path, base: str) -> None:
    """Begin a kernel of your own, from one of the ladder.

    FILE is NAME.cu, or NAME alone: `hw4 new-kernel mine --from shared`. It gets the other kernel's code with its
    functions renamed, and the header lines to fill in. It runs as it is: see hw4 check, and --kernel of hw4 run. A file
    that is there already is left alone.
    """
    with Importing():
        from hw4cli.lab import newkernel
        from hw4cli.system.files import check_place, write_text

    name = file.name.removesuffix(".cu")
    newkernel.check_name(name)
    path = file.with_name(f"{name}.cu")
    if path.exists() or path.is_symlink():
        raise InputError(f"{path} is there already: take another name, or remove it")
    check_place(path)
    write_text(path, newkernel.text_of(name, base))
    shown = str(path) if path.parent != Path() else f"./{path}"
    ours = path.resolve().parent == data_path("kernels").resolve()
    facts = {
        "path": shlex.quote(shown),
        "base": base,
        "move": "" if ours else f"move it to kernels/{name}.cu and ",
        "place": newkernel.place(base),
        "constant": base.upper(),
    }
    width = columns(sys.stdout)
    first, rung, last = (wrapped(text.format(**facts), width) for text in (FIRST, RUNG, LAST))
    entry = newkernel.entry(name, base)
    click.echo(f"{first}\n{COMMANDS.format(**facts)}\n{rung}\n\n{entry}\n{last}")

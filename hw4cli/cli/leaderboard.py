"""`hw4 leaderboard`: submissions on a workload and a GPU, measured, kept and ranked."""

import json
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click

from hw4cli.compute.variants import VARIANTS
from hw4cli.errors import InputError, MachineError
from hw4cli.problem.shape import Shape
from hw4cli.system.importing import Importing
from hw4cli.terminal.options import FILE, json_option, program_command, shape_option
from hw4cli.terminal.params import FOLDER, KernelName, complete_cases, complete_command
from hw4cli.text.dates import now
from hw4cli.text.words import columns, print_message, printable, wrapped

if TYPE_CHECKING:
    from hw4cli.leaderboard.ranking import Board
    from hw4cli.problem.suite import Case

SECONDS = 60.0  # that a run of a program may take on a shape that is not a case's
DIR = click.option(
    "--dir", "folder", type=FOLDER, default=Path("leaderboard"), show_default=True, help="The leaderboard's folder."
)


@click.group()
def leaderboard() -> None:
    """Submit kernels and programs to a leaderboard, and show it.

    A leaderboard is a folder with one file, to which submissions are only appended. It has a board for each workload
    and GPU. Example: hw4 leaderboard run ./mine.cu --case t28 --user ann; hw4 leaderboard show --html page.html
    """


@leaderboard.command()
@click.argument("kernel", required=False, type=KernelName(list(VARIANTS)), metavar="[KERNEL]")
@click.option(
    "--program",
    metavar="COMMAND",
    shell_complete=complete_command,
    help="Submit a program that takes INPUTFILE OUTPUTFILE: whole processes are timed.",
)
@click.option("--case", "case_name", metavar="CASE", shell_complete=complete_cases, help="A case of the suite.")
@shape_option("A shape, instead of a case.")
@click.option("--user", required=True, metavar="NAME", help="Whose submission it is: a person or a team.")
@click.option("--author", "authors", multiple=True, metavar="NAME", help="A member of the team; several times.")
@DIR
@json_option("leaderboard")
@click.pass_context
def run(
    ctx: click.Context,
    /,
    kernel: str | None,
    program: str | None,
    case_name: str | None,
    shape: Shape | None,
    user: str,
    authors: tuple[str, ...],
    folder: Path,
    as_json: bool,
) -> int:
    """Submit KERNEL, or a program, in three stages.

    KERNEL is one of the ladder or a file of your own, as in ./mine.cu. The test compares its answer with float64. The
    benchmark times it on the same data. The ranked run, which counts, times it in a new process, on new random data,
    with a cold L2 cache. Every submission is kept.

    Exit status 1 if it was wrong or failed.
    """
    if (kernel is None) == (program is None):
        raise click.UsageError("name a kernel or give --program COMMAND, and not both", ctx)
    if (case_name is None) == (shape is None):
        raise click.UsageError("name a case (--case t28) or give a shape (--shape 4,16384,64), and not both", ctx)
    with Importing():
        from hw4cli.device.ownkernel import kernel_named
        from hw4cli.leaderboard import entries, stages, workload
        from hw4cli.leaderboard.tables import standing_words
        from hw4cli.runner.gpulock import gpu_lock

    who, members = _name(user, "--user"), tuple(_name(author, "--author") for author in authors)
    case = _case(case_name, shape)
    command, name = None, kernel or " ".join(str(program).split())
    if program is not None:
        command, _ = program_command(program, ctx)
    elif kernel:
        kernel_named(kernel)  # or a wrong file would be found after the GPU was waited for
    entries.check_folder(folder)

    def say(stage: str, outcome: str) -> None:
        lines = wrapped(printable(outcome), columns(sys.stderr if as_json else sys.stdout), " " * 11, f"{stage:<11}")
        click.echo(lines, err=as_json)

    with gpu_lock(os.environ, print_message):  # others would make it slower
        if kernel:
            outcome = stages.kernel_stages(kernel, case.shape, case.seed, say)
        else:
            outcome = stages.program_stages(name, command or [], case, say)
    timed = workload.KERNEL if kernel else workload.PROGRAM
    entry = entries.Entry(
        **vars(outcome),
        user=who,
        authors=members,
        program=printable(name),
        workload=workload.Workload.of(case.shape, timed),
        date=now().replace(microsecond=0),
    )
    entries.append(folder, entry)
    if as_json:
        click.echo(json.dumps(entry.as_json(), indent=1))
    elif entry.status == entries.RANKED:
        click.echo(wrapped(standing_words(entry, entries.read(folder).entries), columns(sys.stdout)))
    return 0 if entry.status == entries.RANKED else 1


def _name(text: str, option: str) -> str:
    """A person's or team's name. InputError if it is none, or too long for a table."""
    from hw4cli.leaderboard.entries import LONGEST_NAME

    name = " ".join(printable(text).split())
    if not 0 < len(name) <= LONGEST_NAME:
        raise InputError(f"{option} is not a name of 1 to {LONGEST_NAME} letters")
    return name


def _case(name: str | None, shape: Shape | None) -> "Case":
    """The case to submit on. InputError if the name is not that of one case."""
    from hw4cli.problem import suite

    if shape:
        return suite.Case(f"{shape.B}x{shape.N}x{shape.d}", shape, 0, SECONDS, "")
    chosen = suite.select([name or ""])
    if len(chosen) > 1:
        raise InputError(f"--case {name} names {len(chosen)} cases: a submission is on one")
    return chosen[0]


@leaderboard.command()
@DIR
@click.option("--case", "case_name", metavar="CASE", shell_complete=complete_cases, help="Only boards of this case.")
@click.option("--gpu", metavar="NAME", help="Only boards of GPUs with NAME in their name, as in H200.")
@click.option("--user", metavar="NAME", help="The submissions of this user instead, in the order of time.")
@click.option("--best-per-user", is_flag=True, help="Rank only the best entry of each user.")
@click.option("--html", type=FILE, metavar="FILE", help="Also write all boards as a page, in one file.")
@click.option("--title", metavar="TEXT", default="Leaderboard", show_default=True, help="The page's title.")
@json_option("leaderboard")
def show(
    folder: Path,
    case_name: str | None,
    gpu: str | None,
    user: str | None,
    best_per_user: bool,
    html: Path | None,
    title: str,
    as_json: bool,
) -> int:
    """Show the boards, and write them as a page.

    A board is of one workload and one GPU; below its ranks stands what others published. Entries share a rank ("=2")
    where their intervals, the mean and two standard errors to either side, overlap.

    Exit status 3 if lines of the leaderboard's file are damaged; the others are shown.
    """
    with Importing():
        from hw4cli.leaderboard import entries, ranking, tables
        from hw4cli.system.files import check_place, write_text
        from hw4cli.text.bars import shows_blocks

    if html:
        check_place(html, folder / entries.NAME)
    found = entries.read(folder)
    boards = ranking.boards(found.entries)
    shown = _chosen(boards, case_name, gpu)
    if not shown:
        raise InputError(f"{folder} has no board like that: `hw4 leaderboard show --dir {folder}` shows all")
    own = [entry for entry in found.entries if entry.user == user]
    if user is not None and not own:
        raise InputError(f"{folder} has no submission of {printable(user)!r}")
    width, blocks = columns(sys.stdout), shows_blocks(sys.stdout)
    if as_json:
        click.echo(json.dumps(tables.as_json(shown, own or found.entries, best_per_user), indent=1))
    elif user is not None:
        click.echo(tables.history_text(user, own, width), nl=False)
    else:
        parts = [tables.index_text(shown, width)] * (sum(bool(board.entries) for board in shown) > 1)
        parts += [tables.board_text(board, best_per_user, width, blocks) for board in shown]
        click.echo("\n".join(parts), nl=False)
    if html:
        from hw4cli.leaderboard.page import page

        write_text(html, page(boards, found.entries, title, best_per_user, now()))
        click.echo(printable(f"wrote {html}"), err=True)
    for sentence in found.skipped:
        print_message(sentence)
    return MachineError.exit_code if found.skipped else 0


def _chosen(boards: "list[Board]", case_name: str | None, gpu: str | None) -> "list[Board]":
    """The boards of a case, and of GPUs with a word in their name; None: of all."""
    case = None if case_name is None else _case(case_name, None).name
    return [
        board
        for board in boards
        if case in (None, board.workload.case) and (gpu is None or gpu.lower() in board.machine.lower())
    ]

"""`hw4 leaderboard`: submissions on a workload and a GPU, measured, kept and ranked."""

import json
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from hw4cli.cli.terminal.grammar import CASES, KERNELS, SHAPES, What, what_argument
from hw4cli.cli.terminal.options import json_option, output_option, program_command, shared, write_outputs
from hw4cli.cli.terminal.params import FOLDER, complete_command
from hw4cli.cli.terminal.sections import Sections
from hw4cli.errors import InputError, MachineError
from hw4cli.plans.ladder import VARIANTS
from hw4cli.system.importing import Importing
from hw4cli.text.dates import now
from hw4cli.text.words import columns, print_message, printable, wrapped

if TYPE_CHECKING:
    from hw4cli.problem.suite import Case
    from hw4cli.show.leaderboard.ranking import Board

SECONDS = 60.0  # that a run of a program may take on a shape that is not a case's


@click.command(cls=Sections, rare=["authors", "folder", "title"])
@what_argument(KERNELS, CASES, SHAPES, kernels=list(VARIANTS))
@shared("program", metavar="COMMAND", shell_complete=complete_command)
@shared("user", metavar="NAME")
@click.option("--author", "authors", multiple=True, metavar="NAME", help="A member of the team; several times.")
@click.option(
    "--board",
    "folder",
    type=FOLDER,
    metavar="DIR",
    default=Path("leaderboard"),
    show_default=True,
    help="The leaderboard's folder.",
)
@shared("gpu", metavar="GPU")
@click.option("--best-per-user", is_flag=True, help="Rank only the best entry of each user.")
@shared("title", metavar="TEXT")
@json_option
@output_option(".html", ".json")
@click.pass_context
def leaderboard(ctx: click.Context, /, what: What, program: str | None, authors: tuple[str, ...], **others: Any) -> int:
    """Submit kernels and programs to a leaderboard, and show it.

    \b
    hw4 leaderboard ./mine.cu t28 --user ann    submits a kernel on a case
    hw4 leaderboard 4,16384,64 --program ./mine submits a whole program
    hw4 leaderboard                             shows the boards of all
    hw4 leaderboard t28 --gpu H200              those of a case and a GPU
    hw4 leaderboard --user ann                  ann's submissions by time
    hw4 leaderboard -o page.html                all boards as a page

    A submission has three stages. The test compares its answer with float64. The benchmark times it on the same data.
    The ranked run, which counts, times it in a new process, on new random data, with a cold L2 cache. Every submission
    is kept. Entries share a rank ("=2") where their intervals overlap (docs/leaderboard.md).

    Exit status 1 if a submission was wrong or failed, 3 if lines of the leaderboard's file are damaged.
    """
    if what.kernels or program is not None:
        options = {"gpu": "--gpu", "best_per_user": "--best-per-user", "title": "--title", "outputs": "--output"}
        if unfit := [option for name, option in options.items() if others[name]]:
            raise click.UsageError(f"{unfit[0]} goes with showing boards: name no kernel and no program", ctx)
        return submit(ctx, what, program, authors, others["user"], others["folder"], others["as_json"])
    if authors:
        raise click.UsageError("--author goes with a submission: name a kernel or give --program COMMAND", ctx)
    case = _case(ctx, what) if what.cases or what.shapes else None
    return show(case, **others)


def submit(
    ctx: click.Context,
    what: What,
    program: str | None,
    authors: tuple[str, ...],
    user: str | None,
    folder: Path,
    as_json: bool,
) -> int:
    """Submit a kernel, or a program, in three stages. The exit status."""
    if len(what.kernels) + (program is not None) > 1:
        raise click.UsageError("name one kernel or give --program COMMAND, and not both", ctx)
    kernel = what.kernels[0] if what.kernels else None
    with Importing():
        from hw4cli.device.ownkernel import kernel_named
        from hw4cli.sandbox.gpu import gpu_lock
        from hw4cli.show.leaderboard import contest, entries, stages
        from hw4cli.show.leaderboard.tables import standing_words
        from hw4cli.system.account import login

    who = _name(login() if user is None else user, "--user")
    members = tuple(_name(author, "--author") for author in authors)
    case = _case(ctx, what)
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
    timed = contest.KERNEL if kernel else contest.PROGRAM
    entry = entries.Entry(
        **vars(outcome),
        user=who,
        authors=members,
        program=printable(name),
        workload=contest.Contest.of(*case.shape.sizes, timed=timed),
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
    from hw4cli.show.leaderboard.entries import LONGEST_NAME

    name = " ".join(printable(text).split())
    if not 0 < len(name) <= LONGEST_NAME:
        raise InputError(f"{option} is not a name of 1 to {LONGEST_NAME} letters")
    return name


def _case(ctx: click.Context, what: What) -> "Case":
    """The case to submit on. UsageError unless one is named, InputError for an unknown one."""
    from hw4cli.problem import suite

    [(name, shape, seed), *others] = what.named_shapes(ctx)
    if others:
        raise click.UsageError(f"a submission is on one case or shape, and these are {len(others) + 1}", ctx)
    return suite.cases()[name] if what.cases else suite.Case(name, shape, seed, SECONDS, "")


def show(
    case: "Case | None",
    user: str | None,
    folder: Path,
    gpu: str | None,
    best_per_user: bool,
    title: str | None,
    as_json: bool,
    outputs: tuple[Path, ...],
) -> int:
    """Show the boards, and write them. The exit status.

    A board is of one workload and one GPU; below its ranks stands what others published.
    """
    with Importing():
        from hw4cli.show.leaderboard import entries, ranking, tables
        from hw4cli.system.files import check_place
        from hw4cli.text.bars import shows_blocks

    for path in outputs:
        check_place(path, folder / entries.NAME)
    found = entries.read(folder, begun=not any(path.suffix == ".html" for path in outputs))  # an empty page is one, too
    boards = ranking.boards(found.entries)
    shown = _chosen(boards, case, gpu)
    if not shown:
        raise InputError(f"{folder} has no board like that: `hw4 leaderboard --board {folder}` shows all")
    own = [entry for entry in found.entries if entry.user == user]
    if user is not None and not own:
        raise InputError(f"{folder} has no submission of {printable(user)!r}")
    width, blocks = columns(sys.stdout), shows_blocks(sys.stdout)
    document = json.dumps(tables.as_json(shown, own or found.entries, best_per_user), indent=1) + "\n"
    if as_json:
        click.echo(document, nl=False)
    elif user is not None:
        click.echo(tables.history_text(user, own, width), nl=False)
    else:
        parts = [tables.index_text(shown, width)] * (sum(bool(board.entries) for board in shown) > 1)
        parts += [tables.board_text(board, best_per_user, width, blocks) for board in shown]
        click.echo("\n".join(parts), nl=False)

    def page_of_all() -> str:
        from hw4cli.show.leaderboard.page import page

        return page(boards, found.entries, title or "Leaderboard", best_per_user, now())

    write_outputs(outputs, {".html": page_of_all, ".json": lambda: document})
    for path in outputs:
        click.echo(printable(f"wrote {path}"), err=True)
    if found.missing:
        print_message(f"{folder} holds no leaderboard yet: {entries.BEGINS}")
    for sentence in found.skipped:
        print_message(sentence)
    return MachineError.exit_code if found.skipped else 0


def _chosen(boards: "list[Board]", case: "Case | None", gpu: str | None) -> "list[Board]":
    """The boards of a case, and of GPUs with a word in their name; None: of all."""
    return [
        board
        for board in boards
        if (case is None or board.workload.is_of(case.shape)) and (gpu is None or gpu.lower() in board.machine.lower())
    ]

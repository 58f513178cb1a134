"""`hw4 leaderboard`: submissions on a workload and a GPU, measured, kept and ranked."""

import json
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from hw4cli.cli.terminal.grammar import CASES, KERNELS, SHAPES, WORKLOADS, What, what_argument
from hw4cli.cli.terminal.options import (
    is_given,
    json_option,
    output_option,
    program_command,
    shared,
    split_command,
    write_outputs,
)
from hw4cli.cli.terminal.params import FOLDER, complete_command
from hw4cli.cli.terminal.sections import Sections
from hw4cli.errors import InputError, MachineError, os_error
from hw4cli.plans.ladder import VARIANTS
from hw4cli.plans.registry import ARRAY_KERNELS
from hw4cli.resources import python_command
from hw4cli.system.importing import Importing
from hw4cli.text.dates import now
from hw4cli.text.words import columns, print_message, printable, wrapped

if TYPE_CHECKING:
    from hw4cli.lab.arrays.named import NamedWorkload
    from hw4cli.problem.suite import Case
    from hw4cli.show.leaderboard.contest import Contest
    from hw4cli.show.leaderboard.ranking import Board

SECONDS = 60.0  # that a run of a program may take on a shape that is not a case's


@click.command(cls=Sections, rare=["authors", "folder", "title", "srun"])
@what_argument(KERNELS, CASES, SHAPES, WORKLOADS, kernels=[*VARIANTS, *ARRAY_KERNELS])
@shared("program", metavar="COMMAND", shell_complete=complete_command)
@click.option(
    "--pass",
    "direction",
    type=click.Choice(["fwd", "bwd", "both"]),
    default="fwd",
    show_default=True,
    help="For a workload: the forward pass, the backward pass, or both.",
)
@shared("srun", metavar="OPTIONS")
@shared("user", metavar="NAME")
@click.option(
    "--author", "authors", multiple=True, metavar="NAME", help="A member of the team; may be given several times."
)
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
def leaderboard(
    ctx: click.Context,
    /,
    what: What,
    program: str | None,
    direction: str,
    srun: str | None,
    authors: tuple[str, ...],
    **others: Any,
) -> int:
    """Submit kernels and programs to a leaderboard, and show it.

    \b
    hw4 leaderboard ./mine.cu t28 --user ann    submits a kernel on a case
    hw4 leaderboard 4,16384,64 --program ./mine submits a whole program
    hw4 leaderboard half tilelang               arrays of 16 bits
    hw4 leaderboard lm16k --program mine.py:f   a function of torch's
    hw4 leaderboard lm16k --program cudnn       a peer of `hw4 bench`
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
        if srun is not None:
            words = split_command(srun, "--srun", ctx)
            given = {"--program": program, "--pass": direction if what.workloads else None, "--user": others["user"]}
            given["--board"] = str(others["folder"])
            return _behind_srun(words, what, given, authors, others["as_json"])
        return submit(ctx, what, program, authors, others["user"], others["folder"], others["as_json"], direction)
    if srun is not None or is_given(ctx, "direction"):
        option = "--srun" if srun is not None else "--pass"
        raise click.UsageError(f"{option} goes with a submission: name a kernel or give --program COMMAND", ctx)
    if authors:
        raise click.UsageError("--author goes with a submission: name a kernel or give --program COMMAND", ctx)
    if what.workloads:
        raise click.UsageError("boards are shown by case, shape or GPU: leave out the workload", ctx)
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
    direction: str = "fwd",
) -> int:
    """Submit a kernel, a program, or of a workload a function, in three stages. The exit status."""
    if len(what.kernels) + (program is not None) > 1:
        raise click.UsageError("name one kernel or give --program COMMAND, and not both", ctx)
    kernel = what.kernels[0] if what.kernels else None
    with Importing():
        from hw4cli.device.ownkernel import kernel_named
        from hw4cli.lab.cases import PASSES
        from hw4cli.sandbox.gpu import gpu_lock
        from hw4cli.show.leaderboard import contest, entries, stages
        from hw4cli.show.leaderboard.tables import standing_words
        from hw4cli.system.account import login

    who = _name(login() if user is None else user, "--user")
    members = tuple(_name(author, "--author") for author in authors)
    arrays = what.workload(ctx, ARRAY_KERNELS)
    if arrays is None and is_given(ctx, "direction"):
        raise click.UsageError("--pass goes with a workload, as in lm16k", ctx)
    which = _contest_of(arrays, direction) if arrays else None
    case = None if arrays else _case(ctx, what)
    command, name = None, kernel or " ".join(str(program).split())
    if arrays:
        _check_of_arrays(ctx, name, direction)
    elif program is not None:
        command, _ = program_command(program, ctx)
    elif kernel:
        kernel_named(kernel)  # or a wrong file would be found after the GPU was waited for
    entries.check_folder(folder)

    def say(stage: str, outcome: str) -> None:
        lines = wrapped(printable(outcome), columns(sys.stderr if as_json else sys.stdout), " " * 11, f"{stage:<11}")
        click.echo(lines, err=as_json)

    with gpu_lock(os.environ, print_message):  # others would make it slower
        if arrays:
            outcome = stages.array_stages(name, arrays, what.workloads[0], PASSES[direction], say)
        elif case and kernel:
            outcome = stages.kernel_stages(kernel, case.shape, case.seed, say)
        elif case:
            outcome = stages.program_stages(name, command or [], case, say)
    if case:
        which = contest.Contest.of(*case.shape.sizes, timed=contest.KERNEL if kernel else contest.PROGRAM)
    assert which is not None
    entry = entries.Entry(
        **vars(outcome),
        user=who,
        authors=members,
        program=printable(stages.shown_name(name, outcome.facts) if arrays else name),
        workload=which,
        date=now().replace(microsecond=0),
    )
    entries.append(folder, entry)
    if as_json:
        click.echo(json.dumps(entry.as_json(), indent=1))
    elif entry.status == entries.RANKED:
        click.echo(wrapped(standing_words(entry, entries.read(folder).entries), columns(sys.stdout)))
    return 0 if entry.status == entries.RANKED else 1


def _contest_of(arrays: "NamedWorkload", direction: str) -> "Contest":
    """The board of a workload. InputError for one that no board is about."""
    from hw4cli.show.leaderboard.contest import BACKWARD, BOTH, FORWARD, Contest

    work = arrays.work
    if work.heads != work.kv_heads or work.Nq != work.Nk or work.value_columns != work.d:
        raise InputError(
            f"{arrays.name} is on no board: those have as many keys as rows, and heads and columns of K and V as of Q"
        )
    named = {"fwd": FORWARD, "bwd": BACKWARD, "both": BOTH}[direction]
    return Contest.of(work.batch, work.Nq, work.d, work.heads, work.dtype, work.causal, named)


def _check_of_arrays(ctx: click.Context, name: str, direction: str) -> None:
    """Raise UsageError for what is neither a kernel of this pass nor others' attention."""
    from hw4cli.lab.cases import PASSES
    from hw4cli.lab.peers import SINGLE
    from hw4cli.lab.session import check_kernels
    from hw4cli.show.leaderboard.stages import is_function, is_peer

    if ":" in name and not is_function(name):
        raise click.UsageError(f"{name} is no function of a file, as in mine.py:attention", ctx)
    if not is_peer(name):
        if name not in ARRAY_KERNELS:
            known = f"a function, as in mine.py:attention, or one of {', '.join(SINGLE)}"
            raise click.UsageError(f"on a workload --program is {known}, not {name}", ctx)
        check_kernels([name], PASSES[direction])


def _behind_srun(
    options: Sequence[str], what: What, given: dict[str, str | None], authors: Sequence[str], as_json: bool
) -> int:
    """Submit on a node that srun gives: the same command there, which writes into the same folder. The exit status."""
    named = [*what.kernels, *filter(None, [what.cases]), *what.workloads]
    named += [",".join(map(str, shape.sizes)) for shape in what.shapes]
    passed = [word for name, value in given.items() if value is not None for word in (name, value)]
    passed += [word for author in authors for word in ("--author", author)]
    passed += ["--json"] * as_json
    command = ["srun", *options, *python_command("entry"), "leaderboard", *named, *passed]
    try:
        return subprocess.run(command).returncode
    except OSError as error:
        raise os_error(error, "start srun") from None


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

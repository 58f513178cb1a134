"""`hw4 gen`: test cases and their answers."""

import os
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import click

from hw4cli.cli.terminal.bar import Bar
from hw4cli.cli.terminal.grammar import CASES, SHAPES, What, what_argument
from hw4cli.cli.terminal.options import causal_option, folder_option, is_given, output_option, shared, suite_option
from hw4cli.cli.terminal.params import Whole
from hw4cli.errors import InputError
from hw4cli.resources import has_solution
from hw4cli.system.importing import Importing
from hw4cli.text.progress import Progress
from hw4cli.text.words import counted, printable

if TYPE_CHECKING:
    from hw4cli.problem.generate import GenerationTask

BAR_DELAY = 0.3  # seconds: what is made at once needs no bar


@click.command()
@what_argument(CASES, SHAPES)
@shared("seed", type=Whole(min=0), default=0, show_default=True)
@output_option()
@folder_option
@suite_option
@causal_option
@click.option("--no-answers", is_flag=True, help="Make inputs only.")
@shared("force", is_flag=True)
@click.pass_context
def gen(
    ctx: click.Context,
    /,
    what: What,
    seed: int,
    output: Path | None,
    folder: Path,
    causal: bool,
    no_answers: bool,
    force: bool,
) -> None:
    """Make test cases and their answers.

    \b
    hw4 gen t01-t10 t28          cases of the suite, into testcases
    hw4 gen 4,200,64 -o my.in    a random case of a shape (B, N, d)

    A case is an input such as testcases/t07 and its answer testcases/t07.out (with --causal, t07.causal.out), computed
    in float64 (on the GPU if there is one). The same name gives the same input bytes on any machine, and so does the
    same shape and seed; what is there already is kept.
    """
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # as in hw4 run
    with Importing():
        from hw4cli.problem import suite
        from hw4cli.problem.checksums import sha256
        from hw4cli.problem.foreign import settled
        from hw4cli.problem.generate import GenerationTask
        from hw4cli.system.files import make_folder

    if what.shapes and not what.cases:
        if len(what.shapes) > 1:
            raise click.UsageError("one shape goes into one file: name one", ctx)
        if output is None:
            raise click.UsageError("a shape needs -o FILE, the file to write", ctx)
        if is_given(ctx, "folder"):
            raise click.UsageError("--dir goes with cases: -o names the file of a shape", ctx)
        if not output.name:
            raise InputError(f"{output} is not a file's name")
        shape = replace(what.shapes[0], causal=causal)
        answer = None if no_answers else output.with_name(output.name + shape.answer_suffix)
        tasks = [GenerationTask(output, answer, shape, seed)]
    elif (what.cases or os.environ.get(suite.SUITE)) and not what.shapes and not output:
        if is_given(ctx, "seed"):
            raise click.UsageError("--seed goes with a shape: a case has its own", ctx)
        chosen = [case.as_causal(causal) for case in suite.select([what.cases] if what.cases else [])]
        chosen = [settled(case, folder) if case.foreign else case for case in chosen]
        tasks = [GenerationTask.of(case, folder, not no_answers) for case in chosen]
        for place in {folder, *(task.answer.parent for task in tasks if task.answer)}:
            make_folder(place)
    else:
        raise click.UsageError("give either names of cases (t01-t10), or a shape B,N,d with -o FILE", ctx)
    _make_all(tasks if force else [task.missing() for task in tasks], causal)
    for task in tasks:
        if task.kept:  # a suite's file may say it, so that everyone has the same input
            click.echo(f'{printable(task.source)}  sha256 = "{sha256(task.source)}"', err=True)


def _make_all(tasks: "list[GenerationTask]", causal: bool) -> None:
    """Run the tasks, each file with a progress bar, and print a line for each case."""
    with Importing():
        from hw4cli.problem.generate import check_space, file_tasks

    wanted = [task for task in tasks if task.bytes]
    if len(wanted) < len(tasks):
        click.echo(f"{len(tasks) - len(wanted)} of {counted(len(tasks), 'case')} there already", err=True)
    check_space(wanted)
    oracle = None
    if any(task.answer for task in wanted):  # else no GPU is opened
        with Importing():
            if has_solution():
                from hw4cli.device.float64 import best_oracle as oracle_of
            else:
                from hw4cli.problem.generate import cpu_oracle as oracle_of

        oracle, what = oracle_of(causal)
        click.echo(f"answers: {what}", err=True)
    for number, task in enumerate(wanted, 1):
        for file in file_tasks(task, oracle):
            progress = Progress(file.total)
            with Bar(f"{printable(file.path.name)} ({number} of {len(wanted)})", progress, BAR_DELAY):
                file.run(progress.add)
        click.echo(f"{printable(task.source)}  {task.shape}  {task.bytes / 1e6:.1f} MB", err=True)

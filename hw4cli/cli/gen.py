"""`hw4 gen`: test cases and their answers."""

import os
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import click

from hw4cli.errors import InputError
from hw4cli.problem.shape import Shape
from hw4cli.system.importing import Importing
from hw4cli.terminal.bar import Bar
from hw4cli.terminal.options import FILE, causal_option, folder_option, shape_option, suite_option
from hw4cli.terminal.params import Whole, complete_cases
from hw4cli.text.progress import Progress
from hw4cli.text.words import counted, printable

if TYPE_CHECKING:
    from hw4cli.problem.generate import GenerationTask

BAR_DELAY = 0.3  # seconds: what is made at once needs no bar


@click.command()
@click.argument("cases", nargs=-1, shell_complete=complete_cases)
@shape_option("A random case of this shape instead of named ones.")
@click.option("--seed", type=Whole(min=0), default=0, show_default=True, help="For --shape.")
@click.option("-o", "--output", type=FILE, help="The input file of --shape.")
@folder_option("Where named cases go.")
@suite_option
@causal_option("Make the answers of causal attention: t07.causal.out.")
@click.option("--no-answers", is_flag=True, help="Make inputs only.")
@click.option("--force", is_flag=True, help="Make again what is there already.")
def gen(
    cases: tuple[str, ...],
    shape: Shape | None,
    seed: int,
    output: Path | None,
    folder: Path,
    causal: bool,
    no_answers: bool,
    force: bool,
) -> None:
    """Make test cases and their answers.

    CASES are names and ranges of the suite, t01 to t30: `hw4 gen t01-t10 t28`. A case is an input such as
    testcases/t07 and its answer testcases/t07.out, computed in float64 (on the GPU if there is one). The same name
    gives the same input bytes on any machine; what is there already is kept.

    `hw4 gen --shape 4,200,64 -o my.in` makes a random case of any shape, with its answer in my.in.out.
    """
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # as in hw4 run
    with Importing():
        from hw4cli.problem import suite
        from hw4cli.problem.generate import GenerationTask
        from hw4cli.system.files import make_folder

    if shape and not cases:
        if output is None:
            raise click.UsageError("--shape needs -o FILE, the file to write", click.get_current_context())
        if not output.name:
            raise InputError(f"{output} is not a file's name")
        shape = replace(shape, causal=causal)
        answer = None if no_answers else output.with_name(output.name + shape.answer_suffix)
        tasks = [GenerationTask(output, answer, shape, seed)]
    elif cases and not shape and not output:
        chosen = [case.as_causal(causal) for case in suite.select(cases)]
        tasks = [GenerationTask.of(case, folder, not no_answers) for case in chosen]
        make_folder(folder)
    else:
        raise click.UsageError(
            "give either names of cases (t01-t10), or --shape B,N,d with -o FILE", click.get_current_context()
        )
    _make_all(tasks if force else [task.missing() for task in tasks], causal)


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
            from hw4cli.device.float64 import best_oracle

        oracle, what = best_oracle(causal)
        click.echo(f"answers: {what}", err=True)
    for number, task in enumerate(wanted, 1):
        for file in file_tasks(task, oracle):
            progress = Progress(file.total)
            with Bar(f"{printable(file.path.name)} ({number} of {len(wanted)})", progress, BAR_DELAY):
                file.run(progress.add)
        click.echo(f"{printable(task.source)}  {task.shape}  {task.bytes / 1e6:.1f} MB", err=True)

"""`hw4 judge --class`: a class's submissions judged on this machine, or as a Slurm array."""

from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeVar

import click

from hw4cli.cli.terminal.isolation import isolation_warning
from hw4cli.cli.terminal.judgeplan import JudgeOptions, arguments, session_plan
from hw4cli.cli.terminal.options import DAY, split_command
from hw4cli.cli.terminal.params import FOLDER, Number, Whole, complete_user
from hw4cli.errors import BusyError, Hw4Error, MachineError
from hw4cli.system.importing import Importing
from hw4cli.text.words import printable

Command = TypeVar("Command", bound=Callable[..., Any])
OPTIONS = (
    click.option(
        "--class", "submissions", type=FOLDER, metavar="FOLDER", help="Judge each folder in it: hw4, or make hw4."
    ),
    click.option(
        "--only",
        multiple=True,
        metavar="USER",
        shell_complete=complete_user,
        help="Judge only this student; may be given several times.",
    ),
    click.option(
        "--build-limit",
        type=Number(1, DAY),
        default=120,
        show_default=True,
        metavar="SECONDS",
        help="Time limit of a build.",
    ),
    click.option("--slurm", metavar="OPTIONS", help="Judge the class as a Slurm array: '-p nvidia --gres=gpu:1'."),
    click.option("--parallel", type=Whole(1), default=1, show_default=True, help="Tasks of the array at a time."),
    click.option(
        "--task", "is_task", is_flag=True, hidden=True, help="This is a task of an array that a judge waits for."
    ),
)


def class_options(command: Command) -> Command:
    """The options for judging a class."""
    for option in reversed(OPTIONS):  # decorators are applied from the last to the first
        command = option(command)
    return command


def judge_class(
    ctx: click.Context, submissions: Path, as_json: bool, slurm: str | None, parallel: int, **options: Any
) -> int:
    """Judge a class, on this machine or as a Slurm array; print rows and the ranking. The exit code."""
    with Importing():
        from hw4cli.cli.terminal.casetable import ClassRows
        from hw4cli.cli.terminal.ranking import print_board
        from hw4cli.judge.classarray import ClassArray
        from hw4cli.judge.classroom import ClassPlan
        from hw4cli.judge.scoring import results
        from hw4cli.system.files import make_folder

    output, array = options["output"], None if slurm is None else split_command(slurm, "--slurm", ctx)
    if not submissions.is_dir():  # before a message about missing cases
        raise click.UsageError(f"--class {printable(submissions)}: there is no such folder", ctx)
    plan = session_plan(ctx, JudgeOptions.of(options), submissions, elsewhere=slurm is not None)
    make_folder(output)
    with ClassRows(quiet=as_json) as rows:
        class_plan = ClassPlan(
            submissions,
            output,
            replace(plan, settings=replace(plan.settings, say=rows.say)),
            only=options["only"],
            build_seconds=options["build_limit"],
            secret_seeds=options["secret_seeds"],
            is_task=options["is_task"],
        )
        classroom = ClassArray(class_plan, rows)
        rows.first_message = isolation_warning(plan.settings)
        try:
            if array is None:
                all_judged = classroom.judge()
            else:
                task_arguments = arguments(ctx, "slurm", "parallel", "only", "resume", "restart", "as_json")
                all_judged = classroom.judge_as_array(array, parallel, task_arguments)
        except BusyError:
            raise
        except (KeyboardInterrupt, MachineError) as error:
            with suppress(Hw4Error):  # there may be no journal yet
                classroom.write()
            if isinstance(error, KeyboardInterrupt):
                raise KeyboardInterrupt(classroom.progress_text()) from None
            raise
    ranked = classroom.write()
    rules = classroom.plan.session.rules
    if as_json:
        click.echo(results.json_text(ranked, rules), nl=False)
    else:
        click.echo()
        print_board(ranked, rules)
    return 0 if all_judged else 3

"""The session's plan that the options of `hw4 judge` define, for one program and for a class."""

import os
import sys
from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from hw4cli.errors import InputError
from hw4cli.system.exits import program_problem
from hw4cli.terminal.isolation import isolation_settings
from hw4cli.terminal.options import split_command

if TYPE_CHECKING:
    from hw4cli.judge.session import SessionPlan
    from hw4cli.problem.suite import Case


def session_plan(
    ctx: click.Context,
    *,
    cases: tuple[str, ...],
    folder: Path,
    limits: dict[str, float],
    tolerance: float,
    penalty: float,
    rank_by: str,
    due: datetime | None,
    sandbox: str | None,
    run_as: str | None,
    launcher: str | None,
    pass_env: tuple[str, ...],
    output: Path | None,
    repeat: int,
    warmup: int,
    resume: bool,
    restart: bool,
    user: str = "",
    command: Sequence[str] = (),
    env: dict[str, str] | None = None,
    submissions: Path | None = None,
    causal: bool = False,
    elsewhere: bool = False,
    **_: Any,
) -> "SessionPlan":
    """The plan of these options. The sandbox is checked on this machine, unless programs run `elsewhere`."""
    from hw4cli.judge.runcase import RunSettings, check_present
    from hw4cli.judge.session import SessionPlan
    from hw4cli.runner.environment import SET
    from hw4cli.scoring.record import Rules

    for name in pass_env:
        if name in SET or name not in os.environ:
            why = "is set for each program" if name in SET else "is not in the environment"
            raise click.UsageError(f"--pass-env {name}: {name} {why}", ctx)
    chosen = [case.as_causal(causal) for case in selected(cases, limits)]
    launcher_command = () if launcher is None else tuple(split_command(launcher, "--launcher", ctx))
    if launcher_command and not elsewhere and (problem := program_problem(launcher_command[0])):
        raise InputError(f"the launcher {problem}")
    check_present(chosen, folder)
    isolation = isolation_settings(sandbox, run_as, submissions is not None, elsewhere or launcher is not None)
    return SessionPlan(
        user=user,
        command=command,
        cases=chosen,
        folder=folder,
        rules=Rules(tolerance=tolerance, penalty=penalty, rank_by=rank_by, due=due),
        repeat=repeat,
        warmup=warmup,
        resume=resume,
        restart=restart,
        # Behind a launcher, other machines must see the private folders, as they do the folder of results.
        settings=RunSettings(
            env=env,
            **isolation,
            hidden=tuple(str(folder.absolute()) for folder in (submissions, output) if folder),
            launcher=launcher_command,
            parent=output if launcher_command else None,
            pass_env=pass_env,
        ),
    )


def selected(names: Sequence[str], limits: dict[str, float]) -> "list[Case]":
    """The cases with these names (all if there are none), with these limits instead of the suite's. InputError for an
    unknown name."""
    from hw4cli.problem import suite

    return [replace(case, limit=limits.get(case.name, case.limit)) for case in suite.select(names)]


def arguments(ctx: click.Context, *without: str) -> list[str]:
    """The arguments of `hw4 judge` on the command line, without these options."""
    options = {name: param for param in ctx.command.params if param.name in without for name in param.opts}
    remaining, kept = iter(sys.argv[sys.argv.index("judge") + 1 :]), []
    for argument in remaining:
        param = options.get(argument.partition("=")[0])
        if param is None:
            kept.append(argument)
        elif "=" not in argument and not getattr(param, "is_flag", False):
            next(remaining, None)  # the option's value
    return kept

"""The session's plan that the options of `hw4 judge` define, for one program and for a class."""

import os
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from hw4cli.cli.terminal.isolation import isolation_settings
from hw4cli.cli.terminal.options import split_command
from hw4cli.errors import InputError
from hw4cli.system.exits import program_problem

if TYPE_CHECKING:
    from hw4cli.judge.runcase import RunSettings
    from hw4cli.judge.session import SessionPlan
    from hw4cli.problem.suite import Case


@dataclass(frozen=True)
class JudgeOptions:
    """The options of `hw4 judge` that a session's plan follows from, by click's names."""

    cases: tuple[str, ...]
    folder: Path
    limits: dict[str, float]
    causal: bool
    tolerance: float | None
    penalty: float | None
    rank_by: str | None
    due: datetime | None
    sandbox: str | None
    run_as: str | None
    mounts: tuple[str, ...]
    launcher: str | None
    pass_env: tuple[str, ...]
    output: Path | None
    repeat: int
    warmup: int
    resume: bool
    restart: bool
    only: tuple[str, ...]

    @classmethod
    def of(cls, options: Mapping[str, Any]) -> "JudgeOptions":
        """Those among all of the command's."""
        return cls(**{field.name: options[field.name] for field in fields(cls)})


def session_plan(
    ctx: click.Context, options: JudgeOptions, submissions: Path | None = None, elsewhere: bool = False
) -> "SessionPlan":
    """The plan of these options, without a user, a command and its environment. The sandbox is checked on this machine,
    unless programs run `elsewhere`."""
    from hw4cli.judge.runcase import check_present
    from hw4cli.judge.scoring import storedrules
    from hw4cli.judge.scoring.record import Rules
    from hw4cli.judge.scoring.standings import rules_of, with_changes
    from hw4cli.judge.session import SessionPlan

    _check_passed(ctx, options.pass_env)
    selected(options.cases, {})  # a wrong name is reported first
    # Rules stay as long as something that was judged by them does.
    older = options.output if options.resume or options.only else None
    kept = rules_of(older) if older else Rules()
    rules = with_changes(
        kept,
        options.limits,
        tolerance=options.tolerance,
        penalty=options.penalty,
        rank_by=options.rank_by,
        due=options.due,
    )
    chosen = [case.as_causal(options.causal) for case in selected(options.cases, rules.limits)]
    launcher = _launcher(ctx, options.launcher, elsewhere)
    check_present(chosen, options.folder)
    return SessionPlan(
        user="",
        command=(),
        cases=chosen,
        folder=options.folder,
        rules=rules,
        kept_limits=frozenset(kept.limits) - frozenset(options.limits),
        store_rules=not (older and rules == kept and (older / storedrules.NAME).exists()),
        repeat=options.repeat,
        warmup=options.warmup,
        resume=options.resume,
        restart=options.restart,
        settings=_settings(options, launcher, submissions, elsewhere),
    )


def _check_passed(ctx: click.Context, names: Sequence[str]) -> None:
    """Raise UsageError for a variable that cannot be passed to programs."""
    from hw4cli.sandbox.environment import SET

    for name in names:
        if name in SET or name not in os.environ:
            why = "is set for each program" if name in SET else "is not in the environment"
            raise click.UsageError(f"--pass-env {name}: {name} {why}", ctx)


def _launcher(ctx: click.Context, command: str | None, elsewhere: bool) -> tuple[str, ...]:
    """The launcher's words. InputError if it cannot be started on this machine, unless programs run `elsewhere`."""
    words = () if command is None else tuple(split_command(command, "--launcher", ctx))
    if words and not elsewhere and (problem := program_problem(words[0])):
        raise InputError(f"the launcher {problem}")
    return words


def _settings(
    options: JudgeOptions, launcher: tuple[str, ...], submissions: Path | None, elsewhere: bool
) -> "RunSettings":
    from hw4cli.judge.runcase import RunSettings
    from hw4cli.resources import source_tree

    is_class, not_here = submissions is not None, elsewhere or options.launcher is not None
    return RunSettings(
        **isolation_settings(options.sandbox, options.run_as, is_class, not_here),
        hidden=tuple(
            str(folder.absolute())
            for folder in (submissions, options.output, source_tree() if is_class else None)
            if folder
        ),
        mounts=tuple(str(Path(path).absolute()) for path in options.mounts),
        launcher=launcher,
        # Behind a launcher, other machines must see the private folders, as they do the folder of results.
        parent=options.output if launcher else None,
        pass_env=options.pass_env,
    )


def selected(names: Sequence[str], limits: Mapping[str, float]) -> "list[Case]":
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

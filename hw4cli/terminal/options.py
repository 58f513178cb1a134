"""Options that several commands share."""

import math
import os
import shlex
import sys
from collections.abc import Callable
from datetime import datetime
from pathlib import Path
from typing import Any, TypeVar

import click

from hw4cli.errors import InputError
from hw4cli.problem.shape import Shape
from hw4cli.resources import IMPORT_PATH, data_path
from hw4cli.system.exits import program_problem
from hw4cli.system.importing import Importing
from hw4cli.terminal.params import FOLDER, FileName, Number, OneOf, complete_cases, complete_workloads
from hw4cli.text.dates import SkippedTimeError, due_date

FILE = FileName(readable=False, path_type=Path)
DAY = 86400  # seconds
Command = TypeVar("Command", bound=Callable[..., Any])


def _shape(ctx: click.Context, param: click.Parameter, value: str) -> Shape:
    try:
        B, N, d = (int(word) for word in value.split(","))
    except ValueError:
        raise click.BadParameter(f"{value!r} is not three integers, as in 4,200,64", ctx, param) from None
    shape = Shape(B, N, d)
    shape.check("--shape")
    return shape


def shape_option(help: str) -> Callable[[Command], Command]:
    """--shape B,N,d, given to the command as a Shape or None."""

    def parse(ctx: click.Context, param: click.Parameter, value: str | None) -> Shape | None:
        return None if value is None else _shape(ctx, param, value)

    return click.option("--shape", metavar="B,N,d", callback=parse, help=help)


def shapes_option(help: str) -> Callable[[Command], Command]:
    """--shape B,N,d, any number of times, given to the command as a list `shapes`."""

    def parse(ctx: click.Context, param: click.Parameter, values: tuple[str, ...]) -> list[Shape]:
        return [_shape(ctx, param, value) for value in values]

    return click.option("--shape", "shapes", multiple=True, metavar="B,N,d", callback=parse, help=help)


def cases_option(help: str) -> Callable[[Command], Command]:
    """--cases, or --case, as there may be one: their names as one text."""
    names = ("--cases", "--case", "cases")
    return click.option(*names, metavar="CASES", default="", shell_complete=complete_cases, help=help)


def workload_option(help: str) -> Callable[[Command], Command]:
    """--workload, one: its text, or None."""
    return click.option("--workload", metavar="WORKLOAD", shell_complete=complete_workloads, help=help)


def folder_option(help: str) -> Callable[[Command], Command]:
    """--dir, the folder of the cases, given to the command as `folder`."""
    default = Path("testcases")
    return click.option("--dir", "folder", type=FOLDER, default=default, show_default=True, help=help)


def suite_option(command: Command) -> Command:
    """--suite FILE, or the name of one in testcases: other cases than the assignment's, in this process and in those
    that it starts."""

    def use(ctx: click.Context, param: click.Parameter, value: str | None) -> None:
        if value == "":
            raise click.BadParameter("the name is empty", ctx, param)
        if value is not None:
            path = data_path(f"testcases/{value}.toml") if value.isalnum() else Path(value)
            if not path.is_file():
                raise InputError(f"there is no suite {value}: give a file such as testcases/suite.toml, or amd")
            os.environ["HW4_SUITE"] = str(path.resolve())

    help = "Other cases: a file like testcases/suite.toml, or amd.  [default: the assignment's thirty]"
    return click.option("--suite", metavar="FILE", callback=use, expose_value=False, is_eager=True, help=help)(command)


def json_option(page: str) -> Callable[[Command], Command]:
    """--json, given to the command as `as_json`; docs/PAGE.md describes the document's fields."""
    help = f"Print one JSON document, described in docs/{page}.md."
    return click.option("--json", "as_json", is_flag=True, help=help)


def causal_option(help: str) -> Callable[[Command], Command]:
    """--causal, given to the command as a bool."""
    return click.option("--causal", is_flag=True, help=help)


def format_option(*formats: str) -> Callable[[Command], Command]:
    """--format, one of these, given to the command as `form`; the first is the default."""
    kind, help = OneOf(formats), "How to print the results."
    return click.option("--format", "form", type=kind, default=formats[0], show_default=True, help=help)


def program_command(program: str | None, ctx: click.Context) -> tuple[list[str], dict[str, str] | None]:
    """The command of a --program, hw4 itself if it is None; and its environment, None for that of this process.

    Raises InputError if there is no such program.
    """
    if program is None:
        # This very package, also where it is not installed.
        path = os.pathsep.join(filter(None, (IMPORT_PATH, os.environ.get("PYTHONPATH"))))
        # A judged program gets a home of its own, but compiled kernels are kept in the user's.
        kernels = os.environ.get("CUPY_CACHE_DIR") or os.path.expanduser("~/.cupy/kernel_cache")  # noqa: PTH111
        return [sys.executable, "-P", "-m", "hw4cli"], {**os.environ, "PYTHONPATH": path, "CUPY_CACHE_DIR": kernels}
    command = split_command(program, "--program", ctx)
    if problem := program_problem(*command[:2]):
        raise InputError(problem)
    return command, None


def split_command(value: str, option: str, ctx: click.Context) -> list[str]:
    """The arguments of a quoted command line, one at least. Raises UsageError if there are none."""
    try:
        arguments = shlex.split(value)
    except ValueError as error:
        raise click.UsageError(f"{option} {value!r}: {error}", ctx) from None
    if not arguments:
        raise click.UsageError(f"{option} is empty", ctx)
    return arguments


def limits_option(help: str) -> Callable[[Command], Command]:
    """--limit CASES=SECONDS, any number of times, given to the command as `limits`: seconds by the case's name."""

    def parse(ctx: click.Context, param: click.Parameter, values: tuple[str, ...]) -> dict[str, float]:
        if not values or ctx.resilient_parsing:  # during completion
            return {}
        with Importing():
            from hw4cli.problem import suite

        limits = {}
        for value in values:
            words, _, number = value.rpartition("=")
            try:
                seconds = float(number)
            except ValueError:
                seconds = math.nan
            if not words or not 0 < seconds <= DAY:
                raise click.BadParameter(f"{value!r} is not CASES=SECONDS (a day at most), as in t01-t10=3", ctx, param)
            limits.update({case.name: seconds for case in suite.select([words])})
        return limits

    return click.option(
        "--limit",
        "limits",
        multiple=True,
        metavar="CASES=SECONDS",
        callback=parse,
        help=help,
        shell_complete=complete_cases,
    )


def _due(ctx: click.Context, param: click.Parameter, value: str | None) -> datetime | None:
    try:
        return None if value is None else due_date(value)
    except SkippedTimeError as error:
        raise click.BadParameter(f"{value} is no time of day: {error}", ctx, param) from None
    except ValueError:
        raise click.BadParameter(
            f"{value!r} is not a date, such as 2026-05-01 or 2026-05-01T18:00", ctx, param
        ) from None


def rules_options(tolerance: float | None, penalty: float | None, rank_by: str | None) -> Callable[[Command], Command]:
    """--tolerance, --penalty, --rank-by and --due, with these defaults; None is as it was judged."""
    as_judged = "  [default: as judged]"

    def options(command: Command) -> Command:
        command = click.option(
            "--due",
            callback=_due,
            metavar="DATE",
            help="Mark later submissions as late, as in 2026-05-01T18:00." + (as_judged if penalty is None else ""),
        )(command)
        for name, default, kind, help in (
            ("--rank-by", rank_by, OneOf(["time", "passed"]), "Time + Penalty, or the number of cases passed."),
            ("--penalty", penalty, Number(0, 10**9), "Seconds for each case that is not AC."),
            ("--tolerance", tolerance, Number(0, 1e30), "The largest error of a right element."),
        ):
            shown = default is not None
            command = click.option(
                name,
                type=kind,
                default=default,
                show_default=shown,
                help=help if shown else help + as_judged,
            )(command)
        return command

    return options

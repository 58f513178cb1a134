"""Options that several commands share."""

import math
import os
import shlex
import sys
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any, TypeVar

import click

from hw4cli.cli.terminal.params import FOLDER, FileName, Number, OneOf, complete_cases
from hw4cli.errors import InputError
from hw4cli.problem.rules import TOLERANCE
from hw4cli.resources import IMPORT_PATH, data_path, has_solution
from hw4cli.system.exits import program_problem
from hw4cli.system.importing import Importing
from hw4cli.text.dates import SkippedTimeError, due_date

FILE = FileName(readable=False, path_type=Path)
DAY = 86400  # seconds
Command = TypeVar("Command", bound=Callable[..., Any])


# The sentence of each option that several commands have: it is the same in all of them (tests/cli/test_grammar.py).
SENTENCES = {
    "causal": "Causal attention: row i sees the keys 0 to i alone.",
    "dir": "Where the cases are (see hw4 gen).",
    "device": "Where to compute; auto is the GPU if there is one, else the CPU.",
    "force": "Overwrite files that are there already.",
    "gpu": "For which GPU: a name or a compute capability, such as T4, 7.5 or gfx90a.",
    "json": "Print one JSON document instead of tables.",
    "output": "Write the result there",
    "program": "A command that takes INPUTFILE OUTPUTFILE.",
    "resume": "Continue an interrupted run.",
    "samples": "Take at most this many samples of each.",
    "seed": "The seed of the random numbers.",
    "srun": "Run on nodes that srun allocates with these options: '-p nvidia --gres=gpu:1'.",
    "title": "The page's title.",
    "user": "The author of the program or kernel: a person or a team.  [default: the current user]",
}


def folder_option(command: Command) -> Command:
    """--dir, the folder of the cases, given to the command as `folder`: that of --suite if that is a folder."""
    default, help = Path("testcases"), SENTENCES["dir"]

    def own(ctx: click.Context, param: click.Parameter, value: Path) -> Path:
        suite = os.environ.get("HW4_SUITE", "")
        return Path(suite) if value == default and suite and os.path.isdir(suite) else value  # noqa: PTH112

    option = click.option("--dir", "folder", type=FOLDER, default=default, show_default=True, callback=own, help=help)
    return option(command)


def shared(name: str, *parameter: str, **settings: Any) -> Callable[[Command], Command]:
    """An option of SENTENCES, with its parameter's name where that is another, and click's further settings."""
    return click.option(f"--{name}", *parameter, help=SENTENCES[name], **settings)


def output_option(*endings: str, folder: bool = False) -> Callable[[Command], Command]:
    """-o/--output, what is written and where.

    With endings: files, any number of times, given to the command as `outputs`; each ends in one of them, which names
    its format. Without: one file or folder, given as `output`.
    """

    def check(ctx: click.Context, param: click.Parameter, paths: tuple[Path, ...]) -> tuple[Path, ...]:
        for path in paths:
            if not path.name.endswith(endings):
                words = " or ".join(filter(None, (", ".join(endings[:-1]), endings[-1])))
                raise click.BadParameter(f"{path} does not say in which format: let it end in {words}", ctx, param)
        return paths

    sentence = SENTENCES["output"]
    if endings:
        help = f"{sentence}, in the format of its ending: {', '.join(endings)}."
        return click.option(
            "-o", "--output", "outputs", type=FILE, multiple=True, metavar="FILE", callback=check, help=help
        )
    kind, metavar = (FOLDER, "DIR") if folder else (FILE, "FILE")
    return click.option("-o", "--output", type=kind, metavar=metavar, help=f"{sentence}.")


def write_outputs(outputs: Sequence[Path], texts: Mapping[str, Callable[[], str]], mode: int | None = None) -> None:
    """Write each file by the text of its ending; of two endings that fit, the longer counts. `mode` are the permissions
    of a new file, where they are not the usual ones."""
    from hw4cli.system.files import write_text

    for path in outputs:
        write_text(path, texts[max((ending for ending in texts if path.name.endswith(ending)), key=len)](), mode)


def suite_option(command: Command) -> Command:
    """--suite FILE, the name of one in testcases, or a folder of inputs and answers: other cases than the assignment's,
    in this process and in those that it starts."""

    def use(ctx: click.Context, param: click.Parameter, value: str | None) -> None:
        if value == "":
            raise click.BadParameter("the name is empty", ctx, param)
        if value is not None:
            named = data_path(f"testcases/{value}.toml")
            path = named if value.isalnum() and named.is_file() else Path(value)
            if not path.is_file() and not path.is_dir():
                raise InputError(
                    f"there is no suite {value}: give a folder of inputs, a file such as testcases/suite.toml, or amd"
                )
            os.environ["HW4_SUITE"] = str(path.resolve())

    help = "Other cases: a folder of inputs and answers, a file, or amd.  [default: the assignment's thirty]"
    return click.option("--suite", metavar="FILE", callback=use, expose_value=False, is_eager=True, help=help)(command)


def json_option(command: Command) -> Command:
    """--json, given to the command as `as_json`; the command's page describes the document's fields."""
    return click.option("--json", "as_json", is_flag=True, help=SENTENCES["json"])(command)


def causal_option(command: Command) -> Command:
    """--causal, given to the command as a bool."""
    return shared("causal", is_flag=True)(command)


def is_given(ctx: click.Context, name: str) -> bool:
    """Whether a parameter stands on the command line."""
    return ctx.get_parameter_source(name) is click.core.ParameterSource.COMMANDLINE


def program_command(program: str | None, ctx: click.Context) -> tuple[list[str], dict[str, str] | None]:
    """The command of a --program, hw4 itself if it is None; and its environment, None for that of this process.

    Raises InputError if there is no such program.
    """
    if program is None:
        # This very package, also where it is not installed.
        path = os.pathsep.join(filter(None, (IMPORT_PATH, os.environ.get("PYTHONPATH"))))
        return [sys.executable, "-P", "-m", "hw4cli"], {**os.environ, "PYTHONPATH": path, **_kernels()}
    command = split_command(program, "--program", ctx)
    if problem := program_problem(*command[:2]):
        raise InputError(problem)
    return command, None


def _kernels() -> dict[str, str]:
    """The variable by which hw4 finds compiled kernels: a judged program gets a home and a temporary folder of its own,
    but they are kept in the user's."""
    if not has_solution():
        return {}
    from hw4cli.device.machinecode import roomy_cache

    return {"CUPY_CACHE_DIR": str(folder)} if (folder := roomy_cache()) else {}


def split_command(value: str, option: str, ctx: click.Context) -> list[str]:
    """The arguments of a quoted command line, one at least. Raises UsageError if there are none."""
    try:
        arguments = shlex.split(value)
    except ValueError as error:
        raise click.UsageError(f"{option} {value!r}: {error}", ctx) from None
    if not arguments:
        raise click.UsageError(f"{option} is empty", ctx)
    return arguments


def limits_option(command: Command) -> Command:
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
        help="Another time limit for these cases; may be given several times.",
        shell_complete=complete_cases,
    )(command)


def _due(ctx: click.Context, param: click.Parameter, value: str | None) -> datetime | None:
    try:
        return None if value is None else due_date(value)
    except SkippedTimeError as error:
        raise click.BadParameter(f"{value} is no time of day: {error}", ctx, param) from None
    except ValueError:
        raise click.BadParameter(
            f"{value!r} is not a date, such as 2026-05-01 or 2026-05-01T18:00", ctx, param
        ) from None


def _late_policy(ctx: click.Context, param: click.Parameter, value: str | None) -> str | None:
    """The rule, or "" for none."""
    if value is None or value == "none" or ctx.resilient_parsing:
        return "" if value else None
    from hw4cli.judge.scoring.late import LatePolicy

    try:
        LatePolicy.parse(value)
    except ValueError as error:
        raise click.BadParameter(str(error), ctx, param) from None
    return value


def tolerance_option(command: Command) -> Command:
    """--tolerance, a number or None."""
    help = f"The largest error of a right element.  [default: {TOLERANCE}, or as judged]"
    return click.option("--tolerance", type=Number(0, 1e30), help=help)(command)


# The rules of judging, by the names of the options below.
RULES = ("limits", "tolerance", "penalty", "rank_by", "step", "due", "late_policy")


def rules_options(command: Command) -> Command:
    """--limit, --tolerance, --penalty, --rank-by, --step, --due, --late-policy; None where not given, {} of limits."""
    for option in (
        click.option(
            "--late-policy",
            callback=_late_policy,
            metavar="RULE",
            help="How lateness lowers a grade: '10%/day, grace 15 min, max 3 days', or none.  [default: as judged]",
        ),
        click.option(
            "--due",
            callback=_due,
            metavar="DATE",
            help="Mark later submissions as late, as in 2026-05-01T18:00.  [default: never, or as judged]",
        ),
        click.option(
            "--rank-by",
            type=OneOf(["time", "passed"]),
            help="Time + Penalty, or the number of cases passed.  [default: time, or as judged]",
        ),
        click.option(
            "--step",
            type=Number(0, 3600),
            help="Times count in steps of so many seconds, as by a clock that polls.  [default: 0, or as judged]",
        ),
        click.option(
            "--penalty",
            type=Number(0, 10**9),
            help="Seconds for each case that is not AC.  [default: 60, or as judged]",
        ),
        tolerance_option,
        limits_option,
    ):
        command = option(command)
    return command

"""`hw4 judge`: run a program, or those of a class, on the cases and judge them."""

import json
import os
import sys
from collections.abc import Callable
from contextlib import suppress
from dataclasses import fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from hw4cli.cli.terminal.options import (
    DAY,
    RULES,
    causal_option,
    folder_option,
    json_option,
    output_option,
    program_command,
    rules_options,
    shared,
    split_command,
    suite_option,
)
from hw4cli.cli.terminal.params import (
    FOLDER,
    Number,
    OneOf,
    PathName,
    Whole,
    complete_cases,
    complete_command,
    complete_user,
)
from hw4cli.cli.terminal.preparing import prepare_kernels
from hw4cli.cli.terminal.sections import Sections
from hw4cli.errors import BusyError, Hw4Error, MachineError
from hw4cli.resources import has_solution
from hw4cli.system.importing import Importing
from hw4cli.text.words import printable

if TYPE_CHECKING:
    from hw4cli.judge.plan import Plan
    from hw4cli.judge.scoring.record import Standing
    from hw4cli.problem.workload import Workload

Command = TypeVar("Command", bound=Callable[..., Any])

MOST_BATCHES, MOST_ROWS = 2, 256  # of a case that is executed on the CPU
# What is judged by default: hw4 itself; by the judge alone, what a student has built.
OWN_PROGRAM = None if has_solution() else "./hw4"

RESCORING = {
    "judged",
    "suite",
    *RULES,
    "output",
    "as_json",
}


CLASS_OPTIONS = (
    click.option(
        "--class",
        "submissions",
        type=FOLDER,
        metavar="FOLDER",
        help="Judge every submission in it: a folder or archive with hw4, a Makefile or hw4.cu.",
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
    click.option(
        "--build",
        "build_line",
        metavar="COMMAND",
        help="The command that compiles an hw4.cu without a Makefile.  "
        "[default: nvcc -O3 -std=c++14 -arch=native, or hipcc]",
    ),
    click.option("--slurm", metavar="OPTIONS", help="Judge the class as a Slurm array: '-p nvidia --gres=gpu:1'."),
    click.option(
        "--parallel",
        type=Whole(1),
        default=1,
        show_default=True,
        help="How many tasks of the array run at the same time.",
    ),
    click.option(
        "--race-check",
        type=OneOf(["failing", "all"]),
        default=None,
        help="Execute CUDA programs of failing students, or of all, on the CPU, too; the handout tells what is found.",
    ),
    click.option(
        "--task", "is_task", is_flag=True, hidden=True, help="This is a task of an array that a judge waits for."
    ),
)


def class_options(command: Command) -> Command:
    """The options for judging a class."""
    for option in reversed(CLASS_OPTIONS):  # decorators are applied from the last to the first
        command = option(command)
    return command


@click.command(
    cls=Sections,
    rare=[
        *(
            "suite",
            "repeat",
            "warmup",
            *RULES,
            "sandbox",
            "run_as",
        ),
        *("mounts", "pass_env", "launcher", "restart", "user", "build_limit", "build_line", "secret_seeds", "parallel"),
        "race_check",
    ],
    sections={
        "What to judge": ["program", "folder", "suite", "causal", "repeat", "warmup"],
        "Rules": ["limits", "tolerance", "penalty", "rank_by", "step", "judged"],
        "Lateness": ["due", "late_policy"],
        "Where it runs": ["device", "sandbox", "run_as", "mounts", "pass_env", "srun", "launcher"],
        "Results": ["output", "resume", "restart", "user", "race_check", "as_json"],
        "A class": [
            "submissions",
            "only",
            "build_line",
            "build_limit",
            "secret_seeds",
            "slurm",
            "parallel",
        ],
    },
)
@click.argument("cases", nargs=-1, metavar="[CASE ...]", shell_complete=complete_cases)
@shared("program", metavar="COMMAND", shell_complete=complete_command)
@class_options
@folder_option
@suite_option
@causal_option
@click.option("--repeat", type=Whole(1, 1000), default=1, show_default=True, help="Runs of each case.")
@click.option(
    "--warmup",
    type=Whole(0, 1000),
    default=0,
    show_default=True,
    help="Runs of each case beforehand that do not count.",
)
@rules_options
@shared("device", type=OneOf(["auto", "emulate"]), default="auto", show_default=True)
@click.option(
    "--rescore", "judged", type=FOLDER, metavar="DIR", help="Apply other rules to the results in DIR; nothing is run."
)
@click.option(
    "--sandbox",
    type=OneOf(["auto", "bwrap", "none"]),
    help="bwrap hides others' files and processes, and the network (bubblewrap).  [default: none; of a class auto: "
    "bwrap, or nothing is run]",
)
@click.option(
    "--run-as",
    metavar="USER",
    help="As root: the user that programs run as.  [default: root; of a class one for each student]",
)
@click.option(
    "--mount",
    "mounts",
    multiple=True,
    type=PathName(exists=True),
    metavar="PATH",
    help="Make this file or folder visible in the sandbox, read-only; may be given several times.",
)
@output_option(folder=True)
@shared("resume", is_flag=True)
@click.option("--restart", is_flag=True, help="Start again in DIR; the older journals are kept under numbered names.")
@click.option(
    "--pass-env",
    multiple=True,
    metavar="NAME",
    help="Pass this environment variable to programs and builds, too; may be given several times.",
)
@click.option(
    "--secret-seeds", is_flag=True, help="Judge by cases with random, secret seeds, made and recorded in DIR."
)
@shared("user", metavar="NAME")
@json_option
@shared("srun", metavar="OPTIONS")
@click.option(
    "--launcher",
    metavar="COMMAND",
    shell_complete=complete_command,
    help="Start each run behind a command: 'srun -p nvidia --gres=gpu:1'.",
)
@click.pass_context
def judge(
    ctx: click.Context,
    /,
    srun: str | None,
    submissions: Path | None,
    judged: Path | None,
    as_json: bool,
    **options: Any,
) -> int:
    """Judge a program, or a class of them, by the assignment's rules.

    \b
    hw4 judge                                 hw4 itself, on all thirty cases
    hw4 judge t01-t10 --program ./mine        a program on the first ten
    hw4 judge --class submissions -o results  each folder in it, a student's
    hw4 judge --rescore results --limit t01-t10=3

    A run is killed 10 s past the case's limit (TLE+); wall time over the limit is TLE; any other failure, or an element
    off by more than 5e-3, is NA; else AC. JE is a failure of the judge itself. -o DIR keeps a journal, and results as
    JSON, XML, CSV and Markdown. docs/judging.md has more.

    Exit status 0 if all are AC (of a class: judged), 1 if not, 3 if cases are missing or the judge failed, 130 if
    interrupted.
    """
    if judged is not None:
        return _rescore(ctx, judged, as_json, options)
    _check_together(ctx, srun=srun, submissions=submissions, **options)
    if srun is not None:
        from hw4cli.judge.plan import selected
        from hw4cli.sandbox.slurm import run_in_allocation

        selected(options["cases"], options["limits"])  # report a wrong name before waiting in Slurm's queue
        return run_in_allocation(split_command(srun, "--srun", ctx), ["judge", *arguments(ctx, "srun")])
    if submissions is not None:
        return _judge_class(ctx, submissions, as_json, **options)
    if options.pop("device") == "emulate":
        return _judge_emulated(ctx, as_json, options["program"], options["cases"])
    return _judge_one(ctx, as_json, **options)


if OWN_PROGRAM and judge.help:
    judge.help = judge.help.replace("hw4 itself, on", f"{OWN_PROGRAM}, on")


def _rescore(ctx: click.Context, judged: Path, as_json: bool, options: dict[str, Any]) -> int:
    """Apply other rules to what was judged before. UsageError for an option that is of judging."""
    from hw4cli.cli.terminal.rescore import rescore

    for param in ctx.command.params:
        name = param.name or ""
        given = ctx.get_parameter_source(name) is click.core.ParameterSource.COMMANDLINE
        if given and name not in RESCORING:
            word = "a case" if name == "cases" else param.opts[-1]
            raise click.UsageError(f"{word} does not go with --rescore, which runs nothing", ctx)
    wanted = {name: options[name] for name in RULES}
    return rescore(judged, options["output"], as_json, **wanted)


def _check_together(ctx: click.Context, **options: Any) -> None:
    """Raise UsageError if an option needs another one that is missing, or excludes one that is given."""
    given = {name for name, value in options.items() if value not in (None, (), False)}
    given -= {"parallel", "build_limit", "device"}  # they have defaults
    if options["device"] == "emulate":
        given.add("device")
    if given & {"device", "race_check"} and not has_solution():
        raise click.UsageError("--device emulate and --race-check execute kernels: this is the judge alone", ctx)
    for name in ("parallel", "build_limit"):
        if ctx.get_parameter_source(name) is click.core.ParameterSource.COMMANDLINE:
            given.add(name)
    shown = {
        "submissions": "--class",
        "build_limit": "--build-limit",
        "build_line": "--build",
        "secret_seeds": "--secret-seeds",
        "race_check": "--race-check",
    }
    for one, other, why in (
        ("resume", "output", "DIR, where the journal is"),
        ("restart", "output", "DIR, where the journal is"),
        ("secret_seeds", "output", "DIR, where the cases are made and recorded"),
        ("submissions", "output", "DIR, where a folder for each student is made"),
        ("slurm", "submissions", "FOLDER: for one program take --srun"),
        ("only", "submissions", "FOLDER"),
        ("build_limit", "submissions", "FOLDER"),
        ("build_line", "submissions", "FOLDER"),
        ("race_check", "submissions", "FOLDER: for one program take `hw4 check PROGRAM.cu --run`"),
        ("parallel", "slurm", "OPTIONS: on one machine, one is judged after the other"),
        ("device", "program", "./hw4.cu, or whatever the program's source is called"),
    ):
        if one in given and other not in given:
            raise click.UsageError(f"{shown.get(one, f'--{one}')} needs {shown.get(other, f'--{other}')} {why}", ctx)
    for one, other in (
        ("srun", "slurm"),
        ("srun", "launcher"),
        ("program", "submissions"),
        ("user", "submissions"),
        ("resume", "restart"),
        *(("device", other) for other in ("output", "srun", "launcher", "secret_seeds", "user", "causal")),
    ):
        if {one, other} <= given:
            raise click.UsageError(f"--{one} and {shown.get(other, f'--{other}')} do not go together", ctx)


def _plan(ctx: click.Context, options: dict[str, Any], **more: Any) -> "Plan":
    """The plan of the command's options, and of `more` that follows from them. UsageError for a variable that cannot be
    passed to programs, or an empty launcher; else raises as `plan_of` does."""
    from hw4cli.judge.plan import JudgeOptions, plan_of
    from hw4cli.sandbox.environment import SET

    for name in options["pass_env"]:
        if name in SET or name not in os.environ:
            why = "is set for each program" if name in SET else "is not in the environment"
            raise click.UsageError(f"--pass-env {name}: {name} {why}", ctx)
    if options["run_as"] == "":  # a variable of a script that is not set: programs would run as the judge's user
        raise click.UsageError("--run-as is empty", ctx)
    launcher = options["launcher"]
    if options["build_line"] is not None:
        split_command(options["build_line"], "--build", ctx)
    words = () if launcher is None else tuple(split_command(launcher, "--launcher", ctx))
    known = {"submissions": None, "elsewhere": False, "env": None, "own": False, **options, "launcher": words, **more}
    return plan_of(JudgeOptions(**{field.name: known[field.name] for field in fields(JudgeOptions)}))


def _judge_one(ctx: click.Context, as_json: bool, program: str | None, user: str | None, **options: Any) -> int:
    with Importing():
        from hw4cli.cli.terminal.casetable import CaseTable
        from hw4cli.judge.casesetup import prepare_cases
        from hw4cli.judge.plan import Program
        from hw4cli.judge.session import judge_session
        from hw4cli.resources import own_files
        from hw4cli.system.account import login
        from hw4cli.system.files import make_folder

    program, computed_by = OWN_PROGRAM if program is None else program, ""
    command, env = program_command(program, ctx)
    plan = _plan(ctx, options, env=env, own=program is None)
    if program is None:
        computed_by = prepare_kernels(command, env, plan.cases, plan.settings.launcher)
        command = [*command, "run", "--causal"] if options["causal"] else command
    judged = Program(user or login(), command, () if program else own_files())
    with CaseTable(plan.rules, plan.repeat > 1, as_json, computed_by) as table:
        for note in plan.notes:
            table.say(note)
        prepared = None
        if plan.secret_seeds:
            make_folder(options["output"])
            prepared = prepare_cases(plan, table.say)
        standing = judge_session(plan, judged, table, prepared)
    return exit_status(standing)


def _judge_emulated(ctx: click.Context, as_json: bool, program: str, names: tuple[str, ...]) -> int:
    """Execute a CUDA program on the CPU, on small cases of the shapes that are named, or on the usual ones; print a
    verdict for each, and what was found. 0 if it is right on all that the course has."""
    with Importing():
        from hw4cli.emulator.program.attention import ACCEPTED, CASES, ODD, check_attention
        from hw4cli.emulator.program.build import Source
        from hw4cli.judge.plan import selected
        from hw4cli.text.words import columns, wrapped

    files = tuple(map(Path, split_command(program, "--program", ctx)))
    for path in files:
        if path.suffix not in (".cu", ".hip", ".cpp", ".cc"):
            raise click.UsageError(f"--device emulate needs a CUDA program's source, and {path} is none", ctx)
        if not path.is_file():
            raise click.UsageError(f"--program: there is no file {path}", ctx)
    small = dict.fromkeys(_scaled(case.shape) for case in selected(names, {})) if names else (*CASES, *ODD)
    done = check_attention(Source(files), shapes=[*small])
    usual = [case for case in done if not case.odd]
    right = sum(case.verdict == ACCEPTED for case in usual)
    if as_json:
        cases = [
            {
                "shape": list(case.shape.sizes),
                "verdict": case.verdict,
                "why": case.why,
                "odd": case.odd,
                "findings": [{"kind": one.kind, "sentence": one.sentence, "times": one.times} for one in case.findings],
                "notes": [{"kind": one.kind, "sentence": one.sentence} for one in case.notes],
            }
            for case in done
        ]
        document = {
            "device": "emulate",
            "program": [*map(str, files)],
            "right": right,
            "of": len(usual),
            "cases": cases,
        }
        click.echo(json.dumps(document, indent=1))
        return 0 if right == len(usual) else 1
    found = dict.fromkeys(str(one) for case in done for one in case.findings)
    notes = dict.fromkeys(f"note: {one}" for case in done for one in case.notes)
    lines = [f"{case}{' (the course has no such N)' if case.odd else ''}" for case in done]
    summary = f"{right} of {len(usual)} small cases AC, executed on the CPU: no times, and no score"
    for line in (*lines, *found, *notes, "", summary):
        click.echo(wrapped(printable(line), columns(sys.stdout), "    ", ""))
    return 0 if right == len(usual) else 1


def _scaled(shape: "Workload") -> "Workload":
    """A case's shape, so small that it is executed on the CPU within seconds."""
    return replace(
        shape, batch=min(shape.batch, MOST_BATCHES), Nq=min(shape.Nq, MOST_ROWS), Nk=min(shape.Nk, MOST_ROWS)
    )


def exit_status(standing: "Standing") -> int:
    """0 if all cases are accepted, 3 if the judge failed in one, else 1."""
    if standing.score is None:
        return 3
    return 0 if standing.passed == len(standing.cases) else 1


def _judge_class(
    ctx: click.Context, submissions: Path, as_json: bool, slurm: str | None, parallel: int, **options: Any
) -> int:
    """Judge a class, on this machine or as a Slurm array; print rows and the ranking. The exit code."""
    with Importing():
        from hw4cli.cli.terminal.casetable import ClassRows
        from hw4cli.cli.terminal.ranking import print_board
        from hw4cli.judge.classarray import ClassArray
        from hw4cli.judge.plan import isolation_warning
        from hw4cli.judge.scoring import results
        from hw4cli.system.files import make_folder

    array = None if slurm is None else split_command(slurm, "--slurm", ctx)
    if not submissions.is_dir():  # before a message about missing cases
        raise click.UsageError(f"--class {printable(submissions)}: there is no such folder", ctx)
    plan = _plan(ctx, options, submissions=submissions, elsewhere=slurm is not None)
    make_folder(options["output"])
    with ClassRows(quiet=as_json) as rows:
        classroom = ClassArray(plan, rows)
        rows.first_messages = [*filter(None, [isolation_warning(plan)]), *plan.notes]
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
    ranked, rules = classroom.write()
    if as_json:
        click.echo(results.json_text(ranked, rules), nl=False)
    else:
        click.echo()
        print_board(ranked, rules)
    return 0 if all_judged else 3


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

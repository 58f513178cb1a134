"""`hw4 judge`: run a program on the cases, and judge it."""

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from hw4cli.cli.options import FILE, command_of, folder_option, limits_option, rules_options

if TYPE_CHECKING:
    from hw4cli.record import Standing
    from hw4cli.session import SessionPlan


@click.command()
@click.argument("cases", nargs=-1)
@folder_option("Where the cases are (see hw4 gen).")
@click.option(
    "--program",
    metavar="COMMAND",
    help="What to judge: a command that takes INPUTFILE OUTPUTFILE.  [default: hw4 itself]",
)
@click.option("--repeat", type=click.IntRange(1, 1000), default=1, show_default=True, help="Runs of each case.")
@click.option("--warmup", type=click.IntRange(0, 1000), default=0, show_default=True, help="Runs before, discarded.")
@limits_option("Another time limit; may be given several times.")
@rules_options(tolerance=5e-3, penalty=60, rank_by="time")
@click.option(
    "--sandbox",
    type=click.Choice(["none", "bwrap"]),
    default="none",
    show_default=True,
    help="bwrap hides the file system and the network from the program (bubblewrap).",
)
@click.option(
    "--output", type=FILE, metavar="DIR", help="Keep a journal there, and results as JSON, XML, CSV, Markdown."
)
@click.option("--resume", is_flag=True, help="Go on with the journal in DIR: run only what it has not.")
@click.option("--user", help="Whose program it is.  [default: who is logged in]")
@click.option("--json", "as_json", is_flag=True, help="Print results.json instead of the table.")
@click.pass_context
def judge(ctx: click.Context, /, as_json: bool, **options: Any) -> int:
    """Run a program on CASES (default: all thirty) and judge it by the assignment's rules.

    A run is killed 10 s past the case's limit (TLE+); wall time over the limit is TLE; any other failure, or an
    element off by more than 5e-3, is NA; else AC. JE is a failure of the judge itself. Time is the sum over AC
    cases. With --repeat, a case must be right each time, and in time by the median.

    Exit status 0 if all are AC, 1 if not, 3 if cases are missing or the judge failed, 130 if interrupted.
    """
    from hw4cli.cli.view import CaseTable
    from hw4cli.session import judge_session

    plan = _plan(ctx, **options)
    with CaseTable(plan.rules, repeated=plan.repeat > 1, as_json=as_json) as table:
        settings = replace(plan.settings, say=table.say)
        standing = judge_session(replace(plan, settings=settings), table)
    return exit_status(standing)


def exit_status(standing: "Standing") -> int:
    """0 if all cases are accepted, 3 if the judge failed in one, else 1."""
    if standing.score is None:
        return 3
    return 0 if standing.passed == len(standing.cases) else 1


def _plan(
    ctx: click.Context,
    cases: tuple[str, ...],
    folder: Path,
    program: str | None,
    limits: dict[str, float],
    tolerance: float,
    penalty: float,
    rank_by: str,
    sandbox: str,
    user: str | None,
    **others: Any,
) -> "SessionPlan":
    """What the options ask for; `others` are the plan's own fields."""
    from hw4cli import suite
    from hw4cli.judge import Settings, check_present
    from hw4cli.record import Rules
    from hw4cli.resources import own_files
    from hw4cli.sandbox import check as check_sandbox
    from hw4cli.session import SessionPlan

    if others["resume"] and not others["output"]:
        raise click.UsageError("--resume needs --output DIR, where the journal is", ctx)
    selected = [replace(case, limit=limits.get(case.name, case.limit)) for case in suite.select(cases)]
    command, env = command_of(program, ctx)
    check_present(selected, folder)
    if sandbox == "bwrap":
        check_sandbox()
    return SessionPlan(
        user=user or _login(),
        command=command,
        cases=selected,
        folder=folder,
        rules=Rules(tolerance=tolerance, penalty=penalty, rank_by=rank_by),
        settings=Settings(env=env, sandbox=sandbox),
        sources=() if program else own_files(),
        **others,
    )


def _login() -> str:
    """The name of who is logged in, or the number where it has none, as in a container."""
    import getpass
    import os

    try:
        return getpass.getuser()
    except (KeyError, OSError):
        return str(os.getuid())

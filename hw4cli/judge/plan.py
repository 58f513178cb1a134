"""What `hw4 judge` is to do, as one frozen plan: `plan_of` builds it from the options, for a program and for a class.

Nothing of a plan changes while it is carried out. What is found out then lies elsewhere: the cases' files in
`PreparedCases`, a student's program in `Program`.
"""

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from pathlib import Path
from typing import Any

from hw4cli.errors import InputError, MachineError
from hw4cli.judge.casewatch import gen_in_subprocess
from hw4cli.judge.scoring import storedrules
from hw4cli.judge.scoring.record import Rules
from hw4cli.judge.scoring.standings import rules_of, with_changes
from hw4cli.problem import suite
from hw4cli.problem.casecheck import check_present
from hw4cli.problem.foreign import cache, is_computed, not_cases, settled
from hw4cli.problem.rules import TOLERANCE
from hw4cli.problem.suite import Case
from hw4cli.resources import installations, source_tree
from hw4cli.sandbox.confine import Confinement
from hw4cli.sandbox.sandbox import can_run_as, privilege_options
from hw4cli.system.account import account, login, numbered
from hw4cli.system.exits import program_problem

BUILD_SECONDS = 120.0


@dataclass(frozen=True)
class RunSettings:
    """How a program is run.

    `env`: the environment from which the program's is made, if not the judge's; `sandbox`: "none" or "bwrap";
    `contained`: without a sandbox, the program still has a process namespace of its own; `run_as`: the program's user,
    "" for the judge's; `hidden`: folders that the sandbox hides; `mounts`: paths that it shows; `own`: the program is
    hw4 itself, whose modules are hidden otherwise; `launcher`: a command, such as srun with options, that starts each
    run; `parent`: where private folders are made (None: the judge chooses; behind a launcher, the machines must share
    it); `pass_env`: further variables for the program."""

    env: Mapping[str, str] | None = None
    tolerance: float = TOLERANCE
    sandbox: str = "none"
    contained: bool = False
    run_as: str = ""
    hidden: tuple[str, ...] = ()
    mounts: tuple[str, ...] = ()
    own: bool = False
    launcher: tuple[str, ...] = ()
    parent: Path | None = None
    pass_env: tuple[str, ...] = ()

    def confinement(self, *cases: Path) -> Confinement:
        """How a program or a build is isolated; the folders of the cases are hidden, too."""
        kind = "processes" if self.contained and self.sandbox == "none" else self.sandbox
        own = () if self.own else map(str, installations())
        return Confinement(
            kind, self.run_as, (*self.hidden, *own, *dict.fromkeys(str(path.absolute()) for path in cases)), self.mounts
        )


PLAIN = RunSettings()


@dataclass(frozen=True)
class Program:
    """What is judged: whose it is, and the command that runs it. `sources` are files that belong to it though its
    command does not name them; `facts` are more that the journal's header says of it: when it was handed in, say."""

    user: str
    command: Sequence[str]
    sources: Sequence[Path] = ()
    facts: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Plan:
    """What to judge by, and how. `cases` have their limits; without `output`, no file is written.

    Of the cases in `kept_limits` the limit is a stored rule: a run by another limit is not repeated, unless it was
    killed too early to be judged by this one. `store_rules`: the rules are to be written into `output`. With
    `secret_seeds`, cases of the same shapes are made there.

    Of a class: `submissions` holds them, `only` names the students to judge, `build_seconds` limits a build,
    `build_line` compiles a source without a Makefile, `each` student's programs run as a user of their own; `is_task`:
    this is a task of an array, and the judge that waits for the array has the class's lock. `race_check`: programs of
    "failing" students, or of "all", are executed on the CPU, too.

    `suite` has the names of all its cases if it is not the assignment's; `notes` are sentences for whoever judges.
    """

    cases: Sequence[Case]
    folder: Path
    output: Path | None = None
    rules: Rules = field(default_factory=Rules)
    kept_limits: frozenset[str] = frozenset()
    store_rules: bool = True
    repeat: int = 1
    warmup: int = 0
    resume: bool = False
    restart: bool = False
    secret_seeds: bool = False
    settings: RunSettings = field(default_factory=RunSettings)
    submissions: Path | None = None
    only: Sequence[str] = ()
    build_seconds: float = BUILD_SECONDS
    build_line: str = ""
    each: bool = False
    is_task: bool = False
    suite: Sequence[str] = ()
    notes: Sequence[str] = ()
    race_check: str | None = None

    def of_student(self, number: int, results: Path) -> "Plan":
        """The plan for one student of the class, the one of this number, into a folder of results."""
        run_as = numbered(number) if self.each else self.settings.run_as
        settings = replace(self.settings, run_as=run_as)
        return replace(self, output=results, resume=True, store_rules=False, settings=settings)


@dataclass(frozen=True)
class JudgeOptions:
    """The options of `hw4 judge` that a plan follows from, parsed. `elsewhere`: programs run on other machines; `env`
    and `own` are those of RunSettings."""

    folder: Path
    cases: tuple[str, ...] = ()
    limits: Mapping[str, float] = field(default_factory=dict)
    causal: bool = False
    tolerance: float | None = None
    penalty: float | None = None
    rank_by: str | None = None
    step: float | None = None
    due: datetime | None = None
    late_policy: str | None = None
    sandbox: str | None = None
    run_as: str | None = None
    mounts: tuple[str, ...] = ()
    launcher: tuple[str, ...] = ()
    pass_env: tuple[str, ...] = ()
    output: Path | None = None
    repeat: int = 1
    warmup: int = 0
    resume: bool = False
    restart: bool = False
    secret_seeds: bool = False
    only: tuple[str, ...] = ()
    build_limit: float = BUILD_SECONDS
    build_line: str | None = None
    is_task: bool = False
    race_check: str | None = None
    submissions: Path | None = None
    elsewhere: bool = False
    env: Mapping[str, str] | None = None
    own: bool = False


def plan_of(options: JudgeOptions) -> Plan:
    """The plan of these options: the one place where a plan is put together.

    The stored rules are read, and the sandbox and the launcher checked on this machine, unless programs run elsewhere.
    Raises InputError for an unknown case or a launcher that cannot be started, MachineError if cases are missing or
    programs cannot be isolated as wanted.
    """
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
        step=options.step,
        due=options.due,
        late_policy=options.late_policy,
    )
    chosen = [case.as_causal(options.causal) for case in selected(options.cases, rules.limits)]
    launcher = options.launcher
    if launcher and not options.elsewhere and (problem := program_problem(launcher[0])):
        raise InputError(f"the launcher {problem}")
    chosen, notes = _described(chosen, options, rules)
    check_present(chosen, options.folder)
    isolation, each = _isolation(options)
    return Plan(
        cases=chosen,
        folder=options.folder,
        output=options.output,
        rules=rules,
        kept_limits=frozenset(kept.limits) - frozenset(options.limits),
        store_rules=not (older and rules == kept and (older / storedrules.NAME).exists()),
        repeat=options.repeat,
        warmup=options.warmup,
        resume=options.resume,
        restart=options.restart,
        secret_seeds=options.secret_seeds,
        settings=RunSettings(
            **isolation,
            env=options.env,
            hidden=_hidden(options),
            mounts=tuple(str(Path(path).absolute()) for path in options.mounts),
            own=options.own,
            launcher=launcher,
            # Behind a launcher, other machines must see the private folders, as they do the folder of results.
            parent=options.output if launcher else None,
            pass_env=options.pass_env,
        ),
        submissions=options.submissions,
        only=options.only,
        build_seconds=options.build_limit,
        build_line=options.build_line or "",
        each=each,
        is_task=options.is_task,
        suite=() if suite.cases() == suite.assignment() else tuple(suite.cases()),
        notes=notes,
        race_check=options.race_check,
    )


def selected(names: Sequence[str], limits: Mapping[str, float]) -> list[Case]:
    """The cases with these names (all if there are none), with these limits instead of the suite's. InputError for an
    unknown name."""
    return [replace(case, limit=limits.get(case.name, case.limit)) for case in suite.select(names)]


def _described(chosen: Sequence[Case], options: JudgeOptions, rules: Rules) -> tuple[list[Case], list[str]]:
    """Cases with the hashes and answers of those that nobody has described, and sentences about them. Answers that are
    missing are computed by processes of their own."""
    folder = options.folder
    known = [settled(case, folder) if case.input_path(folder).is_file() else case for case in chosen]
    made = [case for case in known if case.foreign]
    if not made:
        return known, []
    missing = [case for case in made if is_computed(case) and not case.answer_path(folder).is_file()]
    notes = [not_cases(folder, list(suite.cases()))]
    if missing:
        causal = ["--causal"] if options.causal else []
        gen_in_subprocess(["--dir", str(folder), *causal, *(case.name for case in missing)])
        notes.append(f"no answer in {folder} for {_names(missing)}: computed in float64, and kept in {cache()}")
    table = {case.shape.sizes for case in suite.assignment().values()}
    if without := [case for case in made if case.name not in rules.limits and case.shape.sizes not in table]:
        notes.append(
            f"limit of {suite.OTHER_LIMIT:g} s for {_names(without)}, whose shape the assignment does not have: "
            "--limit CASE=SECONDS sets another"
        )
    return known, [note for note in notes if note]


def _names(cases: Sequence[Case]) -> str:
    return ", ".join(case.name for case in cases)


def _hidden(options: JudgeOptions) -> tuple[str, ...]:
    """The folders that no program may see, but for the cases': a class's submissions, the results, hw4's sources."""
    sources = source_tree() if options.submissions else None
    return tuple(str(path.absolute()) for path in (options.submissions, options.output, sources) if path)


def _isolation(options: JudgeOptions) -> tuple[dict[str, Any], bool]:
    """The fields of RunSettings for isolation; and whether each student's programs have a user of their own.
    MachineError if this machine cannot provide it, unless programs run elsewhere. For a class, whose programs are not
    trusted, no sandbox is used only if the option says so."""
    run_as, is_class = options.run_as, options.submissions is not None
    elsewhere = options.elsewhere or bool(options.launcher)
    each = run_as is None and is_class and os.geteuid() == 0
    if run_as is None:
        run_as = numbered(0) if each else ""
    if each and not elsewhere and not can_run_as(account(run_as)):
        each, run_as = False, "nobody"
    wanted = options.sandbox or ("auto" if is_class else "none")
    settings = {"sandbox": "none" if wanted == "none" else "bwrap", "run_as": run_as, "contained": False}
    user = account(run_as)
    if elsewhere or (wanted == "none" and not is_class):
        return settings, each
    try:
        privilege_options(user)
    except MachineError as error:
        if wanted == "bwrap":
            raise
        if wanted == "auto" and is_class:
            hint = "or give --sandbox none and accept the risks that docs/judging.md lists"
            raise MachineError(f"{error}; {hint}") from None
        return {**settings, "sandbox": "none"}, each
    return {**settings, "contained": wanted == "none"}, each


def isolation_warning(plan: Plan) -> str | None:
    """A warning about what the programs of a class may do without a sandbox; None with one."""
    settings = plan.settings
    if settings.sandbox != "none":
        return None
    user = "a user without a name" if plan.each else settings.run_as or login()
    reach = "" if settings.contained else f", can reach other processes of {user} and end them, the judge too"
    return (
        f"--sandbox none: programs can read and write what {user} can, answers and submissions included{reach}, and "
        "can use the network"
    )

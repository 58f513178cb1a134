"""A session of judging: one user's program on all cases, with each run written into the journal as it ends.

With `resume`, a session continues an older one (after Ctrl-C, a crash, a full disk): runs that its journal has for the
same program, case, limit and GPU are not repeated. With `restart`, the older journal is renamed. With neither, an older
journal is an error, and nothing is run.
"""

import os
import shutil
import socket
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from hw4cli import __version__
from hw4cli.errors import NoGpuError
from hw4cli.judge import identity
from hw4cli.judge.casewatch import CaseWatch, ChangedCasesError
from hw4cli.judge.journalfile import locked_journal, write_line
from hw4cli.judge.runcase import RunSettings, judge_case
from hw4cli.judge.scoring import journal, results, storedrules
from hw4cli.judge.scoring.reasons import damage
from hw4cli.judge.scoring.record import (
    Attempt,
    Result,
    Rules,
    Standing,
    combine,
    decide,
    make_standing,
    rank,
    undecided,
)
from hw4cli.problem import suite
from hw4cli.problem.suite import Case
from hw4cli.problem.verdict import Verdict
from hw4cli.sandbox.gpuneed import ABSENT, gpu_answers, needs_gpu
from hw4cli.sandbox.slurm import job_info


@dataclass(frozen=True)
class SessionPlan:
    """What to judge, and how. `cases` have their limits; without `output`, no file is written.

    `sources` are files that belong to the program though its command does not name them. `facts` are more that the
    header's settings say: a job's number, say, or where the clock was. Where the cases have secret seeds, `public` is
    the folder of those that everyone has. Of the cases in `kept_limits` the limit is a stored rule: a run by another
    limit is not repeated, unless it was killed too early to be judged by this one. `store_rules`: the rules are to be
    written into `output`.
    """

    user: str
    command: Sequence[str]
    cases: Sequence[Case]
    folder: Path
    output: Path | None = None
    rules: Rules = field(default_factory=Rules)
    repeat: int = 1
    warmup: int = 0
    resume: bool = False
    restart: bool = False
    settings: RunSettings = field(default_factory=RunSettings)
    sources: Sequence[Path] = ()
    extra_settings: Mapping[str, Any] = field(default_factory=dict)
    public: Path | None = None
    kept_limits: frozenset[str] = frozenset()
    store_rules: bool = True


class Listener:
    """Receives the events of a session; this one ignores them."""

    def running(self, case: Case, run: int, runs: int) -> None:
        """Run number `run` (from 1) of `runs` of a case starts, warm-ups included."""

    def judged(self, result: Result, skipped: bool) -> None:
        """A case is judged; `skipped` if the journal had all its runs already."""

    def ended(self, standing: Standing) -> None:
        """All cases are judged, or Ctrl-C was pressed; the results are written next."""


def judge_session(plan: SessionPlan, listener: Listener | None = None) -> Standing:
    """Judge a program on the plan's cases; with `output`, write a journal and the results' files there.

    On Ctrl-C the results so far are reported and written, and KeyboardInterrupt is raised with the progress as its
    message. NoGpuError, with the results written, if the GPU falls away; and before anything is run, if the program
    needs one and none answers. InputError if `output` is not a folder, or has a journal and the plan neither `resume`
    nor `restart`; MachineError if it cannot be written, BusyError if another judge is writing there.
    """
    with ExitStack() as stack:
        check_gpu(plan)
        path = stack.enter_context(locked_journal(plan.output, plan.resume, plan.restart)) if plan.output else None
        if plan.output and plan.store_rules:
            storedrules.write(plan.output, plan.rules)
        session = _Session(plan, path, listener or Listener())
        try:
            session.run()
        except KeyboardInterrupt:
            session.close()
            raise KeyboardInterrupt(session.progress_text()) from None
        except NoGpuError:
            session.close()
            raise
        return session.close()


def check_gpu(plan: SessionPlan) -> None:
    """Raise NoGpuError if the plan's program is built for a GPU, and none answers on this machine, where it would
    run."""
    program = shutil.which(plan.command[0]) if plan.command and not plan.settings.launcher else None
    env = os.environ if plan.settings.env is None else plan.settings.env
    if program and needs_gpu(Path(program)) and not gpu_answers(env):
        raise NoGpuError(ABSENT.format(what=f"{Path(program).name}, built for one,"))


def record_not_run(output: Path, user: str, names: Sequence[str], note: str, **fields: Any) -> None:
    """Write into a journal why a user's program was not judged, such as a failed build. Further fields of the header
    may be `said`, the compiler's output, and `fault`, which marks a failure of the judge."""
    with locked_journal(output, resume=True) as path:
        write_line(path, _header(user, names, note=note, **fields))


class _Session:
    """The state of a session, and its loop over the cases."""

    def __init__(self, plan: SessionPlan, path: Path | None, listener: Listener) -> None:
        self.plan, self.path, self.listener = plan, path, listener
        self.journal = journal.read(path) if path and path.exists() else journal.Journal()
        self.watch = plan.settings.watch or CaseWatch(plan.cases, plan.folder, remote=bool(plan.settings.launcher))
        self.tampered = ""  # the names of the cases' files that the program has changed
        self.settings = settings = replace(plan.settings, tolerance=plan.rules.tolerance, watch=self.watch)
        self.env = os.environ if settings.env is None else settings.env
        self.gpu = gpu = None if settings.launcher else identity.first_gpu()  # behind a launcher it is unknown
        program = identity.program_sha256(plan.command, plan.sources)
        self.keys = {case.name: self._key(program, case) for case in plan.cases}
        before = self.journal.header
        older = before.get("keys") if before.get("program_sha256") == program else None
        if self.journal.in_doubt:
            settings.say(f"{damage(self.journal.damaged, path)}: missing results are judged again")
        header = _header(
            plan.user,
            _all_cases(plan.cases, self.journal),
            program=list(plan.command),
            program_sha256=program,
            gpu=gpu,
            settings=settings_of(plan),
            keys={**(older or {}), **self.keys},
        )
        self.journal.add_header(header)
        self._append(header)

    def _key(self, program: str, case: Case) -> str:
        """The key of a case's runs. What the rules alone decide, the tolerance and a limit that was kept, does not
        change the key of runs that the journal has."""
        settings = self.settings

        def key_by(limit: float, tolerance: float) -> str:
            where = (self.gpu and self.gpu["uuid"], tolerance, settings.sandbox, settings.launcher)
            return identity.run_key(program, replace(case, limit=limit), *where)

        kept = case.name in self.plan.kept_limits
        for key, run in reversed(self.journal.runs):
            same = run.case == case.name and (kept or run.limit == case.limit)
            if same and key == key_by(run.limit, run.tolerance):
                return key
        return key_by(case.limit, settings.tolerance)

    def run(self) -> None:
        """Run the cases and repeats that the journal lacks, or was too early to decide."""
        for case in self.plan.cases:
            found = self.journal.attempts().get(case.name, ())
            done = {a.repeat for a in found if a.fault is None and not undecided(a, case.limit)}
            wanted = [repeat for repeat in range(self.plan.repeat) if repeat not in done]
            self._run_case(case, wanted)
            attempts = self.journal.attempts()[case.name]
            self.listener.judged(combine(attempts, self.plan.rules), skipped=not wanted)
        self._restore_cases()

    def _run_case(self, case: Case, repeats: Sequence[int]) -> None:
        warmup = self.plan.warmup if repeats else 0
        for number, repeat in enumerate([None] * warmup + [*repeats], 1):
            self.listener.running(case, number, warmup + len(repeats))
            attempt = self._attempt(case, repeat or 0)
            if repeat is not None or self.tampered:
                self._append(journal.run_line(self.keys[case.name], attempt))
                self.journal.runs.append((self.keys[case.name], attempt))
            if not self.tampered:
                self._restore_cases()
            if attempt.fault and self.gpu and not gpu_answers(self.env):
                raise NoGpuError(f"the GPU ({self.gpu['name']}) does not answer any more: {self.progress_text()}")

    def _attempt(self, case: Case, repeat: int) -> Attempt:
        """Run the program, unless it has changed the cases' files before."""
        if self.tampered:
            shape = (case.shape.B, case.shape.N, case.shape.d)
            problem = f"not run: the program had changed {self.tampered}"
            return Attempt(case.name, shape, case.limit, self.settings.tolerance, repeat, problem=problem)
        if self.watch.check():  # changed between two runs, so by no run
            self._restore_cases()
        attempt = judge_case(case, self.plan.command, self.plan.folder, replace(self.settings, repeat=repeat))
        if attempt.fault is None:
            self.tampered = ", ".join(self.watch.changed_names)
        if self.tampered:
            return attempt
        return replace(attempt, public_right=self._is_right_in_public(case, attempt))

    def _restore_cases(self) -> None:
        """Generate changed cases again if others are judged by them, too. ChangedCasesError if that fails."""
        names = ", ".join(case.name for case in self.watch.damaged_cases)
        if not names or not self.plan.settings.watch:
            return
        if self.watch.shared:
            raise ChangedCasesError(
                f"{names} in {self.watch.folder} changed while programs ran: make it again with hw4 gen --force, and "
                "continue with --resume"
            )
        self.settings.say(f"{names} in {self.watch.folder} was changed while a program ran: making it again")
        self.watch.restore()

    def _is_right_in_public(self, case: Case, attempt: Attempt) -> bool | None:
        """Whether a program that failed on a case with a secret seed is accepted on the public one; if it was too slow,
        in less than half of the time, too. None without a secret seed, or if it did not fail."""
        rules, public = self.plan.rules, self.plan.public
        if public is None or decide(attempt, rules)[0] in (Verdict.AC, Verdict.JE):
            return None
        known = replace(suite.cases()[case.name].as_causal(case.shape.causal), limit=case.limit)
        other = judge_case(known, self.plan.command, public, replace(self.settings, watch=None))
        slow = decide(attempt, rules)[0] in (Verdict.TLE, Verdict.TLE_PLUS)
        faster = (other.wall or 0.0) < (attempt.wall or 0.0) / 2
        return decide(other, rules)[0] is Verdict.AC and (faster or not slow)

    def _append(self, line: dict[str, Any]) -> None:
        if self.path:
            write_line(self.path, line)

    def progress_text(self) -> str:
        """How many cases are judged, and how to continue, as a message."""
        judged = self.journal.attempts()
        done = sum(case.name in judged for case in self.plan.cases)
        return f"{done} of {len(self.plan.cases)} cases are judged{', --resume continues' if self.path else ''}"

    def close(self) -> Standing:
        """The standing so far; reported to the listener, and written into `output`."""
        stored = storedrules.read(self.plan.output) if self.plan.output else None  # others may have changed them
        rules, header = stored or self.plan.rules, self.journal.header
        judged = [combine(attempts, rules) for attempts in self.journal.attempts().values()]
        damaged = self.journal.damaged
        lost = len(judged) < len(header["cases"]) and bool(damaged)
        unranked = make_standing(
            self.plan.user, judged, header["cases"], rules, session=header, damaged=damaged, lost=lost
        )
        [standing] = rank([unranked], rules)
        self.listener.ended(standing)
        if self.plan.output:
            results.write(self.plan.output, [standing], rules)
        return standing


def _header(user: str, names: Sequence[str], **fields: Any) -> dict[str, Any]:
    started = datetime.now(UTC).isoformat(timespec="seconds")
    common = {"host": socket.gethostname(), "started": started, "version": __version__}
    return journal.header_line(user=user, cases=list(names), **{**common, **fields})


def settings_of(plan: SessionPlan) -> dict[str, Any]:
    """How programs are judged, for the journal's header."""
    return {
        "repeat": plan.repeat,
        "warmup": plan.warmup,
        "tolerance": plan.rules.tolerance,
        "penalty": plan.rules.penalty,
        "rank_by": plan.rules.rank_by,
        "due": plan.rules.due.isoformat() if plan.rules.due else None,
        "sandbox": plan.settings.sandbox,
        "contained": plan.settings.contained or plan.settings.sandbox != "none",
        "run_as": plan.settings.run_as or None,
        "launcher": list(plan.settings.launcher),
        "pass_env": list(plan.settings.pass_env),
        "scratch": str(plan.settings.parent or tempfile.gettempdir()),
        "input_cached": not plan.settings.launcher,  # staging wrote the program's copy on this machine
        "clock": "monotonic, from start to end of the process",
        "slurm": job_info(),
        "seeds": "secret" if plan.public else "suite",
        "causal": any(case.shape.causal for case in plan.cases),
        **plan.extra_settings,
    }


def _all_cases(chosen: Iterable[Case], old: journal.Journal) -> list[str]:
    """The names of the cases that count: those chosen now, and those of the resumed journal."""
    named = {case.name for case in chosen}.union(*(header.get("cases", ()) for header in old.headers))
    known = [*suite.cases(), *sorted(named.difference(suite.cases()))]
    return [name for name in known if name in named]

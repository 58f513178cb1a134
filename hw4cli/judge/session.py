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
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from hw4cli import __version__
from hw4cli.errors import NoGpuError
from hw4cli.judge import identity
from hw4cli.judge.casewatch import CaseWatch, ChangedCasesError, PreparedCases
from hw4cli.judge.events import Listener
from hw4cli.judge.plan import Plan, Program
from hw4cli.judge.runcase import judge_case
from hw4cli.judge.scoring import journal, results, storedrules
from hw4cli.judge.scoring.journal import locked_journal, write_line
from hw4cli.judge.scoring.reasons import damage
from hw4cli.judge.scoring.record import (
    Attempt,
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
from hw4cli.sandbox.gpu import ABSENT, first_gpu, gpu_answers, needs_gpu
from hw4cli.sandbox.slurm import job_info
from hw4cli.system import nvidia
from hw4cli.system.machine import machine


def judge_session(
    plan: Plan, program: Program, listener: Listener | None = None, prepared: PreparedCases | None = None
) -> Standing:
    """Judge a program by a plan; with `output`, write a journal and the results' files there. The cases are the
    `prepared` ones, which others are judged by, too, or else the plan's own.

    On Ctrl-C the results so far are reported and written, and KeyboardInterrupt is raised with the progress as its
    message. NoGpuError, with the results written, if the GPU falls away; and before anything is run, if the program
    needs one and none answers. InputError if `output` is not a folder, or has a journal and the plan neither `resume`
    nor `restart`; MachineError if it cannot be written, BusyError if another judge is writing there.
    """
    with ExitStack() as stack:
        check_gpu(plan, program)
        path = stack.enter_context(locked_journal(plan.output, plan.resume, plan.restart)) if plan.output else None
        if plan.output and plan.store_rules:
            storedrules.write(plan.output, plan.rules)
        session = _Session(plan, program, prepared, path, listener or Listener())
        try:
            session.run()
        except KeyboardInterrupt:
            session.close()
            raise KeyboardInterrupt(session.progress_text()) from None
        except NoGpuError:
            session.close()
            raise
        return session.close()


def check_gpu(plan: Plan, program: Program) -> None:
    """Raise NoGpuError if a program is built for a GPU, and none answers on this machine, where it would run."""
    file = shutil.which(program.command[0]) if program.command and not plan.settings.launcher else None
    env = os.environ if plan.settings.env is None else plan.settings.env
    if file and needs_gpu(Path(file)) and not gpu_answers(env):
        raise NoGpuError(ABSENT.format(what=f"{Path(file).name}, built for one,"))


def record_not_run(output: Path, user: str, names: Sequence[str], note: str, **fields: Any) -> None:
    """Write into a journal why a user's program was not judged, such as a failed build. Further fields of the header
    may be `said`, the compiler's output, and `fault`, which marks a failure of the judge."""
    with locked_journal(output, resume=True) as path:
        write_line(path, _header(user, names, note=note, **fields))


class _Session:
    """The state of a session, and its loop over the cases."""

    def __init__(
        self, plan: Plan, program: Program, prepared: PreparedCases | None, path: Path | None, listener: Listener
    ) -> None:
        self.plan, self.program, self.path, self.listener = plan, program, path, listener
        self.shares_cases = prepared is not None  # others are judged by them, too: what changes is made again
        cases = prepared or PreparedCases(
            plan.cases, plan.folder, CaseWatch(plan.cases, plan.folder, remote=bool(plan.settings.launcher))
        )
        self.cases, self.folder, self.watch, self.public = cases.cases, cases.folder, cases.watch, cases.public
        self.journal = journal.read(path) if path and path.exists() else journal.Journal()
        self.tampered = ""  # the names of the cases' files that the program has changed
        self.settings = settings = replace(plan.settings, tolerance=plan.rules.tolerance)
        self.env = os.environ if settings.env is None else settings.env
        self.gpu = gpu = None if settings.launcher else first_gpu()  # behind a launcher it is unknown
        sha256 = identity.program_sha256(program.command, program.sources)
        self.keys = {case.name: self._key(sha256, case) for case in self.cases}
        before = self.journal.header
        older = before.get("keys") if before.get("program_sha256") == sha256 else None
        if self.journal.in_doubt:
            listener.say(f"{damage(self.journal.damaged, path)}: missing results are judged again")
        header = _header(
            program.user,
            _all_cases(self.cases, self.journal),
            program=list(program.command),
            program_sha256=sha256,
            gpu=gpu,
            **({} if settings.launcher else {"machine": _machine(gpu)}),
            settings=settings_of(plan, program.facts),
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
        for case in self.cases:
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
        attempt = self._judged(case, self.folder, repeat, self.watch)
        if attempt.fault is None:
            self.tampered = ", ".join(self.watch.changed_names)
        if self.tampered:
            return attempt
        return replace(attempt, public_right=self._is_right_in_public(case, attempt))

    def _restore_cases(self) -> None:
        """Generate changed cases again if others are judged by them, too. ChangedCasesError if that fails."""
        names = ", ".join(case.name for case in self.watch.damaged_cases)
        if not names or not self.shares_cases:
            return
        if self.watch.shared:
            raise ChangedCasesError(
                f"{names} in {self.watch.folder} changed while programs ran: make it again with hw4 gen --force, and "
                "continue with --resume"
            )
        self.listener.say(f"{names} in {self.watch.folder} was changed while a program ran: making it again")
        self.watch.restore()

    def _is_right_in_public(self, case: Case, attempt: Attempt) -> bool | None:
        """Whether a program that failed on a case with a secret seed is accepted on the public one; if it was too slow,
        in less than half of the time, too. None without a secret seed, or if it did not fail."""
        rules, public = self.plan.rules, self.public
        if public is None or decide(attempt, rules)[0] in (Verdict.AC, Verdict.JE):
            return None
        known = next(own for own in self.plan.cases if own.name == case.name)
        other = self._judged(known, public)
        slow = decide(attempt, rules)[0] in (Verdict.TLE, Verdict.TLE_PLUS)
        faster = (other.wall or 0.0) < (attempt.wall or 0.0) / 2
        return decide(other, rules)[0] is Verdict.AC and (faster or not slow)

    def _judged(self, case: Case, folder: Path, repeat: int = 0, watch: CaseWatch | None = None) -> Attempt:
        return judge_case(case, self.program.command, folder, self.settings, repeat, watch, self.listener.say)

    def _append(self, line: dict[str, Any]) -> None:
        if self.path:
            write_line(self.path, line)

    def progress_text(self) -> str:
        """How many cases are judged, and how to continue, as a message."""
        judged = self.journal.attempts()
        done = sum(case.name in judged for case in self.cases)
        return f"{done} of {len(self.cases)} cases are judged{', --resume continues' if self.path else ''}"

    def close(self) -> Standing:
        """The standing so far; reported to the listener, and written into `output`."""
        stored = storedrules.read(self.plan.output) if self.plan.output else None  # others may have changed them
        rules, header = stored or self.plan.rules, self.journal.header
        judged = [combine(attempts, rules) for attempts in self.journal.attempts().values()]
        damaged = self.journal.damaged
        lost = len(judged) < len(header["cases"]) and bool(damaged)
        unranked = make_standing(
            self.program.user, judged, header["cases"], rules, session=header, damaged=damaged, lost=lost
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


def _machine(gpu: Mapping[str, str] | None) -> dict[str, str]:
    """What a journal's header says of the machine here, where programs run."""
    known = machine({"gpu": gpu["name"], "driver": nvidia.gpu_and_driver()[1]} if gpu else {}, versions=False)
    return {name: str(value) for name, value in known.items() if value is not None}


def settings_of(plan: Plan, facts: Mapping[str, Any]) -> dict[str, Any]:
    """How a program is judged, with these facts about it, for the journal's header."""
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
        "seeds": "secret" if plan.secret_seeds else "suite",
        "causal": any(case.shape.causal for case in plan.cases),
        **({"suite": list(plan.suite)} if plan.suite else {}),
        **facts,
    }


def _all_cases(chosen: Iterable[Case], old: journal.Journal) -> list[str]:
    """The names of the cases that count: those chosen now, and those of the resumed journal."""
    named = {case.name for case in chosen}.union(*(header.get("cases", ()) for header in old.headers))
    known = [*suite.cases(), *sorted(named.difference(suite.cases()))]
    return [name for name in known if name in named]

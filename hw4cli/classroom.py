"""A class: every student's submission built, judged and kept in a folder of its own, whatever is wrong with others.

How far a class is stands in the students' journals and nowhere else: so it is gone on with after any crash, and so
the tasks of a Slurm array need no other way to tell the one who waits for them.
"""

import shlex
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path

from hw4cli import journal, results, slurm, standings
from hw4cli.casefile import make_folder
from hw4cli.errors import Hw4Error, InputError, os_error
from hw4cli.record import Standing
from hw4cli.session import Listener, SessionPlan, judge_session, not_run, set_aside
from hw4cli.submission import STAMP, BrokenError, Submission, program_of, scan
from hw4cli.verdict import Verdict

BUILD_SECONDS = 120.0
LOOK_SECONDS = 2.0  # between two looks at an array's journals: each asks Slurm once
JOB, TASKS = "slurm-job", "slurm"  # in the class's folder: the array's number, and a folder for what its tasks say


@dataclass(frozen=True)
class ClassPlan:
    """Whom to judge, and how: `session` is everyone's plan, without a program; its `output` is the class's folder."""

    submissions: Path
    output: Path
    session: SessionPlan
    only: Sequence[str] = ()
    build_seconds: float = BUILD_SECONDS


class ClassListener:
    """Is told how a class goes on; this one does not care."""

    def begins(self, user: str) -> Listener:
        """A student's turn has come; what is returned is told of the cases."""
        return Listener()

    def judged(self, standing: Standing, kept: bool) -> None:
        """A student is judged; `kept` if nothing had to be run for it."""

    def failed(self, user: str, words: str) -> None:
        """A student could not be judged to the end, for reasons that are not the program's."""

    def says(self, words: str) -> None:
        """What there is to be said besides."""


class Classroom:
    """A class while it is judged."""

    def __init__(self, plan: ClassPlan, listener: ClassListener | None = None) -> None:
        """Read who there is. InputError if there is nobody."""
        self.plan, self.listener = plan, listener or ClassListener()
        self.members = scan(plan.submissions, plan.only)
        if any(member.folder.resolve() == plan.output.resolve() for member in self.members):
            raise InputError(f"{plan.output} lies among the submissions: keep the results elsewhere")
        self._seen: dict[str, tuple[tuple[int, int], bool]] = {}

    def _place(self, member: Submission) -> Path:
        return self.plan.output / member.user

    def is_done(self, member: Submission) -> bool:
        """Whether nothing of a submission need run any more: it is broken, or all its cases are judged, as the plan
        wants it. On which GPU does not count: an array's tasks get any. A journal is read again when it changed."""
        path = self._place(member) / journal.NAME
        try:
            status = path.stat()
            state = status.st_mtime_ns, status.st_size
            if member.user not in self._seen or self._seen[member.user][0] != state:
                self._seen[member.user] = state, self._is_complete(journal.read(path), member)
        except (OSError, Hw4Error, LookupError, TypeError, AttributeError):  # none yet, or damaged
            return False
        return self._seen[member.user][1]

    def _is_complete(self, found: journal.Journal, member: Submission) -> bool:
        plan, settings = self.plan.session, found.header["settings"]
        if settings["submission"] != member.sha256 or found.header.get("fault"):
            return False
        if found.header.get("note"):
            return True
        if (settings["sandbox"], settings["launcher"]) != (plan.settings.sandbox, list(plan.settings.launcher)):
            return False
        attempts = found.attempts()
        return all(
            sum(
                one.fault is None and (one.limit, one.tolerance) == (case.limit, plan.rules.tolerance)
                for one in attempts.get(case.name, ())
            )
            >= plan.repeat
            for case in plan.cases
        )

    def judge(self) -> bool:
        """Judge the members one after the other, but for those who are done; whether all were judged. The failure of
        one is told, and stops nobody."""
        judged = [self._try(member, self._judge) for member in self._ready()]
        return len(judged) == len(self.members) and all(judged)

    def _ready(self) -> list[Submission]:
        """The members who can be judged: unless the plan says to resume, what was judged and built is put away."""
        return [member for member in self.members if self.plan.session.resume or self._try(member, self._put_away)]

    def _put_away(self, member: Submission) -> bool:
        set_aside(self._place(member))
        (self._place(member) / STAMP).unlink(missing_ok=True)
        return True

    def _try(self, member: Submission, work: Callable[[Submission], bool]) -> bool:
        """What work on a member gives; False if it fails, which is told."""
        try:
            return work(member)
        except (Hw4Error, OSError) as error:
            self._failed(member, str(error if isinstance(error, Hw4Error) else os_error(error, "judge it")))
            return False

    def _judge(self, member: Submission) -> bool:
        kept = self.is_done(member)
        if not kept:
            self._run(member)
        return self._tell(member, kept)

    def _tell(self, member: Submission, kept: bool) -> bool:
        """Tell of a member's standing; whether it is one, and not open."""
        one = standings.load(self._place(member), self.plan.session.rules)[0]
        self.listener.judged(one, kept)
        return one.score is not None

    def _run(self, member: Submission) -> None:
        plan, place = self.plan.session, self._place(member)
        listener = self.listener.begins(member.user)
        facts = {**plan.facts, "submission": member.sha256}
        sandboxed = plan.settings.sandbox == "bwrap"
        try:
            program = program_of(member, place, self.plan.build_seconds, sandboxed, plan.folder)
        except BrokenError as problem:
            not_run(place, member.user, [case.name for case in plan.cases], str(problem), settings=facts)
            return
        plan = replace(plan, user=member.user, command=[str(program)], sources=member.files, facts=facts)
        judge_session(replace(plan, output=place, resume=True), listener)

    def _failed(self, member: Submission, words: str) -> None:
        """Tell of a failure; and write it down where nothing is written yet, so that nobody is missing on the board."""
        self.listener.failed(member.user, words)
        if not (self._place(member) / journal.NAME).exists():
            names = [case.name for case in self.plan.session.cases]
            with suppress(Hw4Error):
                not_run(self._place(member), member.user, names, words, fault=True)

    def judge_as_array(self, options: Sequence[str], parallel: int, arguments: Sequence[str]) -> bool:
        """Judge the members who are not done as an array of Slurm's, a task a student, `parallel` at a time; whether
        all were judged. A task runs `hw4 ARGUMENTS --resume --only USER`.

        An array that an earlier call left behind is waited for first. Ctrl-C cancels the array. Raises MachineError,
        with Slurm's words, if Slurm does not take it.
        """
        note, left = self.plan.output / JOB, list(self.members)
        job = note.read_text().strip() if note.is_file() else ""
        if job and slurm.is_alive(job):
            if not self.plan.session.resume:
                raise InputError(f"Slurm's job {job} still judges into {self.plan.output}: --resume waits for it")
            self.listener.says(f"Slurm's job {job} still judges: waiting for it")
            self._watch(job, left)
        ready = self._ready()
        whole, left = len(ready) == len(self.members), [member for member in left if member in ready]
        self._tell_done(left, kept=True)
        if not left:
            return whole
        waiting, tasks, log = tuple(left), min(len(left), slurm.most_tasks()), self.plan.output / TASKS
        make_folder(log)
        job = slurm.submit(options, _script(waiting, tasks, arguments), tasks, parallel, log)
        note.write_text(job)
        self.listener.says(f"Slurm's job {job}: {len(waiting)} submissions, {parallel} at a time")
        self._watch(job, left)
        for member in left:
            self._failed(member, self._why_not(member, log / f"{job}_{waiting.index(member) % tasks}.txt"))
        return whole and not left

    def _watch(self, job: str, left: list[Submission]) -> None:
        """Tell of each member who is done, and take it from the list, until all are or the job has ended."""
        alive = True
        try:
            while alive and left:
                alive = slurm.is_alive(job)  # asked first: what the last task wrote is seen below
                self._tell_done(left, kept=False)
                if alive and left:
                    time.sleep(LOOK_SECONDS)
        except KeyboardInterrupt:
            self.listener.says(f"cancelling Slurm's job {job}; --resume goes on")
            slurm.cancel(job)
            raise

    def _tell_done(self, left: list[Submission], kept: bool) -> None:
        for member in [one for one in left if self.is_done(one)]:
            left.remove(member)
            self._tell(member, kept)

    def _why_not(self, member: Submission, log: Path) -> str:
        """Why a member's task did not judge it to the end: what the judge wrote down, or else what Slurm said."""
        with suppress(Hw4Error):
            one = standings.load(self._place(member), self.plan.session.rules)[0]
            faults = [result.reason for result in one.results.values() if result.verdict is Verdict.JE]
            if one.note or faults:
                return one.note or f"{len(faults)} case(s) could not be judged: {faults[0]}"
        words = log.read_text(errors="replace").splitlines() if log.is_file() else []
        return f"its task ended before all was judged: {slurm.slurm_words(words)}"

    def write(self) -> list[Standing]:
        """Everyone's standing, ranked, and written into the class's folder."""
        ranked = standings.load(self.plan.output, self.plan.session.rules)
        results.write(self.plan.output, ranked, self.plan.session.rules)
        return ranked


def _script(members: Sequence[Submission], tasks: int, arguments: Sequence[str]) -> str:
    """What a task runs: hw4 on the member of its number, and on every `tasks`-th after that."""
    users = " ".join(shlex.quote(member.user) for member in members)
    command = shlex.join([*slurm.python_words("entry"), *arguments, "--resume"])
    return f"""#!/bin/sh
set -- {users}
shift "$SLURM_ARRAY_TASK_ID"
while [ $# -gt 0 ]; do
    {command} --only "$1"
    [ $# -gt {tasks} ] && shift {tasks} || break
done
"""

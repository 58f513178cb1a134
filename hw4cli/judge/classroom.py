"""A class: every student's submission built, judged and kept in a folder of its own, whatever is wrong with others.

How far a class is stands in the students' journals and nowhere else: so it is gone on with after any crash.
"""

import fcntl
import os
import socket
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from hw4cli.errors import BusyError, Hw4Error, InputError, os_error
from hw4cli.judge import handout
from hw4cli.judge.casewatch import ChangedCasesError
from hw4cli.judge.grading import prepared
from hw4cli.judge.journalfile import holds_judging, set_aside
from hw4cli.judge.session import Listener, SessionPlan, judge_session, not_run, settings_of
from hw4cli.judge.submission import STAMP, BrokenError, Submission, program_of, scan
from hw4cli.scoring import journal, results, standings
from hw4cli.scoring.pseudonyms import pseudonyms
from hw4cli.scoring.record import Standing
from hw4cli.system.files import make_folder

BUILD_SECONDS = 120.0
LOCK = ".lock"  # in the class's folder


@dataclass(frozen=True)
class ClassPlan:
    """Whom to judge, and how: `session` is everyone's plan, without a program; its `output` is the class's folder."""

    submissions: Path
    output: Path
    session: SessionPlan
    only: Sequence[str] = ()
    build_seconds: float = BUILD_SECONDS
    secret_seeds: bool = False
    is_task: bool = False  # one of an array's: the judge that waits for the array has the class's lock


class ClassListener:
    """Is told how a class goes on; this one does not care."""

    def begins(self, user: str) -> Listener:
        """A student's turn has come; what is returned is told of the cases."""
        return Listener()

    def judged(self, standing: Standing, kept: bool) -> None:
        """A student is judged; `kept` if nothing had to be run for it."""

    def progress(self, done: int, total: int, seconds_left: float | None) -> None:
        """So many students are done; the rest will take about so long, if that can be told yet."""

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
        output = plan.output.resolve()
        if output == plan.submissions.resolve() or any(
            output.is_relative_to(member.folder.resolve()) for member in self.members
        ):
            raise InputError(f"{plan.output} lies among the submissions: keep the results elsewhere")
        self._seen: dict[str, tuple[tuple[int, int], bool]] = {}
        self._judged, self._kept = 0, 0  # members; those of them for whom nothing had to be run
        self._begun = time.monotonic()

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
        except Exception:  # none yet, or damaged
            return False
        return self._seen[member.user][1]

    def _is_complete(self, found: journal.Journal, member: Submission) -> bool:
        plan, settings = self.plan.session, found.header["settings"]
        wanted = {**self._facts(member), "sandbox": plan.settings.sandbox}
        if found.in_doubt or found.header.get("fault") or {name: settings[name] for name in wanted} != wanted:
            return False
        if found.header.get("note"):
            return True
        if settings["launcher"] != list(plan.settings.launcher):
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

    def _facts(self, member: Submission) -> dict[str, Any]:
        """What a student's journal tells besides, and what --resume goes by."""
        facts = {"submission": member.sha256, "build_limit": self.plan.build_seconds}
        return {**self.plan.session.facts, **facts}

    def judge(self) -> bool:
        """Judge the members one after the other, but for those who are done; whether all were judged. The failure of
        one is told, and stops nobody. BusyError if another judge has the class; InputError if it is judged already, and
        the plan does not say to go on or to begin anew."""
        with self._lock():
            self._prepare()
            judged = [self._try(member, self._judge) for member in self._ready()]
        return len(judged) == len(self.members) and all(judged)

    @contextmanager
    def _lock(self) -> Iterator[None]:
        """Have the class's folder to ourselves. The lock goes with the process, even one that is killed."""
        if self.plan.is_task:
            yield
            return
        with (self.plan.output / LOCK).open("a+") as file:
            with suppress(OSError):  # some file systems have no locks
                try:
                    fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                except BlockingIOError:
                    file.seek(0)
                    who = file.read().strip()
                    raise BusyError(f"another hw4 judge ({who}) works on {self.plan.output}: wait for it") from None
            file.truncate(0)
            print(f"process {os.getpid()} on {socket.gethostname()}", file=file, flush=True)
            yield

    def _prepare(self) -> None:
        """Have the cases recorded, watched, and, with secret seeds, made, if any program is to be run. InputError if
        there is a judging already, and the plan says neither to go on with it nor to begin anew."""
        plan, judged = self.plan, [member for member in self.members if self._is_there(member)]
        if judged and not (plan.session.resume or plan.session.restart):
            raise InputError(
                f"{plan.output} holds a judging of {len(judged)} of {len(self.members)} students: "
                "--resume goes on with it, --restart keeps the old journals and begins anew"
            )
        if plan.session.resume and all(map(self.is_done, self.members)):
            return
        session = prepared(plan.session, plan.output, plan.secret_seeds, shared=plan.is_task)
        self.plan = replace(plan, session=session)

    def _seconds_left(self) -> float | None:
        """How long the others will take if they take as long as those until now."""
        run = self._judged - self._kept
        left = len(self.members) - self._judged
        return (time.monotonic() - self._begun) / run * left if run else None

    def how_far(self) -> str:
        """How many members are judged, and how to go on, in words."""
        return f"{self._judged} of {len(self.members)} students are judged, --resume goes on"

    def _ready(self) -> list[Submission]:
        """The members who can be judged: if the plan says to begin anew, what was judged and built is put away."""
        anew = not self.plan.session.resume
        return [member for member in self.members if not anew or self._try(member, self._put_away)]

    def _is_there(self, member: Submission) -> bool:
        try:
            return holds_judging(self._place(member))
        except OSError:
            return False  # told when it is judged

    def _put_away(self, member: Submission) -> bool:
        set_aside(self._place(member))
        (self._place(member) / STAMP).unlink(missing_ok=True)
        return True

    def _try(self, member: Submission, work: Callable[[Submission], bool]) -> bool:
        """What work on a member gives; False if it fails, which is told. Whatever one student's files do to us, the
        others get their turn."""
        try:
            return work(member)
        except ChangedCasesError:
            raise
        except Hw4Error as error:
            self._failed(member, str(error), told_only=isinstance(error, BusyError))
        except OSError as error:
            self._failed(member, f"{os_error(error, 'judge it')}")
        except Exception as error:
            self._failed(member, f"the judge failed: {error!r}")
        return False

    def _judge(self, member: Submission) -> bool:
        kept = self.is_done(member)
        if not kept:
            place = self._place(member)
            make_folder(place)
            with _locked(place):
                self._run(member, place)
        return self._tell(member, kept)

    def _tell(self, member: Submission, kept: bool) -> bool:
        """Tell of a member's standing; whether it is one, and not open."""
        one = self._standing(member)
        self._judged += 1
        self._kept += kept
        self.listener.progress(self._judged, len(self.members), self._seconds_left())
        self.listener.judged(one, kept)
        return one.score is not None

    def _standing(self, member: Submission) -> Standing:
        path = self._place(member) / journal.NAME
        return standings.decide([standings.entry(path, str(path))], self.plan.session.rules)[0]

    def _run(self, member: Submission, place: Path) -> None:
        """Build and judge a member's submission; or write down that it is broken."""
        plan, listener = self.plan.session, self.listener.begins(member.user)
        handed_in = member.handed_in and member.handed_in.isoformat()
        facts, confinement = {**self._facts(member), "handed_in": handed_in}, plan.settings.confinement(plan.folder)
        try:
            passed = plan.settings.pass_env
            program = program_of(member, place, self.plan.build_seconds, confinement, plan.folder, passed)
        except BrokenError as problem:
            names, settings = [case.name for case in plan.cases], settings_of(replace(plan, facts=facts))
            not_run(place, member.user, names, problem.problem, said=problem.said, settings=settings)
            return
        plan = replace(plan, user=member.user, command=[str(program)], sources=member.files, facts=facts)
        judge_session(replace(plan, output=place, resume=True), listener)

    def _failed(self, member: Submission, words: str, told_only: bool = False) -> None:
        """Tell of a failure; and write it down where nothing is written of this submission, so that nobody is missing
        on the board, or there with what an older one did. Not where another judge is writing it."""
        self.listener.failed(member.user, words)
        if told_only:
            return
        with suppress(Exception):
            path = self._place(member) / journal.NAME
            header = journal.read(path).header if path.exists() else {}
            if (header.get("settings") or {}).get("submission") != member.sha256:
                names = [case.name for case in self.plan.session.cases]
                not_run(self._place(member), member.user, names, words, said="", fault=True)

    def write(self) -> list[Standing]:
        """Everyone's standing, ranked, and written into the class's folder, with a handout for each."""
        output, rules = self.plan.output, self.plan.session.rules
        ranked = standings.load(output, rules)
        results.write(output, ranked, rules)
        handout.write(output, ranked, rules, pseudonyms(output, [one.user for one in ranked]))
        return ranked


@contextmanager
def _locked(folder: Path) -> Iterator[None]:
    """Have a student's folder to ourselves, so that no other judge builds in it. The lock goes with the process."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise BusyError(f"another hw4 judge works in {folder}: wait for it") from None
        yield
    finally:
        os.close(descriptor)

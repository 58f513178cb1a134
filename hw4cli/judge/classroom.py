"""A class: each student's submission is built and judged into a folder of its own, whatever others do.

The students' journals are the only record of the progress, so a class can be resumed after any crash.
"""

import fcntl
import os
import socket
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from hw4cli.errors import BusyError, Hw4Error, InputError, MachineError, NoGpuError, os_error
from hw4cli.judge import handout, racecheck
from hw4cli.judge.casesetup import prepare_cases
from hw4cli.judge.casewatch import ChangedCasesError, PreparedCases
from hw4cli.judge.events import ClassListener
from hw4cli.judge.plan import Plan, Program
from hw4cli.judge.scoring import journal, regrades, results, standings, storedrules
from hw4cli.judge.scoring.journal import archive_journal, has_journal
from hw4cli.judge.scoring.pseudonyms import pseudonyms
from hw4cli.judge.scoring.record import Rules, Standing, undecided
from hw4cli.judge.session import judge_session, record_not_run, settings_of
from hw4cli.judge.submission import STAMP, BrokenError, Build, Submission, build_program, scan
from hw4cli.system.files import make_folder

LOCK = ".lock"  # in the class's folder
LOOSE = "not judged: handed in as a file that is not unpacked"  # in public, without the file's name


class Classroom:
    """The judging of a class."""

    def __init__(self, plan: Plan, listener: ClassListener | None = None) -> None:
        """Find the submissions of a plan that has them, and a folder of results. InputError if there is none, or if the
        results would lie among them."""
        assert plan.submissions and plan.output
        self.plan, self.listener, self.output = plan, listener or ClassListener(), plan.output
        self.prepared: PreparedCases | None = None
        self.members = scan(plan.submissions, plan.only)
        self._numbers = {member.user: number for number, member in enumerate(scan(plan.submissions))}
        output = self.output.resolve()
        if output == plan.submissions.resolve() or any(
            output.is_relative_to(member.folder.resolve()) for member in self.members
        ):
            raise InputError(f"{plan.output} lies among the submissions: keep the results elsewhere")
        self._done_cache: dict[str, tuple[tuple[int, int], bool]] = {}
        self._judged, self._skipped = 0, 0  # members; those of them who were judged before
        self._start = time.monotonic()

    def _folder(self, member: Submission) -> Path:
        return self.output / member.user

    def is_done(self, member: Submission) -> bool:
        """Whether a submission need not run again: it is broken, or all its cases are judged by the plan's rules. The
        GPU does not matter, since an array's tasks get any. A journal is read again only if it has changed."""
        path = self._folder(member) / journal.NAME
        try:
            status = path.stat()
            state = status.st_mtime_ns, status.st_size
            if member.user not in self._done_cache or self._done_cache[member.user][0] != state:
                self._done_cache[member.user] = state, self._is_complete(journal.read(path), member)
        except Exception:  # there is no journal, or it is damaged
            return False
        return self._done_cache[member.user][1]

    def _is_complete(self, found: journal.Journal, member: Submission) -> bool:
        plan, settings = self.plan, found.header["settings"]
        wanted = {**self._submission_settings(member), "sandbox": plan.settings.sandbox}
        if found.in_doubt or found.header.get("fault") or {name: settings[name] for name in wanted} != wanted:
            return False
        if settings.get("build", plan.build_line) != plan.build_line:
            return False
        if found.header.get("note"):
            return True
        if settings["launcher"] != list(plan.settings.launcher):
            return False
        attempts = found.attempts()
        return all(
            sum(
                attempt.fault is None
                and (attempt.limit == case.limit or case.name in plan.kept_limits)
                and not undecided(attempt, case.limit)
                for attempt in attempts.get(case.name, ())
            )
            >= plan.repeat
            for case in plan.cases
        )

    def _submission_settings(self, member: Submission) -> dict[str, Any]:
        """Further settings for a student's journal; if they have changed, --resume judges the submission again."""
        return {"submission": member.sha256, "build_limit": self.plan.build_seconds}

    def judge(self) -> bool:
        """Judge the members who are not done, one after the other; whether all are judged now. A failure on one is
        reported, and the others are judged. BusyError if another judge has the class; InputError if it has journals,
        and the plan neither `resume` nor `restart`."""
        with self._lock():
            self._prepare()
            judged = [self._guarded(member, self._judge) for member in self._prepared_members()]
        return len(judged) == len(self.members) and all(judged)

    @contextmanager
    def _lock(self) -> Iterator[None]:
        """Hold the lock of the class's folder. It ends with the process, even one that is killed."""
        if self.plan.is_task:
            yield
            return
        with (self.output / LOCK).open("a+") as file:
            with suppress(OSError):  # some file systems have no locks
                try:
                    fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                except BlockingIOError:
                    file.seek(0)
                    holder = file.read().strip()
                    raise BusyError(f"another hw4 judge ({holder}) works on {self.output}: wait for it") from None
            file.truncate(0)
            print(f"process {os.getpid()} on {socket.gethostname()}", file=file, flush=True)
            yield

    def _prepare(self) -> None:
        """Prepare the cases, unless no program has to run. InputError if there are journals, and the plan has neither
        `resume` nor `restart`."""
        plan, judged = self.plan, [member for member in self.members if self._has_journal(member)]
        if judged and not (plan.resume or plan.restart):
            raise InputError(
                f"{self.output} has journals of {len(judged)} of {len(self.members)} students: "
                "--resume continues them, --restart keeps them and starts new ones"
            )
        if plan.store_rules and not plan.is_task:
            storedrules.write(self.output, plan.rules)
        if not (plan.resume and all(map(self.is_done, self.members))):
            self.prepared = prepare_cases(plan, self.listener.say)

    def _seconds_left(self) -> float | None:
        """An estimate for the other members, from the mean of those that were run."""
        run = self._judged - self._skipped
        left = len(self.members) - self._judged
        return (time.monotonic() - self._start) / run * left if run else None

    def progress_text(self) -> str:
        """How many members are judged, and how to continue, as a message."""
        return f"{self._judged} of {len(self.members)} students are judged, --resume continues"

    def _prepared_members(self) -> list[Submission]:
        """The members who can be judged; without `resume`, after their journals are renamed and builds discarded."""
        if self.plan.resume:
            return list(self.members)
        return [member for member in self.members if self._guarded(member, self._archive)]

    def _has_journal(self, member: Submission) -> bool:
        try:
            return has_journal(self._folder(member))
        except OSError:
            return False  # the error is reported when it is judged

    def _archive(self, member: Submission) -> bool:
        archive_journal(self._folder(member))
        (self._folder(member) / STAMP).unlink(missing_ok=True)
        return True

    def _guarded(self, member: Submission, work: Callable[[Submission], bool]) -> bool:
        """The result of work on a member; False if it fails, with the failure reported. No failure on one member stops
        the judging of the others, unless the cases are damaged or there is no GPU for the programs."""
        try:
            return work(member)
        except (ChangedCasesError, NoGpuError):
            raise
        except Hw4Error as error:
            self._failed(member, str(error), record=not isinstance(error, BusyError))
        except OSError as error:
            self._failed(member, f"{os_error(error, 'judge it')}")
        except Exception as error:
            self._failed(member, f"the judge failed: {error!r}")
        return False

    def _judge(self, member: Submission) -> bool:
        if problem := member.homeless:
            raise InputError(problem)
        skipped = self.is_done(member)
        if not skipped:
            folder = self._folder(member)
            make_folder(folder)
            with _locked(folder):
                self._run(member, folder)
        if self.plan.race_check:
            self._check_races(member)
        return self._report(member, skipped)

    def _check_races(self, member: Submission) -> None:
        """Execute a member's program on the CPU, if that is wanted and was not done before. What is found is reported,
        and changes no verdict; where it cannot be done, that is said."""
        folder, standing = self._folder(member), self._standing(member)
        right = not standing.note and standing.passed == len(standing.cases)
        if (self.plan.race_check == racecheck.FAILING and right) or standing.note:
            return
        older = racecheck.read(folder)
        if older and older.submission == member.sha256:
            return
        try:
            racecheck.check(member, folder, confined=self.plan.settings.sandbox == "bwrap")
        except MachineError as error:
            self.listener.say(f"{member.user}'s program is not executed on the CPU: {error}")

    def _report(self, member: Submission, skipped: bool) -> bool:
        """Report a member's standing to the listener; whether its score is known."""
        standing = self._standing(member)
        self._judged += 1
        self._skipped += skipped
        self.listener.progress(self._judged, len(self.members), self._seconds_left())
        self.listener.judged(standing, skipped)
        return standing.score is not None

    def _standing(self, member: Submission) -> Standing:
        path = self._folder(member) / journal.NAME
        return standings.compute([standings.read_one(path, str(path))], self.plan.rules)[0]

    def _run(self, member: Submission, folder: Path) -> None:
        """Build and judge a member's submission; if it cannot be built, write the reason into the journal."""
        assert self.prepared
        plan, cases = self.plan.of_student(self._numbers[member.user], folder), self.prepared.folder
        listener = self.listener.started(member.user)
        handed_in = member.handed_in and member.handed_in.isoformat()
        facts = {**self._submission_settings(member), "handed_in": handed_in}
        confinement = plan.settings.confinement(cases, *self.prepared.answers)
        build = Build(plan.build_seconds, confinement, cases, plan.settings.pass_env, plan.build_line)
        try:
            built = build_program(member, folder, build)
        except BrokenError as error:
            facts |= {"notes": list(error.notes)} if error.notes else {}
            names = [case.name for case in plan.cases]
            settings = settings_of(plan, facts)
            record_not_run(folder, member.user, names, error.problem, said=error.said, settings=settings)
            return
        facts |= {"notes": list(built.notes)} if built.notes else {}
        facts |= {"build": plan.build_line} if built.compiled else {}
        judge_session(plan, Program(member.user, [str(built.program)], member.files, facts), listener, self.prepared)

    def _failed(self, member: Submission, message: str, record: bool = True) -> None:
        """Report a failure of the judge, or of whoever collected the class. With `record`, also write it into the
        member's journal, if that has nothing of this submission: so the board shows the failure instead of nothing, or
        of an older submission's results."""
        self.listener.failed(member.user, message)
        if not record:  # another judge is writing the journal
            return
        with suppress(Exception):
            path = self._folder(member) / journal.NAME
            header = journal.read(path).header if path.exists() else {}
            if (header.get("settings") or {}).get("submission") != member.sha256:
                names = [case.name for case in self.plan.cases]
                words = {"public_note": LOOSE} if member.homeless else {}
                record_not_run(self._folder(member), member.user, names, message, said="", fault=True, **words)

    def write(self) -> tuple[list[Standing], Rules]:
        """The ranked standings by the stored rules, and these rules, after writing the class's results and each
        student's handout."""
        output, rules = self.output, storedrules.read(self.output) or self.plan.rules  # others may have changed them
        ranked = standings.load(output, rules)
        regrades.note(output, ranked, rules)
        results.write(output, ranked, rules)
        handout.write(output, ranked, rules, pseudonyms(output, [standing.user for standing in ranked]))
        return ranked, rules


@contextmanager
def _locked(folder: Path) -> Iterator[None]:
    """Hold the lock of a student's folder, so that no other judge builds in it. It ends with the process."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise BusyError(f"another hw4 judge works in {folder}: wait for it") from None
        except OSError:  # some file systems have no locks
            pass
        yield
    finally:
        os.close(descriptor)

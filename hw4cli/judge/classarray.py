"""A class judged as an array of Slurm tasks: submitted, watched, and resumed.

Each task runs `hw4 judge --resume --only USER` for some students. The judge that waits for the array sees their
progress in the students' journals.
"""

import shlex
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from hw4cli.errors import Hw4Error, InputError, MachineError, os_error
from hw4cli.judge.classroom import Classroom
from hw4cli.judge.submission import Submission
from hw4cli.problem.verdict import Verdict
from hw4cli.resources import python_command
from hw4cli.sandbox import slurm
from hw4cli.system.files import make_folder
from hw4cli.text.words import counted

POLL_SECONDS = 2.0  # between two looks at Slurm's queue and the journals
PATIENCE_SECONDS = 600.0  # for which Slurm may not answer
TASKS, JOB = "slurm", "job"  # in the class's folder: the tasks' output; in it, the array's number


class ClassArray(Classroom):
    """A class whose members are judged by the tasks of a Slurm array."""

    def judge_as_array(self, options: Sequence[str], parallel: int, arguments: Sequence[str]) -> bool:
        """Judge the members who are not done by a Slurm array, `parallel` tasks at a time; whether all are judged now.
        A task runs `hw4 judge --resume --only USER ARGUMENTS`.

        If an earlier call has left an array running, it is waited for first. Ctrl-C cancels the array. Raises
        MachineError, with Slurm's message, if Slurm refuses it.
        """
        with self._lock():
            return self._judge_as_array(options, parallel, arguments)

    def _judge_as_array(self, options: Sequence[str], parallel: int, arguments: Sequence[str]) -> bool:
        log, left = self.output / TASKS, list(self.members)
        job_file = log / JOB
        job = job_file.read_text().strip() if job_file.is_file() else ""
        if job and slurm.is_active(job):
            if not self.plan.resume:
                raise InputError(f"Slurm's job {job} still judges into {self.output}: --resume waits for it")
            self.listener.say(f"Slurm's job {job} still judges: waiting for it")
            self._watch(job, left)
        self._prepare()
        ready = self._prepared_members()
        left = [member for member in left if member in ready and not member.homeless]
        all_ready = len(ready) == len(self.members) and not any(member.homeless for member in ready)
        for member in ready:
            if member.homeless:
                self._guarded(member, self._judge)
        self._report_done(left, skipped=True)
        if not left:
            return all_ready
        waiting, tasks = tuple(left), min(len(left), slurm.max_array_tasks())
        make_folder(log)
        job = slurm.submit(options, _script(waiting, tasks, arguments), tasks, parallel, log)
        try:
            job_file.write_text(job)
        except OSError as error:  # nobody would wait for it
            slurm.cancel(job)
            raise os_error(error, f"write {job_file}") from None
        self.listener.say(f"Slurm's job {job}: {counted(len(waiting), 'submission')}, {parallel} at a time")
        self._watch(job, left)
        for member in left:
            self._failed(member, self._failure(member, log / f"{job}_{waiting.index(member) % tasks}.txt"))
        return all_ready and not left

    def _watch(self, job: str, left: list[Submission]) -> None:
        """Report each member who is done, and remove it from the list, until all are or the job has ended. Slurm may
        fail to answer for PATIENCE_SECONDS."""
        active, last_answer = True, time.monotonic()
        try:
            while active and left:
                try:
                    active = slurm.is_active(job)  # before the journals are read: so the last task's is read, too
                    last_answer = time.monotonic()
                except MachineError as error:
                    if time.monotonic() - last_answer > PATIENCE_SECONDS:
                        raise
                    self.listener.say(f"{error}; asking again")
                self._report_done(left, skipped=False)
                if active and left:
                    time.sleep(POLL_SECONDS)
        except KeyboardInterrupt:
            self.listener.say(f"cancelling Slurm's job {job}; --resume continues")
            slurm.cancel(job)
            raise

    def _report_done(self, left: list[Submission], skipped: bool) -> None:
        for member in list(filter(self.is_done, left)):
            left.remove(member)
            self._guarded(member, lambda done: self._report(done, skipped))

    def _failure(self, member: Submission, log: Path) -> str:
        """Why a member's task did not finish its judging: the reason in the journal, or else the task's output."""
        if self._has_journal(member):
            with suppress(Hw4Error):
                standing = self._standing(member)
                faults = [result.reason for result in standing.results.values() if result.verdict is Verdict.JE]
                if standing.note or faults:
                    return standing.note or f"{counted(len(faults), 'case')} could not be judged: {faults[0]}"
        lines = log.read_text(errors="replace").splitlines() if log.is_file() else []
        return f"its task ended before all was judged: {slurm.error_lines(lines)}"


def _script(members: Sequence[Submission], tasks: int, arguments: Sequence[str]) -> str:
    """The script of a task: hw4 judges the member of its number, and every `tasks`-th after that."""
    users = " ".join(shlex.quote(member.user) for member in members)
    command = shlex.join([*python_command("entry", "-P"), "judge", "--task", "--resume", "--only"])
    return f"""#!/bin/sh
set -- {users}
shift "$SLURM_ARRAY_TASK_ID"
while [ $# -gt 0 ]; do
    {command} "$1" {shlex.join(arguments)}
    [ $# -gt {tasks} ] && shift {tasks} || break
done
"""

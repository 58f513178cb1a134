"""A class judged as an array of Slurm's, a task a student: submitted, watched, and gone on with.

The tasks judge as anyone would, with `hw4 judge --resume --only USER`. How far they are stands in the students'
journals, so they need no other way to tell the one who waits for them.
"""

import shlex
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from hw4cli.errors import Hw4Error, InputError, MachineError
from hw4cli.judge.classroom import Classroom
from hw4cli.judge.submission import Submission
from hw4cli.problem.verdict import Verdict
from hw4cli.resources import python_words
from hw4cli.runner import slurm
from hw4cli.system.files import make_folder
from hw4cli.text.words import counted

LOOK_SECONDS = 2.0  # between two looks at an array's journals: each asks Slurm once
PATIENCE_SECONDS = 600.0  # with a Slurm that does not answer
TASKS, JOB = "slurm", "job"  # in the class's folder: what the tasks said; in there, the array's number


class ClassArray(Classroom):
    """A class whose members are judged by tasks of Slurm's."""

    def judge_as_array(self, options: Sequence[str], parallel: int, arguments: Sequence[str]) -> bool:
        """Judge the members who are not done as an array of Slurm's, a task a student, `parallel` at a time; whether
        all were judged. A task runs `hw4 judge --resume --only USER ARGUMENTS`.

        An array that an earlier call left behind is waited for first. Ctrl-C cancels the array. Raises MachineError,
        with Slurm's words, if Slurm does not take it.
        """
        with self._lock():
            return self._judge_as_array(options, parallel, arguments)

    def _judge_as_array(self, options: Sequence[str], parallel: int, arguments: Sequence[str]) -> bool:
        log, left = self.plan.output / TASKS, list(self.members)
        note = log / JOB
        job = note.read_text().strip() if note.is_file() else ""
        if job and slurm.is_alive(job):
            if not self.plan.session.resume:
                raise InputError(f"Slurm's job {job} still judges into {self.plan.output}: --resume waits for it")
            self.listener.says(f"Slurm's job {job} still judges: waiting for it")
            self._watch(job, left)
        self._prepare()
        ready = self._ready()
        whole, left = len(ready) == len(self.members), [member for member in left if member in ready]
        self._tell_done(left, kept=True)
        if not left:
            return whole
        waiting, tasks = tuple(left), min(len(left), slurm.most_tasks())
        make_folder(log)
        job = slurm.submit(options, _script(waiting, tasks, arguments), tasks, parallel, log)
        note.write_text(job)
        self.listener.says(f"Slurm's job {job}: {counted(len(waiting), 'submission')}, {parallel} at a time")
        self._watch(job, left)
        for member in left:
            self._failed(member, self._why_not(member, log / f"{job}_{waiting.index(member) % tasks}.txt"))
        return whole and not left

    def _watch(self, job: str, left: list[Submission]) -> None:
        """Tell of each member who is done, and take it from the list, until all are or the job has ended. Slurm may
        be away for a while."""
        alive, heard = True, time.monotonic()
        try:
            while alive and left:
                try:
                    alive = slurm.is_alive(job)  # asked first: what the last task wrote is seen below
                    heard = time.monotonic()
                except MachineError as error:
                    if time.monotonic() - heard > PATIENCE_SECONDS:
                        raise
                    self.listener.says(f"{error}; asking again")
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
            self._try(member, lambda one: self._tell(one, kept))

    def _why_not(self, member: Submission, log: Path) -> str:
        """Why a member's task did not judge it to the end: what the judge wrote down, or else what Slurm said."""
        with suppress(Hw4Error):
            one = self._standing(member)
            faults = [result.reason for result in one.results.values() if result.verdict is Verdict.JE]
            if one.note or faults:
                return one.note or f"{counted(len(faults), 'case')} could not be judged: {faults[0]}"
        words = log.read_text(errors="replace").splitlines() if log.is_file() else []
        return f"its task ended before all was judged: {slurm.slurm_words(words)}"


def _script(members: Sequence[Submission], tasks: int, arguments: Sequence[str]) -> str:
    """What a task runs: hw4 on the member of its number, and on every `tasks`-th after that."""
    users = " ".join(shlex.quote(member.user) for member in members)
    command = shlex.join([*python_words("entry", "-P"), "judge", "--task", "--resume", "--only"])
    return f"""#!/bin/sh
set -- {users}
shift "$SLURM_ARRAY_TASK_ID"
while [ $# -gt 0 ]; do
    {command} "$1" {shlex.join(arguments)}
    [ $# -gt {tasks} ] && shift {tasks} || break
done
"""

"""Launches in a process of their own: a kernel may crash or hang, and AddressSanitizer must be loaded before Python."""

import os
import pickle
import subprocess
import sys
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path

import numpy as np

from hw4cli.compute.plan import Plan
from hw4cli.emulator.build import ASAN, find_compiler
from hw4cli.emulator.library import FORWARDS, Library, Outcome, Schedule
from hw4cli.emulator.report import Finding
from hw4cli.problem.casefile import FLOAT32, Floats
from hw4cli.resources import python_command
from hw4cli.system.exits import describe_exit

SANITIZER = "detect_leaks=0:halt_on_error=0:detect_stack_use_after_return=0:allocator_may_return_null=1"


@dataclass(frozen=True)
class Job:
    """A plan to run on inputs (n, 3, N, d), by a shared object."""

    path: Path
    plan: Plan
    inputs: Floats
    lanes: int = 32
    schedule: Schedule = FORWARDS


def run_jobs(jobs: Sequence[Job], build: str, seconds: float = 60.0) -> list[Outcome]:
    """The outcome of each job, in order; of one that crashes or takes longer than so many seconds, that as a finding.

    Raises MachineError if AddressSanitizer's library is wanted and not there.
    """
    env = dict(os.environ)
    if build == ASAN:
        env |= {"LD_PRELOAD": find_compiler().sanitizer_library(), "ASAN_OPTIONS": SANITIZER}
    outcomes: list[Outcome] = []
    while len(outcomes) < len(jobs):
        left = jobs[len(outcomes) :]
        with subprocess.Popen(
            python_command("emulator.worker", "-P"),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env=env,
        ) as process:
            try:
                answers, _ = process.communicate(pickle.dumps(left), timeout=seconds * len(left))
                end = process.returncode
            except subprocess.TimeoutExpired:
                process.kill()
                answers, _ = process.communicate()
                end = 0
        before = len(outcomes)
        stream = BytesIO(answers)
        with suppress(EOFError, pickle.UnpicklingError):
            while True:
                outcomes.append(pickle.load(stream))
        if len(outcomes) < len(jobs):
            outcomes.append(_broken(left[len(outcomes) - before], end, seconds))
    return outcomes


def _broken(job: Job, end: int, seconds: float) -> Outcome:
    """What became of a job without an answer: `end` is its process's exit status, 0 where it was ended."""
    n, _, N, d = job.inputs.shape
    what = Finding("hang", f"the kernel has not ended after {seconds:g} s")
    if end:
        what = Finding("crash", f"the kernel's process {describe_exit(end)}: it touches memory that is not there")
    return Outcome(np.full((n, N, d), np.nan, FLOAT32), (what,), False)


def main() -> None:
    """Run the jobs that come on stdin; each outcome goes to stdout when it is there."""
    answers = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # a kernel's own printf
    libraries: dict[Path, Library] = {}
    for job in pickle.load(sys.stdin.buffer):
        library = libraries.get(job.path) or libraries.setdefault(job.path, Library(job.path))
        pickle.dump(library.run(job.plan, job.inputs, job.lanes, job.schedule), answers)
        answers.flush()
    os._exit(0)

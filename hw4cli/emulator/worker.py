"""Launches in a process of their own: a kernel may crash or hang, and AddressSanitizer must be loaded before Python."""

import os
import pickle
import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path

import numpy as np

from hw4cli.emulator.build import ASAN, Run, find_compiler
from hw4cli.emulator.library import FORWARDS, Library, Outcome, Schedule
from hw4cli.emulator.report import Finding
from hw4cli.plans.plan import Plan
from hw4cli.problem.casefile import FLOAT32, Floats
from hw4cli.resources import python_command
from hw4cli.system.exits import describe_exit

SANITIZER = "detect_leaks=0:halt_on_error=0:detect_stack_use_after_return=0:allocator_may_return_null=1"

OUT_OF_TIME = signal.SIGPROF  # what ends a process that has had its processor time


@dataclass(frozen=True)
class Job:
    """A plan to run on inputs (n, 3, N, d), by a shared object."""

    path: Path
    plan: Plan
    inputs: Floats
    lanes: int = 32
    schedule: Schedule = FORWARDS


def run_jobs(jobs: Sequence[Job], build: str, seconds: float = 60.0, run: Run = subprocess.run) -> list[Outcome]:
    """The outcome of each job, in order; of one that crashes, or takes longer than so many seconds, that as a finding.

    The seconds are the processor's. `run` starts a process and waits for it. Raises MachineError if AddressSanitizer's
    library is wanted and not there.
    """
    env = dict(os.environ)
    if build == ASAN:
        env |= {"LD_PRELOAD": find_compiler().sanitizer_library(), "ASAN_OPTIONS": SANITIZER}
    outcomes: list[Outcome] = []
    while len(outcomes) < len(jobs):
        left = jobs[len(outcomes) :]
        done = run(
            python_command("emulator.worker", "-P"),
            input=pickle.dumps((seconds, left)),
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env=env,
        )
        answered = list(_answers(done.stdout))
        outcomes += answered
        if len(outcomes) < len(jobs):
            outcomes.append(_broken(left[len(answered)], done.returncode, seconds))
    return outcomes


def _answers(stream: bytes) -> Iterator[Outcome]:
    """What a process has answered, as far as it is whole."""
    file = BytesIO(stream)
    with suppress(EOFError, pickle.UnpicklingError):
        while True:
            yield pickle.load(file)


def _broken(job: Job, end: int, seconds: float) -> Outcome:
    """What became of a job without an answer: `end` is its process's exit status."""
    n, _, N, d = job.inputs.shape
    what = Finding("crash", f"the kernel's process {describe_exit(end)}: it touches memory that is not there")
    if end == -OUT_OF_TIME:
        what = Finding("hang", f"the kernel has not ended after {seconds:g} s")
    return Outcome(np.full((n, N, d), np.nan, FLOAT32), (what,), False)


def main() -> None:
    """Run the jobs that come on stdin; each outcome goes to stdout when it is there."""
    answers = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # a kernel's own printf
    libraries: dict[Path, Library] = {}
    seconds, jobs = pickle.load(sys.stdin.buffer)
    for job in jobs:
        signal.setitimer(signal.ITIMER_PROF, seconds)  # nothing handles its signal: the process ends
        library = libraries.get(job.path) or libraries.setdefault(job.path, Library(job.path))
        pickle.dump(library.run(job.plan, job.inputs, job.lanes, job.schedule), answers)
        answers.flush()
    os._exit(0)

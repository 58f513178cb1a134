"""Launches in a process of their own: a kernel may crash or hang, and AddressSanitizer must be loaded before Python."""

import os
import pickle
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path
from typing import BinaryIO

import numpy as np

from hw4cli.emulator.build import ASAN, Run, find_compiler
from hw4cli.emulator.far import far_findings_of_files
from hw4cli.emulator.library import FORWARDS, Library, Outcome, Schedule
from hw4cli.emulator.report import Finding
from hw4cli.errors import MachineError
from hw4cli.plans.plan import Plan
from hw4cli.problem.casefile import FLOAT32, Floats
from hw4cli.problem.workload import Workload
from hw4cli.resources import python_command
from hw4cli.system.exits import describe_exit
from hw4cli.text.progress import Advance

SANITIZER = "detect_leaks=0:halt_on_error=0:detect_stack_use_after_return=0:allocator_may_return_null=1"

STALL = 5.0  # seconds of processor time in which no thread of a kernel ends or meets others, as in an endless loop
STALLED = 70  # how a process ends then

OUT_OF_TIME = signal.SIGPROF  # what ends a process that has had its processor time


@dataclass(frozen=True)
class Job:
    """A plan to run on inputs (n, 3, N, d), by a shared object; or a few blocks of it on a `huge` shape."""

    path: Path
    plan: Plan
    inputs: Floats
    lanes: int = 32
    schedule: Schedule = FORWARDS
    rows: tuple[int, int] | None = None  # the first, and how many, if not all are computed
    far: bool = False  # batches lie more than 2^31 elements apart
    seconds: float = 60.0  # of processor time that it may take
    record: bool = False  # what the order of turns differs in from the usual one
    replay: tuple[str, ...] | None = None  # these switches in place of a schedule
    window: int = 0  # causal: of the keys that a row sees, the last so many
    huge: Workload | None = None  # then there is no answer, and indices alone are looked at (far.py)


def run_jobs(
    jobs: Sequence[Job],
    build: str,
    run: Run = subprocess.run,
    advance: Advance | None = None,
    until_a_hang: bool = False,
) -> list[Outcome]:
    """The outcome of each job, in order; of one that crashes, or takes longer than its seconds, that as a finding.

    `run` starts a process and waits for it; `advance` is called when jobs are done. `until_a_hang`: the jobs after one
    that does not end have no answer and no finding, as they would take as long. Raises MachineError if
    AddressSanitizer's library is wanted and not there.
    """
    env = dict(os.environ)
    if build == ASAN:
        env |= {"LD_PRELOAD": find_compiler().sanitizer_library(), "ASAN_OPTIONS": SANITIZER}
    outcomes: list[Outcome] = []
    while len(outcomes) < len(jobs):
        left = jobs[len(outcomes) :]
        with _progress_pipe(advance) as to:
            done = run(
                [*python_command("emulator.worker", "-P"), str(to)],
                input=pickle.dumps(left),
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                env=env,
                pass_fds=[to],
            )
        answered = list(_answers(done.stdout))
        outcomes += answered
        if len(outcomes) < len(jobs) and done.returncode != STALLED:
            outcomes.append(_broken(left[len(answered)], done.returncode))
            if advance:
                advance(1)
        rest = jobs[len(outcomes) :]
        if until_a_hang and rest and done.returncode in (STALLED, -OUT_OF_TIME):
            outcomes += [_unknown(job, ()) for job in rest]
            if advance:
                advance(len(rest))
    return outcomes


@contextmanager
def _progress_pipe(advance: Advance | None) -> Iterator[int]:
    """A file to which a process writes a byte for each job that is done: `advance` hears of it at once."""
    read, write = os.pipe()

    def listen() -> None:
        while count := len(os.read(read, 64)):
            if advance:
                advance(count)

    listener = threading.Thread(target=listen, daemon=True)
    listener.start()
    try:
        yield write
    finally:
        os.close(write)
        listener.join()
        os.close(read)


def _answers(stream: bytes) -> Iterator[Outcome]:
    """What a process has answered, as far as it is whole."""
    file = BytesIO(stream)
    with suppress(EOFError, pickle.UnpicklingError):
        while True:
            yield pickle.load(file)


def _broken(job: Job, end: int) -> Outcome:
    """What became of a job without an answer: `end` is its process's exit status."""
    what = Finding("crash", f"the kernel's process {describe_exit(end)}: it touches memory that is not there")
    if end == -OUT_OF_TIME:
        what = Finding("hang", f"the kernel has not ended after {job.seconds:.0f} s")
    return _unknown(job, (what,))


def _unknown(job: Job, findings: tuple[Finding, ...]) -> Outcome:
    """An outcome without an answer."""
    n, _, N, d = job.inputs.shape
    return Outcome(np.full((n, N, d), np.nan, FLOAT32), findings, False)


def main() -> None:
    """Run the jobs that come on stdin; each outcome goes to stdout when it is there, and a byte to the file that is
    named, an open one's number."""
    answers, progress = os.fdopen(os.dup(1), "wb"), int(sys.argv[1])
    os.dup2(2, 1)  # a kernel's own printf
    libraries: dict[Path, Library] = {}
    for job in pickle.load(sys.stdin.buffer):
        signal.setitimer(signal.ITIMER_PROF, job.seconds)  # nothing handles its signal: the process ends
        library = libraries.get(job.path) or libraries.setdefault(job.path, Library(job.path))
        with _unless_stalled(library, job, answers, progress):
            try:
                if job.huge:
                    outcome = _unknown(job, far_findings_of_files(library, job.plan, job.huge, job.lanes))
                else:
                    outcome = library.run(
                        job.plan,
                        job.inputs,
                        job.lanes,
                        job.schedule,
                        rows=job.rows,
                        far=job.far,
                        record=job.record,
                        replay=job.replay,
                        window=job.window,
                    )
            except MachineError:
                if not job.far and not job.huge:
                    raise
                outcome = _unknown(job, ())  # where addresses are scarce, nothing is said about far batches
        _answer(outcome, answers, progress)
    os._exit(0)


def _answer(outcome: Outcome, answers: BinaryIO, progress: int) -> None:
    pickle.dump(outcome, answers)
    answers.flush()
    os.write(progress, b".")


@contextmanager
def _unless_stalled(library: Library, job: Job, answers: BinaryIO, progress: int) -> Iterator[None]:
    """A with-block in which a kernel runs. If a thread of it neither ends nor meets others for long, that is the
    outcome, and this process ends: nothing else stops an endless loop."""
    over = threading.Event()

    def watch() -> None:
        seen, since = library.events, time.process_time()
        while not over.wait(STALL / 40):
            if library.events != seen:
                seen, since = library.events, time.process_time()
            elif time.process_time() - since > STALL:
                block, thread = library.running
                sentence = (
                    f"block {block}, thread {thread} has been in a loop for {STALL:.0f} s in which it meets no other "
                    "thread: it does not end"
                )
                _answer(_unknown(job, (Finding("hang", sentence),)), answers, progress)
                os._exit(STALLED)

    watcher = threading.Thread(target=watch, daemon=True)
    watcher.start()
    try:
        yield
    finally:
        over.set()
        watcher.join()

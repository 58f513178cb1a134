"""Making cases: inputs from seeds, answers from the float64 oracle."""

import hashlib
import shutil
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

from hw4cli.errors import Hw4Error, MachineError
from hw4cli.problem.casefile import Floats, InputFile, check_finite
from hw4cli.problem.checksums import answer_sha256, note_answer, note_file, verify
from hw4cli.problem.shape import Shape
from hw4cli.problem.suite import Case, write_input
from hw4cli.system.files import NewFile, check_place
from hw4cli.text.progress import Advance

BLOCK_BYTES = 32 << 20
Oracle = Callable[[Floats, Advance], Floats]  # the second is told the rows done


@dataclass(frozen=True)
class Job:
    """What to make of a case: its input and its answer, or only one of them (None), and where they go.

    `source` is the input's place, be it made or there; `sha256` is what its SHA-256 must be, None for a random case.
    """

    source: Path
    answer: Path | None
    shape: Shape
    seed: int
    sha256: str | None = None
    input_wanted: bool = True

    @classmethod
    def of(cls, case: Case, folder: Path, answers: bool) -> "Job":
        """The job that makes a named case in a folder."""
        answer = case.answer_path(folder) if answers else None
        return cls(case.input_path(folder), answer, case.shape, case.seed, case.sha256)

    @property
    def bytes(self) -> int:
        """How much this job writes."""
        return self.input_wanted * self.shape.input_bytes + (self.shape.output_bytes if self.answer else 0)

    def rest(self) -> "Job":
        """What of this job is not there yet: the suite's input, the answer that was made from it."""
        if self.sha256 is None:
            return self
        made = answer_sha256(self.answer, self.sha256) if self.answer else None
        answer = None if made and self.answer and _is_there(self.answer, made) else self.answer
        return replace(self, answer=answer, input_wanted=not _is_there(self.source, self.sha256))


def _is_there(path: Path, sha256: str) -> bool:
    try:
        return verify(path, sha256)
    except Hw4Error:
        return False


def check_space(jobs: list[Job]) -> None:
    """Raise InputError if a file cannot be where a job writes it, MachineError if its folder has no room for it."""
    for path in (path for job in jobs for path in (job.input_wanted and job.source, job.answer) if path):
        check_place(path)
    for folder in {job.source.resolve().parent for job in jobs}:
        needed = sum(job.bytes for job in jobs if job.source.resolve().parent == folder)
        free = shutil.disk_usage(folder).free
        if needed > free:
            raise MachineError(
                f"{needed / 1e9:.2f} GB are to be written to {folder}, which has {free / 1e9:.2f} GB free"
            )


@dataclass(frozen=True)
class Step:
    """The making of one file. `run` tells its argument of its progress, which adds up to `total`; equal parts of that
    take equal time."""

    path: Path
    total: int
    run: Callable[[Advance], None]


def steps(job: Job, oracle: Oracle | None) -> list[Step]:
    """How a job is done: its input by the byte, its answer, if it has one, by the row.

    What is made for the suite is recorded (hw4cli/problem/checksums.py): a later run knows its own files again.
    """
    job.shape.check(str(job.source))
    made = [Step(job.source, job.shape.input_bytes, partial(_make_input, job))] if job.input_wanted else []
    if job.answer and oracle:
        made.append(Step(job.answer, job.shape.B * job.shape.N, partial(_make_answer, job, job.answer, oracle)))
    return made


def make(job: Job, oracle: Oracle, advance: Advance) -> None:
    """Do all of a job."""
    for step in steps(job, oracle):
        step.run(advance)


def _make_input(job: Job, advance: Advance) -> None:
    write_input(job.source, job.shape, job.seed, advance, job.sha256)
    if job.sha256:
        note_file(job.source, job.sha256)


def _make_answer(job: Job, target: Path, oracle: Oracle, advance: Advance) -> None:
    digest = hashlib.sha256()
    with InputFile(job.source) as inputs, NewFile(target) as output:
        for first, block in inputs.blocks(BLOCK_BYTES):
            check_finite(block, (first, 0, 0), job.source)
            answer = oracle(block, advance)
            output.write(answer)
            digest.update(answer.data)
    if job.sha256:
        note_answer(target, digest.hexdigest(), job.sha256)

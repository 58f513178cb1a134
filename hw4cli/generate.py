"""Making cases: inputs from seeds, answers from the float64 oracle."""

import hashlib
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from hw4cli.casefile import Floats, InputFile, check_finite
from hw4cli.checksums import answer_sha256, note_answer, note_file, verify
from hw4cli.errors import Hw4Error, MachineError
from hw4cli.newfile import NewFile, check_place
from hw4cli.shape import Shape
from hw4cli.suite import Advance, Case, write_input
from hw4cli.words import counted

BLOCK_BYTES = 32 << 20
Oracle = Callable[[Floats], Floats]


@dataclass(frozen=True)
class Job:
    """A case to make: where its input and (unless None) its answer go, and what the input's SHA-256 must be."""

    input: Path
    answer: Path | None
    shape: Shape
    seed: int
    sha256: str | None = None

    @classmethod
    def of(cls, case: Case, folder: Path, answers: bool) -> "Job":
        """The job that makes a named case in a folder."""
        answer = case.answer_path(folder) if answers else None
        return cls(case.input_path(folder), answer, case.shape, case.seed, case.sha256)

    @property
    def bytes(self) -> int:
        """How much this job writes."""
        return self.shape.input_bytes + (self.shape.output_bytes if self.answer else 0)

    def done(self) -> bool:
        """Whether all of it is there already: the suite's input, and the answer that was made from it."""
        try:
            return self.sha256 is not None and verify(self.input, self.sha256) and self._has_answer(self.sha256)
        except Hw4Error:
            return False

    def _has_answer(self, input_sha256: str) -> bool:
        if self.answer is None:
            return True
        made = answer_sha256(self.answer, input_sha256)
        return made is not None and verify(self.answer, made)


def check_space(jobs: list[Job]) -> None:
    """Raise InputError if a file cannot be where a job writes it, MachineError if its folder has no room for it."""
    for path in (path for job in jobs for path in (job.input, job.answer) if path):
        check_place(path)
    for folder in {job.input.resolve().parent for job in jobs}:
        needed = sum(job.bytes for job in jobs if job.input.resolve().parent == folder)
        free = shutil.disk_usage(folder).free
        if needed > free:
            raise MachineError(
                f"{needed / 1e9:.2f} GB are to be written to {folder}, which has {free / 1e9:.2f} GB free"
            )


def make(job: Job, oracle: Oracle, advance: Advance) -> None:
    """Write a job's input and answer. `advance` is told the bytes written, which add up to `job.bytes`.

    What is made for the suite is recorded (hw4cli/checksums.py): a later run knows its own files again.
    """
    job.shape.check(str(job.input))
    write_input(job.input, job.shape, job.seed, advance, job.sha256)
    if job.sha256:
        note_file(job.input, job.sha256)
    if job.answer:
        digest = write_answer(job.input, job.answer, oracle, advance)
        if job.sha256:
            note_answer(job.answer, digest, job.sha256)


def write_answer(source: Path, target: Path, oracle: Oracle, advance: Advance) -> str:
    """Write the oracle's answer to an input file; returns the answer's SHA-256."""
    digest = hashlib.sha256()
    with InputFile(source) as inputs, NewFile(target) as output:
        for first, block in inputs.blocks(BLOCK_BYTES):
            check_finite(block, (first, 0, 0), source)
            answer = oracle(block)
            output.write(answer)
            digest.update(answer.data)
            advance(answer.nbytes)
    return digest.hexdigest()


def best_oracle() -> tuple[Oracle, str]:
    """The float64 oracle on the GPU if there is one that works, else on the CPU; and which it is, in words.

    On the GPU it is the kernel `float64`, which shares no code with the others, and which the tests hold against the
    CPU's oracle.
    """
    from hw4cli.cpu import workers
    from hw4cli.gpu import Gpu
    from hw4cli.reference import exact_attention
    from hw4cli.variants import FALLBACK

    try:
        gpu = Gpu()
    except MachineError:
        return exact_attention, f"float64 on {counted(workers(), 'CPU core')}"
    return lambda block: gpu.attention(block, FALLBACK), f"float64 on {gpu.name}"

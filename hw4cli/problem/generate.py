"""Generating cases: inputs from seeds, answers from the float64 oracle."""

import hashlib
import shutil
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

from hw4cli.errors import Hw4Error, MachineError
from hw4cli.problem.casefile import Floats, InputFile, check_finite
from hw4cli.problem.checksums import answer_sha256, note_answer, note_file, sha256, verify
from hw4cli.problem.cpu import workers
from hw4cli.problem.foreign import is_computed
from hw4cli.problem.oracle import exact_attention
from hw4cli.problem.suite import Case, generate_input
from hw4cli.problem.workload import Workload
from hw4cli.system.files import NewFile, check_place
from hw4cli.text.progress import Advance
from hw4cli.text.words import counted

BLOCK_BYTES = 32 << 20
Oracle = Callable[[Floats, Advance], Floats]  # the second is called with the rows that were just computed


@dataclass(frozen=True)
class GenerationTask:
    """The files of a case to generate: its input and its answer, or only one of them.

    `source` is the input's path, whether it is generated or there already; `answer` None: no answer; `sha256` is the
    input's expected SHA-256, None for a random case.
    """

    source: Path
    answer: Path | None
    shape: Workload
    seed: int
    sha256: str | None = None
    input_wanted: bool = True
    kept: bool = False  # whether an input that is there already is the one, whatever its hash

    @classmethod
    def of(cls, case: Case, folder: Path, answers: bool) -> "GenerationTask":
        """The task that generates a named case in a folder. Of one that was made elsewhere only an answer that it lacks
        is made, in the cache."""
        answer, source = case.answer_path(folder) if answers else None, case.input_path(folder)
        if case.foreign:
            return cls(source, answer if is_computed(case) else None, case.shape, case.seed, case.sha256, False)
        return cls(source, answer, case.shape, case.seed, case.sha256 or None, kept=not case.sha256)

    @property
    def bytes(self) -> int:
        """How much this task writes."""
        return self.input_wanted * self.shape.input_bytes + (self.shape.output_bytes if self.answer else 0)

    @property
    def folder(self) -> Path:
        """The folder that it writes into."""
        written = self.answer if self.answer and not self.input_wanted else self.source
        return written.resolve().parent

    def missing(self) -> "GenerationTask":
        """The part of this task whose files are missing: the suite's input, the answer that was made from it."""
        known = sha256(self.source) if self.kept and self.source.is_file() else self.sha256
        if known is None:
            return self
        made = answer_sha256(self.answer, known) if self.answer else None
        answer = None if made and self.answer and _is_there(self.answer, made) else self.answer
        wanted = self.input_wanted and not _is_there(self.source, known)
        return replace(self, answer=answer, sha256=known, input_wanted=wanted)


def _is_there(path: Path, expected: str) -> bool:
    try:
        return verify(path, expected)
    except Hw4Error:
        return False


def check_space(tasks: list[GenerationTask]) -> None:
    """Raise InputError if a file cannot be where a task writes it, MachineError if its folder has not enough space."""
    for path in (path for task in tasks for path in (task.input_wanted and task.source, task.answer) if path):
        check_place(path)
    for folder in {task.folder for task in tasks}:
        needed = sum(task.bytes for task in tasks if task.folder == folder)
        free = shutil.disk_usage(folder).free
        if needed > free:
            raise MachineError(f"{needed:,} bytes are to be written to {folder}, which has {free:,} bytes free")


@dataclass(frozen=True)
class FileTask:
    """The generation of one file. `run` calls its argument with the progress, which adds up to `total`; equal amounts
    take equal time."""

    path: Path
    total: int
    run: Callable[[Advance], None]


def cpu_oracle(causal: bool = False) -> tuple[Oracle, str]:
    """The float64 oracle on the CPU, of causal attention if asked; and its description."""
    return partial(exact_attention, causal=causal), f"float64 on {counted(workers(), 'CPU core')}"


def file_tasks(task: GenerationTask, oracle: Oracle | None) -> list[FileTask]:
    """The files of a task: its input, with progress in bytes, and its answer, if it has one, in rows.

    Files of the suite are recorded (hw4cli/problem/checksums.py), so that a later run recognises them.
    """
    task.shape.check(str(task.source))
    made = [FileTask(task.source, task.shape.input_bytes, partial(_make_input, task))] if task.input_wanted else []
    if task.answer and oracle:
        made.append(
            FileTask(task.answer, task.shape.B * task.shape.N, partial(_make_answer, task, task.answer, oracle))
        )
    return made


def make(task: GenerationTask, oracle: Oracle, advance: Advance) -> None:
    """Do all of a task."""
    for step in file_tasks(task, oracle):
        step.run(advance)


def _make_input(task: GenerationTask, advance: Advance) -> None:
    generate_input(task.source, task.shape, task.seed, advance, task.sha256)
    if task.sha256:
        note_file(task.source, task.sha256)


def _make_answer(task: GenerationTask, target: Path, oracle: Oracle, advance: Advance) -> None:
    digest = hashlib.sha256()
    with InputFile(task.source) as inputs, NewFile(target) as output:
        for first, block in inputs.blocks(BLOCK_BYTES):
            check_finite(block, (first, 0, 0), task.source)
            answer = oracle(block, advance)
            output.write(answer)
            digest.update(answer.data)
    if known := task.sha256 or (sha256(task.source) if task.kept else None):
        note_answer(target, digest.hexdigest(), known)

"""Whether the files of cases are there, and are what they should be."""

import shlex
from collections.abc import Sequence
from pathlib import Path

from hw4cli.errors import InputError, MachineError
from hw4cli.problem.casefile import InputFile
from hw4cli.problem.checksums import answer_sha256, verify
from hw4cli.problem.suite import Case, ranges
from hw4cli.problem.workload import Workload
from hw4cli.text.words import counted


def check_present(chosen: Sequence[Case], folder: Path) -> None:
    """Raise MachineError, with the command that makes them, if the folder lacks cases or answers; InputError if it is
    a file."""
    if folder.is_file():
        raise InputError(f"{folder} is a file: name the folder of the cases")
    missing = [
        case for case in chosen if not (case.input_path(folder).is_file() and case.answer_path(folder).is_file())
    ]
    if missing:
        raise MachineError(
            f"{folder} lacks {len(missing)} of {counted(len(chosen), 'case')}: run {gen_command(missing, folder)}"
        )


def check_case(case: Case, folder: Path) -> None:
    """Raise InputError unless the case's files are the suite's input, by header, size and SHA-256, and the answer that
    `hw4 gen` made for it, by its recorded hash; without a record, only the answer's size is checked."""
    source, answer = case.input_path(folder), case.answer_path(folder)
    with InputFile(source) as inputs:
        if inputs.shape.sizes != case.shape.sizes:
            raise InputError(f"{source} has shape {inputs.shape}, but {case.name} is {case.shape}")
    if problem := size_problem(answer.stat().st_size, case.shape):
        raise InputError(f"the answer {answer} is damaged: {problem}")
    if case.sha256 and not verify(source, case.sha256):
        if case.foreign:
            raise InputError(f"{source} has changed since the judging began: restore it")
        raise InputError(
            f"{source} is not the suite's {case.name}: run {gen_command([case], folder)}, or take the folder's own "
            f"cases by --suite {shlex.quote(str(folder))}"
        )
    made = answer_sha256(answer, case.sha256)
    if made and not verify(answer, made):
        again = "restore it" if case.foreign else f"make it again with {gen_command([case], folder)}"
        raise InputError(f"the answer {answer} has changed since it was made: {again}")


def size_problem(found: int, shape: Workload) -> str | None:
    """What is wrong with an output of this many bytes, in rows or bytes; None if the size is right."""
    difference = found - shape.output_bytes
    if difference == 0:
        return None
    rows, remainder = divmod(abs(difference), 4 * shape.d)
    amount = counted(rows, "row") if not remainder and rows else counted(abs(difference), "byte")
    return (
        f"output is {amount} too {'long' if difference > 0 else 'short'}: "
        f"{found:,} bytes instead of {shape.output_bytes:,}"
    )


def gen_command(chosen: Sequence[Case], folder: Path) -> str:
    """The command that makes these cases in this folder."""
    where = "" if folder == Path("testcases") else f" --dir {shlex.quote(str(folder))}"
    causal = " --causal" if any(case.shape.causal for case in chosen) else ""
    return f"`hw4 gen {ranges(chosen)}{where}{causal}`"

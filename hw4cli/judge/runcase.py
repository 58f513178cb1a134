"""One program, one case: run it in a private folder, watch it from outside, compare what it leaves.

What was seen goes into an Attempt; the judge's own failures are faults, never the program's.
"""

import math
import os
import shlex
import stat
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from hw4cli.diagnosis.explain import explain
from hw4cli.diagnosis.size import explain_size
from hw4cli.errors import Hw4Error, InputError, MachineError
from hw4cli.judge.casewatch import CaseWatch
from hw4cli.problem.casefile import FLOAT32, InputFile, open_regular, read_exactly
from hw4cli.problem.checksums import answer_sha256, verify
from hw4cli.problem.errormap import ErrorMap
from hw4cli.problem.shape import Shape
from hw4cli.problem.suite import Case, names
from hw4cli.problem.verdict import KILL_AFTER, TOLERANCE, Comparison
from hw4cli.runner.confine import Confinement
from hw4cli.runner.slurm import run_step
from hw4cli.runner.staging import Stage, absolute, staged
from hw4cli.runner.step import Order, execute
from hw4cli.scoring.record import Attempt
from hw4cli.system.account import account
from hw4cli.system.exits import ProgramError, cuda_error, exit_words, last_words
from hw4cli.system.process import Run
from hw4cli.text.words import counted, print_message

COMPARE_CHUNK = 1 << 16  # floats: two such chunks and their difference stay in the cache while they are compared
UNREADABLE = "the output cannot be read: its permissions forbid it"
FILE_SLACK = 64 << 20  # bytes that a program's files may be larger than its output
TOTAL_SLACK = 4 * FILE_SLACK  # and all of them together, than input and output


@dataclass(frozen=True)
class Settings:
    """How a case is run. `env` is the program's environment if it is not ours; behind `launcher` (srun and its options,
    say) it is started, timed and ended; `sandbox` is "none" or "bwrap"; without one, a program `contained` still has
    processes of its own; `run_as` is the user that it runs as, if not ours; it does not see `hidden` folders; `repeat`
    numbers the runs of a case; private folders are made in `parent`, if it is not the judge's to choose: behind a
    launcher, this folder, which the machines must share; `pass_env` names variables that the program gets besides the
    usual ones; `watch` looks after the cases' files, not only this one's; `say` is told what it waits for."""

    env: Mapping[str, str] | None = None
    tolerance: float = TOLERANCE
    sandbox: str = "none"
    contained: bool = False
    run_as: str = ""
    hidden: tuple[str, ...] = ()
    launcher: tuple[str, ...] = ()
    repeat: int = 0
    parent: Path | None = None
    pass_env: tuple[str, ...] = ()
    watch: CaseWatch | None = None
    say: Callable[[str], None] = print_message

    def confinement(self, cases: Path) -> Confinement:
        """What is around a program, or a build: it does not see the folder of the cases."""
        kind = "processes" if self.contained and self.sandbox == "none" else self.sandbox
        return Confinement(kind, self.run_as, (*self.hidden, str(cases.absolute())))


def compare_files(output: Path, answer: Path, comparison: Comparison) -> Comparison:
    """Compare two files of the same size, chunk by chunk. InputError if a file cannot be read."""
    with open_regular(output) as got_file, open_regular(answer) as answer_file:
        count = os.fstat(answer_file.fileno()).st_size // FLOAT32.itemsize
        chunks = np.empty((2, COMPARE_CHUNK), FLOAT32)
        for start in range(0, count, COMPARE_CHUNK):
            got, expected = chunks[:, : count - start]
            read_exactly(got_file, got, 4 * start, output)
            read_exactly(answer_file, expected, 4 * start, answer)
            comparison.add(got, expected)
    return comparison


def size_problem(found: int, shape: Shape) -> str | None:
    """What is wrong with an output of this many bytes, in rows and bytes; None if nothing is."""
    difference = found - shape.output_bytes
    if difference == 0:
        return None
    rows, rest = divmod(abs(difference), 4 * shape.d)
    amount = counted(rows, "row") if not rest and rows else counted(abs(difference), "byte")
    return (
        f"output is {amount} too {'long' if difference > 0 else 'short'}: "
        f"{found:,} bytes instead of {shape.output_bytes:,}"
    )


def check_present(selected: Sequence[Case], folder: Path) -> None:
    """Raise MachineError, with the command that makes them, if cases or answers are not in the folder; InputError if it
    is none."""
    if folder.is_file():
        raise InputError(f"{folder} is a file: name the folder of the cases")
    missing = [
        case for case in selected if not (case.input_path(folder).is_file() and case.answer_path(folder).is_file())
    ]
    if missing:
        raise MachineError(
            f"{folder} lacks {len(missing)} of {counted(len(selected), 'case')}: run {_gen(missing, folder)}"
        )


def _gen(selected: Sequence[Case], folder: Path) -> str:
    """The command that makes these cases in this folder."""
    where = "" if folder == Path("testcases") else f" --dir {shlex.quote(str(folder))}"
    return f"`hw4 gen {names(selected)}{where}`"


def judge_case(case: Case, command: Sequence[str], folder: Path, settings: Settings = Settings()) -> Attempt:
    """Run `command INPUT OUTPUT` on a case that lies in `folder`, and say what was seen. Rules (record) decide."""
    shape = (case.shape.B, case.shape.N, case.shape.d)
    attempt = Attempt(case.name, shape, case.limit, settings.tolerance, settings.repeat)
    watch = settings.watch or CaseWatch([case], folder)
    try:
        attempt = _attempt(attempt, case, command, folder, settings)
    except ProgramError as error:
        attempt = replace(attempt, problem=str(error))
    except (Hw4Error, OSError, ValueError) as error:
        attempt = replace(attempt, fault=str(error))
    return _blamed(attempt, watch) if watch.changed() else attempt


def _blamed(attempt: Attempt, watch: CaseWatch) -> Attempt:
    """An attempt during which the cases' files changed: what it did does not count, whatever it was."""
    words = f"{', '.join(watch.found)} changed while the program ran"
    attempt = replace(attempt, fault=None, problem=words, wrong=None, said=None, max_error=None)
    return replace(attempt, fault=f"{words}, and so did others' programs", problem=None) if watch.shared else attempt


def _attempt(attempt: Attempt, case: Case, command: Sequence[str], folder: Path, settings: Settings) -> Attempt:
    check_case(case, folder)
    ours = case.input_path(folder), case.answer_path(folder)
    parent = settings.parent or (Path.cwd() if settings.launcher else None)
    with staged(ours[0], case.shape.output_bytes, parent, account(settings.run_as)) as stage:
        run, attempt = _run(replace(attempt, staged=stage.kind), case, stage, command, ours[1], settings)
        return attempt if run.killed else _checked(attempt, run, case, stage, folder)


def _checked(attempt: Attempt, run: Run, case: Case, stage: Stage, folder: Path) -> Attempt:
    """What a program's exit and output say of it."""
    if run.excess:
        return replace(attempt, problem=run.excess)
    if run.exit_code:
        problem = exit_words(run.exit_code, _max_file(case))
        return replace(attempt, problem=problem, said=last_words(run.stderr) or None)
    found, comparison = output_problem(stage.output, case, folder, attempt.tolerance)
    attempt = replace(attempt, said=cuda_error(run.stderr) if found else None)
    if comparison is None:
        return replace(attempt, problem=found)
    words = [found or ""]
    if not comparison.right:
        source, answer = case.input_path(folder), case.answer_path(folder)
        words.append(str(explain(stage.output, answer, source, case.shape, comparison)))
    error = math.inf if comparison.not_finite else comparison.max_error
    return replace(attempt, wrong="; ".join(filter(None, words)) or None, max_error=error)


def _run(
    attempt: Attempt, case: Case, stage: Stage, command: Sequence[str], answer: Path, settings: Settings
) -> tuple[Run, Attempt]:
    """Run the program on the staged input, with the GPU to itself; and write down what was seen."""
    env = os.environ if settings.env is None else settings.env
    order = Order(
        command=tuple(absolute(list(command))),
        files=(str(stage.source), str(stage.output)),
        whole=str(stage.whole),
        folder=str(stage.folder),
        scratch=str(stage.scratch),
        answer=str(answer.absolute()),
        kill_at=case.limit + KILL_AFTER,
        max_file=_max_file(case),
        max_bytes=case.shape.input_bytes + case.shape.output_bytes + TOTAL_SLACK,
        confinement=settings.confinement(answer.parent),
        pass_env=settings.pass_env,
    )
    if settings.launcher:
        run, sight = run_step(settings.launcher, order, env, settings.say)
    else:
        run, sight = execute(order, env, settings.say)
    return run, replace(
        attempt,
        wall=run.wall,
        killed=run.killed,
        exit_code=run.exit_code,
        user=run.user,
        system=run.system,
        peak_rss=run.peak_rss,
        gpu_memory=sight.memory,
        gpu_clock=sight.clock,
        note=sight.note,
    )


def _max_file(case: Case) -> int:
    """The largest file that a program may write, in bytes: output and slack."""
    return case.shape.output_bytes + FILE_SLACK


def check_case(case: Case, folder: Path) -> None:
    """Raise InputError if the case's files are not the suite's input, by header, size and SHA-256, and the answer that
    `hw4 gen` made for it. An answer whose making is not recorded is taken by its size."""
    source, answer = case.input_path(folder), case.answer_path(folder)
    with InputFile(source) as inputs:
        if inputs.shape != case.shape:
            raise InputError(f"{source} has shape {inputs.shape}, but {case.name} is {case.shape}")
    if problem := size_problem(answer.stat().st_size, case.shape):
        raise InputError(f"the answer {answer} is damaged: {problem}")
    if case.sha256 and not verify(source, case.sha256):
        raise InputError(f"{source} is not the suite's {case.name}: run {_gen([case], folder)}")
    made = answer_sha256(answer, case.sha256)
    if made and not verify(answer, made):
        raise InputError(
            f"the answer {answer} has changed since it was made: make it again with {_gen([case], folder)}"
        )


def output_problem(
    output: Path, case: Case, folder: Path, tolerance: float = TOLERANCE
) -> tuple[str | None, Comparison | None]:
    """What is wrong with an output file, in words (None if nothing is), and its comparison if there was one."""
    try:
        place, status = output.parent.lstat(), output.lstat()
    except PermissionError:
        return UNREADABLE, None
    except (FileNotFoundError, NotADirectoryError):
        return "no output file", None
    if not stat.S_ISDIR(place.st_mode) or not stat.S_ISREG(status.st_mode) or status.st_nlink > 1:
        return "the output is not a regular file of its own", None
    # The owner's bits, because root is let in whatever they are.
    if not place.st_mode & stat.S_IXUSR or not status.st_mode & stat.S_IRUSR or not os.access(output, os.R_OK):
        return UNREADABLE, None
    problem = size_problem(status.st_size, case.shape)
    answer = case.answer_path(folder)
    if problem:
        return "; ".join(filter(None, (problem, explain_size(output, answer, case.shape, tolerance)))), None
    comparison = compare_files(output, answer, Comparison(tolerance, ErrorMap(case.shape)))
    return None if comparison.right else comparison.reason(case.shape), comparison

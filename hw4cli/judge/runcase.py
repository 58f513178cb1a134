"""Runs one program on one case in a private folder, and compares its output.

The result is an Attempt. A failure of the judge is recorded as its fault, and never counts against the program.
"""

import errno
import math
import os
import shlex
import stat
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from hw4cli.errors import Hw4Error, InputError, MachineError
from hw4cli.judge.casewatch import CaseWatch
from hw4cli.judge.diagnosis.explain import explain
from hw4cli.judge.diagnosis.size import explain_size
from hw4cli.judge.scoring.record import Attempt
from hw4cli.problem.casefile import FLOAT32, InputFile, open_regular, read_exactly
from hw4cli.problem.checksums import answer_sha256, verify
from hw4cli.problem.errormap import ErrorMap
from hw4cli.problem.shape import Shape
from hw4cli.problem.suite import Case, ranges
from hw4cli.problem.verdict import KILL_AFTER, TOLERANCE, Comparison
from hw4cli.resources import installations
from hw4cli.sandbox import step
from hw4cli.sandbox.confine import Confinement
from hw4cli.sandbox.gpuneed import ABSENT
from hw4cli.sandbox.gpuwatch import GpuUsage
from hw4cli.sandbox.slurm import run_step
from hw4cli.sandbox.staging import Stage, absolute_command, staged
from hw4cli.sandbox.step import RunRequest, execute
from hw4cli.system.account import account
from hw4cli.system.exits import ProgramError, cuda_error, describe_exit, error_line
from hw4cli.system.process import Run
from hw4cli.text.words import counted, print_message

COMPARE_CHUNK = 1 << 16  # floats: two such chunks and their difference fit into the cache
NOT_REGULAR = "the output is not a regular file of its own"
UNREADABLE = "the output cannot be read: its permissions forbid it"
FILE_SLACK = 64 << 20  # bytes by which a program's largest file may exceed the size of the output
TOTAL_SLACK = 4 * FILE_SLACK  # and all its files together that of input and output


@dataclass(frozen=True)
class RunSettings:
    """How a case is run.

    `env`: the environment from which the program's is made, if not the judge's; `sandbox`: "none" or "bwrap";
    `contained`: without a sandbox, the program still has a process namespace of its own; `run_as`: the program's user,
    "" for the judge's; `each`: each student of a class has another one; `hidden`: folders that the sandbox hides;
    `mounts`: paths that it shows; `own`: the program is hw4 itself, whose modules are hidden otherwise; `launcher`: a
    command, such as srun with options, that starts each run; `repeat`: the number of this run of the case; `parent`:
    where private folders are made (None: the judge chooses; behind a launcher, the machines must share it);
    `pass_env`: further variables for the program; `watch`: watches the files of all cases, not only of this one; `say`
    gets messages while the judge waits."""

    env: Mapping[str, str] | None = None
    tolerance: float = TOLERANCE
    sandbox: str = "none"
    contained: bool = False
    run_as: str = ""
    each: bool = False
    hidden: tuple[str, ...] = ()
    mounts: tuple[str, ...] = ()
    own: bool = False
    launcher: tuple[str, ...] = ()
    repeat: int = 0
    parent: Path | None = None
    pass_env: tuple[str, ...] = ()
    watch: CaseWatch | None = None
    say: Callable[[str], None] = print_message

    def confinement(self, cases: Path) -> Confinement:
        """How a program or a build is isolated; the folder of the cases is hidden, too."""
        kind = "processes" if self.contained and self.sandbox == "none" else self.sandbox
        own = () if self.own else map(str, installations())
        return Confinement(kind, self.run_as, (*self.hidden, *own, str(cases.absolute())), self.mounts)


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


def check_present(selected: Sequence[Case], folder: Path) -> None:
    """Raise MachineError, with the command that makes them, if the folder lacks cases or answers; InputError if it is
    a file."""
    if folder.is_file():
        raise InputError(f"{folder} is a file: name the folder of the cases")
    missing = [
        case for case in selected if not (case.input_path(folder).is_file() and case.answer_path(folder).is_file())
    ]
    if missing:
        raise MachineError(
            f"{folder} lacks {len(missing)} of {counted(len(selected), 'case')}: run {_gen_command(missing, folder)}"
        )


def _gen_command(selected: Sequence[Case], folder: Path) -> str:
    """The command that makes these cases in this folder."""
    where = "" if folder == Path("testcases") else f" --dir {shlex.quote(str(folder))}"
    causal = " --causal" if any(case.shape.causal for case in selected) else ""
    return f"`hw4 gen {ranges(selected)}{where}{causal}`"


def judge_case(case: Case, command: Sequence[str], folder: Path, settings: RunSettings = RunSettings()) -> Attempt:
    """Run `command INPUT OUTPUT` on a case in `folder`; the attempt, from which rules (record) make a verdict."""
    shape = case.shape.sizes
    attempt = Attempt(case.name, shape, case.limit, settings.tolerance, settings.repeat)
    watch = settings.watch or CaseWatch([case], folder)
    try:
        attempt = _attempt(attempt, case, command, folder, settings)
    except ProgramError as error:
        attempt = replace(attempt, problem=str(error))
    except (Hw4Error, OSError, ValueError) as error:
        attempt = replace(attempt, fault=str(error))
    return _with_changed_files(attempt, watch) if watch.check() else attempt


def _with_changed_files(attempt: Attempt, watch: CaseWatch) -> Attempt:
    """An attempt during which the cases' files changed, so that its output does not count."""
    problem = f"{', '.join(watch.changed_names)} changed while the program ran"
    attempt = replace(attempt, fault=None, problem=problem, wrong=None, said=None, max_error=None)
    return replace(attempt, fault=f"{problem}, and so did others' programs", problem=None) if watch.shared else attempt


def _attempt(attempt: Attempt, case: Case, command: Sequence[str], folder: Path, settings: RunSettings) -> Attempt:
    check_case(case, folder)
    source, answer = case.input_path(folder), case.answer_path(folder)
    parent = settings.parent or (Path.cwd() if settings.launcher else None)
    mounted = settings.sandbox == "bwrap" and not settings.launcher
    bounds = (_max_bytes(case), step.MAX_FILES, TOTAL_SLACK)
    with staged(source, case.shape.output_bytes, parent, account(settings.run_as), mounted, bounds) as stage:
        run, usage = _run(case, stage, command, answer, settings)
        attempt = _measured(replace(attempt, staged=stage.kind), run, usage)
        judged = attempt if run.killed else _check_output(attempt, run, case, stage, folder)
        if usage.absent and (run.killed or judged.problem or judged.wrong):
            said = cuda_error(run.stderr) or error_line(run.stderr)
            return replace(attempt, fault=f"{ABSENT.format(what='the program')}; it said: {said}")
        return judged


def _check_output(attempt: Attempt, run: Run, case: Case, stage: Stage, folder: Path) -> Attempt:
    """The attempt with what is wrong with the program's exit or output."""
    if run.excess:
        return replace(attempt, problem=run.excess)
    if run.exit_code:
        failure = describe_exit(run.exit_code, _max_file(case))
        return replace(attempt, problem=failure, said=error_line(run.stderr) or None)
    said = cuda_error(run.stderr)
    try:
        with opened_output(stage.output, case.answer_path(folder), stage.descriptor) as output:
            problem, comparison = output_problem(output, case, folder, attempt.tolerance)
            if comparison is None:
                return replace(attempt, problem=problem, said=said)
            sentences = [problem or ""]
            if not comparison.right:
                source, answer = case.input_path(folder), case.answer_path(folder)
                sentences.append(str(explain(output, answer, source, case.shape, comparison)))
    except UnreadableError as unreadable:
        return replace(attempt, problem=str(unreadable), said=said)
    attempt = replace(attempt, said=said if problem else None)
    error = math.inf if comparison.not_finite else comparison.max_error
    return replace(attempt, wrong="; ".join(filter(None, sentences)) or None, max_error=error)


def _run(case: Case, stage: Stage, command: Sequence[str], answer: Path, settings: RunSettings) -> tuple[Run, GpuUsage]:
    """Run the program on the staged input with the GPU locked; the run, and its use of the GPU."""
    env = os.environ if settings.env is None else settings.env
    request = RunRequest(
        command=tuple(absolute_command(list(command))),
        files=(str(stage.source), str(stage.output)),
        root=str(stage.root),
        folder=str(stage.folder),
        scratch=str(stage.scratch),
        answer=str(answer.absolute()),
        kill_at=case.limit + KILL_AFTER,
        max_file=_max_file(case),
        max_bytes=_max_bytes(case),
        confinement=settings.confinement(answer.parent),
        pass_env=settings.pass_env,
    )
    if settings.launcher:
        return run_step(settings.launcher, request, env, settings.say)
    return execute(request, env, settings.say, stage.memory)


def _measured(attempt: Attempt, run: Run, usage: GpuUsage) -> Attempt:
    """The attempt with a run's measurements."""
    return replace(
        attempt,
        wall=run.wall,
        killed=run.killed,
        exit_code=run.exit_code,
        user=run.user,
        system=run.system,
        peak_rss=run.peak_rss,
        gpu_memory=usage.memory,
        gpu_clock=usage.clock,
        note=usage.note,
    )


def _max_file(case: Case) -> int:
    """The size in bytes of the largest file that a program may write."""
    return case.shape.output_bytes + FILE_SLACK


def _max_bytes(case: Case) -> int:
    """The bytes of all files of a run together, its input included."""
    return case.shape.input_bytes + case.shape.output_bytes + TOTAL_SLACK


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
        raise InputError(f"{source} is not the suite's {case.name}: run {_gen_command([case], folder)}")
    made = answer_sha256(answer, case.sha256)
    if made and not verify(answer, made):
        raise InputError(
            f"the answer {answer} has changed since it was made: make it again with {_gen_command([case], folder)}"
        )


class UnreadableError(Exception):
    """There is no output that can be read; the message is the judge's sentence for the author."""


@contextmanager
def opened_output(output: Path, answer: Path, folder: int | None = None) -> Iterator[Path]:
    """A path, valid in the block, of an output, in an open folder if one is given: that of its descriptor, so that what
    was checked is what is read. Raises UnreadableError unless it is a regular file, readable to its owner, and of its
    own: no link, nor the answer."""
    try:
        flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
        descriptor = os.open(output if folder is None else output.name, flags, dir_fd=folder)
    except PermissionError:
        raise UnreadableError(UNREADABLE) from None
    except FileNotFoundError:
        raise UnreadableError("no output file") from None
    except OSError as error:
        if error.errno not in (errno.ELOOP, errno.ENXIO):  # a link, a socket
            raise
        raise UnreadableError(NOT_REGULAR) from None
    try:
        folder_status = output.parent.stat() if folder is None else os.fstat(folder)
        status = os.fstat(descriptor)
        if not stat.S_ISREG(status.st_mode) or status.st_nlink > 1 or os.path.samestat(status, answer.stat()):
            raise UnreadableError(NOT_REGULAR)
        # The owner's permissions are checked, since root may read the file whatever they are.
        if not folder_status.st_mode & stat.S_IXUSR or not status.st_mode & stat.S_IRUSR:
            raise UnreadableError(UNREADABLE)
        yield Path(f"/proc/self/fd/{descriptor}")
    finally:
        os.close(descriptor)


def output_problem(
    output: Path, case: Case, folder: Path, tolerance: float = TOLERANCE
) -> tuple[str | None, Comparison | None]:
    """What is wrong with an output file (None if nothing is), and its comparison if it could be compared."""
    problem = size_problem(output.stat().st_size, case.shape)
    answer = case.answer_path(folder)
    if problem:
        return "; ".join(filter(None, (problem, explain_size(output, answer, case.shape, tolerance)))), None
    comparison = compare_files(output, answer, Comparison(tolerance, ErrorMap(case.shape)))
    return None if comparison.right else comparison.reason(case.shape), comparison

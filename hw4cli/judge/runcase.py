"""Runs one program on one case in a private folder, and compares its output.

The result is an Attempt. A failure of the judge is recorded as its fault, and never counts against the program.
"""

import errno
import math
import os
import stat
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import numpy as np

from hw4cli.errors import Hw4Error, os_error
from hw4cli.judge.casewatch import CaseWatch
from hw4cli.judge.diagnosis.explain import explain
from hw4cli.judge.diagnosis.size import explain_size
from hw4cli.judge.plan import PLAIN, RunSettings
from hw4cli.judge.scoring.record import Attempt
from hw4cli.problem.casecheck import check_case, size_problem
from hw4cli.problem.casefile import FLOAT32, open_regular, read_exactly
from hw4cli.problem.errormap import ErrorMap
from hw4cli.problem.rules import KILL_AFTER, TOLERANCE
from hw4cli.problem.suite import Case
from hw4cli.problem.verdict import Comparison
from hw4cli.sandbox import step
from hw4cli.sandbox.gpu import ABSENT, GpuUsage
from hw4cli.sandbox.slurm import run_step
from hw4cli.sandbox.staging import Stage, absolute_command, staged
from hw4cli.sandbox.step import RunRequest, execute
from hw4cli.system.account import account
from hw4cli.system.exits import ProgramError, cuda_error, describe_exit, error_line
from hw4cli.system.process import Run
from hw4cli.text.words import print_message

COMPARE_CHUNK = 1 << 16  # floats: two such chunks and their difference fit into the cache
NOT_REGULAR = "the output is not a regular file of its own"
UNREADABLE = "the output cannot be read: its permissions forbid it"
FILE_SLACK = 64 << 20  # bytes by which a program's largest file may exceed the size of the output
TOTAL_SLACK = 4 * FILE_SLACK  # and all its files together that of input and output


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


def judge_case(
    case: Case,
    command: Sequence[str],
    folder: Path,
    settings: RunSettings = PLAIN,
    repeat: int = 0,
    watch: CaseWatch | None = None,
    say: Callable[[str], None] = print_message,
) -> Attempt:
    """Run `command INPUT OUTPUT` on a case in `folder`, as run number `repeat` of it; the attempt, from which rules
    (record) make a verdict. `watch` watches the files of all cases, not only of this one; `say` gets messages while the
    judge waits."""
    shape = case.shape.sizes
    attempt = Attempt(case.name, shape, case.limit, settings.tolerance, repeat)
    watch = watch or CaseWatch([case], folder)
    try:
        attempt = _attempt(attempt, case, command, folder, settings, say)
    except ProgramError as error:
        attempt = replace(attempt, problem=str(error))
    except OSError as error:
        what = f"read {error.filename}" if error.filename else f"judge {case.name}"
        attempt = replace(attempt, fault=f"{os_error(error, what)}: judge again, by --resume if there is a journal")
    except (Hw4Error, ValueError) as error:
        attempt = replace(attempt, fault=str(error))
    return _with_changed_files(attempt, watch) if watch.check() else attempt


def _with_changed_files(attempt: Attempt, watch: CaseWatch) -> Attempt:
    """An attempt during which the cases' files changed, so that its output does not count."""
    problem = f"{', '.join(watch.changed_names)} changed while the program ran"
    attempt = replace(attempt, fault=None, problem=problem, wrong=None, said=None, max_error=None)
    return replace(attempt, fault=f"{problem}, and so did others' programs", problem=None) if watch.shared else attempt


def _attempt(
    attempt: Attempt,
    case: Case,
    command: Sequence[str],
    folder: Path,
    settings: RunSettings,
    say: Callable[[str], None],
) -> Attempt:
    check_case(case, folder)
    source = case.input_path(folder)
    parent = settings.parent or (Path.cwd() if settings.launcher else None)
    mounted = settings.sandbox == "bwrap" and not settings.launcher
    bounds = (_max_bytes(case), step.MAX_FILES, TOTAL_SLACK)
    with staged(source, case.shape.output_bytes, parent, account(settings.run_as), mounted, bounds) as stage:
        run, usage = _run(case, stage, command, folder, settings, say)
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


def _run(
    case: Case,
    stage: Stage,
    command: Sequence[str],
    folder: Path,
    settings: RunSettings,
    say: Callable[[str], None],
) -> tuple[Run, GpuUsage]:
    """Run the program on the staged input with the GPU locked; the run, and its use of the GPU."""
    env, answer = os.environ if settings.env is None else settings.env, case.answer_path(folder)
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
        confinement=settings.confinement(folder, answer.parent),
        pass_env=settings.pass_env,
    )
    if settings.launcher:
        return run_step(settings.launcher, request, env, say)
    return execute(request, env, say, stage.memory)


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

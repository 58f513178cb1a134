"""One program, one case: run it in a child process, time it from outside, kill what is left of it, compare.

The judge's own failures are JE, never the program's fault.
"""

import ctypes
import math
import os
import select
import shlex
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import IO

import numpy as np
import psutil

from hw4cli.casefile import FLOAT32, InputFile, open_regular, read_exactly
from hw4cli.errors import Hw4Error, InputError, MachineError
from hw4cli.record import Attempt
from hw4cli.shape import Shape
from hw4cli.suite import Case, names
from hw4cli.verdict import KILL_AFTER, TOLERANCE, Comparison

COMPARE_CHUNK = 1 << 20  # floats: two such chunks stay in the cache while they are compared
STDERR_TAIL = 64 << 10  # bytes of the program's stderr that are looked at
PR_SET_CHILD_SUBREAPER = 36


class StartError(Hw4Error):
    """The program is missing, not executable, or no program of this machine."""


@dataclass(frozen=True)
class Settings:
    """How a case is run. `env` is the program's environment if it is not ours; `launcher` are words to put before the
    command (srun and its options, say); `sandbox` is "none" or "bwrap"; `repeat` numbers the runs of a case."""

    env: Mapping[str, str] | None = None
    tolerance: float = TOLERANCE
    sandbox: str = "none"
    launcher: tuple[str, ...] = ()
    repeat: int = 0


@dataclass(frozen=True)
class Run:
    """How a program ended: seconds of wall time, whether the judge killed it, its exit code (-n: signal n)."""

    wall: float
    killed: bool = False
    exit_code: int = 0


def compare_files(output: Path, answer: Path, comparison: Comparison) -> Comparison:
    """Compare two files of the same size, chunk by chunk. InputError if a file cannot be read."""
    with open_regular(output) as got_file, open_regular(answer) as answer_file:
        count = os.fstat(answer_file.fileno()).st_size // FLOAT32.itemsize
        for start in range(0, count, COMPARE_CHUNK):
            got, expected = (np.empty(min(COMPARE_CHUNK, count - start), FLOAT32) for _ in range(2))
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
    amount = f"{rows} rows" if not rest and rows else f"{abs(difference):,} bytes"
    return (
        f"output is {amount} too {'long' if difference > 0 else 'short'}: "
        f"{found:,} bytes instead of {shape.output_bytes:,}"
    )


def check_present(selected: Sequence[Case], folder: Path) -> None:
    """Raise MachineError, with the command that makes them, if cases or answers are not in the folder."""
    missing = [
        case for case in selected if not (case.input_path(folder).is_file() and case.answer_path(folder).is_file())
    ]
    if missing:
        where = "" if folder == Path("testcases") else f" --dir {shlex.quote(str(folder))}"
        raise MachineError(
            f"{len(missing)} of {len(selected)} cases are not in {folder}: make them with "
            f"`hw4 gen {names(missing)}{where}`"
        )


def judge_case(case: Case, command: Sequence[str], folder: Path, settings: Settings = Settings()) -> Attempt:
    """Run `command INPUT OUTPUT` on a case that lies in `folder`, and say what was seen. Rules (record) decide."""
    shape = (case.shape.B, case.shape.N, case.shape.d)
    attempt = Attempt(case.name, shape, case.limit, settings.tolerance, settings.repeat)
    try:
        return _attempt(attempt, case, command, folder, settings)
    except StartError as error:
        return replace(attempt, problem=str(error))
    except (Hw4Error, OSError, ValueError) as error:
        return replace(attempt, fault=str(error))


def _attempt(attempt: Attempt, case: Case, command: Sequence[str], folder: Path, settings: Settings) -> Attempt:
    check_case(case, folder)
    ours = case.input_path(folder), case.answer_path(folder)
    before = [fingerprint(path) for path in ours]
    problem, comparison = None, None
    with tempfile.TemporaryDirectory(prefix="hw4-judge-", ignore_cleanup_errors=True) as private:
        source, output = Path(private) / "input", Path(private) / "output"
        stage(case.input_path(folder), source, room=case.shape.output_bytes)
        arguments = [*settings.launcher, *command, str(source), str(output)]
        with tempfile.TemporaryFile() as stderr:
            run = run_program(arguments, case.limit + KILL_AFTER, stderr, settings.env)
            problem = None if run.killed else exit_problem(run, tail(stderr))
        if not run.killed and problem is None:
            problem, comparison = output_problem(output, case, folder, settings.tolerance)
        for path, then in zip(ours, before, strict=True):
            if fingerprint(path) != then:
                problem, comparison = f"{path} changed while the program ran: make it again (hw4 gen --force)", None
    wrong = comparison.reason(case.shape) if comparison and not comparison.right else None
    error = None if comparison is None else math.inf if comparison.not_finite else comparison.max_error
    return replace(
        attempt,
        wall=run.wall,
        killed=run.killed,
        exit_code=run.exit_code,
        problem=None if wrong else problem,
        wrong=wrong,
        max_error=error,
    )


def stage(source: Path, target: Path, room: int) -> None:
    """Put an input where no answer is beside it, by a link where that can be; MachineError without room for output."""
    try:
        target.hardlink_to(source.resolve())
    except OSError:
        shutil.copyfile(source, target)
    free = shutil.disk_usage(target.parent).free
    if free < room:
        raise MachineError(
            f"{target.parent} has {free:,} bytes free, but an output takes {room:,}: set TMPDIR elsewhere"
        )


def fingerprint(path: Path) -> tuple[int, int, int]:
    """What changes when a file is written to or replaced."""
    status = path.stat()
    return status.st_ino, status.st_size, status.st_mtime_ns


def check_case(case: Case, folder: Path) -> None:
    """Raise InputError if the case's files are not what the suite says they are, by header and sizes."""
    with InputFile(case.input_path(folder)) as inputs:
        if inputs.shape != case.shape:
            raise InputError(f"{inputs.path} has shape {inputs.shape}, but {case.name} is {case.shape}")
    problem = size_problem(case.answer_path(folder).stat().st_size, case.shape)
    if problem:
        raise InputError(f"the answer {case.answer_path(folder)} is damaged: {problem}")


def output_problem(
    output: Path, case: Case, folder: Path, tolerance: float = TOLERANCE
) -> tuple[str | None, Comparison | None]:
    """What is wrong with an output file, in words (None if nothing is), and its comparison if there was one."""
    try:
        status = output.lstat()
    except OSError:
        return "no output file", None
    if output.is_symlink() or not output.is_file():
        return "the output is not a regular file", None
    if not os.access(output, os.R_OK):
        return "the output cannot be read", None
    problem = size_problem(status.st_size, case.shape)
    if problem:
        return problem, None
    comparison = compare_files(output, case.answer_path(folder), Comparison(tolerance))
    return None if comparison.right else comparison.reason(case.shape), comparison


def run_program(
    arguments: Sequence[str], kill_at: float, stderr: IO[bytes], env: Mapping[str, str] | None = None
) -> Run:
    """Run a program to its end, or kill it `kill_at` seconds after its start; nothing of it lives on either way.

    Raises StartError if it cannot be started.
    """
    with subreaper() as strays:
        start = time.monotonic()
        try:
            process = subprocess.Popen(
                arguments,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=stderr,
                env=env,
                start_new_session=True,
            )
        except OSError as error:
            raise StartError(f"{arguments[0]} cannot be started: {error.strerror}") from None
        try:
            killed = not ends_within(process, kill_at)
            wall = time.monotonic() - start
        finally:
            kill_all(process, strays)
    return Run(wall, killed, process.returncode)


def ends_within(process: subprocess.Popen[bytes], seconds: float) -> bool:
    """Wait for a process. A pidfd wakes at once, where Popen.wait(timeout) looks every 50 ms."""
    descriptor = os.pidfd_open(process.pid)
    try:
        poll = select.poll()
        poll.register(descriptor, select.POLLIN)
        return bool(poll.poll(seconds * 1000))
    finally:
        os.close(descriptor)


Strays = Callable[[], list[psutil.Process]]


@contextmanager
def subreaper() -> Iterator[Strays]:
    """Let orphaned grandchildren fall to this process; gives a function that lists all that the block left behind."""
    libc = ctypes.CDLL(None)
    libc.prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    me = psutil.Process()
    before = {child.pid for child in me.children()}
    try:
        yield lambda: [
            stray
            for child in me.children()
            if child.pid not in before
            for stray in [child, *child.children(recursive=True)]
        ]
    finally:
        libc.prctl(PR_SET_CHILD_SUBREAPER, 0, 0, 0, 0)


def kill_all(process: subprocess.Popen[bytes], strays: Strays) -> None:
    """Kill a program's session and all that it left behind, in other sessions too, until nothing is left."""
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()
    while left := strays():
        for stray in left:
            with suppress(psutil.NoSuchProcess):
                stray.kill()
        psutil.wait_procs(left, timeout=1)


def exit_problem(run: Run, stderr: str) -> str | None:
    """What a program's exit says against it, with its last words; None if it ended well."""
    if run.exit_code == 0:
        return None
    what = f"ended by signal {signal_name(-run.exit_code)}" if run.exit_code < 0 else f"exit code {run.exit_code}"
    last = next((line.strip() for line in reversed(stderr.splitlines()) if line.strip()), "")
    # A program's words must not steer the terminal that shows them.
    words = "".join(letter if letter.isprintable() else "?" for letter in last[:200])
    return f"{what}: {words}" if words else what


def signal_name(number: int) -> str:
    """A signal as number and name; real-time signals have no name."""
    try:
        return f"{number} ({signal.Signals(number).name})"
    except ValueError:
        return str(number)


def tail(file: IO[bytes]) -> str:
    """The end of what was written to a file."""
    size = file.seek(0, os.SEEK_END)
    file.seek(max(0, size - STDERR_TAIL))
    return file.read().decode(errors="replace")

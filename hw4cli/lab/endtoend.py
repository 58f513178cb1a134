"""Times of whole programs, from spawn to exit: each is checked before it is timed; they run in turn on the same files.

The method: on each case every program runs once, untimed, and its output is compared with the answer; this also
fills the caches of libraries and compiled kernels. Then the programs take turns (A B A B …), each run timed
from outside on a monotonic clock. Before each run the input is in the page cache (it was read just before the first),
or, with cold runs, it is not. Each run's output goes to a new folder of its own.
"""

import ctypes
import mmap
import os
import statistics
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from hw4cli import __version__
from hw4cli.errors import Hw4Error, InputError, os_error
from hw4cli.judge.runcase import UnreadableError, opened_output, output_problem
from hw4cli.lab.record import heading
from hw4cli.lab.tables import PROGRAMS
from hw4cli.problem.casecheck import check_case, size_problem
from hw4cli.problem.casefile import open_regular
from hw4cli.problem.rules import KILL_AFTER
from hw4cli.problem.suite import Case
from hw4cli.system.exits import StartError, exit_problem
from hw4cli.system.machine import machine
from hw4cli.system.process import Limits, Run, run_program

SUM = "sum"  # the name of the row that adds up the cases
READ_CHUNK = 16 << 20

Notify = Callable[[str], None]


class RunError(Hw4Error):
    """A program could not be started, was killed, or ended with an error."""


@dataclass(frozen=True)
class Program:
    """A command that takes INPUTFILE OUTPUTFILE, and its environment; None is that of this process."""

    name: str
    command: Sequence[str]
    env: Mapping[str, str] | None = None


@dataclass(frozen=True)
class ProgramResult:
    """One program on one case, or on their sum. Times in seconds; the ratio is to the first program's median."""

    program: str
    case: str
    shape: tuple[int, int, int] | None
    status: str  # "ok", "wrong" or "failed"
    reason: str = ""
    median: float | None = None
    fastest: float | None = None
    slowest: float | None = None
    ratio: float | None = None
    max_error: float | None = None
    seconds: tuple[float, ...] = ()  # each run, in order; and its processor time
    user_seconds: tuple[float, ...] = ()
    system_seconds: tuple[float, ...] = ()


@dataclass
class ProgramMeasurement:
    """The runs of a program on a case."""

    program: Program
    status: str = "ok"
    reason: str = ""
    max_error: float | None = None
    runs: list[Run] = field(default_factory=list)

    @property
    def seconds(self) -> list[float]:
        """The wall time of each run."""
        return [run.wall for run in self.runs]

    def fail(self, status: str, reason: str) -> None:
        """Mark the program as wrong or failed on this case; its times do not count."""
        self.status, self.reason = status, reason
        self.runs.clear()


def with_distinct_names(programs: Sequence[Program]) -> list[Program]:
    """The programs with distinct names: the second one of the same name is "NAME #2"."""
    seen: dict[str, int] = {}
    result = []
    for program in programs:
        seen[program.name] = count = seen.get(program.name, 0) + 1
        result.append(program if count == 1 else replace(program, name=f"{program.name} #{count}"))
    return result


def measure(
    programs: Sequence[Program],
    case: Case,
    folder: Path,
    runs: int,
    cold: bool,
    notify: Notify,
    show: Callable[["ProgramMeasurement"], None] = lambda _: None,
) -> list[ProgramResult]:
    """Check and time every program on one case, which is in `folder`; for one that is wrong, the result has the reason.

    `notify` gets a sentence if the input stays cached though `cold`, `show` a measurement after each of its runs.
    Raises Hw4Error if the case itself is damaged.
    """
    check_case(case, folder)
    source = case.input_path(folder)
    measurements = [ProgramMeasurement(program) for program in programs]
    for measurement in measurements:
        _run(measurement, case, folder, check=True)
        show(measurement)
    if cold:
        _warn_if_cached(source, notify)
    else:
        read_once(source)
    for _ in range(runs):
        for measurement in measurements:
            if measurement.status == "ok":
                if cold:
                    evict(source)
                _run(measurement, case, folder, check=False)
                show(measurement)
    return _with_ratios([_row(measurement, case) for measurement in measurements])


def _run(measurement: ProgramMeasurement, case: Case, folder: Path, check: bool) -> None:
    """Run a program once: to check its output, or to time it (then only the output's size is checked)."""
    try:
        with tempfile.TemporaryDirectory(prefix="hw4-bench-", ignore_cleanup_errors=True) as private:
            output = Path(private) / "output"
            run = _finished(measurement.program, case, folder, output)
            if check:
                with opened_output(output, case.answer_path(folder)) as opened:
                    problem, comparison = output_problem(opened, case, folder)
                measurement.max_error = comparison.max_error if comparison else None
            else:
                size = output.stat().st_size if output.is_file() else None
                problem = "no output file" if size is None else size_problem(size, case.shape)
                measurement.runs.append(run)
        if problem:
            measurement.fail("wrong", problem)
    except UnreadableError as error:
        measurement.fail("wrong", str(error))
    except RunError as error:
        measurement.fail("failed", str(error))
    except ValueError as error:
        raise InputError(f"{case.answer_path(folder)} is not an answer: {error}") from None


def _finished(program: Program, case: Case, folder: Path, output: Path) -> Run:
    """A run that ends well; RunError for one that does not."""
    arguments = [*program.command, str(case.input_path(folder).resolve()), str(output)]
    try:
        run = run_program(arguments, Limits(case.limit + KILL_AFTER), program.env)
    except StartError as error:
        raise RunError(str(error)) from None
    if run.killed:
        raise RunError(f"killed after {run.wall:.1f} s")
    if problem := exit_problem(run.exit_code, run.stderr):
        raise RunError(problem)
    return run


def _row(measurement: ProgramMeasurement, case: Case) -> ProgramResult:
    shape = (case.shape.B, case.shape.N, case.shape.d)
    name, status, reason = measurement.program.name, measurement.status, measurement.reason
    row = ProgramResult(name, case.name, shape, status, reason, max_error=measurement.max_error)
    if measurement.status != "ok":
        return row
    users, systems = (tuple(getattr(run, part) for run in measurement.runs) for part in ("user", "system"))
    return replace(_timed(row, measurement.seconds), user_seconds=users, system_seconds=systems)


def _timed(row: ProgramResult, seconds: Sequence[float]) -> ProgramResult:
    times = tuple(seconds)
    return replace(row, median=statistics.median(times), fastest=min(times), slowest=max(times), seconds=times)


def _with_ratios(rows: Sequence[ProgramResult]) -> list[ProgramResult]:
    """The rows of one case, each with its median's ratio to the first row's."""
    first = rows[0].median
    return [replace(row, ratio=row.median / first) if row.median and first else row for row in rows]


def sums(rows: Sequence[ProgramResult]) -> list[ProgramResult]:
    """For each program the sum over the cases, round by round, over those cases that every program got right.

    The reason names the cases that are left out; the list is empty if fewer than two are left.
    """
    names = list(dict.fromkeys(row.program for row in rows))
    table = {(row.program, row.case): row for row in rows}
    all_cases = list(dict.fromkeys(row.case for row in rows))
    cases = [case for case in all_cases if all(table[name, case].status == "ok" for name in names)]
    if len(cases) < 2:
        return []
    left_out = [case for case in all_cases if case not in cases]
    reason = f"without {', '.join(left_out)}" if left_out else ""

    def total(name: str) -> ProgramResult:
        rounds = zip(*(table[name, case].seconds for case in cases), strict=True)
        errors = [error for case in cases if (error := table[name, case].max_error) is not None]
        row = ProgramResult(name, SUM, None, "ok", reason, max_error=max(errors, default=None))
        return _timed(row, [sum(times) for times in rounds])

    return _with_ratios([total(name) for name in names])


def read_once(path: Path) -> None:
    """Read a file to its end, so that the page cache holds it."""
    buffer = bytearray(READ_CHUNK)
    with open_regular(path) as file:
        while file.readinto(buffer):
            pass


def evict(path: Path) -> None:
    """Drop this file, and no other, from the page cache. Dirty pages cannot be dropped: they are written first."""
    with open_regular(path) as file:
        try:
            os.fsync(file.fileno())
            os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
        except OSError as error:
            raise os_error(error, f"drop {path} from the page cache") from None


def cached_share(path: Path) -> float:
    """The share of a file's pages that is in the page cache (by mincore; 1 where that is not permitted)."""
    libc = ctypes.CDLL(None, use_errno=True)
    with open_regular(path) as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_COPY) as pages:
        resident = np.zeros(-(-len(pages) // mmap.PAGESIZE), np.uint8)
        anchor = ctypes.c_char.from_buffer(pages)
        failed = libc.mincore(
            ctypes.c_void_p(ctypes.addressof(anchor)),
            ctypes.c_size_t(len(pages)),
            ctypes.c_void_p(resident.ctypes.data),
        )
        del anchor  # or the mapping could not be closed
    return 1.0 if failed else float((resident & 1).mean())


def _warn_if_cached(source: Path, notify: Notify) -> None:
    """Warn where a file stays in the page cache (on a file system in memory, for example)."""
    evict(source)
    share = cached_share(source)
    if share > 0.01:
        notify(f"{share:.0%} of {source} stays in the page cache: its times are not those of a cold start")


def program_record(programs: Sequence[Program], rows: Sequence[ProgramResult], runs: int, cold: bool) -> dict[str, Any]:
    """The record of a benchmark: machine, software, commit, date, programs, method, results."""
    return {
        **heading(PROGRAMS),
        "hw4": __version__,
        "machine": machine(),
        "method": {
            "timer": "wall time of the whole process, programs in turn",
            "cache": "input dropped from the page cache before each run" if cold else "input in the page cache",
            "runs": runs,
            "check": "one untimed run of each program, compared with the answer",
            "ratio": f"of medians, to {programs[0].name}",
            "sum": "of a round's runs over all cases",
        },
        "rows": [vars(row) for row in rows],
    }

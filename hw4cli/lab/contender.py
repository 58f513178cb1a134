"""What is measured on a GPU: contenders on a case. Each is checked before it is timed; samples are interleaved.

The method: a case's numbers; each answer checked against float64; warm-up; one sample of each contender in turn, the
L2 cache overwritten before each (or not, if warm); until the 95 % confidence interval of the median is narrower than
1 % of it, or a limit is reached (hw4cli/lab/sampling.py).
"""

import threading
from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from contextlib import AbstractContextManager, suppress
from dataclasses import dataclass, field
from typing import Any, Protocol

from hw4cli.device.gpu import Gpu, kernel_of
from hw4cli.device.machinecode import Kernel
from hw4cli.device.timing import GpuTimer
from hw4cli.errors import MachineError
from hw4cli.lab.sampling import STANDARD, Measurement, Notify, Sampling, figures, take_turns, without_rest
from hw4cli.plans.plan import Plan
from hw4cli.problem.cpu import on_all_cores

LOOK_SECONDS = 0.02  # between two looks whether a compiler has ended


@dataclass(frozen=True)
class KernelResult:
    """One contender on one case. Times in milliseconds; low and high bound the median with 95 % confidence."""

    kernel: str
    case: str
    shape: tuple[int, int, int]
    status: str  # "ok", "wrong" or "failed"
    reason: str = ""
    median: float | None = None
    low: float | None = None
    high: float | None = None
    samples: int = 0
    tflops: float | None = None
    sgemm_percent: float | None = None
    gb_per_s: float | None = None
    max_error: float | None = None
    registers: int | None = None
    shared_bytes: int | None = None
    occupancy: float | None = None
    host_ms: float | None = None  # medians: to enqueue the work, and of the flush during which that is done
    flush_ms: float | None = None
    causal: bool = False
    seed: int | None = None  # of the numbers that it was checked and timed on
    pairs_percent: float | None = None  # of the N*N pairs of a query and a key: whose scores the kernel's tiles compute
    mean: float | None = None
    standard_error: float | None = None  # of the mean
    fastest: float | None = None
    slowest: float | None = None
    quantiles: dict[str, float] | None = None  # "5%": ...
    samples_ms: list[float] = field(default_factory=list)  # every sample, in its order
    sustained_ms: float | None = None  # of a run, back to back for a second; None where the host is slower
    watts: float | None = None  # of the whole board meanwhile
    sm_mhz: float | None = None  # meanwhile
    joules: float | None = None  # of a run, back to back
    gflop_per_joule: float | None = None


class WrongAnswerError(Exception):
    """A contender's answer is wrong, and why."""


class Contender(ABC):
    """What computes one case, a kernel of hw4's or somebody else's attention: prepared once, then run again and again.

    `ours`: a kernel of hw4's, which must give the same bits again unless it is known not to (`repeats`).
    """

    def __init__(self, name: str, ours: bool = True, repeats: bool = True) -> None:
        self.name, self.ours, self.repeats = name, ours, repeats

    def planned(self) -> Plan | None:
        """Its launches, not yet compiled; None where hw4 does not compile them. MachineError where it cannot run."""
        return None

    @abstractmethod
    def prepare(self, data: Any) -> dict[str, Any]:
        """Take a case's data, compile and allocate. What it takes of the GPU, by the names of KernelResult's fields.

        Raises MachineError where it cannot compute the case.
        """

    @abstractmethod
    def run(self) -> None:
        """Enqueue the work once more: this is what is timed. Raises MachineError where it fails."""

    @abstractmethod
    def answer(self) -> tuple[Any, ...]:
        """What the last run made, arrays on the GPU."""


class Data(Protocol):
    """A case on a GPU: the arrays that contenders read and write."""

    def expect(self) -> None:
        """Compute in float64 what the answer should be."""

    def check(self, contender: Contender) -> tuple[float, dict[str, Any]]:
        """Run a contender and compare its answer: the largest error, and further fields of its row.

        Raises WrongAnswerError, or MachineError where it fails.
        """


class Case(Protocol):
    """What is to be computed: random numbers of given sizes, and which of the passes."""

    @property
    def name(self) -> str:
        """As a table has it."""

    @property
    def flops(self) -> float:
        """Operations, by the field's convention."""

    @property
    def bytes(self) -> float:
        """Bytes of what must be read and written once, by the field's convention."""

    def planned(self, gpu: Gpu) -> list[Plan]:
        """What the check itself launches."""

    def opened(self, gpu: Gpu, plan: Plan | None = None) -> Data:
        """The case's arrays on a GPU. Raises MachineError, which may name the plan's kernel, if they do not fit."""

    def guarded(self, gpu: Gpu) -> AbstractContextManager[None]:
        """Turns what lacks memory meanwhile into a MachineError."""

    def row(self, contender: Contender, status: str, reason: str, **found: Any) -> KernelResult:
        """What became of a contender."""


def compile_side_by_side(gpu: Gpu, plans: Iterable[Plan]) -> None:
    """Compile what plans need and is in no cache, on all cores: one after the other it would take minutes.

    What does not compile is found when it is to be run. On Ctrl-C, no compiler goes on.
    """
    stop = threading.Event()

    def compile_one(kernel: Kernel) -> None:
        with gpu.code.start(kernel) as process:
            while process.poll() is None:
                if stop.wait(LOOK_SECONDS):
                    process.kill()

    with suppress(OSError):
        on_all_cores(compile_one, zip(gpu.code.missing(map(kernel_of, plans))), stop)


@dataclass
class Prepared:
    """A case on the GPU: a measurement of each contender that is right on it, to be timed; and the rows of those that
    are wrong or failed."""

    measurements: list[Measurement] = field(default_factory=list)
    rows: dict[str, KernelResult] = field(default_factory=dict)


def prepare(timer: GpuTimer, contenders: Sequence[Contender], case: Case) -> Prepared:
    """Upload a case and check every contender on it. Raises MachineError if the case does not fit the GPU."""
    data, prepared = case.opened(timer.gpu), Prepared()
    data.expect()
    for one in contenders:
        try:
            facts = one.prepare(data)
            error, further = data.check(one)
        except MachineError as failure:
            prepared.rows[one.name] = case.row(one, "failed", str(failure))
        except WrongAnswerError as wrong:
            prepared.rows[one.name] = case.row(one, "wrong", str(wrong))
        else:
            prepared.measurements.append(Measurement(one.name, one.run, {**facts, **further}, error))
    return prepared


def measure(
    timer: GpuTimer,
    contenders: Sequence[Contender],
    case: Case,
    sampling: Sampling = STANDARD,
    notify: Notify = lambda _: None,
) -> list[KernelResult]:
    """Check and time every contender on one case; one that fails or is wrong is not timed.

    If the case does not fit the GPU, all have failed. `notify` gets each measurement after each of its samples.
    """
    try:
        with case.guarded(timer.gpu):
            prepared = prepare(timer, contenders, case)
            take_turns(timer, prepared.measurements, sampling, notify)
            for one in prepared.measurements if sampling.sustained else ():
                one.facts.update(without_rest(timer, one.work, case.flops))
    except MachineError as error:
        return [case.row(one, "failed", str(error)) for one in contenders]
    rows, by_name = prepared.rows, {one.name: one for one in contenders}
    rows.update((one.name, finished(one, case, by_name[one.name])) for one in prepared.measurements)
    return [rows[one.name] for one in contenders]


def finished(measurement: Measurement, case: Case, contender: Contender) -> KernelResult:
    """A measurement's samples as a row."""
    found = figures(measurement)
    median, reason = found["median"], found.pop("reason")
    return case.row(
        contender,
        "ok",
        reason,
        tflops=case.flops / median / 1e9,
        gb_per_s=case.bytes / median / 1e6,
        max_error=measurement.max_error,
        **found,
        **measurement.facts,
    )

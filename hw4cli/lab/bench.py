"""Kernels on the device, compared fairly: checked before they are timed, interleaved, until the median is sure.

The method: inputs of the suite; the answer checked against the float64 kernel; warm-up; one sample of each kernel in
turn, the L2 cache overwritten before each (or not, if warm); until the 95 % confidence interval of the median is
narrower than 1 % of it, or a cap is reached. The interval is the distribution-free one, from order statistics
(Conover, Practical Nonparametric Statistics, 3.2).
"""

import datetime
import os
import statistics
import subprocess
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any

import numpy as np

from hw4cli import __version__
from hw4cli.compute.measured import RUN_SPREAD
from hw4cli.compute.plan import Tile
from hw4cli.compute.variants import FALLBACK
from hw4cli.device.gpu import Gpu
from hw4cli.device.timing import Meter, Sample
from hw4cli.errors import MachineError
from hw4cli.lab.tables import SCHEMA
from hw4cli.problem.casefile import Floats
from hw4cli.problem.shape import Shape
from hw4cli.problem.suite import uniform
from hw4cli.problem.verdict import Comparison
from hw4cli.resources import data_path
from hw4cli.text.words import counted

WARM_UP = 3  # runs
FEWEST, MOST = 10, 100  # samples
SECONDS = 4.0  # of samples, per kernel and case, after which it is enough
SURE = 0.005  # half-width of the median's interval, relative to it
CACHE = {True: "L2 overwritten before each sample", False: "warm"}  # by whether a measurement is cold
CHECK_CHUNK = 1 << 24  # floats copied back at a time to be checked

# Computes O (n, N, d) from inputs (n, 3, N, d), both on the GPU; returns where O is: the given outputs, or its own.
Work = Callable[[Any, Any], Any]


@dataclass(frozen=True)
class Subject:
    """What is measured on a case: a name, and given a shape, the work and what it takes of the GPU."""

    name: str
    prepare: Callable[[Shape], tuple[Work, dict[str, Any]]]


@dataclass(frozen=True)
class Row:
    """One kernel on one case. Times in milliseconds; low and high bound the median with 95 % confidence."""

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
    host_ms: float | None = None  # medians, of handing over the work and of the flush that hides it
    flush_ms: float | None = None


@dataclass
class Trial:
    """A subject on its way through a case."""

    name: str
    work: Work
    facts: dict[str, Any]
    max_error: float
    samples: list[Sample] = field(default_factory=list)

    @property
    def times(self) -> list[float]:
        """The GPU's time of each sample."""
        return [sample.gpu for sample in self.samples]

    def done(self) -> bool:
        """Whether the median is sure enough, or enough has been tried."""
        if len(self.samples) < FEWEST:
            return False
        median, low, high = median_interval(self.times)
        enough = len(self.samples) >= MOST or sum(self.times) > 1000 * SECONDS
        return enough or (high - low) / 2 <= SURE * median


def median_interval(samples: Sequence[float]) -> tuple[float, float, float]:
    """The median and a 95 % confidence interval for it, from order statistics."""
    ordered = np.sort(np.asarray(samples))
    n = len(ordered)
    below = max(0, int(n / 2 - 0.98 * n**0.5) - 1)  # a rank wider: never less than the 95 % that it says
    return float(np.median(ordered)), float(ordered[below]), float(ordered[n - 1 - below])


def kernel_subject(gpu: Gpu, meter: Meter, variant: str, tile: Tile | None = None) -> Subject:
    """A kernel of the ladder, with its best tiles or given ones, as a subject."""

    def prepare(shape: Shape) -> tuple[Work, dict[str, Any]]:
        plan = gpu.plan(variant, shape, tile)
        found = meter.resources(plan)
        facts = {key: getattr(found, key) for key in ("registers", "shared_bytes", "occupancy")}

        def work(inputs: Any, outputs: Any) -> Any:
            with gpu.errors_told(plan, shape):
                gpu.compute(plan, inputs, outputs)
            return outputs

        return work, facts

    name = f"{variant} {tile['BR']}x{tile['BC']}" if tile else variant
    return Subject(name, prepare)


def measure(
    meter: Meter,
    subjects: Sequence[Subject],
    case: tuple[str, Shape, int],
    sgemm: float | None,
    cold: bool,
) -> list[Row]:
    """Check and time every subject on one case (name, shape, seed); one that fails or is wrong is not timed.

    So is all of a case that does not fit the GPU.
    """
    try:
        return _measure(meter, subjects, case, sgemm, cold)
    except MachineError as error:
        return [Row(subject.name, case[0], _triple(case[1]), "failed", str(error)) for subject in subjects]


def _measure(
    meter: Meter,
    subjects: Sequence[Subject],
    case: tuple[str, Shape, int],
    sgemm: float | None,
    cold: bool,
) -> list[Row]:
    name, shape, seed = case
    gpu = meter.gpu
    plan = gpu.plan(FALLBACK, shape)
    rows: dict[str, Row] = {}
    trials = []
    with gpu.errors_told(plan, shape):
        inputs = upload_case(gpu, shape, seed)
        answer, outputs = gpu.empty((shape.B, shape.N, shape.d)), gpu.empty((shape.B, shape.N, shape.d))
        gpu.compute(plan, inputs, answer)
        gpu.wait()
    for subject in subjects:
        try:
            work, facts = subject.prepare(shape)
            with gpu.errors_told(replace(plan, variant=subject.name), shape):
                comparison = check(gpu, work, inputs, outputs, answer)
        except MachineError as error:
            rows[subject.name] = Row(subject.name, name, _triple(shape), "failed", str(error))
            continue
        if comparison.right:
            trials.append(Trial(subject.name, work, facts, comparison.max_error))
        else:
            reason = comparison.reason(shape)
            rows[subject.name] = Row(subject.name, name, _triple(shape), "wrong", reason)
    for trial in trials:
        for _ in range(WARM_UP):
            meter.milliseconds(lambda trial=trial: trial.work(inputs, outputs), cold)  # type: ignore[misc]
    while waiting := [trial for trial in trials if not trial.done()]:
        for trial in waiting:
            sample = meter.sample(lambda trial=trial: trial.work(inputs, outputs), cold)  # type: ignore[misc]
            trial.samples.append(sample)
    rows.update((trial.name, finish(trial, name, shape, sgemm)) for trial in trials)
    return [rows[subject.name] for subject in subjects]


def upload_case(gpu: Gpu, shape: Shape, seed: int) -> Any:
    """The case's inputs (B, 3, N, d) on the GPU, the same values as in its file."""
    inputs = gpu.empty((shape.B, 3, shape.N, shape.d))
    flat, start = inputs.reshape(-1), 0
    for chunk in uniform(seed, 3 * shape.elements):
        flat[start : start + len(chunk)].set(chunk)
        start += len(chunk)
    return inputs


def check(gpu: Gpu, work: Work, inputs: Any, outputs: Any, answer: Any) -> Comparison:
    """Run once into an output that was NaN, and compare with the answer."""
    outputs.data.memset(0xFF, outputs.nbytes)
    result = work(inputs, outputs)
    gpu.wait()
    comparison = Comparison()
    got, expected = result.reshape(-1), answer.reshape(-1)
    for start in range(0, got.size, CHECK_CHUNK):
        parts: list[Floats] = [array[start : start + CHECK_CHUNK].get() for array in (got, expected)]
        comparison.add(*parts)
    return comparison


def finish(trial: Trial, case: str, shape: Shape, sgemm: float | None) -> Row:
    """A trial's samples as a row."""
    median, low, high = median_interval(trial.times)
    host, flush = (statistics.median(getattr(x, part) for x in trial.samples) for part in ("host", "flush"))
    late = sum(sample.late for sample in trial.samples)
    tflops = shape.flops / median / 1e9
    return Row(
        kernel=trial.name,
        case=case,
        shape=_triple(shape),
        status="ok",
        reason=f"{counted(late, 'sample')} with time of the host, {host:.2g} ms to hand over the work" if late else "",
        median=median,
        low=low,
        high=high,
        samples=len(trial.samples),
        tflops=tflops,
        sgemm_percent=100 * tflops / sgemm if sgemm else None,
        gb_per_s=16 * shape.elements / median / 1e6,
        max_error=trial.max_error,
        host_ms=host,
        flush_ms=flush,
        **trial.facts,
    )


def _triple(shape: Shape) -> tuple[int, int, int]:
    return shape.B, shape.N, shape.d


def record(
    meter: Meter, rows: Sequence[Row], sgemm: float | None, cold: bool, before: dict[str, Any]
) -> dict[str, Any]:
    """Everything that a figure needs beside it: machine, software, commit, date, clocks, method."""
    return {
        "schema": SCHEMA,
        "date": datetime.datetime.now(datetime.UTC).date().isoformat(),
        "hw4": __version__,
        "commit": commit(),
        "machine": meter.machine(),
        "clocks": {"before": before, "after": meter.clocks()},
        "sgemm_tflops": sgemm,
        "copy_gb_per_s": meter.copy_gb_per_s(),
        "method": {
            "timer": "CUDA events, kernels interleaved",
            "launches": "handed over while the cache is overwritten",
            "cache": CACHE[cold],
            "warm_up": WARM_UP,
            "interval": "95 % of the median, order statistics",
            "between_runs": RUN_SPREAD,
            "flops": "4*B*N*N*d",
            "gb_per_s": "Q, K, V and O once",
        },
        "rows": [asdict(row) for row in rows],
    }


def commit() -> str | None:
    """The commit that is measured: HW4_COMMIT where it is set, else git's word on the source tree."""
    if "HW4_COMMIT" in os.environ:
        return os.environ["HW4_COMMIT"]
    folder = data_path("kernels").parent
    try:
        return subprocess.run(
            ["git", "-C", str(folder), "describe", "--always", "--dirty"],
            check=True,
            capture_output=True,
            text=True,
        ).stdout.strip()
    except (OSError, subprocess.CalledProcessError):
        return None

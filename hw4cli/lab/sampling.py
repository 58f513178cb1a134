"""Samples of times on a GPU: until the median is certain, several pieces of work in turns, and what they come to.

The 95 % confidence interval of the median is the distribution-free one, from order statistics (Conover, Practical
Nonparametric Statistics, 3.2).
"""

import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from hw4cli.device.timing import GpuTimer, Sample
from hw4cli.lab.times import Times, median_interval
from hw4cli.text.words import counted

WARM_UP = 3  # runs
FEWEST, MOST = 10, 100  # samples
SECONDS = 4.0  # of samples, the most per kernel and case
SUSTAINED_SECONDS = 0.9  # of runs without rest, of each kernel
HALF_WIDTH = 0.005  # of the median's interval, relative to the median, below which sampling ends
QUANTILES = (0.05, 0.25, 0.75, 0.95)
DIGITS = 7  # significant ones of a sample in a record: events tick every half microsecond


@dataclass(frozen=True)
class Sampling:
    """How samples are taken. They end after so many at most; before, when the interval's half width, relative to the
    median, is no more than this."""

    most: int = MOST
    half_width: float = HALF_WIDTH
    cold: bool = True  # the L2 cache is overwritten before each
    pause: float = 0.0  # seconds that the GPU rests before each
    sustained: bool = False  # afterwards each is run without rest, too, for its power and energy
    warm_up: int = WARM_UP  # runs before the first sample


STANDARD = Sampling()


@dataclass
class Measurement:
    """The samples of a contender on a case; `work` enqueues it once more."""

    name: str
    work: Callable[[], object]
    facts: dict[str, Any]
    max_error: float
    samples: list[Sample] = field(default_factory=list)

    @property
    def times(self) -> list[float]:
        """The GPU's time of each sample."""
        return [sample.gpu for sample in self.samples]

    def done(self, sampling: Sampling = STANDARD) -> bool:
        """Whether the median's interval is narrow enough, or a limit is reached: that of samples, or SECONDS."""
        if len(self.samples) < min(FEWEST, sampling.most):
            return False
        median, low, high = median_interval(self.times)
        at_limit = len(self.samples) >= sampling.most or sum(self.times) > 1000 * SECONDS
        return at_limit or (high - low) / 2 <= sampling.half_width * median


Notify = Callable[[Measurement], None]


def take_turns(
    timer: GpuTimer,
    measurements: Sequence[Measurement],
    sampling: Sampling = STANDARD,
    notify: Notify = lambda _: None,
) -> None:
    """Time the work of measurements in turns, until the median of each is certain enough or a limit is reached."""

    def sample(measurement: Measurement) -> Sample:
        if sampling.pause:
            time.sleep(sampling.pause)
        return timer.sample(measurement.work, sampling.cold)

    for measurement in measurements:
        for _ in range(sampling.warm_up):
            sample(measurement)
    while waiting := [measurement for measurement in measurements if not measurement.done(sampling)]:
        for measurement in waiting:
            measurement.samples.append(sample(measurement))
            notify(measurement)


def figures(measurement: Measurement) -> dict[str, Any]:
    """What a record holds of the samples, in milliseconds, by the names of KernelResult's fields."""
    times = measurement.times
    median, low, high = median_interval(times)
    host, flush = (statistics.median(getattr(x, part) for x in measurement.samples) for part in ("host", "flush"))
    late = sum(sample.late for sample in measurement.samples)
    spread = Times.of(times) if len(times) > 1 else None
    return {
        "reason": f"{counted(late, 'sample')} with time of the host, {host:.2g} ms to enqueue the work" if late else "",
        "median": median,
        "low": low,
        "high": high,
        "samples": len(times),
        "mean": statistics.fmean(times),
        "standard_error": spread.error if spread else None,
        "fastest": min(times),
        "slowest": max(times),
        "quantiles": {f"{share:.0%}": float(np.quantile(times, share)) for share in QUANTILES},
        "samples_ms": [float(f"{ms:.{DIGITS}g}") for ms in times],
        "host_ms": host,
        "flush_ms": flush,
    }


def without_rest(timer: GpuTimer, work: Callable[[], object], flops: float) -> dict[str, float | None]:
    """What a run takes back to back, by the names of KernelResult's fields: time, power, clock, energy of the whole
    board, and the operations for each joule (in 1e9). None where NVML does not count energy."""
    found = timer.sustained(work, SUSTAINED_SECONDS)
    ms, watts = found["sustained_ms"], found["watts"]
    joules = ms * watts / 1000 if ms and watts else None
    return {**found, "joules": joules, "gflop_per_joule": flops / 1e9 / joules if joules else None}

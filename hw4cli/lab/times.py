"""Statistics of samples of a time: the median with its interval, the mean with its standard error."""

import statistics
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np


def median_interval(samples: Sequence[float]) -> tuple[float, float, float]:
    """The median and a 95 % confidence interval for it, from order statistics."""
    ordered = np.sort(np.asarray(samples))
    n = len(ordered)
    below = max(0, int(n / 2 - 0.98 * n**0.5) - 1)  # a rank wider: at least 95 %
    return float(np.median(ordered)), float(ordered[below]), float(ordered[n - 1 - below])


@dataclass(frozen=True)
class Times:
    """Samples in four figures, in their unit: the mean, its standard error, the fastest and the slowest.

    >>> Times.of([1.0, 2.0, 3.0])
    Times(mean=2.0, error=0.5773502691896258, fastest=1.0, slowest=3.0, count=3)
    """

    mean: float
    error: float
    fastest: float
    slowest: float
    count: int

    @classmethod
    def of(cls, samples: Sequence[float]) -> "Times":
        """The figures of two samples or more."""
        error = statistics.stdev(samples) / len(samples) ** 0.5
        return cls(statistics.fmean(samples), error, min(samples), max(samples), len(samples))

    @property
    def interval(self) -> tuple[float, float]:
        """Two standard errors to either side of the mean: where the true mean lies, with about 95 % confidence."""
        return self.mean - 2 * self.error, self.mean + 2 * self.error

    def __str__(self) -> str:
        """As a line shows them: "13.402 ± 0.011 ms, fastest 13.377, slowest 13.488, 20 samples"."""
        times = f"fastest {milliseconds(self.fastest)}, slowest {milliseconds(self.slowest)}"
        return f"{self.with_error} ms, {times}, {self.count} samples"

    @property
    def with_error(self) -> str:
        """The mean and its error: "13.402 ± 0.011"."""
        return f"{milliseconds(self.mean)} ± {self.error:.2g}"


def milliseconds(value: float) -> str:
    """A time in milliseconds with three decimals, or four significant digits if it is shorter than one."""
    return f"{value:.3f}" if value >= 1 else f"{value:#.4g}"

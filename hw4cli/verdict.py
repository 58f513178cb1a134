"""What is right, and what a run is worth: comparison, verdict, score. No I/O.

The rules are those of the assignment; the order in which a verdict is decided is the course judge's.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum

import numpy as np

from hw4cli.casefile import Floats
from hw4cli.shape import Shape

TOLERANCE = 5e-3
KILL_AFTER = 10.0  # seconds past the limit
POINTS, POINTS_PER_CASE = 60, 3
PENALTY = 60.0  # seconds a case that is not accepted; the course does not publish its own


class Verdict(StrEnum):
    """The words of the course's judge, and JE for the judge's own failures."""

    AC = "AC"
    TLE = "TLE"
    TLE_PLUS = "TLE+"
    NA = "NA"
    JE = "JE"


@dataclass
class Comparison:
    """A running comparison of an output with its answer: feed it chunks by `add`, in order.

    An element is right if it is a number within `tolerance` of the answer; NaN and Inf are never right.
    `first` and `worst` are indices into the file, counted in elements; a non-finite element is worse than any error.
    """

    tolerance: float = TOLERANCE
    count: int = 0
    wrong: int = 0
    not_finite: int = 0
    max_error: float = 0.0
    first: int | None = None
    worst: int | None = None

    def add(self, got: Floats, answer: Floats) -> None:
        """Compare one chunk: two flat float32 arrays of the same length. ValueError if the answer is not finite."""
        if not np.isfinite(answer).all():
            raise ValueError("the answer holds NaN or Inf")
        with np.errstate(invalid="ignore", over="ignore"):
            error = np.abs(got - answer)
            # The limit is exact: where float32 comes near it (or meets a NaN), float64 decides.
            if not error.max(initial=0) < 0.99 * self.tolerance:
                error = np.abs(got.astype(np.float64) - answer)
        finite = np.isfinite(error)
        wrong = ~(error <= self.tolerance)
        self._note_worst(error, finite)
        if self.first is None and wrong.any():
            self.first = self.count + int(wrong.argmax())
        self.wrong += int(wrong.sum())
        self.not_finite += int(finite.size - finite.sum())
        self.count += got.size

    def _note_worst(self, error: np.ndarray, finite: np.ndarray) -> None:
        if error.size == 0:
            return
        if not finite.all():
            if self.not_finite == 0:
                self.worst = self.count + int((~finite).argmax())
            error = np.where(finite, error, -1.0)
        largest = int(error.argmax())
        if error[largest] > self.max_error:
            self.max_error = float(error[largest])
            if self.not_finite == 0 and finite.all():
                self.worst = self.count + largest

    @property
    def right(self) -> bool:
        """Whether every element compared so far is right."""
        return self.wrong == 0

    def reason(self, shape: Shape | None = None) -> str:
        """The outcome in words; with a shape, places are told as batch, row and column."""
        if self.right:
            return f"max error {self.max_error:.2g}"

        def place(index: int | None) -> str:
            return shape.place(index or 0) if shape else f"element {index}"

        first = place(self.first)
        if self.not_finite:
            return (
                f"{self.not_finite:,} of {self.count:,} elements are NaN or Inf, "
                f"{self.wrong:,} are wrong, the first at {first}"
            )
        return (
            f"{self.wrong:,} of {self.count:,} elements are off by more than {self.tolerance:g}: "
            f"first at {first}, worst at {place(self.worst)} by {self.max_error:.3g}"
        )


@dataclass(frozen=True)
class Run:
    """How a program ended: seconds of wall time, whether the judge killed it, its exit code (-n: signal n)."""

    wall: float
    killed: bool = False
    exit_code: int = 0


@dataclass(frozen=True)
class Result:
    """One case, judged. `max_error` is None where nothing could be compared."""

    case: str
    shape: Shape
    limit: float
    verdict: Verdict
    reason: str
    wall: float | None = None
    max_error: float | None = None


def decide(run: Run, limit: float, problem: str | None) -> tuple[Verdict, str]:
    """Verdict and reason of a run, in the order of the rules: killed, late, wrong, right.

    `problem` says in words why the program's exit or output is not right; None if nothing is.
    """
    outcome = f"output wrong: {problem}" if problem else "output correct"
    if run.killed:
        return Verdict.TLE_PLUS, f"killed after {run.wall:.2f} s, {KILL_AFTER:g} s past the limit of {limit:g} s"
    if run.wall > limit:
        return Verdict.TLE, f"{run.wall:.2f} s of {limit:g} s, {outcome}"
    if problem:
        return Verdict.NA, problem
    return Verdict.AC, ""


def score(results: Iterable[Result]) -> int:
    """max(0, 60 - 3k) for k cases that are not accepted."""
    return max(0, POINTS - POINTS_PER_CASE * sum(r.verdict is not Verdict.AC for r in results))


def time_and_penalty(results: Iterable[Result], penalty: float = PENALTY) -> tuple[float, float]:
    """Time (the sum over accepted cases) and Penalty (a set time for each other case), in seconds."""
    results = list(results)
    accepted = [r.wall or 0.0 for r in results if r.verdict is Verdict.AC]
    return sum(accepted), penalty * (len(results) - len(accepted))

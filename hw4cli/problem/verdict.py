"""The comparison of an output with its answer, and the verdicts. No I/O."""

from dataclasses import dataclass
from enum import StrEnum

import numpy as np

from hw4cli.problem.casefile import Floats
from hw4cli.problem.errormap import ErrorMap
from hw4cli.problem.rules import TOLERANCE
from hw4cli.problem.workload import Workload


class Verdict(StrEnum):
    """The verdicts of the course's judge, and JE for the judge's own failures."""

    AC = "AC"
    TLE = "TLE"
    TLE_PLUS = "TLE+"
    NA = "NA"
    JE = "JE"


@dataclass
class Comparison:
    """A running comparison of an output with its answer: `add` takes chunks, in order.

    An element is right if it is a number within `tolerance` of the answer; NaN and Inf are never right.
    `first` and `worst` are indices into the file, counted in elements; a non-finite element is worse than any error.
    `errors`, if given, notes which rows and columns are wrong.

    >>> comparison = Comparison(tolerance=0.5)
    >>> comparison.add(np.array([1, 2], np.float32), np.array([1, 3], np.float32))
    >>> comparison.reason()
    '1 of 2 elements are off by more than 0.5: first at element 1, worst at element 1 by 1'
    """

    tolerance: float = TOLERANCE
    errors: ErrorMap | None = None
    count: int = 0
    wrong: int = 0
    not_finite: int = 0
    max_error: float = 0.0
    first: int | None = None
    worst: int | None = None

    def add(self, got: Floats, answer: Floats) -> None:
        """Compare one chunk: two flat float32 arrays of the same length. ValueError if the answer is not finite."""
        with np.errstate(invalid="ignore", over="ignore"):
            error: np.ndarray = np.subtract(got, answer)
            np.abs(error, out=error)
            largest = error.max(initial=0)
            if largest < 0.99 * self.tolerance:  # all right, and so all finite: no NaN is less than anything
                if largest > self.max_error:
                    self._note_worst(error, np.True_)
                self.count += got.size
                return
            # The limit is exact: where float32 comes near it (or meets a NaN), float64 decides.
            error = np.abs(got.astype(np.float64) - answer)
        if not np.isfinite(answer).all():
            raise ValueError("the answer holds NaN or Inf")
        finite = np.isfinite(error)
        wrong = ~(finite & (error <= self.tolerance))
        self._note_worst(error, finite)
        if self.first is None and wrong.any():
            self.first = self.count + int(wrong.argmax())
        if self.errors is not None and wrong.any():
            self.errors.add(self.count, wrong, finite)
        self.wrong += int(wrong.sum())
        self.not_finite += int(finite.size - finite.sum())
        self.count += got.size

    def _note_worst(self, error: np.ndarray, finite: np.ndarray | np.bool_) -> None:
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

    def reason(self, shape: Workload | None = None) -> str:
        """The outcome in a sentence; with a shape, places are batch, row and column."""
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

"""Why an output is wrong: what the judge adds to its reason, and `hw4 verify` shows.

Every known mistake is computed for a few of the wrong rows, and named only if the evidence for it is decisive
(evidence.misfit); otherwise the diagnosis is only where the errors are. It takes a few tenths of a second at most.
"""

from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from functools import cached_property
from itertools import chain
from pathlib import Path

import numpy as np

from hw4cli.diagnosis.evidence import Doubles, misfit
from hw4cli.diagnosis.formulas import Mistake, causal_mistakes, formula_mistakes
from hw4cli.diagnosis.misplaced import misplacements
from hw4cli.diagnosis.overflow import why_not_finite
from hw4cli.diagnosis.reading import reading_mistakes
from hw4cli.diagnosis.rounding import REFUSED, TIMES, roundings
from hw4cli.diagnosis.sample import MAX_MATRIX, Matrices, Output, Rows, WrongRows, choose, spread
from hw4cli.diagnosis.tiles import tile_mistakes
from hw4cli.problem.casefile import InputFile
from hw4cli.problem.errormap import WRONG, ErrorMap
from hw4cli.problem.shape import Shape
from hw4cli.problem.verdict import Comparison

FIRST_ROWS = 2  # compared with every mistake; the other rows only with mistakes that fit these
ALIKE = 2.0  # mistakes whose misfits differ by less than this factor fit equally well
NOISE = 1e-5  # of the output's RMS: a difference that float32 explains
RIGHT_ROWS = 6  # compared to decide between mistakes that fit alike
ROUNDED_ROWS = 12  # compared to find a rounding, right or wrong
MAX_SCORES = 1 << 17  # of these rows, at most
MANY_ROWS = 512  # compared to find one number everywhere
TINY = float(np.finfo(np.float64).tiny)
SAME = 1e-3  # of an answer's largest element: its tolerated difference from the answer that is computed here

Fit = tuple[float, str]  # the misfit, and the description of the mistake


@dataclass(frozen=True)
class Diagnosis:
    """Of a wrong output: the mistake that makes exactly this output, if it is known, and where the errors are. With
    `strange_input`, the answer is not that of the input, so that no mistake could be tried."""

    mistake: str | None = None
    where: str | None = None
    strange_input: bool = False

    def __str__(self) -> str:
        return "; ".join(phrase for phrase in (self.mistake, self.where) if phrase)


def explain(output: Path, answer: Path, source: Path | None, shape: Shape, comparison: Comparison) -> Diagnosis:
    """Diagnose an output of the right size that `comparison`, which must have an error map, found wrong.

    `source` is the input; without it only mistakes that keep the answer's numbers are found. Raises InputError if
    a file cannot be read.
    """
    errors = comparison.errors
    if comparison.first is None or errors is None:
        return Diagnosis()
    if not errors.mapped:
        return Diagnosis(where=errors.where())
    with ExitStack() as stack, np.errstate(all="ignore"):
        got, exact = (stack.enter_context(Output(path, shape)) for path in (output, answer))
        matrices = None
        if source and shape.N * shape.d <= MAX_MATRIX:
            matrices = Matrices(stack.enter_context(InputFile(source)), shape.causal)
        strange = matrices is not None and not _answer_matches_input(matrices, exact, comparison.first)
        search = _Search(got, exact, errors, comparison, None if strange else matrices)
        return Diagnosis(search.mistake(), errors.where(), strange)


def _answer_matches_input(matrices: Matrices, exact: Output, element: int) -> bool:
    """Whether the answer is that of the input, in the row of this element."""
    batch, row = divmod(element // exact.shape.d, exact.shape.N)
    rows = np.array([row])
    sample, right = matrices.sample(batch, rows), exact.rows(batch, rows)
    scores = np.where(sample.up_to(), sample.scores, -np.inf) if matrices.shape.causal else sample.scores
    return bool(np.abs(sample.attend(scores) - right).max() <= SAME * (1 + np.abs(right).max()))


@dataclass(frozen=True)
class _Search:
    """The search for a mistake; `matrices` is None where there is no input, `unmasked` also where the answer is causal:
    only some formulas know the mask."""

    output: Output
    answer: Output
    errors: ErrorMap
    comparison: Comparison
    matrices: Matrices | None

    @property
    def unmasked(self) -> Matrices | None:
        return None if self.matrices and self.matrices.shape.causal else self.matrices

    @property
    def tolerance(self) -> float:
        return self.comparison.tolerance

    @cached_property
    def wrong(self) -> list[WrongRows]:
        """Some of the wrong rows without NaN or Inf."""
        return [self._wrong_rows(batch, rows) for batch, rows in choose(self.comparison)]

    def _wrong_rows(self, batch: int, rows: Rows) -> WrongRows:
        return WrongRows(batch, rows, self.output.rows(batch, rows), self.answer.rows(batch, rows))

    @cached_property
    def got(self) -> Doubles:
        """The output in all these rows."""
        return np.concatenate([one.got for one in self.wrong])

    @cached_property
    def exact(self) -> Doubles:
        """The answer in these rows."""
        return np.concatenate([one.exact for one in self.wrong])

    def mistake(self) -> str | None:
        """The cause of NaN and Inf, and that of the wrong numbers."""
        found = []
        if self.comparison.not_finite and self.unmasked:
            found.append(why_not_finite(self.errors, self.unmasked))
        if self.wrong:
            found.append(self._constant() or self._best_fit() or self._softmax_over_queries() or self._rounding())
        return "; ".join(filter(None, found)) or None

    def _constant(self) -> str | None:
        """Whether at least two wrong elements are one same number, though the answer's are not."""
        (B, N, d), read = (self.output.shape.B, self.output.shape.N, self.output.shape.d), self.output.elements
        looked = self.errors.rows(WRONG, MANY_ROWS).tolist()
        values = np.concatenate([read(row * d, d) for row in looked])
        right = np.concatenate([self.answer.elements(row * d, d) for row in looked])
        off = ~(np.abs(values - right) <= self.tolerance)
        wrong, right = values[off], right[off]
        if len(wrong) < 2 or (wrong != wrong[0]).any() or (wrong[0] != 0 and (right == right[0]).all()):
            return None
        others = np.linspace(0, B * N - 1, MANY_ROWS).astype(np.int64).tolist()
        everywhere = all((read(row * d, d) == wrong[0]).all() for row in others)
        what = "the whole output is" if everywhere else "the wrong elements are all"
        if wrong[0] == 0:
            return f"{what} zeros, as if never computed or copied back"
        return f"{what} {wrong[0]:g}, as if never written"

    def _best_fit(self) -> str | None:
        """The mistake that fits best; of those that fit alike, the first that makes the fewest right rows wrong."""
        fits = [*self._mistakes(), *self._factors(), *self._misplacements()]
        if not fits:
            return None
        limit = ALIKE * min(fit for fit, _ in fits) + NOISE * float(np.sqrt((self.got**2).mean()))
        alike = [phrase for fit, phrase in fits if fit <= limit]
        return alike[0] if len(alike) == 1 else min(alike, key=self._right_rows_made_wrong(alike).__getitem__)

    def _mistakes(self) -> Iterator[Fit]:
        """The mistakes that need the input: computed for two rows first, then, if they fit those, for all."""
        if self.matrices is None:
            return
        one = self.wrong[0]
        few = WrongRows(one.batch, one.rows[:FIRST_ROWS], one.got[:FIRST_ROWS], one.exact[:FIRST_ROWS])
        candidates = {
            phrase for phrase, rows in _known_mistakes(self.matrices, few.batch, few.rows) if _is_nearer(few, rows())
        }
        made: dict[str, list[tuple[Doubles, Doubles, Doubles]]] = {}
        for one in self.wrong if candidates else []:
            for phrase, rows in _known_mistakes(self.matrices, one.batch, one.rows):
                if phrase in candidates:  # a mistake that needs the next batch does not exist for the last
                    made.setdefault(phrase, []).append((one.got, one.exact, rows()))
        for phrase, parts in made.items():
            got, exact, mistaken = (np.concatenate(part) for part in zip(*parts, strict=True))
            fit = misfit(got, exact, mistaken, tolerance=self.tolerance)
            if fit is not None:
                yield fit, phrase

    def _factors(self) -> Iterator[Fit]:
        """One factor from the answer to all wrong rows, or one for each row."""
        got, exact = self.got, self.exact
        products, squares = (got * exact).sum(axis=1), (exact**2).sum(axis=1)
        factor = float(products.sum() / max(squares.sum(), TINY))
        fit = misfit(got, exact, factor * exact, tolerance=self.tolerance, fitted=1)
        if fit is not None:
            yield fit, f"wrong rows are {factor:.4g} times the answer"
        factors = products / np.maximum(squares, TINY)
        fit = misfit(got, exact, factors[:, None] * exact, tolerance=self.tolerance, fitted=len(got))
        if fit is not None:
            span = f"{factors.min():.3g} to {factors.max():.3g} in those looked at"
            phrase = f"each wrong row is the answer times a factor of its own ({span}), as if divided by a wrong sum l"
            yield fit, phrase

    def _misplacements(self) -> Iterator[Fit]:
        """Rows of the answer at wrong places."""
        for phrase, rows in misplacements(self.answer, self.wrong, self.tolerance):
            known = np.asarray(~np.isnan(rows).any(axis=1))
            if 2 * known.sum() >= len(known):
                fit = misfit(self.got[known], self.exact[known], rows[known], tolerance=self.tolerance)
                if fit is not None:
                    yield fit, phrase

    def _right_rows_made_wrong(self, alike: list[str]) -> dict[str, int]:
        """How many of some right rows each of these mistakes would make wrong; all, if that is not known."""
        batch = self.wrong[0].batch
        rows = spread(np.flatnonzero(self.errors.marks[batch] == 0), RIGHT_ROWS)
        wrong = dict.fromkeys(alike, len(rows))
        if self.matrices is not None and len(rows):
            there = self.output.rows(batch, rows)
            for phrase, made in _known_mistakes(self.matrices, batch, rows):
                if phrase in wrong:
                    wrong[phrase] = int((np.abs(made() - there) > self.tolerance).any(axis=1).sum())
        return wrong

    def _softmax_over_queries(self) -> str | None:
        """Whether each key's weights sum to 1 over the queries: then the rows of O sum to the rows of V."""
        if self.unmasked is None:
            return None
        sums: list[list[Doubles]] = [[], [], []]
        for batch in {one.batch for one in self.wrong[:2]}:
            v = self.unmasked.matrix((3 * batch + 2) * self.unmasked.size)
            for kept, rows in zip(sums, (self.output.batch(batch), self.answer.batch(batch), v), strict=True):
                kept.append(rows.sum(axis=0, dtype=np.float64))
        if misfit(*map(np.stack, sums), tolerance=self.tolerance) is None:
            return None
        return (
            "the softmax goes the wrong way: a key's weights add up to 1 over the queries, not a query's over the keys"
        )

    def _rounding(self) -> str | None:
        """The number format whose rounding makes most of the errors, in right rows, too."""
        if self.unmasked is None:
            return None
        N, batch = self.output.shape.N, self.wrong[0].batch
        some = spread(np.arange(N), min(ROUNDED_ROWS, max(1, MAX_SCORES // N)))
        one = self._wrong_rows(batch, np.union1d(self.wrong[0].rows, some))
        finite = np.isfinite(one.got).all(axis=1)
        rows, got, exact = one.rows[finite], one.got[finite], one.exact[finite]
        if ((got - exact) ** 2).sum() > (exact**2).sum():
            return None
        fits = []
        for phrase, low in roundings(self.unmasked.sample(batch, rows)):
            fit = misfit(got, exact, low, tolerance=REFUSED * self.tolerance, times=TIMES, in_each_row=False)
            if fit is not None:
                fits.append((fit, phrase))
        return min(fits)[1] if fits else None


def _known_mistakes(matrices: Matrices, batch: int, rows: Rows) -> Iterator[Mistake]:
    """The known mistakes, computed for these rows."""
    sample = matrices.sample(batch, rows)
    made = (
        causal_mistakes(sample)
        if matrices.shape.causal
        else chain(formula_mistakes(sample), tile_mistakes(sample), reading_mistakes(matrices, batch, rows, sample))
    )
    return ((f"the wrong rows equal attention computed {phrase}", rows) for phrase, rows in made)


def _is_nearer(one: WrongRows, rows: Doubles) -> bool:
    """Whether rows are nearer to the output's than the exact ones are."""
    left, error = np.abs(one.got - rows), np.abs(one.got - one.exact)
    return bool((2 * left.max(axis=1) <= error.max(axis=1)).all())

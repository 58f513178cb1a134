"""Why an output is wrong: what the judge adds to its reason, and `hw4 verify` shows.

Every known mistake is computed for a few of the wrong rows, and named only if the evidence for it is decisive
(evidence.misfit); otherwise the diagnosis is only where the errors are. It takes a few tenths of a second at most.
"""

import re
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from functools import cached_property
from itertools import chain
from pathlib import Path

import numpy as np

from hw4cli.judge.diagnosis.evidence import Doubles, fits, misfit
from hw4cli.judge.diagnosis.formulas import (
    Mistake,
    causal_mistakes,
    fewest_left_out,
    formula_mistakes,
    keys_left_out,
)
from hw4cli.judge.diagnosis.misplaced import Misplacement, misplacements
from hw4cli.judge.diagnosis.overflow import why_not_finite
from hw4cli.judge.diagnosis.reading import reading_mistakes
from hw4cli.judge.diagnosis.rounding import REFUSED, TIMES, roundings
from hw4cli.judge.diagnosis.sample import MAX_MATRIX, Matrices, Output, Rows, WrongRows, choose, dot_products, spread
from hw4cli.judge.diagnosis.tiles import tile_mistakes
from hw4cli.problem.casefile import Floats, InputFile
from hw4cli.problem.errormap import NOT_FINITE, WRONG, ErrorMap
from hw4cli.problem.verdict import Comparison
from hw4cli.problem.workload import Workload

FIRST_ROWS = 2  # compared with every mistake; the other rows only with mistakes that fit these
ALIKE = 2.0  # mistakes whose misfits differ by less than this factor fit equally well
NOISE = 1e-5  # of the output's RMS: a difference that float32 explains
RIGHT_ROWS = 24  # compared to decide between mistakes that fit alike
ROUNDED_ROWS = 12  # compared to find a rounding, right or wrong
LEFT_OUT_ROWS = 48  # wrong ones and right ones, compared to find how many keys were left out
MAX_SCORES = 1 << 17  # of these rows, at most
MANY_ROWS = 512  # of each kind, compared before something is said of all
KINDS = 3  # right, wrong, not finite
FEW_ELEMENTS = 1 << 22  # of an output that is compared as a whole
CHECKED = 1 << 26  # multiplications of QKᵀ, by which a mistake is compared with wrong rows beside those of the search
CHECKED_AT_ONCE = 64  # rows
MAX_QUERIES = 1 << 12  # of a batch: a softmax over more would take too long
CHUNK = 256  # keys at a time
BYTES_SHOWN = 3  # elements that show the order of their bytes
TINY = float(np.finfo(np.float64).tiny)
SAME = 1e-3  # of an answer's largest element: its tolerated difference from the answer that is computed here

Fit = tuple[float, str]  # the misfit, and the description of the mistake
# Of a mistake that needs the next batch, in the last one: what it made there is not known.
BEHIND_THE_FILE = " (in the last batch: of what lies behind the file)"
MADE = "the wrong rows equal attention computed "


@dataclass(frozen=True)
class Diagnosis:
    """Of a wrong output: the mistake that makes exactly this output, if it is known, and where the errors are. With
    `strange_input`, the answer is not that of the input, so that no mistake could be tried."""

    mistake: str | None = None
    where: str | None = None
    strange_input: bool = False

    def __str__(self) -> str:
        return "; ".join(phrase for phrase in (self.mistake, self.where) if phrase)


def explain(output: Path, answer: Path, source: Path | None, shape: Workload, comparison: Comparison) -> Diagnosis:
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
        if swapped := self._swapped_bytes():
            return swapped
        found = []
        if self.comparison.not_finite and self.unmasked:
            found.append(why_not_finite(self.errors, self.unmasked))
        if self.wrong:
            found.append(self._constant() or self._best_fit() or self._softmax_over_queries() or self._rounding())
        if self.comparison.not_finite and self.wrong and found[-1]:
            found[-1] = re.sub("wrong (rows?|elements)", r"wrong \1 without NaN or Inf", found[-1], count=1)
        return "; ".join(filter(None, found)) or None

    def _rows(self, *marks: int) -> Rows:
        """Some rows of each of these marks (0: right), counted through all batches; all, if they are not many."""
        return np.concatenate([self.errors.rows(mark, MANY_ROWS) for mark in marks])

    def _read(self, file: Output, rows: Rows) -> Floats:
        """These rows of a file; many are taken out of all of it, which is then small."""
        d = file.shape.d
        if len(rows) > KINDS * MANY_ROWS:
            return file.elements(0, file.shape.elements).reshape(-1, d)[rows]
        return np.stack([file.elements(row * d, d) for row in rows.tolist()])

    def _swapped_bytes(self) -> str | None:
        """Whether the numbers are right with their bytes in the other order."""
        rows = self._rows(0, WRONG, NOT_FINITE)
        right = self._read(self.answer, rows)
        got = self._read(self.output, rows).byteswap().astype(np.float64)
        if (np.abs(right) > self.tolerance).sum() < BYTES_SHOWN or not (np.abs(got - right) <= self.tolerance).all():
            return None
        return "the numbers are right with their bytes in the other order: write them little-endian, as x86 has them"

    def _constant(self) -> str | None:
        """Whether at least two wrong elements are one same number, though the answer's are not."""
        looked, few = self._rows(WRONG), self.output.shape.elements <= FEW_ELEMENTS
        if few:
            looked = np.flatnonzero(self.errors.marks.reshape(-1) == WRONG)
        values, right = self._read(self.output, looked), self._read(self.answer, looked)
        off = ~(np.abs(values - right) <= self.tolerance)
        wrong, right = values[off], right[off]
        if len(wrong) < 2 or (wrong != wrong[0]).any() or (wrong[0] != 0 and (right == right[0]).all()):
            return None
        others = np.arange(self.errors.marks.size) if few else self._rows(0, WRONG, NOT_FINITE)
        what = (
            "the whole output is"
            if (self._read(self.output, others) == wrong[0]).all()
            else "the wrong elements are all"
        )
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
        best = alike[0] if len(alike) == 1 else min(alike, key=self._right_rows_made_wrong(alike).__getitem__)
        return self._of_how_many(best) if best.startswith(MADE) else best

    def _of_how_many(self, phrase: str) -> str:
        """What is said of a mistake that explains the wrong rows of the search: of all wrong rows, or of how many."""
        assert self.matrices is not None
        N, d, looked, fitting, unknown = self.output.shape.N, self.output.shape.d, 0, 0, False
        few = min(MANY_ROWS, max(1, CHECKED // (N * d)))
        marked = self.errors.rows(WRONG, few)
        for batch in dict.fromkeys((marked // N).tolist()):
            own = marked[marked // N == batch] % N
            for start in range(0, len(own), CHECKED_AT_ONCE):
                one = self._wrong_rows(batch, own[start : start + CHECKED_AT_ONCE])
                made = next((rows() for name, rows in self._known_mistakes(batch, one.rows) if name == phrase), None)
                if made is not None:
                    fitting += int(fits(one.got, made, self.tolerance).all(axis=1).sum())
                if made is not None or batch + 1 < self.output.shape.B:
                    looked += len(one.rows)
                else:
                    unknown = True
        if fitting == looked:
            return f"{phrase}{BEHIND_THE_FILE}" if unknown else phrase
        return f"{fitting} of {looked} wrong rows looked at equal attention computed {phrase.removeprefix(MADE)}"

    @cached_property
    def _left_out(self) -> tuple[int, int]:
        """How many of the first keys, and of the last, the program seems to have left out; 0 where that cannot be."""
        if self.unmasked is None:
            return 0, 0
        most, parts = max(1, min(LEFT_OUT_ROWS, MAX_SCORES // self.output.shape.N // len(self.wrong))), []
        for batch in (one.batch for one in self.wrong):
            some = [spread(np.flatnonzero(self.errors.marks[batch] == mark), most) for mark in (WRONG, 0)]
            one = self._wrong_rows(batch, np.concatenate(some))
            parts.append((self.unmasked.sample(batch, one.rows), one.got))
        return fewest_left_out(parts)

    def _known_mistakes(self, batch: int, rows: Rows) -> Iterator[Mistake]:
        assert self.matrices is not None
        return _known_mistakes(self.matrices, batch, rows, self._left_out)

    def _mistakes(self) -> Iterator[Fit]:
        """The mistakes that need the input: computed for two rows first, then, if they fit those, for all."""
        if self.matrices is None:
            return
        one = self.wrong[0]
        few = WrongRows(one.batch, one.rows[:FIRST_ROWS], one.got[:FIRST_ROWS], one.exact[:FIRST_ROWS])
        candidates = {phrase for phrase, rows in self._known_mistakes(few.batch, few.rows) if _is_nearer(few, rows())}
        made: dict[str, list[tuple[Doubles, Doubles, Doubles]]] = {}
        for one in self.wrong if candidates else []:
            for phrase, rows in self._known_mistakes(one.batch, one.rows):
                if phrase in candidates:  # a mistake that needs the next batch does not exist for the last
                    made.setdefault(phrase, []).append((one.got, one.exact, rows()))
        for phrase, parts in made.items():
            got, exact, mistaken = (np.concatenate(part) for part in zip(*parts, strict=True))
            fit = misfit(got, exact, mistaken, tolerance=self.tolerance, choices=self.output.shape.N)
            if fit is not None:
                yield fit, phrase

    def _factors(self) -> Iterator[Fit]:
        """One factor from the answer to all wrong rows, or one for each row."""
        got, exact = self.got, self.exact
        products, squares = (got * exact).sum(axis=1), (exact**2).sum(axis=1)
        factor = float(products.sum() / max(squares.sum(), TINY))
        rows = self._rows(WRONG)
        others, right = (self._read(file, rows).astype(np.float64) for file in (self.output, self.answer))
        fit = misfit(got, exact, factor * exact, tolerance=self.tolerance, fitted=1)
        if fit is not None and fits(others, factor * right, self.tolerance).all():
            yield fit, f"wrong rows are {factor:.4g} times the answer"
        factors = products / np.maximum(squares, TINY)
        fit = misfit(got, exact, factors[:, None] * exact, tolerance=self.tolerance, fitted=len(got))
        own = (others * right).sum(axis=1) / np.maximum((right**2).sum(axis=1), TINY)
        if fit is not None and fits(others, own[:, None] * right, self.tolerance).all():
            span = f"{factors.min():.3g} to {factors.max():.3g} in those looked at"
            phrase = f"each wrong row is the answer times a factor of its own ({span}), as if divided by a wrong sum l"
            yield fit, phrase

    def _misplacements(self) -> Iterator[Fit]:
        """Parts of the answer at wrong places."""
        rows = np.concatenate([one.batch * self.output.shape.N + one.rows for one in self.wrong])
        for one in misplacements(self.answer, self.wrong, self.errors, self.tolerance):
            moved = one.source(rows)
            known = np.asarray(~np.isnan(moved).any(axis=1))
            if 2 * known.sum() < len(known):
                continue
            got, exact, moved = (values[known][:, one.columns] for values in (self.got, self.exact, moved))
            fit = misfit(got, exact, moved, tolerance=self.tolerance)
            if fit is None:
                continue
            if one.everywhere and self._holds(one, 0, WRONG, NOT_FINITE):
                yield fit, one.everywhere
            elif one.in_wrong_rows and self._holds(one, WRONG, NOT_FINITE):
                yield fit, one.in_wrong_rows

    def _holds(self, one: Misplacement, *marks: int) -> bool:
        """Whether rows of these marks are what they would be; those count of which that is known."""
        rows = self._rows(*marks)
        moved = one.source(rows)
        left = np.abs(self._read(self.output, rows) - moved)
        return bool(((left <= self.tolerance) | np.isnan(moved))[:, one.columns].all())

    def _right_rows_made_wrong(self, alike: list[str]) -> dict[str, int]:
        """How many of some right rows each of these mistakes would make wrong; all, if that is not known."""
        batch = self.wrong[0].batch
        rows = spread(np.flatnonzero(self.errors.marks[batch] == 0), RIGHT_ROWS)
        wrong = dict.fromkeys(alike, len(rows))
        if self.matrices is not None and len(rows):
            there = self.output.rows(batch, rows)
            for phrase, made in self._known_mistakes(batch, rows):
                if phrase in wrong:
                    wrong[phrase] = int((np.abs(made() - there) > self.tolerance).any(axis=1).sum())
        return wrong

    def _softmax_over_queries(self) -> str | None:
        """Whether each key's weights sum to 1 over the queries."""
        if self.unmasked is None or self.output.shape.N > MAX_QUERIES:
            return None
        parts = [(one.got, one.exact, self._by_columns(self.unmasked, one)) for one in self.wrong[:2]]
        if misfit(*map(np.concatenate, zip(*parts, strict=True)), tolerance=self.tolerance) is None:
            return None
        return (
            "the softmax goes the wrong way: a key's weights add up to 1 over the queries, not a query's over the keys"
        )

    def _by_columns(self, matrices: Matrices, one: WrongRows) -> Doubles:
        """These rows of O by a softmax of the columns of S."""
        sample = matrices.sample(one.batch, one.rows)
        q, o = matrices.matrix(3 * one.batch * matrices.size), np.zeros(one.got.shape)
        for start in range(0, len(q), CHUNK):
            keys = slice(start, start + CHUNK)
            scores = dot_products(q, sample.k[keys]) / np.float32(np.sqrt(q.shape[1]))
            top = scores.max(axis=0)
            total = np.exp(scores - top).sum(axis=0, dtype=np.float64)
            o += np.exp(sample.scores[:, keys] - top) / total @ sample.v[keys]
        return o

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


def _known_mistakes(matrices: Matrices, batch: int, rows: Rows, left_out: tuple[int, int]) -> Iterator[Mistake]:
    """The known mistakes, computed for these rows; with so many of the first and of the last keys left out, too."""
    sample = matrices.sample(batch, rows)
    made = (
        causal_mistakes(sample)
        if matrices.shape.causal
        else chain(
            formula_mistakes(sample),
            tile_mistakes(sample),
            reading_mistakes(matrices, batch, rows, sample),
            keys_left_out(sample, *left_out),
        )
    )
    return ((f"{MADE}{phrase}", rows) for phrase, rows in made)


def _is_nearer(one: WrongRows, rows: Doubles) -> bool:
    """Whether rows are nearer to the output's than the exact ones are."""
    left, error = np.abs(one.got - rows), np.abs(one.got - one.exact)
    return bool((2 * left.max(axis=1) <= error.max(axis=1)).all())

"""The data of a diagnosis: a few wrong rows, and their queries, keys and values."""

from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from hw4cli.judge.diagnosis.evidence import Doubles
from hw4cli.problem.casefile import FLOAT32, Floats, InputFile, open_regular, read_exactly
from hw4cli.problem.errormap import WRONG
from hw4cli.problem.verdict import Comparison
from hw4cli.problem.workload import HEADER_BYTES, Workload

Rows = NDArray[np.int64]

MAX_MATRIX = 1 << 22  # elements of K; a larger one takes too much time and memory
ROWS = 4  # wrong rows in each of three batches
KEYS = 512  # multiplied at a time: for larger products the BLAS starts threads that cost more than they save
TINY = 1e-20  # a weight that is negligible beside one of 1
SCORE_ERROR = 1e-4  # of a score in float32; if it may be larger, float64 is used


class Output:
    """Rows and batches of an output or an answer, read from its file. A context manager."""

    def __init__(self, path: Path, shape: Workload) -> None:
        self.path, self.shape = path, shape
        self._file = open_regular(path)

    def __enter__(self) -> "Output":
        return self

    def __exit__(self, *_: object) -> None:
        self._file.close()

    def elements(self, start: int, count: int) -> Floats:
        """`count` elements from element `start` of the file on."""
        out = np.empty(count, FLOAT32)
        read_exactly(self._file, out, 4 * start, self.path)
        return out

    def rows(self, batch: int, rows: Rows) -> Doubles:
        """Some rows of a batch."""
        N, d = self.shape.N, self.shape.d
        return np.stack([self.elements((batch * N + int(row)) * d, d) for row in rows]).astype(np.float64)

    def batch(self, batch: int) -> Floats:
        """All rows of a batch, (N, d)."""
        N, d = self.shape.N, self.shape.d
        return self.elements(batch * N * d, N * d).reshape(N, d)


@dataclass(frozen=True)
class WrongRows:
    """Wrong rows of one batch, in the output and in the answer, (rows, d) each."""

    batch: int
    rows: Rows
    got: Doubles
    exact: Doubles


def choose(comparison: Comparison) -> list[tuple[int, Rows]]:
    """Wrong rows without NaN or Inf: some of the batch with the largest error, of the last and of the first wrong
    batch; the row of the largest error comes first. Empty if there are none, or the output is too large to be mapped.
    """
    errors = comparison.errors
    if errors is None or not errors.mapped:
        return []
    batches = np.asarray((errors.marks == WRONG).any(axis=1))
    if not batches.any():
        return []
    first, last = int(batches.argmax()), len(batches) - 1 - int(batches[::-1].argmax())
    worst, row = divmod((comparison.worst or 0) // errors.shape.d, errors.shape.N)
    if errors.marks[worst, row] != WRONG:
        worst, row = first, -1
    chosen = dict.fromkeys([worst, last, first])
    return [(batch, _some(errors.marks[batch] == WRONG, row if batch == worst else -1)) for batch in chosen]


def spread(places: Rows, most: int) -> Rows:
    """At most so many of the places, evenly."""
    return np.asarray(places[np.linspace(0, len(places) - 1, min(most, len(places))).astype(int)])


def _some(marks: NDArray[np.bool_], first: int) -> Rows:
    """A few of the marked rows, with `first`, unless it is negative, in front."""
    some = spread(np.flatnonzero(marks), ROWS)
    chosen = dict.fromkeys(([first] if first >= 0 else []) + some[::-1].tolist())
    return np.array(list(chosen)[:ROWS], np.int64)


@dataclass(frozen=True)
class Sample:
    """Some queries (rows, d) of one batch, its keys and values (N, d), and the scores that the formulas need."""

    rows: Rows
    q: Floats
    k: Floats
    v: Floats

    @cached_property
    def raw(self) -> Doubles:
        """QKᵀ, (rows, N)."""
        with np.errstate(over="ignore", invalid="ignore"):
            largest = np.abs(self.q).max() * np.abs(self.k).max() * self.q.shape[1]
        if largest * 2.0**-24 < SCORE_ERROR:
            return dot_products(self.q, self.k).astype(np.float64)
        return np.asarray(dot_products(self.q.astype(np.float64), self.k))

    @cached_property
    def scores(self) -> Doubles:
        """S = QKᵀ/sqrt(d)."""
        return np.asarray(self.raw / np.sqrt(self.q.shape[1]))

    def up_to(self, further: int = 0) -> NDArray[np.bool_]:
        """Which keys a causal row sees, (rows, N), and so many further."""
        return np.asarray(np.arange(len(self.k)) <= self.rows[:, None] + further)

    def mix(self, weights: Doubles) -> Doubles:
        """Weights (rows, N) times V."""
        largest = np.abs(weights).max(axis=1, keepdims=True)
        largest[~(largest > 0)] = 1
        small = without_tiny(weights / largest)
        whole, d = len(self.v) // KEYS * KEYS, self.v.shape[1]
        blocks = small[:, :whole].reshape(len(small), -1, KEYS).swapaxes(0, 1) @ self.v[:whole].reshape(-1, KEYS, d)
        return np.asarray((blocks.sum(axis=0, dtype=np.float64) + small[:, whole:] @ self.v[whole:]) * largest)

    def attend(self, scores: Doubles) -> Doubles:
        """softmax(scores) times V."""
        return self.mix(softmax(scores))


def dot_products(q: Floats, k: Floats) -> Floats:
    """QKᵀ."""
    whole, d = len(k) // KEYS * KEYS, k.shape[1]
    blocks = q @ k[:whole].reshape(-1, KEYS, d).swapaxes(1, 2)
    return np.concatenate([blocks.swapaxes(0, 1).reshape(len(q), whole), q @ k[whole:].T], axis=1)


def without_tiny(weights: Doubles) -> Floats:
    """Weights of at most 1 as float32, with zeros for negligible ones: subnormal numbers are slow."""
    return np.where(np.abs(weights) < TINY, 0, weights).astype(np.float32)


def softmax(scores: Doubles) -> Doubles:
    """The softmax of each row."""
    p = np.exp(scores - scores.max(axis=1, keepdims=True))
    return np.asarray(p / p.sum(axis=1, keepdims=True))


class Matrices:
    """The input file as matrices (N, d) that begin at any of its elements, as a wrong program may read it."""

    def __init__(self, inputs: InputFile, causal: bool = False) -> None:
        self.inputs, self.shape = inputs, replace(inputs.shape, causal=causal)
        self.size = self.shape.N * self.shape.d

    def sample(self, batch: int, rows: Rows, *, q: int = 0, k: int = 1, v: int = 2) -> Sample:
        """The sample of a batch. q, k and v are the indices of the matrices that are taken for Q, K and V."""
        start = 3 * batch * self.size
        return self.sample_at(rows, *(start + index * self.size for index in (q, k, v)))

    def sample_at(self, rows: Rows, q: int, k: int, v: int) -> Sample:
        """The sample of a program for which Q, K and V of a batch begin at these elements of the file."""
        return Sample(rows, self.some_rows(q, rows), self.matrix(k), self.matrix(v))

    def matrix(self, start: int) -> Floats:
        """(N, d) elements from element `start` after the header; the file begins at element -3."""
        return self._elements(start, self.size).reshape(self.shape.N, self.shape.d)

    def some_rows(self, start: int, rows: Rows) -> Floats:
        """Some rows of the matrix that begins at element `start`."""
        d = self.shape.d
        return np.stack([self._elements(start + int(row) * d, d) for row in rows])

    def holds(self, *starts: int) -> bool:
        """Whether matrices that begin there are within the file."""
        return all(-HEADER_BYTES // 4 <= start <= 3 * self.shape.elements - self.size for start in starts)

    def _elements(self, start: int, count: int) -> Floats:
        out = np.empty(count, FLOAT32)
        self.inputs.read(out, 4 * start)
        return out

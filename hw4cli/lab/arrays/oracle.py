"""What attention should be, in float64 on the CPU: of all rows of a small workload, of some rows of a large one."""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hw4cli.lab.arrays.inputs import from_words
from hw4cli.lab.arrays.named import NamedWorkload
from hw4cli.problem.workload import BFLOAT16, FLOAT16, FLOAT32, Workload

BUDGET = 1 << 29  # of products of two numbers, for the scores of the rows that are looked at
ALL_ROWS, SOME_ROWS = 256, 24  # of a head: all of so few, or so many of more
# Of the answer's norm, what the error's may be. Measured: 3e-4 in fp16, 2e-3 in bf16; float32 is judged by its maximum.
ALLOWED = {FLOAT16: 1e-3, BFLOAT16: 5e-3, FLOAT32: 2e-3}


@dataclass(frozen=True)
class Rows:
    """Some rows of one head, and what they should be."""

    batch: int
    head: int
    rows: NDArray[Any]
    exact: NDArray[Any]


@dataclass(frozen=True)
class Errors:
    """How far an answer is from the exact one: the largest difference, and that of the norms, of so many rows."""

    largest: float
    relative: float
    rows: int


def exact_rows(case: NamedWorkload, q: Any, k: Any, v: Any) -> list[Rows]:
    """The rows to look at; `q`, `k` and `v` are arrays of words on the GPU, of which single heads are copied back."""
    found = []
    work = case.work
    for batch, head in _heads(work, case.seed):
        rows = looked_at(work.Nq, case.seed)
        shared = head // (work.heads // work.kv_heads)
        matrices = (q[batch, head], k[batch, shared], v[batch, shared])
        Q, K, V = (from_words(np.ascontiguousarray(x.get()), work.dtype) for x in matrices)
        found.append(Rows(batch, head, rows, _attention(work, Q[rows], K, V, rows, case.scale)))
    return found


def _attention(
    work: Workload, Q: NDArray[Any], K: NDArray[Any], V: NDArray[Any], rows: NDArray[Any], scale: float
) -> NDArray[Any]:
    s = Q @ K.T * scale
    if work.causal:
        s[np.arange(work.Nk) > rows[:, None] + work.offset] = -np.inf
    m = s.max(axis=1, keepdims=True)
    p = np.exp(s - np.where(np.isinf(m), 0, m))
    total = p.sum(axis=1, keepdims=True)
    return np.asarray((p @ V) / np.where(total == 0, 1, total))


def looked_at(N: int, seed: int) -> NDArray[Any]:
    """Rows to look at: the first and the last, some at the edges of tiles, others anywhere."""
    if N <= ALL_ROWS:
        return np.arange(N)
    edges = [0, 1, 63, 64, 127, 128, N // 2, N - 129, N - 65, N - 2, N - 1]
    others = np.random.default_rng(seed).integers(0, N, SOME_ROWS - len(edges))
    return np.unique([*edges, *others])


def _heads(work: Workload, seed: int) -> list[tuple[int, int]]:
    """(batch, head) of those to look at: the first, the last, and others anywhere, as many as the budget allows."""
    count = work.batch * work.heads
    cost = min(work.Nq, ALL_ROWS if work.Nq <= ALL_ROWS else SOME_ROWS) * work.Nk * work.d
    some = max(4, BUDGET // cost)
    places = range(count)
    if some < count:
        chosen = np.random.default_rng(seed).choice(count, some - 2, replace=False)
        places = sorted({0, count - 1, *map(int, chosen)})  # type: ignore[assignment]
    return [divmod(place, work.heads) for place in places]


def errors(case: NamedWorkload, expected: list[Rows], o: Any) -> Errors:
    """How far an answer, an array of words on the GPU, is from what it should be."""
    largest = wrong = norm = 0.0
    for one in expected:
        head = from_words(np.ascontiguousarray(o[one.batch, one.head].get()), case.work.dtype)
        off = head[one.rows] - one.exact
        largest = float(np.maximum(largest, np.abs(off).max()))  # keeps NaN
        wrong, norm = wrong + float((off**2).sum()), norm + float((one.exact**2).sum())
    relative = (wrong / norm) ** 0.5 if norm else (0.0 if wrong == 0 else float("inf"))
    return Errors(largest, relative, sum(len(one.rows) for one in expected))


def problem(found: Errors, allowed: float, what: str = "the answer") -> str | None:
    """Why an answer with these errors is wrong, or None."""
    if found.relative <= allowed:  # NaN is not
        return None
    return (
        f"off by {found.relative:.1e} of {what}'s norm in {found.rows:,} rows, {found.largest:.1e} at most; "
        f"allowed {allowed:g}"
    )

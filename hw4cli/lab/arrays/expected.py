"""What attention of arrays and its gradients should be, in float64, and how far answers are from it.

All of a small workload is looked at; of a large one, some rows of some heads. A row of dQ depends on all keys, and one
of dK or dV on all rows of Q of the heads that share it: so where CuPy computes gradients on the GPU, all rows of a head
are looked at.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hw4cli.lab.arrays.inputs import DeviceArrays, GradientArrays, from_words
from hw4cli.lab.arrays.named import NamedWorkload
from hw4cli.problem.oracle import exact_rows, gradients_of_head
from hw4cli.problem.workload import BFLOAT16, FLOAT16, FLOAT32, Workload

# Of products of two numbers, for the scores of the rows, or of the heads, that are looked at.
BUDGET, GRADIENT_BUDGET = 1 << 29, 1 << 35
ALL_ROWS, SOME_ROWS = 256, 24  # of a head: all of so few, or so many of more
# Of the answer's norm, what the error's may be. Measured: 3e-4 in fp16, 2e-3 in bf16; float32 is judged by its maximum.
ALLOWED = {FLOAT16: 1e-3, BFLOAT16: 5e-3, FLOAT32: 2e-3}
# The same of gradients. Their parts are rounded to the type: P and dS, O in delta, the result.
ALLOWED_OF_GRADIENTS = {FLOAT16: 2e-3, BFLOAT16: 1.6e-2, FLOAT32: 2e-3}


@dataclass(frozen=True)
class Rows:
    """Some rows of one head, and what they should be."""

    batch: int
    head: int
    rows: NDArray[Any]
    exact: NDArray[Any]


@dataclass
class Head:
    """Of a head of K and V and the heads of Q that share it: some rows and keys, and their gradients."""

    batch: int
    kv_head: int
    rows: NDArray[Any]
    keys: NDArray[Any]
    dq: NDArray[Any]  # (heads that share, rows, d)
    dk: NDArray[Any]
    dv: NDArray[Any]


@dataclass(frozen=True)
class Errors:
    """How far an answer is from the exact one: the largest difference, and that of the norms, of so many rows."""

    largest: float
    relative: float
    rows: int


def expected_rows(case: NamedWorkload, arrays: DeviceArrays) -> list[Rows]:
    """The rows of O to look at; of arrays on the GPU, of which single heads are copied back."""
    found, work = [], case.work
    for batch, head in _heads(work, case.seed):
        rows, shared = looked_at(work.Nq, case.seed), head // (work.heads // work.kv_heads)
        places = (arrays.q[batch, head], arrays.k[batch, shared], arrays.v[batch, shared])
        q, k, v = (_numbers(x, work) for x in places)
        exact, _ = exact_rows(q[rows], k, v, rows, offset=work.offset if work.causal else None, scale=work.scale)
        found.append(Rows(batch, head, rows, exact))
    return found


def expected_gradients(case: NamedWorkload, arrays: GradientArrays, xp: Any = np) -> list[Head]:
    """The gradients to look at, computed by NumPy, to which single heads are copied back from the GPU, or by CuPy."""
    work = case.work
    cost = 2 * work.heads // work.kv_heads * work.Nq * work.Nk * work.d
    heads = work.batch * work.kv_heads
    count = min(heads, max(2, GRADIENT_BUDGET // cost))
    places = range(heads) if count == heads else sorted({0, heads - 1, *range(0, heads, heads // count)})
    return [_expected_head(case, arrays, xp, *divmod(place, work.kv_heads)) for place in places]


def _expected_head(case: NamedWorkload, arrays: GradientArrays, xp: Any, batch: int, kv_head: int) -> Head:
    work = case.work
    group = work.heads // work.kv_heads
    share = slice(kv_head * group, (kv_head + 1) * group)
    rows, keys = (looked_at(N, case.seed) if xp is np else np.arange(N) for N in (work.Nq, work.Nk))
    places = (arrays.do[batch, share], arrays.q[batch, share], arrays.k[batch, kv_head], arrays.v[batch, kv_head])
    do, q, k, v = (_numbers(x, work, xp) for x in places)
    offset = work.offset if work.causal else None
    found = gradients_of_head(do, q, k, v, rows, keys, offset=offset, scale=work.scale)
    dq, dk, dv = found if xp is np else (x.get() for x in found)
    return Head(batch, kv_head, rows, keys, dq, dk, dv)


def _numbers(words: Any, work: Workload, xp: Any = np) -> Any:
    """Words on the GPU as numbers in float64, there or in the host's memory."""
    return from_words(xp.ascontiguousarray(words.get() if xp is np else words), work.dtype)


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


def errors_of_rows(case: NamedWorkload, expected: list[Rows], o: Any) -> Errors:
    """How far an answer, an array of words on the GPU, is from what it should be."""
    largest = wrong = norm = 0.0
    for one in expected:
        off = _numbers(o[one.batch, one.head], case.work)[one.rows] - one.exact
        largest = float(np.maximum(largest, np.abs(off).max()))  # keeps NaN
        wrong, norm = wrong + float((off**2).sum()), norm + float((one.exact**2).sum())
    relative = (wrong / norm) ** 0.5 if norm else (0.0 if wrong == 0 else float("inf"))
    return Errors(largest, relative, sum(len(one.rows) for one in expected))


def errors_of_gradients(case: NamedWorkload, expected: list[Head], made: tuple[Any, Any, Any]) -> Errors:
    """How far dQ, dK and dV, arrays of words on the GPU, are from what they should be; of the norms, the worst."""
    group = case.work.heads // case.work.kv_heads
    largest, seen, off, norm = 0.0, 0, np.zeros(3), np.zeros(3)
    dq, dk, dv = made
    for one in expected:
        heads = slice(one.kv_head * group, (one.kv_head + 1) * group)
        found = (
            _numbers(dq[one.batch, heads], case.work)[:, one.rows],
            *(_numbers(x[one.batch, one.kv_head], case.work)[one.keys] for x in (dk, dv)),
        )
        for place, (got, right) in enumerate(zip(found, (one.dq, one.dk, one.dv), strict=True)):
            largest = float(np.maximum(largest, np.abs(got - right).max()))  # keeps NaN
            off[place] += ((got - right) ** 2).sum()
            norm[place] += (right**2).sum()
        seen += group * len(one.rows) + 2 * len(one.keys)
    relative = np.sqrt(off / np.where(norm == 0, 1, norm)).max()
    return Errors(largest, float(relative), seen)


def problem(found: Errors, allowed: float, what: str) -> str | None:
    """Why an answer with these errors is wrong, or None."""
    if found.relative <= allowed:  # NaN is not
        return None
    return (
        f"off by {found.relative:.1e} of {what}'s norm in {found.rows:,} rows, {found.largest:.1e} at most; "
        f"allowed {allowed:g}"
    )

"""What gradients should be, in float64: all of a small workload; of a large one, some heads.

CuPy computes with cuBLAS on the GPU; where there is no cuBLAS, NumPy on the CPU, and of long heads only some rows are
looked at. Nothing is shared with the kernels. A row of dQ depends on all keys, and a row of dK or dV on all rows of Q
of the heads that share it. So a head is computed whole, some rows of scores at a time.
"""

from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hw4cli.lab.arrays.inputs import GradientArrays, from_words
from hw4cli.lab.arrays.named import NamedWorkload
from hw4cli.lab.arrays.oracle import Errors, looked_at
from hw4cli.problem.cpu import workers
from hw4cli.problem.workload import BFLOAT16, FLOAT16, FLOAT32, Workload

CHUNK_BYTES, GPU_CHUNK_BYTES = 32 << 20, 256 << 20  # of scores, of one task
POOL = 4  # threads: BLAS has its own
BUDGET = 1 << 35  # of products of two numbers, for the heads that are looked at; two at least
# Of the gradient's norm, what the error's may be. Its parts are rounded to the type: P and dS, O in delta, the result.
ALLOWED = {FLOAT16: 2e-3, BFLOAT16: 1.6e-2, FLOAT32: 2e-3}


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


def exact_gradients_of_some(case: NamedWorkload, arrays: GradientArrays, xp: Any = np) -> list[Head]:
    """What to look at, computed by NumPy, to which single heads are copied back from the GPU, or by CuPy."""
    work = case.work
    cost = 2 * work.heads // work.kv_heads * work.Nq * work.Nk * work.d
    heads = work.batch * work.kv_heads
    count = min(heads, max(2, BUDGET // cost))
    places = range(heads) if count == heads else sorted({0, heads - 1, *range(0, heads, heads // count)})
    return [_exact(case, arrays, xp, *divmod(place, work.kv_heads)) for place in places]


def _exact(case: NamedWorkload, arrays: GradientArrays, xp: Any, batch: int, kv_head: int) -> Head:
    work = case.work
    group = work.heads // work.kv_heads
    on_cpu = xp is np
    rows, keys = (looked_at(N, case.seed) if on_cpu else np.arange(N) for N in (work.Nq, work.Nk))
    K, V = (_numbers(x[batch, kv_head], work, xp) for x in (arrays.k, arrays.v))
    dq = np.zeros((group, len(rows), work.d))
    dk, dv = np.zeros((2, len(keys), work.d))
    step = max(1, (CHUNK_BYTES if on_cpu else GPU_CHUNK_BYTES) // (8 * work.Nk))
    for place in range(group):
        Q, dO = (_numbers(x[batch, kv_head * group + place], work, xp) for x in (arrays.q, arrays.do))

        def part(first: int, Q: Any = Q, dO: Any = dO) -> tuple[Any, ...]:
            some = slice(first, first + step)
            p, delta = _weights(work, Q[some], K, V, dO[some], first, case.scale, xp)
            own = xp.asarray(rows[(rows >= first) & (rows < first + step)] - first)
            ds = p[own] * (dO[some][own] @ V.T - delta[own])
            few = p[:, xp.asarray(keys)]
            ds_of_keys = few * (dO[some] @ V[xp.asarray(keys)].T - delta)
            found = first + own, ds @ K * case.scale, ds_of_keys.T @ Q[some] * case.scale, few.T @ dO[some]
            return found if on_cpu else tuple(x.get() for x in found)

        with ThreadPoolExecutor(min(POOL, workers())) as pool:
            each = pool.map if on_cpu else map  # a thread has its own current GPU
            for own, rows_of_dq, more_dk, more_dv in each(part, range(0, work.Nq, step)):
                dq[place, np.searchsorted(rows, own)] = rows_of_dq
                dk += more_dk
                dv += more_dv
    return Head(batch, kv_head, rows, keys, dq, dk, dv)


def _weights(work: Workload, Q: Any, K: Any, V: Any, dO: Any, first: int, scale: float, xp: Any) -> tuple[Any, Any]:
    """P of rows from `first` on, and their delta, one below the other."""
    p = Q @ K.T
    p *= scale
    if work.causal:
        p[xp.arange(work.Nk) > xp.arange(first, first + len(p))[:, None] + work.offset] = -np.inf
    top = p.max(axis=1, keepdims=True)
    p -= xp.where(xp.isinf(top), 0, top)
    xp.exp(p, out=p)
    total = p.sum(axis=1, keepdims=True)
    p /= xp.where(total == 0, 1, total)
    return p, ((p @ V) * dO).sum(axis=1, keepdims=True)


def _numbers(words: Any, work: Workload, xp: Any = np) -> Any:
    return from_words(xp.ascontiguousarray(words.get() if xp is np else words), work.dtype)


def gradient_errors(case: NamedWorkload, expected: list[Head], made: tuple[Any, Any, Any]) -> Errors:
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

"""Attention on the CPU in float32, tile by tile with the online softmax, as the kernels compute it: `--device cpu`, and
NumPy's arrays (hw4cli/arrays/oncpu.py).

It shares with the oracle (hw4cli/problem/oracle.py) only the cutting of the work into tasks (rowtasks.py).
"""

import threading
from collections.abc import Callable
from concurrent.futures import CancelledError
from typing import Any

import numpy as np

from hw4cli.plans.common import TILED_KEYS as KEYS
from hw4cli.plans.common import TILED_QUERIES as QUERIES
from hw4cli.problem.casefile import Floats
from hw4cli.problem.rowtasks import in_parallel
from hw4cli.problem.workload import Workload
from hw4cli.text.progress import Advance


def tiled_attention(
    block: Floats,
    dtype: Any = np.float32,
    stop: threading.Event | None = None,
    advance: Advance | None = None,
    causal: bool = False,
) -> Floats:
    """O = softmax(QKᵀ/sqrt(d))V of each batch, tiled, with the online softmax (Milakov & Gimelshein 2018, alg. 3).

    `block` is a float32 array (B, 3, N, d) of Q, K and V, the result a float32 array (B, N, d). dtype=float64 computes
    wider, for scores that leave float32's range. `causal`: row i sees the keys 0 to i alone. Memory beyond the arrays:
    about 5 MB a core. `advance` is called with the number of rows that were just computed. Raises InputError for an
    array of another type or shape, and CancelledError within a tile's time after `stop` is set.

    >>> block = np.ones((1, 3, 4, 8), np.float32)
    >>> tiled_attention(block).shape
    (1, 4, 8)
    """
    Workload.of_block(block)
    q, k, v = (block[:, part] for part in range(3))
    return tiled_rows(q, k, v, dtype, stop, advance, 0 if causal else None)


def tiled_rows(
    queries: Floats,
    keys: Floats,
    values: Floats,
    dtype: Any = np.float32,
    stop: threading.Event | None = None,
    advance: Advance | None = None,
    causal_offset: int | None = None,
) -> Floats:
    """The same of rows of Q (B, rows, d) with K and V (B, N, d), in three arrays; rows that begin at a multiple of 1024
    have the same bits as in the whole. With `causal_offset`, row i sees the keys up to i + causal_offset alone."""
    stop = stop or threading.Event()
    wide_q, wide_k, wide_v = (array.astype(dtype, copy=False) for array in (queries, keys, values))

    def task(batches: slice, rows: slice, out: Floats) -> None:
        q = wide_q[batches, rows] * dtype(queries.shape[2] ** -0.5)
        o, total, _ = weighed_rows(q, wide_k[batches], wide_v[batches], rows.start, causal_offset, KEYS, stop)
        out[:] = o / total

    return in_parallel(task, queries.shape, QUERIES, advance, stop)


def weighed_rows(
    q: Any,
    k: Any,
    v: Any,
    first: int,
    causal_offset: int | None,
    at_once: int,
    stop: threading.Event | None = None,
    window: int = 0,
    changed: Callable[[Any, int], Any] | None = None,
) -> tuple[Any, Any, Any]:
    """V's rows (..., Nk, dv) weighed by exp(S - m) of rows S of scores, the sums of these weights, and m, for rows q
    (..., rows, d) that are scaled, the first of which has the number `first`; all in the type of the arrays.

    Scores of `at_once` keys are held at once, with more keys by the online softmax; products are of KEYS of them. Row i
    sees the keys up to i + causal_offset alone, of these the last `window` ones unless that is 0; m of a row that sees
    no key is 0. `changed`: what becomes of scores, of keys from a number on. Raises CancelledError within a tile's time
    after `stop` is set.
    """
    rows, causal = q.shape[-2], causal_offset is not None
    last = first + (causal_offset or 0)  # the key that the first of the rows sees last
    m = np.full((*q.shape[:-1], 1), -np.inf, q.dtype)
    l = np.zeros_like(m)  # noqa: E741
    o = np.zeros((*q.shape[:-1], v.shape[-1]), q.dtype)
    end = min(last + rows, k.shape[-2]) if causal and at_once < k.shape[-2] else k.shape[-2]
    for start in range(0, end, at_once):
        if stop and stop.is_set():
            raise CancelledError
        some = slice(start, min(start + at_once, end))
        s = q @ k[..., some, :].swapaxes(-1, -2)
        if changed:
            s = changed(s, start)
        if causal and some.stop > last + 1:  # the tile crosses the diagonal
            s[..., np.arange(start, some.stop) > np.arange(rows)[:, None] + last] = -np.inf
        if window and start <= last + rows - 1 - window:
            s[..., np.arange(start, some.stop) <= np.arange(rows)[:, None] + last - window] = -np.inf
        m_new = np.maximum(m, s.max(axis=-1, keepdims=True))
        shift = np.where(m_new == -np.inf, 0, m_new)  # a row that has seen no key yet has no weights
        s -= shift
        p = np.exp(s, out=s)
        rescale = np.exp(m - shift)
        l = l * rescale + p.sum(axis=-1, keepdims=True)  # noqa: E741
        o *= rescale
        for key in range(0, some.stop - start, KEYS):
            part = slice(key, min(key + KEYS, some.stop - start))
            o += p[..., part] @ v[..., start + part.start : start + part.stop, :]
        m = m_new
    return o, l, np.where(m == -np.inf, 0, m)

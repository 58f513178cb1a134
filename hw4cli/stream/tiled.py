"""Attention on the CPU in float32, tile by tile with the online softmax, as the kernels compute it: `--device cpu`.

It shares with the oracle (hw4cli/problem/oracle.py) only the cutting of the work into tasks.
"""

import threading
from concurrent.futures import CancelledError
from typing import Any

import numpy as np

from hw4cli.compute.common import TILED_KEYS as KEYS
from hw4cli.compute.common import TILED_QUERIES as QUERIES
from hw4cli.problem.casefile import Floats
from hw4cli.problem.oracle import in_parallel
from hw4cli.problem.shape import Shape
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
    Shape.of(block)
    stop = stop or threading.Event()
    wide = block.astype(dtype, copy=False)

    def task(batches: slice, rows: slice, out: Floats) -> None:
        q, k, v = (wide[batches, part] for part in range(3))
        q = q[:, rows] * dtype(block.shape[3] ** -0.5)
        m = np.full((*q.shape[:2], 1), -np.inf, dtype)
        l = np.zeros_like(m)  # noqa: E741
        o = np.zeros_like(q)
        end = rows.stop if causal else k.shape[1]
        for start in range(0, end, KEYS):
            if stop.is_set():
                raise CancelledError
            keys = slice(start, min(start + KEYS, end))
            s = q @ k[:, keys].swapaxes(1, 2)
            if causal and keys.stop > rows.start + 1:  # the tile crosses the diagonal
                s[:, np.arange(start, keys.stop) > np.arange(rows.start, rows.stop)[:, None]] = -np.inf
            m_new = np.maximum(m, s.max(axis=2, keepdims=True))
            s -= m_new
            p = np.exp(s, out=s)
            rescale = np.exp(m - m_new)
            l = l * rescale + p.sum(axis=2, keepdims=True)  # noqa: E741
            o *= rescale
            o += p @ v[:, keys]
            m = m_new
        out[:] = o / l

    return in_parallel(task, block, QUERIES, advance, stop)

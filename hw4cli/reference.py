"""Attention on the CPU: `exact_attention` is the oracle behind every answer, `tiled_attention` is `--device cpu`.

The two share only the cutting of the work into tasks: the oracle keeps whole rows of scores and takes the softmax in
two passes, the other walks tiles of keys with the online softmax, as the kernels do.
"""

import threading
from collections.abc import Callable
from concurrent.futures import CancelledError, ThreadPoolExecutor
from itertools import product
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hw4cli.casefile import FLOAT32, Floats
from hw4cli.cpu import KEYS, QUERIES, workers
from hw4cli.importing import check_memory
from hw4cli.progress import Advance

Real = NDArray[np.floating[Any]]

WORKER_BYTES = 128 << 20  # of address space that a thread takes: its stack, its heap, a buffer of the BLAS, tiles
ORACLE_BYTES = 16 << 20  # of scores that one task of the oracle holds


def tiled_attention(
    block: Floats, dtype: Any = np.float32, stop: threading.Event | None = None, advance: Advance | None = None
) -> Floats:
    """O = softmax(QKᵀ/sqrt(d))V of each batch, tiled, with the online softmax (Milakov & Gimelshein 2018, alg. 3).

    `block` is (n, 3, N, d) float32, the result (n, N, d) float32. dtype=float64 computes wider, for scores that
    leave float32's range. Memory beyond the arrays: about 5 MB a core. Raises CancelledError within a tile's time
    after `stop` is set. `advance` is told the rows done.
    """
    stop = stop or threading.Event()
    wide = block.astype(dtype, copy=False)

    def task(batches: slice, rows: slice, out: Floats) -> None:
        q, k, v = (wide[batches, part] for part in range(3))
        q = q[:, rows] * dtype(block.shape[3] ** -0.5)
        m = np.full((*q.shape[:2], 1), -np.inf, dtype)
        l = np.zeros_like(m)  # noqa: E741
        o = np.zeros_like(q)
        for start in range(0, k.shape[1], KEYS):
            if stop.is_set():
                raise CancelledError
            s = q @ k[:, start : start + KEYS].swapaxes(1, 2)
            m_new = np.maximum(m, s.max(axis=2, keepdims=True))
            s -= m_new
            p = np.exp(s, out=s)
            rescale = np.exp(m - m_new)
            l = l * rescale + p.sum(axis=2, keepdims=True)  # noqa: E741
            o *= rescale
            o += p @ v[:, start : start + KEYS]
            m = m_new
        out[:] = o / l

    return _in_parallel(task, block, QUERIES, advance, stop)


def exact_attention(block: Floats, advance: Advance | None = None) -> Floats:
    """The oracle: O = softmax(QKᵀ/sqrt(d))V of each batch in float64, rounded to float32 at the end.

    `block` is (n, 3, N, d) float32, the result (n, N, d) float32. `advance` is told the rows done.
    """

    wide = block.astype(np.float64)

    def task(batches: slice, rows: slice, out: Floats) -> None:
        q, k, v = (wide[batches, part] for part in range(3))
        s = q[:, rows] @ k.swapaxes(1, 2)
        s /= np.sqrt(block.shape[3])
        s -= s.max(axis=2, keepdims=True)
        p = np.exp(s, out=s)
        out[:] = (p @ v) / p.sum(axis=2, keepdims=True)

    return _in_parallel(task, block, max(1, ORACLE_BYTES // (8 * block.shape[2])), advance)


def _in_parallel(
    task: Callable[[slice, slice, Floats], None],
    block: Floats,
    rows: int,
    advance: Advance | None,
    stop: threading.Event | None = None,
) -> Floats:
    """Run task(batches, rows, out) over all rows of all batches on all cores; tasks hold about `rows` rows each.

    On Ctrl-C, or where a task fails, those that run are told to stop, and the others never begin.
    """
    check_memory(workers() * WORKER_BYTES)
    n, _, N, d = block.shape
    out = np.empty((n, N, d), FLOAT32)
    batch_step = max(1, min(rows // N, -(-n // workers())))
    spans = list(product(_spans(n, batch_step), _spans(N, rows)))
    with ThreadPoolExecutor(workers()) as pool:
        futures = [pool.submit(task, batches, part, out[batches, part]) for batches, part in spans]
        try:
            for future, (batches, part) in zip(futures, spans, strict=True):
                future.result()
                if advance:
                    advance((batches.stop - batches.start) * (part.stop - part.start))
        except BaseException:
            if stop:
                stop.set()
            pool.shutdown(cancel_futures=True)
            raise
    return out


def _spans(count: int, step: int) -> list[slice]:
    return [slice(start, min(start + step, count)) for start in range(0, count, step)]

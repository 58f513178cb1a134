"""The oracle: attention in float64 on the CPU, with whole rows of scores and the softmax in two passes."""

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from itertools import product

import numpy as np

from hw4cli.problem.casefile import FLOAT32, Floats
from hw4cli.problem.cpu import workers
from hw4cli.problem.workload import Workload
from hw4cli.system.importing import check_memory
from hw4cli.text.progress import Advance

WORKER_BYTES = 128 << 20  # of address space for a thread: its stack, its heap, a buffer of the BLAS, tiles
ORACLE_BYTES = 16 << 20  # of scores that one task of the oracle holds


def exact_attention(block: Floats, advance: Advance | None = None, causal: bool = False) -> Floats:
    """The oracle: O = softmax(QKᵀ/sqrt(d))V of each batch in float64 on all cores, rounded to float32 at the end.

    `block` is a float32 array (B, 3, N, d) of Q, K and V, the result a float32 array (B, N, d). `causal`: row i sees
    the keys 0 to i alone. `advance` is called with the number of rows that were just computed. Raises InputError for
    an array of another type or shape.

    >>> block = np.zeros((1, 3, 4, 8), np.float32)
    >>> block[:, 2] = 1
    >>> float(exact_attention(block).max())
    1.0
    """
    Workload.of_block(block)
    wide = block.astype(np.float64)

    def task(batches: slice, rows: slice, out: Floats) -> None:
        q, k, v = (wide[batches, part] for part in range(3))
        if causal:
            k, v = k[:, : rows.stop], v[:, : rows.stop]
        s = q[:, rows] @ k.swapaxes(1, 2)
        s /= np.sqrt(block.shape[3])
        if causal:
            s[:, np.arange(rows.stop) > np.arange(rows.start, rows.stop)[:, None]] = -np.inf
        s -= s.max(axis=2, keepdims=True)
        p = np.exp(s, out=s)
        out[:] = (p @ v) / p.sum(axis=2, keepdims=True)

    return in_parallel(task, (len(block), *block.shape[2:]), max(1, ORACLE_BYTES // (8 * block.shape[2])), advance)


def in_parallel(
    task: Callable[[slice, slice, Floats], None],
    sizes: tuple[int, ...],
    rows: int,
    advance: Advance | None,
    stop: threading.Event | None = None,
) -> Floats:
    """Run task(batches, rows, out) over all rows of all batches on all cores; tasks hold about `rows` rows each.

    `sizes` are those of the result: batches, rows, columns.

    On Ctrl-C, or if a task fails, `stop` is set for those that run, and the others never begin.
    """
    check_memory(workers() * WORKER_BYTES)
    n, N, d = sizes
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

"""Rows of batches that are computed on all cores: the work of the oracle and of `--device cpu`, cut into tasks."""

import threading
from collections.abc import Callable
from itertools import product

import numpy as np

from hw4cli.problem.casefile import FLOAT32, Floats
from hw4cli.problem.cpu import on_all_cores, workers
from hw4cli.system.importing import check_memory
from hw4cli.text.progress import Advance

WORKER_BYTES = 128 << 20  # of address space for a thread: its stack, its heap, a buffer of the BLAS, tiles


def in_parallel(
    task: Callable[[slice, slice, Floats], None],
    sizes: tuple[int, ...],
    rows: int,
    advance: Advance | None,
    stop: threading.Event | None = None,
) -> Floats:
    """Run task(batches, rows, out) over all rows of all batches on all cores; tasks hold about `rows` rows each.

    `sizes` are those of the result: batches, rows, columns. `stop` as in `on_all_cores`. `advance` is called with the
    number of rows that were just computed. Raises ShortageError where the threads have no memory.
    """
    check_memory(workers() * WORKER_BYTES)
    n, N, d = sizes
    out = np.empty((n, N, d), FLOAT32)
    batch_step = max(1, min(rows // N, -(-n // workers())))
    spans = product(_spans(n, batch_step), _spans(N, rows))

    def done(batches: slice, part: slice, _: Floats) -> None:
        if advance:
            advance((batches.stop - batches.start) * (part.stop - part.start))

    on_all_cores(task, [(batches, part, out[batches, part]) for batches, part in spans], stop, done)
    return out


def _spans(count: int, step: int) -> list[slice]:
    return [slice(start, min(start + step, count)) for start in range(0, count, step)]

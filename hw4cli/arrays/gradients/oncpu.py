"""Gradients of NumPy's arrays on the CPU, in float32, or in float64 those of that: whole rows of scores, some rows at a
time."""

import threading
from concurrent.futures import CancelledError
from itertools import product
from typing import Any

import numpy as np

from hw4cli.arrays.oncpu import changed, seen_keys
from hw4cli.arrays.operand import Operand
from hw4cli.problem.cpu import on_all_cores
from hw4cli.problem.workload import Workload

SCORES_BYTES = 8 << 20  # of one task
LARGE_LSE = 16  # as in kernels/gradients.cuh: a larger score's rounding, in float32, outweighs that of dP
TILED_ROWS = 128  # whose products are added up in float32; their sums in float64, as one long chain rounds much more


def backward_on_cpu(
    work: Workload,
    given: tuple[Operand, ...],
    lse: Any,
    made: tuple[Operand, ...],
    whole: bool,
    views: tuple[Any, ...] = (),
    dscore: Any = None,
) -> None:
    """Writes dQ, dK and dV, from q, k, v, o and do: a task for the keys of a head, which adds up in one order.

    `whole`: k and v are all the keys that o and lse are of, so that a row's weights add up to 1. Those that follow from
    the scores and the LSE do so but for what these round, which is much where scores are large, and delta follows from
    an o that was rounded; so both are computed anew from the row. Large scores are computed in float64, and such as a
    score's expression makes anything but a bias of. `views`: the arrays that it names; `dscore`, if its gradient is
    wanted: where that of the changed scores of pairs which are seen is written, (batch, heads, Nq, Nk). float64 arrays
    are computed in float64.
    """
    q, k, v, o, do = (x.bhnd for x in given)
    dq, dk, dv = (x.bhnd for x in made)
    group, rows = work.heads // work.kv_heads, max(1, SCORES_BYTES // (4 * work.Nk))
    real = np.float64 if q.dtype == np.float64 else np.float32
    is_steep = work.score is not None and not work.score.keeps_slope

    stop = threading.Event()

    @np.errstate(all="ignore")
    def task(batch: int, kv_head: int) -> None:
        all_keys, all_values = (x[batch, kv_head].astype(real) for x in (k, v))
        sum_k, sum_v = np.zeros_like(all_keys, float), np.zeros_like(all_values, float)
        for head, first in product(range(kv_head * group, (kv_head + 1) * group), range(0, work.Nq, rows)):
            if stop.is_set():
                raise CancelledError
            part, seen = slice(first, first + rows), seen_keys(work, first, rows)
            keys, values = all_keys[seen], all_values[seen]
            queries, outputs, above = (x[batch, head, part].astype(real) for x in (q, o, do))
            log_sums = np.where(np.isfinite(lse[batch, head, part]), lse[batch, head, part], 0)[:, None]
            wide = np.float64 if is_steep or np.abs(log_sums).max() > LARGE_LSE else real
            p = queries.astype(wide, copy=False) @ keys.T.astype(wide, copy=False)
            p *= work.scale
            slopes = None
            if work.score:
                p, slopes = changed(work, views, batch, head, first, p, seen.start, slope=is_steep)
            p -= log_sums
            p = p.astype(real, copy=False)
            if work.causal:
                numbers = np.arange(seen.start, seen.stop)
                last = np.arange(first, first + len(p))[:, None] + work.offset
                p[numbers > last] = -np.inf
                if work.window:
                    p[numbers <= last - work.window] = -np.inf
            np.exp(p, out=p)
            ds = above @ values.T
            if whole:
                total = p.sum(axis=1, keepdims=True)
                p /= np.where(total == 0, 1, total)
                ds -= np.einsum("ij,ij->i", p, ds)[:, None]
            else:
                ds -= (outputs * above).sum(axis=1, keepdims=True)
            ds *= p
            if dscore is not None:
                dscore[batch, head, part, seen] = ds
            if slopes is not None:  # what no row sees has none, whatever it is there
                ds = np.where(p == 0, 0, ds * slopes).astype(real)
            ds *= work.scale
            dq[batch, head, part] = ds @ keys
            for tile in (slice(row, row + TILED_ROWS) for row in range(0, len(p), TILED_ROWS)):
                sum_v[seen] += p[tile].T @ above[tile]
                sum_k[seen] += ds[tile].T @ queries[tile]
        dk[batch, kv_head], dv[batch, kv_head] = sum_k, sum_v

    on_all_cores(task, product(range(work.batch), range(work.kv_heads)), stop)

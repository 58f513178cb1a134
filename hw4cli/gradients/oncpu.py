"""Gradients of NumPy's arrays on the CPU, in float32: whole rows of scores, some rows at a time."""

import threading
from concurrent.futures import CancelledError
from itertools import product
from typing import Any

import numpy as np

from hw4cli.arrays.operand import Operand
from hw4cli.arrays.workload import Workload
from hw4cli.problem.cpu import on_all_cores

SCORES_BYTES = 8 << 20  # of one task


def backward_on_cpu(
    work: Workload, given: tuple[Operand, ...], lse: Any, made: tuple[Operand, ...], scale: float
) -> None:
    """Writes dQ, dK and dV, from q, k, v, o and do: a task for the keys of a head, which adds up in one order."""
    q, k, v, o, do = (x.bhnd for x in given)
    dq, dk, dv = (x.bhnd for x in made)
    group, rows = work.heads // work.kv_heads, max(1, SCORES_BYTES // (4 * work.Nk))

    stop = threading.Event()

    @np.errstate(all="ignore")
    def task(batch: int, kv_head: int) -> None:
        keys, values = (x[batch, kv_head].astype(np.float32) for x in (k, v))
        sum_k, sum_v = np.zeros_like(keys), np.zeros_like(values)
        for head, first in product(range(kv_head * group, (kv_head + 1) * group), range(0, work.Nq, rows)):
            if stop.is_set():
                raise CancelledError
            part = slice(first, first + rows)
            queries, outputs, above = (x[batch, head, part].astype(np.float32) for x in (q, o, do))
            p = queries @ keys.T
            p *= scale
            p -= np.where(np.isfinite(lse[batch, head, part]), lse[batch, head, part], 0)[:, None]
            if work.causal:
                last = np.arange(first, first + len(p)) + work.offset
                p[np.arange(work.Nk) > last[:, None]] = -np.inf
            np.exp(p, out=p)
            sum_v += p.T @ above
            ds = above @ values.T
            ds -= (outputs * above).sum(axis=1, keepdims=True)
            ds *= p
            ds *= scale
            dq[batch, head, part] = ds @ keys
            sum_k += ds.T @ queries
        dk[batch, kv_head], dv[batch, kv_head] = sum_k, sum_v

    on_all_cores(task, product(range(work.batch), range(work.kv_heads)), stop)

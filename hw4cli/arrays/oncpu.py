"""Attention of NumPy's arrays on the CPU, in float32: whole rows of scores, some rows at a time."""

from concurrent.futures import ThreadPoolExecutor
from itertools import product
from typing import Any

import numpy as np

from hw4cli.arrays.operand import Operand
from hw4cli.arrays.workload import Workload
from hw4cli.problem.cpu import workers

SCORES_BYTES = 16 << 20  # of one task


def attention_on_cpu(work: Workload, operands: tuple[Operand, ...], out: Operand, lse: Any, scale: float) -> None:
    """Writes O into `out`, and, unless it is None, `lse`."""
    q, k, v = (x.bhnd for x in operands)
    o, group = out.bhnd, work.heads // work.kv_heads
    rows = max(1, SCORES_BYTES // (4 * work.Nk))

    def task(batch: int, head: int, first: int) -> None:
        part = slice(first, first + rows)
        keys, values = (x[batch, head // group].astype(np.float32) for x in (k, v))
        s = (q[batch, head, part].astype(np.float32) * np.float32(scale)) @ keys.T
        if work.causal:
            last = np.arange(first, first + len(s)) + work.offset
            s[np.arange(work.Nk) > last[:, None]] = -np.inf
        m = s.max(axis=1, keepdims=True)
        m[m == -np.inf] = 0  # a row that sees no key
        p = np.exp(s - m)
        total = p.sum(axis=1, keepdims=True)
        o[batch, head, part] = (p @ values) / np.where(total == 0, 1, total)
        if lse is not None:
            with np.errstate(divide="ignore"):
                lse[batch, head, part] = (m + np.log(total))[:, 0]

    with ThreadPoolExecutor(workers()) as pool:
        tasks = product(range(work.batch), range(work.heads), range(0, work.Nq, rows))
        for done in [pool.submit(task, *one) for one in tasks]:
            done.result()

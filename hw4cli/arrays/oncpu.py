"""Attention of NumPy's arrays on the CPU, in float32 or float64: whole rows of scores, some rows at a time."""

import math
from concurrent.futures import ThreadPoolExecutor
from itertools import product
from typing import Any

import numpy as np

from hw4cli.arrays.operand import Operand
from hw4cli.arrays.workload import FLOAT32, Workload
from hw4cli.compute.bounds import ON_CPU
from hw4cli.compute.common import TILED_KEYS
from hw4cli.compute.dispatch import on_cpu
from hw4cli.errors import InputError
from hw4cli.problem.cpu import workers
from hw4cli.problem.shape import AbsMax

SCORES_BYTES = 16 << 20  # of one task


def wide_type(
    work: Workload, operands: tuple[Operand, ...], scale: float, allowed: float | None, bounds: AbsMax | None
) -> type[np.floating[Any]]:
    """The type to compute in: float32, or float64 where an error is allowed that float32 is not sure to keep.

    Raises ValueError if float64 is not, either.
    """
    if work.dtype != FLOAT32 or allowed is None:
        return np.float32
    q, k, v = bounds or tuple(float(np.abs(x.array).max()) for x in operands)
    found = q * scale / work.scale, k, v  # a score's size is what counts
    if not all(map(math.isfinite, found)):
        return np.float64
    try:
        kernel = on_cpu(work.d, work.Nk, allowed).kernel_for(found)
    except InputError as error:
        raise ValueError(str(error).replace("--max-error", "max_error =")) from None
    return np.float32 if kernel == ON_CPU else np.float64


def attention_on_cpu(
    work: Workload,
    operands: tuple[Operand, ...],
    out: Operand,
    lse: Any,
    scale: float,
    wide: type[np.floating[Any]] = np.float32,
) -> None:
    """Writes O into `out`, and, unless it is None, `lse`; computes in the type `wide`."""
    q, k, v = (x.bhnd for x in operands)
    o, group = out.bhnd, work.heads // work.kv_heads
    rows = max(1, SCORES_BYTES // (np.dtype(wide).itemsize * work.Nk))

    def task(batch: int, head: int, first: int) -> None:
        part = slice(first, first + rows)
        keys, values = (x[batch, head // group].astype(wide) for x in (k, v))
        s = (q[batch, head, part].astype(wide) * wide(scale)) @ keys.T
        if work.causal:
            last = np.arange(first, first + len(s)) + work.offset
            s[np.arange(work.Nk) > last[:, None]] = -np.inf
        m = s.max(axis=1, keepdims=True)
        m[m == -np.inf] = 0  # a row that sees no key
        p = np.exp(s - m)
        total = p.sum(axis=1, keepdims=True)
        tiles = (slice(key, key + TILED_KEYS) for key in range(0, work.Nk, TILED_KEYS))
        weighed = sum((p[:, tile] @ values[tile] for tile in tiles), np.zeros((len(s), work.d), wide))
        o[batch, head, part] = weighed / np.where(total == 0, 1, total)
        if lse is not None:
            with np.errstate(divide="ignore"):
                lse[batch, head, part] = (m + np.log(total))[:, 0]

    with ThreadPoolExecutor(workers()) as pool:
        tasks = product(range(work.batch), range(work.heads), range(0, work.Nq, rows))
        for done in [pool.submit(task, *one) for one in tasks]:
            done.result()

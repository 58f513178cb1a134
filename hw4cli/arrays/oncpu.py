"""Attention of NumPy's arrays on the CPU, in float32 or float64: whole rows of scores, some rows at a time."""

from itertools import product
from typing import Any

import numpy as np

from hw4cli.arrays.arguments import kernel_for
from hw4cli.arrays.operand import Operand
from hw4cli.plans.bounds import ON_CPU
from hw4cli.plans.dispatch import on_cpu
from hw4cli.problem.casefile import magnitudes_of_parts
from hw4cli.problem.cpu import on_all_cores
from hw4cli.problem.workload import FLOAT32, AbsMax, Magnitudes, Workload
from hw4cli.stream.tiled import weighed_rows

SCORES_BYTES = 16 << 20  # of one task


def wide_type(
    work: Workload, operands: tuple[Operand, ...], allowed: float | None, bounds: AbsMax | None
) -> type[np.floating[Any]]:
    """The type to compute in: float32, or float64 where float32 is not sure to keep the error that is allowed, which is
    4e-3 if nothing else is, or scores are changed by more than a bias.

    Raises ValueError if an error is given that float64 is not sure to keep, either.
    """
    if work.dtype != FLOAT32:
        return np.float32
    if work.score and not work.score.keeps_slope:  # an error of a score may become any other
        return np.float64
    found = Magnitudes(*bounds) if bounds else magnitudes_of_parts(*(x.bhnd for x in operands))
    found = found.scaled(work.scale / work.usual_scale)
    if not found.finite:
        return np.float64
    kernel = kernel_for(on_cpu(work.d, work.Nk, allowed), found)
    return np.float32 if kernel == ON_CPU else np.float64


def seen_keys(work: Workload, first: int, rows: int) -> slice:
    """The keys among which those are that so many rows see: of a window a part, at least one; else all."""
    if not work.window:
        return slice(0, work.Nk)
    last = min(first + rows, work.Nq) - 1
    start, end = min(work.keys_of(first).start, work.Nk - 1), work.keys_of(last).stop
    return slice(start, max(start + 1, end))


def changed(
    work: Workload, views: tuple[Any, ...], batch: int, head: int, first: int, s: Any, key: int, slope: bool = False
) -> tuple[Any, Any]:
    """What becomes of the scores of rows from `first` and keys from `key` on, in new memory; and their slopes, if these
    are asked for."""
    rows, keys = (np.arange(start, start + count) for start, count in zip((first, key), s.shape, strict=True))
    assert work.score is not None
    places = {"b": batch + work.score.first, "h": head, "i": rows[:, None], "j": keys[None, :]}
    places |= {"Nq": work.Nq, "Nk": work.Nk}
    found, slopes = work.score.evaluate(s, places, views, slope)
    return np.array(found, s.dtype), slopes


def attention_on_cpu(
    work: Workload,
    operands: tuple[Operand, ...],
    out: Operand,
    lse: Any,
    wide: type[np.floating[Any]] = np.float32,
    views: tuple[Any, ...] = (),
) -> None:
    """Writes O into `out`, and, unless it is None, `lse`; computes in the type `wide`. `views`: the arrays that a score
    names.

    Numbers that are infinite, or become so, give what the arithmetic makes of them, without NumPy's warnings."""
    q, k, v = (x.bhnd for x in operands)
    o, group = out.bhnd, work.heads // work.kv_heads
    rows = max(1, SCORES_BYTES // (np.dtype(wide).itemsize * work.Nk))
    offset = work.offset if work.causal else None

    @np.errstate(all="ignore")
    def task(batch: int, head: int, first: int) -> None:
        part, seen = slice(first, first + rows), seen_keys(work, first, rows)
        keys, values = (x[batch, head // group, seen].astype(wide, copy=False) for x in (k, v))
        scaled = q[batch, head, part].astype(wide) * wide(work.scale)

        def change(s: Any, key: int) -> Any:
            return changed(work, views, batch, head, first, s, seen.start + key)[0]

        weighed, total, m = weighed_rows(
            scaled,
            keys,
            values,
            first - seen.start,
            offset,
            work.Nk,
            window=work.window,
            changed=change if work.score else None,
        )
        o[batch, head, part] = weighed / np.where(total == 0, 1, total)
        if lse is not None:
            lse[batch, head, part] = (m + np.log(total))[:, 0]

    tasks = product(range(work.batch), range(work.heads), range(0, work.Nq, rows))
    on_all_cores(task, tasks)

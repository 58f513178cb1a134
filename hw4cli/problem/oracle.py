"""The oracle: attention and its gradients in float64 by the formulas, with whole rows of scores and a softmax in two
passes.

It computes what files (`exact_attention`), arrays (`exact_heads`, some of their rows: `exact_rows`) and gradients
(`exact_gradients`, `gradients_of_head`) should be, with masks, heads that share keys, another scale, and the LSE. It
shares no code with what it judges; tests hold it to the definition and to finite differences
(tests/problem/test_oracle.py).

The arrays are NumPy's, or CuPy's, which then needs cuBLAS.
"""

import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np

from hw4cli.problem.casefile import Floats
from hw4cli.problem.cpu import workers
from hw4cli.problem.rowtasks import in_parallel
from hw4cli.problem.workload import Workload
from hw4cli.text.progress import Advance

ORACLE_BYTES = 16 << 20  # of scores that one task of the oracle holds
# Of scores that are held at once where gradients are computed, in the host's memory and in a GPU's; and how many such
# parts: the BLAS has threads of its own.
HELD, HELD_ON_GPU, AT_ONCE = 32 << 20, 256 << 20, 4


def exact_attention(block: Floats, advance: Advance | None = None, causal: bool = False, window: int = 0) -> Floats:
    """The oracle: O = softmax(QKᵀ/sqrt(d))V of each batch in float64 on all cores, rounded to float32 at the end.

    `block` is a float32 array (B, 3, N, d) of Q, K and V, the result a float32 array (B, N, d). `causal`: row i sees
    the keys 0 to i alone, of these the last `window` ones unless that is 0. `advance` is called with the number of rows
    that were just computed. Raises InputError for an array of another type or shape.

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
        p, total, _ = _weights(q[:, rows], k, np.arange(rows.start, rows.stop), 0 if causal else None, None, window)
        out[:] = (p @ v) / total

    return in_parallel(task, (len(block), *block.shape[2:]), max(1, ORACLE_BYTES // (8 * block.shape[2])), advance)


def exact_rows(
    q: Any,
    k: Any,
    v: Any,
    rows: Any = None,
    *,
    offset: int | None = None,
    scale: float | None = None,
    window: int = 0,
) -> tuple[Any, Any]:
    """O (..., rows, d) and the LSE (..., rows) in float64, of rows q (..., rows, d) that see the keys k and v
    (..., Nk, d); of other dimensions before, those of k and v are broadcast.

    `rows` are the numbers of the rows, 0, 1, ... if they are not given: row i sees the keys up to i + offset, with
    offset None all; of these the last `window` ones unless that is 0. A row that sees no key is 0, and its LSE -inf.
    `scale`: 1/sqrt(d) if it is None. All scores are held at once.
    """
    xp = _module_of(q)
    q, k, v = (x.astype("float64") for x in (q, k, v))
    p, total, top = _weights(q, k, xp.arange(q.shape[-2]) if rows is None else rows, offset, scale, window)
    unseen = total == 0
    total[unseen] = 1
    lse = top + xp.log(total)
    lse[unseen] = -np.inf
    return (p @ v) / total, lse[..., 0]


def exact_heads(
    q: Any, k: Any, v: Any, *, causal: bool = False, offset: int = 0, scale: float | None = None, window: int = 0
) -> tuple[Any, Any]:
    """O (batch, heads, Nq, d) and the LSE (batch, heads, Nq) in float64.

    The arrays are q (batch, heads, Nq, d), k and v (batch, kv_heads, Nk, d); heads is a multiple of kv_heads. `causal`:
    row i sees the keys 0 to i + offset, of these the last `window` ones unless that is 0. All scores are held at once.
    """
    kv_heads = k.shape[1]
    shared = q.reshape(q.shape[0], kv_heads, q.shape[1] // kv_heads, *q.shape[2:])
    last = offset if causal else None
    found = exact_rows(shared, k[:, :, None], v[:, :, None], offset=last, scale=scale, window=window)
    return found[0].reshape(*q.shape[:3], v.shape[3]), found[1].reshape(q.shape[:3])


def exact_gradients(
    do: Any,
    q: Any,
    k: Any,
    v: Any,
    *,
    causal: bool = False,
    offset: int = 0,
    scale: float | None = None,
    window: int = 0,
) -> tuple[Any, Any, Any]:
    """dQ, dK and dV of attention, in float64, where O has the gradient dO.

    The arrays are do and q (batch, heads, Nq, d), k and v (batch, kv_heads, Nk, d), do and v perhaps of another d;
    heads is a multiple of kv_heads. `causal`: row i sees the keys 0 to i + offset, of these the last `window` ones
    unless that is 0. Some rows of the scores of a head are held at once.
    """
    xp, (batches, kv_heads), group = _module_of(q), k.shape[:2], q.shape[1] // k.shape[1]
    rows, keys = np.arange(q.shape[2]), np.arange(k.shape[2])
    found, last = [], offset if causal else None
    for batch in range(batches):
        for head in range(kv_heads):
            share = slice(head * group, (head + 1) * group)
            parts = do[batch, share], q[batch, share], k[batch, head], v[batch, head]
            found.append(gradients_of_head(*parts, rows, keys, offset=last, scale=scale, window=window))
    dq, dk, dv = (xp.stack(x) for x in zip(*found, strict=True))
    return dq.reshape(q.shape), dk.reshape(k.shape), dv.reshape(v.shape)


def gradients_of_head(
    do: Any,
    q: Any,
    k: Any,
    v: Any,
    rows: Any,
    keys: Any,
    *,
    offset: int | None = None,
    scale: float | None = None,
    window: int = 0,
) -> tuple[Any, Any, Any]:
    """dQ of some rows, dK and dV of some keys, in float64, of one head of K and V (Nk, d) and the heads that share it,
    do and q (group, Nq, d); `rows` and `keys` are NumPy's arrays of numbers that rise.

    By the chain rule: dV = Pᵀ dO; dP = dO Vᵀ; dS = P (dP - the row's sum of P dP); dQ = scale dS K; dK = scale dSᵀ Q
    (Dao et al., FlashAttention, 2022, appendix B.2). A row of dQ depends on all keys, one of dK or dV on all rows of
    all heads that share it: so all scores are computed, some rows at a time.
    """
    xp, on_cpu = _module_of(q), isinstance(q, np.ndarray)
    do, q, k, v = (x.astype("float64") for x in (do, q, k, v))
    group, Nq, d = q.shape
    factor = d**-0.5 if scale is None else scale
    step = max(1, (HELD if on_cpu else HELD_ON_GPU) // (8 * len(k)))
    dq = xp.zeros((group, len(rows), d))
    dk, dv = xp.zeros((len(keys), d)), xp.zeros((len(keys), v.shape[-1]))
    all_keys, few = len(keys) == len(k), xp.asarray(keys)

    def part(head: int, first: int) -> tuple[Any, ...]:
        some = slice(first, min(first + step, Nq))
        p, total, _ = _weights(q[head, some], k, xp.arange(first, some.stop), offset, factor, window)
        total[total == 0] = 1
        p /= total
        ds = do[head, some] @ v.T
        ds -= (p * ds).sum(axis=1, keepdims=True)
        ds *= p
        own = rows[(rows >= first) & (rows < some.stop)] - first
        of_keys, weights = (ds, p) if all_keys else (ds[:, few], p[:, few])
        rows_of_dq = (ds if len(own) == len(ds) else ds[xp.asarray(own)]) @ k * factor
        return own + first, rows_of_dq, of_keys.T @ q[head, some] * factor, weights.T @ do[head, some]

    for head in range(group):
        for own, rows_of_dq, more_dk, more_dv in _each(lambda first: part(head, first), range(0, Nq, step), on_cpu):  # noqa: B023
            if len(own):
                place = int(np.searchsorted(rows, own[0]))
                dq[head, place : place + len(own)] = rows_of_dq
            dk += more_dk
            dv += more_dv
    return dq, dk, dv


def _each(part: Callable[[int], Any], firsts: range, on_cpu: bool) -> Any:
    """The parts in order: side by side on the CPU; one by one on a GPU, as a thread has its own current one."""
    if not on_cpu or len(firsts) == 1:
        yield from map(part, firsts)
        return
    with ThreadPoolExecutor(min(AT_ONCE, workers())) as pool:
        yield from pool.map(part, firsts)


def _weights(
    q: Any, k: Any, rows: Any, offset: int | None, scale: float | None, window: int = 0
) -> tuple[Any, Any, Any]:
    """exp(S - m) of rows of S = scale QKᵀ, their sums, and m: a row's largest score, or 0 where it sees no key."""
    xp = _module_of(q)
    s = q @ k.swapaxes(-1, -2)
    if scale is None:
        s /= np.sqrt(q.shape[-1])
    else:
        s *= scale
    if offset is not None:
        numbers, last = xp.arange(k.shape[-2]), xp.asarray(rows)[:, None] + offset
        s[..., numbers > last] = -np.inf
        if window:
            s[..., numbers <= last - window] = -np.inf
    top = s.max(axis=-1, keepdims=True)
    top[top == -np.inf] = 0
    s -= top
    p = xp.exp(s, out=s)
    return p, p.sum(axis=-1, keepdims=True), top


def _module_of(array: Any) -> Any:
    """NumPy, or CuPy: the library of an array."""
    return sys.modules[type(array).__module__.partition(".")[0]]

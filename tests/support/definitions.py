"""Attention by the definition, in float64 and by NumPy's einsum: what the oracle itself is held to."""

import numpy as np


def definition(q, k, v, scale=None, last=None, window=0):
    """O and the LSE of arrays (..., rows, d), of heads (batch, heads, rows, d) that may share keys; with `last`, row i
    sees the keys 0 to i + last, of a window the last so many of them. A row that sees no key is 0."""
    q, k, v = (np.asarray(x, np.float64) for x in (q, k, v))
    if q.ndim == 4:
        k, v = (np.repeat(x, q.shape[1] // x.shape[1], axis=1) for x in (k, v))
    s = np.einsum("...qd,...kd->...qk", q, k) * (q.shape[-1] ** -0.5 if scale is None else scale)
    if last is not None:
        before = np.arange(q.shape[-2])[:, None] + last - np.arange(k.shape[-2])  # keys between the last one and each
        s = np.where((before < 0) | (before >= (window or np.inf)), -np.inf, s)
    m = s.max(axis=-1, keepdims=True)
    p = np.exp(s - np.where(np.isinf(m), 0, m))
    l = p.sum(axis=-1, keepdims=True)  # noqa: E741
    with np.errstate(divide="ignore"):
        return (p @ v) / np.where(l > 0, l, 1), (m + np.log(l))[..., 0]


def of_block(block, last=None, keys=slice(None)):
    """O of a block (B, 3, N, d), of some of its keys alone."""
    q, k, v = (block[:, part] for part in range(3))
    return definition(q, k[:, keys], v[:, keys], last=last)[0]

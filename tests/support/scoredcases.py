"""Attention whose scores are changed, by the formulas in float64: for tests of the CPU, the emulator and a GPU."""

from dataclasses import dataclass
from typing import Any

import numpy as np


def exact(do, q, k, v, change, keep, scale=None):
    """O, the LSE, dQ, dK, dV and the gradients of the changed scores. `change`: of s, b, h, i and j, the changed scores
    and their slopes; `keep`: which pairs have one."""
    do, q, k, v = (np.asarray(x, np.float64) for x in (do, q, k, v))
    (batch, heads, Nq, d), Nk, shared = q.shape, k.shape[2], q.shape[1] // k.shape[1]
    scale = d**-0.5 if scale is None else scale
    wide_k, wide_v = (np.repeat(x, shared, axis=1) for x in (k, v))
    b, h, i, j = np.ogrid[:batch, :heads, :Nq, :Nk]
    s = q @ wide_k.swapaxes(-1, -2) * scale
    with np.errstate(all="ignore"):
        s, slope = (np.broadcast_to(x, s.shape) for x in change(s, b, h, i, j))
    s = np.where(keep(b, h, i, j), s, -np.inf)
    seen = np.isfinite(s)
    top = np.where(seen.any(axis=-1, keepdims=True), s.max(axis=-1, keepdims=True), 0)
    p = np.exp(s - top)
    total = p.sum(axis=-1, keepdims=True)
    with np.errstate(divide="ignore"):
        lse = (top + np.log(total))[..., 0]
    p /= np.where(total, total, 1)
    dp = do @ wide_v.swapaxes(-1, -2)
    dscore = p * (dp - (p * dp).sum(axis=-1, keepdims=True))
    ds = np.where(p > 0, dscore * np.where(p > 0, slope, 0), 0) * scale
    added = (x.swapaxes(-1, -2) @ y for x, y in ((ds, q), (p, do)))
    dk, dv = (x.reshape(*k.shape[:2], shared, *x.shape[2:]).sum(axis=2) for x in added)
    return p @ wide_v, lse, ds @ wide_k, dk, dv, dscore


@dataclass(frozen=True)
class Case:
    """What is asked of `attention`, and what it means: arrays by their names are NumPy's."""

    asked: dict[str, Any]
    change: Any = None  # of (s, b, h, i, j, Nq, Nk): the changed score and its slope
    keep: Any = None  # of (b, h, i, j, Nq, Nk)

    def formulas(self, Nq, Nk, seen=None):
        """`change` and `keep` of `exact`; `seen` is a mask beside, (Nq, Nk)."""

        def change(s, b, h, i, j):
            return self.change(s, b, h, i, j, Nq, Nk) if self.change else (s, 1)

        def keep(b, h, i, j):
            kept = self.keep(b, h, i, j, Nq, Nk) if self.keep else True
            return kept & (True if seen is None else seen[i, j])

        return change, keep


def cases(batch, heads, Nq, Nk, seed=0):
    """One of each kind, by its name."""
    rng = np.random.default_rng(seed)

    def normal(*shape):
        return rng.standard_normal(shape).astype(np.float32)

    slopes, own_slopes = np.abs(normal(heads)), np.abs(normal(batch, heads))
    mask, row, per_head = normal(batch, 1, Nq, Nk), normal(batch, 1, 1, Nk), normal(heads, Nq, Nk)
    bits, some = rng.random((Nq, Nk)) < 0.6, rng.random((batch, heads, Nq, Nk)) < 0.3
    some[:, :, Nq // 2] = False  # a row that sees no key
    holes = np.where(rng.random((1, heads, Nq, Nk)) < 0.5, normal(1, heads, Nq, Nk), -np.inf).astype(np.float32)
    holes[:, :, Nq // 3] = -np.inf
    document = np.sort(rng.integers(0, 4, max(Nq, Nk))).astype(np.int32)
    table, buckets = normal(heads, 32), rng.integers(-3, 40, (Nq, Nk))  # some of them beyond the table

    def softcap(cap):
        def change(s, *_):
            found = np.tanh(s / cap)
            return cap * found, 1 - found**2

        return change

    def alibi(of, per=1.0):
        return lambda s, b, h, i, j, Nq, Nk: (s - per * of(b, h) * abs(i + Nk - Nq - j), 1)

    def together(s, b, h, i, j, Nq, Nk):
        found = np.tanh(s / 2)
        capped = 2 * found - slopes[h] * abs(i + Nk - Nq - j)
        return capped * abs(capped) / 3 + mask[b, 0, i, j], (1 - found**2) * 2 * abs(capped) / 3

    def steep(s, *_):
        return np.where(s > 0.3, s**3 / 9, np.exp(np.minimum(s, 1))), np.where(
            s > 0.3, s**2 / 3, np.exp(np.minimum(s, 1))
        )

    return {
        "softcap": Case({"softcap": 1.5}, softcap(1.5)),
        "ALiBi": Case({"alibi_slopes": slopes}, alibi(lambda b, h: slopes[h])),
        "ALiBi of each batch": Case({"alibi_slopes": own_slopes}, alibi(lambda b, h: own_slopes[b, h])),
        "an expression": Case(
            {"score": "s - 0.1f * abs(i - j) / (h + 1)"}, lambda s, b, h, i, j, *_: (s - 0.1 * abs(i - j) / (h + 1), 1)
        ),
        "a steep expression": Case({"score": "s ** 3 / 9 if s > 0.3 else exp(min(s, 1))"}, steep),
        "a table of buckets": Case(
            {"score": "s + table[h, bucket[i, j]]", "arrays": {"table": table, "bucket": buckets}},
            lambda s, b, h, i, j, *_: (s + table[h, np.clip(buckets[i, j], 0, 31)], 1),
        ),
        "documents": Case(
            {"keep": "doc[i] == doc[j]", "arrays": {"doc": document}},
            keep=lambda b, h, i, j, *_: document[i] == document[j],
        ),
        "blocks that slide": Case(
            {"keep": "j // 16 <= i // 16 && j // 16 + 2 > i // 16 || j < 3"},
            keep=lambda b, h, i, j, *_: (j // 16 <= i // 16) & (j // 16 + 2 > i // 16) | (j < 3),
        ),
        "a mask of bits": Case({"attn_mask": bits}, keep=lambda b, h, i, j, *_: bits[i, j]),
        "a mask with an empty row": Case({"attn_mask": some}, keep=lambda b, h, i, j, *_: some[b, h, i, j]),
        "an additive mask": Case({"attn_mask": mask}, lambda s, b, h, i, j, *_: (s + mask[b, 0, i, j], 1)),
        "an additive mask of keys": Case({"attn_mask": row}, lambda s, b, h, i, j, *_: (s + row[b, 0, 0, j], 1)),
        "an additive mask of heads": Case(
            {"attn_mask": per_head}, lambda s, b, h, i, j, *_: (s + per_head[h, i, j], 1)
        ),
        "an additive mask with holes": Case({"attn_mask": holes}, lambda s, b, h, i, j, *_: (s + holes[0, h, i, j], 1)),
        "all together": Case(
            {
                "softcap": 2,
                "alibi_slopes": slopes,
                "score": "s * abs(s) / 3",
                "keep": "bits[i, j] or j == 0",
                "arrays": {"bits": bits},
                "attn_mask": mask,
            },
            together,
            lambda b, h, i, j, *_: bits[i, j] | (j == 0),
        ),
    }


NAMES = list(cases(1, 1, 2, 2))

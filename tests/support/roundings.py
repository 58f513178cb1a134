"""Programs that compute attention right, but in few bits. The keys of ROUNDINGS are part of what is said of them."""

import numpy as np
from mistakes import parts


def fp16(x):
    return x.astype(np.float16).astype(np.float64)


def bits(count, nearest=True):
    """Rounding to so many bits of fraction, or cutting off."""

    def rounded(x):
        mantissa, exponent = np.frexp(x)
        steps = 2.0 ** (count + 1)
        return np.ldexp((np.rint if nearest else np.trunc)(mantissa * steps) / steps, exponent)

    return rounded


def low_precision(rounded, *, qk=True, v=True, s=False, p=True, o=True, tile=None):
    """Attention in few bits, as far as asked for; sums as exact as float64."""
    parts_rounded = (qk, qk, v)

    def program(block):
        q, k, v = (rounded(part) if low else part for part, low in zip(parts(block), parts_rounded, strict=True))
        d = q.shape[2]
        raw = np.einsum("bid,bjd->bij", q, k)
        raw = (rounded(raw) if s == "raw" else raw) / np.sqrt(d)
        raw = rounded(raw) if s is True else raw
        m, total, out = np.full((*raw.shape[:2], 1), -np.inf), 0, 0
        for j in range(0, raw.shape[2], tile or raw.shape[2]):
            part = slice(j, j + (tile or raw.shape[2]))
            m_new = np.maximum(m, raw[:, :, part].max(axis=2, keepdims=True))
            w = np.exp(raw[:, :, part] - m_new)
            w = rounded(w) if p else w
            total = total * np.exp(m - m_new) + w.sum(axis=2, keepdims=True)
            out = out * np.exp(m - m_new) + w @ v[:, part]
            m = m_new
        return rounded(out / total) if o else out / total

    return program


ROUNDINGS = {
    "Q, K and V rounded to fp16 or TF32": low_precision(fp16, p=False, o=False),
    "Q, K, V, P and O rounded to fp16 or TF32": low_precision(fp16),
    "P and O rounded to fp16 or TF32": low_precision(fp16, tile=64),
    "Q, K, V, S, P and O rounded to fp16": low_precision(fp16, s=True),
    "S, P and O rounded to fp16 or TF32": low_precision(fp16, s="raw"),
    "rounded to bf16": low_precision(bits(7), tile=32),
    "S, P and O rounded to bf16": low_precision(bits(7), s=True),
    "cut off to TF32": low_precision(bits(10, nearest=False), p=False, o=False),
    "cut off to bf16": low_precision(bits(7, nearest=False), p=False, o=False),
    "rounded to fp16 or TF32 ": low_precision(bits(10)),
    "those of S rounded to fp16 or TF32": low_precision(fp16, qk=False, v=False, s=True, p=False, o=False),
    "those of S rounded to bf16": low_precision(bits(7), qk=False, v=False, s="raw", p=False, o=False),
    "those of P rounded to bf16": low_precision(bits(7), qk=False, v=False, o=False),
    "those of P and V rounded to bf16": low_precision(bits(7), qk=False, o=False),
    "those of P and V cut off to TF32": low_precision(bits(10, nearest=False), qk=False, o=False),
    "those of O rounded to bf16": low_precision(bits(7), qk=False, v=False, p=False),
}

"""Emulated attention in formats of fewer bits: which format's rounding explains small errors everywhere."""

from collections.abc import Callable, Iterator

import numpy as np

from hw4cli.diagnosis.evidence import Doubles
from hw4cli.diagnosis.sample import Sample
from hw4cli.problem.casefile import Floats

Rounding = Callable[[Floats], Floats]

# Later roundings depend on a program's order of operations and cannot be repeated exactly: the emulated part must
# explain three quarters of the squared error (half of the RMS).
TIMES = 2.0
# The largest error of the emulated part alone need not be over the tolerance where the program's is: but near.
REFUSED = 0.5
FP16_OVERFLOW = 65520.0  # from which on it is rounded to infinity
CHUNK = 1 << 16  # elements rounded at a time


def to_fp16(values: Floats) -> Floats:
    """Rounded to fp16: 10 bits of fraction, in steps of 2^-24 at least, infinite beyond 65504.

    NumPy's own conversion gives the same, but takes a hundred times as long for subnormal numbers.
    """
    step = np.float32(0.75)  # float32 has steps of 2^-24 there: adding it rounds, subtracting it leaves what is rounded
    sizes = np.abs(values)
    rounded = np.where(sizes < 2.0**-14, (values + step) - step, keep_bits(values, 10))
    return np.where(sizes < FP16_OVERFLOW, rounded, np.copysign(np.float32(np.inf), values))


def keep_bits(values: Floats, bits: int, nearest: bool = True) -> Floats:
    """With so many bits of fraction, rounded to nearest even or cut off."""
    dropped = 23 - bits
    phrase = values.view(np.uint32)
    if nearest:
        phrase = phrase + (np.uint32((1 << (dropped - 1)) - 1) + ((phrase >> np.uint32(dropped)) & np.uint32(1)))
    return (phrase & np.uint32(0xFFFFFFFF << dropped & 0xFFFFFFFF)).view(np.float32)


FORMATS: dict[str, Rounding] = {
    "rounded to fp16 or TF32 (10 bits of fraction)": to_fp16,
    "rounded to bf16 (7 bits of fraction)": lambda values: keep_bits(values, 7),
    "cut off to TF32 (10 bits of fraction, not rounded)": lambda values: keep_bits(values, 10, nearest=False),
    "cut off to bf16 (7 bits of fraction, not rounded)": lambda values: keep_bits(values, 7, nearest=False),
}


def roundings(sample: Sample) -> Iterator[tuple[str, Doubles]]:
    """For each format: O from rounded Q, K, V; with P and O rounded, too; with S rounded before or after its factor."""
    root = np.sqrt(sample.q.shape[1])
    for name, rounded in FORMATS.items():
        q, k, v = (_in_chunks(rounded, part) for part in (sample.q, sample.k, sample.v))
        if not (np.isfinite(k).all() and np.isfinite(v).all() and np.isfinite(q).all()):
            continue
        low = Sample(sample.rows, q, k, v)

        def both(values: Doubles, rounded: Rounding = rounded) -> Doubles:
            return rounded(values.astype(np.float32)).astype(np.float64)

        def output(scores: Doubles, low: Sample = low, both: Callable[[Doubles], Doubles] = both) -> Doubles:
            p = both(np.exp(scores - scores.max(axis=1, keepdims=True)))
            return both(low.mix(p) / p.sum(axis=1, keepdims=True))

        yield f"the errors are those of Q, K and V {name}", low.attend(low.scores)
        yield f"the errors are those of Q, K, V, P and O {name}", output(low.scores)
        for scores in (both(low.scores), both(low.raw) / root):
            yield f"the errors are those of Q, K, V, S, P and O {name}", output(scores)


def _in_chunks(rounded: Rounding, values: Floats) -> Floats:
    flat = np.ascontiguousarray(values, np.float32).reshape(-1)
    out = np.empty_like(flat)
    for start in range(0, len(flat), CHUNK):
        out[start : start + CHUNK] = rounded(flat[start : start + CHUNK])
    return out.reshape(values.shape)

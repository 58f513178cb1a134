"""Emulated attention in formats of fewer bits: which format's rounding explains small errors everywhere."""

from collections.abc import Callable, Iterator

import numpy as np

from hw4cli.judge.diagnosis.evidence import Doubles
from hw4cli.judge.diagnosis.sample import Sample
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
    """O of programs that round to each format Q, K and V; P and O, too; S, too, before or after its factor; or one part
    alone."""
    for name, rounded in FORMATS.items():
        q, k, v = (_in_chunks(rounded, part) for part in (sample.q, sample.k, sample.v))
        if not (np.isfinite(k).all() and np.isfinite(v).all() and np.isfinite(q).all()):
            continue
        for parts, o in _of_format(sample, Sample(sample.rows, q, k, v), rounded):
            yield f"the errors are those of {parts} {name}", o


def _of_format(exact: Sample, low: Sample, rounded: Rounding) -> Iterator[tuple[str, Doubles]]:
    """O from a sample whose Q, K and V are rounded, or from the exact one; the parts that were rounded."""

    def to_format(values: Doubles) -> Doubles:
        return rounded(values.astype(np.float32)).astype(np.float64)

    def scores(sample: Sample) -> tuple[Doubles, Doubles]:
        return to_format(sample.scores), to_format(sample.raw) / np.sqrt(sample.q.shape[1])

    def weights(scores: Doubles) -> Doubles:
        return to_format(np.exp(scores - scores.max(axis=1, keepdims=True)))

    def mixed(sample: Sample, p: Doubles) -> Doubles:
        return np.asarray(sample.mix(p) / p.sum(axis=1, keepdims=True))

    yield "Q, K and V", low.attend(low.scores)
    yield "Q, K, V, P and O", to_format(mixed(low, weights(low.scores)))
    for s in scores(low):
        yield "Q, K, V, S, P and O", to_format(mixed(low, weights(s)))
    for s in scores(exact):
        yield "S", exact.attend(s)
    p = weights(exact.scores)
    yield "P", mixed(exact, p)
    yield "P and V", mixed(low, p)
    yield "O", to_format(exact.attend(exact.scores))


def _in_chunks(rounded: Rounding, values: Floats) -> Floats:
    flat = np.ascontiguousarray(values, np.float32).reshape(-1)
    out = np.empty_like(flat)
    for start in range(0, len(flat), CHUNK):
        out[start : start + CHUNK] = rounded(flat[start : start + CHUNK])
    return out.reshape(values.shape)

"""float32 numbers in fp16, and what that leaves: second terms in fp16, or in the 8-bit integers of `split8`."""

import numpy as np

from hw4cli.problem.terms import INTEGER_FINE, INTEGER_ONE


def fp16(x):
    return x.astype(np.float16).astype(np.float64)


def two_terms(x):
    """hi and lo: fp16 of a float32, and of what is left of it."""
    hi = x.astype(np.float16)
    lo = (x - hi.astype(np.float32)).astype(np.float16)
    return hi.astype(np.float64), lo.astype(np.float64)


def integers(x, one):
    """x·one to the nearest integers of 8 bits."""
    return np.clip(np.rint(x.astype(np.float64) * one), -INTEGER_ONE, INTEGER_ONE)


def corrections(q, k):
    """The sums of products with a second term, by integers of 8 bits, as float32; Q and K are below 1."""
    fine = INTEGER_ONE * INTEGER_FINE
    (q_lo, k_lo), (q_all, k_all) = (
        [integers(x - fp16(x), fine) for x in (q, k)],
        [integers(x, INTEGER_ONE) for x in (q, k)],
    )
    total = q_lo @ k_all.T + q_all @ k_lo.T
    assert np.abs(total).max() < 2**22  # so an int32, and the bits of a float beside 1.5 * 2^23, hold it
    return (total / (INTEGER_ONE * fine)).astype(np.float32)

"""Float32 values as operands of tensor cores: what one or two fp16 numbers, and 8-bit integers, leave out of them.

Errors of a score are in units of log2, as kernels hold scores (docs/accuracy.md).
"""

import math
from dataclasses import dataclass
from typing import NamedTuple

from hw4cli.problem.workload import Magnitudes

LARGEST16, U16 = 65504.0, 2.0**-11  # fp16: the largest number; the relative error of rounding
LEAST16 = 2.0**-25  # the largest error of rounding to a subnormal number of fp16
ALIGNED = 1 + 2.0**-12  # what subnormal fp16 numbers add to errors that count LEAST16 for each (docs/accuracy.md)
U32 = 2.0**-24  # float32: the relative error of rounding
# Where second terms are multiplied as 8-bit integers (kernels/integers.cuh), Q and K are taken times this: 3 becomes
# just less than 1. INTEGER_ONE stands for 1, and for a second term of 1 / INTEGER_FINE.
QK_FACTOR, INTEGER_ONE, INTEGER_FINE = 1364 / 4096, 127, 4096


def half_ulp16(x: float) -> float:
    """The largest error of rounding a value of size up to x to fp16."""
    if x == 0:
        return 0.0
    mantissa, exponent = math.frexp(x)  # x = mantissa·2^exponent, 0.5 <= mantissa < 1
    if mantissa == 0.5:  # a power of two is exact: what is below it counts
        exponent -= 1
    return math.ldexp(1.0, max(exponent - 1, -14) - 11)


@dataclass(frozen=True)
class Terms:
    """Rows of values as two fp16 numbers each: the largest value; the norms of a row, of its second terms, and of what
    is left after both."""

    largest: float
    norm: float
    second: float
    rest: float

    @classmethod
    def of(cls, largest: float, norm: float, d: int) -> "Terms":
        """Of values up to `largest`, in rows of d with a norm of at most `norm`.

        Rounding moves x by half_ulp16(largest) at most, and by 2^-11 |x| or LEAST16. A second term is at most
        2^-11 |x|, too: where x - hi is LEAST16 or less it is 0.
        """
        width, once = math.sqrt(d), half_ulp16(largest)
        second = min(width * once, U16 * norm)
        rest = min(width * half_ulp16(once), U16**2 * norm + width * LEAST16 * (1 + U16))
        return cls(largest, norm, second, rest)


class InTerms(NamedTuple):
    """Q and K as the operands of a score's products, and what that costs.

    scaled: how often scaling rounds each element. common: how often the factor of all scores is rounded. left_out: what
    of a score the products leave out. largest: that either's elements become. with_lo: the most that a column's two
    products with a second term are together. unit: what makes a score of a product. By integers, grid: products of two
    first terms as large as any are multiples of it; spare: where second terms are smaller than they could be, how much
    finer the products of all columns together may be.
    """

    scaled: int
    common: int
    left_out: float
    largest: float
    with_lo: float
    unit: float = 1.0
    grid: float = 0.0
    spare: float = 0.0


def by_halves(found: Magnitudes, d: int) -> InTerms | None:
    """Two fp16 terms each, Q scaled to log2; all products but that of both second terms. None beyond fp16's range."""
    scaled = 1 / (math.log(2) * math.sqrt(d)) * (1 + 4 * U32)  # what Q is multiplied by
    if not max(found.q * scaled, found.k) <= LARGEST16:
        return None
    q_norm, k_norm = found.norms(d)
    x, k = Terms.of(found.q * scaled, q_norm * scaled, d), Terms.of(found.k, k_norm, d)
    left_out = x.rest * k.norm + x.norm * k.rest + x.rest * k.rest + x.second * k.second
    with_lo = half_ulp16(x.largest) * k.largest + x.largest * half_ulp16(k.largest)
    return InTerms(1, 3, left_out * ALIGNED, max(x.largest, k.largest), with_lo * ALIGNED)


def by_integers(found: Magnitudes, d: int) -> InTerms | None:
    """An fp16 term each, both times QK_FACTOR; its products with the other's second term from integers of 8 bits. None
    beyond their range.

    Rounding moves a product of two integers by half of both and 1/4; over all columns, those of a row are at most
    sqrt(d) times its norm. What fp16 leaves out is 2^-11 of an element, or LEAST16.
    """
    factor, width = QK_FACTOR * (1 + U32), math.sqrt(d)
    if not max(found.q, found.k) * factor <= 1:
        return None
    q, k = found.q * factor, found.k * factor
    norms = [norm * factor for norm in found.norms(d)]
    of_q, of_k = half_ulp16(q), half_ulp16(k)
    second = [min(width * x, U16 * norm + width * LEAST16) for x, norm in zip((of_q, of_k), norms, strict=True)]
    rounded = width * (sum(norms) + INTEGER_FINE * sum(second)) / 2 * INTEGER_ONE + d / 2
    left_out = rounded / (INTEGER_ONE**2 * INTEGER_FINE) + second[0] * second[1]
    unit = 1 / (QK_FACTOR**2 * width * math.log(2)) * (1 + 3 * U32)
    spare = 2.0**-10 * width * (width * (of_q + of_k) - sum(second))
    return InTerms(2, 4, left_out * unit, max(q, k), of_q * k + q * of_k, unit, 4 * of_q * of_k, spare)

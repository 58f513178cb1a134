"""How large Q, K and V may be for a kernel's bound to be SAFE, as a GPU can look it up (kernels/choice.cu): without the
bound's own formula, which stands in bounds.py alone.

A bound grows with the elements and the norms. Where the elements are large enough not to matter, it depends on the
product of the two norms, and on V; for terms of fp16 a little on which norm is the larger one, too. So products are put
into classes, and a class has the most that |V| may be for the largest product in it, however the two norms share it.
What is found so is never less careful than `suffices`, and a little more so.
"""

import math
from collections.abc import Callable
from functools import lru_cache, partial
from typing import NamedTuple

from hw4cli.plans.bounds import ON_TENSOR_CORES, PROPORTION, SAFE, bound, uniform
from hw4cli.plans.ladder import VARIANTS
from hw4cli.plans.launch import SQUARES_BELOW
from hw4cli.plans.plan import DeviceProperties
from hw4cli.plans.tensor import V_FACTOR, policy
from hw4cli.problem.terms import QK_FACTOR, U32
from hw4cli.problem.workload import Magnitudes

# Classes of the squared product of two norms: up to 16, 24, 32, 48, 64 and so on; kernels/choice.cu has the same.
CLASSES, FIRST = 64, 16.0
LARGEST = math.ldexp(2 - 2**-23, 127)  # of float32
LONGEST = math.sqrt(SQUARES_BELOW)  # norm of a row for terms of fp16: what kernels/absmax.cu can add up
LEAST_V, FINEST = 2.0**-9, 16  # V for terms of fp16, which have no small ones; of how many V in an octave one is tried
MOST_V = 2.0**6  # that is looked at: more is left to the last kernel
LARGE = 5  # times a row's norm: of elements so large the norm alone says what fp16 leaves out
BETWEEN = 1.02  # of the bounds that are looked at, to those of norms between
REMEMBERED = 256


class Limits(NamedTuple):
    """For a kernel to suffice: the most that an element of Q and of K, and the square of the norm of a row of either,
    may be; the least and, by class, the most of V: 0 where there is none. For elements of all three in the assignment's
    range the square of a norm may be as much as is `usual`, whatever its class; 0 where that is not enough."""

    element: float
    squares: float
    usual: float
    least_v: float
    most_v: tuple[float, ...]


def top_of(number: int) -> float:
    """The largest squared product in a class."""
    return math.ldexp(FIRST, number // 2) * (1.5 if number % 2 else 1.0)


def limits(kernel: str, d: int, keys: int, props: DeviceProperties) -> Limits:
    """Of a kernel that has a bound, for rows of d columns and so many keys. They take some hundred bounds to find: so
    all lengths up to the next power of two have the same ones, which are kept."""
    return _limits(kernel, d, 1 << (keys - 1).bit_length(), props)


@lru_cache(REMEMBERED)
def _limits(kernel: str, d: int, keys: int, props: DeviceProperties) -> Limits:
    held, terms = VARIANTS[kernel].pieces, kernel in ON_TENSOR_CORES
    integers = held is not None and policy(held, keys, d, props).integers
    element = 1 / (QK_FACTOR * (1 + 2 * U32)) if integers else LARGEST
    longest = min(LONGEST, math.sqrt(d) * element) if terms else math.inf
    known = _Bounds(partial(bound, kernel, d=d, N=keys, props=props), terms, element, longest)
    usual = uniform(d)
    some = [usual._replace(v=v) for v in _COARSER if v <= usual.v] if terms else []
    enough = known.of(usual) <= SAFE and all(known.of(one) <= PROPORTION * one.v for one in some)
    return Limits(element, longest**2, usual.q_norm**2 if enough else 0.0, LEAST_V if terms else 0.0, known.most_v())


class _Bounds(NamedTuple):
    """A kernel's bounds for some rows, whether its terms are of fp16, and the most of an element and of a norm."""

    of: Callable[[Magnitudes], float]
    terms: bool
    element: float
    longest: float

    def most_v(self) -> tuple[float, ...]:
        """By class, the most of V."""
        most, step = [0.0] * CLASSES, int(FINEST * math.log2(MOST_V / LEAST_V))
        for number in range(_count(CLASSES, self._keeps_proportion) if self.terms else CLASSES):
            while step >= 0 and not self._worst(number, _v(step)) <= SAFE:
                step -= 1
            most[number] = _v(step) if step >= 0 else 0.0
        return tuple(most)

    def _worst(self, number: int, v: float) -> float:
        """The largest bound in a class."""
        product = min(math.sqrt(top_of(number)), self.longest**2)
        both, rest = math.sqrt(product), product / self.longest
        norms = [(both, both), (self.longest, rest), (rest, self.longest)] if self.terms else [(both, both)]
        tops = ([min(LARGE * norm, self.element) for norm in pair] for pair in norms)
        found = (Magnitudes(q, k, v, *pair) for (q, k), pair in zip(tops, norms, strict=True))
        return BETWEEN * max(map(self.of, found))

    def _keeps_proportion(self, number: int) -> bool:
        return all(self._worst(number, v) <= PROPORTION * v for v in _COARSER)


def _v(step: int) -> float:
    octave, part = divmod(step, FINEST)
    return math.ldexp(LEAST_V * (1 + part / FINEST), octave)


# Where the steps of fp16 for V, or for V times its factor, have just become twice as coarse.
_COARSER = tuple(math.ldexp(1 + 2**-20, n) / factor for n in range(-9, 3) for factor in (1.0, V_FACTOR))


def _count(most: int, holds: Callable[[int], bool]) -> int:
    """Of how many numbers from 0 on, `most` at most, it holds; of none behind one of which it does not."""
    low, high = 0, most
    while low < high:
        middle = (low + high) // 2
        low, high = (middle + 1, high) if holds(middle) else (low, middle)
    return low

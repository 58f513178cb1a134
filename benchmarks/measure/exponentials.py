"""The polynomials of kernels/exponentials.cuh: their coefficients anew, and the error of each float32 against float64.

    python -m benchmarks.measure.exponentials            every number from -150 to 16, in some minutes on one core
    python -m benchmarks.measure.exponentials --every 97 each 97th of them

The header's own text is computed, compiled for the CPU as kernels are there. No GPU is needed. Exit status: 1 if an
error is larger than its bound (hw4cli/plans/bounds.py).
"""

import argparse
import ctypes
import functools
import math
import re
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from benchmarks.measure.scripts import end_with
from hw4cli.emulator.build import PLAIN, shared_object
from hw4cli.plans.bounds import EX2_CUBIC, EX2_POLYNOMIAL
from hw4cli.resources import data_path

CHUNK = 1 << 22
LOWEST, HIGHEST = -150.0, 16.0  # arguments: weights are 2^15 at most, and 2^-126 at least
SMALLEST = 2.0**-126
MACROS = {"D": 64, "BR": 64, "BC": 64, "THREADS": 128}
TEXT = """#include "exponentials.cuh"
extern "C" void cubic(const float* x, float* y, int n, float scale, float lost) {
    const Powers powers(scale, lost);
    for (int i = 0; i < n; i++) y[i] = powers.of(x[i]);
}
extern "C" void quartic(const float* x, float* y, int n, float, float) {
    for (int i = 0; i < n; i++) y[i] = exp2_polynomial(x[i]);
}
"""


class Polynomial(NamedTuple):
    """A polynomial: its name above, degree, the fractions that it is for, whether 2^0 is to be 1, what is proven of it
    (relative), and from where on."""

    name: str
    degree: int
    first: float
    exact: bool
    bound: float
    least: float


POLYNOMIALS = (
    Polynomial("cubic", 3, 0.0, True, EX2_CUBIC, -126.0),
    Polynomial("quartic", 4, -0.5, False, EX2_POLYNOMIAL, -126.0),
)


@functools.cache
def header() -> Any:
    """The header's functions, compiled."""
    with tempfile.TemporaryDirectory() as folder:
        source = Path(folder, "exponentials_checked.cu")
        source.write_text(TEXT, encoding="utf-8")
        return ctypes.CDLL(str(shared_object(source, MACROS, 90, 32, PLAIN)))


def computed(one: Polynomial, x: Any, scale: float = 1.0, lost: float = 0.0) -> Any:
    """The header's 2^(scale x - lost), of an array of float32; the quartic's is 2^x."""
    x, y = np.ascontiguousarray(x, np.float32), np.empty(len(x), np.float32)
    at = (array.ctypes.data_as(ctypes.c_void_p) for array in (x, y))
    getattr(header(), one.name)(*at, len(x), ctypes.c_float(scale), ctypes.c_float(lost))
    return y


def written(one: Polynomial) -> list[float]:
    """The coefficients in the header, the highest first."""
    text = data_path("kernels/exponentials.cuh").read_text(encoding="utf-8")
    of_degree = {len(found): found for found in map(re.compile(r"\d\.\d+(?=f)").findall, text.splitlines()) if found}
    return [float(x) for x in of_degree[one.degree + (not one.exact)]] + [1.0] * one.exact


def fitted(one: Polynomial, points: int = 2001, rounds: int = 3000) -> tuple[list[float], float]:
    """The coefficients with the smallest largest relative error, the highest first, and that error, by Lawson's method:
    least squares, again and again, with weights that grow where the error is large."""
    f = one.first + (1 - np.cos(np.linspace(0, np.pi, points))) / 2
    powers, wanted = np.stack([f**n / np.exp2(f) for n in range(one.degree + 1)], 1), np.ones(points)
    if one.exact:
        powers, wanted = powers[:, 1:], wanted - powers[:, 0]
    weights, error = np.ones(points), np.zeros(points)
    found: Any = np.zeros(powers.shape[1])
    for _ in range(rounds):
        root = np.sqrt(weights)
        found = np.linalg.lstsq(powers * root[:, None], wanted * root, rcond=None)[0]
        error = np.abs(powers @ found - wanted)
        weights = weights * error / (weights * error).sum()
    return [*found[::-1].tolist(), *([1.0] if one.exact else [])], float(error.max())


def arguments(every: int) -> Iterator[Any]:
    """Each so many-th float32 from LOWEST to HIGHEST, in pieces; 0 and both ends among them."""
    for end, sign in ((LOWEST, np.uint32(1 << 31)), (HIGHEST, np.uint32(0))):
        last = int(np.float32(abs(end)).view(np.uint32))
        for first in range(0, last + 1, CHUNK * every):
            bits = np.arange(first, min(last + 1, first + CHUNK * every), every, dtype=np.int64)
            yield (bits.astype(np.uint32) | sign).view(np.float32)
        yield np.array([end], np.float32)


def largest_error(one: Polynomial, x: Any) -> float:
    """The largest relative error of arguments from `least` on; inf where one below gives more than about the smallest
    normal number, or, of the cubic, one of -127 or less anything but 0."""
    y, exact = computed(one, x).astype(float), np.exp2(x.astype(float))
    low = x < one.least
    beyond = (y[low] > SMALLEST * (1 + one.bound)) | (y[low] < 0)
    if beyond.any() or (one.exact and y[x <= -127].any()) or not np.isfinite(y).all():
        return math.inf
    return float(np.abs(y[~low] / exact[~low] - 1).max(initial=0.0))


def main() -> int:
    """Print what is found."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--every", type=int, default=1, metavar="N")
    every, status = parser.parse_args().every, 0
    for one in POLYNOMIALS:
        found, least = fitted(one)
        print(f"{one.name}: fitted {found}, to 2^{math.log2(least):.2f}; written {written(one)}")
        error = max(largest_error(one, x) for x in arguments(every))
        print(f"{one.name}: largest error 2^{math.log2(error):.2f}, bound 2^{math.log2(one.bound):.2f}")
        status |= not error <= one.bound
    return status


if __name__ == "__main__":
    end_with(main)

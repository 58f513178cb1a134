"""Q, K and V of a workload: of its seed the same numbers on every machine, in the host's memory or on a GPU.

Numbers of 16 bits stand in arrays of their words (int16), float32 in arrays of int32: NumPy and CuPy know no bfloat16.
"""

import math
from dataclasses import dataclass, replace
from functools import lru_cache
from importlib import import_module
from typing import Any

import numpy as np
from numpy.random import PCG64, Generator
from numpy.typing import NDArray

from hw4cli.errors import InputError, MachineError
from hw4cli.lab.arrays.named import PACKED, UNIFORM, NamedWorkload, workload
from hw4cli.plans.launch import Matrix
from hw4cli.problem.workload import BFLOAT16, FLOAT16, FLOAT32, is_whole

PERIOD = (1 << 24) - 3  # numbers, after which they repeat: odd, so that no two heads are alike
DO = 3  # the part of dO, behind Q, K and V
REACH = 3.0  # of uniform numbers
WORDS = {FLOAT16: np.int16, BFLOAT16: np.int16, FLOAT32: np.int32}
EXPONENT = {FLOAT16: 0x7C00, BFLOAT16: 0x7F80, FLOAT32: 0x7F800000}  # whose bits are all set in infinity and NaN


def to_words(values: NDArray[Any], dtype: str) -> NDArray[Any]:
    """float32 numbers as words of the type, rounded to nearest, ties to even."""
    if dtype == FLOAT32:
        return values.view(np.int32)
    if dtype == FLOAT16:
        return values.astype(np.float16).view(np.int16)
    bits = values.view(np.uint32)
    return ((bits + 0x7FFF + (bits >> 16 & 1)) >> 16).astype(np.uint16).view(np.int16)


def from_words(words: NDArray[Any], dtype: str) -> NDArray[Any]:
    """What words of the type stand for, in float64."""
    if dtype == BFLOAT16:
        return (words.astype(np.int32) << 16).view(np.float32).astype(np.float64)
    return words.view(np.float16 if dtype == FLOAT16 else np.float32).astype(np.float64)


def numbers(case: NamedWorkload, part: int, count: int) -> NDArray[Any]:
    """The first numbers of Q (part 0), K or V, as words, PERIOD at most: those behind them are the same again."""
    return _numbers(case.seed, part, min(count, PERIOD), case.distribution, case.work.dtype)


@lru_cache(6)  # large workloads, one after the other, all have PERIOD of them
def _numbers(seed: int, part: int, size: int, distribution: str, dtype: str) -> NDArray[Any]:
    random = Generator(PCG64([seed, part]))
    if distribution == UNIFORM:
        values = random.random(size, np.float32) * np.float32(2 * REACH) - np.float32(REACH)
    else:
        values = random.standard_normal(size, np.float32)
    words = to_words(values, dtype)
    words.setflags(write=False)
    return words


def memory_shapes(case: NamedWorkload) -> list[tuple[int, int, int, int]]:
    """The arrays as they lie in memory: Q, K and V; or, packed, the one that holds them all."""
    work = case.work
    keys, d, dv = (work.kv_heads, work.Nk), work.d, work.value_columns
    if case.layout == PACKED:
        return [(work.batch, work.Nq, work.heads + 2 * work.kv_heads, d)]
    return [
        (work.batch, heads, N, columns) if case.layout == "BHND" else (work.batch, N, heads, columns)
        for heads, N, columns in ((work.heads, work.Nq, d), (*keys, d), (*keys, dv))
    ]


def as_bhnd(case: NamedWorkload, arrays: list[Any]) -> tuple[Any, Any, Any]:
    """Q, K and V as (batch, heads, N, d), of arrays of `memory_shapes`, without a copy."""
    seen = [x if case.layout == "BHND" else x.transpose(0, 2, 1, 3) for x in arrays]
    if case.layout == PACKED:
        (whole,), work = seen, case.work
        last = work.heads + work.kv_heads
        return whole[:, : work.heads], whole[:, work.heads : last], whole[:, last:]
    q, k, v = seen
    return q, k, v


def on_host(case: NamedWorkload) -> tuple[NDArray[Any], NDArray[Any], NDArray[Any]]:
    """Q, K and V as arrays of words (batch, heads, N, d) in the host's memory."""
    shapes = memory_shapes(case)
    arrays = [np.resize(numbers(case, part, math.prod(shape)), shape) for part, shape in enumerate(shapes)]
    return as_bhnd(case, arrays)


def generate(text: str, *, seed: int | None = None, library: str = "numpy") -> tuple[Any, Any, Any]:
    """Q, K and V of a workload, such as "lm16k" or "B=2 H=8 KVH=2 N=512 d=64 dtype=fp16": the numbers `bench` measures.

    They are arrays (batch, heads, N, d) of NumPy, or with library="torch" or "cupy" on the current GPU; NumPy and CuPy
    have no bfloat16. `seed` replaces that of the text; the same seed gives the same numbers.

    Raises InputError for a text that is no workload, a seed that is no integer from 0 on, another library, or
    an element type that the library has not; MachineError where the library is missing, or memory for the arrays.

    >>> q, k, v = generate("B=2 H=8 KVH=2 N=16 Nk=32 d=64 dtype=fp16", seed=1)
    >>> q.shape, k.shape, q.dtype.name
    ((2, 8, 16, 64), (2, 2, 32, 64), 'float16')
    """
    if not isinstance(text, str):
        raise InputError(f"a workload is a text, but this is a {type(text).__name__}")
    if seed is not None and (not is_whole(seed) or seed < 0):
        raise InputError(f"seed is {seed}: give an integer, 0 or more")
    case = workload(text)
    dtype = case.work.dtype
    if library not in ("numpy", "cupy", "torch"):
        raise InputError(f"library is {library!r}: give 'numpy', 'cupy' or 'torch'")
    if dtype == BFLOAT16 and library != "torch":
        raise InputError(f"{library} has no bfloat16: give library='torch', or dtype=fp16")
    module = _imported(library)
    try:
        words = on_host(case if seed is None else replace(case, seed=seed))
    except MemoryError:
        raise MachineError(f"this machine has not enough memory for the arrays of {text}") from None
    if library == "torch":
        q, k, v = (module.from_numpy(x).view(getattr(module, dtype)).cuda() for x in words)
        return q, k, v
    q, k, v = (module.asarray(x.view(dtype)) for x in words)
    return q, k, v


def _imported(library: str) -> Any:
    """One of the libraries whose arrays there are. Raises MachineError where it is not installed."""
    try:
        return import_module(library)
    except ImportError:
        raise MachineError(f"{library} is not installed here") from None


@dataclass(frozen=True)
class DeviceArrays:
    """Q, K, V and O on a GPU, arrays of words (batch, heads, N, d) as cupy has them, and the memory that holds them."""

    q: Any
    k: Any
    v: Any
    o: Any

    @property
    def matrices(self) -> tuple[Matrix, Matrix, Matrix, Matrix]:
        """Where they lie."""
        return matrix(self.q), matrix(self.k), matrix(self.v), matrix(self.o)


def matrix(array: Any) -> Matrix:
    """Where an array (batch, heads, N, d) lies: strides in elements, 0 in a dimension of one element."""
    steps = zip(array.strides[:3], array.shape[:3], strict=True)
    batch, head, row = (stride // array.itemsize if size > 1 else 0 for stride, size in steps)
    return Matrix(array.data.ptr, batch, head, row)


def on_device(case: NamedWorkload, cupy: Any) -> DeviceArrays:
    """The workload's inputs on the current GPU, and O, whose words are those of NaN."""
    shapes = memory_shapes(case)
    q, k, v = as_bhnd(case, [_filled(case, cupy, part, shape) for part, shape in enumerate(shapes)])
    return DeviceArrays(q, k, v, _unwritten(case, cupy, (*q.shape[:3], case.work.value_columns)))


@dataclass(frozen=True)
class GradientArrays(DeviceArrays):
    """The same with dO, which lies as O does, the float32 LSE, and dQ, dK and dV, which lie as O does, too."""

    do: Any
    lse: Any
    dq: Any
    dk: Any
    dv: Any


def with_gradients(case: NamedWorkload, arrays: DeviceArrays, cupy: Any) -> GradientArrays:
    """A workload's arrays, and those that the backward pass takes and makes; dO holds numbers like Q's."""
    q, k, v, o = arrays.q, arrays.k, arrays.v, arrays.o
    batch, heads, N, dv = o.shape
    rows_first = case.layout != "BHND"
    do = _filled(case, cupy, DO, (batch, N, heads, dv) if rows_first else o.shape)
    made = [_unwritten(case, cupy, x.shape) for x in (q, k, v)]
    lse = cupy.ndarray((batch, heads, N), np.float32)
    return GradientArrays(q, k, v, o, do.transpose(0, 2, 1, 3) if rows_first else do, lse, *made)


def _filled(case: NamedWorkload, cupy: Any, part: int, shape: tuple[int, ...]) -> Any:
    """An array on the GPU with the numbers of a part."""
    flat = cupy.ndarray(math.prod(shape), WORDS[case.work.dtype])
    found = numbers(case, part, flat.size)
    for start in range(0, flat.size, PERIOD):
        there = flat[start : start + PERIOD]
        there.set(found[: there.size])
    return flat.reshape(shape)


def _unwritten(case: NamedWorkload, cupy: Any, shape: tuple[int, ...]) -> Any:
    """An array (batch, heads, N, d) on the GPU, in the workload's layout, whose words are those of NaN."""
    batch, heads, N, d = shape
    rows_first = case.layout != "BHND"
    found = cupy.ndarray((batch, N, heads, d) if rows_first else shape, WORDS[case.work.dtype])
    found.data.memset(0xFF, found.nbytes)
    return found.transpose(0, 2, 1, 3) if rows_first else found

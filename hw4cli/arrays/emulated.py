"""The kernels for 16-bit numbers executed on the CPU, in all its detail: for tests, and for whoever changes them."""

import struct
from dataclasses import dataclass
from typing import Any

import numpy as np

from hw4cli.arrays.half import NAME as HALF
from hw4cli.arrays.half import Arrays, Box
from hw4cli.arrays.kernels16 import arguments16, plan16
from hw4cli.arrays.workload import Workload
from hw4cli.compute.dispatch import AUTO
from hw4cli.compute.launch import Matrix
from hw4cli.compute.plan import DEVICES
from hw4cli.emulator.build import RACE, shared_object
from hw4cli.emulator.library import FORWARDS, Library, Schedule, Watched
from hw4cli.emulator.report import Finding
from hw4cli.resources import kernel_path

_MAP = struct.Struct("<Q5Q5I5H3B")  # emu::TensorMap in kernels/emulator/tiles.h


@dataclass(frozen=True)
class HalfOutcome:
    """O as 16-bit words, the LSE, what was found, and whether the kernel came to its end."""

    o: Any
    lse: Any
    findings: tuple[Finding, ...]
    finished: bool


def tensor_map(box: Box) -> bytes:
    """A tensor map as the CPU's copies read it, swizzled over 128 bytes, zeros outside."""
    strides = (2, *box.strides, 0)
    words = _MAP.pack(box.address, *strides, *box.sizes, 1, *box.box, 1, 4, 128, 0)
    return words.ljust(128, b"\0")


def matrix(array: Any) -> Matrix:
    """Where an array (batch, heads, rows, d) of NumPy's lies."""
    batch, head, row, _ = (stride // array.itemsize for stride in array.strides)
    return Matrix(array.ctypes.data, batch, head, row)


def run_half(
    work: Workload,
    q: Any,
    k: Any,
    v: Any,
    tiling: Any = None,
    scale: float | None = None,
    kernel: str = AUTO,
    cc: int = 90,
    build: str = RACE,
    schedule: Schedule = FORWARDS,
    blocks: int = 2,
) -> HalfOutcome:
    """The kernel of a compute capability on uint16 arrays (batch, heads, rows, d), whose words are fp16 or bf16.

    So many blocks at most, where blocks take tile after tile.
    """
    planned = plan16(work, DEVICES[cc], kernel, tiling)
    (step,) = planned.launches
    library = Library(shared_object(kernel_path(planned.variant), planned.macros, cc, 32, build))
    o = np.full((work.batch, work.heads, work.Nq, work.d), 0xFFFF, np.uint16)
    lse = np.full((work.batch, work.heads, work.Nq), np.nan, np.float32)
    arrays = Arrays(matrix(q), matrix(k), matrix(v), matrix(o), lse.ctypes.data)
    passed = arguments16(work, planned, arrays, scale or work.scale, tensor_map)
    named = [("Q", q, False), ("K", k, False), ("V", v, False), ("O", o, True), ("LSE", lse, True)]
    watched = [Watched(*ctypes_span(array), may, name) for name, array, may in named]
    finished, findings = library.launch(
        step, passed, watched, schedule, grid=min(step.grid, blocks) if planned.variant == HALF else 0
    )
    return HalfOutcome(o, lse, findings, finished)


def ctypes_span(array: Any) -> tuple[int, int]:
    """An array's first address, and how many bytes lie from there to its end."""
    low, high = np.lib.array_utils.byte_bounds(array)
    return low, high - low

"""The kernels for 16-bit numbers executed on the CPU, in all its detail: for tests, and for whoever changes them."""

import ctypes
import struct
from collections.abc import Callable
from dataclasses import dataclass, replace
from math import prod
from pathlib import Path
from typing import Any

import numpy as np

from hw4cli.emulator.build import RACE, shared_object
from hw4cli.emulator.counts import Counts
from hw4cli.emulator.library import FORWARDS, GAP, Library, Schedule, Watched, space
from hw4cli.emulator.report import Finding
from hw4cli.plans.dispatch import AUTO
from hw4cli.plans.half import Arrays
from hw4cli.plans.kernels16 import ENTRIES16, arguments16, plan16
from hw4cli.plans.launch import Box, Matrix
from hw4cli.plans.plan import DEVICES, Plan
from hw4cli.problem.workload import Workload
from hw4cli.resources import kernel_path

_MAP = struct.Struct("<Q5Q5I5H3B")  # emu::TensorMap in kernels/emulator/tiles.h


@dataclass(frozen=True)
class HalfOutcome:
    """O as 16-bit words, those between its rows, the LSE, what was found, and whether the kernel came to its end."""

    o: Any
    beside: Any
    lse: Any
    findings: tuple[Finding, ...]
    finished: bool
    counts: tuple[Counts, ...] = ()  # of the launches, in the build that counts


def tensor_map(box: Box) -> bytes:
    """A tensor map as the CPU's copies read it, zeros outside."""
    strides = (2, *box.strides, 0)
    words = _MAP.pack(box.address, *strides, *box.sizes, 1, *box.box, 1, 4, 128 if box.swizzled else 0, 0)
    return words.ljust(128, b"\0")


def run_half(
    work: Workload,
    q: Any,
    k: Any,
    v: Any,
    tiling: Any = None,
    kernel: str = AUTO,
    cc: int = 90,
    build: str = RACE,
    schedule: Schedule = FORWARDS,
    blocks: int = 2,
    adds_as: int = 0,
    lanes: int = 32,
    gap: int = 0,
    source: Path | None = None,
    sms: int = 0,
    planner: Callable[..., Plan] = plan16,
    views: tuple[Any, ...] = (),
) -> HalfOutcome:
    """The kernel of a compute capability on uint16 arrays (batch, heads, rows, d), whose words are fp16 or bf16.

    So many blocks at most, where blocks take tile after tile. Tensor cores add as those of the compute capability
    `adds_as` do, or exactly. A warp has so many lanes; 64 are an AMD wavefront. `gap`: words between O's rows, all bits
    of which are set before. `source`: a file in place of the kernel's own. `sms`: so
    many multiprocessors, if not as many as usual. `planner`: what makes the plan. `views`: the arrays that a score
    names.
    """
    props = replace(DEVICES[cc], sms=sms or DEVICES[cc].sms)
    planned = planner(work, props, kernel, tiling)
    library = Library(shared_object(source or kernel_path(planned.source), planned.defines, cc, lanes, build))
    library.add_as(adds_as)
    rows = work.batch, work.heads, work.Nq
    shape = *rows, work.value_columns + gap
    sizes = [*(ctypes_span(x)[1] for x in (q, k, v)), 2 * prod(shape), 4 * prod(rows), planned.scratch]
    sizes += [ctypes_span(x)[1] for x in views]
    buffer, starts = space(sizes, GAP)
    parts = [buffer[start : start + size] for start, size in zip(starts, sizes, strict=False)]
    o, beside = np.split(parts[3].view(np.uint16).reshape(shape), [work.value_columns], axis=3)
    lse = parts[4].view(np.float32).reshape(rows)
    q_at, k_at, v_at = (matrix(placed(x, part)) for x, part in zip((q, k, v), parts, strict=False))
    placed_views = tuple(placed(x, part).ctypes.data for x, part in zip(views, parts[6:], strict=True))
    arrays = Arrays(q_at, k_at, v_at, matrix(o), lse.ctypes.data, parts[5].ctypes.data, placed_views)
    scratch, table = np.split(parts[5], [planned.scratch - len(planned.table)])
    table[:] = np.frombuffer(planned.table, np.uint8)
    passed = arguments16(work, planned, arrays, tensor_map)
    named = zip(("Q", "K", "V", "table", "O", "LSE", "scratch"), (*parts[:3], table, *parts[3:5], scratch), strict=True)
    given = ("Q", "K", "V", "table")
    watched = [Watched(part.ctypes.data, part.nbytes, name not in given, name) for name, part in named if part.size]
    watched += [Watched(part.ctypes.data, part.nbytes, False, "an array of the score") for part in parts[6:]]
    steps = planned.launches
    if ENTRIES16[planned.variant].persistent:  # its blocks take tile after tile
        steps = tuple(step._replace(grid=min(step.grid, blocks)) for step in steps)
    finished, findings = library.launches(steps, passed, watched, schedule, lanes)
    return HalfOutcome(o, beside, lse, findings, finished, tuple(library.counts))


def matrix(array: Any) -> Matrix:
    """Where an array (batch, heads, rows, d) of NumPy's lies."""
    batch, head, row, _ = (stride // array.itemsize for stride in array.strides)
    return Matrix(array.ctypes.data, batch, head, row)


def placed(array: Any, memory: Any) -> Any:
    """An array of the same strides in other memory, which has as many bytes as there are from its first to its last."""
    low, size = ctypes_span(array)
    ctypes.memmove(memory.ctypes.data, low, size)
    return np.ndarray(array.shape, array.dtype, memory, array.ctypes.data - low, array.strides)


def ctypes_span(array: Any) -> tuple[int, int]:
    """An array's first address, and how many bytes lie from there to its end."""
    low, high = np.lib.array_utils.byte_bounds(array)
    return low, high - low

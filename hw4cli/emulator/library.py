"""A kernel for the CPU, loaded: launches with the arguments that a GPU gets, and what was found meanwhile."""

import ctypes
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from hw4cli.compute.launch import ABSMAX_BYTES, Matrix, arguments
from hw4cli.compute.plan import Plan
from hw4cli.emulator.report import Finding, Raw, findings_of
from hw4cli.problem.casefile import FLOAT32, Floats
from hw4cli.problem.shape import Shape

FORWARD, REVERSE, RANDOM = "forward", "reverse", "random"
ORDERS = (FORWARD, REVERSE, RANDOM)
GAP = 64 << 10  # bytes that nobody may touch, behind every matrix that is watched
ALIGNMENT = 512  # of a GPU's memory
MOST_FINDINGS = 100


class _Array(ctypes.Structure):
    _fields_ = [
        ("begin", ctypes.c_void_p),
        ("bytes", ctypes.c_uint64),
        ("writable", ctypes.c_uint32),
        ("written", ctypes.c_uint32),
        ("name", ctypes.c_char * 48),
    ]


class _Finding(ctypes.Structure):
    _fields_ = [
        ("kind", ctypes.c_char * 32),
        ("text", ctypes.c_char * 480),
        ("pc", ctypes.c_uint64 * 2),
        ("times", ctypes.c_uint32),
        ("block", ctypes.c_uint32),
    ]


class _Launch(ctypes.Structure):
    _fields_ = [
        ("kernel", ctypes.c_void_p),
        *((name, ctypes.c_uint32) for name in ("grid", "block", "shared", "lanes", "order", "seed", "absmax")),
        ("params", ctypes.c_uint64 * 64),
    ]


@dataclass(frozen=True)
class Schedule:
    """The order in which threads take turns."""

    order: str = FORWARD
    seed: int = 0


FORWARDS = Schedule()


@dataclass(frozen=True)
class Outcome:
    """What a plan has computed, NaN where nothing was written; what was found; and whether it came to its end."""

    o: Floats
    findings: tuple[Finding, ...]
    finished: bool


class Memory:
    """Arrays as a GPU has them: O and scratch, and Q, K and V of each batch; watched, with gaps between them."""

    def __init__(self, inputs: Floats, plan: Plan, watched: bool) -> None:
        self.n, _, self.N, self.d = inputs.shape
        gap, matrix = GAP if watched else 0, self.N * self.d * 4
        step = matrix + gap
        sizes = [3 * self.n * step, self.n * step, plan.scratch]
        starts = [gap]
        for size in sizes:
            starts.append(-(-(starts[-1] + size) // ALIGNMENT) * ALIGNMENT + gap)
        buffer = np.full(starts[-1] + ALIGNMENT, 0xFF, np.uint8)  # NaN
        self._buffer = buffer[-buffer.ctypes.data % ALIGNMENT :]
        inputs_at, outputs_at, self.scratch = (self._buffer.ctypes.data + start for start in starts[:3])
        for index, array in enumerate(inputs.reshape(3 * self.n, -1)):
            at = starts[0] + index * step
            self._buffer[at : at + matrix] = np.ascontiguousarray(array, FLOAT32).view(np.uint8)
        known = ABSMAX_BYTES if plan.finds_absmax else 0
        self._buffer[starts[2] : starts[2] + known] = 0
        self._outputs = self._buffer[starts[1] : starts[1] + sizes[1]].reshape(self.n, step)[:, :matrix]
        q, k, v = (Matrix(inputs_at + part * step, 3 * step // 4, 3 * step // 4, self.d) for part in range(3))
        self.matrices = q, k, v, Matrix(outputs_at, step // 4, step // 4, self.d)
        names = [f"{name} of batch {batch}" for batch in range(self.n) for name in "QKV"]
        arrays = [(inputs_at + i * step, matrix, False, True, name) for i, name in enumerate(names)]
        arrays += [(outputs_at + i * step, matrix, True, False, f"O of batch {i}") for i in range(self.n)]
        arrays += [(self.scratch, known, True, True, "absmax in scratch")] if known else []
        arrays += [(self.scratch + known, plan.scratch - known, True, False, "scratch")] if plan.scratch > known else []
        self.arrays = (
            [_Array(at, size, may, was, name.encode()) for at, size, may, was, name in arrays] if watched else []
        )

    def outputs(self) -> Floats:
        """O of all batches, copied."""
        return np.ascontiguousarray(self._outputs).view(FLOAT32).reshape(self.n, self.N, self.d)


def _words(params: bytes) -> Any:
    """A struct in the 512 bytes that a launch has for it."""
    return (ctypes.c_uint64 * 64).from_buffer_copy(params.ljust(512, b"\0"))


class Library:
    """A shared object that `build.shared_object` has made."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._library = ctypes.CDLL(str(path))
        self._stop = ctypes.c_int.in_dll(self._library, "hw4_stop")
        self._blocks = ctypes.c_uint64.in_dll(self._library, "hw4_blocks_done")

    def add_as(self, cc: int) -> None:
        """Let tensor cores add as those of a compute capability do, cutting off (docs/accuracy.md); 0, exactly."""
        self._library.hw4_adder(cc)

    def run(
        self,
        plan: Plan,
        inputs: Floats,
        lanes: int = 32,
        schedule: Schedule = FORWARDS,
        watched: bool = True,
    ) -> Outcome:
        """Run a plan's launches on inputs (n, 3, N, d); `watched`, with all the checks that the build has."""
        memory = Memory(inputs, plan, watched)
        self._library.hw4_watch((_Array * len(memory.arrays))(*memory.arrays), len(memory.arrays))
        shape = Shape(memory.n, memory.N, memory.d)
        params = _words(arguments(plan, shape, memory.matrices, memory.scratch))
        finished = True
        for step in plan.launches:
            kernel = ctypes.cast(getattr(self._library, step.symbol), ctypes.c_void_p)
            order = ORDERS.index(schedule.order)
            launch = _Launch(kernel, step.grid, step.block, step.shared, lanes, order, schedule.seed, False, params)
            status = self._library.hw4_launch(ctypes.byref(launch))
            if status == 3:
                raise MemoryError
            finished = finished and status == 0
            if not finished:
                break
        return Outcome(memory.outputs(), findings_of(self.path, self._findings()), finished)

    def stop(self) -> None:
        """End a launch that runs in another thread before its next block."""
        self._stop.value = 1

    @property
    def blocks_done(self) -> int:
        """How many blocks have run since the library was loaded."""
        return self._blocks.value

    def _findings(self) -> Sequence[Raw]:
        found: Any = (_Finding * MOST_FINDINGS)()
        count = self._library.hw4_findings(found, MOST_FINDINGS)
        return [Raw(x.kind.decode(), x.text.decode(), tuple(x.pc), x.times, x.block) for x in found[:count]]

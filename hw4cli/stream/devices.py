"""The devices that groups of batches stream through: a GPU, and the CPU."""

import math
import threading
import time
from collections.abc import Iterable
from contextlib import AbstractContextManager
from typing import Any

import numpy as np

from hw4cli.compute.dispatch import Choice, candidates
from hw4cli.compute.plan import Plan
from hw4cli.compute.variants import FALLBACK, VARIANTS
from hw4cli.device.gpu import Gpu
from hw4cli.problem.casefile import FLOAT32, Floats, absmax
from hw4cli.problem.shape import HEAD_SIZES, LENGTHS, AbsMax, Shape
from hw4cli.resources import is_own_kernel
from hw4cli.stream.scheduler import Bytes
from hw4cli.stream.tiled import tiled_attention
from hw4cli.stream.timeline import Timeline
from hw4cli.text.progress import Advance

BUDGET = 1 << 30  # bytes of GPU memory that slots may take together, unless a single one needs more


class CudaSlot:
    """Memory on the GPU for one group, and a CUDA stream for its copies and launches."""

    def __init__(self, device: "CudaDevice") -> None:
        gpu, shape = device.gpu, device.group
        self._device, self._cupy = device, gpu.cupy
        self._inputs = gpu.empty((shape.B, 3, shape.N, shape.d))
        self._outputs = gpu.empty((shape.B, shape.N, shape.d))
        self._largest: Any = None  # absmax of the last launch, on the GPU
        self._stream = gpu.cupy.cuda.Stream(non_blocking=True)
        self._began, self._ended = gpu.cupy.cuda.Event(), gpu.cupy.cuda.Event()

    def copy_in(self, buffer: Bytes, offset: int) -> None:
        """Copy a piece in, and wait for this copy alone."""
        runtime = self._cupy.cuda.runtime
        done = self._cupy.cuda.Event(disable_timing=True)
        to, size = self._inputs.data.ptr + offset, len(buffer)
        runtime.memcpyAsync(to, buffer.ctypes.data, size, runtime.memcpyHostToDevice, self._stream.ptr)
        done.record(self._stream)
        done.synchronize()

    def start(self, batches: int, kernel: str) -> None:
        """Launch the kernel, and the range check if the kernel has none of its own, after the copies."""
        plan, gpu = self._device.plan(kernel, batches), self._device.gpu
        inputs, outputs = self._inputs[:batches], self._outputs[:batches]
        with self._stream, gpu.translated_errors(plan, self._device.group):
            self._began.record()
            scratch = gpu.compute(plan, inputs, outputs)
            self._largest = gpu.absmax_of(plan, scratch, inputs)
            self._ended.record()

    def finish(self) -> AbsMax:
        """Wait for the kernel and fetch absmax."""
        with self._device.translated_errors():
            largest = self._largest.get(stream=self._stream).view(FLOAT32)
            self._device.note_kernel(self._cupy.cuda.get_elapsed_time(self._began, self._ended) / 1000)
        return float(largest[0]), float(largest[1]), float(largest[2])

    def copy_out(self, offset: int, buffer: Bytes) -> None:
        """Copy a part of the output out."""
        runtime, size = self._cupy.cuda.runtime, len(buffer)
        source = self._outputs.data.ptr + offset
        runtime.memcpyAsync(buffer.ctypes.data, source, size, runtime.memcpyDeviceToHost, self._stream.ptr)
        self._stream.synchronize()
        self._device.progress.add(size)


class CudaDevice:
    """The GPU with a kernel of the ladder or "auto", for groups of up to `group` batches.

    `choice` records which kernel computes a group. Raises MachineError if there is no such GPU.
    """

    def __init__(self, kernel: str, max_error: float | None, shape: Shape, group: int, timeline: Timeline) -> None:
        self.gpu = Gpu()
        self.group = shape.with_batches(group)
        self._timeline, self.progress = timeline, timeline.progress
        kernels, why = candidates(kernel, self.gpu.props, self.gpu.name, shape.d)
        self.choice = Choice(kernels, why, shape.d, shape.N, self.gpu.props, max_error)
        self._asked = kernel, max_error
        self.gpu.companions = self._companions
        with timeline("compile"):
            self._plan = self.plan(self.choice.first, group)
            while self.group.B > 1 and self._slot_bytes() > self._free_bytes():
                self.group = shape.with_batches(self.group.B // 2)
                self._plan = self.plan(self.choice.first, self.group.B)

    def _companions(self) -> Iterable[Plan]:
        """The plans that the assignment's other files start with on this GPU, if this file starts with one of them."""
        kernel, max_error = self._asked
        if is_own_kernel(kernel):  # which will soon be another one
            return []
        plans = []
        for shape in (Shape(1, N, d, self.group.causal) for d in HEAD_SIZES for N in LENGTHS):
            kernels, why = candidates(kernel, self.gpu.props, self.gpu.name, shape.d)
            first = Choice(kernels, why, shape.d, shape.N, self.gpu.props, max_error).first
            plans.append(VARIANTS[first].plan(shape, self.gpu.props))
        own = VARIANTS[self.choice.first].plan(self.group, self.gpu.props).options
        return plans if own in {plan.options for plan in plans} else []

    @property
    def batches(self) -> int:
        """The batches of a group: fewer than asked for where their scratch would not fit."""
        return self.group.B

    def plan(self, kernel: str, batches: int) -> Plan:
        """The launches of a kernel for so many batches."""
        return self.gpu.plan(kernel, self.group.with_batches(batches))

    def slot_count(self, wanted: int) -> int:
        """As many slots as are wanted and fit the budget, or one."""
        return max(1, min(wanted, self._free_bytes() // self._slot_bytes()))

    def _free_bytes(self) -> int:
        free: int = self.gpu.cupy.cuda.runtime.memGetInfo()[0]
        return min(BUDGET, free)

    def _slot_bytes(self) -> int:
        return 4 * 4 * self.group.elements + self._plan.scratch

    def buffer(self, size: int) -> Bytes:
        """Pinned memory: the GPU copies from and to it directly, five times as fast."""
        with self.translated_errors():
            memory = self.gpu.cupy.cuda.alloc_pinned_memory(size)
        return np.frombuffer(memory, np.uint8, size)

    def new_slot(self) -> CudaSlot:
        """A new slot; MachineError if the GPU has not enough memory."""
        with self.translated_errors():
            return CudaSlot(self)

    def finish(self) -> None:
        """Wait until the kernels for the next runs are compiled."""
        self.gpu.code.finish()

    def cancel(self) -> None:
        """A kernel that runs cannot be stopped."""

    def translated_errors(self) -> AbstractContextManager[None]:
        """A block in which cupy's errors become MachineErrors."""
        return self.gpu.translated_errors(self._plan, self.group)

    def note_kernel(self, seconds: float) -> None:
        """Record that a kernel ran for so long and ended now."""
        now = time.perf_counter()
        self._timeline.add("kernel", now - seconds, now)


class CpuSlot:
    """A group in the host's memory, computed by `finish`."""

    def __init__(self, device: "CpuDevice", group: Shape, timeline: Timeline) -> None:
        self._device = device
        self._inputs = np.empty((group.B, 3, group.N, group.d), FLOAT32)
        self._outputs = np.empty(0, np.uint8)
        self._batches, self._kernel, self._timeline = 0, "", timeline

    def copy_in(self, buffer: Bytes, offset: int) -> None:
        """Copy a piece to its place."""
        self._inputs.reshape(-1).view(np.uint8)[offset : offset + len(buffer)] = buffer

    def start(self, batches: int, kernel: str) -> None:
        """Remember what to compute: `finish`, in a writer's thread, has all cores for it."""
        self._batches, self._kernel = batches, kernel

    def finish(self) -> AbsMax:
        """Compute, unless absmax, found before, needs another kernel: then the caller starts that one."""
        block = self._inputs[: self._batches]
        largest = absmax(block)
        needed = self._device.choice.kernel_for(largest) if all(map(math.isfinite, largest)) else FALLBACK
        if needed == self._kernel:
            row_bytes = 4 * block.shape[3]
            with self._timeline("kernel"):
                result = self._device.attention(
                    block, self._kernel, lambda rows: self._timeline.progress.add(rows * row_bytes)
                )
            self._outputs = result.reshape(-1).view(np.uint8)
        return largest

    def copy_out(self, offset: int, buffer: Bytes) -> None:
        """Copy a part of the output."""
        buffer[:] = self._outputs[offset : offset + len(buffer)]


class CpuDevice:
    """The CPU, for groups of up to `group` batches. Two slots: one is read while the other is computed."""

    def __init__(self, choice: Choice, shape: Shape, group: int, timeline: Timeline) -> None:
        self.choice = choice
        self.cancelled = threading.Event()
        self._group, self._timeline = shape.with_batches(group), timeline

    @property
    def batches(self) -> int:
        """The batches of a group."""
        return self._group.B

    def slot_count(self, wanted: int) -> int:
        """At most two slots."""
        return min(2, wanted)

    def buffer(self, size: int) -> Bytes:
        """Plain memory."""
        return np.empty(size, np.uint8)

    def new_slot(self) -> CpuSlot:
        """A new slot."""
        return CpuSlot(self, self._group, self._timeline)

    def attention(self, block: Floats, kernel: str, advance: Advance) -> Floats:
        """O of a block (n, 3, N, d); `advance` is given the rows done. Raises CancelledError after `cancel`."""
        dtype = np.float64 if kernel == FALLBACK else np.float32
        return tiled_attention(block, dtype, self.cancelled, advance, self._group.causal)

    def finish(self) -> None:
        """There is nothing to wait for."""

    def cancel(self) -> None:
        """End a running computation within a tile's time."""
        self.cancelled.set()

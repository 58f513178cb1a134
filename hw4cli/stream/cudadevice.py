"""A GPU as a device that parts stream through."""

import os
import time
from collections.abc import Iterable
from contextlib import AbstractContextManager, suppress
from typing import Any

import numpy as np

from hw4cli.device.gpu import Gpu, cuda_message, import_cupy, kernel_of
from hw4cli.errors import MachineError
from hw4cli.plans.dispatch import AUTO, may_stand_in
from hw4cli.plans.ladder import VARIANTS
from hw4cli.plans.launch import ABSMAX_BYTES, Matrix, magnitudes
from hw4cli.plans.plan import Plan
from hw4cli.problem.casefile import FLOAT32
from hw4cli.problem.workload import Magnitudes, Workload
from hw4cli.resources import is_own_kernel
from hw4cli.stream.kernels import choice_for, finding_for, plans_of, plans_of_suite, shapes_of
from hw4cli.stream.layout import Bytes, Layout
from hw4cli.stream.timeline import Timeline, since_process_start
from hw4cli.stream.work import Part

BUDGET = 1 << 30  # bytes of GPU memory that slots may take together, unless a single one needs more
# A run that had to compile its kernel waits for those of the next runs until it is so old. It computes so much that its
# limit is 6 s at least: a smaller one does not compile (`is_ready` of Choice).
FIRST_RUN_SECONDS = 3.0


class CudaMemory:
    """Memory on a GPU, and a CUDA stream for copies to it and for launches."""

    def __init__(self, device: "CudaDevice", shape: tuple[int, ...]) -> None:
        self._device, self._cupy = device, device.gpu.cupy
        self.array = device.gpu.empty(shape)
        self._stream = self._cupy.cuda.Stream(non_blocking=True)

    def copy_in(self, buffer: Bytes, offset: int) -> None:
        """Copy a piece in, and wait for this copy alone."""
        runtime = self._cupy.cuda.runtime
        to, size = self.array.data.ptr + offset, len(buffer)
        with self._device.translated_errors():
            done = self._cupy.cuda.Event(disable_timing=True)
            runtime.memcpyAsync(to, buffer.ctypes.data, size, runtime.memcpyHostToDevice, self._stream.ptr)
            done.record(self._stream)
            done.synchronize()


class CudaSlot(CudaMemory):
    """Memory on the GPU for one part."""

    def __init__(self, device: "CudaDevice") -> None:
        shape = device.group
        one = (shape.Nq, shape.d)
        super().__init__(device, one if device.by_rows else (shape.B, 3, *one))
        self._outputs = device.gpu.empty((shape.B, *one))
        self._largest = device.buffer(ABSMAX_BYTES)  # what the last launch found
        self._began, self._ended = self._cupy.cuda.Event(), self._cupy.cuda.Event()

    def start(self, part: Part, kernel: str, keys: Any) -> None:
        """Launch the kernel, and the range check if the kernel has none of its own, after the copies; what they find
        goes to pinned memory: for a copy to any other, the driver would wait for the kernel, and let no thread's copies
        in until then."""
        plan, gpu, runtime = self._device.plan(kernel, part), self._device.gpu, self._cupy.cuda.runtime
        with self._stream, gpu.translated_errors(plan, self._device.group):
            self._began.record()
            if keys is None:
                inputs, outputs = self.array[: part.batches], self._outputs[: part.batches]
                scratch = gpu.compute(plan, inputs, outputs)
                found = gpu.absmax_of(plan, scratch, inputs)
            else:
                shape = self._device.shape_of(part)
                addresses = (self.array, keys.array[0], keys.array[1], self._outputs)
                q, k, v, o = (Matrix(array.data.ptr, 0, 0, shape.d) for array in addresses)
                scratch = gpu.launch(plan, shape, (q, k, v, o), part.row)
                found = gpu.absmax_of(plan, scratch, self.array[: part.rows], keys.array)
            self._ended.record()
            to, size = self._largest.ctypes.data, self._largest.nbytes
            runtime.memcpyAsync(to, found.data.ptr, size, runtime.memcpyDeviceToHost, self._stream.ptr)

    def finish(self) -> Magnitudes:
        """Wait for the kernel, and for what it found."""
        with self._device.translated_errors():
            self._stream.synchronize()
            self._device.note_kernel(self._cupy.cuda.get_elapsed_time(self._began, self._ended) / 1000)
        return magnitudes(self._largest.view(FLOAT32).tolist())

    def copy_out(self, offset: int, buffer: Bytes) -> None:
        """Copy a part of the output out."""
        runtime, size = self._cupy.cuda.runtime, len(buffer)
        source = self._outputs.data.ptr + offset
        with self._device.translated_errors():
            runtime.memcpyAsync(buffer.ctypes.data, source, size, runtime.memcpyDeviceToHost, self._stream.ptr)
            self._stream.synchronize()
        self._device.progress.add(size)


class CudaDevice:
    """A GPU with a kernel of the ladder or "auto", for groups of batches, or ranges of rows, as a layout has them.

    `choice` records which kernel computes a part. With "auto", a small file is computed by kernels that are compiled
    already, or by the one that compiles the fastest; but not where others compute parts of the same file (`alone` is
    False): they might have other kernels. Raises MachineError if there is no such GPU.
    """

    def __init__(
        self,
        kernel: str,
        max_error: float | None,
        shape: Workload,
        layout: Layout,
        timeline: Timeline,
        number: int = 0,
        alone: bool = True,
    ) -> None:
        self._cupy, self._number = import_cupy(), number
        self.use()
        self.gpu = Gpu()
        self.by_rows = layout.rows < shape.N
        self.group = (
            Workload.one_head(1, shape.N, shape.d, shape.causal, layout.rows)
            if self.by_rows
            else shape.with_batches(layout.group)
        )
        self._timeline, self.progress = timeline, timeline.progress
        self._tuned = finding_for(shape, layout, self.gpu) if kernel == AUTO else None
        self.choice = choice_for(kernel, max_error, shape, self.gpu.props, self.gpu.name, self._tuned)
        self._asked = kernel, max_error
        self._shapes = shapes_of(shape, layout)
        if kernel == AUTO and alone and may_stand_in(shape):
            self.choice.is_ready = self._is_ready
        else:
            self.gpu.companions = self._companions
        with timeline("compile"):
            self._plan = self._planned(self.choice.first, self.group)
            while self.group.B > 1 and self._slot_bytes() > self._free_bytes():
                self.group = shape.with_batches(self.group.B // 2)
                self._plan = self._planned(self.choice.first, self.group)
        if self.choice.first != self.choice.preferred and somebody_watches():
            self._compile_apart()

    def _own_plans(self, kernel: str) -> Iterable[Plan]:
        return plans_of(kernel, self._shapes, self.gpu.props, self._tuned)

    def _is_ready(self, kernel: str) -> bool:
        """Whether a kernel is compiled for all parts of the file."""
        try:
            return all(map(self.gpu.code.is_kept, {kernel_of(plan) for plan in self._own_plans(kernel)}))
        except MachineError:
            return False

    def _compile_apart(self) -> None:
        """Have the kernels that were missing compiled for the next runs, this file's first."""
        plans = *self._own_plans(self.choice.preferred), *self._companions()
        if kernels := self.gpu.code.missing(map(kernel_of, plans)):  # none where nothing is kept
            with suppress(OSError):
                self.gpu.code.start(*kernels, apart=True)

    def use(self) -> None:
        """Make this GPU the current one of this thread."""
        if not self._number:  # the first GPU is every thread's at first
            return
        try:
            self._cupy.cuda.Device(self._number).use()
        except self._cupy.cuda.runtime.CUDARuntimeError as error:
            raise MachineError(f"the GPU cannot be used: {cuda_message(error)}") from None

    def _companions(self) -> Iterable[Plan]:
        """The plans that the assignment's other files start with on this GPU, if this file starts with one of them."""
        kernel, max_error = self._asked
        if is_own_kernel(kernel):  # which will soon be another one
            return []
        plans = [*plans_of_suite(kernel, max_error, self.gpu.props, self.gpu.name, self.group.causal)]
        own = VARIANTS[self.choice.preferred].plan(self.group, self.gpu.props).options
        return plans if own in {plan.options for plan in plans} else []

    @property
    def batches(self) -> int:
        """The batches of a group: fewer than asked for where their scratch would not fit."""
        return self.group.B

    def shape_of(self, part: Part) -> Workload:
        """What a part computes."""
        if self.by_rows:
            return Workload.one_head(1, self.group.N, self.group.d, self.group.causal, part.rows)
        return self.group.with_batches(part.batches)

    def plan(self, kernel: str, part: Part) -> Plan:
        """The launches of a kernel for a part."""
        return self._planned(kernel, self.shape_of(part))

    def _planned(self, kernel: str, shape: Workload) -> Plan:
        """The launches of a kernel, with the tile that was tuned, if one was."""
        return self.gpu.plan(kernel, shape, self._tuned.tiles.get(kernel) if self._tuned else None)

    def slot_count(self, wanted: int) -> int:
        """As many slots as are wanted and fit the budget, or one; of ranges of rows, two at least."""
        if self.by_rows:
            return min(wanted, 2 if self._free_bytes() < wanted * self._slot_bytes() else wanted)
        return max(1, min(wanted, self._free_bytes() // self._slot_bytes()))

    def key_count(self, wanted: int) -> int:
        """As many as are wanted and leave memory for two slots, or one."""
        free: int = self.gpu.cupy.cuda.runtime.memGetInfo()[0] - 2 * self._slot_bytes()
        return max(1, min(wanted, free // (2 * 4 * self.group.N * self.group.d)))

    def _free_bytes(self) -> int:
        free: int = self.gpu.cupy.cuda.runtime.memGetInfo()[0]
        return min(BUDGET, free)

    def _slot_bytes(self) -> int:
        matrices = 2 if self.by_rows else 4
        return matrices * 4 * self.group.B * self.group.Nq * self.group.d + self._plan.scratch

    def buffer(self, size: int) -> Bytes:
        """Pinned memory: the GPU copies from and to it directly, five times as fast."""
        with self.translated_errors():
            memory = self.gpu.cupy.cuda.alloc_pinned_memory(size)
        return np.frombuffer(memory, np.uint8, size)

    def new_slot(self) -> CudaSlot:
        """A new slot; MachineError if the GPU has not enough memory."""
        with self.translated_errors():
            return CudaSlot(self)

    def new_keys(self) -> CudaMemory:
        """Memory for K and V of one batch; MachineError if the GPU has not enough."""
        with self.translated_errors():
            return CudaMemory(self, (2, self.group.N, self.group.d))

    def finish(self) -> None:
        """Wait until the kernels for the next runs are compiled."""
        self.gpu.code.finish(FIRST_RUN_SECONDS - since_process_start())

    def cancel(self) -> None:
        """A kernel that runs cannot be stopped."""

    def translated_errors(self) -> AbstractContextManager[None]:
        """A block in which cupy's errors become MachineErrors."""
        return self.gpu.translated_errors(self._plan, self.group)

    def note_kernel(self, seconds: float) -> None:
        """Record that a kernel ran for so long and ended now."""
        now = time.perf_counter()
        self._timeline.add("kernel", now - seconds, now)


def somebody_watches() -> bool:
    """Whether the run was started by hand, at a terminal outside of a batch system: then a process may outlive it.

    A judge, a script that reads the output, a job's step may wait for all processes, or end them, or time the next run.
    """
    return all(map(os.isatty, (0, 1, 2))) and "SLURM_JOB_ID" not in os.environ

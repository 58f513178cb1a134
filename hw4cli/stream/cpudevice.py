"""The CPU as a device that parts stream through."""

import threading
from typing import Any

import numpy as np

from hw4cli.plans.dispatch import Choice
from hw4cli.plans.ladder import FALLBACK
from hw4cli.problem.casefile import FLOAT32, Floats, magnitudes_of, magnitudes_of_parts
from hw4cli.problem.workload import Magnitudes, Workload
from hw4cli.stream.layout import Bytes, Layout
from hw4cli.stream.tiled import tiled_attention, tiled_rows
from hw4cli.stream.timeline import Timeline
from hw4cli.stream.work import Part
from hw4cli.text.progress import Advance


class CpuMemory:
    """Arrays in the host's memory."""

    def __init__(self, shape: tuple[int, ...]) -> None:
        self.array = np.empty(shape, FLOAT32)

    def copy_in(self, buffer: Bytes, offset: int) -> None:
        """Copy a piece to its place."""
        self.array.reshape(-1).view(np.uint8)[offset : offset + len(buffer)] = buffer


class CpuSlot(CpuMemory):
    """A part in the host's memory, computed by `finish`."""

    def __init__(self, device: "CpuDevice", shape: tuple[int, ...], timeline: Timeline) -> None:
        super().__init__(shape)
        self._device, self._timeline = device, timeline
        self._outputs = np.empty(0, np.uint8)
        self._part, self._kernel = Part(0, 0, 0, 0), ""
        self._keys: CpuMemory | None = None

    def start(self, part: Part, kernel: str, keys: Any) -> None:
        """Remember what to compute: `finish`, in a writer's thread, has all cores for it."""
        self._part, self._kernel, self._keys = part, kernel, keys

    def finish(self) -> Magnitudes:
        """Compute, unless what is found before needs another kernel: then the caller starts that one."""
        part, keys = self._part, self._keys
        block = self.array[: part.rows if keys else part.batches]
        largest = magnitudes_of_parts(block, *keys.array) if keys else magnitudes_of(block)
        needed = self._device.choice.kernel_for(largest) if largest.finite else FALLBACK
        if needed == self._kernel:
            row_bytes = 4 * block.shape[-1]
            with self._timeline("kernel"):
                advance = lambda rows: self._timeline.progress.add(rows * row_bytes)  # noqa: E731
                if keys:
                    result = self._device.attention_of_rows(block, keys.array, part.row, self._kernel, advance)
                else:
                    result = self._device.attention(block, self._kernel, advance)
            self._outputs = result.reshape(-1).view(np.uint8)
        return largest

    def copy_out(self, offset: int, buffer: Bytes) -> None:
        """Copy a part of the output."""
        buffer[:] = self._outputs[offset : offset + len(buffer)]


class CpuDevice:
    """The CPU, for groups of batches, or ranges of rows, as a layout has them. Two slots: one is read while the other
    is computed."""

    def __init__(self, choice: Choice, shape: Workload, layout: Layout, timeline: Timeline) -> None:
        self.choice = choice
        self.cancelled = threading.Event()
        self._shape, self._timeline, self._layout = shape, timeline, layout

    @property
    def batches(self) -> int:
        """The batches of a group."""
        return self._layout.group

    def use(self) -> None:
        """Any thread may."""

    def slot_count(self, wanted: int) -> int:
        """At most two slots."""
        return min(2, wanted)

    def key_count(self, wanted: int) -> int:
        """As many as are wanted."""
        return wanted

    def buffer(self, size: int) -> Bytes:
        """Plain memory."""
        return np.empty(size, np.uint8)

    def new_slot(self) -> CpuSlot:
        """A new slot."""
        shape = self._shape
        rows = self._layout.rows
        return CpuSlot(self, (rows, shape.d) if rows < shape.N else (self.batches, 3, shape.N, shape.d), self._timeline)

    def new_keys(self) -> CpuMemory:
        """Memory for K and V of one batch."""
        return CpuMemory((2, self._shape.N, self._shape.d))

    def attention(self, block: Floats, kernel: str, advance: Advance) -> Floats:
        """O of a block (n, 3, N, d); `advance` is given the rows done. Raises CancelledError after `cancel`."""
        return tiled_attention(block, _wide(kernel), self.cancelled, advance, self._shape.causal)

    def attention_of_rows(self, queries: Floats, keys: Floats, first: int, kernel: str, advance: Advance) -> Floats:
        """The same of some rows of Q (rows, d), from the row `first` on, with K and V (2, N, d)."""
        offset = first if self._shape.causal else None
        return tiled_rows(queries[None], keys[:1], keys[1:], _wide(kernel), self.cancelled, advance, offset)

    def finish(self) -> None:
        """There is nothing to wait for."""

    def cancel(self) -> None:
        """End a running computation within a tile's time."""
        self.cancelled.set()


def _wide(kernel: str) -> Any:
    return np.float64 if kernel == FALLBACK else np.float32

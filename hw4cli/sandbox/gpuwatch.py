"""Memory, clock and other users of the GPU while a program runs, as the driver (NVML, or AMD's in /sys) reports them.

NVML needs the package nvidia-ml-py; without it, or without a GPU, all values are None. AMD's driver does not name other
users and throttling to everyone.
"""

import statistics
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from hw4cli.system import amd, nvidia
from hw4cli.system.nvidia import THROTTLE_BITS, query_nvml

PERIOD = 0.1  # seconds between two samples: each costs the driver some time


@dataclass
class GpuUsage:
    """The use of the GPU during a run; None is unknown. `memory`: the peak in bytes, less what was in use before;
    `clock`: the median of the multiprocessors' clock in MHz; `note`: what may have disturbed the run; `absent`: the
    program said that there is no GPU, and this machine indeed has none for it."""

    memory: int | None = None
    clock: int | None = None
    note: str | None = None
    absent: bool = False


@contextmanager
def watch_gpu(env: Mapping[str, str]) -> Iterator[GpuUsage]:
    """Sample the GPU in a thread while the block runs; the values are set when the block has ended."""
    usage = GpuUsage()
    gpu = nvidia.first_visible(env)
    handle = _handle(gpu.uuid) if gpu else None
    other = None if gpu else amd.first_visible(env)
    others = 0
    if gpu is not None and handle is not None:
        others = query_nvml(lambda nvml: len(nvml.nvmlDeviceGetComputeRunningProcesses(handle))) or 0
        sampler = _Sampler(_Nvml(handle, _handle(gpu.whole) if gpu.whole else handle))
    elif other is not None:
        sampler = _Sampler(_Amd(other))
    else:
        yield usage
        return
    sampler.start()
    try:
        yield usage
    finally:
        sampler.stop()
        sampler.summarize(usage, others)


class _Nvml:
    """What NVML says of a GPU now. NVML's calls release Python's lock."""

    def __init__(self, handle: Any, physical: Any) -> None:
        self._handle, self._physical = handle, physical  # a MIG instance has memory of its own, but no clock

    def memory(self) -> int | None:
        used = query_nvml(lambda nvml: nvml.nvmlDeviceGetMemoryInfo(self._handle).used)
        return None if used is None else int(used)

    def clock(self) -> int | None:
        clock = query_nvml(lambda nvml: nvml.nvmlDeviceGetClockInfo(self._physical, nvml.NVML_CLOCK_SM))
        return None if clock is None else int(clock)

    def throttled(self) -> int:
        return query_nvml(lambda nvml: nvml.nvmlDeviceGetCurrentClocksThrottleReasons(self._physical)) or 0


class _Amd:
    """The same of a GPU of AMD's."""

    def __init__(self, gpu: amd.AmdGpu) -> None:
        self._gpu = gpu

    def memory(self) -> int | None:
        return self._gpu.memory_used

    def clock(self) -> int | None:
        return self._gpu.clock

    def throttled(self) -> int:
        return 0


class _Sampler:
    """A thread that samples a GPU."""

    def __init__(self, gpu: _Nvml | _Amd) -> None:
        self._gpu = gpu
        self._done = threading.Event()
        self._thread = threading.Thread(target=self._sample, daemon=True)
        self._before: int | None = gpu.memory()
        self._memory: list[int] = []
        self._clocks: list[int] = []
        self._throttled = 0

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self._done.set()
        self._thread.join(timeout=5)

    def _sample(self) -> None:
        while not self._done.wait(PERIOD):
            used, clock = self._gpu.memory(), self._gpu.clock()
            self._throttled |= self._gpu.throttled()
            if used is not None:
                self._memory.append(used)
            if clock is not None:
                self._clocks.append(clock)

    def summarize(self, usage: GpuUsage, others: int) -> None:
        if self._memory and self._before is not None:
            usage.memory = max(0, max(self._memory) - self._before)
        if self._clocks:
            usage.clock = round(statistics.median(self._clocks))
        notes = [f"{others} other process{'es were' if others > 1 else ' was'} on the GPU"] if others else []
        why = [name for bit, name in THROTTLE_BITS.items() if self._throttled & bit]
        notes += [f"the GPU's clock was throttled: {', '.join(why)}"] if why else []
        usage.note = "; ".join(notes) or None


def _handle(uuid: str) -> Any:
    """NVML's handle of a GPU or MIG instance; None if NVML does not know it."""
    return query_nvml(lambda nvml: nvml.nvmlDeviceGetHandleByUUID(uuid))

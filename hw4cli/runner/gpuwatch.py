"""The GPU while a program runs on it: what the driver (NVML) tells of it meanwhile.

NVML needs the package nvidia-ml-py; without it, or without a GPU, nothing is told, and nothing breaks.
"""

import statistics
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from hw4cli.system import nvidia
from hw4cli.system.nvidia import THROTTLE_BITS, ask

PERIOD = 0.1  # seconds between two looks at the GPU: each takes the driver a moment


@dataclass
class Sight:
    """What was seen of the GPU during a run; None is not seen. Memory in bytes, above what was in use before; the
    median clock of the multiprocessors in MHz; `note` tells what may have disturbed the run."""

    memory: int | None = None
    clock: int | None = None
    note: str | None = None


@contextmanager
def watched(env: Mapping[str, str]) -> Iterator[Sight]:
    """Look at the GPU from a thread while the block runs; what was seen is complete when the block has ended."""
    sight = Sight()
    gpu = nvidia.first_visible(env)
    handle = _handle(gpu.uuid) if gpu else None
    if gpu is None or handle is None:
        yield sight
        return
    others = ask(lambda nvml: len(nvml.nvmlDeviceGetComputeRunningProcesses(handle))) or 0
    looks = _Looks(handle, _handle(gpu.whole) if gpu.whole else handle)
    looks.start()
    try:
        yield sight
    finally:
        looks.stop()
        looks.tell(sight, others)


class _Looks:
    """A thread's looks at a GPU. NVML's calls let other threads run."""

    def __init__(self, handle: Any, whole: Any) -> None:
        self._handle, self._whole = handle, whole  # a part of a GPU has memory of its own, and no clock
        self._done = threading.Event()
        self._thread = threading.Thread(target=self._work, daemon=True)
        self._before: int | None = self._used()
        self._memory: list[int] = []
        self._clocks: list[int] = []
        self._throttled = 0

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self._done.set()
        self._thread.join(timeout=5)

    def _used(self) -> int | None:
        used = ask(lambda nvml: nvml.nvmlDeviceGetMemoryInfo(self._handle).used)
        return None if used is None else int(used)

    def _work(self) -> None:
        while not self._done.wait(PERIOD):
            used = self._used()
            clock = ask(lambda nvml: nvml.nvmlDeviceGetClockInfo(self._whole, nvml.NVML_CLOCK_SM))
            self._throttled |= ask(lambda nvml: nvml.nvmlDeviceGetCurrentClocksThrottleReasons(self._whole)) or 0
            if used is not None:
                self._memory.append(used)
            if clock is not None:
                self._clocks.append(int(clock))

    def tell(self, sight: Sight, others: int) -> None:
        if self._memory and self._before is not None:
            sight.memory = max(0, max(self._memory) - self._before)
        if self._clocks:
            sight.clock = round(statistics.median(self._clocks))
        notes = [f"{others} other process{'es were' if others > 1 else ' was'} on the GPU"] if others else []
        why = [name for bit, name in THROTTLE_BITS.items() if self._throttled & bit]
        notes += [f"the GPU's clock was held down: {', '.join(why)}"] if why else []
        sight.note = "; ".join(notes) or None


def _handle(uuid: str) -> Any:
    """NVML's handle of a GPU, or a part of one; None if it does not know it."""
    return ask(lambda nvml: nvml.nvmlDeviceGetHandleByUUID(uuid))

"""Power and clock of a GPU while it works, by a thread that asks NVML: an answer may take 50 ms, and work goes on."""

import statistics
import threading
import time
from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Any

SETTLING = 0.25  # seconds of work until its power is steady
PAUSE = 0.002  # between two questions
CLOCK_EVERY = 8  # questions about energy, one is about the clock
Ask = Callable[[Callable[[Any, Any], Any]], Any]  # asks NVML about a GPU; None where it does not answer


class PowerMeter:
    """A with-block during which the GPU's counter of energy and its clock are read, again and again."""

    def __init__(self, ask: Ask) -> None:
        self._ask, self._ended = ask, threading.Event()
        self._readings, self._clocks = list[tuple[float, int]](), list[int]()
        self._thread = threading.Thread(target=self._watch, daemon=True)

    def __enter__(self) -> "PowerMeter":
        if self._ask(_energy) is not None:  # asked here first: CUDA's current device is that of a thread
            self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        if self._thread.ident is not None:
            self._thread.join()

    def _watch(self) -> None:
        began = time.monotonic()
        for turn in range(1 << 30):
            energy = self._ask(_energy)
            if energy is None:
                return
            self._readings.append((time.monotonic() - began, energy))
            if turn % CLOCK_EVERY == 0 and (clock := self._ask(_sm_clock)):
                self._clocks.append(clock)
            if self._ended.wait(PAUSE):
                return

    @property
    def watts(self) -> float | None:
        """The mean power; None if NVML does not count energy."""
        return mean_watts(self._readings)

    @property
    def sm_mhz(self) -> float | None:
        """The mean clock of the multiprocessors."""
        return statistics.fmean(self._clocks) if self._clocks else None


def mean_watts(readings: Sequence[tuple[float, int]]) -> float | None:
    """The mean power by readings of a counter of energy, each (seconds since work began, millijoules).

    The counter moves in steps, some 20 to 100 ms apart: a line is fitted to the readings that show a new value, after
    SETTLING seconds, when power is what the work takes. None if there are fewer than three.
    """
    steps = [after for before, after in pairwise(readings) if after[1] != before[1] and after[0] > SETTLING]
    if len(steps) < 3:
        return None
    times, energies = zip(*steps, strict=True)
    return statistics.linear_regression(times, energies).slope / 1000


def _energy(nvml: Any, handle: Any) -> int:
    """Millijoules since the driver was loaded."""
    return int(nvml.nvmlDeviceGetTotalEnergyConsumption(handle))


def _sm_clock(nvml: Any, handle: Any) -> int:
    return int(nvml.nvmlDeviceGetClockInfo(handle, nvml.NVML_CLOCK_SM))

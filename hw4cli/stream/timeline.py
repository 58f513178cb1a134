"""When each stage of a run was at work, which stages overlapped, and the progress of the output."""

import os
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

from hw4cli.system.owner import start_ticks
from hw4cli.text.progress import Progress

BAR, SHORTEST_BAR = 50, 10  # characters of the timeline


class Timeline:
    """Records when each stage was at work: `with timeline("read"): ...`, from any thread, as often as it comes up."""

    def __init__(self) -> None:
        self.origin = time.perf_counter()
        self.progress = Progress()  # in bytes of output
        self.spans: dict[str, list[tuple[float, float]]] = {}
        self._lock = threading.Lock()

    @contextmanager
    def __call__(self, stage: str) -> Iterator[None]:
        """Record the with-block's time for a stage."""
        start = time.perf_counter()
        try:
            yield
        finally:
            self.add(stage, start, time.perf_counter())

    def add(self, stage: str, start: float, end: float) -> None:
        """Record a span of time.perf_counter for a stage."""
        with self._lock:
            self.spans.setdefault(stage, []).append((start, end))

    def started(self, stage: str) -> None:
        """Record the time from the process's start until now as the first stage, and count from there."""
        now = time.perf_counter()
        self.origin = now - since_process_start()
        self.spans = {stage: [(self.origin, now)], **self.spans}

    def table(self, width: int | None = None) -> str:
        """A line a stage: how long and when it was at work; then the total. The bar takes the rest of `width`, and is
        left out where that is too narrow."""
        total = time.perf_counter() - self.origin
        columns = BAR if width is None else min(BAR, width - len(f"{'':<9} {0:8.3f} s  ||"))
        lines = []
        for stage, spans in self.spans.items():
            merged = union(spans)
            busy = sum(end - start for start, end in merged)
            bar = f"  {self._bar(merged, total, columns)}" if columns >= SHORTEST_BAR else ""
            lines.append(f"{stage:<9} {busy:8.3f} s{bar}")
        return "\n".join([*lines, f"{'total':<9} {total:8.3f} s"])

    def _bar(self, spans: list[tuple[float, float]], total: float, columns: int) -> str:
        cells = [" "] * columns
        for start, end in spans:
            first, last = (int((moment - self.origin) / total * columns) for moment in (start, end))
            for cell in range(max(0, first), min(columns - 1, last) + 1):
                cells[cell] = "█"
        return f"|{''.join(cells)}|"


def union(spans: list[tuple[float, float]]) -> list[tuple[float, float]]:
    """Spans as the fewest that cover the same time, in order."""
    merged: list[tuple[float, float]] = []
    for start, end in sorted(spans):
        if merged and start <= merged[-1][1]:
            merged[-1] = (merged[-1][0], max(merged[-1][1], end))
        else:
            merged.append((start, end))
    return merged


def since_process_start() -> float:
    """Seconds since the kernel started this process, the interpreter's own start included (to 10 ms)."""
    started = (start_ticks(os.getpid()) or 0) / os.sysconf("SC_CLK_TCK")
    return time.clock_gettime(time.CLOCK_BOOTTIME) - started

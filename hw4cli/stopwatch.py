"""Where the seconds of a run went, stage by stage."""

import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


class Stopwatch:
    """Adds up seconds per stage: `with watch("read"): ...`, as often as a stage comes up."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}

    @contextmanager
    def __call__(self, stage: str) -> Iterator[None]:
        """Add the time of the with-block to a stage."""
        start = time.perf_counter()
        try:
            yield
        finally:
            self.add(stage, time.perf_counter() - start)

    def add(self, stage: str, seconds: float) -> None:
        """Add seconds to a stage."""
        self.seconds[stage] = self.seconds.get(stage, 0.0) + seconds

    def table(self) -> str:
        """One line a stage, and the total."""
        rows = [*self.seconds.items(), ("total", sum(self.seconds.values()))]
        return "\n".join(f"{stage:<9} {seconds:8.3f} s" for stage, seconds in rows)


def since_process_start() -> float:
    """Seconds since the kernel started this process, the interpreter's own start included (to 10 ms)."""
    stat = Path("/proc/self/stat").read_text(encoding="utf-8", errors="replace")
    # The name in field 2 may hold blanks; starttime is field 22, counted from field 3 behind the name.
    started = int(stat.rpartition(")")[2].split()[19]) / os.sysconf("SC_CLK_TCK")
    return time.clock_gettime(time.CLOCK_BOOTTIME) - started

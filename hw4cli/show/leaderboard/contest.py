"""What a board is about: the workload that is computed, which pass of it, and whether kernels or programs are timed."""

import re
from dataclasses import dataclass
from typing import Any

from hw4cli.problem import suite
from hw4cli.problem.workload import FLOAT32, Workload

KERNEL, PROGRAM = "kernel", "program"  # what is timed: the GPU's time of a kernel, the wall time of a process
FORWARD, BACKWARD, BOTH = "forward", "backward", "forward+backward"
WORD = re.compile(r"[\w+]{1,20}")  # of a type or a pass


@dataclass(frozen=True)
class Contest:
    """A workload of as many keys as rows, and a head of K and V for each of Q. The defaults are what hw4 computes."""

    work: Workload
    direction: str = FORWARD
    timed: str = KERNEL

    @classmethod
    def of(
        cls,
        batch: int,
        N: int,
        d: int,
        heads: int = 1,
        dtype: str = FLOAT32,
        causal: bool = False,
        direction: str = FORWARD,
        timed: str = KERNEL,
    ) -> "Contest":
        """That of `record`'s fields."""
        return cls(Workload.square(dtype, batch, heads, N, d, causal), direction, timed)

    def record(self) -> dict[str, Any]:
        """As a line of a leaderboard holds it."""
        work = self.work
        sizes = {"batch": work.batch, "N": work.N, "d": work.d, "heads": work.heads}
        kind = {"dtype": work.dtype, "causal": work.causal}
        return {**sizes, **kind, "direction": self.direction, "timed": self.timed}

    @property
    def words(self) -> str:
        """As a heading: "t28 (4, 16384, 64) float32", "(4, 64, 8192, 128) float16, causal"."""
        work = self.work
        sizes = [work.batch, *[work.heads] * (work.heads > 1), work.N, work.d]
        shape = f"({', '.join(map(str, sizes))}) {work.dtype}"
        extra = ["causal"] * work.causal + [self.direction] * (self.direction != FORWARD)
        return ", ".join([f"{self.case} {shape}" if self.case else shape, *extra])

    @property
    def axes(self) -> str:
        """What the sizes in `words` are."""
        return "(batches, heads, N, d)" if self.work.heads > 1 else "(B, N, d)"

    @property
    def case(self) -> str | None:
        """The first case of the suite that is this workload."""
        return next((case.name for case in suite.cases().values() if self.is_of(case.shape)), None)

    @property
    def is_of_files(self) -> bool:
        """Whether files are computed, by kernels of float32 without a mask; else arrays."""
        return (self.work.dtype, self.work.causal, self.direction) == (FLOAT32, False, FORWARD)

    def is_of(self, shape: Workload) -> bool:
        """Whether a file of this shape is computed."""
        return self.is_of_files and self.work.heads == 1 and self.work.sizes == shape.sizes

    def tflops(self, milliseconds: float) -> float | None:
        """The rate of a kernel's forward pass, by the field's count of operations; else None."""
        if self.direction != FORWARD or self.timed != KERNEL:
            return None
        return self.work.flops / milliseconds / 1e9

"""What a board is about: the problem that is solved, and whether kernels or whole programs are timed."""

import re
from dataclasses import dataclass

from hw4cli.problem import suite
from hw4cli.problem.shape import Shape

KERNEL, PROGRAM = "kernel", "program"  # what is timed: the GPU's time of a kernel, the wall time of a process
FORWARD, BOTH = "forward", "forward+backward"
FLOAT32 = "float32"
WORD = re.compile(r"[\w+]{1,20}")  # of a type or a pass


@dataclass(frozen=True)
class Workload:
    """Attention of `batch` times `heads` matrices of N rows and d columns. The defaults are what hw4 computes."""

    batch: int
    N: int
    d: int
    heads: int = 1
    dtype: str = FLOAT32
    causal: bool = False
    direction: str = FORWARD
    timed: str = KERNEL

    @classmethod
    def of(cls, shape: Shape, timed: str) -> "Workload":
        """The workload of a case's shape."""
        return cls(shape.B, shape.N, shape.d, timed=timed)

    @property
    def words(self) -> str:
        """As a heading: "t28 (4, 16384, 64) float32", "(4, 64, 8192, 128) float16, causal"."""
        sizes = [self.batch, *[self.heads] * (self.heads > 1), self.N, self.d]
        shape = f"({', '.join(map(str, sizes))}) {self.dtype}"
        extra = ["causal"] * self.causal + [self.direction] * (self.direction != FORWARD)
        return ", ".join([f"{self.case} {shape}" if self.case else shape, *extra])

    @property
    def axes(self) -> str:
        """What the sizes in `words` are."""
        return "(batches, heads, N, d)" if self.heads > 1 else "(B, N, d)"

    @property
    def case(self) -> str | None:
        """The first case of the suite that is this workload."""
        if self.heads > 1 or not self.is_runnable:
            return None
        own = Shape(self.batch, self.N, self.d)
        return next((case.name for case in suite.cases().values() if case.shape == own), None)

    @property
    def is_runnable(self) -> bool:
        """Whether hw4 can run submissions on it."""
        return (self.dtype, self.causal, self.direction) == (FLOAT32, False, FORWARD)

    def tflops(self, milliseconds: float) -> float | None:
        """The rate of a kernel's forward pass, by 4·B·N²·d operations, or half of them if causal; else None."""
        if self.direction != FORWARD or self.timed != KERNEL:
            return None
        flops = Shape(self.batch * self.heads, self.N, self.d).flops / (2 if self.causal else 1)
        return flops / milliseconds / 1e9

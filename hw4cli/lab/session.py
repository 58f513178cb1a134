"""A session of measurements on one GPU, of files or of arrays, and its record: `hw4 bench` and `hw4cli.bench`."""

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from typing import Any

from hw4cli.device.gpu import Gpu
from hw4cli.device.timing import GpuTimer
from hw4cli.errors import Hw4Error, InputError
from hw4cli.lab.arrays.named import workload
from hw4cli.lab.cases import CONVENTIONS, MEMORY, PASSES, ArrayCase, FileCase
from hw4cli.lab.contender import Case, Contender, KernelResult, compile_side_by_side, measure
from hw4cli.lab.kernels import (
    GRADIENT_KERNELS,
    KERNELS,
    ArrayKernel,
    FileKernel,
    GradientKernel,
    computes_gradients,
    takes,
)
from hw4cli.lab.peers import check_peers, peers_of_arrays, peers_of_files
from hw4cli.lab.record import benchmark_record
from hw4cli.lab.sampling import MOST, STANDARD, Measurement, Sampling
from hw4cli.lab.tables import ARRAYS, FORWARD
from hw4cli.plans.kernels16 import kernel16
from hw4cli.plans.ladder import DEFAULT
from hw4cli.plans.plan import Tile
from hw4cli.plans.tensor import SPLIT
from hw4cli.problem.workload import FLOAT32, is_whole

Notify = Callable[[Measurement, Case], None]
OF_FLOAT32 = (SPLIT.name, DEFAULT)  # where no kernel is named


class Session(ABC):
    """Measures kernels and others' on cases, one after the other. Raises MachineError if there is no GPU.

    `failed`: whether something was wrong or failed that the command answers for.
    """

    answers_for_peers = False  # a peer that cannot compute a workload is no failure of hw4's
    with_others = False  # whether peers were measured, whose versions the record names

    def __init__(self, sampling: Sampling = STANDARD) -> None:
        self.gpu = Gpu()
        self.timer, self.sampling = GpuTimer(self.gpu), sampling
        self._before, self.sgemm = self.timer.clocks(), self.timer.sgemm_tflops()
        self.rows: list[KernelResult] = []
        self.failed = False

    @abstractmethod
    def ours(self, case: Any) -> Sequence[Contender]:
        """The kernels of hw4's that are measured on a case."""

    @abstractmethod
    def peers(self, case: Any) -> Sequence[Contender]:
        """Those of others. Raises MachineError where what was asked for is not installed."""

    def compile(self, cases: Iterable[Case]) -> None:
        """Compile what cases need, all at once. What cannot be planned says so when it is measured."""
        plans = []
        for case in cases:
            plans += case.planned(self.gpu)
            for one in self.ours(case):
                with suppress(Hw4Error, ArithmeticError, StopIteration):
                    plans += [planned] if (planned := one.planned()) else []
        if plans:
            compile_side_by_side(self.gpu, plans)

    def measure(self, case: Case, notify: Notify = lambda *_: None) -> list[KernelResult]:
        """The rows of one case."""
        ours, peers = self.ours(case), self.peers(case)
        self.with_others = self.with_others or bool(peers)
        found = measure(self.timer, [*ours, *peers], case, self.sampling, lambda one: notify(one, case))
        judged = found if self.answers_for_peers else found[: len(ours)]
        self.failed = self.failed or any(row.status != "ok" for row in judged)
        self.rows += found
        return found

    def record(self) -> dict[str, Any]:
        """The record of all rows so far."""
        return benchmark_record(
            self.timer,
            self.rows,
            self.sgemm,
            self.sampling.cold,
            self._before,
            self.with_others,
            warm_up=self.sampling.warm_up,
        )


class FileSession(Session):
    """Kernels of the ladder and of users' files, with their own tile or each of `tiles`, on cases of files; and,
    `with_torch`, PyTorch's float32 attention."""

    answers_for_peers = True
    with_torch = False

    def __init__(self, kernels: Sequence[str], tiles: Sequence[Tile] = (), sampling: Sampling = STANDARD) -> None:
        super().__init__(sampling)
        self._kernels, self._tiles = kernels, tiles

    def ours(self, case: FileCase) -> list[Contender]:
        """Each kernel with each tile."""
        choices: list[Tile | None] = [*self._tiles] or [None]
        return [FileKernel(self.timer, kernel, case, tile) for kernel in self._kernels for tile in choices]

    def peers(self, case: FileCase) -> list[Contender]:
        """PyTorch, if it was asked for."""
        return peers_of_files(self.gpu, case) if self.with_torch else []


class ArraySession(Session):
    """Kernels and peers on workloads of arrays, in one of the passes."""

    def __init__(
        self,
        kernels: Sequence[str] = (),
        peers: tuple[str, ...] = (),
        sampling: Sampling = STANDARD,
        direction: str = FORWARD,
    ) -> None:
        super().__init__(sampling)
        self._kernels, self._peers, self._direction = kernels, peers, direction

    def ours(self, case: ArrayCase) -> list[Contender]:
        """The kernels named that take the workload's element type, or the fastest for the workload."""
        work, props, named = case.work, self.gpu.props, self._kernels
        if case.direction != FORWARD:
            chosen = [x for x in named if computes_gradients(x, work, props)] or named or (None,)
            return [GradientKernel(self.timer, case, x) for x in chosen]
        kernels = named or (OF_FLOAT32 if work.dtype == FLOAT32 else (kernel16(work, props),))
        fitting = [name for name in kernels if takes(name, work)] or kernels
        return [ArrayKernel(self.timer, name, case) for name in fitting]

    def peers(self, case: ArrayCase) -> list[Contender]:
        """Those that were named, and know the element type."""
        return peers_of_arrays(self.gpu, self._peers, case) if self._peers else []

    def record(self) -> dict[str, Any]:
        """The record of all rows so far."""
        pause, direction = self.sampling.pause, self._direction
        method = {"flops": CONVENTIONS[direction], "checked": "float64"}
        if pause:
            method["pause"] = f"{pause:g} s of rest before each sample"
        if direction != FORWARD:
            method["gb_per_s"] = MEMORY[direction]
        found = super().record()
        rows = [{("pass" if key == "direction" else key): x for key, x in row.items()} for row in found["rows"]]
        return {**found, "method": {**found["method"], **method}, "kind": ARRAYS, "rows": rows}


def bench(
    kernels: str | Iterable[str] = (),
    workloads: str | Iterable[str] = "tilelang",
    *,
    peers: str | Iterable[str] = (),
    pause: float = 0.0,
    sustained: bool = False,
    samples: int = MOST,
    direction: str = "fwd",
) -> dict[str, Any]:
    """Time attention of arrays on the GPU, as `hw4 bench KERNELS WORKLOADS` does; the record as a dictionary.

    kernels: "half", or of `hw4 explain`; by default the fastest for the element type. workloads: names of
    testcases/workloads.toml, or sizes. peers: "torch", or of its backends "cudnn", "fa2", "efficient", "math"; the
    package "flash-attn-4" and its like; FILE.py:FUNCTION. `pause`: seconds of rest before each sample; `sustained`:
    also run each a second without rest, for its power; `samples`: of each at most. `direction`: "fwd", "bwd" or
    "both", whose kernels are those of the backward pass. record["rows"] holds a dictionary for each kernel and
    workload, times in milliseconds.

    Raises InputError for a kernel, workload or peer that there is not, MachineError if there is no GPU.

    >>> from hw4cli import MachineError
    >>> try:
    ...     rows = bench("half", "B=1 H=8 N=1024 d=64 dtype=fp16")["rows"]
    ... except MachineError:
    ...     rows = []  # there is no GPU
    >>> [row["median"] > 0 for row in rows] in ([], [True])
    True
    """
    names, texts, others = _words("kernels", kernels), _words("workloads", workloads), _words("peers", peers)
    parsed = [workload(text) for text in texts]
    check_peers(others)
    if not is_whole(samples) or samples < 1:
        raise InputError(f"samples is {samples!r}: give an integer, 1 or more")
    if not isinstance(pause, int | float) or not 0 <= pause < math.inf:
        raise InputError(f"pause is {pause!r}: give seconds, 0 or more")
    if direction not in tuple(PASSES):
        raise InputError(f"direction is {direction!r}: give {', '.join(map(repr, PASSES))}")
    which = PASSES[direction]
    check_kernels(names, which)
    session = ArraySession(names, others, Sampling(samples, pause=pause, sustained=sustained), which)
    cases = [ArrayCase(one, which) for one in parsed]
    session.compile(cases)
    for case in cases:
        session.measure(case)
    return session.record()


def check_kernels(names: Iterable[str], direction: str) -> None:
    """Raise InputError for a kernel that computes no such pass of arrays."""
    known = kernels_of(direction)
    for name in names:
        if name not in known:
            raise InputError(
                f"{name} is not a kernel for the {direction} pass of arrays: give {', '.join(known)}, or none"
            )


def kernels_of(direction: str) -> tuple[str, ...]:
    """The names of the kernels for a pass of arrays; of both passes, those of the backward one."""
    return KERNELS if direction == FORWARD else GRADIENT_KERNELS


def _words(name: str, value: str | Iterable[str]) -> tuple[str, ...]:
    """A text by itself, or the texts of a list. Raises InputError for all else."""
    found = (value,) if isinstance(value, str) else tuple(value) if isinstance(value, Iterable) else (None,)
    if not all(isinstance(word, str) for word in found):
        raise InputError(f"{name} is {value!r}: give a text, or a list of texts")
    return found

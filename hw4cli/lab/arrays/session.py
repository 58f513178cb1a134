"""A session of measurements of arrays on one GPU, and its record: what `hw4 bench` and `hw4cli.bench` do."""

import math
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from typing import Any

from hw4cli.device.gpu import Gpu
from hw4cli.device.timing import GpuTimer
from hw4cli.errors import InputError, MachineError
from hw4cli.lab.arrays.backward import GRADIENT_KERNELS, computes_gradients, gradient_implementation
from hw4cli.lab.arrays.measure import ArrayResult, measure
from hw4cli.lab.arrays.named import NamedWorkload, workload
from hw4cli.lab.arrays.ours import KERNELS, Implementation, implementation, takes
from hw4cli.lab.arrays.passes import CONVENTIONS, FORWARD, MEMORY, PASSES
from hw4cli.lab.arrays.peers import check_peers, peer_implementations
from hw4cli.lab.arrays.tables import KIND
from hw4cli.lab.bench import compile_side_by_side
from hw4cli.lab.record import benchmark_record
from hw4cli.lab.sampling import MOST, STANDARD, Measurement, Sampling
from hw4cli.plans.kernels16 import kernel16
from hw4cli.problem.workload import FLOAT32, is_whole

Notify = Callable[[Measurement, NamedWorkload], None]
OF_FLOAT32 = ("split", "flash")  # where no kernel is named


class ArraySession:
    """Measures kernels and peers on workloads, one after the other. Raises MachineError if there is no GPU."""

    def __init__(
        self,
        kernels: Sequence[str] = (),
        peers: tuple[str, ...] = (),
        sampling: Sampling = STANDARD,
        direction: str = FORWARD,
    ) -> None:
        self.gpu = Gpu()
        self._timer = GpuTimer(self.gpu)
        self._kernels, self._peers, self._sampling, self._direction = kernels, peers, sampling, direction
        self._before, self._sgemm = self._timer.clocks(), self._timer.sgemm_tflops()
        self.rows: list[ArrayResult] = []

    def compile(self, cases: Iterable[NamedWorkload]) -> None:
        """Compile what workloads need of ours, all at once. What cannot be planned says so when it is measured."""
        plans = []
        for case in cases:
            for one in self._ours(case):
                with suppress(MachineError):
                    plans += [one.planned(case.work)] if one.planned else []
        if plans:
            compile_side_by_side(self.gpu, plans)

    def measure(self, case: NamedWorkload, notify: Notify = lambda *_: None) -> list[ArrayResult]:
        """The rows of one workload: of the kernels that take its element type, and of the peers."""
        subjects = self._ours(case)
        if self._peers:
            subjects += peer_implementations(self.gpu, self._peers, case.work.dtype, self._direction)

        def show(one: Measurement) -> None:
            notify(one, case)

        found = measure(self._timer, subjects, case, self._sampling, show, self._direction)
        self.rows += found
        return found

    def _ours(self, case: NamedWorkload) -> list[Implementation]:
        """The kernels named, or the fastest for the workload."""
        if self._direction != FORWARD:
            named = self._kernels
            chosen = [x for x in named if computes_gradients(x, case.work, self.gpu.props)] or named or (None,)
            return [gradient_implementation(self.gpu, self._timer, self._direction, case.work, x) for x in chosen]
        kernels = self._kernels or self._default(case)
        fitting = [name for name in kernels if takes(name, case.work)] or kernels
        return [implementation(self.gpu, self._timer, name) for name in fitting]

    def _default(self, case: NamedWorkload) -> Sequence[str]:
        return OF_FLOAT32 if case.work.dtype == FLOAT32 else (kernel16(case.work, self.gpu.props),)

    def record(self) -> dict[str, Any]:
        """The record of all rows so far."""
        pause, cold = self._sampling.pause, self._sampling.cold
        rest = {"pause": f"{pause:g} s of rest before each sample"} if pause else {}
        if self._direction != FORWARD:
            rest["gb_per_s"] = MEMORY[self._direction]
        flops = CONVENTIONS[self._direction]
        record = benchmark_record(
            self._timer, self.rows, self._sgemm, cold, self._before, flops=flops, checked="float64", **rest
        )
        rows = [{("pass" if key == "direction" else key): x for key, x in row.items()} for row in record["rows"]]
        return {**record, "kind": KIND, "rows": rows}


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
    testcases/workloads.toml, or sizes. peers: "torch", or of its backends "cudnn", "fa2", "efficient", "math". `pause`:
    seconds of rest before each sample; `sustained`: also run each a second without rest, for its power; `samples`: of
    each at most. `direction`: "fwd", "bwd" or "both", whose kernels are those of the backward pass. record["rows"]
    holds a dictionary for each kernel and workload, times in milliseconds.

    Raises InputError for a kernel, workload or peer that there is not, MachineError if there is no GPU.

    >>> from hw4cli import MachineError
    >>> try:
    ...     rows = bench("half", "B=1 H=8 N=1024 d=64 dtype=fp16")["rows"]
    ... except MachineError:
    ...     rows = []  # there is no GPU
    >>> [row["median"] > 0 for row in rows] in ([], [True])
    True
    """
    names, cases, others = _words("kernels", kernels), _words("workloads", workloads), _words("peers", peers)
    parsed = [workload(text) for text in cases]
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
    session.compile(parsed)
    for case in parsed:
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

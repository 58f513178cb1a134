"""Times of kernels on the device: each is checked before it is timed; samples are interleaved.

The method: inputs of the suite; the answer checked against the float64 kernel; warm-up; one sample of each kernel in
turn, the L2 cache overwritten before each (or not, if warm); until the 95 % confidence interval of the median is
narrower than 1 % of it, or a limit is reached (hw4cli/lab/sampling.py).
"""

import threading
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

from hw4cli.device.gpu import Gpu, kernel_of
from hw4cli.device.machinecode import Kernel
from hw4cli.device.timing import GpuTimer
from hw4cli.errors import MachineError
from hw4cli.lab.sampling import STANDARD, Measurement, Sampling, figures, take_turns, without_rest
from hw4cli.plans.plan import Plan, Tile
from hw4cli.plans.registry import FALLBACK
from hw4cli.problem.casefile import Floats
from hw4cli.problem.cpu import on_all_cores
from hw4cli.problem.suite import uniform
from hw4cli.problem.verdict import Comparison
from hw4cli.problem.workload import Workload

LOOK_SECONDS = 0.02  # between two looks whether a compiler has ended
CHECK_CHUNK = 1 << 20  # floats copied back at a time to be checked, which stay in the cache meanwhile

# Computes O (n, N, d) from inputs (n, 3, N, d), both on the GPU; returns O: the given outputs, or an array of its own.
Work = Callable[[Any, Any], Any]


@dataclass(frozen=True)
class Implementation:
    """What is measured: a name, and for a shape the work and what it takes of the GPU (registers, ...)."""

    name: str
    prepare: Callable[[Workload], tuple[Work, dict[str, Any]]]


@dataclass(frozen=True)
class KernelResult:
    """One kernel on one case. Times in milliseconds; low and high bound the median with 95 % confidence."""

    kernel: str
    case: str
    shape: tuple[int, int, int]
    status: str  # "ok", "wrong" or "failed"
    reason: str = ""
    median: float | None = None
    low: float | None = None
    high: float | None = None
    samples: int = 0
    tflops: float | None = None
    sgemm_percent: float | None = None
    gb_per_s: float | None = None
    max_error: float | None = None
    registers: int | None = None
    shared_bytes: int | None = None
    occupancy: float | None = None
    host_ms: float | None = None  # medians: to enqueue the work, and of the flush during which that is done
    flush_ms: float | None = None
    causal: bool = False
    pairs_percent: float | None = None  # of the N*N pairs of a query and a key: whose scores the kernel's tiles compute
    mean: float | None = None
    standard_error: float | None = None  # of the mean
    fastest: float | None = None
    slowest: float | None = None
    quantiles: dict[str, float] | None = None  # "5%": ...
    samples_ms: list[float] = field(default_factory=list)  # every sample, in its order
    sustained_ms: float | None = None  # of a run, back to back for a second; None where the host is slower
    watts: float | None = None  # of the whole board meanwhile
    sm_mhz: float | None = None  # meanwhile
    joules: float | None = None  # of a run, back to back
    gflop_per_joule: float | None = None


Notify = Callable[[Measurement], None]


def kernel_implementation(gpu: Gpu, timer: GpuTimer, variant: str, tile: Tile | None = None) -> Implementation:
    """A kernel of the ladder, with its best tiles or given ones."""

    def prepare(shape: Workload) -> tuple[Work, dict[str, Any]]:
        plan = gpu.plan(variant, shape, tile)
        found = timer.resources(plan)
        facts = {key: getattr(found, key) for key in ("registers", "shared_bytes", "occupancy")}
        facts["pairs_percent"] = 100 * shape.computed_share(plan.macros["BR"], plan.macros["BC"])

        def work(inputs: Any, outputs: Any) -> Any:
            with gpu.translated_errors(plan, shape):
                gpu.compute(plan, inputs, outputs)
            return outputs

        return work, facts

    return Implementation(named(variant, tile) if tile else variant, prepare)


def named(kernel: str, tile: Tile) -> str:
    """A kernel with a tile, as tables have it: "flash 128x32", "flash 128x32 BLOCKS=4"."""
    knobs = (f"{name}={value}" for name, value in tile.items() if name not in ("BR", "BC"))
    return " ".join([f"{kernel} {tile['BR']}x{tile['BC']}", *knobs])


def compile_side_by_side(gpu: Gpu, plans: Iterable[Plan]) -> None:
    """Compile what plans need and is in no cache, on all cores: one after the other it would take minutes.

    What does not compile is found when it is to be run. On Ctrl-C, no compiler goes on.
    """
    stop = threading.Event()

    def compile_one(kernel: Kernel) -> None:
        with gpu.code.start(kernel) as process:
            while process.poll() is None:
                if stop.wait(LOOK_SECONDS):
                    process.kill()

    with suppress(OSError):
        on_all_cores(compile_one, zip(gpu.code.missing(map(kernel_of, plans))), stop)


@dataclass
class Prepared:
    """A case on the GPU: its inputs, outputs to write to, the implementations that are right on it, to be timed; and
    the rows of those that are wrong or failed."""

    name: str
    shape: Workload
    inputs: Any
    outputs: Any
    measurements: list[Measurement] = field(default_factory=list)
    rows: dict[str, KernelResult] = field(default_factory=dict)


def measure(
    timer: GpuTimer,
    implementations: Sequence[Implementation],
    case: tuple[str, Workload, int],
    sgemm: float | None,
    sampling: Sampling = STANDARD,
    notify: Notify = lambda _: None,
) -> list[KernelResult]:
    """Check and time every implementation on one case (name, shape, seed); one that fails or is wrong is not timed.

    If the case does not fit the GPU, all have failed. `notify` gets each measurement after each of its samples.
    """
    try:
        prepared = prepare(timer.gpu, implementations, case)
        take_samples(timer, prepared, sampling, notify)
        for one in prepared.measurements if sampling.sustained else ():
            work = partial(one.work, prepared.inputs, prepared.outputs)
            one.facts.update(without_rest(timer, work, prepared.shape.flops))
    except MachineError as error:
        return [_not_timed(one, case[0], case[1], "failed", str(error)) for one in implementations]
    rows, (name, shape, _) = prepared.rows, case
    rows.update((measurement.name, finish(measurement, name, shape, sgemm)) for measurement in prepared.measurements)
    return [rows[implementation.name] for implementation in implementations]


def prepare(gpu: Gpu, implementations: Sequence[Implementation], case: tuple[str, Workload, int]) -> Prepared:
    """Upload a case and check every implementation on it, against the float64 kernel.

    Raises MachineError if the case does not fit the GPU.
    """
    name, shape, seed = case
    plan = gpu.plan(FALLBACK, shape)
    with gpu.translated_errors(plan, shape):
        inputs = upload_case(gpu, shape, seed)
        answer, outputs = gpu.empty((shape.B, shape.N, shape.d)), gpu.empty((shape.B, shape.N, shape.d))
        gpu.compute(plan, inputs, answer)
        expected = answer.get().reshape(-1)
        del answer
    prepared = Prepared(name, shape, inputs, outputs)
    for implementation in implementations:
        try:
            work, facts = implementation.prepare(shape)
            with gpu.translated_errors(replace(plan, variant=implementation.name), shape):
                comparison = check(gpu, work, inputs, outputs, expected)
        except MachineError as error:
            prepared.rows[implementation.name] = _not_timed(implementation, name, shape, "failed", str(error))
            continue
        if comparison.right:
            prepared.measurements.append(Measurement(implementation.name, work, facts, comparison.max_error))
        else:
            reason = comparison.reason(shape)
            prepared.rows[implementation.name] = _not_timed(implementation, name, shape, "wrong", reason)
    return prepared


def take_samples(
    timer: GpuTimer, prepared: Prepared, sampling: Sampling = STANDARD, notify: Notify = lambda _: None
) -> None:
    """Time the implementations in turns, until the median of each is certain enough or a limit is reached."""

    def run(measurement: Measurement) -> object:
        return measurement.work(prepared.inputs, prepared.outputs)

    take_turns(timer, prepared.measurements, run, notify, sampling)


def upload_case(gpu: Gpu, shape: Workload, seed: int) -> Any:
    """The case's inputs (B, 3, N, d) on the GPU: the values of its file."""
    inputs = gpu.empty((shape.B, 3, shape.N, shape.d))
    flat, start = inputs.reshape(-1), 0
    for chunk in uniform(seed, 3 * shape.elements):
        flat[start : start + len(chunk)].set(chunk)
        start += len(chunk)
    return inputs


def check(gpu: Gpu, work: Work, inputs: Any, outputs: Any, expected: Floats) -> Comparison:
    """Run once, with NaN in the output before, and compare with the answer, which is flat and in the host's memory."""
    outputs.data.memset(0xFF, outputs.nbytes)
    result = work(inputs, outputs)
    gpu.wait()
    comparison = Comparison()
    got = result.reshape(-1)
    for start in range(0, got.size, CHECK_CHUNK):
        part = slice(start, start + CHECK_CHUNK)
        comparison.add(got[part].get(), expected[part])
    return comparison


def finish(measurement: Measurement, case: str, shape: Workload, sgemm: float | None) -> KernelResult:
    """A measurement's samples as a row."""
    found = figures(measurement)
    tflops = shape.flops / found["median"] / 1e9
    return KernelResult(
        kernel=measurement.name,
        case=case,
        shape=shape.sizes,
        causal=shape.causal,
        status="ok",
        tflops=tflops,
        sgemm_percent=100 * tflops / sgemm if sgemm else None,
        gb_per_s=16 * shape.elements / found["median"] / 1e6,
        max_error=measurement.max_error,
        **found,
        **measurement.facts,
    )


def _not_timed(implementation: Implementation, case: str, shape: Workload, status: str, reason: str) -> KernelResult:
    return KernelResult(implementation.name, case, shape.sizes, status, reason, causal=shape.causal)

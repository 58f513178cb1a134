"""Times of attention of arrays: each implementation is checked before it is timed; samples are interleaved."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from hw4cli.device.timing import GpuTimer
from hw4cli.errors import MachineError
from hw4cli.lab.arrays.inputs import EXPONENT
from hw4cli.lab.arrays.named import NamedWorkload, described
from hw4cli.lab.arrays.ours import Implementation
from hw4cli.lab.arrays.passes import BYTES, FLOPS, FORWARD, Forward, subject
from hw4cli.lab.bench import KernelResult
from hw4cli.lab.sampling import STANDARD, Measurement, Sampling, figures, take_turns, without_rest
from hw4cli.problem.workload import FLOAT32


@dataclass(frozen=True)
class ArrayResult(KernelResult):
    """One implementation on one workload; `shape` is (batch * heads, Nq, d)."""

    dtype: str = FLOAT32
    heads: int = 1
    kv_heads: int = 1
    Nk: int = 0
    layout: str = "BHND"
    distribution: str = ""
    ours: bool = True
    direction: str = FORWARD  # which pass; "pass" in a record
    relative_error: float | None = None  # of the answer's norm
    checked_rows: int | None = None
    repeats: bool | None = None  # whether a second run gave the same bits


@dataclass
class Checked(Measurement):
    """A measurement of work that is right."""

    implementation: Implementation | None = None
    more: dict[str, Any] = field(default_factory=dict)


def measure(
    timer: GpuTimer,
    implementations: Sequence[Implementation],
    case: NamedWorkload,
    sampling: Sampling = STANDARD,
    notify: Callable[[Measurement], None] = lambda _: None,
    direction: str = FORWARD,
) -> list[ArrayResult]:
    """Check and time every implementation on one workload; one that fails or is wrong is not timed.

    If the workload does not fit the GPU, all have failed.
    """
    rows: dict[str, ArrayResult] = {}
    right: list[Checked] = []
    try:
        with _memory_errors(timer, case):
            checks = subject(case, direction, timer.gpu.cupy)
            for one in implementations:
                found = _checked(timer, one, checks, direction)
                if isinstance(found, Checked):
                    right.append(found)
                else:
                    rows[one.name] = found
            take_turns(timer, right, lambda checked: checked.work(), notify, sampling)
            for checked in right:
                if sampling.sustained:
                    checked.more.update(without_rest(timer, checked.work, FLOPS[direction] * case.work.flops))
                rows[checked.name] = _finished(checked, case, direction)
    except MachineError as error:
        return [_not_timed(one, case, direction, "failed", str(error)) for one in implementations]
    return [rows[one.name] for one in implementations]


@contextmanager
def _memory_errors(timer: GpuTimer, case: NamedWorkload) -> Iterator[None]:
    """Turn a GPU's lack of memory into a MachineError."""
    try:
        yield
    except timer.gpu.cupy.cuda.memory.OutOfMemoryError:
        raise MachineError(f"the GPU has not enough memory for {described(case.work)}") from None


def _checked(timer: GpuTimer, one: Implementation, checks: Forward, direction: str) -> Checked | ArrayResult:
    """A measurement to be filled, or the row of what is wrong or failed."""
    case = checks.case
    try:
        work, facts = one.prepare(case, checks.arrays)
        checks.clear()
        first = tuple(x.copy() for x in _results(work()))
        checks.clear()
        repeats = all(_same(x, y) for x, y in zip(first, _results(work()), strict=True))
        timer.gpu.wait()
    except MachineError as error:
        return _not_timed(one, case, direction, "failed", str(error))
    off = checks.errors(first)
    reason = next(filter(None, (_not_finite(case, x) for x in first)), None) or checks.problem(off)
    if one.ours and one.repeats and not repeats:
        reason = reason or "a second run gave other bits"
    if reason:
        return _not_timed(one, case, direction, "wrong", reason)
    more = {"relative_error": off.relative, "checked_rows": off.rows, "repeats": repeats}
    return Checked(one.name, work, facts, off.largest, implementation=one, more=more)


def _results(made: Any) -> tuple[Any, ...]:
    """O alone, or what else a pass makes."""
    return made if isinstance(made, tuple) else (made,)


def _same(first: Any, second: Any) -> bool:
    return not bool((first != second).any())


def _not_finite(case: NamedWorkload, o: Any) -> str | None:
    exponent = EXPONENT[case.work.dtype]
    count = int(((o & exponent) == exponent).sum())
    return f"{count:,} elements are NaN or Inf" if count else None


def _facts(one: Implementation, case: NamedWorkload, direction: str) -> dict[str, Any]:
    work = case.work
    return {
        "kernel": one.name,
        "case": case.name,
        "shape": (work.batch * work.heads, work.Nq, work.d),
        "causal": work.causal,
        "dtype": work.dtype,
        "heads": work.heads,
        "kv_heads": work.kv_heads,
        "Nk": work.Nk,
        "layout": case.layout,
        "distribution": case.distribution,
        "ours": one.ours,
        "direction": direction,
    }


def _not_timed(one: Implementation, case: NamedWorkload, direction: str, status: str, reason: str) -> ArrayResult:
    return ArrayResult(status=status, reason=reason, **_facts(one, case, direction))


def _finished(checked: Checked, case: NamedWorkload, direction: str) -> ArrayResult:
    """A measurement's samples as a row."""
    assert checked.implementation
    work, found = case.work, figures(checked)
    size = 4 if work.dtype == FLOAT32 else 2
    elements = 2 * work.d * work.batch * (work.heads * work.Nq + work.kv_heads * work.Nk)
    return ArrayResult(
        **_facts(checked.implementation, case, direction),
        status="ok",
        tflops=FLOPS[direction] * work.flops / found["median"] / 1e9,
        gb_per_s=BYTES[direction] * size * elements / found["median"] / 1e6,
        max_error=checked.max_error,
        **found,
        **checked.facts,
        **checked.more,
    )

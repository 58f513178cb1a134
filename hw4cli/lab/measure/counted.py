"""What a kernel does, counted: on a small shape as it is, and for a large one by what its counts follow.

Executing (4, 16384, 64) on the CPU would take hours. What a block does depends on its rows and keys alone: counts of a
launch for R tiles of rows and C tiles of keys are c0 + c1 R + c2 C + c3 R C, or with a mask c0 + c1 R + c2 R^2. They
are counted where R and C are 1 and 2 (with a mask 1, 2 and 3), and once more, where the formula must have the same.
"""

import json
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields, replace
from fractions import Fraction
from pathlib import Path
from typing import Any

from hw4cli.emulator.build import COUNTS, check_counting, check_kernels, digest, shared_object
from hw4cli.emulator.build import cache_folder as kept_in
from hw4cli.emulator.check import RANDOM_DATA, make_data
from hw4cli.emulator.counts import EXPONENTIALS, FP32, FP64, WAVEFRONT, Counts
from hw4cli.emulator.worker import Job, run_jobs
from hw4cli.errors import KernelError, MachineError
from hw4cli.lab.measure.timing import Work, amounts_of
from hw4cli.plans.formulas import ceil_div
from hw4cli.plans.plan import DeviceProperties, LaunchModel, Plan, Tile, Variant, one_split
from hw4cli.problem.workload import Workload
from hw4cli.resources import is_own_kernel, kernel_path
from hw4cli.text.progress import Advance, Progress

SECONDS = 600.0  # of processor time that a run may take
INTEGERS = ("int8",)


@dataclass(frozen=True)
class Part:
    """So many keys of one batch or more, and the first rows, or all."""

    shape: Workload
    rows: int | None = None


def count(
    variant: Variant,
    parts: Sequence[Part],
    props: DeviceProperties,
    tile: Tile | None = None,
    advance: Advance | None = None,
) -> list[tuple[Counts, ...]]:
    """Execute a kernel on random data on the CPU, and count: of each part what its launches do. `advance` is called
    when a part is done.

    Raises MachineError without g++, KernelError if the file lacks a function or the kernel does not come to its end,
    InputError if it does not compile.
    """
    check_counting()
    jobs = []
    for part in parts:
        plan = _plan_of(variant, part, props, tile)
        path = _compiled(variant, plan, props)
        if is_own_kernel(variant.name):
            check_kernels(variant.name, kernel_path(plan.source), path, [launch.symbol for launch in plan.launches])
        rows = (0, part.rows) if part.rows else None
        jobs.append(Job(path, plan, make_data(RANDOM_DATA, part.shape), props.lanes, rows=rows, seconds=SECONDS))
    outcomes = run_jobs(jobs, COUNTS, advance=advance)
    for outcome in outcomes:
        if not outcome.finished:
            why = outcome.findings[0].sentence if outcome.findings else "its launches do not come to their end"
            raise KernelError(f"{variant.name} was not counted: {why}")
    return [outcome.counts for outcome in outcomes]


def _plan_of(variant: Variant, part: Part, props: DeviceProperties, tile: Tile | None) -> Plan:
    return variant.plan(replace(part.shape, Nq=part.rows) if part.rows else part.shape, props, tile)


def _compiled(variant: Variant, plan: Plan, props: DeviceProperties) -> Path:
    return shared_object(kernel_path(plan.source), plan.defines, props.cc, props.lanes, COUNTS)


def model_of(counts: Counts) -> LaunchModel:
    """What a launch's counts come to: of the L2 cache, what each block reads and writes once; of shared memory, all
    wavefronts, conflicts included."""
    products = counts.products
    return LaunchModel(
        counts.symbol,
        (counts.first_read, counts.written),
        (counts.block_read, counts.block_written),
        WAVEFRONT * counts.shared_wavefronts[0],
        counts.operand_bytes,
        counts.total("amount", FP32),
        sum(number for kind, number in products.items() if kind not in INTEGERS),
        counts.total("amount", EXPONENTIALS),
        0,
        counts.total("amount", FP64),
        sum(products.get(kind, 0) for kind in INTEGERS),
    )


# ---- A large shape


@dataclass(frozen=True)
class Samples:
    """Parts of a shape by which a kernel's work on all of it is known: what the formula's terms are for each part, all
    but the last of which determine it, and for all of the shape."""

    variant: Variant
    parts: Sequence[Part]
    basis: Sequence[Sequence[int]]
    wanted: Sequence[Any]
    tile: Tile
    batches: int


def _samples(variant: Variant, shape: Workload, plan: Plan, least_keys: int = 0) -> Samples:
    """Small parts of a shape, the smallest of at least so many keys."""
    whole = replace(variant, splits=one_split)  # the keys in one part
    rows, keys = (plan.macros.get(name, 32) for name in ("BR", "BC"))
    tile = {name: plan.macros[name] for name in ("BR", "BC") if name in plan.macros}
    batch = replace(shape, batch=1)
    if shape.causal:
        side = math.lcm(rows, keys) * ceil_div(max(1, least_keys), math.lcm(rows, keys))
        parts = [Part(replace(batch, Nq=n * side, Nk=n * side)) for n in (1, 2, 3, 4)]
        at = ceil_div(shape.N, side)
        return Samples(whole, parts, [[1, n, n * n] for n in (1, 2, 3, 4)], [1, at, at * at], tile, shape.B)
    wide = keys * ceil_div(max(2 * rows, least_keys), keys)
    sizes = ((1, 1), (2, 1), (1, 2), (2, 2), (2, 3))
    parts = [Part(replace(batch, Nq=c * wide, Nk=c * wide), r * rows) for r, c in sizes]
    r_at, c_at = ceil_div(shape.Nq, rows), Fraction(ceil_div(shape.Nk, keys) * keys, wide)
    return Samples(whole, parts, [[1, r, c, r * c] for r, c in sizes], [1, r_at, c_at, r_at * c_at], tile, shape.B)


def counted_models(
    variant: Variant, shape: Workload, props: DeviceProperties, progress: Progress | None = None
) -> list[LaunchModel]:
    """The model of each launch of a kernel's plan, from counts on small shapes; tiles that are not whole count as
    whole. Of a launch that the small shapes do not have, such as one that puts parts together, nothing.

    Raises as `count` does, and MachineError if its work follows no such formula.
    """
    shape = shape.stored
    plan = variant.plan(shape, props)
    samples = _samples(variant, shape, plan)
    found = _kept(samples, props, "models", lambda one: _values(model_of(one)), progress)
    models = []
    for launch in plan.launches:
        known = [_model(values) for values in _of_launch(found, launch.symbol)]
        if len(known) < len(found):
            models.append(LaunchModel(launch.symbol, (0, 0)))
            continue
        models.append(_extended(variant.name, launch.symbol, known, samples))
    return models


LEAST_KEYS = 256  # of parts that are counted for times: what is asked for again soon, or after long, stays so


def counted_works(
    variant: Variant,
    shape: Workload,
    props: DeviceProperties,
    progress: Progress | None = None,
) -> list[Work]:
    """What each launch of a kernel's plan does, for a predicted time: as `counted_models`, but launches that the small
    shapes do not have are left out. Raises as `count` does, and MachineError where small shapes take another kernel."""
    shape = shape.stored
    plan = variant.plan(shape, props)
    samples = _samples(variant, shape, plan, LEAST_KEYS)
    if any(_plan_of(samples.variant, part, props, samples.tile).source != plan.source for part in samples.parts):
        raise MachineError(f"{variant.name} on small shapes is another kernel than on (B, N, d) = {shape}")
    lanes = props.lanes
    found = _kept(samples, props, "amounts", lambda one: [one.symbol, amounts_of(one, lanes)], progress)
    works = []
    for launch in plan.launches:
        known = [amounts for _, amounts in _of_launch(found, launch.symbol)]
        if len(known) < len(found):
            continue
        rows = [[*map(Fraction, row)] for row in samples.basis[:-1]]
        amounts = {
            name: float(
                samples.batches
                * max(Fraction(0), _sum(_solved(rows, [Fraction(one[name]) for one in known[:-1]]), samples.wanted))
            )
            for name in known[0]
        }
        works.append(Work(launch.symbol, launch.grid, launch.block, launch.shared, amounts))
    return works


def _of_launch(found: Sequence[Sequence[Any]], symbol: str) -> list[Any]:
    """What is known of a launch: of each part that has it."""
    return [values for one in found for values in one if values[0] == symbol]


_NUMBERS = [field.name for field in fields(LaunchModel) if field.compare][1:]


def _extended(name: str, symbol: str, known: Sequence[LaunchModel], samples: Samples) -> LaunchModel:
    """The model of a launch on the whole shape, from those on the parts."""
    basis = samples.basis

    def number(values: Sequence[int]) -> int:
        weights = _solved([[*map(Fraction, row)] for row in basis[:-1]], [Fraction(value) for value in values[:-1]])
        again = _sum(weights, basis[-1])
        if 100 * abs(again - values[-1]) > values[-1]:
            raise MachineError(
                f"{name} does not do the same for each tile of rows and keys: on small shapes its {symbol} does "
                f"{values[-1]:,} of what its tiles would take {float(again):,.0f}"
            )
        return samples.batches * max(0, round(_sum(weights, samples.wanted)))

    found: dict[str, Any] = {}
    for field in _NUMBERS:
        values: list[Any] = [getattr(model, field) for model in known]
        if isinstance(values[0], tuple):
            found[field] = tuple(number([value[part] for value in values]) for part in range(2))
        else:
            found[field] = number(values)
    return LaunchModel(symbol, **found)


def _sum(weights: Sequence[Fraction], terms: Sequence[Any]) -> Fraction:
    return sum((weight * term for weight, term in zip(weights, terms, strict=True)), Fraction(0))


def _solved(rows: list[list[Fraction]], values: list[Fraction]) -> list[Fraction]:
    """The solution of linear equations, exactly."""
    n = len(rows)
    augmented = [[*row, value] for row, value in zip(rows, values, strict=True)]
    for at in range(n):
        pivot = next(i for i in range(at, n) if augmented[i][at])
        augmented[at], augmented[pivot] = augmented[pivot], augmented[at]
        augmented[at] = [x / augmented[at][at] for x in augmented[at]]
        for i in range(n):
            if i != at and augmented[i][at]:
                factor = augmented[i][at]
                augmented[i] = [x - factor * y for x, y in zip(augmented[i], augmented[at], strict=True)]
    return [row[-1] for row in augmented]


def _kept(
    samples: Samples,
    props: DeviceProperties,
    what: str,
    values_of: Callable[[Counts], Any],
    progress: Progress | None,
) -> list[list[Any]]:
    """Of each part, values of each launch; they are kept beside the machine code."""
    check_counting()
    plan = _plan_of(samples.variant, samples.parts[0], props, samples.tile)
    compiled = _compiled(samples.variant, plan, props)
    kept = kept_in() / f"hw4-counts-{digest(compiled.name, samples.parts, props, what)}.json"
    try:
        found: list[list[Any]] = json.loads(kept.read_text(encoding="utf-8"))
        return found
    except (OSError, ValueError):
        pass
    if progress:
        progress.grow(len(samples.parts))
    done = count(samples.variant, samples.parts, props, samples.tile, progress.add if progress else None)
    found = [[values_of(one) for one in counts] for counts in done]
    _keep(kept, json.dumps(found))
    return found


def _values(model: LaunchModel) -> list[Any]:
    return [model.symbol, *(getattr(model, name) for name in _NUMBERS)]


def _model(values: Sequence[Any]) -> LaunchModel:
    symbol, *numbers = values
    own: list[Any] = [tuple(number) if isinstance(number, list) else number for number in numbers]
    return LaunchModel(symbol, *own)


def _keep(path: Path, text: str) -> None:
    """Write a file that is whole when it is there; not where there is no place for it."""
    part = path.with_suffix(f".{digest(text)}")
    try:
        part.write_text(text, encoding="utf-8")
        part.replace(path)
    except OSError:
        part.unlink(missing_ok=True)

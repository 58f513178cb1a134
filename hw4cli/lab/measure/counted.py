"""What a kernel does, counted: on a small shape as it is, and for a large one by what its counts follow.

Executing (4, 16384, 64) on the CPU would take hours. What a block does depends on its rows and keys alone: counts of a
launch for R tiles of rows and C tiles of keys are c0 + c1 R + c2 C + c3 R C, or with a mask c0 + c1 R + c2 R^2. They
are counted where R and C are 1 and 2 (with a mask 1, 2 and 3), and once more, where the formula must have the same.
"""

import json
import math
from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from fractions import Fraction
from pathlib import Path
from typing import Any

from hw4cli.emulator.build import COUNTS, check_kernels, digest, find_compiler, shared_object
from hw4cli.emulator.build import cache_folder as kept_in
from hw4cli.emulator.check import RANDOM_DATA, make_data
from hw4cli.emulator.counts import EXPONENTIALS, FP32, FP64, WAVEFRONT, Counts
from hw4cli.emulator.worker import Job, run_jobs
from hw4cli.errors import KernelError, MachineError
from hw4cli.plans.formulas import ceil_div
from hw4cli.plans.plan import DeviceProperties, LaunchModel, Plan, Tile, Variant, one_split
from hw4cli.problem.workload import Workload
from hw4cli.resources import is_own_kernel, kernel_path
from hw4cli.text.progress import Advance, Progress

SECONDS = 600.0  # of processor time that a run may take
INTEGERS = ("int8",)


def check_counting() -> None:
    """Raise MachineError where nothing is counted: without g++, whose loads of vectors stay whole."""
    if find_compiler().clang:
        raise MachineError("counts need g++: clang++ takes loads of vectors apart")


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
    return shared_object(kernel_path(plan.source), plan.macros, props.cc, props.lanes, COUNTS)


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


def counted_models(
    variant: Variant, shape: Workload, props: DeviceProperties, progress: Progress | None = None
) -> list[LaunchModel]:
    """The model of each launch of a kernel's plan, from counts on small shapes; tiles that are not whole count as
    whole. Of a launch that the small shapes do not have, such as one that puts parts together, nothing.

    Raises as `count` does, and MachineError if its work follows no such formula.
    """
    shape = shape.stored
    plan = variant.plan(shape, props)
    whole = replace(variant, splits=one_split)  # the keys in one part
    rows, keys = (plan.macros.get(name, 32) for name in ("BR", "BC"))
    tile = {name: plan.macros[name] for name in ("BR", "BC") if name in plan.macros}
    batch = replace(shape, batch=1)
    if shape.causal:
        side = math.lcm(rows, keys)
        parts = [Part(replace(batch, Nq=n * side, Nk=n * side)) for n in (1, 2, 3, 4)]
        at = ceil_div(shape.N, side)
        basis = [[1, n, n * n] for n in (1, 2, 3, 4)]
        wanted: list[Any] = [1, at, at * at]
    else:
        wide = keys * ceil_div(2 * rows, keys)
        sizes = ((1, 1), (2, 1), (1, 2), (2, 2), (2, 3))
        parts = [Part(replace(batch, Nq=c * wide, Nk=c * wide), r * rows) for r, c in sizes]
        basis = [[1, r, c, r * c] for r, c in sizes]
        r_at, c_at = ceil_div(shape.Nq, rows), Fraction(ceil_div(shape.Nk, keys) * keys, wide)
        wanted = [1, r_at, c_at, r_at * c_at]
    found = _measured(whole, parts, props, tile, progress)
    symbols = [launch.symbol for launch in plan.launches]
    models = []
    for symbol in symbols:
        own = [next((model for model in models_ if model.symbol == symbol), None) for models_ in found]
        known = [model for model in own if model is not None]
        if len(known) < len(found):
            models.append(LaunchModel(symbol, (0, 0)))
            continue
        models.append(_extended(variant.name, symbol, known, basis, wanted, shape.B))
    return models


_NUMBERS = [field.name for field in fields(LaunchModel) if field.compare][1:]


def _extended(
    name: str,
    symbol: str,
    known: Sequence[LaunchModel],
    basis: Sequence[Sequence[int]],
    wanted: Sequence[Any],
    batches: int,
) -> LaunchModel:
    """The model of a launch where the formula that fits the known ones has these terms."""

    def number(values: Sequence[int]) -> int:
        weights = _solved([[*map(Fraction, row)] for row in basis[:-1]], [Fraction(value) for value in values[:-1]])
        again = _sum(weights, basis[-1])
        if 100 * abs(again - values[-1]) > values[-1]:
            raise MachineError(
                f"{name} does not do the same for each tile of rows and keys: on small shapes its {symbol} does "
                f"{values[-1]:,} of what its tiles would take {float(again):,.0f}"
            )
        return batches * max(0, round(_sum(weights, wanted)))

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


def _measured(
    variant: Variant, parts: Sequence[Part], props: DeviceProperties, tile: Tile, progress: Progress | None
) -> list[list[LaunchModel]]:
    """The models of the launches of each part; they are kept beside the machine code."""
    check_counting()
    compiled = _compiled(variant, _plan_of(variant, parts[0], props, tile), props)
    kept = kept_in() / f"hw4-counts-{digest(compiled.name, parts, props)}.json"
    try:
        return [[_model(values) for values in one] for one in json.loads(kept.read_text(encoding="utf-8"))]
    except (OSError, ValueError, TypeError):
        pass
    if progress:
        progress.grow(len(parts))
    done = count(variant, parts, props, tile, progress.add if progress else None)
    found = [[model_of(one) for one in counts] for counts in done]
    values = [[[model.symbol, *(getattr(model, name) for name in _NUMBERS)] for model in one] for one in found]
    _keep(kept, json.dumps(values))
    return found


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

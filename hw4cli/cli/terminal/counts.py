"""`hw4 check --run --counts`: what kernels do where the CPU executes them, by launch and line, and predicted times."""

import sys
from collections.abc import Sequence
from dataclasses import asdict, replace
from typing import TYPE_CHECKING, Any

from hw4cli.errors import InputError, MachineError
from hw4cli.plans.plan import DeviceProperties, Variant
from hw4cli.problem.workload import Workload
from hw4cli.text import tables
from hw4cli.text.progress import Progress
from hw4cli.text.words import columns, wrapped

if TYPE_CHECKING:
    from hw4cli.emulator.counts import Counts, Line
    from hw4cli.plans.plan import LaunchModel

GPUS = ("GTX 1080", "MI210", "H100")  # of which times are predicted
SMALL = Workload.one_head(1, 256, 64)  # which is counted, if no shape is given
MOST_OPERATIONS = 5e8  # of a shape that is executed: minutes
LINES = 12  # that are shown
# What a multiprocessor does in a clock, by which lines are ranked: wavefronts of shared memory, sectors of global
# memory, fp32 operations, exponentials, operations of tensor cores, threads that meet.
_PER_CLOCK = {"wavefronts": 1.0, "sectors": 2.0, "fp32": 256.0, "special": 16.0, "products": 2048.0}


def count_kernel(
    variant: Variant, props: DeviceProperties, shape: Workload | None, causal: bool, progress: Progress
) -> tuple[list[dict[str, Any]], str]:
    """The records of what a kernel's launches do, and the tables for people.

    A shape that would take minutes is not executed: its times are predicted from counts of small ones. Raises
    MachineError and InputError as `lab.measure.counted.count` does.
    """
    from hw4cli.lab.measure.counted import Part, count, counted_models, model_of

    wanted = shape or replace(SMALL, causal=causal)
    small = wanted if wanted.flops <= MOST_OPERATIONS else Workload.one_head(1, 256, wanted.d, wanted.causal)
    progress.grow(1)
    (counts,) = count(variant, [Part(small)], props, advance=progress.add)
    whole = small == wanted
    known = [*map(model_of, counts)] if whole else counted_models(variant, wanted, props, progress)
    times = _predicted(variant, wanted, props, known, progress)
    heading = f"{variant.name} on (B, N, d) = {small}{', causal' if small.causal else ''}, counted on the CPU"
    width = columns(sys.stdout)
    parts = [
        f"{wrapped(heading, width)}\n",
        _by_launch(counts, width),
        _by_line(counts, width),
        f"{wrapped(_times_sentence(wanted, times), width)}\n",
    ]
    records = [
        {
            "kernel": variant.name,
            "shape": [small.B, small.N, small.d],
            "causal": small.causal,
            **record_of(one),
            "predicted_for": [wanted.B, wanted.N, wanted.d],
            "predicted_ms": times,
        }
        for one in counts
    ]
    return records, "\n".join(parts)


def record_of(counts: "Counts") -> dict[str, Any]:
    """A launch's counts by name, as JSON has them."""
    asked, sectors = counts.global_read
    written, written_sectors = counts.global_written
    wavefronts, least = counts.shared_wavefronts
    return {
        "launch": counts.symbol,
        "grid": counts.grid,
        "threads": counts.threads,
        "dram_read_bytes": counts.first_read,
        "dram_written_bytes": counts.written,
        "block_read_bytes": counts.block_read,
        "block_written_bytes": counts.block_written,
        "global_read_bytes": asked,
        "global_read_sectors": sectors // 32,
        "global_written_bytes": written,
        "global_written_sectors": written_sectors // 32,
        "shared_wavefronts": wavefronts,
        "shared_wavefronts_without_conflicts": least,
        "shared_bytes_of_tensor_cores": counts.operand_bytes,
        "operations": {kind: counts.total("amount", kind) for kind in _operations(counts)},
        "products": dict(counts.products),
        "meetings": _meetings(counts),
        "active_lanes": counts.active_lanes,
        "lines": [asdict(line) for line in counts.lines],
    }


def _operations(counts: "Counts") -> list[str]:
    from hw4cli.emulator.counts import OPERATIONS

    return [kind for kind in OPERATIONS if counts.total("amount", kind)]


def _meetings(counts: "Counts") -> dict[str, int]:
    """How often warps, or blocks, meet at barriers, shuffles and votes."""
    found: dict[str, int] = {}
    for line in counts.lines:
        if line.times and not line.bytes and not line.amount and line.what != "code":
            found[line.what] = found.get(line.what, 0) + line.times
    return found


def _by_launch(counts: "Sequence[Counts]", width: int | None) -> str:
    header = ["launch", "DRAM KB", "written", "asked KB", "sectors/request", "shared KB", "conflicts"]
    header += ["MFLOP", "tensor", "exp", "barriers", "shuffles", "lanes"]
    lines = []
    for one in counts:
        wavefronts, least = one.shared_wavefronts
        meetings = _meetings(one)
        barriers = sum(number for name, number in meetings.items() if name.startswith(("__syncthreads", "bar.")))
        shuffles = sum(number for name, number in meetings.items() if "shfl" in name or name.endswith("_sync"))
        lines.append(
            [
                one.symbol,
                *(_kb(moved) for moved in (one.first_read, one.written, one.global_read[0])),
                _ratio(one.total("sectors", "load", "store"), _requests(one)),
                _kb(128 * wavefronts),
                _ratio(wavefronts, least),
                f"{(one.total('amount', 'fp32 FLOP') + one.total('amount', 'fp64 FLOP')) / 1e6:,.2f}",
                f"{sum(one.products.values()) / 1e6:,.2f}" if one.products else "-",
                *(f"{number:,}" for number in (one.total("amount", "exponentials"), barriers, shuffles)),
                f"{one.active_lanes:.0%}",
            ]
        )
    return tables.plain(header, lines, width)


def _requests(counts: "Counts") -> int:
    return sum(line.times for line in counts.lines if line.sectors)


def _by_line(counts: "Sequence[Counts]", width: int | None) -> str:
    rows = [(clocks_of(line), one.symbol, line) for one in counts for line in one.lines]
    all_clocks = sum(clocks for clocks, _, _ in rows) or 1.0
    rows.sort(key=lambda row: -row[0])
    several = len(counts) > 1
    header = [*(["launch"] if several else []), "line", "what", "times", "sectors/request", "conflicts", "operations"]
    lines = [
        [
            *([symbol] if several else []),
            line.where,
            line.what,
            f"{line.times:,}",
            _ratio(line.sectors, line.times),
            _ratio(line.wavefronts, line.least),
            f"{line.amount:,}" if line.amount else "-",
            f"{clocks / all_clocks:.0%}",
        ]
        for clocks, symbol, line in rows[:LINES]
        if clocks
    ]
    return tables.plain([*header, "share"], lines, width)


def clocks_of(line: "Line") -> float:
    """About how many clocks of a multiprocessor a line takes, if nothing else is done meanwhile."""
    amounts = {"wavefronts": line.wavefronts, "sectors": line.sectors}
    if line.what.startswith("product"):
        amounts["products"] = line.amount
    elif line.what in ("exponentials", "logarithms", "divisions and roots", "conversions"):
        amounts["special"] = line.amount
    else:
        amounts["fp32"] = line.amount
    return sum(number / _PER_CLOCK[name] for name, number in amounts.items())


def _predicted(
    variant: Variant, shape: Workload, props: DeviceProperties, known: "Sequence[LaunchModel]", progress: Progress
) -> dict[str, list[float] | None]:
    """The least and the most milliseconds that a kernel is predicted to take on each of GPUS; None where it does not
    start. `known`: the models of its launches on the GPU that was counted for, which serve where the plan is the same.
    """
    from hw4cli.lab.measure.counted import counted_models
    from hw4cli.lab.measure.explanation import explain_plan
    from hw4cli.lab.measure.gpus import model_named
    from hw4cli.lab.measure.predict import predicted

    counted, found = variant.plan(shape, props), dict[str, list[float] | None]()
    for name in GPUS:
        gpu = model_named(name)
        try:
            plan = variant.plan(shape, gpu.props)
            alike = (plan.macros, plan.source, plan.splits) == (counted.macros, counted.source, counted.splits)
            models = known if alike else counted_models(variant, shape, gpu.props, progress)
            facts, _ = explain_plan(variant.name, plan, models, gpu.props, gpu.rates, None)
        except (MachineError, InputError):
            found[name] = None
            continue
        time = predicted(facts, gpu)
        found[name] = [1e3 * time.least, 1e3 * time.most]
    return found


def _times_sentence(shape: Workload, times: dict[str, list[float] | None]) -> str:
    said = [f"{name} {_range(time)}" for name, time in times.items()]
    return f"predicted for (B, N, d) = {shape}, not measured: {', '.join(said)} (docs/emulator.md)"


def _kb(number: int) -> str:
    return f"{number / 1e3:,.1f}"


def _ratio(part: int, whole: int) -> str:
    return f"{part / whole:.2f}" if part and whole else "-"


def _range(time: list[float] | None) -> str:
    return "-" if time is None else f"{_digits(time[0])} to {_digits(time[1])} ms"


def _digits(number: float) -> str:
    """A predicted number with two digits: it is not known better."""
    return f"{float(f'{number:.2g}'):g}"

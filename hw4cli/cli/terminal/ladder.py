"""The ladder of kernels as a table."""

import json
import sys
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from hw4cli.cli.terminal.options import write_outputs
from hw4cli.errors import MachineError
from hw4cli.plans.ladder import VARIANTS
from hw4cli.plans.plan import DEVICES, DeviceProperties, Variant
from hw4cli.problem.workload import Workload
from hw4cli.system.importing import Importing
from hw4cli.text.words import columns, wrapped

if TYPE_CHECKING:
    from hw4cli.device.timing import GpuTimer
    from hw4cli.text.tables import Bars


def show_ladder(gpu_name: str | None, d: int, as_json: bool, outputs: Sequence[Path]) -> int:
    """`hw4 explain` without kernels: the idea of each, tiles, threads and shared memory for a head size, where it runs,
    how exact it is. The exit status.

    For the assignment's cases, whatever d is: "measured" is the largest error against float64 in the records
    (benchmarks/), "proven" the largest that there can be (docs/accuracy.md). With a GPU, also the registers and the
    occupancy there.
    """
    with Importing():
        from hw4cli.device.gpu import Gpu
        from hw4cli.device.timing import GpuTimer
        from hw4cli.plans.dispatch import auto_by_length
        from hw4cli.text import tables

    timer: GpuTimer | None
    if gpu_name is not None:
        from hw4cli.cli.terminal.launches import chosen_gpu

        name, props, _ = chosen_gpu(gpu_name)
        timer = None
        _note(f"for {name}, {props.architecture}")
    else:
        try:
            gpu = Gpu()
            timer, props, name = GpuTimer(gpu), gpu.props, gpu.name
            _note(f"on {gpu.name}, {props.architecture}")
        except MachineError as reason:
            timer, props, name = None, DEVICES[90], ""
            _note(f"{reason}; tiles, shared memory and bounds are those for compute capability 9.0")
    for least, order, why in auto_by_length(props, name, d):
        rows_of = f", for rows of at least {least} keys without a mask," if least > 1 else ""
        _note(f"auto takes{rows_of} the first of {', '.join(order)} that is exact enough; {order[0]}: {why}")
    rows = [entry(variant, d, props, timer) for variant in VARIANTS.values()]
    whole, width = rows, columns(sys.stdout)
    if width is not None:  # without a GPU, two columns are empty
        empty = [key for key in rows[0] if all(row[key] is None for row in rows)]
        rows = [{key: value for key, value in row.items() if key not in empty} for row in rows]
    document = json.dumps(whole, indent=1) + "\n"
    click.echo(document if as_json else _table(rows, width, _bars(rows, props)), nl=False)
    texts = {
        ".json": lambda: document,
        ".csv": lambda: tables.comma_separated(whole),
        ".md": lambda: tables.markdown(*_cells(whole)),
    }
    write_outputs(outputs, texts)
    return 0


# Headings where the ideas have no room beside the figures: so that these take one line of 80 columns, with a GPU, too.
NARROW = {"shared KB": "KB", "registers": "regs", "occupancy": "occ.", "runs on": "cc"}


def _table(rows: list[dict[str, Any]], width: int | None, bars: "Bars") -> str:
    """The table with a line a kernel; on a narrow terminal, one of figures, and the ideas below it."""
    from hw4cli.text import tables

    whole = tables.plain(*_cells(rows), width, bars)
    if width is None or whole.count("\n") == len(rows) + 1:
        return whole
    figures = [{NARROW.get(key, key): value for key, value in row.items() if key != "idea"} for row in rows]
    longest = max(len(row["kernel"]) for row in rows) + len(tables.GAP)
    ideas = (wrapped(row["idea"], width, " " * longest, f"{row['kernel']:<{longest}}") for row in rows)
    return "\n".join([tables.plain(*_cells(figures), width, bars), *ideas, ""])


def _cells(rows: list[dict[str, Any]]) -> tuple[list[str], list[list[str]]]:
    return [*rows[0]], [["-" if value is None else str(value) for value in row.values()] for row in rows]


def _bars(rows: list[dict[str, Any]], props: DeviceProperties) -> "Bars":
    """The occupancy of each kernel on the GPU; without one, how much of the shared memory a block takes."""
    from hw4cli.text.bars import shows_blocks
    from hw4cli.text.tables import Bars

    blocks = shows_blocks(sys.stdout)
    if any(row.get("occupancy") for row in rows):
        return Bars("warps", [row["occupancy"] for row in rows], blocks, [*rows[0]].index("occupancy") + 1)
    limit = props.shared_limit / 1024
    used = [None if row["shared KB"] is None else row["shared KB"] / limit for row in rows]
    return Bars(f"of {limit:.0f} KB", used, blocks, [*rows[0]].index("shared KB") + 1)


def _note(text: str) -> None:
    click.echo(wrapped(text, columns(sys.stderr)), err=True)


def entry(variant: Variant, d: int, props: DeviceProperties, timer: "GpuTimer | None") -> dict[str, Any]:
    """One row of the table: the variant's launch for a head size, and the compiled kernel's resources on the GPU."""
    from hw4cli.plans.dispatch import rounded_up

    shape = Workload.one_head(1, 4096, d)
    runs = props.cc >= variant.least_cc
    plan = variant.plan(shape, props) if runs else None
    found = timer.resources(timer.gpu.plan(variant.name, shape)) if timer and runs else None
    measured, proven = suite_errors(variant, props)
    return {
        "kernel": variant.name,
        "tiles": plan and f"{plan.macros['BR']}x{plan.macros['BC']}",
        "threads": plan and plan.macros["THREADS"],
        "shared KB": plan and round(plan.launches[plan.main].shared / 1024, 1),
        "registers": found and found.registers,
        "occupancy": found and round(found.occupancy, 3),
        "measured": measured and f"{measured:.1e}",
        "proven": proven and rounded_up(proven),
        "runs on": architectures(variant, shape),
        "idea": variant.idea,
    }


def suite_errors(variant: Variant, props: DeviceProperties) -> tuple[float | None, float | None]:
    """The largest error on the assignment's cases, measured and proven; None where that is not known."""
    from hw4cli.plans.bounds import PROVEN, TYPICAL, bound
    from hw4cli.plans.measured import ERRORS
    from hw4cli.problem import suite

    shapes = [case.shape for case in suite.cases().values()]
    sizes = {shape.d for shape in shapes}
    measured = max((error for d, error in ERRORS.get(variant.name, {}).items() if d in sizes), default=None)
    if variant.name not in PROVEN or props.cc < variant.least_cc:
        return measured, None
    return measured, max(bound(variant.name, TYPICAL, shape.d, shape.N, props) for shape in shapes)


def architectures(variant: Variant, shape: Workload) -> str:
    """The known compute capabilities whose shared memory a block of the variant fits: "all", "8.0+" or "8.0,9.0"."""
    fitting = []
    for cc, props in DEVICES.items():
        with suppress(MachineError):
            variant.plan(shape, props)
            fitting.append(cc)
    if fitting == list(DEVICES):
        return "all"
    if fitting and fitting == list(DEVICES)[-len(fitting) :]:
        return f"{fitting[0] / 10:.1f}+"
    return ",".join(f"{cc / 10:.1f}" for cc in fitting)

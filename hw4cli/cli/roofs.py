"""`hw4 roofs`: what the GPU reaches at best, by kernels that do one thing."""

import json
import sys
from pathlib import Path
from typing import Any

import click

from hw4cli.errors import Hw4Error, os_error
from hw4cli.system.importing import Importing
from hw4cli.system.interrupts import end_if_stuck
from hw4cli.terminal.options import FILE, format_option
from hw4cli.text.words import columns, print_message, wrapped


@click.command()
@click.option("--gpu", metavar="GPU", help="Measure nothing: show what is known of this GPU, as in T4 or 7.5.")
@format_option("table", "json", "csv")
@click.option("--output", type=FILE, help="Write the record there as JSON, too.")
@click.pass_context
def roofs(ctx: click.Context, /, gpu: str | None, form: str, output: Path | None) -> int:
    """Measure what this GPU reaches: copy, L2 cache, shared memory, FMA, exp2, tensor cores.

    Each rate is the median of runs of a kernel that does one thing. The record is kept for this GPU, and `hw4 explain`
    goes by it from then on; see docs/explain.md. Takes some 5 seconds.
    """
    with Importing():
        from hw4cli.measure.gpus import model_named
        from hw4cli.measure.roofs import DATA_SHEET, kept, rates_of
        from hw4cli.system.files import check_place, write_text

    if gpu is not None and output:
        raise click.UsageError("--output goes with a measurement, and --gpu measures nothing", ctx)
    if output:
        check_place(output)
    if gpu is not None:
        model = model_named(gpu)
        rates, source = rates_of(model, gpu)
        record = kept(gpu) or {"kind": "roofs", "machine": {"gpu": model.name}, "rates": rates}
        rates = record["rates"] if source != DATA_SHEET else rates
    else:
        record = _measured()
        rates, source = record["rates"], "measured"
    if form == "json":
        click.echo(json.dumps({**record, "source": source}, indent=1))
    else:
        _show(record, rates, source, form)
    if output:
        write_text(output, json.dumps(record, indent=1) + "\n")
    return 0


def _measured() -> dict[str, Any]:
    """Measure this GPU, and keep the record. A folder that cannot be written is reported, and the record shown."""
    from hw4cli.device.gpu import Gpu
    from hw4cli.device.timing import GpuTimer
    from hw4cli.measure.roofkernels import measured_rates, roofs_record
    from hw4cli.measure.roofs import keep

    end_if_stuck()
    timer = GpuTimer(Gpu())
    before = timer.clocks()
    record = roofs_record(timer, measured_rates(timer), before)
    try:
        click.echo(wrapped(f"kept in {keep(record)}", columns(sys.stderr)), err=True)
    except OSError as error:
        print_message(os_error(error, "keep the record"))
    except Hw4Error as error:
        print_message(error)
    return record


def _show(record: dict[str, Any], rates: dict[str, float], source: str, form: str) -> None:
    from hw4cli.measure.gpus import model_for
    from hw4cli.measure.roofs import unit_of
    from hw4cli.text import tables

    machine = record["machine"]
    major, _, minor = str(machine.get("compute_capability", "")).partition(".")
    sheet = model_for(machine["gpu"], int(major + minor) if (major + minor).isdecimal() else 0).rates
    if form == "csv":
        rows = [
            {"roof": name, "rate": rate, "unit": unit_of(name), "data_sheet": sheet.get(name)}
            for name, rate in rates.items()
        ]
        click.echo(tables.comma_separated(rows), nl=False)
        return
    width = columns(sys.stdout)
    lines = [
        [
            name,
            f"{rate:,.4g}" if rate < 1000 else f"{rate:,.0f}",
            unit_of(name),
            *([f"{rate / sheet[name]:.0%}" if sheet.get(name) else "-"] if source != "data sheet" else []),
        ]
        for name, rate in rates.items()
    ]
    header = ["roof", source, "unit", *(["of data sheet"] if source != "data sheet" else [])]
    click.echo(wrapped(f"{machine['gpu']}, {source}", width) + "\n")
    click.echo(tables.plain(header, lines, width), nl=False)

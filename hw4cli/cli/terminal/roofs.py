"""What a GPU reaches at best, by kernels that do one thing: measured, or as it is known."""

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import click

from hw4cli.cli.terminal.options import write_outputs
from hw4cli.errors import Hw4Error, os_error
from hw4cli.system.importing import Importing
from hw4cli.system.interrupts import end_if_stuck
from hw4cli.text.records import record_text
from hw4cli.text.words import columns, print_message, wrapped


def measure_roofs(as_json: bool, outputs: Sequence[Path]) -> int:
    """`hw4 bench roofs`: each rate is the median of runs of a kernel that does one thing. The record is kept for this
    GPU, and `hw4 explain` goes by it from then on. The exit status."""
    record = _measured()
    return _publish(record, record["rates"], "measured", as_json, outputs)


def show_roofs(gpu: str | None, as_json: bool, outputs: Sequence[Path]) -> int:
    """`hw4 explain roofs`: what is known of a GPU: measured before, or of its data sheet. The exit status."""
    with Importing():
        from hw4cli.cli.terminal.launches import chosen_gpu
        from hw4cli.lab.measure.roofs import DATA_SHEET, kept, rates_of

    name, _, model = chosen_gpu(gpu)
    rates, source = rates_of(model, gpu or name)
    record = kept(gpu or name) or {"kind": "roofs", "machine": {"gpu": name}, "rates": rates}
    return _publish(record, record["rates"] if source != DATA_SHEET else rates, source, as_json, outputs)


def _publish(
    record: dict[str, Any], rates: dict[str, float], source: str, as_json: bool, outputs: Sequence[Path]
) -> int:
    if as_json:
        click.echo(record_text({**record, "source": source}), nl=False)
    else:
        _show(record, rates, source)
    texts = {
        ".json": lambda: record_text(record),
        ".csv": lambda: _csv(record, rates),
        ".md": lambda: _markdown(record, rates, source),
    }
    write_outputs(outputs, texts)
    return 0


def _measured() -> dict[str, Any]:
    """Measure this GPU, and keep the record. A folder that cannot be written is reported, and the record shown."""
    from hw4cli.device.gpu import Gpu
    from hw4cli.device.timing import GpuTimer
    from hw4cli.lab.measure.roofkernels import measured_rates, roofs_record
    from hw4cli.lab.measure.roofs import keep

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


def _show(record: dict[str, Any], rates: dict[str, float], source: str) -> None:
    from hw4cli.text import tables

    width = columns(sys.stdout)
    click.echo(wrapped(f"{record['machine']['gpu']}, {source}", width) + "\n")
    click.echo(tables.plain(*_table(record, rates, source), width), nl=False)


def _markdown(record: dict[str, Any], rates: dict[str, float], source: str) -> str:
    from hw4cli.text import tables

    return f"{record['machine']['gpu']}, {source}\n\n" + tables.markdown(*_table(record, rates, source))


def _sheet(record: dict[str, Any]) -> dict[str, float]:
    """The rates of the GPU's data sheet."""
    from hw4cli.lab.measure.gpus import model_for

    machine = record["machine"]
    major, _, minor = str(machine.get("compute_capability", "")).partition(".")
    return model_for(machine["gpu"], int(major + minor) if (major + minor).isdecimal() else 0).rates


def _csv(record: dict[str, Any], rates: dict[str, float]) -> str:
    from hw4cli.lab.measure.roofs import unit_of
    from hw4cli.text import tables

    sheet = _sheet(record)
    rows = [
        {"roof": name, "rate": rate, "unit": unit_of(name), "data_sheet": sheet.get(name)}
        for name, rate in rates.items()
    ]
    return tables.comma_separated(rows)


def _table(record: dict[str, Any], rates: dict[str, float], source: str) -> tuple[list[str], list[list[str]]]:
    """Header and lines: each rate, and beside a measured one its share of the data sheet's."""
    from hw4cli.lab.measure.roofs import DATA_SHEET, unit_of

    sheet = _sheet(record)
    lines = [
        [
            name,
            f"{rate:,.4g}" if rate < 1000 else f"{rate:,.0f}",
            unit_of(name),
            *([f"{rate / sheet[name]:.0%}" if sheet.get(name) else "-"] if source != DATA_SHEET else []),
        ]
        for name, rate in rates.items()
    ]
    return ["roof", source, "unit", *(["of data sheet"] if source != DATA_SHEET else [])], lines

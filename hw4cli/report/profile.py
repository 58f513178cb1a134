"""Profilers' tables as the six metrics that the assignment asks for: of nvprof, and of Nsight Compute.

Both write CSV: a line for each metric of each launch (nvprof --csv; ncu --csv), or a column for each metric (ncu --csv
--page raw). nvprof has the six under their own names; of Nsight Compute's metrics they are made as NVIDIA's guide to
the transition has it. That guide counts shared memory in wavefronts, each of which moves 32 banks of 4 bytes.
"""

import csv
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import isfinite
from pathlib import Path
from statistics import fmean

from hw4cli.errors import InputError
from hw4cli.text.words import printable

NVPROF, NCU = "nvprof", "Nsight Compute"
WAVEFRONT = 32 * 4  # bytes
PREFIXES = {"K": 1e3, "k": 1e3, "M": 1e6, "G": 1e9, "T": 1e12, "n": 1e-9, "u": 1e-6, "m": 1e-3}
TIME = "gpu__time_duration.sum"
KERNEL = ("Kernel Name", "Kernel", "kernel")  # the column of the kernel
COLUMNS = ("Metric Name", "sm__", "l1tex__")  # what the header of a table has, and no message of a profiler's
NUMBER = re.compile(r"([\d,]*\.?\d+(?:[eE][-+]?\d+)?)\s*(.*)")


@dataclass(frozen=True)
class Metric:
    """One of the six: its name as nvprof has it, its unit, and Nsight Compute's metric with the factor to the unit.
    `rate`: the metric is a sum, and its rate a second is meant."""

    name: str
    unit: str
    ncu: str
    factor: float
    rate: bool = False


METRICS = (
    Metric("achieved_occupancy", "", "sm__warps_active.avg.pct_of_peak_sustained_active", 0.01),
    Metric("sm_efficiency", "%", "smsp__cycles_active.avg.pct_of_peak_sustained_elapsed", 1),
    Metric(
        "shared_load_throughput", "GB/s", "l1tex__data_pipe_lsu_wavefronts_mem_shared_op_ld.sum", WAVEFRONT / 1e9, True
    ),
    Metric(
        "shared_store_throughput", "GB/s", "l1tex__data_pipe_lsu_wavefronts_mem_shared_op_st.sum", WAVEFRONT / 1e9, True
    ),
    Metric("gld_throughput", "GB/s", "l1tex__t_bytes_pipe_lsu_mem_global_op_ld.sum", 1e-9, True),
    Metric("gst_throughput", "GB/s", "l1tex__t_bytes_pipe_lsu_mem_global_op_st.sum", 1e-9, True),
)
DRAM = ("dram__bytes_read.sum", "dram__bytes_write.sum")


@dataclass(frozen=True)
class Counters:
    """The figures of one kernel: the mean of its launches, by the names of METRICS, and GB read from and written to
    device memory by those of DRAM. What was not measured is missing."""

    kernel: str
    tool: str
    source: str
    figures: Mapping[str, float]


def read_profile(path: Path, name: str) -> list[Counters]:
    """The kernels of a profiler's CSV file, called `name`; none if the file is no profiler's. InputError if it cannot
    be read."""
    try:
        lines = path.read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError as error:
        raise InputError(f"cannot read {name}: {error.strerror}") from None
    header, rows = _table(lines)
    kernel = next((place for place, column in enumerate(header) if column in KERNEL), None)
    if kernel is None:
        return []
    cells = _long(header, rows) if "Metric Name" in header else _wide(header, rows, kernel)
    kernels: dict[str, dict[str, list[float]]] = {}
    for row, metric, value in cells:
        if kernel < len(row):
            symbol = printable(row[kernel].partition("(")[0].removeprefix("void ").strip())
            kernels.setdefault(symbol, {}).setdefault(metric, []).append(value)
    tool = NVPROF if "Invocations" in header else NCU
    found = [(symbol, _figures({key: fmean(all) for key, all in own.items()})) for symbol, own in kernels.items()]
    return [Counters(symbol, tool, printable(name), figures) for symbol, figures in found if figures]


def _table(lines: Sequence[str]) -> tuple[list[str], list[list[str]]]:
    """The header and the rows of a profiler's table, which stands among its messages; nothing where there is none."""
    start = next((place for place, line in enumerate(lines) if any(word in line for word in COLUMNS)), len(lines))
    try:
        rows = list(csv.reader(line for line in lines[start:] if line.strip() and not line.startswith("==")))
    except csv.Error:
        return [], []
    return ([cell.strip() for cell in rows[0]], rows[1:]) if rows else ([], [])


def _long(header: Sequence[str], rows: Sequence[list[str]]) -> Iterator[tuple[list[str], str, float]]:
    """Row, metric and value, in base units, of a table with a metric a line."""
    metric = header.index("Metric Name")
    value = next((place for place, column in enumerate(header) if column in ("Avg", "Metric Value")), None)
    unit = header.index("Metric Unit") if "Metric Unit" in header else None
    for row in rows:
        if value is not None and len(row) == len(header):
            found = _number(row[value], row[unit] if unit is not None else "")
            if found is not None:
                yield row, row[metric], found


def _wide(header: Sequence[str], rows: Sequence[list[str]], kernel: int) -> Iterator[tuple[list[str], str, float]]:
    """The same of a table with a column for each metric; a line of units may stand below its head. A time without a
    unit is in nanoseconds."""
    units = [""] * len(header)
    if rows and not "".join(rows[0][kernel : kernel + 1]).strip():
        units, rows = [*rows[0], *units], rows[1:]
    for row in rows:
        for name, cell, unit in zip(header, row, units, strict=False):
            found = _number(cell, unit) if "__" in name else None
            if found is not None:
                yield row, name, found / 1e9 if name == TIME and not unit else found


def _number(text: str, unit: str) -> float | None:
    """A value in its base unit (bytes, seconds, a second); None if there is no number. nvprof writes the unit behind
    the value."""
    match = NUMBER.fullmatch(text.strip())
    if not match:
        return None
    value, unit = float(match[1].replace(",", "")), match[2] or unit
    for part, above in ((unit.partition("/")[0], True), (unit.partition("/")[2], False)):
        if part and part[0] in PREFIXES and re.fullmatch(r".(B|bytes?|second|s|cycle|)", part):
            value = value * PREFIXES[part[0]] if above else value / PREFIXES[part[0]]
    return value if isfinite(value) else None


def _figures(values: Mapping[str, float]) -> dict[str, float]:
    """The six metrics and the traffic of device memory, of what was measured."""
    found = {}
    for metric in METRICS:
        own = values.get(metric.name)
        if own is not None:  # nvprof's: bytes a second where the unit is GB/s
            found[metric.name] = own / 1e9 if metric.unit == "GB/s" else own
        elif (ncu := _of_ncu(metric, values)) is not None:
            found[metric.name] = ncu * metric.factor
    return {**found, **{key: values[key] / 1e9 for key in DRAM if key in values}}


def _of_ncu(metric: Metric, values: Mapping[str, float]) -> float | None:
    """Nsight Compute's value, a second where a rate is meant; from sum and time where there is no rate."""
    if not metric.rate:
        return values.get(metric.ncu)
    rate = values.get(f"{metric.ncu}.per_second")
    time = values.get(TIME)
    if rate is None and time and metric.ncu in values:
        return values[metric.ncu] / time
    return rate

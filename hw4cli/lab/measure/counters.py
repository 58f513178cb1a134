"""Profilers' CSV tables as launches with their counters: of nvprof, of Nsight Compute, of rocprofv3.

nvprof (--csv) writes a line for each metric of a kernel, over all its launches; Nsight Compute a line for each metric
of a launch (--csv) or a column for each metric (--csv --page raw); rocprofv3 (--output-format csv) a line for each
counter of a launch. All write messages of their own, or the program's, around the table.
"""

import csv
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from math import isfinite

from hw4cli.lab.measure.metrics import NCU, NVPROF, ROCPROF, TIME
from hw4cli.text.words import printable

PREFIXES = {"K": 1e3, "k": 1e3, "M": 1e6, "G": 1e9, "T": 1e12, "n": 1e-9, "u": 1e-6, "m": 1e-3}
KERNEL = ("Kernel Name", "Kernel", "kernel", "Kernel_Name")  # the column of the kernel
COLUMNS = ("Metric Name", "Event Name", "sm__", "l1tex__", "Counter_Name")  # what a table's header has, and no message
LEVEL = re.compile(r"(?:Idle|Low|Mid|High|Max) \((\d+)\)")  # of nvprof's utilizations
NUMBER = re.compile(r"([\d,]*\.?\d+(?:[eE][-+]?\d+)?)\s*(.*)")
NCU_ID, ROCPROF_ID = "ID", "Dispatch_Id"
AMD_FACTS = ("VGPR_Count", "LDS_Block_Size", "Scratch_Size")  # that rocprofv3 has of each launch


@dataclass
class Launch:
    """A launch, or with nvprof all launches of a kernel: its function's name; its counters by name, in base units
    (bytes, seconds, a second); with nvprof the least and the greatest of each, and how many launches there were."""

    kernel: str
    values: dict[str, float] = field(default_factory=dict)
    extremes: dict[str, tuple[float, float]] = field(default_factory=dict)
    count: int = 1
    grid: str = ""  # as Nsight Compute writes it: (512, 1, 1)
    gpu: str = ""  # its name, where the table has it


Cells = Mapping[str, str]


def read_launches(text: str) -> tuple[str, list[Launch]]:
    """The tool that wrote a text, and the launches of its tables in order; none where there is no table."""
    tool, found = NCU, dict[str, Launch]()
    for header, rows in _tables(text.splitlines()):
        name = next((column for column in header if column in KERNEL), None)
        if name is None:
            continue
        cells = [dict(zip(header, row, strict=False)) for row in rows]
        if "Counter_Name" in header:
            tool = ROCPROF
            _add(found, _of_rocprof(cells), name, ROCPROF_ID)
        elif "Invocations" in header:
            tool = NVPROF
            _add_nvprof(found, cells, name)
        elif "Metric Name" in header:
            _add(found, _of_lines(cells), name, NCU_ID)
        else:
            _add(found, _of_columns(header, cells, name), name, NCU_ID)
    return tool, [launch for launch in found.values() if launch.values]


def _tables(lines: Sequence[str]) -> Iterator[tuple[list[str], list[list[str]]]]:
    """Header and rows of each table, which stand among the messages of the profiler."""
    starts = [n for n, line in enumerate(lines) if "," in line and _is_header(line)]
    for start, end in pairwise([*starts, len(lines)]):
        try:
            rows = list(csv.reader(line for line in lines[start:end] if line.strip() and not line.startswith("==")))
        except csv.Error:
            continue
        if rows:
            yield [cell.strip() for cell in rows[0]], rows[1:]


def _is_header(line: str) -> bool:
    return any(word in line for word in COLUMNS) and any(f'"{word}"' in line or word in line for word in KERNEL)


def _add(found: dict[str, Launch], cells: Iterator[tuple[Cells, str, float]], name: str, number: str) -> None:
    """Add counters to the launches that they are of: those of one number, else of one kernel's name."""
    for row, counter, value in cells:
        kernel = symbol(row.get(name, ""))
        made = Launch(kernel, grid=row.get("Grid Size", ""), gpu=_gpu(row))
        launch = found.setdefault(f"{row.get(number, '')} {kernel}", made)
        launch.values[counter] = value


def _gpu(row: Cells) -> str:
    """The GPU's name, as nvprof has it, with its number behind it, or Nsight Compute; "" where there is none."""
    name = row.get("device__attribute_display_name") or row.get("Device") or ""
    return "" if name.isdecimal() else printable(re.sub(r" \(\d+\)$", "", name))


def symbol(name: str) -> str:
    """A function's name without its result and its parameters."""
    return printable(name.partition("(")[0].removeprefix("void ").strip())


def _of_lines(rows: Sequence[Cells]) -> Iterator[tuple[Cells, str, float]]:
    for row in rows:
        value = number(row.get("Metric Value", ""), row.get("Metric Unit", ""))
        if value is not None:
            yield row, row["Metric Name"], value


def _of_columns(header: Sequence[str], rows: Sequence[Cells], name: str) -> Iterator[tuple[Cells, str, float]]:
    """A line of units may stand below the header. A time without a unit is in nanoseconds."""
    units: Cells = {}
    if rows and not rows[0].get(name, "").strip():
        units, rows = rows[0], rows[1:]
    for row in rows:
        for counter in header:
            value = number(row.get(counter, ""), units.get(counter, "")) if "__" in counter else None
            if value is not None:
                yield row, counter, value / 1e9 if counter == TIME and not units.get(counter) else value


def _of_rocprof(rows: Sequence[Cells]) -> Iterator[tuple[Cells, str, float]]:
    for row in rows:
        value = number(row.get("Counter_Value", ""), "")
        if value is not None:
            yield row, row["Counter_Name"], value
        begin, end = (number(row.get(f"{word}_Timestamp", ""), "") for word in ("Start", "End"))
        if begin is not None and end is not None:
            yield row, TIME, (end - begin) / 1e9
        for fact in AMD_FACTS:
            if (amount := number(row.get(fact, ""), "")) is not None:
                yield row, fact, amount


def _add_nvprof(found: dict[str, Launch], rows: Sequence[Cells], name: str) -> None:
    """nvprof's lines: the unit stands behind a value. Events have no average that is called Avg in old versions."""
    for row in rows:
        kernel, counter = symbol(row.get(name, "")), row.get("Metric Name") or row.get("Event Name") or ""
        average = number(row.get("Avg", ""), "")
        if not counter or average is None:
            continue
        launch = found.setdefault(kernel, Launch(kernel, gpu=_gpu(row)))
        launch.values[counter] = average
        launch.count = int(number(row.get("Invocations", ""), "") or 1)
        low, high = (number(row.get(column, ""), "") for column in ("Min", "Max"))
        if low is not None and high is not None:
            launch.extremes[counter] = low, high


def number(text: str, unit: str) -> float | None:
    """A value in its base unit (bytes, seconds, a second), whose unit may stand behind it; None if there is none.

    >>> number("81.002MB/s", "")
    81002000.0
    """
    if level := LEVEL.fullmatch(text.strip()):
        return float(level[1])
    match = NUMBER.fullmatch(text.strip())
    if not match:
        return None
    value, unit = float(match[1].replace(",", "")), match[2] or unit
    for part, above in ((unit.partition("/")[0], True), (unit.partition("/")[2], False)):
        if part and part[0] in PREFIXES and re.fullmatch(r".(B|bytes?|second|s|cycle|)", part):
            value = value * PREFIXES[part[0]] if above else value / PREFIXES[part[0]]
    return value if isfinite(value) else None

"""Profilers' tables as the six metrics that the assignment asks for."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean

from hw4cli.errors import InputError
from hw4cli.lab.measure.counters import Launch, read_launches
from hw4cli.lab.measure.metrics import ASSIGNMENT, NVPROF, ROCPROF, value_of
from hw4cli.show.records import Record
from hw4cli.system.reading import read_regular
from hw4cli.text.words import printable

METRICS = ASSIGNMENT
DRAM = ("dram__bytes_read.sum", "dram__bytes_write.sum")
# Of rocprofv3's counters, what the six do not have: the share of a wavefront's lanes that work, and that of the cycles
# of shared memory which bank conflicts take.
LANES, CONFLICTS = "VALUUtilization", "SQ_LDS_BANK_CONFLICT"
__all__ = ["CONFLICTS", "DRAM", "LANES", "METRICS", "NVPROF", "ROCPROF", "Counters", "counters_of", "read_profile"]


@dataclass(frozen=True)
class Counters:
    """The figures of one kernel: the mean of its launches, by the names of METRICS, and GB read from and written to
    device memory by those of DRAM. What was not measured is missing."""

    kernel: str
    tool: str
    source: str
    figures: Mapping[str, float]
    gpu: str = ""  # where it was measured, if the file says so


def read_profile(path: Path, name: str) -> list[Counters]:
    """The kernels of a profiler's CSV file, called `name`; none if the file is not a profiler's. InputError if it
    cannot be read."""
    try:
        text = read_regular(path).decode(errors="replace")
    except OSError as error:
        raise InputError(f"cannot read {name}: {error.strerror}") from None
    tool, launches = read_launches(text)
    kernels: dict[str, list[Launch]] = {}
    for launch in launches:
        kernels.setdefault(launch.kernel, []).append(launch)
    found = [
        Counters(kernel, tool, printable(name), _figures(tool, own), own[0].gpu) for kernel, own in kernels.items()
    ]
    return [one for one in found if one.figures]


def counters_of(record: Record) -> list[Counters]:
    """The kernels of a record of `hw4 profile`, programs' too: means of their launches."""
    launches: dict[tuple[str, str], list[Mapping[str, float]]] = {}
    for one in record.profiles:
        launches.setdefault((f"{one.program}: " * bool(one.program) + one.symbol, one.tool), []).append(one.figures)
    names = {metric.name: (metric.name, 1.0) for metric in METRICS}
    names |= {key: (name, 1e-3) for key, name in zip(DRAM, ("dram_read", "dram_written"), strict=True)}
    found = []
    for (kernel, tool), own in launches.items():
        values = {key: [scale * one[name] for one in own if name in one] for key, (name, scale) in names.items()}
        figures = {key: fmean(known) for key, known in values.items() if known}
        found.append(Counters(kernel, tool, record.name, figures, record.gpu))
    return [one for one in found if one.figures]


def _figures(tool: str, launches: list[Launch]) -> dict[str, float]:
    """The six metrics and the traffic of device memory, of what was measured."""
    found = {metric.name: [value_of(metric, tool, launch.values) for launch in launches] for metric in METRICS}
    found |= {key: [launch.values[key] / 1e9 for launch in launches if key in launch.values] for key in DRAM}
    if tool == ROCPROF:
        found |= _of_amd([launch.values for launch in launches])
    known = {key: [value for value in values if value is not None] for key, values in found.items()}
    return {key: fmean(values) for key, values in known.items() if values}


def _of_amd(launches: list[Mapping[str, float]]) -> dict[str, list[float | None]]:
    """What rocprofv3 counted beside the six: in percent; of device memory, from kilobytes."""
    cycles = [(values.get(CONFLICTS), values.get("SQ_LDS_IDX_ACTIVE")) for values in launches]
    return {
        LANES: [values.get(LANES) for values in launches],
        CONFLICTS: [100 * lost / all_ for lost, all_ in cycles if lost is not None and all_],
        **{
            key: [1024e-9 * values[counter] for values in launches if counter in values]
            for key, counter in zip(DRAM, ("FETCH_SIZE", "WRITE_SIZE"), strict=True)
        },
    }

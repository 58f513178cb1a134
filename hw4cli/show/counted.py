"""What profilers counted and compilers said of kernels, from records: of `hw4 profile` and of `hw4 check`."""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from math import isfinite
from typing import Any

from hw4cli.lab.measure.metrics import SETS
from hw4cli.lab.measure.metrics import impossible as impossible_value
from hw4cli.problem.workload import FLOAT32
from hw4cli.text.words import printable

FILES = re.compile(r"\(B, N, d\) = \((\d+), (\d+), (\d+)\)( causal)?")
ARRAYS = re.compile(r"\(B, H, N, d\) = \((\d+), (\d+), (\d+), (\d+)\) (\w+)( causal)?")
SHORT_TYPES = {"fp16": "float16", "bf16": "bfloat16", "fp32": "float32"}
METRICS = {metric.name: metric for metrics in SETS.values() for metric in metrics}


@dataclass(frozen=True)
class Counted:
    """What a profiler counted of one launch of a kernel: `figures` by the names of hw4's metrics, in their units, and
    what the `models` have of them. `shape` is (batches and heads, N, d), None where the record does not say it.
    `kernel`: the one whose launch it is; of a program, empty."""

    symbol: str
    kernel: str
    program: str
    shape: tuple[int, int, int] | None
    dtype: str
    causal: bool
    tile: str
    tool: str
    figures: Mapping[str, float]
    models: Mapping[str, float]
    refused: tuple[str, ...]  # why a value that was counted is none


@dataclass(frozen=True)
class Compiled:
    """What a compiler said of a launch: registers of a thread, bytes that spill, shared memory, occupancy."""

    kernel: str
    symbol: str
    architecture: str
    registers: int
    spilled: int
    shared: int
    occupancy: float | None


def counted(document: Mapping[str, Any]) -> list[Counted]:
    """The launches of a record of `hw4 profile`. Raises ValueError and the like where it is damaged."""
    what = str(document["of"])
    names = re.split(r" (?:on|with) ", what)[0].split(", ")
    shape, dtype, causal = _workload(what, document)
    found = []
    for launch in document["launches"]:
        symbol, program = str(launch["kernel"]), str(launch.get("program") or "")
        figures, models, refused = dict[str, float](), dict[str, float](), list[str]()
        for metric in launch["metrics"]:
            name = str(metric["name"])
            reason = str(metric.get("refused") or "")
            for value, into in ((metric["value"], figures), (metric.get("model"), models)):
                if value is not None and not isfinite(float(value)):
                    raise ValueError(f"a {name} that is not a number")
                if value is not None and not (
                    into is figures and (reason := reason or impossible_of(name, float(value)))
                ):
                    into[name] = float(value)
            refused += [f"{symbol}: {name} of {reason}"] * bool(reason)
        found.append(
            Counted(
                printable(symbol),
                "" if program else printable(owner(symbol, names)),
                printable(program),
                shape,
                dtype,
                causal,
                printable(str(document.get("tile") or "")),
                printable(str(document["tool"])),
                figures,
                models,
                tuple(map(printable, refused)),
            )
        )
    return found


def impossible_of(name: str, value: float) -> str:
    """Why a value of a metric of this name is refused, or ""."""
    return impossible_value(METRICS[name], value) if name in METRICS else ""


def owner(symbol: str, kernels: Iterable[str]) -> str:
    """Which of these kernels a launch is of: the one whose name its own begins with; itself, where none is so."""
    fitting = [name for name in kernels if symbol == name or symbol.startswith(f"{name}_")]
    return max(fitting, key=len, default=symbol)


def _workload(what: str, document: Mapping[str, Any]) -> tuple[tuple[int, int, int] | None, str, bool]:
    if found := FILES.search(what):
        sizes = int(found[1]), int(found[2]), int(found[3])
        return sizes, FLOAT32, bool(document.get("causal") or found[4])
    if found := ARRAYS.search(what):
        sizes = int(found[1]) * int(found[2]), int(found[3]), int(found[4])
        return sizes, SHORT_TYPES.get(found[5], found[5]), found[6] is not None
    return None, FLOAT32, False


def compiled(rows: Sequence[Mapping[str, Any]]) -> list[Compiled]:
    """The launches of what `hw4 check -o FILE.json` wrote. Raises ValueError and the like where it is damaged."""
    return [
        Compiled(
            printable(str(row["kernel"])),
            printable(str(row["symbol"])),
            printable(str(row["compute_capability"])),
            int(row["registers"]),
            int(row.get("spilled_bytes") or 0),
            int(row.get("shared_bytes") or 0),
            None if row.get("occupancy") is None else float(row["occupancy"]),
        )
        for row in rows
        if row.get("symbol") and row.get("registers") is not None
    ]


def is_check(document: Any) -> bool:
    """Whether this is what `hw4 check -o FILE.json` writes: of compilers, or of executions on the CPU. Where
    nothing was found, it is empty."""
    wanted = {"kernel", "compute_capability"}
    return isinstance(document, list) and all(isinstance(row, dict) and wanted <= {*row} for row in document)

"""The records of `hw4 bench` as points: what was measured, of which kernel or program, on which workload, and where."""

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import groupby
from math import inf, isfinite
from pathlib import Path
from typing import Any

from hw4cli.errors import InputError
from hw4cli.lab.tables import ARRAYS, FORWARD, PROGRAMS, TIMELINE, read_record
from hw4cli.plans.ladder import VARIANTS
from hw4cli.problem.workload import FLOAT32, Workload
from hw4cli.system.reading import read_json
from hw4cli.text.words import printable

READ = (None, ARRAYS, PROGRAMS, TIMELINE)  # kinds of records: of kernels, of kernels of arrays, and these
TILED = re.compile(r"(.+) (\d+)x(\d+)")  # how `hw4 bench --tile` names a kernel


@dataclass(frozen=True)
class Setting:
    """What makes times comparable beside B and N: head size, element type, mask, and which pass is timed. Rows of early
    records name neither type nor pass: they are of float32, and forward."""

    d: int
    dtype: str = FLOAT32  # and, of arrays, what else sets a workload apart: heads, keys, layout
    causal: bool = False
    direction: str = FORWARD

    @property
    def words(self) -> str:
        """As a heading: "d = 64, float16, causal"."""
        extra = [self.dtype] * (self.dtype != FLOAT32) + ["causal"] * self.causal
        return ", ".join([f"d = {self.d}", *extra, *[self.direction] * (self.direction != FORWARD)])


@dataclass(frozen=True)
class Point:
    """One kernel on one case. Times in milliseconds; low and high bound the median with 95 % confidence."""

    kernel: str
    tile: tuple[int, int] | None  # BR, BC where they were given by hand
    case: str
    B: int
    N: int
    setting: Setting
    ms: float
    low: float
    high: float
    samples: int
    tflops: float
    figures: dict[str, float | None]  # of FIGURES, what the record has

    @property
    def name(self) -> str:
        """The kernel, and its tile if that was given by hand."""
        return f"{self.kernel} {self.tile[0]}x{self.tile[1]}" if self.tile else self.kernel

    @property
    def where(self) -> str:
        """The case and its shape: "t28 (4, 16384, 64)"; the shape alone if the case is named after it."""
        shape = f"({self.B}, {self.N}, {self.setting.d})"
        return shape if self.case == f"{self.B}x{self.N}x{self.setting.d}" else f"{self.case} {shape}"


@dataclass(frozen=True)
class Run:
    """One program on one case, or on their sum: wall times in seconds."""

    program: str
    case: str
    shape: tuple[int, int, int] | None
    seconds: float
    fastest: float
    slowest: float


@dataclass(frozen=True)
class Timeline:
    """What one block of a kernel did when: spans of (warp, tile, activity, begin, end), in clocks from the first on.

    A tile has so many `keys`; an activity is a place in `activities`."""

    kernel: str
    shape: tuple[int, int, int]
    block: int
    keys: int
    activities: tuple[str, ...]
    spans: tuple[tuple[int, ...], ...]


@dataclass(frozen=True)
class Record:
    """A record, its points (of kernels), runs (of programs) or timelines (of blocks), and where and how they were
    measured."""

    name: str
    gpu: str
    cc: int | None
    facts: str  # the machine, the commit, the date and the file, in one line
    method: str
    date: str
    sgemm_tflops: float | None
    copy_gb_per_s: float | None
    points: tuple[Point, ...] = ()
    runs: tuple[Run, ...] = ()
    failures: tuple[str, ...] = ()
    timelines: tuple[Timeline, ...] = ()


FIGURES = ("sgemm_percent", "gb_per_s", "max_error", "registers", "shared_bytes", "occupancy", "gflop_per_joule")


def load(path: Path) -> Record:
    """A record that `hw4 bench -o` wrote. InputError if it is none or of another kind, or a row is damaged."""
    raw = read_record(path)
    if raw.get("kind") not in READ:
        raise InputError(f"{path} is a record of {printable(str(raw['kind']))}, not of kernels, programs or timelines")
    machine = raw["machine"]
    try:
        programs, timelines = raw.get("kind") == PROGRAMS, raw.get("kind") == TIMELINE
        timed = [(place, row) for place, row in enumerate(raw["rows"], 1) if row["status"] == "ok"]
        who = "program" if programs else "kernel"
        failures = [f"{r[who]} on {r['case']} {r['status']}: {r['reason']}" for r in raw["rows"] if r["status"] != "ok"]
        major, _, minor = str(machine.get("compute_capability", "")).partition(".")
        return Record(
            name=printable(path.name),
            gpu=_machine(machine),
            cc=int(major + minor) if major.isdecimal() and minor.isdecimal() else None,
            facts=_facts(raw, path),
            method=printable(f"{raw['method']['timer']}; {raw['method']['cache']}"),
            date=printable(raw.get("date", "")),
            sgemm_tflops=_positive(raw.get("sgemm_tflops")),
            copy_gb_per_s=_positive(raw.get("copy_gb_per_s")),
            points=() if programs or timelines else tuple(_made(_point, timed)),
            runs=tuple(_made(_run, timed)) if programs else (),
            failures=tuple(map(printable, failures)),
            timelines=tuple(_made(partial(_timeline, raw["activities"]), timed)) if timelines else (),
        )
    except (KeyError, TypeError, ValueError, AttributeError, OverflowError) as error:
        detail = f": {error}" if isinstance(error, ValueError) else ""
        raise InputError(f"{path} is a damaged record of hw4 bench{detail}") from None


def is_roofs(path: Path) -> bool:
    """Whether a file is a record of what a GPU reaches, of `hw4 bench roofs`, and not of kernels."""
    try:
        record = read_json(path)
    except (OSError, ValueError):  # which reading it as a record of kernels reports
        return False
    return isinstance(record, dict) and record.get("kind") == "roofs"


def _facts(raw: dict[str, Any], path: Path) -> str:
    machine = raw["machine"]
    driver = [f"driver {machine['driver']}"] if machine.get("driver") else []
    cuda = [f"{name} {machine[key]}" for key, name in (("cuda", "CUDA"), ("hip", "HIP")) if machine.get(key)]
    where = [_machine(machine), *driver, *cuda, f"commit {raw.get('commit') or 'unknown'}"]
    return printable(", ".join([*where, str(raw.get("date", "")), path.name]))


def _machine(machine: dict[str, Any]) -> str:
    return printable(machine.get("gpu") or machine.get("cpu") or "unknown machine")


def _made(make: Any, rows: Sequence[tuple[int, dict[str, Any]]]) -> Iterator[Any]:
    for place, row in rows:
        try:
            yield make(row)
        except (KeyError, TypeError, ValueError, OverflowError) as error:
            missing = f"has no {error}" if isinstance(error, KeyError) else f"holds {error}"
            raise ValueError(f"row {place} {missing}") from None


def _shape(row: dict[str, Any]) -> tuple[int, int, int]:
    B, N, d = (int(size) for size in row["shape"])
    try:
        Workload.one_head(B, N, d).check("a shape that hw4 does not compute")
    except InputError as error:
        raise ValueError(error) from None
    return B, N, d


def _point(row: dict[str, Any]) -> Point:
    B, N, d = _shape(row)
    match = TILED.fullmatch(row["kernel"])
    direction = str(row.get("pass") or FORWARD)
    setting = Setting(d, _type(row, N), bool(row.get("causal")), direction)
    ms, low, high, tflops = (float(row[key]) for key in ("median", "low", "high", "tflops"))
    figures = {key: None if row.get(key) is None else float(row[key]) for key in FIGURES}
    if not (0 < low <= ms <= high and tflops > 0):
        raise ValueError("impossible times or sizes")
    if not all(map(isfinite, (high, tflops, *(value for value in figures.values() if value is not None)))):
        raise ValueError("a figure that is not a number")
    if any(value is not None and value < 0 for value in figures.values()):
        raise ValueError("a figure below 0")
    return Point(
        kernel=printable(match[1] if match else row["kernel"]),
        tile=(int(match[2]), int(match[3])) if match else None,
        case=printable(row["case"]),
        B=B,
        N=N,
        setting=setting,
        ms=ms,
        low=low,
        high=high,
        samples=int(row["samples"]),
        tflops=tflops,
        figures=figures,
    )


def _type(row: dict[str, Any], N: int) -> str:
    """The element type; with what sets a workload of arrays apart from those of the same sizes, if anything does."""
    dtype, heads, shared = str(row.get("dtype") or FLOAT32), row.get("heads"), row.get("kv_heads")
    keys, layout, numbers = row.get("Nk") or N, row.get("layout") or "BHND", row.get("distribution")
    extra = [f"{int(shared)} heads of K and V for {int(heads)}"] if heads and shared and heads != shared else []
    extra += [f"{int(keys)} keys"] * (keys != N) + [f"layout {layout}"] * (layout != "BHND")
    extra += [f"{numbers} numbers"] * (dtype == FLOAT32 and numbers == "normal")
    return printable(", ".join([dtype, *extra]))


def _run(row: dict[str, Any]) -> Run:
    shape = _shape(row) if row["shape"] else None
    seconds, fastest, slowest = (float(row[key]) for key in ("median", "fastest", "slowest"))
    if not (0 < fastest <= seconds <= slowest and isfinite(slowest)):
        raise ValueError("impossible times or sizes")
    return Run(printable(row["program"]), printable(row["case"]), shape, seconds, fastest, slowest)


def _timeline(activities: Sequence[Any], row: dict[str, Any]) -> Timeline:
    names = tuple(printable(str(name)) for name in activities)
    spans = tuple(tuple(int(number) for number in span) for span in row["spans"])
    for warp, tile, activity, begin, end in spans:
        if not (0 <= warp < 32 and tile >= 0 and 0 <= activity < len(names) and 0 <= begin < end):
            raise ValueError("an impossible span")
    return Timeline(printable(row["kernel"]), _shape(row), int(row["block"]), int(row["keys"]), names, spans)


def _positive(value: Any) -> float | None:
    """A measured peak, or None where the record has none."""
    if value is None:
        return None
    if not 0 < (peak := float(value)) < inf:
        raise ValueError("an impossible peak")
    return peak


def latest(records: Sequence[Record]) -> list[Point]:
    """The points of several records of one GPU. Of a kernel on a workload that several have, that of the newest; on the
    same day, of the record with the most kernels there, so that what is compared was measured in turn."""
    dated: list[tuple[str, int, Point]] = []
    for record in records:
        held = Counter((p.B, p.N, p.setting) for p in record.points)
        dated += [(record.date, held[p.B, p.N, p.setting], p) for p in record.points]
    found = {(p.name, p.B, p.N, p.setting): p for *_, p in sorted(dated, key=lambda one: one[:2])}
    return sorted(found.values(), key=lambda p: ladder_place(p.kernel))


def is_ours(kernel: str) -> bool:
    """Whether this is a kernel of the ladder or a file of the user's own, and not somebody else's attention."""
    return kernel in VARIANTS or kernel.endswith(".cu")


def ladder_place(kernel: str) -> int:
    """The kernel's place in the ladder; after its end for what is not in it."""
    return list(VARIANTS).index(kernel) if kernel in VARIANTS else len(VARIANTS)


def by_setting(points: Sequence[Point]) -> dict[Setting, list[Point]]:
    """The points of each head size, type, mask and pass, in this order."""
    order = sorted(points, key=lambda p: (p.setting.dtype, p.setting.direction, p.setting.causal, p.setting.d))
    return {setting: list(group) for setting, group in groupby(order, key=lambda p: p.setting)}

"""Records of all commands as points, runs and counters: what was measured, on which workload, and where."""

import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import groupby
from math import inf, isfinite
from pathlib import Path
from typing import Any

from hw4cli.errors import InputError
from hw4cli.lab.measure.roofs import checked
from hw4cli.lab.tables import ARRAYS, FORWARD, PROGRAMS, TIMELINE, read_record
from hw4cli.plans.ladder import VARIANTS
from hw4cli.problem.verdict import Verdict
from hw4cli.problem.workload import FLOAT32, Workload
from hw4cli.show.counted import SHORT_TYPES, Compiled, Counted, compiled, counted, is_check
from hw4cli.system.reading import read_json
from hw4cli.text.words import counted as counted_words
from hw4cli.text.words import printable

# Kinds of records: of kernels of files (which have no kind), of arrays and so on, and which command wrote them.
KERNELS, TUNE, PROFILE, ROOFS, JUDGED, CHECK = "kernels", "tune", "profile", "roofs", "hw4-results", "check"
MEASURED = (KERNELS, ARRAYS, PROGRAMS, TIMELINE)
COMMANDS = {TUNE: "tune", PROFILE: "profile", ROOFS: "bench roofs", JUDGED: "judge", CHECK: "check"}
SUM = "sum"  # the row of a record of programs that adds up the cases
ARRAY = re.compile(r"\((\d+), (\d+), (\d+), (\d+)\) (\w+)( causal)?")  # a workload in words, without further ones
TILED = re.compile(r"(.+) (\d+)x(\d+)((?: [A-Z_]+=\d+)*)")  # how `hw4 bench --tile` names a kernel


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
    knobs: str = ""  # of a candidate of hw4 tune: "groups=3 stages=2"

    @property
    def name(self) -> str:
        """The kernel, and its tile if that was given by hand."""
        return f"{self.kernel} {self.tile[0]}x{self.tile[1]} {self.knobs}".rstrip() if self.tile else self.kernel

    @property
    def schedule(self) -> str:
        """The kernel and its stages, if those were given: tiles of the same are compared with one another."""
        stages = re.search(r"stages=(\d+)", self.knobs)
        return f"{self.kernel}, {counted_words(int(stages[1]), 'stage')}" if stages else self.kernel

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
    """A record, its points (of kernels), runs (of programs), timelines (of blocks), profiles (of launches), rates (of a
    GPU) or compiled launches, and where and how they were measured."""

    name: str
    gpu: str
    cc: int | None
    facts: str  # the machine, the commit, the date and the file, in one line
    method: str
    date: str
    sgemm_tflops: float | None = None
    copy_gb_per_s: float | None = None
    points: tuple[Point, ...] = ()
    runs: tuple[Run, ...] = ()
    failures: tuple[str, ...] = ()
    timelines: tuple[Timeline, ...] = ()
    profiles: tuple[Counted, ...] = ()
    rates: Mapping[str, float] = field(default_factory=dict)  # of hw4 bench roofs
    compiled: tuple[Compiled, ...] = ()
    kind: str = KERNELS

    @property
    def holds(self) -> str:
        """What it is a record of, in words."""
        tiles = bool(self.points) and all(p.tile for p in self.points)
        there = {
            "times by tile": tiles,
            "times of kernels": bool(self.points) and not tiles,
            "times of programs": bool(self.runs),
            "timelines of blocks": bool(self.timelines),
            "counters of a profiler": bool(self.profiles),
            "a GPU's roofs": bool(self.rates),
            "what a compiler said": bool(self.compiled),
        }
        return " and ".join(words for words, held in there.items() if held) or "nothing that was measured"


class OtherRecordError(InputError):
    """A record of hw4's, of a kind that is drawn nowhere."""


TAKEN = ("registers", "shared_bytes", "occupancy")  # of the GPU, by a kernel
FIGURES = ("sgemm_percent", "gb_per_s", "max_error", *TAKEN, "gflop_per_joule", "joules")


def load(path: Path) -> Record:
    """A record that a command wrote by -o: `bench` (also of roofs), `tune`, `profile`, `check`; `judge`'s results.json.

    Raises OtherRecordError for a record that is drawn nowhere, InputError if it is none or damaged.
    """
    try:
        document = read_json(path)
    except OSError as error:
        raise InputError(f"cannot read {path}: {error.strerror}") from None
    except ValueError:
        raise InputError(f"{path} is not a record of hw4: it is not JSON") from None
    kind = kind_of(document)
    if kind is None:
        raise InputError(f"{path} is not a record of hw4")
    readers: dict[str, Callable[[Path, Any], Record]] = {
        TUNE: _tuned,
        PROFILE: _profiled,
        ROOFS: _roofs,
        JUDGED: _judged,
        CHECK: _checked,
    }
    if kind not in readers and kind not in MEASURED:
        raise OtherRecordError(
            f"{path} is a record of {printable(kind)}, not of kernels, programs, tiles, profiles, roofs or timelines"
        )
    try:
        return readers[kind](path, document) if kind in readers else _measured(path, read_record(path))
    except (KeyError, TypeError, ValueError, AttributeError, OverflowError, IndexError) as error:
        detail = f": {error}" if isinstance(error, ValueError) else ""
        raise InputError(f"{path} is a damaged record of hw4 {COMMANDS.get(kind, 'bench')}{detail}") from None


def kind_of(document: Any) -> str | None:
    """What a JSON document is a record of; None if it is no record of hw4's."""
    if isinstance(document, list):
        kinds = {kind_of(one) for one in document if isinstance(one, dict)}
        return CHECK if is_check(document) else PROFILE if kinds == {PROFILE} else TUNE if kinds == {TUNE} else None
    if not isinstance(document, dict):
        return None
    if isinstance(kind := document.get("kind"), str) and ({"schema", "machine"} & {*document} or kind in COMMANDS):
        return kind
    return KERNELS if "rows" in document and "machine" in document else None


def _measured(path: Path, raw: dict[str, Any]) -> Record:
    """A record of times: of kernels, of arrays, of programs, or of a block's timeline."""
    machine = raw["machine"]
    programs, timelines = raw.get("kind") == PROGRAMS, raw.get("kind") == TIMELINE
    timed = [(place, row) for place, row in enumerate(raw["rows"], 1) if row["status"] == "ok"]
    who = "program" if programs else "kernel"
    failures = [f"{r[who]} on {r['case']} {r['status']}: {r['reason']}" for r in raw["rows"] if r["status"] != "ok"]
    return Record(
        **_heading(path, raw, machine),
        method=printable(f"{raw['method']['timer']}; {raw['method']['cache']}"),
        sgemm_tflops=_positive(raw.get("sgemm_tflops")),
        copy_gb_per_s=_positive(raw.get("copy_gb_per_s")),
        points=() if programs or timelines else tuple(_made(_point, timed)),
        runs=tuple(_made(_run, timed)) if programs else (),
        failures=tuple(map(printable, failures)),
        timelines=tuple(_made(partial(_timeline, raw["activities"]), timed)) if timelines else (),
    )


def _heading(path: Path, raw: Mapping[str, Any], machine: Mapping[str, Any]) -> dict[str, Any]:
    """What every record says of itself."""
    major, _, minor = str(machine.get("compute_capability", "")).partition(".")
    return {
        "name": printable(path.name),
        "gpu": _machine(machine),
        "cc": int(major + minor) if major.isdecimal() and minor.isdecimal() else None,
        "facts": _facts(raw, path, machine),
        "date": printable(raw.get("date", "")),
        "kind": kind_of(raw) or KERNELS,
    }


def _documents(document: Any) -> list[dict[str, Any]]:
    return document if isinstance(document, list) else [document]


def _tuned(path: Path, document: Any) -> Record:
    """The candidates of `hw4 tune` that were timed, as points with their tiles."""
    points, failures = list[Point](), list[str]()
    documents = _documents(document)
    for one in documents:
        for workload in one["workloads"]:
            case, shape, dtype, causal = _of_workload(workload)
            rows = [(place, row) for place, row in enumerate(workload["rows"], 1) if row["median"] is not None]
            if shape:
                points += _made(partial(_candidate, case, shape, Setting(shape[2], dtype, causal)), rows)
            failures += [
                f"{row['kernel']} {row['tile']} {row['knobs']}".rstrip() + f" on {case} refused: {row['reason']}"
                for row in workload["rows"]
                if row["status"] == "refused"
            ]
    return Record(
        **_heading(path, documents[0], documents[0].get("machine") or {}),
        method="hw4 tune: candidates in turns, checked first; what was clearly slower has fewer samples",
        points=tuple(points),
        failures=tuple(map(printable, failures)),
    )


def _of_workload(workload: Mapping[str, Any]) -> tuple[str, tuple[int, int, int] | None, str, bool]:
    """A workload's name, sizes, element type and mask; sizes are None of heads that share keys, say."""
    case = printable(str(workload["case"]))
    if "shape" in workload:
        return case, _shape(dict(workload)), str(workload.get("dtype") or FLOAT32), bool(workload.get("causal"))
    found = ARRAY.fullmatch(str(workload["workload"]))
    if not found:
        return case, None, "", False
    sizes = int(found[1]) * int(found[2]), int(found[3]), int(found[4])
    return case, sizes, SHORT_TYPES.get(found[5], found[5]), found[6] is not None


def _candidate(case: str, shape: tuple[int, int, int], setting: Setting, row: dict[str, Any]) -> Point:
    B, N, d = shape
    rows, keys = (int(size) for size in row["tile"].split("x"))
    ms, low, high = (float(row[key]) for key in ("median", "low", "high"))
    if not (0 < low <= ms <= high and isfinite(high)):
        raise ValueError("impossible times or sizes")
    figures: dict[str, float | None] = dict.fromkeys(FIGURES)
    figures |= {key: None if row.get(key) is None else float(row[key]) for key in TAKEN}
    flops = Workload.one_head(B, N, d, setting.causal).flops
    return Point(
        *(printable(row["kernel"]), (rows, keys), case, B, N, setting, ms, low, high),
        *(int(row["samples"]), flops / ms / 1e9, figures, printable(str(row["knobs"]))),
    )


def _profiled(path: Path, document: Any) -> Record:
    """What a profiler counted, of one table or of several."""
    documents = _documents(document)
    first = documents[0]
    return Record(
        **_heading(path, first, first.get("machine") or {"gpu": first["gpu"]}),
        method=printable(" ".join(filter(None, (str(first["tool"]), str(first.get("tool_version") or ""))))),
        profiles=tuple(launch for one in documents for launch in counted(one)),
    )


def _roofs(path: Path, document: Any) -> Record:
    """What a GPU reaches."""
    raw = checked(document, str(path))
    rates = {printable(name): float(rate) for name, rate in raw["rates"].items()}
    return Record(**_heading(path, raw, raw["machine"]), method=printable(str(raw.get("method", ""))), rates=rates)


def _judged(path: Path, document: Any) -> Record:
    """What the judge accepted, as runs of programs: one run each, or as many as were judged."""
    runs, failures, sessions = list[Run](), list[str](), list[dict[str, Any]]()
    for standing in document["standings"]:
        sessions.append(standing["session"])
        program = printable(str(standing["user"]))
        own = [result for result in standing["results"] if result["verdict"] == Verdict.AC and result["wall"]]
        runs += [_accepted(program, result) for result in own]
        seconds = sum(float(result["wall"]) for result in own)
        if len(own) > 1 and len(own) == len(standing["cases"]):
            runs.append(Run(program, SUM, None, seconds, seconds, seconds))
        failures += [
            f"{program} on {result['case']}: {result['verdict']}"
            for result in standing["results"]
            if result["verdict"] != Verdict.AC
        ]
    session = sessions[0] if sessions else {}
    machine = dict(session.get("machine") or {})
    machine.setdefault("gpu", (session.get("gpu") or {}).get("name") or session.get("host"))
    date = str(session.get("started") or "")[:10]
    heading = _heading(path, {**document, "date": date, "commit": session.get("version")}, machine)
    return Record(
        **heading,
        method="hw4 judge: wall time of each whole process",
        runs=tuple(runs),
        failures=tuple(map(printable, failures)),
    )


def _accepted(program: str, result: Mapping[str, Any]) -> Run:
    seconds = float(result["wall"])
    fastest, slowest = (float(result[key] or seconds) for key in ("fastest", "slowest"))
    if not (0 < fastest <= seconds <= slowest and isfinite(slowest)):
        raise ValueError("impossible times or sizes")
    return Run(program, printable(str(result["case"])), _shape(dict(result)), seconds, fastest, slowest)


def _checked(path: Path, document: Any) -> Record:
    """What compilers said of kernels, or what an execution on the CPU found."""
    mistakes = [f"{row['kernel']}: {said}" for row in document if (said := row.get("problem") or row.get("sentence"))]
    return Record(
        **_heading(path, {"kind": CHECK}, {"gpu": "no GPU"}),
        method="hw4 check: compiled, not run on a GPU",
        compiled=tuple(compiled(document)),
        failures=tuple(map(printable, mistakes)),
    )


def _facts(raw: Mapping[str, Any], path: Path, machine: Mapping[str, Any]) -> str:
    driver = [f"driver {machine['driver']}"] if machine.get("driver") else []
    cuda = [f"{name} {machine[key]}" for key, name in (("cuda", "CUDA"), ("hip", "HIP")) if machine.get(key)]
    where = [_machine(machine), *driver, *cuda, f"commit {raw.get('commit') or 'unknown'}"]
    return printable(", ".join([*where, str(raw.get("date", "")), path.name]))


def _machine(machine: Mapping[str, Any]) -> str:
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
        knobs=match[4].strip() if match else "",
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
    extra += [f"V of {int(row['dv'])} columns"] if row.get("dv") else []
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

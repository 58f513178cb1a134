"""The picture of a profile: bytes that each kernel moved to and from the GPU's memory, and those of a model; over N,
those of the L2 cache and of shared memory, and the time, too."""

import csv
import io
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from hw4cli.errors import InputError
from hw4cli.lab.measure.counters import read_launches
from hw4cli.lab.measure.gpus import model_named
from hw4cli.lab.measure.metrics import NCU
from hw4cli.lab.measure.model import launch_models
from hw4cli.plans.ladder import VARIANTS
from hw4cli.plans.plan import DEVICES, Plan
from hw4cli.problem.workload import Workload
from hw4cli.show.picture import Mark, Panel, Picture, Series
from hw4cli.show.records import Record, load
from hw4cli.system.reading import read_regular
from hw4cli.text.words import printable

READ, WRITTEN = "dram__bytes_read.sum", "dram__bytes_write.sum"  # Nsight Compute's names
COLUMNS = ("kernel", "grid", READ, WRITTEN)
READ_MB, WRITTEN_MB, DURATION_MS = "dram_read", "dram_written", "duration"  # hw4's names, in MB and ms
LEVELS = {
    READ_MB: "device memory, read, MB",
    WRITTEN_MB: "device memory, written, MB",
    "l2_to_l1": "L2 cache to multiprocessors, MB",
    "shared_traffic": "shared memory, loads and stores, MB",
}
LEAST = 3  # values of N that make a curve
GPU = DEVICES[90]  # whose launches are compared with the profile's
CACHE = model_named("H200").cache  # bytes that it holds until they are read again
MB = 1e6


@dataclass(frozen=True)
class Launch:
    """What a profile has of a function: its blocks, and the bytes of the GPU's memory that it read and wrote."""

    blocks: int
    read: int
    written: int


@dataclass(frozen=True)
class Profile:
    """The launches of a file of counters, by their function's name."""

    name: str
    launches: dict[str, Launch]


def load_profile(path: Path) -> Profile | Record:
    """A profile: a record of `hw4 profile -o FILE.json`; or a CSV file of Nsight Compute's counters: its own table (ncu
    --csv --page raw, hw4 profile -o FILE.csv), or one with at least the columns COLUMNS, a line for each launch.

    InputError if it is none, or one of its lines is damaged.
    """
    if path.suffix == ".json":
        return load(path)
    launches: dict[str, Launch] = {}
    try:
        text = read_regular(path).decode()
        tool, own = read_launches(text)
        if tool == NCU and own and own[0].grid:
            rows = [
                {"grid": one.grid, **{name: f"{one.values.get(name, -1):.0f}" for name in COLUMNS[2:]}} for one in own
            ]
            found = {one.kernel: _launch(row, f"{path}, {one.kernel}") for one, row in zip(own, rows, strict=True)}
            return Profile(printable(path.name), found)
        reader = csv.DictReader(io.StringIO(text, newline=""))
        lacking = [name for name in COLUMNS if name not in (reader.fieldnames or ())]
        if lacking:
            raise InputError(f"{path} is not a CSV file of counters: it has no column {lacking[0]}")
        for number, row in enumerate(reader, 2):
            launches[row["kernel"]] = _launch(row, f"{path}, line {number}")
    except OSError as error:
        raise InputError(f"cannot read {path}: {error.strerror}") from None
    except (UnicodeDecodeError, csv.Error):
        raise InputError(f"{path} is not a CSV file of counters") from None
    return Profile(printable(path.name), launches)


def _launch(row: dict[str, str], where: str) -> Launch:
    try:
        blocks = int(row["grid"].strip("() ").partition(",")[0])
        launch = Launch(blocks, int(row[READ]), int(row[WRITTEN]))
    except (ValueError, TypeError, AttributeError):
        raise InputError(f"{where} is damaged: its grid or its bytes are no whole numbers") from None
    if min(launch.blocks, launch.read, launch.written) <= 0:
        raise InputError(f"{where} is damaged: its grid or its bytes are not above 0")
    return launch


def traffic(profiles: Sequence[Profile | Record], shape: Workload | None = None) -> Picture:
    """What kernels read and wrote, all their launches together, beside what they must: of profiles as CSV on the shape
    that was profiled; of records on each shape that they are of, over N where there are several."""
    records = [one for one in profiles if isinstance(one, Record)]
    tables = [one for one in profiles if isinstance(one, Profile)]
    if tables and shape is None:
        raise InputError("name the shape that was profiled, as in 16,4096,64: a CSV file does not say it")
    moved = _moved(records, shape)
    if not tables and not moved:
        names = ", ".join(f"{one.name} holds {one.holds}" for one in records)
        where = f" on {shape}" if shape else ""
        raise InputError(f"no record here has counters of bytes{where}: {names}; `hw4 profile --set memory` makes them")
    swept: dict[Workload, list[Workload]] = {}  # those that differ in N alone
    for work in moved:
        swept.setdefault(replace(work, Nq=0, Nk=0), []).append(work)
    curves = [works for works in swept.values() if len(works) >= LEAST and not shape]
    panels = [panel for works in curves for panel in _over_n({work: moved[work] for work in works})]
    panels += [
        _on_one(work, _of_records(moved[work])) for works in swept.values() if works not in curves for work in works
    ]
    left_out: dict[str, str] = {}
    if tables and shape:
        panels.append(_on_one(shape, _of_tables(tables, shape, left_out)))
    used = [one for one in records if any(_in(one, work) for work in moved)]
    notes = (
        "dots: measured; ticks and dashes: what must be moved, by the model of the kernel's launches",
        "what the L2 cache still holds when a launch ends does not count as written",
        *((f"not shown, as they are launched in another way now: {', '.join(left_out)}",) if left_out else ()),
    )
    facts = (*(profile.name for profile in tables), *(record.facts for record in used))
    return Picture("Traffic to and from memory", tuple(panels), notes, facts)


Sums = dict[str, dict[str, tuple[float, float | None]]]  # of a kernel, by metric: what was measured, and the model


def _moved(records: Sequence[Record], shape: Workload | None) -> dict[Workload, Sums]:
    """What kernels of hw4's moved on each shape, with their own tiles: the sums of their launches."""
    found: dict[Workload, Sums] = {}
    for record in records:
        for one in record.profiles:
            if one.shape is None or one.tile or not one.kernel or READ_MB not in one.figures:
                continue
            work = Workload.one_head(*one.shape, causal=one.causal)
            if shape and work != shape:
                continue
            own = found.setdefault(work, {}).setdefault(one.kernel, {})
            for name in (*LEVELS, DURATION_MS):
                if name in one.figures:
                    value, model = own.get(name, (0.0, 0.0))
                    more = one.models.get(name)
                    own[name] = value + one.figures[name], None if model is None or more is None else model + more
    return found


def _in(record: Record, work: Workload) -> bool:
    return any(one.shape and Workload.one_head(*one.shape, causal=one.causal) == work for one in record.profiles)


def _over_n(moved: dict[Workload, Sums]) -> list[Panel]:
    """A panel for each level of the memory, and for the time, of shapes that differ in N: curves over it, the model's
    dashed."""
    works = sorted(moved, key=lambda work: work.N)
    panels = []
    for name, title in {**LEVELS, DURATION_MS: "duration, ms"}.items():
        series = []
        for kernel in dict.fromkeys(kernel for work in works for kernel in moved[work]):
            pairs = [(work.N, moved[work].get(kernel, {}).get(name)) for work in works]
            known = [(N, pair) for N, pair in pairs if pair and pair[0] > 0]
            models = [(N, pair[1]) for N, pair in known if pair[1]]
            if known:
                series.append(Series(kernel, tuple(Mark(float(N), pair[0]) for N, pair in known)))
            if models:
                series.append(Series(f"{kernel}, model", tuple(Mark(float(N), model) for N, model in models)))
        if series:
            words = f"B = {works[0].B:,}, d = {works[0].d}{', causal' if works[0].causal else ''}"
            panels.append(Panel("lines", words, tuple(series), title, "N", True))
    return panels


def _on_one(work: Workload, figures: dict[str, dict[str, tuple[float, float]]]) -> Panel:
    """A row for each kernel on one shape: what it read and wrote, and the model's."""
    series = []
    for name, values in figures.items():
        series.append(Series(name, tuple(Mark(kernel, measured) for kernel, (measured, _) in values.items())))
        series.append(Series(name, tuple(Mark(kernel, model) for kernel, (_, model) in values.items()), limit=True))
    title = f"(B, N, d) = {work}"
    rows = tuple(next(iter(figures.values())))
    return Panel("dots", title, tuple(series), "bytes of the GPU's memory, MB", "", True, (), rows)


def _of_records(sums: Sums) -> dict[str, dict[str, tuple[float, float]]]:
    found: dict[str, dict[str, tuple[float, float]]] = {"read": {}, "written": {}}
    for kernel, own in sums.items():
        for word, name in (("read", READ_MB), ("written", WRITTEN_MB)):
            value, model = own.get(name, (0.0, None))
            if value > 0:
                found[word][kernel] = value, model or value
    return found


def _of_tables(
    tables: Sequence[Profile], shape: Workload, left_out: dict[str, str]
) -> dict[str, dict[str, tuple[float, float]]]:
    """The same of CSV files: of kernels of the ladder all of whose launches are there, on grids as they have here."""
    found: dict[str, dict[str, tuple[float, float]]] = {"read": {}, "written": {}}
    for profile in tables:
        for variant in VARIANTS.values():
            plan = variant.plan(shape, GPU)
            own = [profile.launches[step.symbol] for step in plan.launches if step.symbol in profile.launches]
            if len(own) < len(plan.launches):
                continue
            if other := _other_blocks(profile, plan, shape):
                left_out[variant.name] = other
                continue
            read, written = zip(*(one.dram for one in launch_models(plan, shape, GPU, CACHE)), strict=True)
            found["read"][variant.name] = sum(one.read for one in own) / MB, sum(read) / MB
            found["written"][variant.name] = sum(one.written for one in own) / MB, sum(written) / MB
    if not found["read"]:
        raise InputError(
            next(iter(left_out.values())) if left_out else "no profile here has all launches of a kernel of the ladder"
        )
    return found


def _other_blocks(profile: Profile, plan: Plan, shape: Workload) -> str:
    """What to say if a kernel would be launched with another grid: it was not profiled on the shape, or has changed."""
    step = plan.launches[plan.main]
    found = profile.launches[step.symbol].blocks
    if found == step.grid:
        return ""
    return (
        f"{profile.name} was not measured on (B, N, d) = {shape}: {step.symbol} has {found:,} blocks there, "
        f"not {step.grid:,}: name the shape that was profiled"
    )

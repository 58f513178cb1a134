"""The picture of a profile: bytes that each kernel moved to and from the GPU's memory, and those of a model."""

import csv
import io
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from hw4cli.errors import InputError
from hw4cli.lab.measure.counters import read_launches
from hw4cli.lab.measure.metrics import NCU
from hw4cli.plans.ladder import VARIANTS
from hw4cli.plans.plan import DEVICES, Plan
from hw4cli.problem.workload import Workload
from hw4cli.show.picture import Mark, Panel, Picture, Series
from hw4cli.system.reading import read_regular
from hw4cli.text.words import printable

READ, WRITTEN = "dram__bytes_read.sum", "dram__bytes_write.sum"  # Nsight Compute's names
COLUMNS = ("kernel", "grid", READ, WRITTEN)
GPU = DEVICES[90]  # whose launches are compared with the profile's
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


def load_profile(path: Path) -> Profile:
    """A CSV file of Nsight Compute's counters: its own table (ncu --csv --page raw, hw4 profile -o FILE.csv), or one
    with at least the columns COLUMNS, a line for each launch.

    InputError if it is none, or one of its lines is damaged.
    """
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


def traffic(profiles: Sequence[Profile], shape: Workload) -> Picture:
    """What each kernel read and wrote on a shape, all its launches together, beside what must move once."""
    read: dict[str, tuple[float, float]] = {}
    written: dict[str, tuple[float, float]] = {}
    left_out: dict[str, str] = {}
    for profile in profiles:
        for variant in VARIANTS.values():
            plan = variant.plan(shape, GPU)
            own = [profile.launches[step.symbol] for step in plan.launches if step.symbol in profile.launches]
            if len(own) < len(plan.launches):
                continue
            if other := _other_blocks(profile, plan, shape):
                left_out[variant.name] = other
                continue
            read[variant.name] = sum(one.read for one in own) / MB, (3 * 4 * shape.elements + plan.scratch) / MB
            written[variant.name] = sum(one.written for one in own) / MB, (4 * shape.elements + plan.scratch) / MB
    if not read:
        raise InputError(
            next(iter(left_out.values())) if left_out else "no profile here has all launches of a kernel of the ladder"
        )
    series = []
    for name, figures in (("read", read), ("written", written)):
        series.append(Series(name, tuple(Mark(kernel, measured) for kernel, (measured, _) in figures.items())))
        series.append(Series(name, tuple(Mark(kernel, model) for kernel, (_, model) in figures.items()), limit=True))
    panel = Panel(
        "dots", f"(B, N, d) = {shape}", tuple(series), "bytes of the GPU's memory, MB", "", True, (), tuple(read)
    )
    notes = (
        "dots: measured; ticks: Q, K, V and O once, scratch memory written once and read once",
        "what the L2 cache still holds when a launch ends does not count as written",
        *((f"not shown, as they are launched in another way now: {', '.join(left_out)}",) if left_out else ()),
    )
    return Picture("Traffic to and from memory", (panel,), notes, tuple(profile.name for profile in profiles))


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

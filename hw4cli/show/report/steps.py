"""The steps of an optimisation: kernels, or whole programs, on one case, in the order in which they were made."""

from collections import Counter
from dataclasses import dataclass, replace
from itertools import pairwise

from hw4cli.plans.ladder import FALLBACK
from hw4cli.resources import is_own_kernel
from hw4cli.show.picture import Mark, Panel, Picture, Series, measured, short_gpu
from hw4cli.show.records import SUM, Point, Record, Run
from hw4cli.show.report.document import missing, table
from hw4cli.show.report.material import Material, function_of
from hw4cli.show.report.profile import METRICS, Counters
from hw4cli.text.tables import escaped

LEAST = 2  # kernels or programs that make a ladder
APART = 3  # how many times as long as the shortest a time must be for a logarithmic axis
LABELS = {"Idea": "Idea", "Before": "Against the kernel before it"}  # of a kernel's header, and what a step calls them


@dataclass(frozen=True)
class Step:
    """A kernel or a program on the case: its time and the ends of its interval, in `unit`."""

    name: str
    where: str
    time: float
    low: float
    high: float
    unit: str  # "ms", "s"
    record: Record
    point: Point | None = None
    before: "Step | None" = None
    first: "Step | None" = None


def steps(material: Material) -> list[Step]:
    """The kernels on the case in the order of the ladder, the author's own behind them by date; or, where the records
    hold fewer than two kernels, the whole programs."""
    kernels = _kernels(material)
    found = kernels if len(kernels) >= LEAST else _programs(material) or kernels
    linked = [*found[:1], *(replace(step, before=before) for before, step in pairwise(found))]
    return [replace(step, first=found[0]) for step in linked]


def _kernels(material: Material) -> list[Step]:
    held = {id(p): record for record in material.records for p in record.points}
    here = [p for p in material.points if p.case == material.case and p.kernel != FALLBACK]
    own = sorted((p for p in here if is_own_kernel(p.kernel)), key=lambda p: (held[id(p)].date, held[id(p)].name))
    order = [*(p for p in here if not is_own_kernel(p.kernel)), *own]
    return [Step(p.kernel, p.where, p.ms, p.low, p.high, "ms", held[id(p)], p) for p in order]


def _programs(material: Material) -> list[Step]:
    """The programs on the case asked for, else on the one that most of them ran: their sum, if there is one."""
    runs: dict[tuple[str, str], tuple[Run, Record]] = {}
    for record in material.records:
        runs.update({(run.case, run.program): (run, record) for run in record.runs})
    counts = Counter(case for case, _ in runs)
    asked = material.asked_case if material.asked_case in counts else ""
    case = asked or max(counts, key=lambda case: (counts[case], case == SUM, case), default="")
    found = [runs[key] for key in runs if key[0] == case]
    return [Step(run.program, _where(run), run.seconds, run.fastest, run.slowest, "s", record) for run, record in found]


def _where(run: Run) -> str:
    if not run.shape:
        return "the sum of the cases"
    return "{} ({}, {}, {})".format(run.case, *run.shape)


def ladder_picture(found: list[Step]) -> Picture | None:
    """The steps as bars; None where there are fewer than two."""
    if len(found) < LEAST:
        return None
    first = found[0]
    series = tuple(
        Series(step.name, (Mark(step.name, step.time, step.low, step.high, _bar_text(step)),)) for step in found
    )
    label = "time, ms" if first.unit == "ms" else "wall time, s"
    times, rows = [step.time for step in found], tuple(step.name for step in found)
    log = max(times) > APART * min(times)
    panel = Panel("bars", short_gpu(first.record.gpu), series, label, "", log, (), rows)
    used = list({id(step.record): step.record for step in found}.values())
    notes = [f"× is how many times as fast as {first.name}"]
    notes += ["the records were made at different times: their kernels were not measured in turn"] * (len(used) > 1)
    return Picture(f"From step to step on {first.where}", (panel,), *measured(used, *notes))


def _bar_text(step: Step) -> str:
    return f"{step.time:.4g} {step.unit}  ×{factor(step.first.time / step.time)}" if step.first else ""


def ladder_table(found: list[Step]) -> str:
    """The steps as a table: the time, and how many times as fast as the step before and as the first."""
    if len(found) < LEAST:
        return missing("fewer than two kernels on one case: `hw4 bench all t28 -o FILE.json` measures the ladder")
    kernels = found[0].point is not None
    header = ["step", f"time, {found[0].unit}", "× the step before", "× the first"]
    header += ["TFLOP/s", "largest error", "registers", "shared KB", "occupancy"] * kernels
    rows = []
    for step in found:
        faster = [factor(other.time / step.time) if other else "-" for other in (step.before, step.first)]
        row = [escaped(step.name), f"{step.time:.4g}", *faster]
        rows.append([*row, *_statistics(step.point).values()] if step.point else row)
    return table(header, rows)


def _statistics(p: Point) -> dict[str, str]:
    """A kernel's other figures, by their names with units."""

    def shown(key: str, form: str, scale: float = 1) -> str:
        value = p.figures.get(key)
        return "-" if value is None else format(value * scale, form)

    return {
        "rate, TFLOP/s": f"{p.tflops:.2f}",
        "largest error": shown("max_error", ".1e"),
        "registers a thread": shown("registers", ".0f"),
        "shared memory a block, KB": shown("shared_bytes", ".1f", 1 / 1024),
        "occupancy (theoretical)": shown("occupancy", ".0%"),
    }


def structure(material: Material, step: Step) -> str:
    """What the header of a step's kernel says of it; nothing of a program."""
    story = material.story(step.name)
    said = [
        f"*{words}.* {escaped(story.labels[key])}" for key, words in LABELS.items() if story and key in story.labels
    ]
    return "\n\n".join(said)


def statistics(material: Material, step: Step) -> str:
    """The time of a step against the one before, and its other figures."""
    before = step.before
    header = [f"on {escaped(step.where)}", *([escaped(before.name)] if before else []), escaped(step.name)]
    both = [one for one in (before, step) if one]
    rows = [[f"time, {step.unit}", *(f"{one.time:.4g}" for one in both)]]
    interval = "95 % interval" if step.point else "fastest to slowest"
    rows.append([interval, *(f"{one.low:.4g} to {one.high:.4g}" for one in both)])
    figures = [_statistics(one.point) if one.point else {} for one in both]
    rows += [[key, *(own.get(key, "-") for own in figures)] for key in figures[-1]]
    counters = [_counters(material, one.name) for one in both]
    for metric in METRICS:
        values = [own.figures.get(metric.name) if own else None for own in counters]
        if any(value is not None for value in values):
            unit = f", {metric.unit}" if metric.unit else ""
            rows.append([f"{metric.name}{unit}", *("-" if value is None else f"{value:.4g}" for value in values)])
    return f"{_sentence(step)}\n\n{table(header, rows)}"


def _sentence(step: Step) -> str:
    time = f"`{step.name}` takes {step.time:.4g} {step.unit} on {escaped(step.where)}"
    if not step.before or not step.first:
        return f"{time}: the first step. From {escaped(step.record.name)}."
    ratio = step.before.time / step.time
    words = f"{factor(ratio)} times as fast as" if ratio >= 1 else f"{factor(1 / ratio)} times as long as"
    if step.before.high >= step.low and step.high >= step.before.low:
        words = "as fast, within the intervals, as"
    total = factor(step.first.time / step.time)
    second = step.before.name == step.first.name
    also = "" if second else f", and {total} times as fast as `{step.first.name}`"
    names = dict.fromkeys([step.before.record.name, step.record.name])
    turn = " (two records: not measured in turn)" if len(names) > 1 else ""
    return f"{time}, {words} `{step.before.name}`{also}. From {escaped(' and '.join(names))}{turn}."


def _counters(material: Material, name: str) -> Counters | None:
    """The profile of a step's kernel."""
    return next((one for one in material.profile if one.kernel == function_of(name)), None)


def factor(ratio: float) -> str:
    """A ratio in three digits: "30.3", "1.25", "209"."""
    return f"{ratio:.0f}" if ratio >= 99.5 else f"{ratio:.3g}"

"""The lab page: records as one file that asks for nothing else, and computes in the browser what is chosen there."""

import json
import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from hw4cli import __version__
from hw4cli.lab.measure.gpus import DRAM, GpuModel, model_for
from hw4cli.lab.stepper.plans import data as steps
from hw4cli.lab.tables import FORWARD
from hw4cli.plans.bounds import TYPICAL, bound, has_bound
from hw4cli.plans.ladder import VARIANTS
from hw4cli.plans.plan import DEVICES
from hw4cli.problem.rules import TOLERANCE
from hw4cli.problem.suite import cases
from hw4cli.problem.workload import FLOAT32, Workload
from hw4cli.show import style
from hw4cli.show.curves import amounts_of, nearest_roof
from hw4cli.show.picture import gpus, short_gpu
from hw4cli.show.records import FIGURES, Point, Record, is_ours
from hw4cli.show.stories import stories, texts
from hw4cli.text.page import escaped, filled

MB = 1e6
MOVED = ("dram_read", "dram_written")  # in MB: counted by a profiler, or as the model of the launches has it
FIELDS = (
    *("record", "kernel", "tile", "case", "B", "N", "d", "dtype", "causal", "pass"),
    *("ms", "low", "high", "samples", "tflops", *FIGURES, "bound", "stages", *MOVED, "counted", "roof", "of_roof"),
    *("launches", "between"),  # and MB that one leaves in device memory for the next
)
DIGITS = 6  # significant ones
EXAMPLE = Workload.one_head(2, 1000, 64)  # of the stepper: small, and its last tile of rows and of keys are not whole
USUAL = 90  # compute capability


def page(records: Sequence[Record], title: str, left_out: Sequence[str] = ()) -> str:
    """The whole page. `left_out`: sentences about records that are not drawn, and why."""
    names = _names(records)
    data = _embedded(_data(records, names) | {"unused": [*left_out, *_unused(records)]})
    return filled("lab", escaped(title), style=_palette(names), data=data, version=__version__)


def _unused(records: Sequence[Record]) -> list[str]:
    """The records of which the page draws nothing, and why."""
    gpus = {record.gpu for record in records if record.points}
    return [
        f"{r.name} is not drawn: it holds {r.holds}, and no record here has times of kernels on {r.gpu}"
        if r.profiles or r.rates
        else f"{r.name} is not drawn: it holds {r.holds}"
        for r in records
        if not (r.points or r.runs or r.timelines or ((r.profiles or r.rates) and r.gpu in gpus))
    ]


def _names(records: Sequence[Record]) -> list[str]:
    """Everything that has a colour: the kernels in the order of the ladder, others' attention, programs."""
    seen = [p.kernel for record in records for p in record.points]
    programs = [run.program for record in records for run in record.runs]
    return list(dict.fromkeys([*VARIANTS, *seen, *programs]))


def _palette(names: Sequence[str]) -> str:
    """The colours of each name, by its place, and of the cells of heat maps and what is written on them."""
    colours = {f"--c{place}": pair for place, pair in enumerate(style.colours(names).values())}
    for step, (cell, ink) in enumerate(style.heat()):
        colours |= {f"--h{step}": cell, f"--i{step}": ink}
    values = " ".join(f"{name}: light-dark({light}, {dark});" for name, (light, dark) in colours.items())
    cells = (f".heat{step} {{ background: var(--h{step}); color: var(--i{step}); }}" for step in range(style.STEPS))
    return "\n".join([f":root {{ {values} }}", *cells, ""])


def _data(records: Sequence[Record], names: Sequence[str]) -> dict[str, Any]:
    files, held = texts(), Counter[str]()
    for record in records:
        held[record.gpu] += len(record.points)
    return {
        "tolerance": TOLERANCE,
        "heat": style.STEPS,
        "gpus": [{"name": gpu, "short": short_gpu(gpu)} for gpu in sorted(gpus(records), key=lambda gpu: -held[gpu])],
        "names": list(names),
        "ladder": [name for name in names if is_ours(name)],
        "records": [
            {
                "name": record.name,
                "gpu": record.gpu,
                "facts": record.facts,
                "method": record.method,
                "date": record.date,
                "sgemm": record.sgemm_tflops,
                "copy": record.copy_gb_per_s,
                "failures": record.failures,
                "counts": bool(record.profiles),
                "roofs": bool(record.rates),
            }
            for record in records
        ],
        "fields": FIELDS,
        "points": _points(records),
        "runs": [{"record": place, **asdict(run)} for place, record in enumerate(records) for run in record.runs],
        "timelines": [{"record": place, **asdict(one)} for place, r in enumerate(records) for one in r.timelines],
        "stories": [asdict(story) for story in stories(files)],
        "files": files,
        "steps": {"cc": _capability(records), **steps(_shapes(records))},
    }


def _capability(records: Sequence[Record]) -> int:
    """The compute capability that most points are from."""
    held: Counter[int] = Counter()
    for record in records:
        if record.cc in DEVICES:
            held[record.cc] += len(record.points)
    return max(held, key=lambda cc: held[cc], default=USUAL)


def _shapes(records: Sequence[Record]) -> dict[str, Workload]:
    """The workloads to step through: an example whose tiles can be counted, the suite's, and those of the records."""
    found = {"example": EXAMPLE, **{case.name: case.shape for case in cases().values()}}
    measured = {Workload.one_head(p.B, p.N, p.setting.d) for record in records for p in record.points}
    others = sorted(measured - set(found.values()), key=lambda shape: (shape.d, shape.N, shape.B))
    return found | {f"{shape.B}x{shape.N}x{shape.d}": shape for shape in others}


def _points(records: Sequence[Record]) -> list[list[Any]]:
    """The values of all points. What profiles counted of a kernel stands beside its times on the same shape and GPU."""
    profiled: dict[tuple[Any, ...], dict[str, float]] = {}
    for record in records:
        own: dict[tuple[Any, ...], Counter[str]] = {}
        for one in record.profiles:
            if one.kernel and one.shape and not one.tile and all(name in one.figures for name in MOVED):
                key = (record.gpu, one.kernel, *one.shape, one.causal, one.dtype)
                own.setdefault(key, Counter()).update({name: one.figures[name] for name in MOVED})
        profiled |= {key: dict(sums) for key, sums in own.items()}
    roofs = {record.gpu: record.rates for record in records if record.rates}
    found = []
    for place, record in enumerate(records):
        model = model_for(record.gpu, record.cc or USUAL) if record.cc else None
        for p in record.points:
            key = (record.gpu, p.kernel, p.B, p.N, p.setting.d, p.setting.causal, p.setting.dtype)
            forward = p.tile is None and p.setting.direction == FORWARD
            amounts = amounts_of(p, model) if model and forward and p.kernel in VARIANTS else {}
            moved = profiled.get(key) if forward else None
            nearest = nearest_roof(amounts, roofs.get(record.gpu, {}), p.ms)
            launched = _launched(p, model) if model and amounts else (None, None)
            found.append([*_values(place, p, record, moved, amounts.get(DRAM), nearest), *launched])
    return found


def _launched(p: Point, model: GpuModel) -> tuple[int, float]:
    """How many launches a kernel of the ladder is, and the MB that they leave for one another: naive's scores, parts of
    O."""
    plan = VARIANTS[p.kernel].plan(Workload.one_head(p.B, p.N, p.setting.d, p.setting.causal), model.props)
    return len(plan.launches), float(f"{plan.scratch / MB:.{DIGITS}g}")


def _values(
    place: int,
    p: Point,
    record: Record,
    moved: dict[str, float] | None,
    modelled: float | None,
    nearest: tuple[str, float] | None,
) -> list[Any]:
    """A point's values, in the order of FIELDS. Where no profiler counted, the model's bytes, read and written
    together, stand as read."""
    setting = p.setting
    proven = None
    if has_bound(p.kernel) and (setting.dtype, setting.direction) == (FLOAT32, FORWARD):
        proven = bound(p.kernel, TYPICAL, setting.d, p.N, DEVICES.get(record.cc or 90, DEVICES[90]))
    tile = f"{p.tile[0]}x{p.tile[1]}" if p.tile else ""
    values = [place, p.kernel, tile, p.case, p.B, p.N, setting.d, setting.dtype, setting.causal, setting.direction]
    values += [p.ms, p.low, p.high, p.samples, p.tflops, *(p.figures[key] for key in FIGURES), proven]
    stages = re.search(r"stages=(\d+)", p.knobs)
    values += [int(stages[1]) if stages else None]
    values += [moved[name] for name in MOVED] if moved else [modelled / MB if modelled else None, None]
    values += [moved is not None, *(nearest or (None, None))]
    return [float(f"{value:.{DIGITS}g}") if isinstance(value, float) else value for value in values]


def _embedded(data: dict[str, Any]) -> str:
    """Data as JSON that no HTML parser takes for anything else."""
    text = json.dumps(data, ensure_ascii=False, separators=(",", ":"), allow_nan=False)
    for letter in "<>&\u2028\u2029":
        text = text.replace(letter, f"\\u{ord(letter):04x}")
    return text

"""What a profile says: metrics of each launch, beside the model of the kernel's plan, and the nearest limit."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from hw4cli.lab.measure.counters import Launch
from hw4cli.lab.measure.metrics import (
    BUSY,
    DURATION,
    GMMA,
    L2_HITS,
    MOVED,
    SETS,
    STALLS,
    Metric,
    impossible,
    value_of,
)
from hw4cli.lab.record import heading
from hw4cli.plans.plan import LaunchModel

MB = 1e6


@dataclass(frozen=True)
class Row:
    """A metric of a launch: its value, and what the model has; None where there is none. `asked`: it is of a set that
    was asked for, and not there for the model's sake alone."""

    metric: Metric
    value: float | None
    model: float | None = None
    asked: bool = True
    refused: str = ""  # why the value that was counted is none

    @property
    def ratio(self) -> float | None:
        """Measured by model."""
        return self.value / self.model if self.value is not None and self.model else None


@dataclass(frozen=True)
class ProfiledLaunch:
    """A launch with its metrics, the sentence on its nearest limit, and the program that it is of, "" for hw4's own."""

    launch: Launch
    rows: tuple[Row, ...]
    sentence: str
    program: str = ""

    @property
    def kernel(self) -> str:
        """The function's name."""
        return self.launch.kernel


@dataclass(frozen=True)
class Profiled:
    """What one table shows: its heading and launches; the profiler, its version and its command lines; and of what the
    launches are, by the names of a record: case, shape, seed, tile, or workload."""

    what: str
    launches: tuple[ProfiledLaunch, ...]
    tool: str
    version: str = ""
    commands: tuple[str, ...] = ()
    facts: Mapping[str, Any] = field(default_factory=dict)


def counters_of(names: Sequence[str], tool: str, with_model: bool) -> list[str]:
    """What a tool must be asked for, for sets of metrics, the model's bytes, and the sentence on limits."""
    chosen = [metric for name in names for metric in SETS[name]]
    chosen += [*(MOVED if with_model else ()), DURATION, *BUSY, *STALLS, GMMA]
    return list(dict.fromkeys(counter for metric in chosen for counter in metric.counters(tool)))


def profiled(
    tool: str,
    launches: Sequence[Launch],
    names: Sequence[str],
    models: Sequence[LaunchModel] = (),
    program: str = "",
) -> list[ProfiledLaunch]:
    """The launches with the metrics of some sets. `models` are those of launches in their order, where it is known."""
    chosen = list(dict.fromkeys(metric for name in names for metric in SETS[name]))
    waiting = list(models)
    found = []
    for launch in launches:
        place = next((n for n, model in enumerate(waiting) if model.symbol == launch.kernel), None)
        model = waiting.pop(place) if place is not None else None
        moved = [metric for metric in MOVED if metric not in chosen] if model else []
        rows = [
            _row(metric, value_of(metric, tool, launch.values), _of_model(metric, model), metric in chosen)
            for metric in (*chosen, *moved)
        ]
        found.append(ProfiledLaunch(launch, tuple(rows), limit_sentence(tool, launch), program))
    return found


def _row(metric: Metric, value: float | None, model: float | None, asked: bool) -> Row:
    reason = impossible(metric, value)
    return Row(metric, None if reason else value, model, asked, reason)


def _of_model(metric: Metric, model: LaunchModel | None) -> float | None:
    """What a model has of a metric, in its unit."""
    if model is not None and metric is L2_HITS:
        return None if model.l2_hits is None else 100 * model.l2_hits
    if model is None or metric not in MOVED:
        return None
    read, written = model.l2 or (None, None)
    amount = (*model.dram, read, written, model.shared)[MOVED.index(metric)]
    return amount / MB if amount else None


def limit_sentence(tool: str, launch: Launch) -> str:
    """The busiest resource of a launch, how far it is from its peak, and the largest stall; "" if neither is known."""
    known = {metric.name: value_of(metric, tool, launch.values) for metric in BUSY}
    busy = sorted(((value, name) for name, value in known.items() if value is not None), reverse=True)
    words = []
    if busy:
        value, name = busy[0]
        words.append(f"nearest limit: {name} at {value:.0f} % of the peak, {max(0.0, 100 - value):.0f} % away")
        words += [f"then {name} at {value:.0f} %" for value, name in busy[1:2]]
    reasons = [metric for metric in (*STALLS, GMMA) if metric.name != "stall_not_selected"]  # which is no wait
    stalls = [(value_of(metric, tool, launch.values) or 0.0, metric.name) for metric in reasons]
    if stalls and max(stalls)[0] > 0:
        share, name = max(stalls)
        words.append(f"largest stall: {name.removeprefix('stall_').replace('_', ' ')}, {share:.0f} % of all")
    return "; ".join(words)


def labels(launches: Sequence[ProfiledLaunch]) -> list[str]:
    """What each launch is called in a table: its kernel, behind its program where there are others beside it."""
    several = len({one.program for one in launches}) > 1
    return [f"{one.program}: {one.kernel}" if several and one.program else one.kernel for one in launches]


def sentences(launches: Sequence[ProfiledLaunch], tool: str) -> list[str]:
    """Of hw4's kernels and of each program, on the launch that takes the longest; the first, if times are not known."""
    found = []
    for program in dict.fromkeys(one.program for one in launches):
        own = [pair for pair in zip(labels(launches), launches, strict=True) if pair[1].program == program]
        label, last = max(own, key=lambda pair: value_of(DURATION, tool, pair[1].launch.values) or 0.0)
        found += [f"{label}: {last.sentence}"] * bool(last.sentence)
    return [*found, *refusals(launches)]


def refusals(launches: Sequence[ProfiledLaunch]) -> list[str]:
    """What was counted and cannot be, a sentence each."""
    pairs = zip(labels(launches), launches, strict=True)
    return [f"{label}: {row.metric.name} of {row.refused}" for label, one in pairs for row in one.rows if row.refused]


def record(profiled: Profiled, gpu: str, here: Mapping[str, Any]) -> dict[str, Any]:
    """A profile as JSON has it. `here`: the machine that was profiled."""
    launches = profiled.launches
    return {
        **heading("profile"),
        "tool": profiled.tool,
        "tool_version": profiled.version,
        "commands": list(profiled.commands),
        "gpu": gpu,
        "machine": {**here, "gpu": gpu},
        "of": profiled.what,
        **profiled.facts,
        "launches": [
            {
                "program": one.program,
                "kernel": one.kernel,
                "count": one.launch.count,
                "metrics": [
                    {
                        "name": row.metric.name,
                        "unit": row.metric.unit,
                        "value": row.value,
                        "model": row.model,
                        "ratio": row.ratio,
                        "asked": row.asked,
                        **({"refused": row.refused} if row.refused else {}),
                    }
                    for row in one.rows
                ],
                "sentence": one.sentence,
            }
            for one in launches
        ],
    }

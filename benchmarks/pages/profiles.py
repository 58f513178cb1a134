"""Tables of profiles: what Nsight Compute counted."""

import re

from benchmarks.pages.table import Record, Table, documents, made

COUNTED = {  # metrics of hw4.measure.metrics, and what their columns are called
    "duration": "ms",
    "achieved_occupancy": "occupancy",
    "sm_efficiency": "SM efficiency, %",
    "shared_load_throughput": "shared load, GB/s",
    "shared_store_throughput": "store",
    "gld_throughput": "global load, GB/s",
    "gst_throughput": "store",
}
MOVED = {  # each with measured / model
    "dram_read": "DRAM read, MB (of the model's)",
    "l2_to_l1": "L2 to SM, MB (of the model's)",
    "shared_traffic": "shared memory, MB (of the model's)",
}


def counters(record: Record) -> Table:
    """A line for each launch of some profiles: the metrics, the bytes beside the model's, and the nearest limit."""
    lines = []
    for label, launch in _launches(record):
        metrics = _metrics(launch)
        line = [label, *_counted(metrics)]
        for name in MOVED:
            value, ratio = (metrics.get(name, {}).get(key) for key in ("value", "ratio"))
            line.append(_number(value) + (f" ({ratio:.2f})" if ratio else ""))
        limit = re.match(r"nearest limit: (.*?) at (\d+ %)", launch["sentence"])
        lines.append([*line, f"{limit[1]}, {limit[2]}" if limit else "-"])
    return Table(["launch", *COUNTED.values(), *MOVED.values(), "nearest limit"], lines, (_profiled(record),))


def assignment(record: Record) -> Table:
    """A line for each launch of some profiles: its time and the six metrics that the assignment asks for."""
    lines = [[label, *_counted(_metrics(launch))] for label, launch in _launches(record)]
    return Table(["launch", *COUNTED.values()], lines, (_profiled(record),))


def _launches(record: Record) -> list[tuple[str, Record]]:
    """All launches of some profiles, each with its name, behind that of its program where a profile has several."""
    found = []
    for launches in (profile["launches"] for profile in documents(record)):
        several = len({launch.get("program", "") for launch in launches}) > 1
        for launch in launches:
            whose = launch.get("program", "") if several else ""
            found.append((f"{whose}: {launch['kernel']}" if whose else launch["kernel"], launch))
    return found


def _metrics(launch: Record) -> dict[str, Record]:
    return {metric["name"]: metric for metric in launch["metrics"]}


def _counted(metrics: dict[str, Record]) -> list[str]:
    return [_number(metrics.get(name, {}).get("value")) for name in COUNTED]


def _number(value: float | None) -> str:
    return "-" if value is None else f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.4g}"


def _profiled(record: Record) -> str:
    """The GPU and the profiler, what was profiled, and when."""
    profiles = documents(record)
    what = "; ".join(one["of"] if one["of"].startswith("./") else one["of"].partition(" on ")[2] for one in profiles)
    return f"{profiles[0]['gpu']}, {profiles[0]['tool']}; {what}; {made(profiles[0])}."


LIMIT = re.compile(
    r"nearest limit: (.*?) at (\d+ %) of the peak.*?; then (.*?) at (\d+ %); largest stall: (.*?), (\d+ %)"
)


def limits(record: Record) -> Table:
    """A line for each profile of measure/ofarrays.py: of its longest launch, what is busiest and why warps wait."""
    lines = []
    for profile in documents(record):
        launches = [(_metrics(launch)["duration"]["value"], launch) for launch in profile["launches"]]
        duration, longest = max(launches, key=lambda one: one[0])
        told = LIMIT.match(longest["sentence"])
        busiest = [f"{told[n]}, {told[n + 1]}" for n in (1, 3, 5)] if told else [longest["sentence"], "-", "-"]
        lines.append([f"`{profile['workload']}`", longest["kernel"], f"{duration:.4g}", *busiest])
    first = documents(record)[0]
    stated = f"{first['gpu']}, {first['tool']}, clocks as they were; {made(first)}."
    return Table(["workload", "launch", "ms", "busiest", "then", "largest stall"], lines, (stated,))

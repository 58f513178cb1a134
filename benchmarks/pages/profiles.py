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


ASKED = {  # metrics of profiles with other sets, by the names of columns; a table has those that were asked for
    "duration": "ms",
    "sm_imbalance": "multiprocessors idle, %",
    "ipc": "IPC",
    "issue_slot_utilization": "issue slots, %",
    "eligible_warps_per_cycle": "warps that could issue",
    "achieved_occupancy": "occupancy",
    "shared_efficiency": "shared efficiency, %",
    "gld_throughput": "global load, GB/s",
    "gst_throughput": "store, GB/s",
    "shared_load_throughput": "shared load, GB/s",
    "shared_store_throughput": "shared store, GB/s",
    "dram_read": "DRAM read, MB",
    "dram_written": "written, MB",
    "l2_to_l1": "L2 to SM, MB",
    "l1_to_l2": "SM to L2, MB",
    "l2_hit_rate": "L2 hits, %",
    "shared_traffic": "shared memory, MB",
}
STALL = "stall_"


def asked(record: Record) -> Table:
    """A line for each launch of some profiles, with its shape or tile where these differ: what was asked of ASKED,
    and why warps wait most, where all reasons were counted."""
    several, found = len(documents(record)) > 1, []
    for profile in documents(record):
        kernels, _, shape = profile["of"].partition(" on ")
        whose = kernels.partition(" with ")[2] or shape.partition(" = ")[2]
        for launch in profile["launches"]:
            metrics = {name: one for name, one in _metrics(launch).items() if one["asked"]}
            found.append(([launch["kernel"], *[whose] * several], metrics))
    names = [name for name in ASKED if any(name in metrics for _, metrics in found)]
    stalls = any(_stalls(metrics) for _, metrics in found)
    lines = []
    for labels, metrics in found:
        values = [_number(metrics.get(name, {}).get("value")) for name in names]
        lines.append([*labels, *values, *[_largest_stall(metrics)] * stalls])
    header = ["launch", *["of"] * several, *(ASKED[name] for name in names), *["largest stall"] * stalls]
    first = documents(record)[0]
    where = "" if several else f"{first['of'].partition(' on ')[2]}; "
    return Table(header, lines, (f"{first['gpu']}, {first['tool']}; {where}{made(first)}.",))


def _largest_stall(metrics: dict[str, Record]) -> str:
    """Why warps wait most, and its share."""
    if not (stalls := _stalls(metrics)):
        return "-"
    value, name = max(stalls)
    return f"{name.replace('_', ' ')}, {value:.0f} %"


def _stalls(metrics: dict[str, Record]) -> list[tuple[float, str]]:
    """Why warps wait, each reason behind its share in percent, where all were counted. (One that is ready, and not
    selected, does not wait.)"""
    if f"{STALL}memory_throttle" not in metrics:
        return []
    counted = {name.removeprefix(STALL): one["value"] for name, one in metrics.items() if name.startswith(STALL)}
    return [(value, name) for name, value in counted.items() if value is not None and name != "not_selected"]


def assignment(record: Record) -> Table:
    """A line for each launch of some profiles: its time and the six metrics that the assignment asks for."""
    lines = [[label, *_counted(_metrics(launch))] for label, launch in _launches(record)]
    return Table(["launch", *COUNTED.values()], lines, (_profiled(record),))


# The table of the article on TileLang, of its main kernel, by the names of our metrics; its GB is 2³⁰ bytes.
ARTICLE = {
    "duration": 15.38,
    "compute_throughput": 72.86,
    "sm_busy": 73.33,
    "l1_throughput": 50.77,
    "l2_throughput": 48.13,
    "dram_throughput": 4.16,
    "l1_hit_rate": 0.0,
    "l2_hit_rate": 95.08,
    "dram_read": 1.5 * 2**30 / 1e6,
    "dram_written": 505.66 * 2**20 / 1e6,
    "l2_to_l1": 64.5 * 2**30 / 1e6,
    "l1_to_l2": 512 * 2**20 / 1e6,
    "shared_traffic": None,  # it counts L2 to shared memory: 0, by a counter that sees no bulk copy
}


def article(record: Record) -> Table:
    """A line for each metric of the article's table: its own, ours, and what the model says of ours."""
    (launch,) = record["launches"]
    metrics = _metrics(launch)
    lines = []
    for name, theirs in ARTICLE.items():
        found = metrics[name]
        named = f"{name}, {found['unit']}" if found.get("unit") else name
        lines.append([named, _number(theirs), _number(found["value"]), _number(found.get("model"))])
    return Table(["metric", "article", f"`{launch['kernel']}`", "model"], lines, (_profiled(record),))


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

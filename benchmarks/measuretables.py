"""Tables of profiles, of tuning, of energy and of two builds, for benchmarks/results.py."""

import re
from typing import Any

from benchmarks.facts import taken_first
from hw4cli.lab.measure.explanation import explain_plan, nearest
from hw4cli.lab.measure.gpus import model_for
from hw4cli.lab.measure.model import launch_models
from hw4cli.lab.tune import AUTOMATIC, TunedRow, finding
from hw4cli.plans.variants import VARIANTS
from hw4cli.problem.shape import Shape
from hw4cli.text.tables import markdown
from hw4cli.text.words import counted

Record = dict[str, Any]

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


def counters(records: list[Record]) -> str:
    """A line for each launch of some profiles: the metrics, the bytes beside the model's, and the nearest limit."""
    lines = []
    for label, one in _launches(records):
        metrics = {metric["name"]: metric for metric in one["metrics"]}
        line = [label, *_counted(metrics)]
        for name in MOVED:
            value, ratio = (metrics.get(name, {}).get(key) for key in ("value", "ratio"))
            line.append(_number(value) + (f" ({ratio:.2f})" if ratio else ""))
        limit = re.match(r"nearest limit: (.*?) at (\d+ %)", one["sentence"])
        lines.append([*line, f"{limit[1]}, {limit[2]}" if limit else "-"])
    header = ["launch", *COUNTED.values(), *MOVED.values(), "nearest limit"]
    return markdown(header, lines) + f"\n{_profiled_on(records)}\n"


def assignment(records: list[Record]) -> str:
    """A line for each launch of some profiles: its time and the six metrics that the assignment asks for."""
    lines = [
        [label, *_counted({metric["name"]: metric for metric in one["metrics"]})] for label, one in _launches(records)
    ]
    return markdown(["launch", *COUNTED.values()], lines) + f"\n{_profiled_on(records)}\n"


def _launches(records: list[Record]) -> list[tuple[str, Record]]:
    """All launches of some profiles, each with its name, behind that of its program where a profile has several."""
    found = []
    for one in (record["launches"] for record in records):
        several = len({launch.get("program", "") for launch in one}) > 1
        for launch in one:
            whose = launch.get("program", "") if several else ""
            found.append((f"{whose}: {launch['kernel']}" if whose else launch["kernel"], launch))
    return found


def _counted(metrics: Record) -> list[str]:
    return [_number(metrics.get(name, {}).get("value")) for name in COUNTED]


def _profiled_on(records: list[Record]) -> str:
    """The GPU and the profiler, what was profiled, and when."""
    first = records[0]
    what = "; ".join(one["of"] if one["of"].startswith("./") else one["of"].partition(" on ")[2] for one in records)
    return f"{first['gpu']}, {first['tool']}; {what}; commit {first['commit']}, {first['date']}."


def _number(value: float | None) -> str:
    return "-" if value is None else f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.4g}"


def tuned(records: list[Record], spread: float) -> str:
    """A line for each workload: what `auto` takes by itself and what it takes after tuning, with their times."""
    lines, slower = [], 0
    for source, one in ((record, one) for record in records for one in record["workloads"]):
        timed = _timed(one)
        before = _before(source, one, timed)
        after = _after(timed, spread, before.kernel)
        gain = (before.median or 0.0) / (after.median or 1.0)
        slower += gain < 1
        lines.append(
            [
                *_workload(one),
                *(text for row in (before, after) for text in (row.name, f"{row.median:.4g}")),
                f"{gain:.3f}",
                f"{timed[0].name}, {timed[0].median:.4g}",
                f"{len(timed)} of {len(one['rows'])}",
            ]
        )
    header = ["case", "(B, N, d)", "before", "ms", "tuned", "ms", "× faster", "fastest of all, ms", "timed"]
    counts = f"Slower than before: {slower} of {counted(len(lines), 'workload')}."
    return f"{markdown(header, lines)}\n{_tuned_on(records[0])}. {counts}\n"


def quickly(full: Record, quick: Record) -> str:
    """A line for each workload of which every tile was timed: the kernel that `hw4 tune --quick` takes, by its own
    tile, beside the fastest of all; both times are of the former record."""
    taken = {_key(one): _after(_timed(one), 0.0, taken_first(quick, one)).kernel for one in quick["workloads"]}
    lines, worst = [], 0.0
    for one in full["workloads"]:
        timed = _timed(one)
        best, mine = timed[0], next((row for row in timed if row.own and row.kernel == taken.get(_key(one))), None)
        if mine is None:
            continue
        over = (mine.median or 0.0) / (best.median or 1.0) - 1
        worst = max(worst, over)
        shown = (text for row in (mine, best) for text in (row.name, f"{row.median:.4g}"))
        lines.append([*_workload(one), *shown, f"{over:.1%}", str(len(timed))])
    header = ["case", "(B, N, d)", "quick takes", "ms", "fastest of all", "ms", "slower by", "candidates timed"]
    return f"{markdown(header, lines)}\n{_tuned_on(full)}. Slower than the fastest by at most {worst:.1%}.\n"


def _key(workload: Record) -> tuple[int | bool, ...]:
    return (*workload["shape"], workload["causal"])


def _timed(workload: Record) -> list[TunedRow]:
    """The candidates of a workload that were timed, the fastest first."""
    return [row for row in map(TunedRow.of, workload["rows"]) if row.median is not None]


def _before(record: Record, workload: Record, timed: list[TunedRow]) -> TunedRow:
    """What `auto` takes by itself, of the kernels that were timed."""
    order = (taken_first(record, workload), *AUTOMATIC)
    return next(row for name in order for row in timed if row.own and row.kernel == name)


def _after(timed: list[TunedRow], spread: float, first: str) -> TunedRow:
    """What `auto` takes once it was tuned, in place of the kernel that it took first."""
    best = finding(timed, spread, first)
    kernel = best.kernels[0]
    tile = best.tiles.get(kernel)
    return next(row for row in timed if row.kernel == kernel and (row.own if tile is None else row.sizes == tile))


def _workload(one: Record) -> list[str]:
    return [one["case"], "({}, {}, {})".format(*one["shape"])]


def _tuned_on(record: Record) -> str:
    machine = record["machine"]
    return f"{machine['gpu']}, driver {machine['driver']}; commit {record['commit']}, {record['date']}"


def over_lengths(rows: list[Record]) -> str:
    """A line for each kernel, a column for each N: TFLOP/s, marked where samples differ much."""
    timed = [row for row in rows if row["status"] == "ok"]
    lengths = sorted({row["shape"][1] for row in timed})
    rates = {(row["kernel"], row["shape"][1]): f"{row['tflops']:.3g}{'*' * _differs(row)}" for row in timed}
    lines = [
        [name, *(rates.get((name, N), "-") for N in lengths)] for name in dict.fromkeys(row["kernel"] for row in timed)
    ]
    table = markdown(["TFLOP/s at N =", *(f"{N:,}" for N in lengths)], lines)
    return f"{table}\n{DIFFERS}\n" if any(map(_differs, timed)) else table


DIFFERS = "*: samples differ: the interval of the median is more than 5 % of it to either side."


def _differs(row: Record) -> bool:
    return (row["high"] - row["low"]) / 2 / row["median"] > 0.05


def candidates(records: list[Record]) -> str:
    """Of the kernel that is the fastest on a workload, a line for each tile and knob that was timed."""
    lines = []
    for one in (one for record in records for one in record["workloads"]):
        timed = _timed(one)
        for row in (row for row in timed if row.kernel == timed[0].kernel):
            spread = ((row.high or 0.0) - (row.low or 0.0)) / 2 / (row.median or 1.0)
            lines.append(
                [
                    *_workload(one),
                    row.name + " (its own)" * row.own + " (dropped)" * (row.status == "dropped"),
                    f"{row.median:.4g}",
                    f"{spread:.1%}",
                    f"{(row.median or 0.0) / (timed[0].median or 1.0):.3f}",
                    str(row.registers),
                    f"{(row.shared_bytes or 0) / 1024:.1f}",
                    f"{row.occupancy or 0:.0%}",
                ]
            )
    header = ["case", "(B, N, d)", "candidate", "ms", "±", "x best", "registers", "shared KB", "occupancy"]
    return f"{markdown(header, lines)}\n{_tuned_on(records[0])}.\n"


def rung_limits(record: Record) -> str:
    """A line for each kernel: how near it comes to the limit that `hw4 explain` finds, by the GPU's data sheet."""
    major, minor = record["machine"]["compute_capability"].split(".")
    model = model_for(record["machine"]["gpu"], 10 * int(major) + int(minor))
    lines = []
    for row in (row for row in record["rows"] if row["status"] == "ok" and row["kernel"] in VARIANTS):
        shape = Shape(*row["shape"], causal=row.get("causal", False))
        plan = VARIANTS[row["kernel"]].plan(shape, model.props)
        models = launch_models(plan, shape, model.props, model.cache)
        facts, _ = explain_plan(row["kernel"], plan, models, model.props, model.rates, None)
        name, least, every = nearest(facts)
        others = sorted(((seconds, other) for other, seconds in every.items() if other != name), reverse=True)
        second = f"{others[0][1]}, {others[0][0] / least:.0%} of that" if others and least else "-"
        share = 1e3 * least / row["median"]
        figures = (
            (f"{row['median']:.4g}", f"{1e3 * least:.4g}", f"{share:.0%}")
            if least
            else (f"{row['median']:.4g}", "-", "-")
        )
        lines.append([row["kernel"], row["case"], *figures, name or "-", second])
    return markdown(["kernel", "case", "ms", "at least, ms", "reached", "nearest limit", "then"], lines)


def energy(rows: list[Record]) -> str:
    """A line for each kernel that ran without rest and whose energy is known."""
    header = ["kernel", "case", "ms a run", "watts", "joules a run", "GFLOP for each joule"]
    return markdown(
        header,
        [
            [
                row["kernel"],
                row["case"],
                f"{row['sustained_ms']:.4g}",
                f"{row['watts']:.0f}",
                f"{row['joules']:.3g}",
                f"{row['gflop_per_joule']:.3g}",
            ]
            for row in rows
            if row["status"] == "ok" and row.get("joules")
        ],
    )


def builds(record: Record) -> str:
    """A line for each build on each case: medians of processes, the spread within and between, and the verdict."""
    lines = [
        [
            row["kernel"],
            row["case"],
            f"{row['build']} ({record['builds'][row['build']]})",
            f"{row['median']:.4g}",
            f"{row['within']:.2%}",
            "-" if row["between"] is None else f"{row['between']:.2%}",
            *(
                [f"{row['ratio']:.4f}", f"{row['least']:.4f} to {row['most']:.4f}", row["verdict"]]
                if row["ratio"]
                else ["-", "-", "-"]
            ),
        ]
        for row in record["rows"]
    ]
    header = ["kernel", "case", "build", "median ms", "within", "between", "B / A", "pairs", "verdict"]
    facts = f"{record['machine']['gpu']}, driver {record['machine']['driver']}, {record['date']}"
    processes = counted(record["processes"], "process", "processes")
    return f"{markdown(header, lines)}\n{facts}; {processes} of each build in turns.\n"

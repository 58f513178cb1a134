"""Tables of profiles, of tuning, of energy and of two builds, for benchmarks/results.py."""

import re
from typing import Any

from hw4cli.lab.tune import AUTOMATIC, TunedRow, finding
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
MOVED = {"dram_read": "DRAM read, MB (of the model's)", "l2_to_l1": "L2 to SM, MB (of the model's)"}


def counters(records: list[Record]) -> str:
    """A line for each launch of some profiles: the metrics, the bytes beside the model's, and the nearest limit."""
    lines = []
    for one in (launch for record in records for launch in record["launches"]):
        metrics = {metric["name"]: metric for metric in one["metrics"]}
        line = [one["kernel"], *(_number(metrics.get(name, {}).get("value")) for name in COUNTED)]
        for name in MOVED:
            value, ratio = (metrics.get(name, {}).get(key) for key in ("value", "ratio"))
            line.append(_number(value) + (f" ({ratio:.2f})" if ratio else ""))
        limit = re.match(r"nearest limit: (.*?) at (\d+ %)", one["sentence"])
        lines.append([*line, f"{limit[1]}, {limit[2]}" if limit else "-"])
    first = records[0]
    what = "; ".join(one["of"] if one["of"].startswith("./") else one["of"].partition(" on ")[2] for one in records)
    stated = f"{first['gpu']}, {first['tool']}; {what}; commit {first['commit']}, {first['date']}."
    return markdown(["launch", *COUNTED.values(), *MOVED.values(), "nearest limit"], lines) + f"\n{stated}\n"


def _number(value: float | None) -> str:
    return "-" if value is None else f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.4g}"


def tuned(records: list[Record], spread: float) -> str:
    """A line for each workload: what `auto` takes by itself and what it takes after tuning, with their times."""
    lines, slower = [], 0
    for one in (one for record in records for one in record["workloads"]):
        rows = [TunedRow.of(row) for row in one["rows"]]
        timed = [row for row in rows if row.median is not None]
        before = next(row for name in AUTOMATIC for row in timed if row.own and row.kernel == name)
        best = finding(rows, spread)
        kernel = best.kernels[0]
        after = next(
            row
            for row in timed
            if row.kernel == kernel and (row.own if kernel not in best.tiles else row.sizes == best.tiles[kernel])
        )
        fastest = timed[0]
        gain = (before.median or 0.0) / (after.median or 1.0)
        slower += gain < 1
        lines.append(
            [
                one["case"],
                "({}, {}, {})".format(*one["shape"]),
                *(text for row in (before, after) for text in (row.name, f"{row.median:.4g}")),
                f"{gain:.3f}",
                f"{fastest.name}, {fastest.median:.4g}",
                f"{len(timed)} of {len(rows)}",
            ]
        )
    first = records[0]
    header = ["case", "(B, N, d)", "before", "ms", "tuned", "ms", "× faster", "fastest of all, ms", "timed"]
    facts = f"{first['machine']['gpu']}, driver {first['machine']['driver']}; commit {first['commit']}, {first['date']}"
    return f"{markdown(header, lines)}\n{facts}. Slower than before: {slower} of {counted(len(lines), 'workload')}.\n"


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

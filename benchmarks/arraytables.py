"""Tables of records of arrays, for benchmarks/results.py: beside peers, without rest, decoding beside a copy, errors,
with and without a mask, what limits kernels, schedules."""

import re
from typing import Any

from hw4cli.lab.arrays.named import described
from hw4cli.lab.arrays.tables import workload_of
from hw4cli.lab.tune import TunedRow
from hw4cli.show.leaderboard.published import PUBLISHED, Published
from hw4cli.show.leaderboard.workload import Workload
from hw4cli.text.tables import markdown

NUMBERS = {"normal": "normal", "uniform": "uniform in [-3, 3)"}
PEERS = {"cuDNN": "cuDNN", "FA2": "FA2"}  # kernels in tables of arrays, and their names there


def published(row: dict[str, Any], gpu: str) -> Published | None:
    """The fastest that others published for a row's workload on this GPU."""
    work = workload_of(row)
    if (work.kv_heads, work.Nk) != (work.heads, work.Nq):
        return None
    same = Workload(work.batch, work.Nq, work.d, work.heads, work.dtype, work.causal)
    figures = [one for one in PUBLISHED if one.workload == same and one.machine in gpu]
    return min(figures, key=lambda one: one.ms, default=None)


def per_workload(rows: list[dict[str, Any]]) -> list[tuple[dict[str, Any], dict[str, dict[str, Any]]]]:
    """For each workload that was timed: the row of our first kernel, and all rows by their kernels."""
    timed = [row for row in rows if row["status"] == "ok"]
    found = []
    for case in dict.fromkeys(row["case"] for row in timed):
        by_kernel = {row["kernel"]: row for row in timed if row["case"] == case}
        if own := next((row for row in by_kernel.values() if row["ours"]), None):
            found.append((own, by_kernel))
    return found


def arrays(rows: list[dict[str, Any]], gpu: str, copy: float | None = None) -> str:
    """A line for each workload: the first kernel's figures, how many times as fast as others it is, and the others'
    times; at the end what others published, by their own measurement. `copy`: a copy's rate in GB/s."""
    theirs: dict[str, str] = {}  # sources, by who is shown
    header = ["workload", "(B, H, N, d)", "kernel", "ms", "TFLOP/s", "of a copy", "pairs", "rel. error"]
    header += [text for name in PEERS.values() for text in (f"{name} ms", f"× {name}")] + ["published"]
    lines = []
    for own, by_kernel in per_workload(rows):
        line = [f"`{own['case']}`", described(workload_of(own)), own["kernel"]]
        line += [f"{own['median']:.4g}", f"{own['tflops']:.0f}", f"{own['gb_per_s'] / copy:.0%}" if copy else "-"]
        line += [
            "-" if own["pairs_percent"] is None else f"{own['pairs_percent']:.1f}%",
            f"{own['relative_error']:.1e}",
        ]
        for name in PEERS:
            other = by_kernel.get(name)
            line += [f"{other['median']:.4g}", f"{other['median'] / own['median']:.2f}"] if other else ["-", "-"]
        one = published(own, gpu)
        who = one.program.partition(",")[0] if one else ""
        theirs |= {who: one.source} if one else {}
        lines.append([*line, f"{one.ms:g} ms, {who}" if one else "-"])
    sources = "; ".join(f"{who}: {source}" for who, source in sorted(theirs.items()))
    note = f"\nPublished figures were not measured here ({sources}).\n" if sources else ""
    return markdown(header, lines) + note


def sustained(rows: list[dict[str, Any]]) -> str:
    """A line for each workload that ran without rest, of ours and each peer: time, watts and clock."""
    header = ["workload", "kernel", "ms", "TFLOP/s", "watts", "MHz"]
    header += [text for name in PEERS.values() for text in (f"{name} ms", f"× {name}", "watts", "MHz")]
    lines = []
    for own, by_kernel in per_workload(rows):
        if not own["sustained_ms"]:
            continue
        rate = own["tflops"] * own["median"] / own["sustained_ms"]
        line = [f"`{own['case']}`", own["kernel"], f"{own['sustained_ms']:.4g}", f"{rate:.0f}", *_power(own)]
        for name in PEERS:
            other = by_kernel.get(name)
            if other and other["sustained_ms"]:
                ratio = other["sustained_ms"] / own["sustained_ms"]
                line += [f"{other['sustained_ms']:.4g}", f"{ratio:.2f}", *_power(other)]
            else:
                line += ["-"] * 4
        lines.append(line)
    return markdown(header, lines)


def decoding(record: dict[str, Any]) -> str:
    """A line for each workload of benchmarks/decoding.py, in microseconds: ours, a kernel that only reads K and V, a
    copy that moves as many bytes, and the peers."""
    header = ["(B, H, N, d)", "kernel", "K and V", "µs", "only read", "copy", "of the copy's rate"]
    header += [text for name in PEERS.values() for text in (name, f"× {name}")]
    lines = []
    for own, by_kernel in per_workload(record["rows"]):
        memory = record["memory"][own["case"]]
        line = [described(workload_of(own)), own["kernel"], f"{memory['bytes'] / 1e6:.0f} MB"]
        line += [f"{1000 * ms:.1f}" for ms in (own["median"], memory["read"], memory["copy"])]
        line.append(f"{memory['copy'] / own['median']:.0%}")
        for name in PEERS:
            other = by_kernel.get(name)
            line += [f"{1000 * other['median']:.1f}", f"{other['median'] / own['median']:.2f}"] if other else ["-", "-"]
        lines.append(line)
    return markdown(header, lines)


LIMIT = re.compile(
    r"nearest limit: (.*?) at (\d+ %) of the peak.*?; then (.*?) at (\d+ %); largest stall: (.*?), (\d+ %)"
)


def limits(profiles: list[dict[str, Any]]) -> str:
    """A line for each profile of benchmarks/ofarrays.py: of its longest launch, what is busiest and why warps wait."""
    lines = []
    for profile in profiles:
        found = {one["kernel"]: {x["name"]: x["value"] for x in one["metrics"]} for one in profile["launches"]}
        longest = max(profile["launches"], key=lambda one: found[one["kernel"]]["duration"])
        told = LIMIT.match(longest["sentence"])
        busiest = [f"{told[n]}, {told[n + 1]}" for n in (1, 3, 5)] if told else [longest["sentence"], "-", "-"]
        duration = found[longest["kernel"]]["duration"]
        lines.append([f"`{profile['workload']}`", longest["kernel"], f"{duration:.4g}", *busiest])
    first = profiles[0]
    stated = f"{first['gpu']}, {first['tool']}, clocks as they were; commit {first['commit']}, {first['date']}."
    return markdown(["workload", "launch", "ms", "busiest", "then", "largest stall"], lines) + f"\n{stated}\n"


def schedules(records: list[dict[str, Any]]) -> str:
    """A line for each workload: half's tiling, and its milliseconds in each schedule."""
    lines = []
    for record in records:
        rows = [TunedRow.of(row) for row in record["workloads"][0]["rows"]]
        knobs = {row: dict(row.knobs) for row in rows}
        times = {(knobs[row].get("ahead", 1), knobs[row].get("turns", 1)): row.median for row in rows}
        tile = next("{}x{}".format(*row.tile) for row in rows if row.own)
        line = [f"{times[way]:.4g}" if times.get(way) else "-" for way in ((0, 0), (1, 0), (1, 1))]
        lines.append([f"`{record['workload']}`", tile, *line])
    first = records[0]
    stated = f"{first['machine']['gpu']}, driver {first['machine']['driver']}; medians of 5 samples; commit "
    header = ["workload", "tile", "one product at a time, ms", "scores ahead", "scores ahead, in turns"]
    return markdown(header, lines) + f"\n{stated}{first['commit']}, {first['date']}.\n"


def _power(row: dict[str, Any]) -> list[str]:
    return ["-" if row[key] is None else f"{row[key]:.0f}" for key in ("watts", "sm_mhz")]


def exactness(rows: list[dict[str, Any]]) -> str:
    """A line for each kind of numbers: of each kernel and peer the largest error, and that of the answer's norm."""
    timed = [row for row in rows if row["status"] == "ok"]
    kernels = list(dict.fromkeys(row["kernel"] for row in timed))
    kinds: dict[tuple[Any, ...], dict[str, str]] = {}
    for row in timed:
        kind = row["dtype"], row["shape"][2], row["distribution"]
        kinds.setdefault(kind, {})[row["kernel"]] = f"{row['max_error']:.1e}, {row['relative_error']:.1e}"
    lines = [
        [f"{dtype}, d={d}, {NUMBERS[distribution]}", *(errors.get(kernel, "-") for kernel in kernels)]
        for (dtype, d, distribution), errors in kinds.items()
    ]
    return markdown(["numbers", *kernels], lines)


def masks(rows: list[dict[str, Any]]) -> str:
    """A line for each workload that was timed with and without a mask, of each kernel: the causal time, and how many
    times as fast it is."""
    timed = [row for row in rows if row["status"] == "ok"]
    kernels = list(dict.fromkeys(row["kernel"] for row in timed))
    table = {(*row["shape"], row["kernel"], row["causal"]): row["median"] for row in timed}
    lines = []
    for shape in dict.fromkeys(tuple(row["shape"]) for row in timed if row["causal"]):
        line = ["({}, {}, {})".format(*shape)]
        for kernel in kernels:
            whole, half = (table.get((*shape, kernel, causal)) for causal in (False, True))
            line += [f"{half:.4g}", f"{whole / half:.2f}"] if whole and half else ["-", "-"]
        lines.append(line)
    return markdown(["(B, N, d)", *(text for name in kernels for text in (f"{name} causal ms", "×"))], lines)

"""What the records show, as far as the program goes by it: the texts of hw4cli/plans/measured.py and
hw4cli/device/tuning/measured.py.

`make results` writes it. An installed package has no records, and a run has no time to read them.
"""

import decimal
import json
from collections import defaultdict
from collections.abc import Iterable
from typing import Any

from hw4cli.device.tuning.store import Finding, workload
from hw4cli.lab.candidates import TunedRow
from hw4cli.lab.tune import finding
from hw4cli.plans.bounds import PROVEN
from hw4cli.plans.dispatch import LONG_ROWS, ranking
from hw4cli.plans.ladder import FALLBACK, VARIANTS
from hw4cli.plans.plan import DEVICES
from hw4cli.problem.workload import Shape

# What is faster for long rows alone has an order of its own, and one long case must not decide for all.
APART = {FALLBACK, *(name for name, _ in LONG_ROWS.values())}
RANKED = [name for name in VARIANTS if name in PROVEN and name not in APART]

LINE = 120  # columns
Records = Iterable[dict[str, Any]]


def kernel_rows(record: dict[str, Any]) -> list[dict[str, Any]]:
    """The rows of kernels on cases of files that were timed, without a mask."""
    return [
        row
        for row in record["rows"]
        if "kernel" in row and row["status"] == "ok" and not row.get("causal") and "dtype" not in row
    ]


def errors(records: Records) -> dict[str, dict[int, float]]:
    """Kernel -> head size -> the largest error of any record. Not of the kernel that all are compared with."""
    found: dict[str, dict[int, float]] = {name: {} for name in VARIANTS if name != FALLBACK}
    for record in records:
        for row in kernel_rows(record):
            if (sizes := found.get(row["kernel"])) is not None:
                d = row["shape"][2]
                sizes[d] = max(sizes.get(d, 0.0), row["max_error"])
    return {name: dict(sorted(sizes.items())) for name, sizes in found.items() if sizes}


def fastest(records: Records) -> dict[int, dict[int, tuple[str, ...]]]:
    """Compute capability -> head size -> kernels from fast to slow, by their time for all cases that have them all."""
    cases: dict[tuple[int, int], list[dict[str, float]]] = defaultdict(list)
    for record in records:
        by_shape: dict[tuple[int, ...], dict[str, float]] = defaultdict(dict)
        for row in kernel_rows(record):
            if row["kernel"] in RANKED:
                by_shape[tuple(row["shape"])][row["kernel"]] = row["median"]
        for shape, times in by_shape.items():
            if len(times) > 1:
                cases[compute_capability(record), shape[2]].append(times)
    ranks: dict[int, dict[int, tuple[str, ...]]] = defaultdict(dict)
    for (cc, d), measured in sorted(cases.items()):
        most = max(measured, key=len).keys()
        total = {name: sum(times[name] for times in measured if times.keys() >= most) for name in most}
        ranks[cc][d] = tuple(sorted(total, key=total.__getitem__))
    return dict(ranks)


def compute_capability(record: dict[str, Any]) -> int:
    """The GPU's, 90 for 9.0."""
    major, minor = record["machine"]["compute_capability"].split(".")
    return 10 * int(major) + int(minor)


def run_spread(records: Records) -> float:
    """The largest difference of a median from one run to another: same GPU, commit, method, kernel and case."""
    medians: dict[tuple[object, ...], list[float]] = defaultdict(list)
    for record in records:
        for row in kernel_rows(record):
            run = record["machine"]["gpu"], record["commit"], record["method"]["cache"]
            medians[*run, row["kernel"], *row["shape"]].append(row["median"])
    return max(max(times) / min(times) - 1 for times in medians.values())


def rounded_up(x: float) -> float:
    """A positive number in three digits, never less than it is."""
    digits = decimal.Context(prec=3, rounding=decimal.ROUND_CEILING)
    return float(digits.create_decimal_from_float(x))


def source(records: list[dict[str, Any]]) -> str:
    """The text of hw4cli/plans/measured.py."""
    error_lines, rank_lines = "", ""
    for name, sizes in errors(records).items():
        shown = ", ".join(f"{d}: {rounded_up(error)!r}" for d, error in sizes.items())
        error_lines += f'    "{name}": {{{shown}}},\n'
    for cc, ranks in fastest(records).items():
        shown = "".join(f"        {d}: ({json.dumps(kernels)[1:-1]}),\n" for d, kernels in ranks.items())
        rank_lines += f"    {cc}: {{\n{shown}    }},\n"
    return (
        '"""What the records in benchmarks/ show, as far as hw4 goes by it. `make results` writes this."""\n'
        "\n"
        "# The largest error of each kernel, elements in [-3, 3), by head size.\n"
        f"ERRORS: dict[str, dict[int, float]] = {{\n{error_lines}}}\n"
        "# Kernels from fast to slow, by compute capability (90 is 9.0) and head size.\n"
        f"FASTEST: dict[int, dict[int, tuple[str, ...]]] = {{\n{rank_lines}}}\n"
        "# From one run to another of the same kernel on the same case and GPU, medians differ by so much.\n"
        f"RUN_SPREAD = {run_spread(records):.3f}\n"
    )


def tuned_source(records: Records, spread: float) -> str:
    """The text of hw4cli/device/tuning/measured.py, from records of `hw4 tune`. A tile counts if it is faster than its
    kernel's own by more than medians differ from run to run. Of a workload, the first record counts that has more than
    one kernel."""
    found: dict[str, dict[str, str]] = defaultdict(dict)
    for record in records:
        for one in record["workloads"]:
            if len({row["kernel"] for row in one["rows"]}) < 2:
                continue
            B, N, d = one["shape"]
            name = workload(Shape(B, N, d, causal=one["causal"]))
            best = finding([TunedRow.of(row) for row in one["rows"]], spread, taken_first(record, one))
            found[record["machine"]["gpu"]].setdefault(name, _entry(name, best, record["date"]))
    lines = "".join(f'    "{gpu}": {{\n{"".join(entries.values())}    }},\n' for gpu, entries in sorted(found.items()))
    return (
        '"""What the records in benchmarks/tuned show, as far as hw4 goes by it. `make results` writes this."""\n'
        "\n"
        "# Of a GPU and a workload: kernels from fast to slow; tiles, where they are surely faster than a kernel's;\n"
        "# the date.\n"
        "TUNED: dict[str, dict[str, tuple[tuple[str, ...], dict[str, dict[str, int]], str]]] = {"
        + (f"\n{lines}" if lines else "")
        + "}\n"
    )


def taken_first(record: dict[str, Any], workload: dict[str, Any]) -> str:
    """The kernel that `auto` takes first for a workload of a record of `hw4 tune`, if nothing was tuned."""
    _, N, d = workload["shape"]
    props = DEVICES[compute_capability(record)]
    return ranking(props, record["machine"]["gpu"], d, N, workload["causal"])[0][0]


def _entry(name: str, best: Finding, date: str) -> str:
    """A line, or where that is too long, as ruff would have it."""
    kernels = "".join(f"{json.dumps(kernel)}, " for kernel in best.kernels)
    kernels = kernels.rstrip() if len(best.kernels) == 1 else kernels.removesuffix(", ")
    line = f'        "{name}": (({kernels}), {json.dumps(best.tiles)}, "{date}"),\n'
    if len(line.rstrip()) <= LINE:
        return line
    tiles = "".join(
        f"                {json.dumps(kernel)}: {json.dumps(tile)},\n" for kernel, tile in best.tiles.items()
    )
    shown = f"{{\n{tiles}            }}" if tiles else "{}"
    return f'        "{name}": (\n            ({kernels}),\n            {shown},\n            "{date}",\n        ),\n'

"""The table of times predicted from counts beside measured ones (benchmarks/measure/predictions.py)."""

from collections import Counter
from statistics import median

from benchmarks.pages.table import Record, Table
from hw4cli.plans.ladder import VARIANTS

FACTORS = (1.25, 1.5, 2.0)


def factors(record: Record) -> Table:
    """A line for each kernel and GPU: on how many shapes it was measured, the ratio of predicted to measured times, and
    what is said to limit it most often; below, how many times lie within some factors."""
    rows = record["rows"]
    ratios: dict[tuple[str, str], list[float]] = {}
    limits: dict[tuple[str, str], Counter[str]] = {}
    for row in rows:
        key = row["kernel"], row["gpu"]
        ratios.setdefault(key, []).append(row["predicted_ms"] / row["measured_ms"])
        limits.setdefault(key, Counter())[row["limit"]] += 1
    order = sorted(ratios, key=lambda key: ([*VARIANTS].index(key[0]), key[1]))
    lines = [
        [
            f"`{kernel}`",
            gpu,
            str(len(ratios[kernel, gpu])),
            f"{median(ratios[kernel, gpu]):.2f}",
            f"{min(ratios[kernel, gpu]):.2f} to {max(ratios[kernel, gpu]):.2f}",
            limits[kernel, gpu].most_common(1)[0][0],
        ]
        for kernel, gpu in order
    ]
    off = [max(ratio, 1 / ratio) for each in ratios.values() for ratio in each]
    within = ", ".join(f"{sum(one <= factor for one in off)} within a factor of {factor:g}" for factor in FACTORS)
    kernels = [max(median(each), 1 / median(each)) for each in ratios.values()]
    by_kernel = ", ".join(f"{sum(one <= factor for one in kernels)} within {factor:g}" for factor in FACTORS)
    below = (
        f"Of {len(off)} times, {within}; the median is off by a factor of {median(off):.2f}. "
        f"Of the medians of {len(kernels)} lines, {by_kernel}.",
        *(f"Not predicted is `{kernel}`: {reason}." for kernel, reason in record["reasons"].items()),
    )
    return Table(["kernel", "GPU", "shapes", "predicted / measured", "from, to", "limited by"], lines, below)

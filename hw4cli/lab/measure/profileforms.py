"""A profile as text: a table with a column for each kernel, the model beside it, and the form that nvprof prints."""

from collections.abc import Sequence
from statistics import fmean

from hw4cli.lab.measure.metrics import MOVED, Metric
from hw4cli.lab.measure.profile import ProfiledLaunch, Row, labels
from hw4cli.text import tables

MILLION = 1e6


def by_kernel(launches: Sequence[ProfiledLaunch]) -> dict[str, list[ProfiledLaunch]]:
    """The launches of each kernel, by its label."""
    found: dict[str, list[ProfiledLaunch]] = {}
    for label, one in zip(labels(launches), launches, strict=True):
        found.setdefault(label, []).append(one)
    return found


def table(launches: Sequence[ProfiledLaunch], width: int | None) -> str:
    """The metrics, a column for each kernel: the mean of its launches. A line for each, where kernels are more."""
    kernels = by_kernel(launches)
    metrics = list(dict.fromkeys(row.metric for one in launches for row in one.rows if row.asked))
    counts = {kernel: sum(one.launch.count for one in own) for kernel, own in kernels.items()}
    cells = [["metric", *(kernel if counts[kernel] == 1 else f"{kernel} x{counts[kernel]}" for kernel in kernels)]]
    for metric in metrics:
        means = [_mean([row.value for row in _rows(own, metric)]) for own in kernels.values()]
        title = f"{metric.name}, {metric.unit}" if metric.unit else metric.name
        cells.append([title, *("-" if mean is None else plain(mean) for mean in means)])
    if len(kernels) > len(metrics):
        cells = [list(column) for column in zip(*cells, strict=True)]
        cells[0][0] = "launch"
    return tables.plain(cells[0], cells[1:], width)


def model_table(launches: Sequence[ProfiledLaunch], width: int | None) -> str:
    """What was moved, beside the model of it; "" where no model is known."""
    lines = [
        [label, row.metric.title, plain(row.value), plain(row.model), f"{row.ratio:.2f}"]
        for label, one in zip(labels(launches), launches, strict=True)
        for row in one.rows
        if row.metric in MOVED and row.value is not None and row.model and row.ratio is not None
    ]
    return tables.plain(["launch", "", "measured MB", "model MB", "measured/model"], lines, width) if lines else ""


def plain(value: float) -> str:
    """A number in four digits, or whole where it is larger."""
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.4g}"


def nvprof_form(launches: Sequence[ProfiledLaunch], gpu: str) -> str:
    """The table that `nvprof --metrics` prints."""
    lines = [
        f"{'Invocations':>11}{'Metric Name':>42}{'Metric Description':>44}{'Min':>12}{'Max':>12}{'Avg':>12}",
        f'Device "{gpu} (0)"',
    ]
    for kernel, own in by_kernel(launches).items():
        lines.append(f"    Kernel: {kernel}")
        for metric in dict.fromkeys(row.metric for one in own for row in one.rows if row.asked):
            values = [row.value for row in _rows(own, metric) if row.value is not None]
            if values:
                low, high = _extremes(own, metric, values)
                count = sum(one.launch.count for one in own)
                cells = "".join(f"{_with_unit(metric, value):>12}" for value in (low, high, fmean(values)))
                lines.append(f"{count:>11}{metric.name:>42}{metric.title:>44}{cells}")
    return "\n".join(lines) + "\n"


def _rows(own: Sequence[ProfiledLaunch], metric: Metric) -> list[Row]:
    return [row for one in own for row in one.rows if row.metric is metric]


def _mean(values: Sequence[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return fmean(known) if known else None


def _extremes(own: Sequence[ProfiledLaunch], metric: Metric, values: Sequence[float]) -> tuple[float, float]:
    """The least and the greatest value; nvprof has them for all launches of a kernel."""
    low, high = min(values), max(values)
    kept = own[0].launch.extremes.get(metric.name)
    if kept and len(own) == 1 and (average := own[0].launch.values.get(metric.name)):
        return low * kept[0] / average, high * kept[1] / average
    return low, high


def _with_unit(metric: Metric, value: float) -> str:
    """A value as nvprof shows it: 98.46%, 1355.2GB/s, 84.691MB/s, 0.499988."""
    if metric.unit == "%":
        return f"{value:.2f}%"
    if metric.unit == "GB/s":
        return f"{value:#.5g}GB/s" if value >= 1 else f"{1000 * value:#.5g}MB/s"
    if metric.unit:
        return f"{value:#.5g}{metric.unit}"
    return f"{value:.0f}" if abs(value) >= MILLION or value == int(value) else f"{value:.6f}"

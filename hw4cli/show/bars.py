"""Pictures of one case or of each: the ladder, occupancy, tiles, errors below their bounds, whole programs."""

from collections.abc import Sequence

from hw4cli.errors import InputError
from hw4cli.lab.tables import FORWARD
from hw4cli.plans.bounds import TYPICAL, bound, has_bound
from hw4cli.plans.plan import DEVICES
from hw4cli.problem.rules import TOLERANCE
from hw4cli.problem.workload import FLOAT32
from hw4cli.show.curves import INTERVALS, holding, rate_of
from hw4cli.show.picture import Mark, Panel, Picture, Rule, Series, gpus, measured, short_gpu
from hw4cli.show.records import SUM, Point, Record, by_setting, is_ours, ladder_place, latest


def ladder(records: Sequence[Record], case: str | None = None) -> Picture:
    """The kernels on one case, in the order of the ladder: their times, and how many times as fast as the first.

    Without a `case`, the one that one record holds the most kernels of; of these, the one with the most work.
    """
    record, points = _on_one_case(records, case)
    first = points[0]
    series = tuple(
        Series(p.kernel, (Mark(p.kernel, p.ms, p.low, p.high, f"{p.ms:.4g} ms  ×{_factor(first.ms / p.ms)}"),))
        for p in points
    )
    title = f"The ladder on {points[0].where}"
    panel = Panel("bars", short_gpu(record.gpu), series, "time, ms", "", True, (), tuple(p.kernel for p in points))
    note = f"× is how many times as fast as {first.kernel}"
    return Picture(title, (panel,), *measured([record], note, INTERVALS))


def occupancy(records: Sequence[Record], case: str | None = None) -> Picture:
    """The rate of each kernel on one case (as of `ladder`) over its occupancy: how much the one says of the other."""
    record, points = _on_one_case(records, case)
    series = tuple(
        Series(p.kernel, (Mark(100 * share, p.tflops, *rate_of(p)[1:]),))
        for p in points
        if (share := p.figures.get("occupancy"))
    )
    if not series:
        raise InputError(f"{record.name} lacks the occupancy of its kernels: make it again with `hw4 bench`")
    label = "theoretical occupancy of the longest launch, %"
    panel = Panel("scatter", short_gpu(record.gpu), series, "rate, TFLOP/s", label, True)
    title = f"Rate over occupancy on {points[0].where}"
    return Picture(title, (panel,), *measured([record], INTERVALS))


def accuracy(records: Sequence[Record]) -> Picture:
    """The largest error of each kernel and peer over its rate, a panel for each workload: the fast to the right, the
    exact below."""
    panels, used = [], list[Point]()
    for gpu in gpus(records):
        points = [p for p in latest([r for r in records if r.gpu == gpu]) if p.tile is None and p.figures["max_error"]]
        for setting, group in by_setting(points).items():
            for where in dict.fromkeys(p.where for p in group):
                own = [p for p in group if p.where == where]
                series = tuple(Series(p.kernel, (Mark(p.tflops, p.figures["max_error"] or 0.0),)) for p in own)
                title = f"{short_gpu(gpu)}, {setting.words}, N = {own[0].N:,}"
                rules = (Rule("tolerance", TOLERANCE),)
                panels.append(Panel("scatter", title, series, "largest error", "rate, TFLOP/s", True, rules))
                used += own
    if not panels:
        raise InputError("no record here holds errors of kernels: make one with `hw4 bench -o FILE.json`")
    note = "errors: measured against float64; below and to the right is better"
    return Picture("Error over rate", tuple(panels), *measured(holding(records, used), note))


def _on_one_case(records: Sequence[Record], case: str | None) -> tuple[Record, list[Point]]:
    """The record that holds the most kernels on one case, and these by their place in the ladder."""
    found: list[tuple[tuple[int, int], Record, list[Point]]] = []
    for record in records:
        for name in dict.fromkeys(p.case for p in record.points):
            points = [p for p in record.points if p.case == name and is_ours(p.kernel) and p.tile is None]
            if case in (None, name) and points:
                found.append(((len(points), points[0].B * points[0].N ** 2), record, points))
    if not found:
        where = f"kernels on {case}" if case else "kernels"
        again = f"hw4 bench all {case or 't28'} -o FILE.json"
        raise InputError(f"no record here holds times of {where}: make one with `{again}`")
    _, record, points = max(found, key=lambda one: one[0])
    return record, sorted(points, key=lambda p: ladder_place(p.kernel))


def tiles(records: Sequence[Record]) -> Picture:
    """The rate of a kernel with each of its tiles: a panel for each kernel and case."""
    panels, used = [], []
    for record in records:
        tiled = [p for p in record.points if p.tile]
        for schedule, where in dict.fromkeys((p.schedule, p.where) for p in tiled):
            own = [p for p in tiled if (p.schedule, p.where) == (schedule, where)]
            fastest = {p.tile: p for p in sorted(own, key=lambda p: p.tflops)}  # of a tile's several schedules
            marks = [
                Mark(f"{tile[0]}x{tile[1]}", p.tflops, text=f"{p.tflops:.3g}")
                for tile, p in ((p.tile, fastest[p.tile]) for p in own)
                if tile
            ]
            series = (Series(own[0].kernel, tuple(dict.fromkeys(marks))),)
            panels.append(Panel("cells", f"{schedule}, {where}", series, "TFLOP/s", "rows x keys of a tile"))
        used += [record] * bool(tiled)
    if not panels:
        raise InputError("no record here holds a sweep of tiles: make one with `hw4 bench --tile 64x64` or `hw4 tune`")
    return Picture("Rate by tile", tuple(panels), *measured(used))


def error(records: Sequence[Record]) -> Picture:
    """The largest error of each kernel on each case, and the bound that is proven for inputs in [-3, 3)."""
    if len(gpus(records)) > 1:
        raise InputError(f"errors are of one GPU, but these records are of {' and '.join(gpus(records))}")
    points = [p for p in latest(records) if p.tile is None and p.figures["max_error"]]
    props = DEVICES.get(next((r.cc for r in records if r.cc), None) or 90, DEVICES[90])
    panels = []
    for setting, group in by_setting(points).items():
        order = sorted(group, key=lambda p: (p.N, p.B))
        series = []
        for kernel in sorted(dict.fromkeys(p.kernel for p in group), key=ladder_place):
            own = [p for p in order if p.kernel == kernel]
            series.append(Series(kernel, tuple(Mark(p.where, p.figures["max_error"] or 0.0) for p in own)))
            if has_bound(kernel) and (setting.dtype, setting.direction) == (FLOAT32, FORWARD):
                limits = tuple(Mark(p.where, bound(kernel, TYPICAL, setting.d, p.N, props)) for p in own)
                series.append(Series(kernel, limits, limit=True))
        rows = tuple(dict.fromkeys(p.where for p in order))
        rules = (Rule("tolerance", TOLERANCE),)
        panels.append(Panel("dots", setting.words, tuple(series), "largest error", "", True, rules, rows))
    if not panels:
        raise InputError("no record here holds errors of kernels: make one with `hw4 bench -o FILE.json`")
    note = "dots: measured against float64; ticks: the bound for elements in [-3, 3)"
    return Picture("Error of each kernel, and its bound", tuple(panels), *measured(holding(records, points), note))


def programs(records: Sequence[Record]) -> Picture:
    """Whole programs from file to file: the wall time on each case, from the fastest run to the slowest."""
    used = [record for record in records if record.runs]
    if not used:
        raise InputError("no record here holds whole programs: make one with `hw4 bench -o FILE.json`")
    panels, sums = [], []
    for record in used:
        names = list(dict.fromkeys(run.program for run in record.runs))
        cases = [run for run in record.runs if run.shape]
        marks = [(r.program, Mark(_where(r.case, r.shape), r.seconds, r.fastest, r.slowest)) for r in cases]
        series = tuple(Series(name, tuple(mark for program, mark in marks if program == name)) for name in names)
        rows = tuple(dict.fromkeys(_where(r.case, r.shape) for r in cases))
        panels.append(Panel("dots", short_gpu(record.gpu), series, "wall time, s", "", False, (), rows))
        totals = [f"{run.program} {run.seconds:.2f} s" for run in record.runs if run.case == SUM]
        sums += [f"sum of the cases: {', '.join(totals)}"] if totals else []
    note = "whiskers: fastest and slowest run"
    return Picture("Whole programs, from file to file", tuple(panels), *measured(used, *sums, note))


def _where(case: str, shape: tuple[int, int, int] | None) -> str:
    return "{} ({}, {}, {})".format(case, *shape) if shape else case


def _factor(ratio: float) -> str:
    """A ratio in three digits: "30.3", "1.25", "209"."""
    return f"{ratio:.0f}" if ratio >= 99.5 else f"{ratio:.3g}"

"""Tables of tuning: which tile and schedule is the fastest."""

from benchmarks.pages.facts import taken_first
from benchmarks.pages.table import Record, Table, documents, made, read, shape_of
from hw4cli.lab.candidates import AUTOMATIC, TunedRow
from hw4cli.lab.tune import finding
from hw4cli.plans.measured import RUN_SPREAD
from hw4cli.text.words import counted


def tuned(record: Record, spread: float = RUN_SPREAD) -> Table:
    """A line for each workload in which tuning changes what `auto` takes by itself, or another candidate was faster:
    what it takes by itself, the fastest, and what it takes after tuning."""
    lines, slower = [], 0
    for one in record["workloads"]:
        candidates = _timed(one)
        fastest, before = candidates[0], _before(record, one, candidates)
        after = _after(candidates, spread, before.kernel)
        slower += (after.median or 0.0) > (before.median or 0.0)
        if before == after == fastest:
            continue
        times = (text for row in (before, fastest) for text in (row.name, f"{row.median:.4g}"))
        gain = f"{(before.median or 0.0) / (fastest.median or 1.0):.3f}"
        lines.append([one["case"], shape_of(one), *times, gain, after.name, f"{len(candidates)} of {len(one['rows'])}"])
    header = ["case", "(B, N, d)", "by itself", "ms", "fastest", "ms", "× faster", "`auto` takes then", "timed"]
    workloads = len(record["workloads"])
    rest = ""
    if len(lines) < workloads:
        where = f"the other {workloads - len(lines)}" if lines else f"all {counted(workloads, 'workload')}"
        rest = f"In {where}, what `auto` takes by itself is the fastest that was timed. "
    stated = f"{rest}Slower than before: {slower}. {_tuned_on(record)}."
    return Table(header, lines, (stated,), otherwise=stated)


def quickly(record: Record) -> Table:
    """Of GPU-full.json a line for each workload: the kernel that `hw4 tune --quick` takes by GPU.json, by its own tile,
    beside the fastest of all; both times are of the former record."""
    quick = read(record["path"].with_name(record["path"].name.replace("-full", "")))
    taken = {_key(one): _after(_timed(one), 0.0, taken_first(quick, one)).kernel for one in quick["workloads"]}
    lines, worst = [], 0.0
    for one in record["workloads"]:
        candidates = _timed(one)
        mine = next((row for row in candidates if row.own and row.kernel == taken.get(_key(one))), None)
        if mine is None:
            continue
        over = (mine.median or 0.0) / (candidates[0].median or 1.0) - 1
        worst = max(worst, over)
        shown = (text for row in (mine, candidates[0]) for text in (row.name, f"{row.median:.4g}"))
        lines.append([one["case"], shape_of(one), *shown, f"{over:.1%}", str(len(candidates))])
    header = ["case", "(B, N, d)", "quick takes", "ms", "fastest of all", "ms", "slower by", "candidates timed"]
    return Table(header, lines, (f"{_tuned_on(record)}. Slower than the fastest by at most {worst:.1%}.",))


def candidates(record: Record) -> Table:
    """Of the kernel that is the fastest on a workload, a line for each tile and knob that was timed."""
    lines = []
    for one in record["workloads"]:
        rows = _timed(one)
        for row in (row for row in rows if row.kernel == rows[0].kernel):
            median = row.median or 1.0
            figures = [
                row.name + " (its own)" * row.own + " (dropped)" * (row.status == "dropped"),
                f"{median:.4g}",
                f"{((row.high or 0.0) - (row.low or 0.0)) / 2 / median:.1%}",
                f"{median / (rows[0].median or 1.0):.3f}",
                str(row.registers),
                f"{(row.shared_bytes or 0) / 1024:.1f}",
                f"{row.occupancy or 0:.0%}",
            ]
            lines.append([one["case"], shape_of(one), *figures])
    header = ["case", "(B, N, d)", "candidate", "ms", "±", "x best", "registers", "shared KB", "occupancy"]
    return Table(header, lines, (f"{_tuned_on(record)}.",))


def schedules(record: Record) -> Table:
    """A line for each workload: half's tiling, and its milliseconds in each schedule."""
    lines = []
    for one in documents(record):
        rows = [TunedRow.of(row) for row in one["workloads"][0]["rows"]]
        knobs = {row: dict(row.knobs) for row in rows}
        times = {(knobs[row].get("ahead", 1), knobs[row].get("turns", 1)): row.median for row in rows}
        tile = next("{}x{}".format(*row.tile) for row in rows if row.own)
        line = [f"{times[way]:.4g}" if times.get(way) else "-" for way in ((0, 0), (1, 0), (1, 1))]
        lines.append([f"`{one['workload']}`", tile, *line])
    first = documents(record)[0]
    stated = f"{first['machine']['gpu']}, driver {first['machine']['driver']}; medians of 5 samples; {made(first)}."
    header = ["workload", "tile", "one product at a time, ms", "scores ahead", "scores ahead, in turns"]
    return Table(header, lines, (stated,))


def _key(workload: Record) -> tuple[int | bool, ...]:
    return (*workload["shape"], workload["causal"])


def _timed(workload: Record) -> list[TunedRow]:
    """The candidates of a workload that were timed, the fastest first."""
    return [row for row in map(TunedRow.of, workload["rows"]) if row.median is not None]


def _before(record: Record, workload: Record, rows: list[TunedRow]) -> TunedRow:
    """What `auto` takes by itself, of the kernels that were timed."""
    order = (taken_first(record, workload), *AUTOMATIC)
    return next(row for name in order for row in rows if row.own and row.kernel == name)


def _after(rows: list[TunedRow], spread: float, first: str) -> TunedRow:
    """What `auto` takes once it was tuned, in place of the kernel that it took first."""
    best = finding(rows, spread, first)
    kernel = best.kernels[0]
    tile = best.tiles.get(kernel)
    return next(row for row in rows if row.kernel == kernel and (row.own if tile is None else row.sizes == tile))


def _tuned_on(record: Record) -> str:
    return f"{record['machine']['gpu']}, driver {record['machine']['driver']}; {made(record)}"

"""Tables of kernels of files, of whole programs, and of two builds."""

from benchmarks.pages.table import Record, Table, shape_of, timed
from hw4cli.lab.measure.explanation import explain_plan, nearest
from hw4cli.lab.measure.gpus import model_for
from hw4cli.lab.measure.model import launch_models
from hw4cli.lab.tables import COLUMNS, cells
from hw4cli.plans.dispatch import ranking
from hw4cli.plans.ladder import VARIANTS
from hw4cli.plans.plan import DEVICES
from hw4cli.problem.workload import Shape
from hw4cli.text.words import counted

LISTED = ["kernel", "case", "shape", "median", "spread", "tflops", "sgemm_percent", "max_error"]
LISTED += ["registers", "shared_bytes", "occupancy"]


def as_list(record: Record) -> Table:
    """A line for each row that was timed, and a sentence for each that was not, or not as it should be."""
    reasons = [f"- {row['kernel']} on {row['case']}: {row['reason']}" for row in record["rows"] if row["reason"]]
    lines = [[_shown(row)[key] for key in LISTED] for row in timed(record)]
    return Table([COLUMNS[key] for key in LISTED], lines, tuple(reasons))


def _shown(row: Record) -> dict[str, str]:
    """A row's values as they are shown, by their names in COLUMNS."""
    return dict(zip(COLUMNS, cells(row), strict=True))


def versus(record: Record) -> Table:
    """A line for each case: the first kernel's figures, then the others' rates and how many times faster it is."""
    rows = record["rows"]
    first, *others = dict.fromkeys(row["kernel"] for row in rows)
    table = {(row["case"], row["kernel"]): row for row in rows}
    header = ["case", "(B, N, d)", f"{first} ms", "TFLOP/s", "GB/s", "max error"]
    header += [text for other in others for text in (f"{other} TFLOP/s", "×")]
    lines = []
    for case in dict.fromkeys(row["case"] for row in rows):
        own = table[case, first]
        line = [case, *(_shown(own)[key] for key in ("shape", "median", "tflops", "gb_per_s", "max_error"))]
        for other in others:
            row = table[case, other]
            both = row["status"] == "ok" and own["status"] == "ok"
            line += [f"{row['tflops']:.2f}", f"{row['median'] / own['median']:.2f}"] if both else ["-", "-"]
        lines.append(line)
    return Table(header, lines)


BRIEF_CASES = ("t12", "t21", "t22", "t28", "t30")  # short and long rows of both head sizes
PYTORCH = "torch efficient"


def brief(record: Record) -> Table:
    """Three lines for each of some cases: what `auto` takes on Hopper, then, at the error of float32, `exact` and
    PyTorch; and how many times faster than PyTorch each is."""
    table = {(row["case"], row["kernel"]): row for row in record["rows"]}
    lines = []
    for case in BRIEF_CASES:
        N, d = table[case, record["rows"][0]["kernel"]]["shape"][1:]
        for kernel in (ranking(DEVICES[90], "", d, N)[0][0], "exact", PYTORCH):
            own = table[case, kernel]
            shape, name, *figures = (_shown(own)[key] for key in ("shape", "kernel", "median", "tflops", "max_error"))
            ratio = f"{table[case, PYTORCH]['median'] / own['median']:.1f}"
            lines.append([case, shape, "PyTorch, float32" if kernel == PYTORCH else name, *figures, ratio])
    return Table(["case", "(B, N, d)", "kernel", "ms", "TFLOP/s", "max error", "× PyTorch"], lines)


FILES = ("split", "split8", "exact", "flash", PYTORCH)


def files(record: Record) -> Table:
    """A line for each case: the time of each kernel and of PyTorch's float32 attention, then of the kernel that `auto`
    takes on Hopper its name, rate and error, and how many times as fast as PyTorch it is."""
    table = {(row["case"], row["kernel"]): row for row in timed(record)}
    lines = []
    for case, (B, N, d) in {row["case"]: row["shape"] for row in record["rows"]}.items():
        rows = [table.get((case, kernel)) for kernel in FILES]
        own = table[case, ranking(DEVICES[90], "", d, N)[0][0]]
        line = [case, f"({B}, {N}, {d})", *(f"{row['median']:.4g}" if row else "-" for row in rows)]
        line += [own["kernel"], f"{own['tflops']:.0f}", f"{own['max_error']:.1e}"]
        lines.append([*line, f"{rows[-1]['median'] / own['median']:.1f}" if rows[-1] else "-"])
    times = [f"{'PyTorch' if kernel == PYTORCH else kernel} ms" for kernel in FILES]
    return Table(["case", "(B, N, d)", *times, "`auto` takes", "TFLOP/s", "max error", "× PyTorch"], lines)


def masks(record: Record) -> Table:
    """A line for each workload that was timed with and without a mask, of each kernel: the causal time, and how many
    times as fast it is."""
    rows = timed(record)
    kernels = list(dict.fromkeys(row["kernel"] for row in rows))
    table = {(*row["shape"], row["kernel"], row["causal"]): row["median"] for row in rows}
    lines = []
    for shape in dict.fromkeys(tuple(row["shape"]) for row in rows if row["causal"]):
        line = ["({}, {}, {})".format(*shape)]
        for kernel in kernels:
            whole, half = (table.get((*shape, kernel, causal)) for causal in (False, True))
            line += [f"{half:.4g}", f"{whole / half:.2f}"] if whole and half else ["-", "-"]
        lines.append(line)
    return Table(["(B, N, d)", *(text for name in kernels for text in (f"{name} causal ms", "×"))], lines)


DIFFERS = "*: samples differ: the interval of the median is more than 5 % of it to either side."


def over_lengths(*records: Record) -> Table:
    """A line for each kernel, a column for each N: TFLOP/s, behind it those of causal attention where a kernel was
    timed so; marked where samples differ much."""
    rows = [row for record in records for row in timed(record)]
    lengths = sorted({row["shape"][1] for row in rows})
    rates = {
        (row["kernel"], row.get("causal", False), row["shape"][1]): f"{row['tflops']:.3g}{'*' * _differs(row)}"
        for row in rows
    }
    lines = []
    for name in sorted({row["kernel"] for row in rows}, key=list(VARIANTS).index):
        masks = [causal for causal in (False, True) if any(key[:2] == (name, causal) for key in rates)]
        lines.append([name, *(" / ".join(rates.get((name, causal, N), "-") for causal in masks) for N in lengths)])
    return Table(
        ["TFLOP/s at N =", *(f"{N:,}" for N in lengths)], lines, (DIFFERS,) if any(map(_differs, rows)) else ()
    )


def _differs(row: Record) -> bool:
    return bool((row["high"] - row["low"]) / 2 / row["median"] > 0.05)


RUNG = ["kernel", "median", "tflops", "sgemm_percent", "max_error", "registers", "shared_bytes", "occupancy"]


def rung_limits(record: Record) -> Table:
    """A line for each kernel: its time, rate, error and resources, and how near it comes to the limit that `hw4
    explain` finds, by the GPU's data sheet."""
    major, minor = record["machine"]["compute_capability"].split(".")
    model = model_for(record["machine"]["gpu"], 10 * int(major) + int(minor))
    lines = []
    for row in (row for row in timed(record) if row["kernel"] in VARIANTS):
        B, N, d = row["shape"]
        shape = Shape(B, N, d, causal=row.get("causal", False))
        plan = VARIANTS[row["kernel"]].plan(shape, model.props)
        models = launch_models(plan, shape, model.props, model.cache)
        facts, _ = explain_plan(row["kernel"], plan, models, model.props, model.rates, None)
        name, least, every = nearest(facts)
        others = sorted(((seconds, other) for other, seconds in every.items() if other != name), reverse=True)
        second = f"{others[0][1]}, {others[0][0] / least:.0%} of that" if others and least else "-"
        reached = [f"{1e3 * least:.4g}", f"{1e3 * least / row['median']:.0%}"] if least else ["-", "-"]
        shown = [_shown(row)[key] for key in RUNG]
        lines.append([*shown, *reached, name or "-", second])
    return Table([*(COLUMNS[key] for key in RUNG), "at least, ms", "reached", "nearest limit", "then"], lines)


def energy(*records: Record) -> Table:
    """A line for each kernel that ran without rest and whose energy is known."""
    figures = {"sustained_ms": ".4g", "watts": ".0f", "joules": ".3g", "gflop_per_joule": ".3g"}
    lines = [
        [row["kernel"], row["case"], *(format(row[name], form) for name, form in figures.items())]
        for record in records
        for row in timed(record)
        if row.get("joules")
    ]
    return Table(["kernel", "case", "ms a run", "watts", "joules a run", "GFLOP for each joule"], lines)


def programs(record: Record) -> Table:
    """A line for each case of an end-to-end record: every program's median, and the others' ratio to the first."""
    rows = record["rows"]
    names = list(dict.fromkeys(row["program"] for row in rows))
    table = {(row["case"], row["program"]): row for row in rows}
    header = ["case", "(B, N, d)", f"{names[0]} s"] + [text for name in names[1:] for text in (f"{name} s", "ratio")]
    lines = []
    for case in dict.fromkeys(row["case"] for row in rows):
        first, *others = (table[case, name] for name in names)
        line = [case, shape_of(first) if first["shape"] else "", f"{first['median']:.3f}"]
        lines.append(line + [text for row in others for text in (f"{row['median']:.3f}", f"{row['ratio']:.2f}")])
    return Table(header, lines)


def builds(record: Record) -> Table:
    """A line for each build on each case: medians of processes, the spread within and between, and the verdict."""
    lines = []
    for row in record["rows"]:
        build = f"{row['build']} ({record['builds'][row['build']]})"
        between = "-" if row["between"] is None else f"{row['between']:.2%}"
        line = [row["kernel"], row["case"], build, f"{row['median']:.4g}", f"{row['within']:.2%}", between]
        if row["ratio"]:
            line += [f"{row['ratio']:.4f}", f"{row['least']:.4f} to {row['most']:.4f}", row["verdict"]]
        lines.append(line if row["ratio"] else [*line, "-", "-", "-"])
    header = ["kernel", "case", "build", "median ms", "within", "between", "B / A", "pairs", "verdict"]
    facts = f"{record['machine']['gpu']}, driver {record['machine']['driver']}, {record['date']}"
    processes = counted(record["processes"], "process", "processes")
    return Table(header, lines, (f"{facts}; {processes} of each build in turns.",))

"""Pictures of kernels over N, or from case to case: times, rates, speed-ups, and the measured roofs above them."""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from hw4cli.errors import InputError, MachineError
from hw4cli.lab.measure.gpus import DRAM, FFMA, L2, SCALES, SHARED, TENSOR, UNITS, GpuModel, model_for
from hw4cli.lab.measure.model import launch_models
from hw4cli.lab.tables import FORWARD
from hw4cli.plans.ladder import VARIANTS
from hw4cli.problem.workload import FLOAT32, Workload
from hw4cli.show.picture import Mark, Panel, Picture, Rule, Series, gpus, measured, short_gpu
from hw4cli.show.records import Point, Record, Setting, by_setting, ladder_place, latest
from hw4cli.text.words import counted

LEAST = 3  # values of N that make a curve
INTERVALS = "whiskers: 95 % interval of the median"
AUTO, OVER_N, OVER_CASES = "auto", "N", "cases"

Value = Callable[[Point], tuple[float, float, float]]  # a figure and the ends of its interval


def milliseconds(point: Point) -> tuple[float, float, float]:
    """The median time."""
    return point.ms, point.low, point.high


def rate_of(point: Point) -> tuple[float, float, float]:
    """The rate in TFLOP/s, and its interval from that of the time."""
    return point.tflops, point.tflops * point.ms / point.high, point.tflops * point.ms / point.low


def latency(records: Sequence[Record], over: str = AUTO) -> Picture:
    """Times over N, or of each case."""
    return _picture("Time of each kernel", records, "time, ms", milliseconds, over, log=True)


def rate(records: Sequence[Record], over: str = AUTO) -> Picture:
    """Rates in TFLOP/s over N, or of each case, below what cuBLAS reaches in float32."""
    roofs = [r.sgemm_tflops for r in records if r.sgemm_tflops]
    rules = (Rule("cuBLAS SGEMM", max(roofs)),) if roofs else ()
    return _picture("Rate of each kernel", records, "rate, TFLOP/s", rate_of, over, rules=rules)


def energy(records: Sequence[Record], over: str = AUTO) -> Picture:
    """Operations for each joule over N, or of each case, where records hold the energy of runs without rest."""

    def of_joule(point: Point) -> tuple[float, float, float]:
        value = point.figures["gflop_per_joule"] or 0.0
        return value, value, value

    chosen = [replace(r, points=tuple(p for p in r.points if p.figures["gflop_per_joule"])) for r in records]
    if not any(record.points for record in chosen):
        raise InputError("no record here holds the energy of runs: make one with `hw4 bench --sustained -o FILE.json`")
    picture = _picture("Operations for each joule", chosen, "GFLOP per joule", of_joule, over)
    return replace(picture, notes=("energy of the whole board (NVML), runs back to back for a second", *picture.notes))


def speedup(records: Sequence[Record], base: str, over: str = AUTO, dense_base: bool = False) -> Picture:
    """How many times as fast as `base` each kernel is on each case, of times in one record; with `dense_base`, as fast
    as `base` without a mask, by whatever records of the same GPU: of causal attention, what its mask saves counts, too.
    """
    whole: dict[tuple[str, int, int, Setting], Point] = {}
    for record in records if dense_base else ():
        whole |= {(record.gpu, p.B, p.N, p.setting): p for p in record.points if p.name == base}
    ratios: dict[int, tuple[float, float, float]] = {}
    comparable = []
    for record in records:
        bases = {(p.B, p.N, p.setting): p for p in record.points if p.name == base}
        for p in record.points if dense_base else ():
            if dense := whole.get((record.gpu, p.B, p.N, replace(p.setting, causal=False))):
                bases[p.B, p.N, p.setting] = dense
        pairs = [(p, slow) for p in record.points if (slow := bases.get((p.B, p.N, p.setting))) and p is not slow]
        ratios.update({id(p): (slow.ms / p.ms, slow.low / p.high, slow.high / p.low) for p, slow in pairs})
        if pairs:
            comparable.append(replace(record, points=tuple(p for p, _ in pairs)))
    if not ratios:
        names = dict.fromkeys(p.name for record in records for p in record.points)
        raise InputError(f"no record here holds {base!r} to compare with: they hold {', '.join(names) or 'no kernel'}")
    name = f"{base} without a mask" if dense_base else base
    title, rules = f"How many times as fast as {name}", (Rule(name, 1.0),)
    return _picture(title, comparable, "speed-up, ×", lambda p: ratios[id(p)], over, rules=rules, log=True)


def roofline(records: Sequence[Record]) -> Picture:
    """Rates over FLOPs for each byte, below measured roofs.

    With a record of `hw4 bench roofs` a panel for each level of the memory, with its slanted roof, and each kernel
    where its own launches have it: FLOPs for each byte that they move there, by their model. Without one, FLOPs for
    each byte of Q, K, V and O, below what the records measured of a copy and of cuBLAS.
    """
    known = [record for record in records if record.points or record.rates]
    if len(gpus(known)) > 1:
        raise InputError(f"a roofline is of one GPU, but these records are of {' and '.join(gpus(known))}")
    roofs = [record for record in known if record.rates]
    timed = [record for record in known if record.points]
    points = [p for p in latest(timed) if p.tile is None and p.figures["gb_per_s"]]
    return _levels(timed, roofs[-1], points) if roofs and points else _of_copies(timed, points)


def _levels(records: Sequence[Record], roofs: Record, points: Sequence[Point]) -> Picture:
    """A panel for DRAM, for the L2 cache and for shared memory, of those that the roofs have."""
    rates, panels = roofs.rates, list[Panel]()
    model = model_for(roofs.gpu, roofs.cc or 90)
    amounts = {id(p): amounts_of(p, model) for p in points}
    flat = [Rule(f"{name} {rates[name]:.0f} TFLOP/s", rates[name]) for name in (FFMA, TENSOR) if name in rates]
    drawn: dict[int, Point] = {}
    for level in (DRAM, L2, SHARED):
        marks: dict[str, list[Mark]] = {}
        for p in points:
            if moved := amounts[id(p)].get(level):
                value, low, high = rate_of(p)
                marks.setdefault(p.kernel, []).append(Mark(value * p.ms * 1e9 / moved, value, low, high))
                drawn[id(p)] = p
        if level in rates and marks:
            top, slope = max(rule.value for rule in flat), rates[level] / 1000
            # Its name stands at half its height: at its end it would meet the names of the flat ones.
            slants = Rule("", top, slope), Rule(f"{level} {rates[level]:,.0f} GB/s", top / 3, slope)
            order = sorted(marks, key=ladder_place)
            series = tuple(Series(k, tuple(sorted(marks[k], key=lambda m: (m.at, m.value)))) for k in order)
            label = f"FLOP per byte of {level}"
            title = f"{short_gpu(roofs.gpu)}, {level}"
            panels.append(Panel("scatter", title, series, "rate, TFLOP/s", label, True, (*flat, *slants)))
    if not flat or not panels:
        raise InputError(f"{roofs.name} lacks what a roofline needs, {FFMA} and a memory: run `hw4 bench roofs` again")
    note = (
        "roofs measured by hw4 bench roofs; bytes are those that each kernel's own launches ask for, by their model; "
        "FLOPs are 4·B·N²·d: split takes twice the products that are counted, exact three times"
    )
    return Picture("Roofline", tuple(panels), *measured([*holding(records, [*drawn.values()]), roofs], note))


def amounts_of(point: Point, model: GpuModel) -> dict[str, float]:
    """What all launches of a kernel of the ladder ask of each resource on a point's shape, by their model: bytes or
    operations. Of what is not in the ladder, Q, K, V and O once."""
    setting = point.setting
    if point.kernel not in VARIANTS or (setting.dtype, setting.direction) != (FLOAT32, FORWARD):
        seconds = point.ms / 1000
        return {DRAM: (point.figures["gb_per_s"] or 0.0) * 1e9 * seconds}
    shape, found = Workload.one_head(point.B, point.N, setting.d, setting.causal), Counter[str]()
    try:
        plan = VARIANTS[point.kernel].plan(shape, model.props)
    except MachineError:  # the record's GPU could start it, and the one that is known by its name cannot
        return {}
    for one in launch_models(plan, shape, model.props):
        found.update({name: amount for name, amount in one.amounts.items() if amount})
    return dict(found)


def nearest_roof(amounts: Mapping[str, float], rates: Mapping[str, float], ms: float) -> tuple[str, float] | None:
    """The resource of which a kernel takes the largest share, and that share in percent of the measured rate; None
    where neither is known."""
    reached = shares(amounts, rates, ms)
    return max(reached.items(), key=lambda one: one[1]) if reached else None


def shares(amounts: Mapping[str, float], rates: Mapping[str, float], ms: float) -> dict[str, float]:
    """The percentage of each measured rate that a kernel of this time reaches."""
    return {
        name: 100 * amounts[name] / SCALES[UNITS[name]] / (ms / 1000) / rate
        for name, rate in rates.items()
        if name in UNITS and amounts.get(name)
    }


def _of_copies(records: Sequence[Record], points: Sequence[Point]) -> Picture:
    """Below the rates of a copy and of cuBLAS that records of kernels have."""
    copies = [r.copy_gb_per_s for r in records if r.copy_gb_per_s]
    gemms = [r.sgemm_tflops for r in records if r.sgemm_tflops]
    if not (copies and gemms and points):
        lacking = "kernels" if not points else "a copy's GB/s" if not copies else "cuBLAS's TFLOP/s"
        again = "make one with `hw4 bench -o FILE.json`"
        raise InputError(f"no record here holds {lacking}, which a roofline needs: {again}")
    roof, slope = max(gemms), max(copies) / 1000

    def mark(p: Point) -> Mark:
        value, low, high = rate_of(p)
        return Mark(1000 * value / (p.figures["gb_per_s"] or 1), value, low, high)

    series = tuple(
        Series(name, tuple(sorted((mark(p) for p in points if p.kernel == name), key=lambda m: (m.at, m.value))))
        for name in dict.fromkeys(p.kernel for p in points)
    )
    rules = (
        Rule(f"cuBLAS SGEMM {roof:.0f} TFLOP/s", roof),
        Rule(f"copy {1000 * slope:,.0f} GB/s", 4 * max(p.tflops for p in points), slope),
    )
    panel = Panel(
        "scatter", short_gpu(records[0].gpu), series, "rate, TFLOP/s", "FLOP per byte of Q, K, V and O", True, rules
    )
    note = "kernels on tensor cores are not below SGEMM's roof, which is float32's; both roofs are measured"
    return Picture("Roofline", (panel,), *measured(holding(records, points), note))


def _picture(
    title: str,
    records: Sequence[Record],
    label: str,
    value: Value,
    over: str,
    *,
    rules: tuple[Rule, ...] = (),
    log: bool = False,
) -> Picture:
    """A panel for each GPU and setting: over N where the records sweep it, else over cases."""
    panels, drawn, left_out = [], list[Point](), 0
    for gpu in gpus(records):
        points = [p for p in latest([r for r in records if r.gpu == gpu]) if p.tile is None]
        for setting, group in by_setting(points).items():
            sweep = None if over == OVER_CASES else longest_sweep(group)
            if over == OVER_N and not sweep:
                continue
            shown = [p for p in group if _in(p, sweep)] if sweep else group
            panels.append(_panel(f"{short_gpu(gpu)}, {setting.words}", shown, sweep, label, value, rules, log))
            drawn += shown
            left_out += len(group) - len(shown)
    if not panels and over == OVER_N:
        raise InputError(f"no record here has {LEAST} values of N at one B, or at one B·N: leave out --over N")
    if not panels:
        raise InputError("no record here holds times of kernels: make one with `hw4 bench -o FILE.json`")
    note = f"{counted(left_out, 'measurement')} at other B left out (all: --over cases)" if left_out else ""
    whiskers = INTERVALS if any(p.high > p.low for p in drawn) else ""
    return Picture(title, tuple(panels), *measured(holding(records, drawn), whiskers, note))


def holding(records: Sequence[Record], drawn: Sequence[Point]) -> list[Record]:
    """The records that some of the points are from."""
    own = {id(point) for point in drawn}
    return [record for record in records if any(id(point) in own for point in record.points)]


def _panel(
    title: str,
    points: Sequence[Point],
    sweep: tuple[str, int] | None,
    label: str,
    value: Value,
    rules: tuple[Rule, ...],
    log: bool,
) -> Panel:
    """The points of one setting as curves over N, or as a row of dots for each case, the shortest first."""
    order = sorted(points, key=lambda p: (p.N, p.B))
    series = []
    for kernel in sorted(dict.fromkeys(p.kernel for p in points), key=ladder_place):
        own = [p for p in order if p.kernel == kernel]
        series.append(Series(kernel, tuple(Mark(float(p.N) if sweep else p.where, *value(p)) for p in own)))
    if sweep:
        return Panel("lines", f"{title}, {sweep[0]} = {sweep[1]:,}", tuple(series), label, "N", log, rules)
    return Panel("dots", title, tuple(series), label, "", log, rules, tuple(dict.fromkeys(p.where for p in order)))


def longest_sweep(points: Sequence[Point]) -> tuple[str, int] | None:
    """What stays as it is where N takes the most values: ("B", 4) or ("B·N", 16384). None where it takes too few."""
    seen = {(p.B, p.N) for p in points}
    counts = Counter(("B", B) for B, _ in seen) + Counter(("B·N", B * N) for B, N in seen)
    fixed = max(counts, key=lambda key: (counts[key], key), default=None)
    return fixed if fixed and counts[fixed] >= LEAST else None


def _in(point: Point, sweep: tuple[str, int]) -> bool:
    return sweep[1] == (point.B if sweep[0] == "B" else point.B * point.N)

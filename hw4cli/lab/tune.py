"""The fastest kernel and tile for a case: what cannot start is left out, with the reason; what can is checked, then
timed in turns; what is clearly slower drops out after a few samples."""

import re
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any

from hw4cli.device.gpu import Gpu
from hw4cli.device.kernelcheck import CheckedLaunch, check_plan
from hw4cli.device.timing import GpuTimer
from hw4cli.device.tuning.store import Finding
from hw4cli.errors import Hw4Error
from hw4cli.lab.candidates import AUTOMATIC, Candidate, Space, TunedRow
from hw4cli.lab.contender import compile_side_by_side, prepare
from hw4cli.lab.sampling import STANDARD, Measurement, Notify, Sampling, take_turns
from hw4cli.lab.times import median_interval
from hw4cli.plans.plan import DeviceProperties, Plan
from hw4cli.problem.cpu import workers

FIRST_SAMPLES = 5  # of every candidate
HOPELESS = 1.15  # whose fastest sample is slower than the best median by this factor is not timed further
NO_TILE = (ArithmeticError, LookupError, StopIteration)  # what formulas raise for a tile that they do not know


def planned(
    space: Space, chosen: Sequence[Candidate], props: DeviceProperties
) -> tuple[dict[Candidate, Plan], list[TunedRow]]:
    """The plans of the candidates that a GPU could start; and the others, with the reason."""
    plans, refused = {}, []
    for one in chosen:
        try:
            plans[one] = space.plan(one, props)
        except Hw4Error as error:
            refused.append(one.row("refused", _short(error, one)))
        except NO_TILE:
            refused.append(one.row("refused", "no such tile"))
    return plans, refused


def _short(error: Exception, one: Candidate) -> str:
    """A reason, without what the row says anyway."""
    words = without_source(str(error)).removeprefix(f"kernel {one.kernel} ")
    return re.sub(r" for (compute capability [\d.]+|gfx\w+):", ":", words)


def without_source(reason: str) -> str:
    """A compiler's message without the line of source: a reason, and where it is stated."""
    return reason.partition(": `")[0]


def filtered(space: Space, props: DeviceProperties, compiler: Any) -> list[TunedRow]:
    """Without a GPU: which candidates could start there, and why the others could not."""
    chosen = [*space.candidates(props)]
    plans, refused = planned(space, chosen, props)
    rows = {row.name: row for row in refused}
    with ThreadPoolExecutor(workers()) as pool:
        built = list(pool.map(lambda plan: [*check_plan(plan.variant, plan, props, compiler)], plans.values()))
    for (one, plan), launches in zip(plans.items(), built, strict=True):
        rows[one.name] = _fits(one, plan, launches)
    found = [rows[one.name] for one in chosen]
    return [replace(row, reason=space.elsewhere(row.reason)) for row in found]


def _fits(one: Candidate, plan: Plan, launches: Sequence[CheckedLaunch]) -> TunedRow:
    problem = next((launch.problem for launch in launches if launch.problem), "")
    main = next((x for x in launches if x.symbol == plan.launches[plan.main].symbol), launches[0])
    facts = {key: getattr(main, key) for key in ("registers", "shared_bytes", "occupancy")}
    return one.row("refused" if problem else "fits", without_source(problem), **facts)


def startable(space: Space, chosen: Sequence[Candidate], gpu: Gpu) -> tuple[list[Candidate], list[TunedRow]]:
    """The candidates that the GPU can start, compiled side by side; and the others, with the reason."""
    plans, refused = planned(space, chosen, gpu.props)
    compile_side_by_side(gpu, plans.values())
    fitting = []
    for one, plan in plans.items():
        try:
            gpu.functions(plan)
            fitting.append(one)
        except Hw4Error as error:
            refused.append(one.row("refused", _short(error, one)))
    return fitting, refused


def tune(timer: GpuTimer, space: Space, quick: bool = False, notify: Notify = lambda _: None) -> list[TunedRow]:
    """Check and time the candidates, the fastest first, those that were refused last. `quick`: the first samples are
    all.

    Raises MachineError if the case does not fit the GPU.
    """
    fitting, refused = startable(space, [*space.candidates(timer.gpu.props)], timer.gpu)
    by_name = {one.name: one for one in fitting}
    with space.case.guarded(timer.gpu):
        prepared = prepare(timer, [space.contender(one, timer) for one in fitting], space.case)
        everyone = prepared.measurements
        take_turns(timer, everyone, Sampling(FIRST_SAMPLES), notify)
        best = min((median_interval(one.times)[0] for one in everyone), default=0.0)
        kept = [one for one in everyone if min(one.times) <= HOPELESS * best or by_name[one.name].own]
        if not quick:
            take_turns(timer, kept, STANDARD, notify)
    names = {one.name for one in kept}
    rows = [_row(by_name[one.name], one, "ok" if one.name in names else "dropped") for one in everyone]
    rows.sort(key=lambda row: row.median or 0.0)
    refused += [by_name[name].row("refused", row.reason) for name, row in prepared.rows.items()]
    return [*rows, *refused]


def _row(one: Candidate, measurement: Measurement, status: str) -> TunedRow:
    median, low, high = median_interval(measurement.times)
    facts: dict[str, Any] = {key: measurement.facts.get(key) for key in ("registers", "shared_bytes", "occupancy")}
    return one.row(status, median=median, low=low, high=high, samples=len(measurement.times), **facts)


def finding(rows: Sequence[TunedRow], margin: float = 0.0, first: str = "") -> Finding:
    """What `auto` may go by: its kernels from fast to slow, and a tile where one is surely faster than the kernel's
    own: the intervals of the medians lie apart, by a margin (a share of the time) more than touching. `first`: the
    kernel that it takes by itself, which stays first unless another one is surely faster."""
    timed = [row for row in rows if row.median is not None and row.kernel in AUTOMATIC]
    best: dict[str, TunedRow] = {}
    for row in timed:  # the fastest come first
        own = next((one for one in timed if one.kernel == row.kernel and one.own), None)
        surely = row.own or own is None or (row.high or 0.0) * (1 + margin) < (own.low or 0.0)
        if surely and row.kernel not in best:
            best[row.kernel] = row
    order = sorted(best.values(), key=lambda row: row.median or 0.0)
    stays = best.get(first)
    if stays and (order[0].high or 0.0) * (1 + margin) >= (stays.low or 0.0):
        order.sort(key=lambda row: row is not stays)
    tiles = {row.kernel: row.sizes for row in order if not row.own}
    return Finding(tuple(row.kernel for row in order), tiles)


def surest(rows: Sequence[TunedRow]) -> TunedRow | None:
    """The candidate of one kernel that is taken from now on: the fastest, or the kernel's own where their intervals
    meet. None where its own was not timed."""
    timed = [row for row in rows if row.median is not None]
    own = next((row for row in timed if row.own), None)
    if own is None:
        return None
    fastest = min(timed, key=lambda row: row.median or 0.0)
    return fastest if (fastest.high or 0.0) < (own.low or 0.0) else own


def gain(rows: Sequence[TunedRow]) -> str:
    """One sentence: the fastest, and what it gains over its kernel's own tile."""
    timed = [row for row in rows if row.status == "ok"]
    if not timed:
        return "no candidate could be timed"
    first = timed[0]
    what = f"fastest: {first.name}, {first.median:.4g} ms"
    own = next((row for row in timed if row.kernel == first.kernel and row.own), None)
    if first.own or own is None or not own.median or not first.median:
        return f"{what}, the tile that {first.kernel} takes by itself" if first.own else what
    tile = f"{own.kernel}'s own {own.tile[0]}x{own.tile[1]}"
    if (first.high or 0.0) < (own.low or 0.0):
        return f"{what}, {own.median / first.median - 1:.1%} faster than {tile}"
    return f"fastest: {tile}, {own.median:.4g} ms; no other tile is surely faster"

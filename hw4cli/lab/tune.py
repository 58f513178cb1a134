"""The fastest kernel and tile for a workload: what cannot start is left out, with the reason; what can is checked, then
timed in turns; what is clearly slower drops out after a few samples."""

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from typing import Any

from hw4cli.device.gpu import Gpu
from hw4cli.device.kernelcheck import check
from hw4cli.device.ownkernel import kernel_named
from hw4cli.device.timing import GpuTimer
from hw4cli.device.tuning.store import Finding
from hw4cli.errors import Hw4Error, MachineError
from hw4cli.lab.bench import compile_side_by_side, kernel_implementation, named, prepare, take_samples
from hw4cli.lab.sampling import STANDARD, WARM_UP, Measurement
from hw4cli.lab.times import median_interval
from hw4cli.plans.plan import DeviceProperties, Tile, Variant
from hw4cli.plans.tensor import policy
from hw4cli.problem.workload import Workload

COLD = STANDARD.cold  # the L2 cache is overwritten before each sample
FIRST_SAMPLES = 5  # of every candidate
HOPELESS = 1.15  # whose fastest sample is slower than the best median by this factor is not timed further
AUTOMATIC = ("split", "split8", "exact", "flash")  # what `auto` chooses from: their bounds hold for every tile
# Tiles of the documents: of the course's best report; of a tutorial on Triton; of one on TileLang.
PRESETS = {
    "report": ((64, 64), (32, 32), (64, 32), (32, 64), (128, 32), (128, 64), (128, 16)),
    "triton": ((64, 64), (128, 64), (64, 128), (128, 128)),
    "tilelang": ((128, 128),),
}


class Tiled:
    """A kernel with a tile, and macros that have another value than would follow from it."""

    kernel: str
    tile: tuple[int, int]
    knobs: tuple[tuple[str, int], ...]

    @property
    def sizes(self) -> Tile:
        """The tile as macros."""
        return {"BR": self.tile[0], "BC": self.tile[1], **dict(self.knobs)}

    @property
    def name(self) -> str:
        """As a table has it: "flash 128x32 BLOCKS=4"."""
        return named(self.kernel, self.sizes)


@dataclass(frozen=True)
class Candidate(Tiled):
    """What could be taken; `own`: all is as the kernel takes it by itself."""

    kernel: str
    tile: tuple[int, int]
    own: bool
    knobs: tuple[tuple[str, int], ...] = ()

    def row(self, status: str, reason: str = "", **facts: Any) -> "TunedRow":
        """What became of it."""
        return TunedRow(self.kernel, self.tile, self.own, status, reason, **facts, knobs=self.knobs)


@dataclass(frozen=True)
class TunedRow(Tiled):
    """What became of a candidate. Times in milliseconds; low and high bound the median with 95 % confidence. `status`:
    "ok", "dropped" (timed, and clearly slower), "refused" (it cannot start, or is wrong; `reason`), "fits" (without a
    GPU: it could start)."""

    kernel: str
    tile: tuple[int, int]
    own: bool
    status: str
    reason: str = ""
    median: float | None = None
    low: float | None = None
    high: float | None = None
    samples: int = 0
    registers: int | None = None
    shared_bytes: int | None = None
    occupancy: float | None = None
    knobs: tuple[tuple[str, int], ...] = ()

    def record(self) -> dict[str, Any]:
        """As JSON and CSV have it."""
        knobs = " ".join(f"{name}={value}" for name, value in self.knobs)
        return {**asdict(self), "tile": f"{self.tile[0]}x{self.tile[1]}", "knobs": knobs}

    @classmethod
    def of(cls, record: Mapping[str, Any]) -> "TunedRow":
        """From what `record` made."""
        rows, keys = map(int, record["tile"].split("x"))
        knobs = (word.split("=") for word in record["knobs"].split())
        return cls(**{**record, "tile": (rows, keys), "knobs": tuple((name, int(value)) for name, value in knobs)})


def automatic(shape: Workload, props: DeviceProperties) -> list[str]:
    """What `auto` chooses from: AUTOMATIC, but split8 only where it is not the same as split."""
    apart = policy("split8", shape.N, shape.d, props).integers
    return [name for name in AUTOMATIC if apart or name != "split8"]


def candidates(
    variants: Sequence[Variant], shape: Workload, props: DeviceProperties, tiles: Sequence[tuple[int, int]] = ()
) -> Iterator[Candidate]:
    """Each kernel's own tile; then with other values of its knobs, and the tiles of its space; or given ones."""
    for variant in variants:
        if len(variants) > 1 and variant.name in {*AUTOMATIC} - {*automatic(shape, props)}:
            continue
        with suppress(MachineError):
            chosen = variant.tile(shape, props)
            own = chosen["BR"], chosen["BC"]
            yield Candidate(variant.name, own, own=True)
            if variant.space and not tiles:
                yield from _turned(variant, own, shape, props)
            yield from (Candidate(variant.name, tile, own=False) for tile in tiles or variant.space if tile != own)


def _turned(variant: Variant, tile: tuple[int, int], shape: Workload, props: DeviceProperties) -> Iterator[Candidate]:
    """A tile with each other value of each knob."""
    with suppress(Hw4Error, ArithmeticError, StopIteration):
        follows = variant.plan(shape, props, {"BR": tile[0], "BC": tile[1]}).macros
        for name, values in variant.knobs(follows).items():
            for value in values:
                if value != follows[name]:
                    yield Candidate(variant.name, tile, own=False, knobs=((name, value),))


def filtered(
    variants: Sequence[Variant], chosen: Sequence[Candidate], shape: Workload, props: DeviceProperties, compiler: Any
) -> list[TunedRow]:
    """Without a GPU: which candidates could start there, and why the others could not."""
    by_name = {variant.name: variant for variant in variants}
    rows = []
    for one in chosen:
        variant = replace(by_name[one.kernel], tile=_always(one.sizes))
        launches = list(check(variant, props, shape, compiler))
        problem = next((launch.problem for launch in launches if launch.problem), "")
        main = next((x for x in launches if x.symbol == (variant.main_symbol or variant.name)), launches[0])
        facts = {key: getattr(main, key) for key in ("registers", "shared_bytes", "occupancy")}
        status, reason = ("refused", without_source(problem)) if problem else ("fits", "")
        rows.append(one.row(status, reason, **facts))
    return rows


def _always(tile: Tile) -> Callable[[Workload, DeviceProperties], Tile]:
    return lambda shape, props: tile


def without_source(reason: str) -> str:
    """A compiler's message without the line of source: a reason, and where it is stated."""
    return reason.partition(": `")[0]


def startable(gpu: Gpu, chosen: Sequence[Candidate], shape: Workload) -> tuple[list[Candidate], list[TunedRow]]:
    """The candidates that the GPU can start, compiled side by side; and the others, with the reason."""
    plans, refused = {}, []
    for one in chosen:
        try:
            plans[one] = kernel_named(one.kernel).plan(shape, gpu.props, one.sizes)
        except (Hw4Error, ArithmeticError, StopIteration) as error:
            refused.append(one.row("refused", _short(error, one)))
    compile_side_by_side(gpu, plans.values())
    fitting = []
    for one, plan in plans.items():
        try:
            gpu.functions(plan)
            fitting.append(one)
        except Hw4Error as error:
            refused.append(one.row("refused", _short(error, one)))
    return fitting, refused


def _short(error: Exception, one: Candidate) -> str:
    """A reason, without what the row says anyway."""
    words = str(error) or "no such tile"
    words = without_source(words)
    return re.sub(r" for (compute capability [\d.]+|gfx\w+):", ":", words.removeprefix(f"kernel {one.kernel} "))


def tune(
    timer: GpuTimer,
    chosen: Sequence[Candidate],
    case: tuple[str, Workload, int],
    quick: bool = False,
    notify: Callable[[Measurement], None] = lambda _: None,
) -> list[TunedRow]:
    """Check and time the candidates on a case (name, shape, seed), the fastest first, those that were refused last.
    `quick`: the first samples are all.

    Raises MachineError if the case does not fit the GPU.
    """
    fitting, refused = startable(timer.gpu, chosen, case[1])
    implementations = [kernel_implementation(timer.gpu, timer, one.kernel, one.sizes) for one in fitting]
    prepared = prepare(timer.gpu, implementations, case)
    everyone, by_name = list(prepared.measurements), {one.name: one for one in fitting}
    for turn in range(WARM_UP + FIRST_SAMPLES):
        for one in everyone:
            sample = timer.sample(lambda one=one: one.work(prepared.inputs, prepared.outputs), COLD)  # type: ignore[misc]
            if turn >= WARM_UP:
                one.samples.append(sample)
                notify(one)
    best = min((median_interval(one.times)[0] for one in everyone), default=0.0)
    prepared.measurements = [one for one in everyone if min(one.times) <= HOPELESS * best or by_name[one.name].own]
    if not quick:
        take_samples(timer, prepared, notify=notify)
    kept = {id(one) for one in prepared.measurements}
    rows = [_row(by_name[one.name], one, "ok" if id(one) in kept else "dropped") for one in everyone]
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

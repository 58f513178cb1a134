"""The fastest tiling of a kernel of 16-bit arrays for a workload: what cannot start is left out, with the reason; what
can is checked, then timed in turns; what is clearly slower drops out after a few samples."""

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import product
from typing import Any, NamedTuple

from hw4cli.device.kernelcheck import compiled
from hw4cli.device.occupancy import occupancy
from hw4cli.device.timing import GpuTimer
from hw4cli.errors import Hw4Error, MachineError
from hw4cli.lab.arrays.measure import ArrayResult, measure
from hw4cli.lab.arrays.named import NamedWorkload
from hw4cli.lab.arrays.ours import Implementation, check_type, implementation
from hw4cli.lab.bench import compile_side_by_side
from hw4cli.lab.sampling import STANDARD, Measurement, Sampling
from hw4cli.lab.tune import FIRST_SAMPLES, HOPELESS, TunedRow, without_source
from hw4cli.plans import half, halfmma
from hw4cli.plans.kernels16 import half_tiling, plan16
from hw4cli.plans.plan import DeviceProperties, Plan
from hw4cli.problem.cpu import workers
from hw4cli.problem.workload import Workload

# Of each kernel: groups that multiply, keys, stages, and whether tensor cores sum P; or warps, fragments of each, keys,
# keys that are weighed together, and blocks of a multiprocessor.
SPACES: dict[str, tuple[Any, ...]] = {
    half.NAME: tuple(half.Tiling(*one) for one in product((2, 3, 4), (64, 80, 128), (2, 3, 4), (False, True))),
    halfmma.MMA: tuple(
        halfmma.MmaTiling(warps, fragments, keys, sub, q_registers=True, blocks=blocks)
        for warps, fragments, keys, sub, blocks in product((4, 8), (1, 2), (64, 128), (32, 64), (1, 2))
    ),
}


class Candidate(NamedTuple):
    """A kernel with a tiling; `own`: the one that it takes by itself."""

    kernel: str
    tiling: Any
    own: bool

    def row(self, status: str, reason: str = "", **facts: Any) -> TunedRow:
        """What became of it."""
        knobs = tuple(
            (name, int(value))
            for name, value in self.tiling._asdict().items()
            if name != "keys" and not (name in ("ahead", "turns") and value)
        )
        tile = self.tiling.rows, self.tiling.keys
        return TunedRow(self.kernel, tile, self.own, status, reason, **facts, knobs=knobs)


def candidates(kernel: str, work: Workload, props: DeviceProperties, quick: bool = False) -> Iterator[Candidate]:
    """The kernel's own tiling, the same in half's other schedules, then, unless `quick`, those of its space.

    Raises MachineError for another element type.
    """
    check_type(kernel, work)
    own = (half_tiling if kernel == half.NAME else halfmma.mma_tiling)(work, props)
    for tiling in dict.fromkeys((own, *other_schedules(own), *(() if quick else SPACES[kernel]))):
        if isinstance(tiling, half.Tiling) and tiling.ones and not 32 < work.d <= 64:  # 64 columns: kernels/half.cuh
            continue
        yield Candidate(kernel, tiling, tiling == own)


def other_schedules(own: Any) -> tuple[Any, ...]:
    """half's tiling without turns, and without scores ahead."""
    if not isinstance(own, half.Tiling):
        return ()
    return own._replace(turns=False), own._replace(ahead=False, turns=False)


def planned(
    chosen: Sequence[Candidate], work: Workload, props: DeviceProperties
) -> tuple[dict[Candidate, Plan], list[TunedRow]]:
    """The plans of the candidates that fit a GPU's shared memory; and the others, with the reason."""
    plans, refused = {}, []
    for one in chosen:
        try:
            plan = plan16(work, props, one.kernel, one.tiling)
            needed = max(launch.shared for launch in plan.launches)
            if needed > props.shared_limit:
                raise MachineError(f"needs {needed:,} bytes of shared memory a block, there are {props.shared_limit:,}")
            plans[one] = plan
        except (MachineError, LookupError) as error:
            reason = str(error).removeprefix(f"kernel {one.kernel} ")
            refused.append(one.row("refused", reason if isinstance(error, MachineError) else "no such tiling"))
    return plans, refused


def filtered(
    kernel: str, work: Workload, props: DeviceProperties, compiler: Any, quick: bool = False
) -> list[TunedRow]:
    """Without a GPU: which tilings could start there, and why the others could not. `quick` as in tune."""
    plans, refused = planned([*candidates(kernel, work, props, quick)], work, props)
    with ThreadPoolExecutor(workers()) as pool:
        built = list(pool.map(lambda plan: compiled(plan.variant, plan, props, compiler), plans.values()))
    rows = []
    for (one, plan), made in zip(plans.items(), built, strict=True):
        launch = plan.launches[plan.main]
        if made.wrong:
            refused.append(one.row("refused", without_source(made.wrong)))
            continue
        used = made.used.get(launch.symbol)
        share = occupancy(props, used.registers, launch.shared, launch.block).share if used else None
        registers = used.registers if used else None
        rows.append(one.row("fits", registers=registers, shared_bytes=launch.shared, occupancy=share))
    return [*rows, *refused]


def tune(
    timer: GpuTimer,
    kernel: str,
    case: NamedWorkload,
    quick: bool = False,
    notify: Callable[[Measurement], None] = lambda _: None,
) -> list[TunedRow]:
    """Check and time a kernel's tilings on a workload, the fastest first, those that were refused last.

    `quick`: its own in every schedule, and the first samples are all. Raises MachineError where the kernel does not
    compute the workload.
    """
    gpu, work = timer.gpu, case.work
    plans, refused = planned([*candidates(kernel, work, gpu.props, quick)], work, gpu.props)
    compile_side_by_side(gpu, plans.values())
    found: dict[Candidate, Implementation] = {}
    for one, plan in plans.items():
        try:
            gpu.functions(plan)
            found[one] = implementation(gpu, timer, kernel, one.tiling, one.row("").name)
        except Hw4Error as error:
            refused.append(one.row("refused", without_source(str(error).partition(": ")[2])))

    def timed(some: Sequence[Candidate], sampling: Sampling) -> dict[Candidate, ArrayResult]:
        rows = measure(timer, [found[one] for one in some], case, sampling, notify)
        return dict(zip(some, rows, strict=True))

    first = timed([*found], Sampling(FIRST_SAMPLES))
    right = [one for one, row in first.items() if row.median]
    best = min((first[one].median or 0.0 for one in right), default=0.0)
    going_on = [one for one in right if one.own or (first[one].fastest or 0.0) <= HOPELESS * best]
    last = first | (timed(going_on, STANDARD) if going_on and not quick else {})
    rows = [_row(one, last[one], "ok" if one in going_on else "dropped") for one in right]
    rows.sort(key=lambda row: row.median or 0.0)
    refused += [one.row("refused", row.reason) for one, row in first.items() if not row.median]
    return [*rows, *refused]


def _row(one: Candidate, row: ArrayResult, status: str) -> TunedRow:
    names = ("median", "low", "high", "samples", "registers", "shared_bytes", "occupancy")
    return one.row(status, **{name: getattr(row, name) for name in names})

"""A kernel checked on the CPU: small shapes with tails, data that shows mistakes, every build and order of threads."""

import math
import re
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, replace
from itertools import product
from pathlib import Path

import numpy as np

from hw4cli.emulator.build import ASAN, RACE, check_kernels, checking_builds, shared_object
from hw4cli.emulator.library import FORWARDS, RANDOM, REVERSE, Outcome, Schedule
from hw4cli.emulator.worker import Job, run_jobs
from hw4cli.plans.bounds import SAFE, bound, has_bound
from hw4cli.plans.plan import DEVICES, DeviceProperties, Tile, Variant
from hw4cli.problem.casefile import FLOAT32, Floats, magnitudes_of
from hw4cli.problem.cpu import workers
from hw4cli.problem.oracle import exact_attention
from hw4cli.problem.workload import Workload
from hw4cli.resources import is_own_kernel, kernel_path
from hw4cli.system.children import Children

# Tails of rows and keys, one key, an odd number of batches and rows, d below a power of two.
SHAPES = (
    Workload.one_head(1, 1, 32),
    Workload.one_head(1, 131, 64),
    Workload.one_head(3, 65, 36),
    Workload.one_head(1, 67, 128),
)
# Sequences that some kernels compute in another way: the keys in parts, of the first an odd number, or another tile.
# Other kernels are spared the time.
LONG = (Workload.one_head(1, 777, 32), Workload.one_head(1, 531, 64))
# Causal attention: tiles that the diagonal crosses, tails, batches; and the keys in parts, some without keys for a row.
CAUSAL = (Workload.one_head(3, 67, 36, causal=True), Workload.one_head(1, 131, 64, causal=True))
CAUSAL_LONG = tuple(replace(shape, causal=True) for shape in LONG)
ALL_FULL, ALL_CAUSAL = (*SHAPES, *LONG), (*CAUSAL, *CAUSAL_LONG)
RANDOM_DATA, EQUAL, RISING, HUGE = "random", "Q = 0, V = 3", "rising scores", "huge scores"
DATA = (RANDOM_DATA, EQUAL, RISING, HUGE)
DATA_OF_LONG = (RANDOM_DATA, EQUAL)
SCHEDULES = (FORWARDS, Schedule(REVERSE), Schedule(RANDOM, 1))
# The causes before their effects.
KINDS = ("race", "divergence", "out of bounds", "misaligned", "input written", "uninitialised")
OUTSIDE = 0.01  # of the largest |V|, by which O may leave the values of V where there is no bound


@dataclass(frozen=True)
class Mistake:
    """Something wrong with a kernel: what kind of thing, in a sentence, and the runs that show it first."""

    kernel: str
    kind: str
    sentence: str
    shape: Workload
    data: str
    build: str
    lanes: int

    def record(self) -> dict[str, object]:
        """The same as words and numbers."""
        sizes = [self.shape.B, self.shape.N, self.shape.d]
        return {**asdict(self), "shape": sizes, "causal": self.shape.causal}

    def __str__(self) -> str:
        width = "" if self.lanes == 32 else f", warps of {self.lanes}"
        return f"{self.kernel} on {self.shape}, {self.data}{width}: {self.kind}: {self.sentence}"


def make_data(kind: str, shape: Workload) -> Floats:
    """Inputs (B, 3, N, d) of a kind in DATA.

    With Q = 0 and V = 3 every weight is the same and the answer is 3, unless a key is left out or counted that is not
    there. Rising scores move the running maximum at every tile. Huge ones do not fit exp without it.
    """
    B, N, d = shape.B, shape.N, shape.d
    rng = np.random.default_rng(1)
    reach = 40.0 if kind == HUGE else 3.0
    block = rng.uniform(-reach, reach, (B, 3, N, d)).astype(FLOAT32)
    if kind == EQUAL:
        block[:, 0], block[:, 2] = 0, 3
    if kind == RISING:
        block[:, 0] = 3
        block[:, 1] = 3 * np.linspace(-1, 1, N, dtype=FLOAT32)[:, None]
    return block


def check_kernel(
    variant: Variant,
    source: Path | None = None,
    *,
    props: DeviceProperties = DEVICES[80],
    shape: Workload | None = None,
    shapes: Iterable[Workload] = ALL_FULL,
    data: Sequence[str] = DATA,
    builds: Sequence[str] = (),
    lanes: Sequence[int] = (32,),
    tile: Tile | None = None,
    seconds: float = 60.0,
) -> list[Mistake]:
    """What is wrong with a kernel, each mistake once, causes first; `source` is a file in place of the variant's own.

    It is compiled and run on each shape (`shape`: on this one alone) and kind of data, by all builds that look for
    mistakes or those of `builds`. Raises InputError if it does not compile, MachineError if there is no C++ compiler,
    or the props cannot start such a launch.
    """
    source = source or kernel_path(variant.name)
    planned = [
        (each, variant.plan(each, props, tile))
        for each in ([shape] if shape else shapes)
        if shape or not _is_long(each) or _differs(variant, each, props, tile)
    ]
    children = Children()
    with ThreadPoolExecutor(workers()) as pool:

        def compiled(macros: Mapping[str, int], width: int, build: str) -> Path:
            return shared_object(source, macros, props.cc, width, build, children.run)

        def run(build: str, width: int) -> list[tuple[Workload, str, Job, Outcome]]:
            objects = {plan.options: plan.macros for _, plan in planned}
            made = pool.map(lambda macros: compiled(macros, width, build), objects.values())
            paths = dict(zip(objects, made, strict=True))
            for _, plan in planned if is_own_kernel(variant.name) else ():
                symbols = [launch.symbol for launch in plan.launches]
                check_kernels(variant.name, source, paths[plan.options], symbols)
            runs = [
                (each, kind, Job(paths[plan.options], plan, block, width, schedule))
                for each, plan in planned
                for kind, block, schedule in _runs(each, data, build)
            ]
            outcomes = run_jobs([job for _, _, job in runs], build, seconds, children.run)
            return [(*one, outcome) for one, outcome in zip(runs, outcomes, strict=True)]

        ways = list(product(builds or checking_builds(), lanes))
        with ThreadPoolExecutor(workers()) as runners, children:
            done = list(runners.map(run, *zip(*ways, strict=True)))
    found: dict[tuple[str, ...], Mistake] = {}  # by what makes it the same: its kind and the lines it names
    for (build, width), runs in zip(ways, done, strict=True):
        for each, kind, what, sentence in _problems(variant, runs, props):
            mistake = Mistake(variant.name, what, sentence, each, kind, build, width)
            lines = re.findall(r"[\w.-]+:\d+", sentence)
            found.setdefault((what, *lines), mistake)
    return sorted(found.values(), key=lambda mistake: (*KINDS, mistake.kind).index(mistake.kind))


def _is_long(shape: Workload) -> bool:
    return shape in (*LONG, *CAUSAL_LONG)


def _differs(variant: Variant, shape: Workload, props: DeviceProperties, tile: Tile | None) -> bool:
    """Whether a kernel computes a long sequence in another way than a short one."""
    short, long = (variant.plan(replace(shape, Nq=N, Nk=N), props, tile) for N in (1, shape.N))
    return (short.options, short.splits) != (long.options, long.splits)


def _problems(
    variant: Variant, runs: Sequence[tuple[Workload, str, Job, Outcome]], props: DeviceProperties
) -> Iterable[tuple[Workload, str, str, str]]:
    """What was found in the runs of one build: shape, data, the mistake's kind and a sentence."""
    first: dict[tuple[Workload, str], Outcome] = {}
    for shape, kind, job, outcome in runs:
        usual = first.setdefault((shape, kind), outcome)
        for finding in outcome.findings:
            yield shape, kind, finding.kind, finding.sentence
        if outcome.finished:
            for sentence in _wrong(variant, kind, shape, job.inputs, outcome.o, props):
                yield shape, kind, "wrong answer", sentence
            if usual.finished and not np.array_equal(usual.o, outcome.o, equal_nan=True):
                yield shape, kind, "order", "the answer depends on the order in which threads take their turns"


def _runs(shape: Workload, data: Sequence[str], build: str) -> Iterable[tuple[str, Floats, Schedule]]:
    """All kinds of data in one order; the first kind, where races are looked for, in the others, too.

    What AddressSanitizer looks for depends on the data only where huge scores lead another way.
    """
    for kind in data:
        if (_is_long(shape) and kind not in DATA_OF_LONG) or (build == ASAN and kind not in (data[0], HUGE)):
            continue
        block = make_data(kind, shape)
        yield kind, block, SCHEDULES[0]
        if build == RACE and kind == data[0] and not _is_long(shape):
            yield from ((kind, block, schedule) for schedule in SCHEDULES[1:])


def _wrong(
    variant: Variant, kind: str, shape: Workload, inputs: Floats, o: Floats, props: DeviceProperties
) -> list[str]:
    """What is wrong with an answer, in a sentence, or nothing."""
    if has_bound(variant.name):
        allowed = bound(variant.name, magnitudes_of(inputs), shape.d, shape.N, props)
        if kind == RANDOM_DATA:
            allowed = min(allowed, variant.error_bound)
    else:  # a kernel of the user's own
        allowed = math.inf if kind == HUGE else SAFE
    exact = exact_attention(inputs, causal=shape.causal)
    error = np.abs(o - exact)
    wrong = ~(error <= allowed)
    v = inputs[:, 2]
    slack = OUTSIDE * np.abs(v).max()
    wrong |= ~((o >= v.min(axis=1, keepdims=True) - slack) & (o <= v.max(axis=1, keepdims=True) + slack))
    if not wrong.any():
        return []
    index = int(np.argmax(np.where(wrong, np.nan_to_num(error, nan=math.inf), -1)))
    got, right = o.reshape(-1)[index], exact.reshape(-1)[index]
    why = (
        f"the exact answer is {right:.6g}, and {allowed:.1e} is allowed"
        if not math.isnan(got)
        else (f"it should be {right:.6g}: nothing was written there, or it comes from what nobody has written")
    )
    return [f"{int(wrong.sum())} of {o.size} elements are wrong: {shape.place(index)} is {got:.6g}, {why}"]

"""A kernel checked on the CPU: small shapes with tails, data that shows mistakes, every build and order of threads."""

import math
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from functools import partial
from itertools import product
from pathlib import Path

import numpy as np

from hw4cli.emulator.build import ASAN, RACE, check_kernels, checking_builds, shared_object
from hw4cli.emulator.far import LARGEST_MEMORY, MULTIPROCESSORS, bytes_of, few_rows
from hw4cli.emulator.library import FORWARDS, RANDOM, REVERSE, Outcome, Schedule
from hw4cli.emulator.story import story_of
from hw4cli.emulator.worker import Job, run_jobs
from hw4cli.errors import MachineError
from hw4cli.plans.bounds import SAFE, bound, has_bound
from hw4cli.plans.formulas import ceil_div
from hw4cli.plans.launch import magnitudes
from hw4cli.plans.plan import DEVICES, DeviceProperties, Plan, Tile, Variant
from hw4cli.problem.casefile import FLOAT32, Floats, magnitudes_of
from hw4cli.problem.cpu import workers
from hw4cli.problem.oracle import exact_attention
from hw4cli.problem.workload import Workload
from hw4cli.resources import is_own_kernel, kernel_path
from hw4cli.system.children import Children
from hw4cli.text.progress import Progress


def some_rows(B: int, N: int, d: int, first: int, count: int, causal: bool = False) -> Workload:
    """So many rows from the `first` on, against all N keys; causal: row i of them sees the keys up to first + i."""
    return replace(Workload.one_head(B, N, d, causal, count), offset=first)


# Tails of rows and keys, one key, an odd number of batches and rows, d below a power of two.
TAILS = (
    Workload.one_head(1, 1, 32),
    Workload.one_head(1, 131, 64),
    Workload.one_head(3, 65, 36),
    Workload.one_head(1, 67, 128),
)
# Whole tiles, without a tail; some rows of more keys; batches far apart.
WHOLE = (Workload.one_head(2, 128, 32), Workload.one_head(1, 256, 64))
SOME, FAR = (some_rows(1, 200, 64, 65, 70),), (Workload.one_head(2, 33, 36),)
SHAPES = (*TAILS, *WHOLE, *SOME, *FAR)
# Sequences that some kernels compute in another way: the keys in parts, of the first an odd number, of
# the second for two batches; or another tile. Other kernels are spared the time.
LONG = (Workload.one_head(1, 777, 32), Workload.one_head(2, 531, 64), Workload.one_head(1, 290, 128))
# Some rows against so many keys that sums are promoted twice, after 1024 keys each or after 4096; for kernels that do.
PROMOTED = (some_rows(1, 2200, 64, 2100, 64), some_rows(1, 8300, 64, 100, 64))
# More than 2^31 elements of an array, by many batches and by many rows; more than 2^31 rows, for which no GPU has room.
HUGE_SHAPES = (
    Workload.one_head(2**33 // (67 * 128), 67, 128),
    Workload.one_head(1, 70, 32, Nq=2**32 // 32 + 67),
    Workload.one_head(2**32 // 67, 67, 36),
)
# For a GPU of so few multiprocessors that blocks share their last tasks, or convert what others attend to: where blocks
# stay for task after task.
FEW = ((Workload.one_head(1, 640, 64), 3), (Workload.one_head(1, 530, 20), 2), (Workload.one_head(8, 530, 20), 2))
# Causal attention: tiles that the diagonal crosses, tails, batches; and the keys in parts, some without keys for a row.
CAUSAL = (
    Workload.one_head(3, 67, 36, causal=True),
    Workload.one_head(1, 131, 64, causal=True),
    Workload.one_head(1, 128, 32, causal=True),
)
CAUSAL_SOME = (some_rows(1, 200, 64, 65, 70, causal=True),)
CAUSAL_LONG = tuple(replace(shape, causal=True) for shape in LONG)
# Windows, for kernels that compute them: tails, one key alone, tiles of which some rows see no key and others do; and
# more keys than blocks convert themselves.
WINDOWS = (
    replace(Workload.one_head(2, 131, 64, causal=True), window=40),
    replace(Workload.one_head(1, 290, 36, causal=True), window=1),
    replace(some_rows(1, 200, 64, 65, 70, causal=True), window=90),
    replace(some_rows(1, 700, 64, 440, 120, causal=True), window=75),
)
ALL_FULL = (*SHAPES, *LONG, *PROMOTED, *HUGE_SHAPES)
ALL_CAUSAL = (*CAUSAL, *CAUSAL_SOME, *CAUSAL_LONG, *WINDOWS)
RANDOM_DATA, EQUAL, RISING, HUGE = "random", "Q = 0, V = 3", "rising scores", "huge scores"
BELOW, UNEVEN = "scores far below 0", "rows of other scales"
DATA = (RANDOM_DATA, EQUAL, RISING, HUGE)
# The kinds of data that are enough on some shapes.
FEWER = {
    **dict.fromkeys((*LONG, *CAUSAL_LONG, *WHOLE, *PROMOTED), (RANDOM_DATA, EQUAL)),
    **dict.fromkeys((*LONG[:1], *CAUSAL_LONG[:1]), (RANDOM_DATA, EQUAL, HUGE)),  # maxima of the parts far apart
    **dict.fromkeys((*SOME, *CAUSAL_SOME), (RANDOM_DATA, BELOW, UNEVEN)),
    **dict.fromkeys(WINDOWS, (RANDOM_DATA, RISING, BELOW)),
    **dict.fromkeys((*FAR, *HUGE_SHAPES), (RANDOM_DATA,)),
}
FAR_BELOW = 300.0  # what BELOW takes from every score
SCHEDULES = (FORWARDS, Schedule(REVERSE), Schedule(RANDOM, 1))
# What a kernel notes of Q, K and V.
MAXIMA = ("the largest |Q|", "the largest |K|", "the largest |V|", "the longest row of Q", "the longest row of K")
NORMS = slice(3, 5)  # of them
LARGEST_HALF = 65504.0  # of fp16
# The causes before their effects.
KINDS = ("race", "divergence", "out of bounds", "misaligned", "input written", "uninitialised")
OUTSIDE = 0.01  # of the largest |V|, by which O may leave the values of V where there is no bound
# Seconds of processor time in which a run must end, whatever it does, and operations that a slow machine does in one.
LEAST_SECONDS, SLOW_RATE = 60.0, 2e6


AT_ONCE = 8  # executions that one process replays
# A story's lines, or what finds them, given the build and the seconds that it may take.
Story = tuple[str, ...] | Callable[[str, float], tuple[str, ...]]


@dataclass(frozen=True)
class Mistake:
    """Something wrong with a kernel: what kind of thing, in a sentence, and the runs that show it first. `story`: where
    the order of turns matters, what happens one after the other."""

    kernel: str
    kind: str
    sentence: str
    shape: Workload
    data: str
    build: str
    lanes: int
    story: tuple[str, ...] = ()

    def record(self) -> dict[str, object]:
        """The same as words and numbers."""
        sizes = [self.shape.B, self.shape.N, self.shape.d]
        return {**asdict(self), "shape": sizes, "causal": self.shape.causal}

    def __str__(self) -> str:
        width = "" if self.lanes == 32 else f", warps of {self.lanes}"
        return f"{self.kernel} on {described(self.shape)}, {self.data}{width}: {self.kind}: {self.sentence}"


def described(shape: Workload) -> str:
    """A shape, and what is special about it."""
    rows = f", rows {shape.offset} to {shape.offset + shape.Nq - 1}" if shape.Nq != shape.N else ""
    return f"{shape}{rows}{', batches more than 2^31 elements apart' if shape in FAR else ''}"


def make_data(kind: str, shape: Workload) -> Floats:
    """Inputs (B, 3, N, d) of a kind of data.

    With Q = 0 and V = 3 every weight is the same and the answer is 3, unless a key is left out or counted that is not
    there. Rising scores move the running maximum at every tile. Huge ones do not fit exp without it. BELOW: exp of
    every score is 0, and no V is near 0. UNEVEN: each row has a scale of its own, and elements are as far from fp16
    numbers as they can be, in the direction that makes every score larger.
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
    if kind == BELOW:
        far = math.sqrt(FAR_BELOW * math.sqrt(d))
        block[:, 0, :, 0], block[:, 1, :, 0], block[:, 2] = far, -far, 2 + block[:, 2] / 3
    if kind == UNEVEN:
        block[:, :2] *= np.exp2(-rng.integers(0, 4, (B, 2, N, 1))).astype(FLOAT32)
        near = block[:, :2].astype(np.float16).astype(FLOAT32)
        block[:, :2] = near * np.float32(1 + 0.49 * 2.0**-10 / 1.5)
    return block


@dataclass(frozen=True, eq=False)
class Trial:
    """A shape on a GPU, with its plan: the kinds of data, and whether it is run in every order and by every build."""

    shape: Workload
    props: DeviceProperties
    plan: Plan
    data: tuple[str, ...]
    thorough: bool

    def jobs(
        self, path: Path, width: int, build: str, orders: Sequence[Schedule] = SCHEDULES
    ) -> Iterable[tuple[str, Job]]:
        """All kinds of data in the first of the orders; the first kind, where races are looked for, in the others, too.

        What AddressSanitizer looks for depends on the data only where huge scores lead another way.
        """
        if self.shape in HUGE_SHAPES:
            if build == RACE:
                nothing = np.zeros((1, 3, 1, self.plan.d), FLOAT32)
                yield self.data[0], Job(path, self.plan, nothing, width, seconds=LEAST_SECONDS, huge=self.shape)
            return
        shape, rows = self.shape, (self.shape.offset, self.shape.Nq) if self.shape.Nq != self.shape.N else None
        for kind in self.data:
            if build == ASAN and kind not in (self.data[0], HUGE):
                continue
            block, far = make_data(kind, shape), shape in FAR
            every = build == RACE and self.thorough and kind == self.data[0]
            pairs = shape.B * shape.Nq * shape.N
            seconds = LEAST_SECONDS + 4 * pairs * shape.d / SLOW_RATE
            for schedule in orders if every else orders[:1]:
                yield kind, Job(path, self.plan, block, width, schedule, rows, far, seconds, window=shape.window)


def trials_of(
    variant: Variant,
    props: DeviceProperties = DEVICES[80],
    shapes: Iterable[Workload] = ALL_FULL,
    data: Sequence[str] = DATA,
    tile: Tile | None = None,
) -> list[Trial]:
    """The shapes that are other ways for this kernel, each with the kinds of data that are enough there.

    With the long shapes come those for few multiprocessors. Other shapes are all taken, with all data."""
    shapes, found = [*shapes], []
    one = replace(props, sms=1)  # which has no use for keys in parts, that would be too short for a promotion
    for shape in shapes:
        if shape.window and not variant.windows:
            continue
        if shape in HUGE_SHAPES:
            found += _huge(variant, props, shape, tile)
            continue
        on = one if shape in PROMOTED else props
        plan, long = variant.plan(shape, on, tile), shape in (*LONG, *CAUSAL_LONG)
        promotion = plan.macros.get("PROMOTION", 0)
        if long and not _differs(variant, shape, props, tile):
            continue
        if shape in PROMOTED and not 2 * promotion < shape.N <= 3 * promotion:
            continue
        if long:
            plan = _with_few_converters(plan)
        brief = long or shape in (*WHOLE, *PROMOTED, *FAR)
        kinds = FEWER.get(shape, tuple(data)) if tuple(data) == DATA else tuple(data)
        found.append(Trial(shape, on, plan, kinds, thorough=not brief))
    if set(LONG) <= set(shapes):
        for shape, sms in FEW:
            few = replace(props, sms=sms)
            plan = variant.plan(shape, few, tile)
            if plan.macros.get("MOST_BLOCKS"):
                found.append(Trial(shape, few, plan, tuple(data)[:1], thorough=False))
    return found


def _huge(variant: Variant, props: DeviceProperties, shape: Workload, tile: Tile | None) -> list[Trial]:
    """A shape that is there for its indices, if a few blocks of the kernel's grid show them; of a kernel of the user's
    own, if a GPU has the memory."""
    many = replace(props, sms=MULTIPROCESSORS)
    if is_own_kernel(variant.name) and bytes_of(shape) > LARGEST_MEMORY:
        return []
    with suppress(MachineError):  # it has too many blocks
        plan = variant.plan(shape, many, tile)
        if few_rows(plan.launches, shape.Nq):
            return [Trial(shape, many, plan, (RANDOM_DATA,), thorough=False)]
    return []


def _with_few_converters(plan: Plan) -> Plan:
    """A plan whose launch that converts has as few blocks as for large inputs, so that each thread takes several
    pieces: where all are few, each has one."""
    most = plan.macros.get("CONVERT_CHUNKS", 1)
    few = (x._replace(grid=ceil_div(x.grid, most)) if x.symbol.endswith("_convert") else x for x in plan.launches)
    return replace(plan, launches=tuple(few))


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
    orders: Sequence[Schedule] = SCHEDULES,
    tile: Tile | None = None,
    seconds: float | None = None,
    story: float = 0.0,
    progress: Progress | None = None,
) -> list[Mistake]:
    """What is wrong with a kernel, each mistake once, causes first; `source` is a file in place of the plans' own.

    It is compiled and run on each shape (`shape`: on this one alone) and kind of data, by all builds that look for
    mistakes or those of `builds`, its threads taking turns in these `orders` (Trial.jobs). A run may take `seconds` of
    processor time, or so many as its work needs on a slow machine; `progress` counts the runs. `story`: so many seconds
    are spent on the fewest switches between threads that change an answer. Raises InputError if it does not compile,
    MachineError if there is no C++ compiler, or the props cannot start such a launch.
    """
    trials = trials_of(variant, props, [shape] if shape else shapes, data, tile)
    children = Children()
    with ThreadPoolExecutor(workers()) as pool:

        def compiled(plan: Plan, width: int, build: str) -> Path:
            file = source or kernel_path(plan.source)
            return shared_object(file, plan.defines, props.cc, width, build, children.run)

        def run(build: str, width: int) -> list[tuple[Trial, str, Job, Outcome]]:
            wanted = [trial for trial in trials if build != ASAN or trial.shape not in (*FAR, *HUGE_SHAPES)]
            objects = {trial.plan.options: trial.plan for trial in wanted}
            made = pool.map(lambda plan: compiled(plan, width, build), objects.values())
            paths = dict(zip(objects, made, strict=True))
            for trial in wanted if is_own_kernel(variant.name) else ():
                plan, symbols = trial.plan, [launch.symbol for launch in trial.plan.launches]
                check_kernels(variant.name, source or kernel_path(plan.source), paths[plan.options], symbols)
            runs = [
                (trial, kind, replace(job, seconds=seconds or job.seconds))
                for trial in wanted
                for kind, job in trial.jobs(paths[trial.plan.options], width, build, orders)
            ]
            if progress:
                progress.grow(len(runs))
            advance = progress.add if progress else None
            outcomes = run_jobs([job for _, _, job in runs], build, children.run, advance, until_a_hang=True)
            return [(*one, outcome) for one, outcome in zip(runs, outcomes, strict=True)]

        ways = list(product(builds or checking_builds(), lanes))
        with ThreadPoolExecutor(workers()) as runners, children:
            done = list(runners.map(run, *zip(*ways, strict=True)))
    found: dict[tuple[str, ...], Mistake] = {}  # by what makes it the same: its kind and the lines it names
    for (build, width), runs in zip(ways, done, strict=True):
        for each, kind, what, sentence, lines_of_story in _problems(variant, runs):
            lines = re.findall(r"[\w.-]+:\d+", sentence)
            if (what, *lines) in found:
                continue
            lines_found = lines_of_story if not callable(lines_of_story) else lines_of_story(build, story)
            found[(what, *lines)] = Mistake(variant.name, what, sentence, each, kind, build, width, lines_found)
    return sorted(found.values(), key=lambda mistake: (*KINDS, mistake.kind).index(mistake.kind))


def _differs(variant: Variant, shape: Workload, props: DeviceProperties, tile: Tile | None) -> bool:
    """Whether a kernel computes a long sequence in another way than a short one."""
    short, long = (variant.plan(replace(shape, Nq=N, Nk=N), props, tile) for N in (1, shape.N))
    return (short.options, short.splits) != (long.options, long.splits)


def _problems(
    variant: Variant, runs: Sequence[tuple[Trial, str, Job, Outcome]]
) -> Iterable[tuple[Workload, str, str, str, Story]]:
    """What was found in the runs of one build: shape, data, the mistake's kind, a sentence and a story."""
    first: dict[tuple[Trial, str], Outcome] = {}
    for trial, kind, job, outcome in runs:
        usual = first.setdefault((trial, kind), outcome)
        for finding in outcome.findings:
            yield trial.shape, kind, finding.kind, finding.sentence, finding.story
        if not outcome.finished:
            continue
        same = usual.finished and np.array_equal(usual.o, outcome.o, equal_nan=True)
        if outcome is usual or not same:  # else it is judged already
            for sentence in _wrong(variant, kind, trial.shape, job, outcome.o, trial.props):
                yield trial.shape, kind, "wrong answer", sentence, ()
        for sentence in _wrong_maxima(trial.shape, job, outcome):
            yield trial.shape, kind, "wrong maxima", sentence, ()
        if usual.finished and not same:
            sentence = "the answer depends on the order in which threads take their turns"
            yield trial.shape, kind, "order", sentence, partial(_story_of_order, job, usual)


def _story_of_order(job: Job, usual: Outcome, build: str, seconds: float) -> tuple[str, ...]:
    """What the answer of a job depends on that has another one in its order of turns than in the usual one."""
    if seconds <= 0:
        return ()

    def replayed(attempts: Sequence[Sequence[str]]) -> Iterator[Outcome]:
        for at in range(0, len(attempts), AT_ONCE):
            tried = attempts[at : at + AT_ONCE]
            yield from run_jobs([replace(job, schedule=FORWARDS, replay=tuple(some)) for some in tried], build)

    def differs(outcome: Outcome) -> bool:
        return outcome.finished and not np.array_equal(usual.o, outcome.o, equal_nan=True)

    (recorded,) = run_jobs([replace(job, record=True)], build)
    return story_of(recorded, replayed, differs, seconds)


def _wrong_maxima(shape: Workload, job: Job, outcome: Outcome) -> list[str]:
    """What is wrong with the largest elements and norms of rows that a kernel has noted, by which errors are bounded:
    none may be less than the true one, nor more than rounding makes it. Where not all rows and keys are used, nothing
    is said."""
    if outcome.largest is None or shape.causal or job.rows:
        return []
    true = magnitudes_of(job.inputs)
    noted = magnitudes(outcome.largest.tolist())
    most = np.hypot(true, math.sqrt(shape.d * 2.0**-7)) * 1.01
    # A sum of squares that fp16 cannot hold is inf: the row's length is not known, and no bound is built on it.
    most[NORMS] = np.where(most[NORMS] ** 2 > LARGEST_HALF, math.inf, most[NORMS])
    wrong = [
        f"{name} is {found:.6g} in the kernel's notes, and {right:.6g} in truth"
        for name, found, right, upper in zip(MAXIMA, noted, true, most, strict=True)
        if not right * (1 - 2.0**-15) <= found <= upper
    ]
    return wrong[:1]


def _allowed(variant: Variant, kind: str, shape: Workload, inputs: Floats, props: DeviceProperties) -> float:
    """How far an element may be from the exact answer."""
    if not has_bound(variant.name):  # a kernel of the user's own
        return math.inf if kind in (HUGE, BELOW) else SAFE
    allowed = bound(variant.name, magnitudes_of(inputs), shape.d, shape.N, props)
    return min(allowed, variant.error_bound) if kind in (RANDOM_DATA, UNEVEN) else allowed


def _wrong(variant: Variant, kind: str, shape: Workload, job: Job, o: Floats, props: DeviceProperties) -> list[str]:
    """What is wrong with an answer, in a sentence, or nothing."""
    allowed = _allowed(variant, kind, shape, job.inputs, props)
    exact = exact_attention(job.inputs, causal=shape.causal, window=shape.window)
    first, count = job.rows or (0, shape.N)
    wanted = slice(first, first + count)
    with np.errstate(invalid="ignore"):
        error = np.abs(o - exact)
    v = job.inputs[:, 2]
    slack = OUTSIDE * np.abs(v).max()
    within = (o >= v.min(axis=1, keepdims=True) - slack) & (o <= v.max(axis=1, keepdims=True) + slack)
    wrong = np.ones(o.shape, bool)
    wrong[:, wanted] = ~(error[:, wanted] <= allowed) | ~within[:, wanted]
    for beside in (slice(0, first), slice(first + count, None)):
        wrong[:, beside] = ~np.isnan(o[:, beside])  # what is not a row of this launch is not to be written
    if not wrong.any():
        return []
    index = int(np.argmax(np.where(wrong, np.nan_to_num(error, nan=math.inf), -1)))
    got, right = o.reshape(-1)[index], exact.reshape(-1)[index]
    why = (
        f"the exact answer is {right:.6g}, and {allowed:.1e} is allowed"
        if not math.isnan(got)
        else (f"it should be {right:.6g}: nothing was written there, or it comes from what nobody has written")
    )
    return [f"{int(wrong.sum())} of {o[:, wanted].size} elements are wrong: {shape.place(index)} is {got:.6g}, {why}"]

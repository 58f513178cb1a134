"""Which kernel computes a group of batches: the fastest of those whose error stays within what is allowed.

Speed is known beforehand, from measurements or by a rule for GPUs that nobody measured; the error depends on the
group's own values, which are known when it has been read. So each group starts with a guess, and is computed again
where its values ask for another kernel. Its answer is always that of the kernel that its own values ask for: the same
file gives the same bytes, whatever ran when. But a small file does not wait for a compiler: then only kernels that are
compiled when the run begins are asked, and FALLBACK (`is_ready`).
"""

import math
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple, Union

from hw4cli.errors import InputError
from hw4cli.plans.bounds import ON_CPU, ON_TENSOR_CORES, SAFE, bound, has_bound, suffices, uniform
from hw4cli.plans.common import padded_d
from hw4cli.plans.ladder import DEFAULT, FALLBACK, VARIANTS
from hw4cli.plans.measured import FASTEST
from hw4cli.plans.plan import AMD_DEVICES, DEVICES, DeviceProperties
from hw4cli.plans.tensor import integers_from
from hw4cli.problem.workload import MAX_D, AbsMax, Magnitudes, Workload
from hw4cli.text.words import counted

if TYPE_CHECKING:
    from fractions import Fraction  # which imports decimal

AUTO = "auto"
ASKED = "asked for"
# Operations, up to which FALLBACK, which compiles five times as fast as the fastest kernels, may stand in for one that
# is not compiled: they take 0.2 s on a GPU that computes 0.1 TFLOP/s in double, 5 ms on an H100.
STAND_IN_FLOPS = 2e10
# For rows of at least so many keys, the kernel that is faster than those of FASTEST, by compute capability, padded head
# size and whether rows have a mask (docs/ladder.md).
LONG_ROWS: dict[tuple[int, int, bool], tuple[str, int]] = {
    (90, 64, False): ("split8", 1200),
    (90, 64, True): ("split8", 4096),
}


def ranking(props: DeviceProperties, gpu: str, d: int, N: int, causal: bool = False) -> tuple[tuple[str, ...], str]:
    """The kernels that are worth trying, from fast to slow, for rows of N keys, and how that is known: measured,
    predicted by a rule for GPUs that nobody measured, or unknown where not even the architecture is
    (docs/performance.md).

    The rule: four fp16 products on tensor cores against two in float32 are a gain where tensor cores add in float32 at
    full speed: from Ampere on, but not on GeForce cards, which halve it there. Two of them as one product of 8-bit
    integers are a gain there, too, where these are multiplied twice as fast as fp16 (a GeForce: four times): on all
    but compute capability 10, of which that is not known.
    """
    capability = props.architecture
    if d > MAX_D:
        known = VARIANTS[DEFAULT].fits(Workload.one_head(1, N, d), props)
        return (DEFAULT,) if known else (), f"the one that computes d={d} in float32 on {capability}"
    how = "predicted" if props.cc in DEVICES or props.gfx in AMD_DEVICES else "unknown, taken"
    if props.gfx:
        return _known((DEFAULT,)), f"{how} to be the fastest on {capability}"
    if sizes := FASTEST.get(props.cc):
        size = min((size for size in sizes if size >= d), default=max(sizes))
        beyond = f", not measured at d={d}" if d > size else ""
        kernels, where = sizes[size], f"d={size}"
        name, least = LONG_ROWS.get((props.cc, padded_d(d), causal), ("", 0))
        if name and least <= N:
            kernels, where = (name, *kernels), f"{where} from N={least} on"
        return _known(kernels), f"measured fastest on {capability} at {where}{beyond}"
    if props.cc < 80:
        return _known((DEFAULT,)), f"{how} to be the fastest without fp16 mma.sync, on {capability}"
    by_integers = integers_from(d, props) if props.cc // 10 != 10 else None
    integers = ("split8",) if by_integers and by_integers <= N else ()
    if "GeForce" in gpu:
        reason = (
            f": tensor cores are {'a' if integers else 'no'} gain on a GeForce{' by 8-bit integers' * bool(integers)}"
        )
        return _known((*integers, DEFAULT)), f"{how} to be the fastest{reason}"
    # At d = 32 an H200 takes as long for either by mma.sync, and split is more exact.
    tensor = ("split", *integers) if padded_d(d) == 32 else (*integers, "split")
    return _known((*tensor, DEFAULT)), f"{how} to be the fastest on {capability}, not measured"


def _known(kernels: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(name for name in kernels if name in VARIANTS)


def candidates(
    kernel: str,
    props: DeviceProperties,
    gpu: str,
    d: int,
    N: int,
    causal: bool = False,
    tuned: tuple[tuple[str, ...], str] | None = None,
) -> tuple[tuple[str, ...], str]:
    """The kernels to choose from, the preferred first, for a --kernel and rows of N keys; and why it is the first.
    `tuned`: kernels from fast to slow as they were measured on this GPU, and how that is known.

    Behind one that is asked for stand those that are more exact; but one of whose error nothing is known answers alone.
    """
    if kernel != AUTO and not has_bound(kernel):
        return (kernel,), ASKED
    kernels, why = ranking(props, gpu, d, N, causal)
    if kernel == AUTO and tuned and kernels:
        known = tuple(name for name in _known(tuned[0]) if has_bound(name))
        if kernels[0] in known:  # else what was timed then says nothing of the kernel that is known to be faster
            kernels, why = (*known, *kernels), tuned[1]
    if kernel != AUTO:
        more_exact = [name for name in kernels if not _rounds_more(name, kernel)] if kernel in ON_TENSOR_CORES else []
        kernels, why = (kernel, *more_exact), ASKED
    return tuple(dict.fromkeys((*kernels, FALLBACK))), why


def _rounds_more(one: str, than: str) -> bool:
    """Whether a kernel rounds P to one fp16 number; beside one that multiplies integers: whether it does that, too."""
    held, other = VARIANTS[one].pieces, VARIANTS[than].pieces
    by_integers = other is not None and other.integers
    return held is not None and held.terms == 1 and (held.integers or not by_integers)


def auto_by_length(props: DeviceProperties, gpu: str, d: int) -> list[tuple[int, tuple[str, ...], str]]:
    """What auto chooses from for rows without a mask: from how many keys on, the kernels, and why. The fewest keys come
    first."""
    _, least = LONG_ROWS.get((props.cc, padded_d(d), False), ("", integers_from(d, props) or 1))
    few, many = (candidates(AUTO, props, gpu, d, N) for N in (1, least))
    return [(1, *few), *([(least, *many)] if many != few else [])]


def may_stand_in(shape: Workload) -> bool:
    """Whether FALLBACK may answer instead of a kernel that is not compiled: it takes no longer than compiling would."""
    return 4.0 * shape.B * shape.Nq * shape.N * shape.d <= STAND_IN_FLOPS


class Used(NamedTuple):
    """What came of a kernel: batches answered; the worst bound of its error; the same if no norms were known."""

    batches: Union["Fraction", int]
    bound: float
    by_elements: float

    @property
    def whole(self) -> int:
        """Batches, a part of one counted whole."""
        return math.ceil(self.batches)

    @property
    def errors(self) -> str:
        """The bounds, in words."""
        known, alone = rounded_up(self.bound), rounded_up(self.by_elements)
        norms = "" if known == alone else f" ({alone if self.by_elements < math.inf else 'no bound'} without norms)"
        return f"error at most {known}{norms}"


@dataclass
class Choice:
    """The kernels for a run on one device, the preferred first and the most exact last, and what came of them.

    `allowed` is the error that the user asked for with --max-error, or None: then SAFE counts, and the last kernel
    answers whatever it takes. `is_ready` says whether a kernel can be had at once: one that cannot leaves its groups to
    the next that suffices. The last one is compiled where it is missing.
    """

    kernels: tuple[str, ...]
    why: str
    d: int
    N: int
    props: DeviceProperties
    allowed: float | None = None
    is_ready: Callable[[str], bool] = lambda kernel: True
    used: dict[str, Used] = field(default_factory=dict)  # by kernel
    _ready: dict[str, bool] = field(default_factory=dict)  # as it was when it was first asked for
    _lock: threading.Lock = field(default_factory=threading.Lock)

    @property
    def limit(self) -> float:
        """The error that is allowed."""
        return SAFE if self.allowed is None else self.allowed

    @property
    def first(self) -> str:
        """The kernel to start groups with before their magnitudes are known: right for the assignment's data."""
        return self._sufficient(uniform(self.d)) or self.kernels[-1]

    @property
    def preferred(self) -> str:
        """The kernel to start groups with if all were ready."""
        return next(self._enough(uniform(self.d)), self.kernels[-1])

    def kernel_for(self, found: Magnitudes | AbsMax) -> str:
        """The kernel that must answer a group as large as this, which is finite.

        Raises InputError if none can keep the error that the user asked for.
        """
        kernel, last = self._sufficient(found), self.kernels[-1]
        if kernel is None and self.allowed is not None:
            raise InputError(
                f"--max-error {self.allowed:g} is less than any kernel can keep where |Q|, |K| and |V| reach "
                f"{found[0]:.3g}, {found[1]:.3g} and {found[2]:.3g}: "
                f"{last} keeps {rounded_up(self._bound(last, found))}"
            )
        return kernel or last

    def note(self, kernel: str, batches: Union["Fraction", int], found: Magnitudes | AbsMax) -> None:
        """Record that a kernel answers so many batches, or so much of one. Any thread may call."""
        proven, by_elements = (self._bound(kernel, values) for values in (found, found[:3]))
        with self._lock:
            before = self.used.get(kernel, Used(0, 0.0, 0.0))
            worst = max(before.bound, proven), max(before.by_elements, by_elements)
            self.used[kernel] = Used(before.batches + batches, *worst)

    def record_in(self, other: "Choice") -> None:
        """Record in another one, from now on: that of a device that computes the same file."""
        self.used, self._lock = other.used, other._lock

    def summary(self) -> str:
        """What --timing says: which kernels ran, why, and how exact they are sure to be."""
        if not has_bound(self.kernels[0]):
            batches = _batches(sum(used.whole for _, used in self._in_order()))
            return (
                f"kernel: {batches} by {self.kernels[0]}, {self.why}; no bound of its error is known: "
                "`hw4 verify OUTPUT ANSWER` compares what it wrote with an answer"
            )
        answers = [f"{_batches(used.whole)} by {name}, {used.errors}" for name, used in self._in_order()]
        preferred = f"preferred {self.kernels[0]}: {self.why}"
        if not self._can_be_had(self.kernels[0]):
            preferred += ", but not compiled (`hw4 doctor --prepare` does it)"
        return f"kernel: {', '.join(answers)}; allowed {self.limit:g}; {preferred}"

    def exceptions_sentence(self) -> str | None:
        """One sentence if batches needed a more exact kernel than was to be expected, else None."""
        usual = self.kernels.index(self.kernels[0] if self.why == ASKED else self.first)
        others = [(name, used.whole) for name, used in self._in_order() if name in self.kernels[usual + 1 :]]
        if not others:
            return None
        counts = " and ".join(f"{count:,} in {name}" for name, count in others)
        return (
            f"{_batches(sum(count for _, count in others))} had values too large for {self.kernels[usual]}: "
            f"computed more exactly, {counts}"
        )

    def _sufficient(self, found: Magnitudes | AbsMax) -> str | None:
        return next((kernel for kernel in self._enough(found) if self._can_be_had(kernel)), None)

    def _enough(self, found: Magnitudes | AbsMax) -> Iterator[str]:
        limits = (self.d, self.N, self.props, self.limit)
        return (kernel for kernel in self.kernels if suffices(kernel, found, *limits))

    def _can_be_had(self, kernel: str) -> bool:
        """Whether a kernel is ready, or the last. It stays so: the same values get the same kernel in all groups."""
        with self._lock:
            if kernel not in self._ready:
                self._ready[kernel] = kernel == self.kernels[-1] or self.is_ready(kernel)
            return self._ready[kernel]

    def _bound(self, kernel: str, found: Magnitudes | AbsMax) -> float:
        return bound(kernel, found, self.d, self.N, self.props)

    def _in_order(self) -> list[tuple[str, Used]]:
        """Kernels that answered; last, those that only another device has."""
        names = dict.fromkeys((*(kernel for kernel in self.kernels if kernel in self.used), *self.used))
        return [(name, self.used[name]) for name in names]


def on_cpu(d: int, N: int, allowed: float | None) -> Choice:
    """The CPU's two computations; their bounds depend on no GPU."""
    return Choice((ON_CPU, FALLBACK), "the CPU's tiled computation", d, N, DEVICES[90], allowed)


def _batches(count: int) -> str:
    return counted(count, "batch", "batches")


def rounded_up(x: float) -> str:
    """A bound in two digits, rounded up: never less than it is."""
    if not 0 < x < math.inf:
        return f"{x:g}"
    unit = 10.0 ** (math.floor(math.log10(x)) - 1)
    return f"{math.ceil(x / unit * (1 - 1e-12)) * unit:.1e}"

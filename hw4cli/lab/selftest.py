"""Tests of kernels on random inputs: every answer is compared with float64, and its error with the stated bound.

An answer is wrong, too, if an element was not written, if a second run gives other bits, if the kernel wrote outside
its output, or if it found another range of the input than there is.
"""

import math
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from itertools import count, cycle
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from hw4cli.device.gpu import Gpu
from hw4cli.errors import MachineError, ShortageError
from hw4cli.lab.randomcases import RandomCase
from hw4cli.plans.bounds import ON_TENSOR_CORES, PROPORTION, PROVEN, bound
from hw4cli.plans.formulas import ceil_div
from hw4cli.plans.ladder import FALLBACK, VARIANTS
from hw4cli.plans.launch import SQUARES_BELOW, SQUARES_UNIT, magnitudes
from hw4cli.plans.plan import DEVICES, DeviceProperties, Plan
from hw4cli.problem.casefile import FLOAT32, Floats, magnitudes_of
from hw4cli.problem.cpu import workers
from hw4cli.problem.oracle import exact_attention
from hw4cli.problem.workload import Magnitudes, Workload
from hw4cli.stream.tiled import tiled_attention
from hw4cli.text.words import counted

POISON, UNWRITTEN = 0xFF, 0xFFFFFFFF  # the byte that memory is filled with; a float of it, a NaN that no GPU computes
GUARD = 1024  # floats of poison before and behind arrays on the GPU
ORACLE_FLOPS = 2_000_000_000_000  # where a case has more, float64 computes only every second, third ... batch
ESTIMATED = 4  # factor for a bound that is an estimate: then it covers what n additions can lose, n·2^-24
LEAST = 1e-30  # docs/accuracy.md covers no smaller result


class WrongError(Exception):
    """An answer is wrong."""


class SkippedError(Exception):
    """A case cannot run on this backend."""


class Backend(Protocol):
    """What is tested: the CPU or a GPU; the bounds depend on `props`."""

    name: str
    props: DeviceProperties

    def compute(self, kernel: str, block: Floats) -> Floats:
        """O (n, N, d) of a block (n, 3, N, d), by a kernel; elements that it does not write are UNWRITTEN.

        Raises WrongError, SkippedError, and MachineError if the kernel fails.
        """

    def oracle(self, block: Floats) -> Floats:
        """The same in float64, by independent code."""


class CpuBackend:
    """The computation of `--device cpu`, in float32 and in float64."""

    def __init__(self) -> None:
        self.name, self.props = counted(workers(), "CPU core"), DEVICES[90]

    def compute(self, kernel: str, block: Floats) -> Floats:
        """O of a block; see Backend."""
        return tiled_attention(block, np.float64 if kernel == FALLBACK else np.float32)

    def oracle(self, block: Floats) -> Floats:
        """O of a block by the oracle in two passes."""
        return exact_attention(block)


class GpuBackend:
    """The kernels on a GPU, between guards, in poisoned memory; the scratch's poison alternates."""

    def __init__(self, gpu: Gpu) -> None:
        self.name, self.props, self._gpu = gpu.name, gpu.props, gpu
        self._block: Floats | None = None  # the input in the GPU's memory
        self._inputs: Any = None
        self._found = Magnitudes(0, 0, 0)
        self._scratch_poison = cycle((POISON, 0))

    def compute(self, kernel: str, block: Floats) -> Floats:
        """O of a block; see Backend."""
        n, _, N, d = block.shape
        shape = Workload.one_head(n, N, d)
        try:
            VARIANTS[kernel].plan(shape, self.props)
        except MachineError as reason:
            raise SkippedError(str(reason)) from None
        plan = self._gpu.plan(kernel, shape)
        with self._gpu.translated_errors(plan, shape):
            try:
                self._upload(block)
                return self._run(plan, shape)
            except self._gpu.cupy.cuda.memory.OutOfMemoryError:
                self._block = self._inputs = None
                raise SkippedError(f"kernel {kernel} would need more memory than this GPU has") from None

    def oracle(self, block: Floats) -> Floats:
        """O of a block by the kernel `float64`."""
        return self.compute(FALLBACK, block)

    def _upload(self, block: Floats) -> None:
        if self._block is not block:
            self._block = self._inputs = None
            _, self._inputs = self._guarded(block.shape)
            self._inputs.set(block)
            self._block, self._found = block, magnitudes_of(block)

    def _run(self, plan: Plan, shape: Workload) -> Floats:
        whole, outputs = self._guarded((shape.B, shape.N, shape.d))
        if plan.scratch:  # an array that is freed leaves its memory to the next one of the same size
            poisoned = self._gpu.cupy.empty(plan.scratch, np.uint8)
            poisoned.data.memset_async(next(self._scratch_poison), plan.scratch)
            del poisoned
        scratch = self._gpu.compute(plan, self._inputs, outputs)
        found = magnitudes(self._gpu.absmax_of(plan, scratch, self._inputs).get().view(FLOAT32))
        answer = whole.get()
        guards = np.concatenate([answer[:GUARD], answer[-GUARD:]])
        if (guards.view(np.uint32) != UNWRITTEN).any():
            raise WrongError("the kernel wrote outside its output")
        if found[:3] != self._found[:3]:
            raise WrongError(f"|Q|, |K|, |V| reach {self._found[:3]}, but {found[:3]} was found")
        for name, norm, right in zip("QK", found[3:], self._found[3:], strict=True):
            if not _is_norm(norm, right, shape.d):
                raise WrongError(f"a row of {name} has a norm of {right:.6g}, but {norm:.6g} was found")
        return answer[GUARD:-GUARD].reshape(outputs.shape)  # type: ignore[no-any-return]

    def _guarded(self, shape: tuple[int, ...]) -> tuple[Any, Any]:
        """A poisoned array on the GPU with its guards, and without."""
        whole = self._gpu.empty((math.prod(shape) + 2 * GUARD,))
        whole.data.memset_async(POISON, whole.nbytes)
        return whole, whole[GUARD:-GUARD].reshape(shape)


def _is_norm(found: float, right: float, d: int) -> bool:
    """Whether a kernel's norm is one, its squares rounded up: inf where they are more than it can add up."""
    least, most = right**2 / (1 + 2.0**-14), (right**2 + d * SQUARES_UNIT) * (1 + 2.0**-40)
    return least <= found**2 <= most if found < math.inf else most >= SQUARES_BELOW


def allowed(kernel: str, found: Magnitudes, d: int, N: int, props: DeviceProperties) -> float:
    """The error that is allowed for Q, K and V as large as `found`; inf if there is no bound.

    O is a mean of V even if scores are too large for float32 to resolve them, unless they overflow fp16.
    """
    limit = bound(kernel, found, d, N, props) * (1 if kernel in PROVEN else ESTIMATED)
    return (limit if kernel in ON_TENSOR_CORES else min(limit, 2.01 * found[2])) + LEAST


@dataclass(frozen=True)
class Outcome:
    """The result of a case: what is wrong, or why it was skipped, or the largest error, relative to |V| and to the
    allowed error, and the root of the mean square of all errors, relative to |V|."""

    case: RandomCase
    wrong: str = ""
    skipped: str = ""
    error: float = 0
    share: float = 0
    rms: float = 0
    final: bool = False  # the device cannot go on


def run_case(case: RandomCase, backend: Backend) -> Outcome:
    """Compute a case on a backend and check the answer. ShortageError if the host has not enough memory for it."""
    try:
        error, share, rms = _errors(case, backend, case.block())
    except WrongError as reason:
        return Outcome(case, wrong=str(reason))
    except SkippedError as reason:
        return Outcome(case, skipped=str(reason))
    except ShortageError:
        raise
    except MachineError as reason:
        return Outcome(case, wrong=str(reason), final=True)
    return Outcome(case, error=error, share=share, rms=rms)


def _errors(case: RandomCase, backend: Backend, block: Floats) -> tuple[float, float, float]:
    """The largest error, relative to |V| and to the allowed error, and the root of the mean square of errors, relative
    to |V|. Raises WrongError if what is allowed is exceeded.

    What is allowed depends on each batch's own values. Relative to |V|, only batches count for which the kernel is
    suited: elsewhere float32 may not resolve the scores at all.
    """
    shape, worst, worst_share, squares = case.shape, 0.0, 0.0, list[float]()
    got = backend.compute(case.kernel, block)
    _check_none(got.view(np.uint32) == UNWRITTEN, shape, "not written")
    again = backend.compute(case.kernel, block)
    _check_none(got.view(np.uint32) != again.view(np.uint32), shape, "different in a second run")
    step = ceil_div(shape.flops, ORACLE_FLOPS)
    first = (shape.B - 1) % step  # the last batch is computed in any case
    judged = block if step == 1 else block[first::step].copy()
    expected = backend.oracle(judged)
    _check_oracle(judged, expected, backend.props)
    for batch in range(shape.B):
        found = magnitudes_of(block[batch : batch + 1])
        limit = allowed(case.kernel, found, shape.d, shape.N, backend.props)
        index, rest = divmod(batch - first, step)
        if limit == math.inf:
            continue
        if rest:  # not computed by the oracle: O must still be a mean of V
            _check_none(~(np.abs(got[batch]) <= found[2] + limit), shape, "larger than V", batch)
            continue
        errors = np.abs(got[batch] - expected[index])
        _check_none(~(errors <= limit), shape, f"off by {errors.max():.2g}, where {limit:.2g} is allowed", batch)
        error = float(errors.max())
        worst_share = max(worst_share, error / limit)
        if limit <= PROPORTION * found[2]:
            worst = max(worst, error / found[2])
            squares.append(float(np.mean((errors / found[2]) ** 2)))
    return worst, worst_share, math.sqrt(sum(squares) / len(squares)) if squares else 0.0


def _check_none(bad: NDArray[np.bool_], shape: Workload, what: str, batch: int = 0) -> None:
    """Raise WrongError, with the number and the first place, if any element is bad; `bad` begins at a batch."""
    if bad.any():
        place = shape.place(batch * shape.N * shape.d + int(bad.argmax()))
        raise WrongError(f"{counted(int(np.count_nonzero(bad)), 'element')} {what}, the first in {place}")


def _check_oracle(block: Floats, answers: Floats, props: DeviceProperties) -> None:
    """Compute some rows of the first and the last batch by the definition. Raises WrongError if the oracle differs."""
    _, _, N, d = block.shape
    rows = np.unique(np.linspace(0, N - 1, 16).astype(int))
    for batch in {0, len(block) - 1}:
        q, k, v = block[batch].astype(np.float64)
        s = np.einsum("rc,kc->rk", q[rows], k) / math.sqrt(d)
        p = np.exp(s - s.max(axis=1, keepdims=True))
        exact = np.einsum("rk,kc->rc", p, v) / p.sum(axis=1, keepdims=True)
        error = np.abs(answers[batch][rows] - exact).max()
        if not error <= 2 * allowed(FALLBACK, magnitudes_of(block[batch : batch + 1]), d, N, props):
            raise WrongError(f"the float64 answer that it is compared with is itself off by {error:.2g}")


@dataclass
class Tally:
    """The right answers of a kernel: how many; of the cases the largest error, relative to |V| and to the allowed
    error, and the largest root of the mean square of a case's errors, relative to |V|."""

    right: int = 0
    error: float = 0
    share: float = 0
    rms: float = 0


@dataclass
class Summary:
    """The results of all cases until now."""

    kernels: dict[str, Tally] = field(default_factory=dict)
    wrong: list[Outcome] = field(default_factory=list)
    skipped: Counter[str] = field(default_factory=Counter)  # by reason

    def add(self, outcome: Outcome) -> None:
        """Count a case."""
        if outcome.skipped:
            self.skipped[outcome.skipped] += 1
        elif outcome.wrong:
            self.wrong.append(outcome)
        else:
            tally = self.kernels.setdefault(outcome.case.kernel, Tally())
            tally.right += 1
            tally.error, tally.share = max(tally.error, outcome.error), max(tally.share, outcome.share)
            tally.rms = max(tally.rms, outcome.rms)

    @property
    def cases(self) -> int:
        """How many cases were computed; skipped ones do not count."""
        return len(self.wrong) + sum(tally.right for tally in self.kernels.values())


def outcomes(backend: Backend, draw: Callable[[int], RandomCase], seconds: float) -> Iterator[Outcome]:
    """Compute cases 0, 1, 2 … of `draw` until so many seconds have passed, or the device cannot go on."""
    end = time.monotonic() + seconds
    for number in count():
        outcome = run_case(draw(number), backend)
        yield outcome
        if outcome.final or time.monotonic() >= end:
            return

"""float32 arrays on a GPU: which kernel of the ladder answers, and its launches.

The ladder's kernels know batches of rows and keys alone. Where each head of Q has its own keys, (batch, head) is the
number of a batch. Heads that share keys are further rows of one batch, where no row's mask depends on its number; else
the first heads of all groups are computed together, then the second ones, and so on.

Which kernel answers depends on how large the elements are. Where no error is named, the GPU finds that and chooses
(kernels/choice.cu): all kernels that may answer are launched, and those that are not chosen end at once. Else, and
where the range check cannot read the arrays as they are, the host reads what it found, and launches one kernel.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache, partial
from typing import Any, NamedTuple

import numpy as np

from hw4cli.arrays.arguments import kernel_for
from hw4cli.arrays.operand import (
    Operand,
    address_of,
    assign,
    check_capture,
    check_range_can_be_read,
    contiguous,
    empty_like,
    largest,
    operand,
    stream_at,
)
from hw4cli.device.gpu import Gpu
from hw4cli.device.launcher import SAMPLES, Addresses, Argument, Prepared, Step, prepared
from hw4cli.errors import MachineError
from hw4cli.plans import choice
from hw4cli.plans.bounds import has_bound
from hw4cli.plans.dispatch import AUTO, Choice, candidates
from hw4cli.plans.flash import LONGEST_SPLIT
from hw4cli.plans.formulas import MOST_SPLITS
from hw4cli.plans.ladder import DEFAULT, FALLBACK, VARIANTS
from hw4cli.plans.launch import (
    ABSMAX_BYTES,
    Matrices,
    Matrix,
    absmax_arguments,
    absmax_launch,
    arguments,
    magnitudes,
)
from hw4cli.plans.limits import limits
from hw4cli.plans.plan import Plan
from hw4cli.plans.scoring import Heads, scoring
from hw4cli.problem.workload import MAX_D, AbsMax, Magnitudes, Workload

FLOAT_BYTES = 4
ARRAYS = 6  # addresses: of q, k, v and o, of the LSE and of scratch
MOST_ROWS = 256  # of a tile of flash
REMEMBERED = 256  # plans, and calls whose launches are prepared
Place = tuple[tuple[int, ...], tuple[int, ...]]  # shape, strides
Operands = tuple[Operand, Operand, Operand, Operand]


ByRange = Callable[[Addresses, int], Prepared]


class Candidates(NamedTuple):
    """Kernels from fast to slow, why they are in this order, and of how many keys sums are as long as theirs."""

    kernels: tuple[str, ...]
    why: str
    keys: int


Answering = str | Candidates  # a kernel, or those of which the GPU chooses one


class Float32OnGpu:
    """The ladder's kernels on one GPU."""

    def __init__(self, gpu: Gpu) -> None:
        self.gpu = gpu
        self._planned = lru_cache(REMEMBERED)(self._plan)
        self.prepared = lru_cache(REMEMBERED)(self._prepare)
        self._chosen = lru_cache(REMEMBERED)(self._choose)
        self._candidates = lru_cache(REMEMBERED)(self._listed)

    def plan(self, work: Workload, kernel: str) -> Plan:
        """The launches of a kernel for a workload whose arrays are contiguous: of its first call. Rows are such that
        kernels can load them (arrays/staged.py), though d, by which scores are scaled, is the true one."""
        heads = work.batch * work.heads
        work = without_needless_mask(work)
        shape = Workload.one_head(heads, work.Nk, work.d, work.causal, work.Nq)
        return self._planned(kernel, replace(shape, window=work.window, score=work.score))

    def _plan(self, kernel: str, shape: Workload) -> Plan:
        return VARIANTS[kernel].plan(shape, self.gpu.props, copies=False)

    def kernel(
        self,
        work: Workload,
        operands: tuple[Operand, Operand, Operand],
        kernel: str,
        allowed: float | None,
        bounds: AbsMax | None,
        stream: Any,
    ) -> Answering:
        """The kernel that is named, or the fastest whose error stays within what is allowed, for |elements| up to the
        bounds; or those of which the GPU chooses.

        Else the arrays are read for their range, and the GPU is waited for. Raises ValueError if no kernel keeps the
        error, or if this is captured in a graph, where nothing can be waited for.
        """
        known = self.without_reading(work, operands, kernel, allowed, bounds)
        if known is not None:
            return known
        listed = self._candidates(work, kernel)
        return self._fastest(work, listed, allowed, self._magnitudes(work, operands, listed.kernels[0], stream))

    def without_reading(
        self,
        work: Workload,
        operands: Sequence[Operand],
        kernel: str,
        allowed: float | None,
        bounds: AbsMax | None,
    ) -> Answering | None:
        """The same where the host need not know how large the elements are; else None."""
        if not chooses(kernel, allowed):
            return kernel
        self.check(kernel, work, lse=False)
        if work.score:  # of which no bound is known
            return DEFAULT if kernel == AUTO else kernel
        listed = self._candidates(work, kernel)
        if bounds:
            return self._fastest(work, listed, allowed, Magnitudes(*bounds))
        if allowed is not None:  # which may be less than any kernel keeps: that is refused
            return None
        if len(listed.kernels) == 1:
            return listed.kernels[0]
        return listed if self._chooses_itself(work, operands, listed) else None

    def _chooses_itself(self, work: Workload, operands: Sequence[Operand], listed: Candidates) -> bool:
        """Whether the GPU chooses: where the range check can read the arrays, or copies of them that are made anyway,
        and all the launches can be made."""
        readable = work.d <= MAX_D and all(is_contiguous(x) or not is_packed(x) for x in operands)
        if self.gpu.props.gfx or not readable or len(listed.kernels) > choice.LIMITED + 1:
            return False
        try:
            for name in listed.kernels:
                self.plan(work, name)
        except MachineError:  # of one that would not be chosen, perhaps
            return False
        return True

    def _listed(self, work: Workload, kernel: str) -> Candidates:
        """What there is to choose from where a kernel is asked for, or AUTO."""
        kernels, why = candidates(kernel, self.gpu.props, self.gpu.name, work.d, work.Nk, work.causal)
        keys = work.Nk
        if work.window:
            kernels, keys = tuple(name for name in kernels if VARIANTS[name].windows), _keys_of_bound(work)
        if not has_usual_scale(work):
            kernels = tuple(name for name in kernels if VARIANTS[name].any_scale)
        if not kernels:
            self.check(FALLBACK, work, lse=False)
        return Candidates(kernels, why, keys)

    def _fastest(self, work: Workload, listed: Candidates, allowed: float | None, found: Magnitudes) -> str:
        kernels, why, keys = listed
        if not found.finite:
            return kernels[-1]
        return self._chosen(kernels, why, work.d, keys, allowed, found.scaled(work.scale / work.usual_scale))

    def by_range(
        self, work: Workload, operands: Operands, kernel: str, allowed: float | None, lse: bool
    ) -> ByRange | None:
        """What gives the launches for arrays like these, and an LSE if it is wanted, by what is in them: for the
        addresses of q, k and v, and a stream's. It reads them, and waits for the GPU. None where that takes copies."""
        like = tuple(replace(x, array=None) for x in operands)
        if work.d > MAX_D or not all(map(is_contiguous, like)):
            return None
        places, plain = tuple((x.shape, x.strides) for x in like), without_needless_mask(work)
        listed = self._candidates(work, kernel)

        def launches(addresses: Addresses, stream: int) -> Prepared:
            check_range_can_be_read(like[0])
            with stream_at(stream, self.gpu.cupy):
                found = self._range(addresses, like[:3])
            chosen = self._fastest(work, listed, allowed, found)
            self.check(chosen, work, lse)
            return self.prepared(plain, places, chosen, not lse)

        return launches

    def _choose(
        self, kernels: tuple[str, ...], why: str, d: int, Nk: int, allowed: float | None, found: Magnitudes
    ) -> str:
        """The kernel for Q, K and V up to `found`; Q as if the scale were 1/sqrt(d): a score's size is what counts."""
        return kernel_for(Choice(kernels, why, d, Nk, self.gpu.props, allowed), found)

    def check(self, kernel: str, work: Workload, lse: bool) -> None:
        """Raise ValueError where a kernel does not give what is asked for."""
        if lse and not VARIANTS[kernel].lse:
            with_lse = (name for name, entry in VARIANTS.items() if entry.lse)
            raise ValueError(f"kernel {kernel} gives no LSE: {', '.join(with_lse)} do")
        if kernel == FALLBACK and not has_usual_scale(work):
            raise ValueError(f"kernel {FALLBACK} computes with the scale 1/sqrt(d) alone, and scale is {work.scale:g}")

    def compute(
        self, work: Workload, operands: Operands, lse: Any, kernel: Answering, stream: Any, views: tuple[int, ...] = ()
    ) -> Prepared | None:
        """Enqueue a kernel's launches, or the choice and those of all to choose from, on a stream of cupy's; does not
        wait. `lse`: an array of the library's, or None; `views`: the addresses of the arrays that a score names.

        Arrays that the kernels cannot read as they are, by heads or rows that lie apart, are copied before. Returns the
        launches if they are all that was enqueued: for arrays q, k, v and o of these strides, an LSE if there is one,
        and scratch."""
        names = names_of(kernel)
        for name in names:
            self.check(name, work, lse is not None)
        q, k, v, o = operands
        work = without_needless_mask(work)
        q, k, v = (x if is_packed(x) else contiguous(x) for x in (q, k, v))
        # Where O is Q's own array: some rungs of the ladder write O before they have read all of Q.
        in_place = is_packed(o) and (o.address != q.address or all(VARIANTS[name].lse for name in names))
        to = o if in_place else operand("out", empty_like(o, o.shape), "BHND")
        calls = as_batches(work, (q, k, v, to))
        group = len(calls.each)
        apart = lse is not None and calls.interleaved
        sums = empty_like(q, (group, work.batch, work.kv_heads, work.Nq)) if apart else lse
        plans = self._plans(kernel, calls.each[0].shape)
        compiled = all(map(self.gpu.is_compiled, plans))
        check_capture(q, compiled)
        if not compiled and len(plans) > 1:
            self.gpu.prepare(plans)
        launches = self.prepared(work, tuple((x.shape, x.strides) for x in (q, k, v, to)), kernel, lse is None)
        scratch = empty_like(q, (launches.scratch,), "uint8")  # the library's own: it lives as long as a graph
        addresses = (q.address, k.address, v.address, to.address, *views, address_of(sums), address_of(scratch))
        launches.enqueue(addresses, stream.ptr)
        if to is not o:
            assign(o, to)
        if apart:
            lse.reshape(work.batch, work.kv_heads, group, work.Nq)[:] = _last(sums)
        whole = all(x is y for x, y in zip((q, k, v, to), operands, strict=True))
        return launches if whole and not apart else None

    def _plans(self, kernel: Answering, shape: Workload) -> tuple[Plan, ...]:
        """All that is launched."""
        if isinstance(kernel, str):
            return (self._planned(kernel, shape),)
        return (choice.CODE, *(choice.chosen(self._planned(name, shape)) for name in kernel.kernels))

    def launches(self, work: Workload, operands: Operands, kernel: Answering, lse: bool) -> Prepared | None:
        """What `compute` returns for such arrays, without computing them."""
        work = without_needless_mask(work)
        if not all(map(is_packed, operands)) or (lse and as_batches(work, operands).interleaved):
            return None
        return self.prepared(work, tuple((x.shape, x.strides) for x in operands), kernel, not lse)

    def _prepare(self, work: Workload, places: tuple[Place, ...], kernel: Answering, without_lse: bool) -> Prepared:
        """The launches for packed arrays q, k, v and o of these shapes and strides: their addresses, those of arrays
        that a score names, the LSE's and that of scratch are asked for."""
        if isinstance(kernel, str):
            scratch, steps = self._steps(work, places, kernel, without_lse)
            return prepared(self.gpu, steps, max(1, scratch))
        each = [self._steps(work, places, name, without_lse, n) for n, name in enumerate(kernel.kernels)]
        room = max(scratch for scratch, _ in each)
        # What kernels find themselves begins at 0, too, though nobody reads it.
        first = self._choosing(work, places[:3], kernel, choice.SCRATCH + min(room, ABSMAX_BYTES))
        return prepared(self.gpu, [*first, *(step for _, some in each for step in some)], choice.SCRATCH + room)

    def _choosing(self, work: Workload, places: tuple[Place, ...], listed: Candidates, cleared: int) -> list[Step]:
        """The range check of contiguous Q, K and V, and the choice; before, so many bytes are cleared."""
        *others, _ = listed.kernels  # the last one has no limits
        most = [limits(name, work.d, listed.keys, self.gpu.props) for name in others]
        check, chooser = self.gpu.functions(choice.CODE)

        def check_of(number: int, place: Place) -> Step:
            rows, d = math.prod(place[0][:3]), place[0][3]
            argument = Argument(lambda at: absmax_arguments(at[number], at[-1], rows, d, number), ARRAYS)
            return Step(argument, (check,), (absmax_launch(1, rows, d),), 0 if number else cleared)

        ratio = work.scale / work.usual_scale
        argument = Argument(lambda at: choice.arguments(at[-1], ratio, work.d, most), ARRAYS)
        return [*(check_of(n, place) for n, place in enumerate(places)), Step(argument, (chooser,), (choice.LAUNCH,))]

    def _steps(
        self, work: Workload, places: tuple[Place, ...], kernel: str, without_lse: bool, chosen: int | None = None
    ) -> tuple[int, list[Step]]:
        """The bytes of scratch, and the launches, of one kernel; `chosen`: that of this number is one of several of
        which the GPU chooses."""

        def calls(addresses: Addresses) -> tuple[Call, ...]:
            q, k, v, o = (
                Operand("", "", work.dtype, *place, at, None, None, "BHND")
                for at, place in zip(addresses, places, strict=False)
            )
            return as_batches(work, (q, k, v, o)).each

        def make(number: int, addresses: Addresses) -> bytes:
            call, (*views, lse, scratch) = calls(addresses)[number], addresses[4:]
            first = 0 if without_lse else lse + FLOAT_BYTES * call.first_lse
            more = scoring(call.shape, tuple(views), heads=call.heads)
            if chosen is not None:
                scratch, more = scratch + choice.SCRATCH, choice.members(scratch, chosen)
            return arguments(plan, call.shape, call.matrices, scratch, first, call.offset, more)

        each = calls(SAMPLES)
        plan = self._planned(kernel, each[0].shape)
        cleared = ABSMAX_BYTES if plan.finds_absmax else 0
        if chosen is not None:
            plan, cleared = choice.chosen(plan), 0
        functions = self.gpu.functions(plan)
        views = len(work.score.arrays) if work.score else 0
        steps = [
            Step(Argument(partial(make, number), ARRAYS + views), functions, plan.launches, cleared)
            for number in range(len(each))
        ]
        return plan.scratch, steps

    def _magnitudes(
        self, work: Workload, operands: tuple[Operand, Operand, Operand], kernel: str, stream: Any
    ) -> Magnitudes:
        """How large each is, infinite or NaN if an element is. Reads all of them, and waits for the GPU."""
        check_range_can_be_read(operands[0])
        if work.d > MAX_D or not all(map(is_contiguous, operands)):
            q, k, v = map(largest, operands)
            return Magnitudes(q, k, v)
        self.gpu.functions(self.plan(work, kernel))  # the range check is compiled with it
        with stream:
            return self._range(tuple(x.address for x in operands), operands)

    def _range(self, addresses: Addresses, like: Sequence[Operand]) -> Magnitudes:
        """How large the elements of arrays at these addresses are, which are like others; on cupy's current stream."""
        found = self.gpu.cupy.ndarray(ABSMAX_BYTES // FLOAT_BYTES, np.uint32)
        found.data.memset_async(0, found.nbytes)
        for place, (address, x) in enumerate(zip(addresses, like, strict=True)):
            self.gpu.absmax_of_parts(address, 1, math.prod(x.shape[:3]), x.shape[3], place, found.data.ptr)
        return magnitudes(found.get().view(np.float32))


def _keys_of_bound(work: Workload) -> int:
    """Of how many keys the sums are as long as those of a window, whose keys are not split."""
    longest = work.seen_by(MOST_ROWS)
    return work.Nk if longest <= LONGEST_SPLIT else max(work.Nk, MOST_SPLITS * longest)


def _last(sums: Any) -> Any:
    """(group, batch, kv_heads, N) as (batch, kv_heads, group, N)."""
    return sums.permute(1, 2, 0, 3) if hasattr(sums, "permute") else sums.transpose(1, 2, 0, 3)


def names_of(kernel: Answering) -> tuple[str, ...]:
    """All kernels that may answer."""
    return (kernel,) if isinstance(kernel, str) else kernel.kernels


def chooses(kernel: str, allowed: float | None) -> bool:
    """Whether a kernel is chosen by how large the elements are, or asked whether it keeps the error allowed."""
    return kernel == AUTO or (allowed is not None and has_bound(kernel))


class Call(NamedTuple):
    """What a kernel computes at once: Q, K, V and O as batches; the number of the first LSE among all in memory; and
    which heads these batches are."""

    shape: Workload
    matrices: Matrices
    offset: int
    first_lse: int
    heads: Heads


@dataclass(frozen=True)
class Calls:
    """A workload as calls of a kernel; `interleaved`: the LSE of call n are those of the heads n, n + group, ..."""

    each: tuple[Call, ...]
    interleaved: bool = False


def has_usual_scale(work: Workload) -> bool:
    """Whether scores are scaled by 1/sqrt(d)."""
    return math.isclose(work.scale, work.usual_scale, rel_tol=1e-6)


def without_needless_mask(work: Workload) -> Workload:
    """The same workload; without a mask, if its first row sees all keys."""
    needless = work.causal and not work.window and work.offset + 1 >= work.Nk
    return replace(work, causal=False, offset=0) if needless else work


def is_packed(x: Operand) -> bool:
    """Whether a kernel can read or write the array as it is: rows one after the other, all heads at one distance."""
    (batch, heads, N, d), (by_batch, by_head, by_row, by_column) = x.shape, x.strides
    rows = (d == 1 or by_column == 1) and (N == 1 or by_row == d)
    steps = all(step > 0 and step % 4 == 0 for step, size in ((by_batch, batch), (by_head, heads)) if size > 1)
    uniform = batch == 1 or heads == 1 or by_batch == heads * by_head
    return rows and steps and uniform and x.address % 16 == 0


def is_contiguous(x: Operand) -> bool:
    """Whether its elements lie one after the other."""
    batch, heads, N, d = x.shape
    step = x.strides[1] if heads > 1 else x.strides[0]
    return is_packed(x) and (batch * heads == 1 or step == N * d)


def as_batches(work: Workload, operands: tuple[Operand, Operand, Operand, Operand]) -> Calls:
    """The calls of a kernel that compute a workload of packed arrays Q, K, V and O."""
    q, k, v, o = operands
    group = work.heads // work.kv_heads

    def of_batches(batches: int, rows: int) -> Workload:
        shape = Workload.one_head(batches, work.Nk, work.d, work.causal, rows)
        return replace(shape, scale=work.scale, window=work.window, score=work.score)

    if group == 1:
        shape = of_batches(work.batch * work.heads, work.Nq)
        return Calls((Call(shape, (_all(q), _all(k), _all(v), _all(o)), work.offset, 0, Heads(work.heads)),))
    batches = work.batch * work.kv_heads
    if not work.causal and not work.score and all(_step(x) == work.Nq * x.shape[3] for x in (q, o)):
        rows = group * work.Nq
        whole = [Matrix(x.address, rows * x.shape[3], rows * x.shape[3], x.shape[3]) for x in (q, o)]
        shape = of_batches(batches, rows)
        return Calls((Call(shape, (whole[0], _all(k), _all(v), whole[1]), 0, 0, Heads(work.kv_heads)),))

    def head(x: Operand, n: int) -> Matrix:
        step = group * _step(x)
        return Matrix(x.address + FLOAT_BYTES * n * _step(x), step, step, x.shape[3])

    shape = of_batches(batches, work.Nq)
    calls = (
        Call(
            shape,
            (head(q, n), _all(k), _all(v), head(o, n)),
            work.offset,
            n * batches * work.Nq,
            Heads(work.kv_heads, n, group),
        )
        for n in range(group)
    )
    return Calls(tuple(calls), interleaved=True)


def _step(x: Operand) -> int:
    """Elements from a head to the next."""
    return x.strides[1] if x.shape[1] > 1 else x.strides[0]


def _all(x: Operand) -> Matrix:
    """All heads of all batches as batches."""
    return Matrix(x.address, _step(x), _step(x), x.shape[3])

"""Gradients of attention of arrays: checks them, and computes dQ, dK and dV where they are."""

import functools
import math
import threading
from collections.abc import Iterator
from dataclasses import replace
from typing import Any, Never

from hw4cli.arrays.arguments import Window, check_flags, check_layout, checked_window, refuse
from hw4cli.arrays.attention import check_like, check_rows, check_window, shape_problem, workload_of
from hw4cli.arrays.gradients.oncpu import backward_on_cpu
from hw4cli.arrays.gradients.ongpu import BackwardOnGpu
from hw4cli.arrays.operand import NUMPY, Operand, address_of, cast, empty_like, operand, stream_of
from hw4cli.arrays.repeated import BACKWARD, are_plain, call_of
from hw4cli.arrays.scored import NOTHING, Scored, Words, said_of, scored
from hw4cli.arrays.sequences import (
    LEFT,
    RIGHT,
    Asked,
    Part,
    Sequences,
    asked,
    check_padding,
    four_dimensions,
    lse_of,
    part_of,
    sequences_of,
)
from hw4cli.arrays.staged import Staged, are_loadable
from hw4cli.device.gpu import Gpu, import_cupy
from hw4cli.device.launcher import Prepared, forgets
from hw4cli.plans.dispatch import AUTO
from hw4cli.plans.formulas import FLOAT
from hw4cli.plans.gradients import GRADIENTS
from hw4cli.problem.workload import BOTTOM_RIGHT, FLOAT32, Workload

WHOLE = Asked(None, None, RIGHT, None, None)  # no sequences but batches
_NO_WORDS: tuple[tuple[Any, ...] | None, tuple[Any, ...]] = (), ()
SCORES_BYTES = 1 << 30  # of scores whose gradients are kept at once
FLOAT32_FORWARD = "flash"  # the kernel of `attention` that rounds no more than float32 does, as gradients of it do


def attention_backward(
    do: Any,
    q: Any,
    k: Any,
    v: Any,
    o: Any,
    lse: Any,
    *,
    causal: bool = False,
    align: str = BOTTOM_RIGHT,
    window: tuple[int | None, int | None] | None = None,
    scale: float | None = None,
    layout: str = "BHND",
    kernel: str = AUTO,
    lengths: Any = None,
    q_lengths: Any = None,
    padding: str = RIGHT,
    cu_seqlens_q: Any = None,
    cu_seqlens_k: Any = None,
    score: str | None = None,
    keep: str | None = None,
    arrays: Any = None,
    softcap: float | None = None,
    alibi_slopes: Any = None,
    attn_mask: Any = None,
    mask_gradient: bool = False,
    **not_supported: Never,
) -> tuple[Any, ...]:
    """dQ, dK and dV of `attention`, where O has the gradient dO; for arrays of NumPy, CuPy or torch, where they are.

    q, k, v, causal, align, window, scale, layout, lengths and what is asked of scores are what `attention` was given; o
    and lse what it returned with return_lse=True: o like q, lse float32 (batch, heads, Nq), contiguous. do is like q.
    Rows and keys of no sequence have the gradient 0. Elements are float16, bfloat16 or float32; products and sums are
    in float32. No sum depends on the order in which blocks run: the same arrays give the same bits in every run. GPUs
    are not waited for, and nothing is copied there but rows that are no whole chunks of 16 bytes.

    On a GPU the fastest kernel computes, or the one named (docs/gradients.md); "backward_atomic" alone does not give
    the same bits again.

    Returns (dq, dk, dv), like q, k and v; with mask_gradient also the gradient of the additive attn_mask, like that,
    whose sums over dimensions that were broadcast are in one order. Slopes and `arrays` have no gradient. Raises as
    `attention` does. Source: Dao et al., FlashAttention (2022), algorithm 4, in two passes without atomic operations
    (docs/gradients.md).

    >>> import numpy as np
    >>> from hw4cli import attention
    >>> q, k, v, do = np.random.default_rng(0).standard_normal((4, 1, 2, 5, 8)).astype(np.float32)
    >>> o, lse = attention(q, k, v, causal=True, return_lse=True)
    >>> dq, dk, dv = attention_backward(do, q, k, v, o, lse, causal=True)
    >>> bool(np.allclose(dv.sum(axis=2), do.sum(axis=2), atol=1e-5))  # each row's weights add up to 1
    True
    """
    refuse("attention_backward", not_supported)
    options = causal, align, scale, layout, kernel, checked_window(window)
    words = None
    if not softcap is arrays is score is keep is alibi_slopes is attn_mask is None or mask_gradient is not False:
        words = Words(score, keep, arrays, softcap, alibi_slopes, attn_mask)
        check_flags(mask_gradient=mask_gradient)
    numbers = WHOLE
    if not lengths is q_lengths is cu_seqlens_q is cu_seqlens_k is None:
        numbers = asked(lengths, q_lengths, padding, cu_seqlens_q, cu_seqlens_k)
    elif padding != RIGHT:
        check_padding(padding)
    if numbers is WHOLE and not mask_gradient:
        return _gradients((do, q, k, v, o, lse), *options, whole=True, words=words)
    return _of_sequences((do, q, k, v, o, lse), numbers, *options, words, bool(mask_gradient))


def _of_sequences(
    arrays: tuple[Any, ...],
    numbers: Asked,
    causal: bool,
    align: str,
    scale: float | None,
    layout: str,
    kernel: str,
    window: Window | None,
    words: Words | None,
    mask_gradient: bool,
) -> tuple[Any, ...]:
    """The gradients of sequences of several lengths, or of whole arrays whose scores are changed: all arguments are
    checked before any is computed."""
    said, beside = _NO_WORDS if words is None else said_of(*words)
    key = causal, align, scale, layout, kernel, True, window, mask_gradient, numbers, said
    is_known = type(causal) is bool and are_plain(key[:5]) and said is not None
    if (found := _repeated(key, (*arrays, *beside), is_known)) is not None:
        return (*found[:3], of_mask(found[3], beside[-1])) if mask_gradient else found
    do, q, k, v, o, lse = arrays
    _check_options(causal, layout, kernel)
    packed = numbers.packed
    given = _operands((q, k, v, o, do), layout, packed)
    work = workload_of(given[:3], causal, align, scale, window)
    left = numbers.padding == LEFT and not packed
    sequences = sequences_of(work.batch, work.Nq, work.Nk, numbers)
    changes = scored(words, given[0], work, packed=sequences.longest, left=left, gradient=mask_gradient)
    work = changes.of(work)
    check_window(kernel, work, GRADIENTS)
    _check_like_q(given, work)
    log_sums = _checked_lse(lse[None] if packed and hasattr(lse, "shape") else lse, work, given[0])
    fills = sequences.fills_rows, sequences.fills_keys, sequences.fills_keys
    results = tuple(empty_like(x, tuple(array.shape)) for x, array in zip(given[:3], (q, k, v), strict=True))
    for result, is_filled in zip(results, fills, strict=True):
        if not is_filled:
            result[...] = 0
    added = _MaskGradient(changes.mask, given[0]) if mask_gradient else None
    each = sequences.of(work, align)
    chunks = list(_chunks(each)) if added else [each] if each.sequences else []
    # Copies are of whole arrays, so that a second chunk's would be in the place of the first one's results.
    if given[0].library != NUMPY and ((all(fills) and len(chunks) == 1) or are_loadable(given)):
        named = zip(("dq", "dk", "dv"), results, strict=True)
        made = tuple(four_dimensions(name, x, layout, packed) for name, x in named)
        launches = dscore = None
        for chunk in chunks:
            if added:
                dscore = _zeros(given[0], chunk)
            launches = backward_on_gpu(
                chunk, given, log_sums, made, kernel, views=changes.views, dscore=address_of(dscore)
            )
            if added:
                added.add(dscore, chunk.first_number)
        if is_known and launches and len(chunks) == 1 and (dscore is None or is_of(dscore.shape, changes.mask)):
            call = call_of(given[0], launches, results, gaps=not all(fills), ways=changes.ways, scores=dscore)
            BACKWARD.put(key, (*arrays, *beside), call)
        return (*results, added.found) if added else (results[0], results[1], results[2])
    for part in _limited(sequences, work) if added else sequences.parts:
        of_do, of_q, of_o, dq = (part_of(x, layout, sequences, part) for x in (do, q, o, results[0]))
        of_k, of_v, dk, dv = (part_of(x, layout, sequences, part, keys=True) for x in (k, v, *results[1:]))
        sums = lse_of(lse, sequences, part)
        sums = sums.contiguous() if hasattr(sums, "contiguous") else sums.copy()
        of_part = of_do, of_q, of_k, of_v, of_o, sums
        some, dscore = changes.of_batches(part.first.number), None
        if added:
            dscore = empty_like(given[0], (part.batches, work.heads, part.first.rows, part.first.keys), FLOAT32)
            dscore[...] = 0
        _computed(
            of_part, causal, align, scale, layout, kernel, window, results=(dq, dk, dv), changes=some, dscore=dscore
        )
        if added:
            added.add(dscore, part.first.number)
    return (*results, added.found) if added else (results[0], results[1], results[2])


def _limited(sequences: Sequences, work: Workload) -> Iterator[Part]:
    """The parts, of so few batches each that the gradients of their scores are no more than SCORES_BYTES, or one."""
    for first, count in sequences.parts:
        most = max(1, SCORES_BYTES // (FLOAT * work.heads * first.rows * first.keys))
        for done in range(0, count, most):
            yield Part(sequences.nth(first, done), min(most, count - done))


def _chunks(work: Workload) -> Iterator[Workload]:
    """The sequences of a workload, so few neighbours at a time that the gradients of their scores, each in the rows and
    keys of the longest, are no more than SCORES_BYTES, or one."""
    spans, begin, rows, keys = work.sequences, 0, 0, 0
    for n, span in enumerate(spans):
        rows, keys = max(rows, span.rows), max(keys, span.keys)
        if n > begin and not fits((span.number + 1 - spans[begin].number, work.heads, rows, keys)):
            yield replace(work, sequences=spans[begin:n])
            begin, rows, keys = n, span.rows, span.keys
    if spans:
        yield replace(work, sequences=spans[begin:])


def _zeros(like_q: Operand, work: Workload) -> Any:
    """Where the gradients of a workload's scores are written: those of pairs that there are not stay 0."""
    made = empty_like(like_q, work.of_scores, FLOAT32)
    made[...] = 0
    return made


class _MaskGradient:
    """The gradient of an additive mask: sums of those of the changed scores, part after part."""

    def __init__(self, mask: Any, like_q: Operand) -> None:
        self._mask, self._shape = mask, _four(mask)
        self._sums = empty_like(like_q, self._shape, FLOAT32)
        self._sums[...] = 0

    def add(self, dscore: Any, number: int) -> None:
        """Those of some sequences, (sequences, heads, rows, keys), of which the first has this number."""
        of_part, starts = _summed(dscore, self._shape), (number, 0, 0, 0)
        both = zip(self._shape, starts, of_part.shape, strict=True)
        self._sums[tuple(slice(None) if size == 1 else slice(at, at + count) for size, at, count in both)] += of_part

    @property
    def found(self) -> Any:
        """Of the mask's shape and type."""
        return cast(self._sums.reshape(self._mask.shape), self._mask.dtype)


def is_of(scores: tuple[int, ...], mask: Any) -> bool:
    """Whether those of this shape, added up where a mask is broadcast, are of its shape: not of a part of it."""
    return all(size in (1, found) for size, found in zip(_four(mask), scores, strict=True))


def fits(scores: tuple[int, ...]) -> bool:
    """Whether the gradients of so many scores are kept at once."""
    return FLOAT * math.prod(scores) <= SCORES_BYTES


def of_mask(dscore: Any, mask: Any) -> Any:
    """The gradient of an additive mask, of its shape and type."""
    return cast(summed(dscore, mask) + 0, mask.dtype)  # 0 has no sign, as where parts are added up


def summed(dscore: Any, mask: Any) -> Any:
    """The gradient of an additive mask, by those of all scores that it was added to."""
    return _summed(dscore, _four(mask)).reshape(mask.shape)


def _four(mask: Any) -> tuple[int, ...]:
    """The shape of a mask, as four dimensions."""
    return (1,) * (4 - len(mask.shape)) + tuple(mask.shape)


def _summed(x: Any, shape: tuple[int, ...]) -> Any:
    """Sums over the dimensions in which a shape has one element."""
    for axis, size in enumerate(shape):
        if size == 1 and x.shape[axis] > 1:
            x = x.sum(axis=axis, keepdims=True)
    return x


def gradients_of_some_keys(
    do: Any, q: Any, k: Any, v: Any, o: Any, lse: Any, *, causal: bool, align: str, scale: float | None
) -> tuple[Any, Any, Any]:
    """dQ, dK and dV of some of the keys, where o and lse are of all: what these keys add to dQ. Else as
    `attention_backward`."""
    return _gradients((do, q, k, v, o, lse), causal, align, scale, "BHND", AUTO, None, whole=False)


def _gradients(
    arrays: tuple[Any, ...],
    causal: bool,
    align: str,
    scale: float | None,
    layout: str,
    kernel: str,
    window: Window | None,
    whole: bool,
    words: Words | None = None,
) -> tuple[Any, Any, Any]:
    """dQ, dK and dV, in new arrays."""
    said, beside = _NO_WORDS if words is None else said_of(*words)
    is_known = type(causal) is bool and are_plain((align, scale, layout, kernel)) and said is not None
    options = causal, align, scale, layout, kernel, whole, window, said
    if (found := _repeated(options, (*arrays, *beside), is_known)) is not None:
        return found[0], found[1], found[2]
    results, launches, changes, like_q = _computed(
        arrays, causal, align, scale, layout, kernel, window, whole=whole, words=words
    )
    if is_known and launches:
        BACKWARD.put(options, (*arrays, *beside), call_of(like_q, launches, results, ways=changes.ways))
    return results[0], results[1], results[2]


def _computed(
    arrays: tuple[Any, ...],
    causal: bool,
    align: str,
    scale: float | None,
    layout: str,
    kernel: str,
    window: Window | None,
    *,
    whole: bool = True,
    words: Words | None = None,
    results: tuple[Any, ...] = (),
    changes: Scored = NOTHING,
    dscore: Any = None,
) -> tuple[tuple[Any, ...], Prepared | None, Scored, Operand]:
    """dQ, dK and dV, in new arrays, or in `results` where what becomes of scores is known already; `dscore`: where the
    gradient of changed scores is written. With them the launches, as of `backward_on_gpu`, what becomes of scores, and
    q."""
    do, q, k, v, o, lse = arrays
    _check_options(causal, layout, kernel)
    given = _operands((q, k, v, o, do), layout)
    work = workload_of(given[:3], causal, align, scale, window)
    changes = changes if words is None else scored(words, given[0], work)
    work = changes.of(work)
    check_window(kernel, work, GRADIENTS)
    _check_like_q(given, work)
    like_q = given[0]
    log_sums = _checked_lse(lse, work, like_q)
    results = results or tuple(empty_like(x, tuple(x.array.shape)) for x in given[:3])
    made = tuple(operand(name, x, layout) for name, x in zip(("dq", "dk", "dv"), results, strict=True))
    launches = None
    if like_q.library == NUMPY:
        backward_on_cpu(work, given, lse, made, whole, changes.views, dscore)
    else:
        at = 0 if dscore is None else address_of(dscore)
        launches = backward_on_gpu(work, given, log_sums, made, kernel, whole, changes.views, at)
    return results, launches, changes, like_q


def _repeated(options: tuple[Any, ...], arrays: tuple[Any, ...], is_known: bool) -> tuple[Any, ...] | None:
    """dQ, dK and dV, and the gradients of scores where these are wanted, if there was a call with these options, which
    are plain, and arrays of these kinds."""
    call = BACKWARD.find(options, arrays) if is_known else None
    return call.run(*arrays) if call is not None else None


def _check_options(causal: bool, layout: str, kernel: str) -> None:
    check_layout(layout)
    check_flags(causal=causal)
    if kernel not in (AUTO, *GRADIENTS):
        raise ValueError(f"kernel is {kernel!r}: give {' or '.join(map(repr, (AUTO, *GRADIENTS)))}")


def _operands(arrays: tuple[Any, ...], layout: str, packed: bool = False) -> tuple[Operand, ...]:
    """q, k, v, o and do."""
    named = zip(("q", "k", "v", "o", "do"), arrays, strict=True)
    return tuple(four_dimensions(name, array, layout, packed) for name, array in named)


def _check_like_q(given: tuple[Operand, ...], work: Workload) -> None:
    """Raise TypeError or ValueError unless o and do, which stand behind q, k and v, are like q, with V's columns."""
    q = given[0]
    for other in given[3:]:
        check_like(other, q, "q")
        if problem := shape_problem(other, q, work):
            raise ValueError(problem)


def _checked_lse(lse: Any, work: Workload, like_q: Operand) -> Operand:
    """The LSE as an operand. Raises TypeError or ValueError unless it is what `attention` returned."""
    wanted = (work.batch, work.heads, work.Nq)
    if not hasattr(lse, "shape"):
        raise TypeError(f"lse is a {type(lse).__name__}: give what attention returned")
    if tuple(lse.shape) != wanted:
        raise ValueError(f"lse has shape {tuple(lse.shape)}: give (batch, heads, Nq), here {wanted}")
    found = operand("lse", lse[..., None], "BHND")
    if (found.library, found.dtype, found.device) != (like_q.library, FLOAT32, like_q.device):
        raise TypeError(f"lse is {found.dtype} of {found.library} on {found.place}: give what attention returned")
    batch, heads, rows, _ = found.strides
    if (heads, rows) != (work.Nq if work.heads > 1 else 0, 1 if work.Nq > 1 else 0) or (
        work.batch > 1 and batch != work.heads * work.Nq
    ):
        raise ValueError("lse is not contiguous: give what attention returned")
    return found


def backward_on_gpu(
    work: Workload,
    given: tuple[Operand, ...],
    lse: Operand,
    made: tuple[Operand, ...],
    kernel: str = AUTO,
    whole: bool = True,
    views: tuple[int, ...] = (),
    dscore: int = 0,
) -> Prepared | None:
    """Enqueue the launches that write dQ, dK and dV, from q, k, v, o and do, on the arrays' current stream; those of
    the fastest kernel, or of the one named. `whole`: o and lse are of these keys, and of no others. `views`: the
    addresses of the arrays that a score names; `dscore`: that of the float32 (batch, heads, Nq, Nk) of zeros in which
    the gradients of its scores are wanted.

    Returns the launches if they are all that arrays of these kinds need: for the addresses of q, k, v, o, do, dq, dk,
    dv, the LSE and scratch."""
    cupy = import_cupy()
    with cupy.cuda.Device(lse.device):
        kernels, stream = _opened(lse.device or 0), stream_of(lse, cupy)
        work = kernels.as_computed(work, kernel)
        with Staged(kernels.gpu, stream, given, made, alike=not work.dv) as staged:
            operands = (*staged.given, *staged.made)
            for x in operands:
                check_rows(x)
            launches = kernels.prepared(work, tuple(x.strides[:3] for x in operands), kernel, whole)
            scratch = empty_like(lse, (launches.scratch // FLOAT,))  # of the arrays' library: a graph may capture it
            scores = (dscore,) if work.score and work.score.gradient else ()
            addresses = (*(x.address for x in operands), *views, *scores, lse.address, address_of(scratch))
            launches.enqueue(addresses, stream.ptr)
            return None if staged.copies else launches


def launches_for(
    work: Workload, operands: tuple[Operand, ...], kernel: str = AUTO, whole: bool = True
) -> Prepared | None:
    """The launches for arrays q, k, v, o, do, dq, dk and dv of these kinds that the checks have passed; None where
    arrays are copied before. See backward_on_gpu for the addresses."""
    device = operands[0].device
    with import_cupy().cuda.Device(device):
        kernels = _opened(device or 0)
        work = kernels.as_computed(work, kernel)
        if not are_loadable(operands, alike=not work.dv):
            return None
        return kernels.prepared(work, tuple(x.strides[:3] for x in operands), kernel, whole)


_OPENING = threading.Lock()


@functools.cache
def _open(device: int) -> BackwardOnGpu:
    return BackwardOnGpu(Gpu())


forgets(_open.cache_clear)


def _opened(device: int) -> BackwardOnGpu:
    """The kernels on the current device, opened once."""
    with _OPENING:
        return _open(device)

"""Attention of arrays: checks them, and computes it where they are."""

import functools
import math
import threading
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, NamedTuple, Never

from hw4cli.arrays.arguments import (
    Window,
    check_flags,
    check_layout,
    check_out,
    checked_bounds,
    checked_error,
    checked_window,
    checked_workload,
    mask_of,
    refuse,
)
from hw4cli.arrays.float32 import ByRange, Float32OnGpu, Operands
from hw4cli.arrays.oncpu import attention_on_cpu, wide_type
from hw4cli.arrays.ongpu import HalfOnGpu, Keys, OtherKeys, tuned
from hw4cli.arrays.operand import (
    LAYOUTS,
    NUMPY,
    Operand,
    address_of,
    check_capture,
    check_range_can_be_read,
    empty_like,
    is_capturing,
    largest,
    operand,
    stream_of,
)
from hw4cli.arrays.repeated import FORWARD, Call, Found, Grown, are_plain, call_of, scratch_of
from hw4cli.arrays.scored import MOST_INDICES, Scored, Words, said_of, scored
from hw4cli.arrays.sequences import (
    LEFT,
    RIGHT,
    Asked,
    Part,
    asked,
    check_padding,
    clear_gaps,
    four_dimensions,
    lse_of,
    part_of,
    sequences_of,
)
from hw4cli.arrays.staged import Staged, are_loadable
from hw4cli.device.gpu import Gpu, import_cupy
from hw4cli.device.launcher import Prepared, forgets
from hw4cli.plans.dispatch import AUTO
from hw4cli.plans.kernels16 import (
    ENTRIES16,
    KERNELS16,
    check_on_cpu,
    kernel_within,
    length_step,
    takes_sequences,
    takes_values,
)
from hw4cli.plans.ladder import VARIANTS
from hw4cli.plans.launch import Steps
from hw4cli.plans.plan import Kernel
from hw4cli.problem.workload import BFLOAT16, BOTTOM_RIGHT, FLOAT16, FLOAT32, MOST, Span, Workload

DTYPES = (FLOAT16, BFLOAT16, FLOAT32)
NO_SPANS: tuple[Span, ...] = ()


class Depending(NamedTuple):
    """The launches for arrays of which others of these kinds may need others, and what gives them."""

    launches: Prepared
    by_range: ByRange


def attention(
    q: Any,
    k: Any,
    v: Any,
    *,
    causal: bool = False,
    align: str = BOTTOM_RIGHT,
    window: tuple[int | None, int | None] | None = None,
    scale: float | None = None,
    layout: str = "BHND",
    kernel: str = AUTO,
    max_error: float | None = None,
    bounds: tuple[float, float, float] | None = None,
    return_lse: bool = False,
    out: Any = None,
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
    **not_supported: Never,
) -> Any:
    """O = softmax(scale Q Kᵀ) V, for arrays of NumPy (on the CPU), CuPy or torch (on their GPU, on the current stream).

    q is (batch, heads, Nq, d), k and v are (batch, kv_heads, Nk, d), or with layout="BNHD" (batch, N, heads, d); heads
    is a multiple of kv_heads. Elements are float16, bfloat16 or float32; d is 1 to 256. v, and O, may have another d.
    causal: row i sees the keys up to i + Nk - Nq, or, with align="top-left", up to i; a row that sees none gives 0.
    window: (left, right), of how many keys before this one, and behind it, row i sees no others; None for all, and
    causal, none behind it. Time is that of the keys that are seen.
    scale: 1/sqrt(d) by default. `max_error`, the error that is allowed, and `bounds`, the largest |element| of q, k and
    v, choose the kernel; without bounds they are read, of 16 bits for max_error alone: with max_error the GPU is waited
    for, else it chooses float32's kernel itself, but in cases that docs/api.md names.

    Returns O, like q with v's columns, or `out` where it is given; with return_lse also the float32 (batch, heads, Nq)
    logarithms of the sums of exp(score), -inf where a row sees no key.

    Sequences of several lengths, as lists or arrays of integers: of padded arrays, `lengths` are the numbers of keys of
    each batch, `q_lengths` those of rows, all of them where they are not given, with the padding behind or before them;
    of packed arrays (N, heads, d) with layout="BNHD", or (heads, N, d), sequence n has the rows from cu_seqlens_q[n] to
    cu_seqlens_q[n + 1] and the keys likewise, of which lengths and q_lengths may leave out some at the end, or at the
    beginning; the LSE is (heads, Nq). Masks are those of each sequence by itself.
    What belongs to none is not read; its rows of O are 0, their LSE -inf. Numbers on a GPU are waited for.

    Scores, scaled, become softcap * tanh(score / softcap) of `softcap`; lose slope * |i + Nk - Nq - j| of
    `alibi_slopes`, (heads,) or (batch, heads); become what `score` makes of them, an expression of s, b, h, i, j, Nq,
    Nk and of elements of `arrays`, a dictionary; and get `attn_mask` added, which broadcasts to (batch, heads, Nq, Nk).
    Of packed arrays, sequences take the place of the batch, and Nq and Nk are those of the longest, or more. Pairs of a
    row and a key have a score where `keep`, an expression, and a boolean attn_mask are true (docs/api.md).

    GPUs are not waited for else. On a GPU, arrays whose rows are no whole chunks of 16 bytes (of another d) are copied,
    and float32 ones whose rows do not follow one another; nothing else is. Any thread may call, and a CUDA graph may
    capture a call, with lengths if these are no arrays on a GPU.

    Raises TypeError for arrays of other libraries or element types, and for dropout, which is not supported; ValueError
    for expressions that are none, and for shapes, strides, devices or options that do not fit; MachineError if the GPU
    cannot do it.

    >>> import numpy as np
    >>> q = k = v = np.ones((1, 2, 5, 8), np.float16)
    >>> attention(q, k, v, causal=True).shape
    (1, 2, 5, 8)
    """
    flags = type(causal) is bool and type(return_lse) is bool
    numbers = None
    if not lengths is q_lengths is cu_seqlens_q is cu_seqlens_k is None:
        numbers = asked(lengths, q_lengths, padding, cu_seqlens_q, cu_seqlens_k)
    elif padding != RIGHT:
        check_padding(padding)
    if window is not None:
        window = checked_window(window)
    changes, given = None, (q, k, v)
    said: tuple[Any, ...] | None = ()
    if not softcap is arrays is score is keep is alibi_slopes is attn_mask is None:
        changes = score, keep, arrays, softcap, alibi_slopes, attn_mask
        said, beside = said_of(*changes)
        given = *given, *beside
    options: Any = None
    of_lengths = numbers is not None and changes is None
    if flags and out is None and said is not None:
        options = causal, align, scale, layout, kernel, max_error, bounds, return_lse, window, numbers, said
    if options and not not_supported and are_plain(options[:6], bounds):
        call = FORWARD.find(options, given, _kin if of_lengths else None)
        if call is not None and of_lengths and call.grown is not None:
            made = call.run(q, k, v, numbers)
        else:
            made = call.run(*given) if call is not None else None
        if made is not None:
            return made if return_lse else made[0]
    else:
        options = None
    refuse("attention", not_supported)
    check_layout(layout)
    check_flags(causal=causal, return_lse=return_lse)
    words = None if changes is None else Words(*changes)
    if numbers is not None:
        return _of_sequences(
            given,
            numbers,
            options and (options, _kin(options) if of_lengths else None),
            out,
            bounds,
            causal=causal,
            align=align,
            window=window,
            scale=scale,
            layout=layout,
            kernel=kernel,
            max_error=max_error,
            return_lse=return_lse,
            words=words,
        )
    operands = operand("q", q, layout), operand("k", k, layout), operand("v", v, layout)
    work = workload_of(operands, causal, align, scale, window)
    allowed, reach = checked_error(max_error), checked_bounds(bounds)
    scores = scored(words, operands[0], work, max_error=allowed)
    work = scores.of(work)
    _check_kernel(kernel, work, operands[0])
    like_q = operands[0]
    result = empty_like(like_q, (*like_q.array.shape[:-1], work.value_columns)) if out is None else out
    o = operand("out", result, layout)
    if out is not None:
        _check_place(o, operands, work)
    lse = empty_like(like_q, (work.batch, work.heads, work.Nq), FLOAT32) if return_lse else None
    launches = _compute(work, (*operands, o), lse, kernel, allowed, reach, scores.views)
    mask = causal, align, scale, window
    if options and launches:
        call = _call(launches, (*operands, o), lse, scores)
        if call and allowed is None:  # else the kernel depends on the number of keys
            call = growing(call, work, (*operands, o), kernel, mask)
        FORWARD.put(options, given, call)
    return (result, lse) if return_lse else result


def _kin(options: tuple[Any, ...]) -> tuple[Any, ...]:
    """The options of sequences, but for lengths, in which steps of decoding differ."""
    *others, numbers, _ = options
    return *others, numbers.kind


def _check_place(o: Operand, operands: tuple[Operand, ...], work: Workload) -> None:
    """Raise TypeError or ValueError unless O can be written there."""
    q = operands[0]
    check_like(o, q, "q")
    if problem := shape_problem(o, q, work):
        raise ValueError(problem)
    check_out(o, operands)


def shape_problem(x: Operand, q: Operand, work: Workload) -> str | None:
    """What is wrong with the shape of an array that is to have the rows of Q, and V's columns; None if nothing is."""
    if x.shape == (*q.shape[:3], work.value_columns):
        return None
    wanted = (*q.array.shape[:-1], work.value_columns)
    of = "that of q" if not work.dv else "that of q with v's columns"
    return f"{x.name} has shape {tuple(x.array.shape)}: give {of}, {wanted}"


def _of_sequences(
    given: tuple[Any, ...],
    numbers: Asked,
    key: Any,
    out: Any,
    bounds: Any,
    *,
    layout: str,
    words: Words | None,
    **options: Any,
) -> Any:
    """What `attention` returns for sequences of several lengths: all arguments are checked before any is computed.
    `given`: q, k, v and the arrays beside them. `key`: of a call that may be remembered, and of its kin, else None."""
    packed, arrays = numbers.packed, given[:3]
    of_q, of_k, of_v = (four_dimensions(name, x, layout, packed) for name, x in zip("qkv", arrays, strict=True))
    operands = of_q, of_k, of_v
    work = workload_of(operands, *(options[name] for name in ("causal", "align", "scale", "window")))
    sequences = sequences_of(work.batch, work.Nq, work.Nk, numbers)
    reach = checked_bounds(bounds)
    allowed = checked_error(options["max_error"])
    left = numbers.padding == LEFT and not packed
    changes = scored(words, operands[0], work, packed=sequences.longest, left=left, max_error=allowed)
    work = changes.of(work)
    _check_kernel(options["kernel"], work, operands[0])
    like_q = operands[0]
    result = empty_like(like_q, (*arrays[0].shape[:-1], work.value_columns)) if out is None else out
    o = four_dimensions("out", result, layout, packed)
    if out is not None:
        _check_place(o, operands, work)
    rows = work.batch, work.heads, work.Nq
    lse = empty_like(like_q, rows[1:] if packed else rows, FLOAT32) if options["return_lse"] else None
    gaps = not sequences.fills_rows
    if gaps and out is None:
        result[...] = 0
    elif gaps:
        clear_gaps(result, layout, sequences)  # alone: it may be q
    if gaps and lse is not None:
        lse[...] = -math.inf
    is_read = allowed is not None or (work.dtype == FLOAT32 and options["kernel"] == AUTO and words is None)
    if bounds is None and is_read and like_q.library != NUMPY:  # once, not for each sequence
        found = absmax(operands)
        bounds = found if all(map(math.isfinite, found)) else None
    at_once = work.dtype != FLOAT32 and takes_sequences(options["kernel"])
    if like_q.library != NUMPY and at_once and (not gaps or are_loadable((*operands, o))):
        each = sequences.of(work, options["align"])
        if each.sequences:
            launches = attention_on_gpu(each, (*operands, o), lse, options["kernel"], allowed, reach, changes.views)
            if key and isinstance(launches, Prepared):
                call, (exact, kin) = call_of(like_q, launches, (result,), lse, gaps, changes.ways), key
                if call and kin and allowed is None:
                    mask = options["causal"], options["align"], options["scale"], options["window"]
                    call = growing(call, each, (*operands, o), options["kernel"], mask, packed)
                FORWARD.put(exact, given, call, kin)
        return result if lse is None else (result, lse)
    for part in sequences.parts:
        q, out = (part_of(x, layout, sequences, part) for x in (arrays[0], result))
        k, v = (part_of(x, layout, sequences, part, keys=True) for x in arrays[1:])
        sums = _of_part((q, k, v, out), part, changes, layout, bounds, **options)
        if lse is not None:
            lse_of(lse, sequences, part)[...] = sums
    return result if lse is None else (result, lse)


def _of_part(
    arrays: tuple[Any, ...],
    part: Part,
    changes: Scored,
    layout: str,
    bounds: Any,
    *,
    kernel: str,
    max_error: Any,
    return_lse: bool,
    **mask: Any,
) -> Any:
    """Writes O, the last of the arrays, of neighbouring sequences of one length; returns the LSE, or None."""
    q, k, v, o = (operand(name, x, layout) for name, x in zip(("q", "k", "v", "out"), arrays, strict=True))
    changes = changes.of_batches(part.first.number)
    work = changes.of(workload_of((q, k, v), **mask))
    lse = empty_like(q, (work.batch, work.heads, work.Nq), FLOAT32) if return_lse else None
    _compute(work, (q, k, v, o), lse, kernel, checked_error(max_error), checked_bounds(bounds), changes.views)
    return lse


def _compute(
    work: Workload,
    operands: tuple[Operand, ...],
    lse: Any,
    kernel: str,
    allowed: float | None,
    reach: tuple[float, float, float] | None,
    views: tuple[Any, ...],
) -> Prepared | Depending | None:
    """Writes O, the last operand, and the LSE unless it is None, where the arrays are; the launches on a GPU, as of
    `attention_on_gpu`."""
    if operands[0].library != NUMPY:
        return attention_on_gpu(work, operands, lse, kernel, allowed, reach, views)
    *given, o = operands
    if work.dtype != FLOAT32 and allowed is not None:
        check_on_cpu(allowed, work, reach or absmax(tuple(given)))
    attention_on_cpu(work, tuple(given), o, lse, wide_type(work, tuple(given), allowed, reach), views)
    return None


def workload_of(
    operands: tuple[Operand, ...], causal: bool, align: str, scale: Any, window: Window | None = None
) -> Workload:
    """What q, k and v ask for. Raises TypeError or ValueError where they do not fit together, or the scale is wrong."""
    q, k, v = operands
    if q.dtype in DTYPES:  # else that is what is wrong
        for other in (k, v):
            check_like(other, q, "q")
    return checked_workload(q.dtype, DTYPES, q.shape, k.shape, v.shape, causal, align, scale, window)


def check_like(other: Operand, first: Operand, name: str) -> None:
    """Raise TypeError or ValueError unless both are of one library and element type, on one device."""
    if other.library != first.library:
        raise TypeError(f"{name} is an array of {first.library}, {other.name} of {other.library}: give all of one")
    if other.dtype != first.dtype:
        raise TypeError(f"{name} is {first.dtype}, {other.name} {other.dtype}: give one element type")
    if other.device != first.device:
        raise ValueError(f"{name} is on {first.place}, {other.name} on {other.place}: bring them together")


def _check_kernel(kernel: str, work: Workload, q: Operand) -> None:
    """Raise ValueError for a kernel that there is not."""
    known = [AUTO] if q.library == NUMPY else [AUTO, *KERNELS16] if work.dtype != FLOAT32 else [AUTO, *VARIANTS]
    if kernel not in known:
        where = "on the CPU" if q.library == NUMPY else f"for {work.dtype}"
        raise ValueError(f"kernel is {kernel!r}: {where} give {' or '.join(map(repr, known))}")
    entries: Mapping[str, Kernel] = VARIANTS if work.dtype == FLOAT32 else ENTRIES16
    check_window(kernel, work, entries)


def check_window(kernel: str, work: Workload, entries: Mapping[str, Kernel]) -> None:
    """Raise ValueError for a kernel that is named, and computes no windows where one is asked for, or does nothing with
    scores where something is."""
    if kernel != AUTO and work.window and not entries[kernel].windows:
        able = " or ".join(repr(name) for name in (AUTO, *entries) if name == AUTO or entries[name].windows)
        raise ValueError(f"kernel {kernel!r} computes no windows of keys: give {able}")
    if kernel != AUTO and not entries[kernel].takes_scores(work):
        able = " or ".join(repr(name) for name in (AUTO, *entries) if name == AUTO or entries[name].takes_scores(work))
        raise ValueError(f"kernel {kernel!r} changes no scores: give {able}")


def check_rows(x: Operand) -> None:
    """Raise ValueError unless the kernel can read, or write, rows in chunks of 16 bytes."""
    d = x.shape[3]
    chunk = 4 if x.dtype == FLOAT32 else 8
    if d > 1 and x.strides[3] != 1:
        raise ValueError(f"a row's elements of {x.name} do not lie side by side: stride {x.strides[3]}, not 1")
    if any(
        stride % chunk or (stride <= 0 and size > 1) for stride, size in zip(x.strides[:3], x.shape[:3], strict=True)
    ):
        where = f"the strides of {x.name} are {x.strides[:3]} elements for batch, head and row"
        raise ValueError(f"{where}: give positive multiples of {chunk}")
    if x.address % 16:
        raise ValueError(f"{x.name} does not begin at a multiple of 16 bytes")


def attention_on_gpu(
    work: Workload,
    operands: tuple[Operand, ...],
    lse: Any,
    kernel: str,
    max_error: float | None,
    bounds: tuple[float, float, float] | None,
    views: tuple[int, ...] = (),
) -> Prepared | Depending | None:
    """Enqueue the launches that write O, the last operand, and, unless it is None, the LSE, on the current stream.
    `views`: the addresses of the arrays that a score names.

    Returns them if they are all that arrays of these kinds need: for the addresses of the operands, of the LSE and of
    scratch."""
    q = operands[0]
    cupy = import_cupy()
    with cupy.cuda.Device(q.device):
        half, float32 = _opened(q.device or 0)
        stream = stream_of(q, cupy)
        alike = work.dtype == FLOAT32 or max_error is not None or not takes_values(work, half.gpu.props, kernel)
        work = work.of_one_width if alike else work
        with Staged(float32.gpu, stream, operands[:3], operands[3:], alike) as staged:
            (q, k, v), (o,) = staged.given, staged.made
            if work.dtype == FLOAT32:
                known = float32.without_reading(work, (q, k, v), kernel, max_error, bounds)
                chosen = known or float32.kernel(work, (q, k, v), kernel, max_error, bounds, stream)
                launches = float32.compute(work, (q, k, v, o), lse, chosen, stream, views)
                if launches is None or staged.copies:
                    return None
                if known is None:
                    by_range = float32.by_range(work, (q, k, v, o), kernel, max_error, lse is not None)
                    return by_range and Depending(launches, by_range)
                return launches
            for x in (q, k, v, o):
                check_rows(x)
            if max_error is not None:
                found, longest = bounds or absmax((q, k, v)), replace(work, Nk=work.most_keys)
                kernel = kernel_within(max_error, longest, found, half.gpu.props, kernel)
            planned = half.planned(work, kernel)
            check_capture(q, half.gpu.is_compiled(planned))
            scratch = empty_like(q, (planned.scratch // 4,), FLOAT32) if planned.scratch else None
            launches = half.prepared(work, tuple(x.strides[:3] for x in (q, k, v, o)), kernel)
            addresses = (q.address, k.address, v.address, o.address, *views, address_of(lse), address_of(scratch))
            launches.enqueue(addresses, stream.ptr)
            depends = bounds is None and max_error is not None
            return None if depends or staged.copies else launches


def launches_for(
    work: Workload, operands: tuple[Operand, Operand, Operand, Operand], kernel: str, lse: bool
) -> Prepared | None:
    """The launches of a kernel that write O, the last operand, and an LSE if it is wanted, for arrays of these kinds
    that the checks have passed; None where arrays are read or copied before. See attention_on_gpu for the addresses."""
    q = operands[0]
    if not are_loadable(operands):
        return None
    with import_cupy().cuda.Device(q.device):
        half, float32 = _opened(q.device or 0)
        if work.dtype == FLOAT32:
            known = float32.without_reading(work, operands[:3], kernel, None, None)
            return None if known is None else float32.launches(work, operands, known, lse)
        return half.prepared(work, tuple(x.strides[:3] for x in operands), kernel)


def _call(launches: Prepared | Depending, operands: Operands, lse: Any, changes: Scored) -> Call | None:
    """The call that writes O, the last operand, and the LSE unless it is None, as it is remembered."""
    q, o = operands[0], operands[3].array
    if isinstance(launches, Depending):
        call = call_of(q, launches.launches, (o,), lse)
        return call and call._replace(choose=launches.by_range)
    return call_of(q, launches, (o,), lse, ways=changes.ways)


def growing(
    call: Call, work: Workload, operands: Operands, kernel: str, mask: tuple[Any, ...], packed: bool = False
) -> Call:
    """The call of q, k, v and o, of which another number of keys makes another call without all checks: those of K, V,
    the mask and lengths of sequences alone. That is for steps of decoding, each of which has one key more. `mask`:
    causal, align, scale and window, as they were given. `packed`: the arrays have no batch."""
    if work.dtype == FLOAT32 or (work.score and work.score.arrays) or work.dv:
        return call
    q, device = operands[0], operands[0].device or 0
    if work.sequences and not length_step(work, _opened(device)[0].gpu.props):
        return call
    library_name, layout, (causal, align, _, window) = q.library, q.layout, mask
    half = _opened(device)[0]
    others = OtherKeys(half, work, q.matrix.steps, operands[3].matrix.steps, kernel)
    strides, most = call.library.strides, MOST_INDICES - 1 if work.score else MOST

    last: tuple[Any, Found | None] = None, None  # the next layer of a model asks for the same

    def launches(k: Any, v: Any, numbers: Asked | None = None) -> Found | None:
        """For K and V of the same types and on the same device, which is the current one. None where the arrays must be
        checked: that says what is wrong, or copies what kernels cannot read."""
        nonlocal last
        given = (k.shape, strides(k)), (v.shape, strides(v)), numbers
        same, found = last
        if given != same:
            found = checked(*given)
            last = (given, found) if found else last
        return found

    def checked(of_keys: tuple[Any, Any], of_values: tuple[Any, Any], numbers: Asked | None) -> Found | None:
        if packed:
            of_keys, of_values = (((1, *shape), (0, *steps)) for shape, steps in (of_keys, of_values))
        keys, of_k = _readable_keys(*of_keys, layout, work)
        also, of_v = (keys, of_k) if of_values == of_keys else _readable_keys(*of_values, layout, work)
        if keys != also or not 0 < keys <= most:
            return None
        try:
            hides, offset, width = mask_of(work.Nq, keys, causal, align, window)
            spans, gaps = NO_SPANS, False
            if numbers is not None:
                sequences = sequences_of(work.batch, work.Nq, keys, numbers)
                spans, gaps, offset = sequences.masked(hides, offset, align), not sequences.fills_rows, 0
                if not spans:
                    return None
        except ValueError:
            return None
        asked = Keys(keys, of_k, of_v, hides, offset, width, spans)
        prepared = others.known(asked)
        if prepared is None:
            if is_capturing(library_name) or half is not _opened(device)[0]:
                return None
            import_cupy().cuda.runtime.setDevice(device)  # a thread that has called nothing yet has no context
            prepared = others.prepare(asked)
        return (*prepared, gaps, scratch_of(call.library, prepared[0], device)) if prepared[0].is_filled else None

    return call._replace(grown=Grown(LAYOUTS[layout][2] - packed, launches))


def _readable_keys(shape: Any, strides: Any, layout: str, work: Workload) -> tuple[int, Steps]:
    """How many keys an array has, and its strides, if kernels can read it as K or V of a workload of 16-bit numbers;
    else 0 keys. See check_rows."""
    if len(shape) != 4 or strides[3] != 1:
        return 0, (0, 0, 0)
    (batch, heads, keys, d), (of_batch, of_head, of_row, _) = shape, strides
    if layout == "BNHD":
        heads, keys, of_head, of_row = keys, heads, of_row, of_head
    steps = of_batch if batch > 1 else 0, of_head if heads > 1 else 0, of_row if keys > 1 else 0
    fits = (batch, heads, d) == (work.batch, work.kv_heads, work.d)
    if not fits or (steps[0] | steps[1] | steps[2]) % 8 or steps[0] < (batch > 1) or steps[1] < (heads > 1):
        return 0, steps
    return keys if steps[2] >= (keys > 1) else 0, steps


def absmax(operands: tuple[Operand, ...]) -> tuple[float, float, float]:
    """The largest |element| of Q, K and V. Waits for the GPU; ValueError while a CUDA graph is captured."""
    check_range_can_be_read(operands[0])
    q, k, v = map(largest, operands)
    return q, k, v


_OPENING = threading.Lock()


@functools.cache
def _open(device: int) -> tuple[HalfOnGpu, Float32OnGpu]:
    gpu = Gpu()
    return HalfOnGpu(gpu, tuned(gpu)), Float32OnGpu(gpu)


forgets(_open.cache_clear)


def _opened(device: int) -> tuple[HalfOnGpu, Float32OnGpu]:
    """The kernels on the current device, opened once."""
    with _OPENING:
        return _open(device)

"""Repeated calls of hw4cli.torch.attention, eagerly: the same results and bits as by the operator, without its cost.

torch's dispatcher and a custom operator take longer than the launches. So calls whose like was checked before go from
here straight to the launcher (hw4cli/arrays/repeated.py), and where a gradient is wanted, by a torch.autograd.Function.
The operator is what everything sees that records or transforms calls: torch.compile, export, tracing, modes, torch.func
and forward-mode differentiation; a gradient that is to be derived itself is computed by it, too.
"""

import math
from collections.abc import Callable, Sequence
from contextlib import suppress
from operator import attrgetter
from types import NoneType
from typing import Any

import torch
from torch import Tensor
from torch.autograd import forward_ad

from hw4cli.arrays import attention as arrays
from hw4cli.arrays.arguments import ALL, Window
from hw4cli.arrays.autograd import direct, operators
from hw4cli.arrays.gradients import backward as gradients
from hw4cli.arrays.repeated import (
    PLAIN,
    Call,
    Calls,
    Run,
    Way,
    backward,
    call_of,
    call_with_inner_lse,
    forward,
    is_known,
)
from hw4cli.arrays.scored import NOTHING, Words, said_of, scored
from hw4cli.arrays.sequences import LEFT, asked, four_dimensions, sequences_of
from hw4cli.plans.kernels16 import takes_sequences
from hw4cli.problem.scores import MOST_ARRAYS
from hw4cli.problem.workload import FLOAT32, Workload

Options = tuple[Any, ...]
EVERY = ALL, ALL  # keys
PLAIN_OPTIONS = 6  # without sequences of several lengths, and what becomes of scores
PLAIN_TENSORS = 6  # dO, q, k, v, O and the LSE

is_compiling = torch.compiler.is_compiling
_is_grad_enabled = torch.is_grad_enabled
_is_on_gpu = attrgetter("is_cuda")
dispatch_modes = getattr(torch._C, "_len_torch_dispatch_stack", lambda: 0)
_function_modes = getattr(torch._C, "_len_torch_function_stack", lambda: True)  # True: a torch that does not tell
_NUMBERS, _TEXTS, _SCALES = {int, float}, {str, NoneType}, PLAIN - {str}


def _is_watched() -> bool:
    """Whether anything wants to see the operator that is called, of which arrays' kinds know nothing: a function mode,
    forward-mode differentiation. Of dispatch modes, transformations, tracers and autocast they do (repeated.py)."""
    return bool(_function_modes()) or forward_ad._current_level >= 0


def options_of(
    is_causal: Any, enable_gqa: Any, align: Any, scale: Any, window: Window | None, kernel: Any, dropout_p: Any
) -> tuple[Any, ...] | None:
    """The options of a call that may be a repeated one, as part of its key; None for others."""
    if (
        type(is_causal) is bool
        and type(enable_gqa) is bool
        and type(align) is str
        and type(scale) in _SCALES
        and type(kernel) in _TEXTS
        and type(dropout_p) in _NUMBERS
        and not dropout_p
    ):
        return is_causal, enable_gqa, align, scale, window, kernel
    return None


def with_more(
    q: Any, options: Options, words: tuple[Any, ...] | None, lengths: tuple[Any, ...] | None
) -> tuple[Options | None, tuple[Any, ...]]:
    """The options of a call with changed scores (`said_of`), or with sequences of several lengths (`asked`), as part of
    its key, and the arrays that a score names; None, and none, where it is no repeated one. Numbers on a GPU are waited
    for."""
    said: Any = None
    beside: tuple[Any, ...] = ()
    if words is not None:
        said, beside = said_of(*words)
    if (words is not None and said is None) or not (is_known(q) or (isinstance(q, Tensor) and q.is_cuda)):
        return None, ()
    return (*options, None if lengths is None else asked(*lengths), said), beside


def repeated(q: Any, k: Any, v: Any, options: Options, *beside: Any) -> Tensor | None:
    """O, if there was such a call. `beside`: arrays that a score names."""
    if _function_modes() or forward_ad._current_level >= 0:
        return None
    of_lengths = len(options) > PLAIN_OPTIONS and options[PLAIN_OPTIONS] is not None and options[-1] is None
    call = FORWARD.find(options, (q, k, v, *beside), _kin) if of_lengths else FORWARD.find(options, (q, k, v, *beside))
    if call is None:
        return None
    if of_lengths and call.grown is not None:
        beside = (options[PLAIN_OPTIONS],)
    if call.lse is not None:
        o: Tensor = call.run(q, k, v, *beside)
        return o
    found = call.run(q, k, v, *beside)
    return None if found is None else found[0]


def first(compute: Callable[[], Tensor], tensors: tuple[Tensor, ...], options: Options, kernel: str) -> Tensor:
    """O of a call that is no repeated one: `compute` checks it, and it is remembered, as `remember` does.

    Where a gradient is wanted, O is that of the repeated call from the first time on: it keeps another LSE for the
    backward pass than the operator does, and torch.utils.checkpoint compares what a call keeps with what it keeps when
    it is made again."""
    if not _is_new_forward(tensors, options):
        return compute()
    q, k, v, *beside = tensors
    wants_gradient = _is_grad_enabled() and any(x.requires_grad for x in tensors)
    if not wants_gradient or not _are_readable((q, k, v), beside):
        remember(tensors, o := compute(), options, kernel)
        return o
    with torch.no_grad():
        o = compute()
    remember(tensors, o.requires_grad_(), options, kernel)
    again = repeated(q, k, v, options, *beside)
    return compute() if again is None else again


def _is_new_forward(tensors: tuple[Tensor, ...], options: Options) -> bool:
    return _is_on_gpu(tensors[0]) and not dispatch_modes() and _is_new(FORWARD, tensors, options)


def _is_new(calls: Calls, tensors: tuple[Tensor, ...], options: Any) -> bool:
    """Whether a call may be remembered, and was not."""
    return not (_is_watched() or is_compiling() or calls.knows(options, tensors))


def _sums_of(lse: Tensor, q: Tensor) -> Tensor:
    """(batch, heads, Nq), of an LSE that is an operator's, or a repeated call's own with scratch behind it."""
    rows = q.shape[:-1]
    return lse if lse.shape == rows else lse[: math.prod(rows)].view(rows)


def remember(tensors: tuple[Tensor, ...], o: Tensor, options: Options, kernel: str) -> None:
    """Remember a call that was answered with O: q, k, v, and the arrays that a score names. `kernel`: the one that the
    option stands for."""
    if not _is_new_forward(tensors, options):
        return
    q, k, v, *beside = tensors
    call = None
    if _are_readable((q, k, v), beside):
        with torch.no_grad():
            work, operands, ways, gaps = _described((q, k, v, o), options, beside)
            wants_lse = o.requires_grad
            of_parts = _are_sequences(options) and not _is_at_once(work, kernel)
            launches = None if of_parts else arrays.launches_for(work, operands, kernel, wants_lse)
            if wants_lse:
                call = call_with_inner_lse(operands[0], launches, o, math.prod(operands[0].shape[:3]))
            else:
                call = call_of(operands[0], launches, (o,))
                mask = options[0], options[2], options[3], options[4]
                packed = _are_sequences(options) and options[PLAIN_OPTIONS].packed
                call = call and arrays.growing(call, work, operands, kernel, mask, packed)
            call = call and call._replace(gaps=gaps[0], ways=ways)
    of_lengths = _are_sequences(options) and options[-1] is None
    FORWARD.put(options, tensors, call, _kin(options) if of_lengths else None)


def _kin(options: Options) -> Options:
    """The options of sequences but for their lengths, in which steps of decoding differ."""
    *others, numbers, _ = options
    return *others, numbers.kind


def _are_readable(tensors: tuple[Tensor, ...], beside: Sequence[Tensor]) -> bool:
    """Whether kernels read them, and what a score names, where they lie: not those that stand for many, as vmap's do,
    and have no memory, and no negative views."""
    try:
        return all(map(operators.is_readable, tensors)) and not any(x.is_neg() for x in beside)
    except RuntimeError:
        return False


def _described(
    tensors: tuple[Tensor, ...], options: Options, beside: Sequence[Tensor], gradient: bool = False
) -> tuple[Workload, tuple[Any, ...], tuple[Way, ...], tuple[bool, bool]]:
    """What tensors ask for that the checks have passed, of which the first three are q, k and v; all of them; how those
    beside them are read; and whether there are rows, and rows or keys, of no sequence. `gradient`: of a mask, too."""
    is_causal, _, align, scale, window, _, *more = options
    numbers, said = more or (None, None)
    packed = numbers is not None and numbers.packed
    changes, gaps, longest = NOTHING, (False, False), None
    operands = tuple(four_dimensions("", x.detach(), "BHND", packed) for x in tensors)
    work = arrays.workload_of(operands[:3], is_causal, align, scale, window)
    of_score = work
    if numbers is not None:
        sequences = sequences_of(work.batch, work.Nq, work.Nk, numbers)
        work, longest = sequences.of(work, align), sequences.longest
        gaps = not sequences.fills_rows, not (sequences.fills_rows and sequences.fills_keys)
    if said is not None:
        left = numbers is not None and numbers.padding == LEFT and not packed
        changes = scored(Words.of(said, beside), operands[0], of_score, packed=longest, left=left, gradient=gradient)
    return changes.of(work), operands, changes.ways, gaps


def _with_derivative(run: Run, options: Options) -> Run:
    """O of a repeated call, which can be derived; by a Function of its own for each kind of call, as what all calls of
    a kind have in common would else be arguments of each, and attributes of its node."""

    class Attention(torch.autograd.Function):  # type: ignore[misc]
        """The derivative."""

        @staticmethod
        def forward(ctx: Any, q: Tensor, k: Tensor, v: Tensor, *beside: Tensor) -> Tensor:
            """O; the LSE is kept for the backward pass, as numbers in a row, or as (batch, heads, Nq)."""
            found = run(q, k, v, *beside)
            o, lse = _checked(q, k, v, options, beside) if found is None else found
            ctx.save_for_backward(q, k, v, o, lse, *beside)
            return o

        @staticmethod
        def backward(ctx: Any, do: Tensor) -> tuple[Any, ...]:
            """dQ, dK and dV: as a repeated call if there was one, else by the operator. Where they are to be derived in
            turn, tensors that require a gradient are of another kind."""
            tensors: tuple[Tensor, ...] = (do,) + ctx.saved_tensors  # noqa: RUF005 - in half of a display's steps
            if len(tensors) > PLAIN_TENSORS and ctx.needs_input_grad[-1]:  # of what is beside q, k and v, a mask alone
                dq, dk, dv, dmask = _with_masks(tensors, options)
                return (dq, dk, dv, *_NO_GRADIENTS[: len(tensors) - PLAIN_TENSORS - 1], dmask)
            call = BACKWARD.find(options, tensors)
            found = None if call is None else call.run(*tensors)
            return (found or _gradients(tensors, options)) + _NO_GRADIENTS[: len(tensors) - PLAIN_TENSORS]

    # Without the Python of a node, which looks for what the backward pass is called; and without that of
    # Function.apply, which is for torch.func's transformations: with these nothing comes here.
    with suppress(AttributeError):
        Attention._backward_cls.apply = Attention.backward
    applied: Run = super(torch.autograd.Function, Attention).apply
    return applied


_NO_GRADIENTS = (None,) * MOST_ARRAYS  # of what is beside q, k and v


def _runs(call: Call, options: Options) -> Run:
    """What gives O and None, or, where a gradient is wanted, O alone."""
    run = forward(call)
    return run if call.lse is None else _with_derivative(run, options)


FORWARD, BACKWARD = Calls(_runs, _is_grad_enabled), Calls(backward, _is_grad_enabled)


def _checked(q: Tensor, k: Tensor, v: Tensor, options: Options, beside: Sequence[Tensor]) -> tuple[Tensor, Tensor]:
    """O and the LSE of a call that is to be checked anew."""
    if len(options) > PLAIN_OPTIONS:
        return direct.forward(q, k, v, *_asked(q, options, beside))
    *mask, kernel = options
    arguments = *_mask(mask), kernel or operators.usual_kernel(q)
    return operators.forward(q, k, v, *arguments)


def _are_sequences(options: Options) -> bool:
    """Whether a call is of sequences of several lengths."""
    return len(options) > PLAIN_OPTIONS and options[PLAIN_OPTIONS] is not None


def _is_at_once(work: Workload, kernel: str) -> bool:
    """Whether one launch of the forward pass computes sequences of several lengths, of which there are any."""
    return bool(work.sequences) and work.dtype != FLOAT32 and takes_sequences(kernel)


def _asked(q: Tensor, options: Options, beside: Sequence[Tensor]) -> tuple[dict[str, Any], Words]:
    """The arguments of hw4cli.attention of a call with more options."""
    is_causal, _, align, scale, window, kernel, numbers, said = options
    found = {"causal": is_causal, "align": align, "scale": scale, "window": window}
    found |= {"kernel": kernel or operators.usual_kernel(q)} | ({} if numbers is None else numbers.arguments)
    return found, Words() if said is None else Words.of(said, beside)


def _mask(options: Sequence[Any]) -> Options:
    """The operators' arguments of the mask and the scale."""
    is_causal, _, align, scale, window = options
    return is_causal, align, scale, *(window or EVERY)


def _gradients(tensors: tuple[Tensor, ...], options: Options) -> tuple[Tensor, Tensor, Tensor]:
    """dQ, dK and dV for dO, q, k, v, O, the LSE and what is beside them, by the operator; the call is remembered."""
    do, q, k, v, o, lse, *beside = tensors
    sums = _sums_of(lse, q)
    if len(options) > PLAIN_OPTIONS:
        dq, dk, dv = direct.derive((do, q, k, v, o, sums), *_asked(q, options, beside))
    else:
        dq, dk, dv = operators.derive(do, q, k, v, o, sums, *_mask(options[:-1]))
    if not _is_grad_enabled() and _is_new(BACKWARD, tensors, options):
        call = None
        if _are_readable((do, q, k, v, o), beside):
            work, operands, ways, gaps = _described((q, k, v, o, do, dq, dk, dv), options, beside)
            is_empty = _are_sequences(options) and not work.sequences
            launches = None if is_empty else gradients.launches_for(work, operands)
            call = call_of(operands[0], launches, (dq, dk, dv), None, gaps[1], ways)
        BACKWARD.put(options, tensors, call)
    return dq, dk, dv


def _with_masks(tensors: tuple[Tensor, ...], options: Options) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """dQ, dK and dV for the same tensors, of which an additive mask is the last, and that of the mask."""
    key, mask = (options, True), tensors[-1]
    call = BACKWARD.find(key, tensors)
    found = None if call is None else call.run(*tensors)
    if found is not None:
        return found[0], found[1], found[2], gradients.of_mask(found[3], mask)
    do, q, k, v, o, lse, *beside = tensors
    sums = _sums_of(lse, q)
    dq, dk, dv, dmask = direct.derive((do, q, k, v, o, sums), *_asked(q, options, beside), of_mask=True)
    if not _is_grad_enabled() and _is_new(BACKWARD, tensors, key):
        call = None
        if _are_readable((do, q, k, v, o), beside):
            work, operands, ways, gaps = _described((q, k, v, o, do, dq, dk, dv), options, beside, gradient=True)
            launches, shape = None, work.of_scores
            if work.sequences or not _are_sequences(options):
                is_kept = gradients.fits(shape) and gradients.is_of(shape, mask)
                launches = gradients.launches_for(work, operands) if is_kept else None
            scores = torch.empty(shape, dtype=torch.float32, device="meta")
            call = call_of(operands[0], launches, (dq, dk, dv), None, gaps[1], ways, scores)
        BACKWARD.put(key, tensors, call)
    return dq, dk, dv, dmask

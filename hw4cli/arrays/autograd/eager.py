"""Repeated calls of hw4cli.torch.attention, eagerly: the same results and bits as by the operator, without its cost.

torch's dispatcher and a custom operator take longer than the launches. So calls whose like was checked before go from
here straight to the launcher (hw4cli/arrays/repeated.py), and where a gradient is wanted, by a torch.autograd.Function.
The operator is what everything sees that records or transforms calls: torch.compile, export, tracing, modes, torch.func
and forward-mode differentiation; a gradient that is to be derived itself is computed by it, too.
"""

from collections.abc import Sequence
from types import NoneType
from typing import Any

import torch
from torch import Tensor
from torch.autograd import forward_ad

from hw4cli.arrays import attention as arrays
from hw4cli.arrays.arguments import ALL, Window
from hw4cli.arrays.autograd import operators
from hw4cli.arrays.gradients import backward as gradients
from hw4cli.arrays.operand import operand
from hw4cli.arrays.repeated import PLAIN, Call, Calls, backward, call_of, call_with_inner_lse, forward

FORWARD, BACKWARD = Calls(), Calls()
Options = tuple[Any, ...]
EVERY = ALL, ALL  # key

is_compiling = torch.compiler.is_compiling
_is_grad_enabled = torch.is_grad_enabled
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


def repeated(q: Any, k: Any, v: Any, options: Options) -> Tensor | None:
    """O, if there was such a call."""
    if _function_modes() or forward_ad._current_level >= 0:
        return None
    call = FORWARD.find(options, (q, k, v))
    if call is None:
        return None
    if call.lse is not None:
        o: Tensor = _apply(q, k, v, call, options)
        return o
    found = forward(call, q, k, v)
    return None if found is None else found[0]


def remember(tensors: tuple[Tensor, Tensor, Tensor], o: Tensor, options: Options, kernel: str) -> None:
    """Remember a call that was answered with O. `kernel`: the one that the option stands for."""
    q, k, v = tensors
    if not q.is_cuda or _is_watched() or is_compiling() or FORWARD.knows(options, tensors):
        return
    call = None
    if _are_readable(tensors):
        with torch.no_grad():
            work, operands = _described((q, k, v, o), options)
            wants_lse = o.requires_grad
            launches = arrays.launches_for(work, operands, kernel, wants_lse)
            rows = work.batch * work.heads * work.Nq
            given = call_with_inner_lse(operands[0], launches, o, rows) if wants_lse else None
            call = given if wants_lse else call_of(operands[0], launches, (o,))
    FORWARD.put(options, tensors, call)


def _are_readable(tensors: tuple[Tensor, ...]) -> bool:
    """Whether kernels read them where they lie: not those that stand for many, as vmap's do, and have no memory."""
    try:
        return all(map(operators.is_readable, tensors))
    except RuntimeError:
        return False


def _described(tensors: tuple[Tensor, ...], options: Options) -> tuple[Any, Any]:
    """What tensors ask for that the checks have passed, of which the first three are q, k and v; and all of them."""
    is_causal, _, align, scale, window, _ = options
    operands = tuple(operand("", x.detach(), "BHND") for x in tensors)
    return arrays.workload_of(operands[:3], is_causal, align, scale, window), operands


class Attention(torch.autograd.Function):  # type: ignore[misc]
    """The derivative of a repeated call."""

    @staticmethod
    def forward(ctx: Any, q: Tensor, k: Tensor, v: Tensor, call: Call, options: Options) -> Tensor:
        """O; the LSE is kept for the backward pass, as numbers one after the other, or as (batch, heads, Nq)."""
        found = forward(call, q, k, v)
        o, lse = operators.forward(q, k, v, *_checked(q, options)) if found is None else found
        ctx.save_for_backward(q, k, v, o, lse)
        ctx.options = options
        return o

    @staticmethod
    def backward(ctx: Any, do: Tensor) -> tuple[Any, ...]:
        """dQ, dK and dV."""
        return (*_gradients((do, *ctx.saved_tensors), ctx.options), None, None)


# Without the Python of Function.apply, which is for torch.func's transformations: with these nothing comes here.
_apply = super(torch.autograd.Function, Attention).apply


def _checked(q: Tensor, options: Options) -> Options:
    """What the operator is called with behind q, k and v."""
    *mask, kernel = options
    return *_mask(mask), kernel or operators.usual_kernel(q)


def _mask(options: Sequence[Any]) -> Options:
    """The operators' arguments of the mask and the scale."""
    is_causal, _, align, scale, window = options
    return is_causal, align, scale, *(window or EVERY)


def _gradients(tensors: tuple[Tensor, ...], options: Options) -> tuple[Tensor, Tensor, Tensor]:
    """dQ, dK and dV for dO, q, k, v, O and the LSE: as a repeated call if there was one, else by the operator. Where
    they are to be derived in turn, tensors that require a gradient are of another kind."""
    kept = _mask(options[:-1])
    call = BACKWARD.find(kept, tensors)
    found = None if call is None else backward(call, *tensors)
    if found is not None:
        return found[0], found[1], found[2]
    do, q, k, v, o, lse = tensors
    sums = lse if lse.dim() == 3 else lse[: q.shape[0] * q.shape[1] * q.shape[2]].view(q.shape[:3])
    dq, dk, dv = operators.derive(do, q, k, v, o, sums, *kept)
    if not (_is_grad_enabled() or _is_watched() or is_compiling() or BACKWARD.knows(kept, tensors)):
        call = None
        if _are_readable((do, q, k, v, o)):
            work, operands = _described((q, k, v, o, do, dq, dk, dv), options)
            launches = gradients.launches_for(work, operands)
            call = call_of(operands[0], launches, (dq, dk, dv))
        BACKWARD.put(kept, tensors, call)
    return dq, dk, dv

"""Attention whose scores are changed as operators of torch, torch.ops.hw4cli.attention_changed and its backward pass:
what torch.compile and torch.export have in their graphs. Eager calls go by direct.py, whose formulas these are.

A mask and the arrays that a score names are tensors, what is asked of scores are texts and numbers: `names` are those
of the arrays, with a space between them, behind which ALiBi's slopes stand if there are any.
"""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from hw4cli.arrays.arguments import checked_number
from hw4cli.arrays.autograd import direct
from hw4cli.arrays.autograd.direct import Options
from hw4cli.arrays.autograd.eager import EVERY
from hw4cli.arrays.autograd.operators import (
    Underivable,
    backward_flops,
    backward_like,
    forward_flops,
    forward_like,
    refuse_forward_mode,
    register,
)
from hw4cli.arrays.scored import Words, check_kinds


def _asked(
    beside: Sequence[Tensor],
    causal: bool,
    align: str,
    scale: float | None,
    left: int,
    right: int,
    kernel: str,
    score: str | None,
    keep: str | None,
    softcap: float | None,
    names: str,
    has_slopes: bool,
) -> tuple[Options, Words]:
    """The arguments of hw4cli.attention but for the mask."""
    options = {"causal": causal, "align": align, "scale": scale, "window": (left, right), "kernel": kernel}
    arrays = dict(zip(names.split(), beside, strict=False)) or None
    return options, Words(score, keep, arrays, softcap, beside[-1] if has_slopes else None)


# The same as torch's schemas say it.
OPTIONS = (
    "bool causal, str align, float? scale, SymInt left, SymInt right, str kernel, str? score, str? keep, "
    "float? softcap, str names, bool has_slopes"
)
PLAIN = 6  # of them, the first, that attention has without changes


def forward(
    q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None, beside: Sequence[Tensor], *options: Any
) -> tuple[Tensor, Tensor]:
    """O and the LSE."""
    o, lse = direct.forward(q, k, v, *_asked(beside, *options), mask)
    like, _ = forward_like(q, k, v, *options[:PLAIN])
    return _laid_out(o, like), lse


def _fake(q: Tensor, k: Tensor, v: Tensor, mask: Any, beside: Any, *options: Any) -> tuple[Tensor, Tensor]:
    return forward_like(q, k, v, *options[:PLAIN])


def _backward(
    do: Tensor,
    q: Tensor,
    k: Tensor,
    v: Tensor,
    o: Tensor,
    lse: Tensor,
    mask: Tensor | None,
    beside: Sequence[Tensor],
    *others: Any,
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """dQ, dK, dV, and the mask's gradient, or nothing where it is not wanted."""
    *options, of_mask = others
    made = direct.gradients((do, q, k, v, o, lse), *_asked(beside, *options), mask, of_mask)
    dq, dk, dv = map(_laid_out, made, backward_like(do, q, k, v))
    return dq, dk, dv, made[3] if of_mask else q.new_empty(0)


def _backward_fake(
    do: Tensor, q: Tensor, k: Tensor, v: Tensor, o: Tensor, lse: Tensor, mask: Tensor | None, *others: Any
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    dmask = q.new_empty(0) if mask is None or not others[-1] else mask.new_empty(mask.shape)
    return *backward_like(do, q, k, v), dmask


def _laid_out(x: Tensor, like: Tensor) -> Tensor:
    """What was computed, in memory as the fake operator has it; on the CPU it may lie in another order."""
    return x if x.stride() == like.stride() else like.copy_(x)


class _Attention(torch.autograd.Function):  # type: ignore[misc]
    """The derivative of attention whose scores are changed."""

    @staticmethod
    def forward(*arguments: Any) -> Any:
        with torch._C._AutoDispatchBelowAutograd():
            return operator(*arguments)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, Tensor]) -> None:
        """Keep what the backward pass needs."""
        q, k, v, mask, beside, *ctx.options = inputs
        ctx.mark_non_differentiable(output[1])
        ctx.save_for_backward(q, k, v, *output, mask, *beside)

    @staticmethod
    def backward(ctx: Any, do: Tensor, _: Any) -> tuple[Any, ...]:
        """dQ, dK, dV and the mask's gradient."""
        (*kept, mask), beside, of_mask = ctx.saved_tensors[:6], ctx.saved_tensors[6:], ctx.needs_input_grad[3]
        dq, dk, dv, dmask = gradients(do, *kept, mask, list(beside), *ctx.options, of_mask)
        return dq, dk, dv, dmask if of_mask else None, *[None] * (1 + len(ctx.options))

    @staticmethod
    def jvp(ctx: Any, *_: Any) -> Any:
        """Raise NotImplementedError."""
        refuse_forward_mode()

    @staticmethod
    def vmap(*_: Any) -> Any:
        """Raise NotImplementedError."""
        direct.refuse_vmap()


class _Gradients(Underivable):
    """The gradients have no derivative."""

    @staticmethod
    def forward(*arguments: Any) -> Any:
        with torch._C._AutoDispatchBelowAutograd():
            return gradients(*arguments)

    @staticmethod
    def vmap(*_: Any) -> Any:
        """Raise NotImplementedError."""
        direct.refuse_vmap()


_INPUTS = f"Tensor? mask, Tensor[] beside, {OPTIONS}"
_FORWARD = f"(Tensor q, Tensor k, Tensor v, {_INPUTS}) -> (Tensor, Tensor)"
_BACKWARD = (
    f"(Tensor do, Tensor q, Tensor k, Tensor v, Tensor o, Tensor lse, {_INPUTS}, bool of_mask) "
    "-> (Tensor, Tensor, Tensor, Tensor)"
)
operator = register("attention_changed", forward, _fake, _Attention, forward_flops, _Attention.vmap, _FORWARD)
gradients = register(
    "attention_changed_backward", _backward, _backward_fake, _Gradients, backward_flops, _Gradients.vmap, _BACKWARD
)


def attend(q: Tensor, k: Tensor, v: Tensor, options: Options, words: Words) -> Tensor:
    """O of tensors (batch, heads, N, d), as `direct.attend` computes it. Raises as that does."""
    direct.check(q, words)
    check_kinds(words)
    arrays = words.arrays or {}
    beside = [*arrays.values(), *([] if words.alibi_slopes is None else [words.alibi_slopes])]
    mask = options["causal"], options["align"], options["scale"], *(options["window"] or EVERY), options["kernel"]
    softcap = None if words.softcap is None else checked_number("softcap", words.softcap)
    said = words.score, words.keep, softcap, " ".join(arrays), words.alibi_slopes is not None
    o: Tensor = operator(q, k, v, words.attn_mask, beside, *mask, *said)[0]
    return o

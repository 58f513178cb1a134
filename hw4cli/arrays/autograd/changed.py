"""Attention of changed scores, and of sequences of several lengths, as operators of torch: what torch.compile and
torch.export have in their graphs. Eager calls go by direct.py, whose formulas these are.

torch.ops.hw4cli.attention_changed is of changed scores alone, attention_sequences of lengths, whose scores may be
changed. Each has a backward pass. A mask and the arrays that a score names are tensors, what is asked of scores are
texts and numbers: `names` are those of the arrays, with a space between them, behind which ALiBi's slopes stand if
there are any. Lengths are tensors of the CPU behind all of these, by the names in `numbers`: a graph copies those of a
GPU there, and waits for them.
"""

from collections.abc import Sequence
from functools import partial
from typing import Any

import numpy as np
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
from hw4cli.arrays.operand import check_dimensions
from hw4cli.arrays.scored import Words, check_kinds
from hw4cli.arrays.sequences import NAMES, RIGHT, check_numbers, check_packed


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
    numbers: str = "",
    padding: str = RIGHT,
) -> tuple[Options, Words]:
    """The arguments of hw4cli.attention but for the mask."""
    options = {"causal": causal, "align": align, "scale": scale, "window": (left, right), "kernel": kernel}
    tensors = iter(beside)
    arrays = {name: next(tensors) for name in names.split()} or None
    words = Words(score, keep, arrays, softcap, next(tensors) if has_slopes else None)
    lengths = {name: next(tensors) for name in numbers.split()}
    return options | ({**lengths, "padding": padding} if lengths else {}), words


# The same as torch's schemas say it.
OPTIONS = (
    "bool causal, str align, float? scale, SymInt left, SymInt right, str kernel, str? score, str? keep, "
    "float? softcap, str names, bool has_slopes"
)
LENGTHS = "str numbers, str padding"
PLAIN = 6  # of them, the first, that attention has without changes


def forward(
    q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None, beside: Sequence[Tensor], *options: Any
) -> tuple[Tensor, Tensor]:
    """O and the LSE."""
    o, lse = direct.forward(q, k, v, *_asked(beside, *options), mask)
    like, _ = _fake(q, k, v, mask, beside, *options)
    return _laid_out(o, like), lse


def _fake(
    q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None, beside: Sequence[Tensor], *options: Any
) -> tuple[Tensor, Tensor]:
    asked, tensors = _asked(beside, *options)[0], (q, k, v)
    packed = not asked.get("cu_seqlens_q") is asked.get("cu_seqlens_k") is None
    for name, x in zip("qkv", tensors, strict=True):
        (check_packed if packed else check_dimensions)(name, x, "BHND")
    for name in NAMES:
        if name in asked:
            check_numbers(name, asked[name])
    if not packed:
        return forward_like(*tensors, *options[:PLAIN])
    o, lse = forward_like(*(x[None] for x in tensors), *options[:PLAIN])
    return o[0], lse[0]


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


def _below_autograd(name: str, arguments: Sequence[Any]) -> Any:
    """What an operator computes, without its derivative."""
    with torch._C._AutoDispatchBelowAutograd():
        return getattr(torch.ops.hw4cli, name)(*arguments)


class _Attention(torch.autograd.Function):  # type: ignore[misc]
    """The derivative of the operator whose name is the first argument."""

    @staticmethod
    def forward(name: str, *arguments: Any) -> Any:
        return _below_autograd(name, arguments)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, Tensor]) -> None:
        """Keep what the backward pass needs."""
        ctx.name, q, k, v, mask, beside, *ctx.options = inputs
        ctx.mark_non_differentiable(output[1])
        ctx.save_for_backward(q, k, v, *output, mask, *beside)

    @staticmethod
    def backward(ctx: Any, do: Tensor, _: Any) -> tuple[Any, ...]:
        """dQ, dK, dV and the mask's gradient."""
        (*kept, mask), beside, of_mask = ctx.saved_tensors[:6], ctx.saved_tensors[6:], ctx.needs_input_grad[4]
        derive = getattr(torch.ops.hw4cli, _backward_of(ctx.name))
        dq, dk, dv, dmask = derive(do, *kept, mask, list(beside), *ctx.options, of_mask)
        return None, dq, dk, dv, dmask if of_mask else None, *[None] * (1 + len(ctx.options))

    @staticmethod
    def jvp(ctx: Any, *_: Any) -> Any:
        """Raise NotImplementedError."""
        refuse_forward_mode()

    @staticmethod
    def vmap(*_: Any) -> Any:
        """Raise NotImplementedError."""
        direct.refuse_vmap()


class _Gradients(Underivable):
    """The gradients, of the operator whose name is the first argument, have no derivative."""

    @staticmethod
    def forward(name: str, *arguments: Any) -> Any:
        return _below_autograd(name, arguments)

    @staticmethod
    def vmap(*_: Any) -> Any:
        """Raise NotImplementedError."""
        direct.refuse_vmap()


def _backward_of(name: str) -> str:
    return f"{name}_backward"


def _registered(name: str, options: str, tags: tuple[Any, ...] = ()) -> Any:
    """An operator, of which the backward pass is registered, too."""
    inputs, behind = f"Tensor? mask, Tensor[] beside, {options}", _backward_of(name)
    of_gradients = (
        f"(Tensor do, Tensor q, Tensor k, Tensor v, Tensor o, Tensor lse, {inputs}, bool of_mask) "
        "-> (Tensor, Tensor, Tensor, Tensor)"
    )
    derived = partial(_Gradients.apply, behind)
    register(behind, _backward, _backward_fake, derived, backward_flops, _Gradients.vmap, of_gradients, tags)
    schema = f"(Tensor q, Tensor k, Tensor v, {inputs}) -> (Tensor, Tensor)"
    derived = partial(_Attention.apply, name)
    return register(name, forward, _fake, derived, forward_flops, _Attention.vmap, schema, tags)


# A CUDA graph would have the lengths that there were when it was captured. (Older torches capture none with tensors of
# the CPU, and have no word for it.)
_UNSAFE = getattr(torch.Tag, "cudagraph_unsafe", None)
operator = _registered("attention_changed", OPTIONS)
of_sequences = _registered("attention_sequences", f"{OPTIONS}, {LENGTHS}", () if _UNSAFE is None else (_UNSAFE,))


def attend(q: Tensor, k: Tensor, v: Tensor, options: Options, words: Words | None = None) -> Tensor:
    """O of tensors (batch, heads, N, d), or packed ones, as `direct.attend` computes it. Raises as that does."""
    words = words or Words()
    direct.check(q, words)
    check_kinds(words)
    arrays = words.arrays or {}
    beside = [*arrays.values(), *([] if words.alibi_slopes is None else [words.alibi_slopes])]
    mask = options["causal"], options["align"], options["scale"], *(options["window"] or EVERY), options["kernel"]
    softcap = None if words.softcap is None else checked_number("softcap", words.softcap)
    said: tuple[Any, ...] = words.score, words.keep, softcap, " ".join(arrays), words.alibi_slopes is not None
    given = {name: options[name] for name in NAMES if options.get(name) is not None}
    called = operator
    if given:
        beside += [_numbers(name, x) for name, x in given.items()]
        called, said = of_sequences, (*said, " ".join(given), options["padding"])
    o: Tensor = called(q, k, v, words.attn_mask, beside, *mask, *said)[0]
    return o


def _numbers(name: str, given: Any) -> Tensor:
    """Lengths as a tensor of the CPU, or a meta tensor's as it is. Raises TypeError for what is no list or array of
    integers."""
    if isinstance(given, np.ndarray):
        given = torch.from_numpy(given)
    check_numbers(name, given)
    if isinstance(given, Tensor):
        return given if given.is_meta else given.to("cpu")
    return torch.tensor(given, dtype=torch.int64)  # of numbers, which a graph leaves open where they change

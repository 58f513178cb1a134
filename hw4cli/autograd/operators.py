"""hw4cli::attention and hw4cli::attention_backward, operators of PyTorch: the second is the first one's derivative.

Tensors are (batch, heads, N, d). What an operator makes lies in memory as its query does: as (batch, heads, N, d), or,
where the heads of a row lie side by side, as (batch, N, heads, d). So the fake operators, from which torch.compile
knows strides, say what the true ones do.
"""

from typing import Any

import torch
from torch import Tensor

from hw4cli.arrays.attention import attention
from hw4cli.autograd.oncpu import backward_on_cpu, forward_on_cpu
from hw4cli.gradients.backward import attention_backward


def _forward(
    q: Tensor, k: Tensor, v: Tensor, causal: bool, align: str, scale: float | None, kernel: str
) -> tuple[Tensor, Tensor]:
    """O and the LSE."""
    if q.device.type == "cpu":
        o, lse = _forward_fake(q, k, v, causal, align, scale, kernel)
        forward_on_cpu((q, k, v), o, lse, causal=causal, align=align, scale=scale, kernel=kernel)
        return o, lse
    layout, turned = _seen((q, k, v))
    o, lse = attention(*turned, causal=causal, align=align, scale=scale, layout=layout, kernel=kernel, return_lse=True)
    return _turned(o, layout), lse


def _forward_fake(
    q: Tensor, k: Tensor, v: Tensor, causal: bool, align: str, scale: float | None, kernel: str
) -> tuple[Tensor, Tensor]:
    return _like(q, q), q.new_empty(q.shape[:3], dtype=torch.float64 if q.dtype == torch.float64 else torch.float32)


def _backward(
    do: Tensor,
    q: Tensor,
    k: Tensor,
    v: Tensor,
    o: Tensor,
    lse: Tensor,
    causal: bool,
    align: str,
    scale: float | None,
) -> tuple[Tensor, Tensor, Tensor]:
    """dQ, dK and dV."""
    if q.device.type == "cpu":
        made = _backward_fake(do, q, k, v)
        backward_on_cpu((do, q, k, v, o, lse), made, causal=causal, align=align, scale=scale)
        return made
    layout, turned = _seen((q, do, k, v, o))
    q, do, k, v, o = turned
    dq, dk, dv = attention_backward(do, q, k, v, o, lse, causal=causal, align=align, scale=scale, layout=layout)
    return _turned(dq, layout), _turned(dk, layout), _turned(dv, layout)


def _backward_fake(do: Tensor, q: Tensor, k: Tensor, v: Tensor, *others: object) -> tuple[Tensor, Tensor, Tensor]:
    return _like(q, q), _like(k, q), _like(v, q)


def _layout(q: Tensor) -> str:
    """How q lies in memory: "BNHD" where the heads of a row lie side by side."""
    return "BNHD" if q.shape[1] > 1 and q.shape[2] > 1 and q.stride(1) < q.stride(2) else "BHND"


def _turned(x: Tensor, layout: str) -> Tensor:
    """(batch, heads, N, d) as the layout has it, or back, without a copy."""
    return x.transpose(1, 2) if layout == "BNHD" else x


def _like(x: Tensor, q: Tensor) -> Tensor:
    """New memory for a tensor like x, laid out as q is."""
    layout = _layout(q)
    return _turned(x.new_empty(_turned(x, layout).shape), layout)


def _seen(tensors: tuple[Tensor, ...]) -> tuple[str, list[Tensor]]:
    """The layout of the first one, and all as it has them; copies of those that the kernels cannot read."""
    layout = _layout(tensors[0])
    return layout, [_turned(x if _is_readable(x) else x.contiguous().clone(), layout) for x in tensors]


def _is_readable(x: Tensor) -> bool:
    """Whether the rows are chunks of 16 bytes that do not overlap: see check_rows in hw4cli/arrays/attention.py."""
    chunk = 16 // x.element_size()
    steps = zip(x.stride()[:3], x.shape[:3], strict=True)
    return (
        x.stride(3) == 1
        and x.data_ptr() % 16 == 0
        and all(size == 1 or (step > 0 and step % chunk == 0) for step, size in steps)
    )


def _keep(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, Tensor]) -> None:
    """What the backward pass needs."""
    q, k, v, *ctx.options, _ = inputs
    o, lse = output
    ctx.mark_non_differentiable(lse)
    ctx.save_for_backward(q, k, v, o, lse)


def _differentiate(ctx: Any, do: Tensor, _: Any) -> tuple[Any, ...]:
    return (*_gradients(do, *ctx.saved_tensors, *ctx.options), None, None, None, None)


def _refuse(ctx: Any, *_: Any) -> None:
    raise NotImplementedError("attention of hw4cli.torch has no second derivative: its gradients cannot be derived")


operator = torch.library.custom_op("hw4cli::attention", _forward, mutates_args=())
_gradients = torch.library.custom_op("hw4cli::attention_backward", _backward, mutates_args=())
operator.register_fake(_forward_fake)
_gradients.register_fake(_backward_fake)
operator.register_autograd(_differentiate, setup_context=_keep)
_gradients.register_autograd(_refuse)

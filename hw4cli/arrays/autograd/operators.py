"""hw4cli::attention and hw4cli::attention_backward, operators of PyTorch: the second is the first one's derivative.

Each has a kernel for all devices, a fake one, a rule for vmap, a derivative by torch.autograd.Function, and a count of
its operations. The derivative is the operator's own kernel for torch's Autograd key, so that tangents of forward-mode
differentiation meet a refusal there, whoever calls the operator: torch.library.custom_op drops them, as if they were 0.

Tensors are (batch, heads, N, d). What an operator makes lies in memory as its query does: as (batch, heads, N, d), or,
where the heads of a row lie side by side, as (batch, N, heads, d). So the fake operators, from which torch.compile
knows strides, say what the true ones do.
"""

import math
from functools import partial
from typing import Any, NoReturn

import torch
from torch import Tensor
from torch.utils.flop_counter import register_flop_formula

from hw4cli.arrays.arguments import checked_window, checked_workload
from hw4cli.arrays.attention import DTYPES, attention
from hw4cli.arrays.autograd.oncpu import FLOAT64, backward_on_cpu, forward_on_cpu
from hw4cli.arrays.gradients.backward import FLOAT32_FORWARD, attention_backward
from hw4cli.plans.dispatch import AUTO
from hw4cli.plans.ladder import FALLBACK
from hw4cli.problem.workload import MAX_D


def forward(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    causal: bool,
    align: str,
    scale: float | None,
    left: int,
    right: int,
    kernel: str,
) -> tuple[Tensor, Tensor]:
    """O and the LSE. `left` and `right`: the window, as hw4cli.attention has it, with -1 for all keys of a side."""
    mask: dict[str, Any] = {"causal": causal, "align": align, "window": (left, right)}
    if q.device.type == "cpu":
        o, lse = forward_like(q, k, v, causal, align, scale, left, right, kernel)
        forward_on_cpu((q, k, v), o, lse, scale=scale, kernel=kernel, **mask)
        return o, lse
    layout, arrays = readable((q, k, v))
    o, lse = attention(*arrays, scale=scale, layout=layout, kernel=kernel, return_lse=True, **mask)
    return turned(o, layout), lse


def forward_like(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    causal: bool,
    align: str,
    scale: float | None,
    left: int,
    right: int,
    kernel: str,
) -> tuple[Tensor, Tensor]:
    """O and the LSE, not yet computed, of tensors that have passed the checks."""
    dtypes = DTYPES if q.device.type == "cuda" else (*DTYPES, FLOAT64)
    dtype, *others = (str(x.dtype).removeprefix("torch.") for x in (q, k, v))
    for name, other in zip("kv", others, strict=True):
        if other != dtype:
            raise TypeError(f"q is {dtype}, {name} {other}: give one element type")
    checked_workload(dtype, dtypes, q.shape, k.shape, v.shape, causal, align, scale, checked_window((left, right)))
    return _like(q, q, v.shape[-1]), q.new_empty(
        q.shape[:3], dtype=torch.float64 if q.dtype == torch.float64 else torch.float32
    )


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
    left: int,
    right: int,
) -> tuple[Tensor, Tensor, Tensor]:
    """dQ, dK and dV."""
    mask: dict[str, Any] = {"causal": causal, "align": align, "window": (left, right)}
    if q.device.type == "cpu":
        made = backward_like(do, q, k, v)
        backward_on_cpu((do, q, k, v, o, lse), made, scale=scale, **mask)
        return made
    layout, (q, do, k, v, o) = readable((q, do, k, v, o))
    dq, dk, dv = attention_backward(do, q, k, v, o, lse, scale=scale, layout=layout, **mask)
    return turned(dq, layout), turned(dk, layout), turned(dv, layout)


def backward_like(do: Tensor, q: Tensor, k: Tensor, v: Tensor, *others: object) -> tuple[Tensor, Tensor, Tensor]:
    """dQ, dK and dV, not yet computed."""
    return _like(q, q), _like(k, q), _like(v, q)


def usual_kernel(q: Tensor) -> str:
    """The forward pass's kernel where none is named."""
    if not q.is_cuda or q.dtype != torch.float32:
        return AUTO
    is_wide = q.shape[-1] > MAX_D and torch.cuda.get_device_capability(q.device) < (8, 0)  # which flash has no room for
    return FALLBACK if is_wide else FLOAT32_FORWARD


def layout_of(q: Tensor) -> str:
    """How q lies in memory: "BNHD" where the heads of a row lie side by side."""
    return "BNHD" if q.shape[-3] > 1 and q.shape[-2] > 1 and q.stride(-3) < q.stride(-2) else "BHND"


def turned(x: Tensor, layout: str) -> Tensor:
    """(batch, heads, N, d) as the layout has it, or back, without a copy; or the same without a batch."""
    return x.transpose(-3, -2) if layout == "BNHD" else x


def _like(x: Tensor, q: Tensor, columns: int | None = None) -> Tensor:
    """New memory for a tensor like x, or of so many columns, laid out as q is."""
    layout = layout_of(q)
    *rows, d = turned(x, layout).shape
    return turned(x.new_empty((*rows, d if columns is None else columns)), layout)


def readable(tensors: tuple[Tensor, ...]) -> tuple[str, list[Tensor]]:
    """The layout of the first one, and all as it has them; copies of those that the kernels cannot read."""
    layout = layout_of(tensors[0])
    return layout, [turned(x if is_readable(x) else x.contiguous().clone(), layout) for x in tensors]


def is_readable(x: Tensor) -> bool:
    """Whether the rows are chunks of 16 bytes that do not overlap: see check_rows in hw4cli/arrays/attention.py. Others
    are copied anyway where they are no whole chunks: hw4cli/arrays/staged.py. Not of a negative view, whose numbers are
    not those in memory."""
    if x.is_neg():
        return False
    chunk = 16 // x.element_size()
    if x.shape[-1] % chunk:
        return True
    steps = zip(x.stride()[:-1], x.shape[:-1], strict=True)
    return (
        x.stride(-1) == 1
        and x.data_ptr() % 16 == 0
        and all(size == 1 or (step > 0 and step % chunk == 0) for step, size in steps)
    )


def refuse_forward_mode() -> NoReturn:
    """Raise NotImplementedError."""
    raise NotImplementedError(
        "attention of hw4cli.torch has no forward-mode derivative (torch.func.jvp, jacfwd, hessian): take the "
        "backward pass (torch.func.vjp, jacrev, or backward())"
    )


class _Attention(torch.autograd.Function):  # type: ignore[misc]
    """The derivative of attention; torch.func transforms it, too."""

    @staticmethod
    def forward(*arguments: Any) -> Any:
        with torch._C._AutoDispatchBelowAutograd():
            return operator(*arguments)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, Tensor]) -> None:
        """Keep what the backward pass needs."""
        q, k, v, *ctx.options, _ = inputs
        o, lse = output
        ctx.mark_non_differentiable(lse)
        ctx.save_for_backward(q, k, v, o, lse)

    @staticmethod
    def backward(ctx: Any, do: Tensor, _: Any) -> tuple[Any, ...]:
        return (*derive(do, *ctx.saved_tensors, *ctx.options), *[None] * (len(ctx.options) + 1))

    @staticmethod
    def jvp(ctx: Any, *_: Any) -> Any:
        refuse_forward_mode()

    @staticmethod
    def vmap(*arguments: Any) -> Any:
        return _mapped(_Attention.apply, *arguments)


class Underivable(torch.autograd.Function):  # type: ignore[misc]
    """What has no derivative."""

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Any) -> None:
        """Nothing is kept."""

    @staticmethod
    def backward(ctx: Any, *_: Any) -> Any:
        """Raise NotImplementedError."""
        raise NotImplementedError("attention of hw4cli.torch has no second derivative: its gradients cannot be derived")

    jvp = backward


class _Gradients(Underivable):
    """The gradients have no derivative."""

    @staticmethod
    def forward(*arguments: Any) -> Any:
        with torch._C._AutoDispatchBelowAutograd():
            return gradients(*arguments)

    @staticmethod
    def vmap(*arguments: Any) -> Any:
        return _mapped(_Gradients.apply, *arguments)


def _differentiated(called: Any, derivative: Any, arguments: tuple[Any, ...]) -> Any:
    """An operator's results. torch.func transforms a Function, but not what an operator's own kernel makes of one."""
    transformed = torch._C._are_functorch_transforms_active()
    return (derivative.apply if transformed else called)(*arguments)


def attend(*arguments: Any) -> Any:
    """O and the LSE, by `operator`, whose arguments these are; also where torch.func transforms the caller."""
    return _differentiated(operator, _Attention, arguments)


def derive(*arguments: Any) -> Any:
    """dQ, dK and dV, by `gradients`, whose arguments these are; also where torch.func transforms the caller."""
    return _differentiated(gradients, _Gradients, arguments)


def _mapped(called: Any, info: Any, in_dims: tuple[int | None, ...], *arguments: Any) -> tuple[Any, Any]:
    """vmap's rule: what is mapped over becomes part of the batch."""

    def merged(x: Any, at: int | None) -> Any:
        if not isinstance(x, Tensor):
            return x
        x = x.expand(info.batch_size, *x.shape) if at is None else x.movedim(at, 0)
        return x.flatten(0, 1)

    found = called(*map(merged, arguments, in_dims))
    return tuple(x.unflatten(0, (info.batch_size, -1)) for x in found), (0,) * len(found)


def forward_flops(q: Any, k: Any, v: Any, *_: Any, **__: Any) -> int:
    """Two products, as torch counts those of its own attention: of all pairs of a row and a key of the tensors, with a
    mask or lengths, too."""
    *batch_and_heads, rows, d = q
    return int(2 * math.prod(batch_and_heads) * rows * k[-2] * (d + v[-1]))


def backward_flops(do: Any, q: Any, k: Any, v: Any, *_: Any, **__: Any) -> int:
    """Five products: the derivative's four, and the scores once more."""
    return forward_flops(q, k, v) * 5 // 2


def register(
    name: str,
    function: Any,
    fake: Any,
    derived: Any,
    flops: Any,
    mapped: Any = None,
    schema: str = "",
    tags: tuple[Any, ...] = (),
) -> Any:
    """An operator of torch, torch.ops.hw4cli.NAME. `derived`: the same with a derivative; `mapped`: vmap's rule, where
    it is not that of the batch; `schema`: of its arguments and results, where the function's annotations do not say
    them."""
    qualified = f"hw4cli::{name}"
    schema = schema or torch.library.infer_schema(function, mutates_args=())
    _LIBRARY.define(name + schema, tags=(torch.Tag.pt2_compliant_tag, *tags))
    _LIBRARY.impl(name, function, "CompositeExplicitAutograd")
    _LIBRARY.impl(name, derived, "Autograd")
    torch.library.register_fake(qualified, fake, lib=_LIBRARY)
    packet = getattr(torch.ops.hw4cli, name)
    torch.library.register_vmap(qualified, mapped or partial(_mapped, packet), lib=_LIBRARY)
    register_flop_formula(packet)(flops)
    return packet.default


_LIBRARY = torch.library.Library("hw4cli", "FRAGMENT")
operator = register("attention", forward, forward_like, _Attention.apply, forward_flops)
gradients = register("attention_backward", _backward, backward_like, _Gradients.apply, backward_flops)

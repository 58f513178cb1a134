"""Sequences of several lengths of torch's tensors, padded and packed, with gradients.

Lengths are numbers, by which launches are planned: torch.compile computes such a call as it stands, between its graphs.
"""

from typing import Any

import torch
from torch import Tensor

from hw4cli.arrays.attention import attention
from hw4cli.arrays.autograd.oncpu import array_of
from hw4cli.arrays.autograd.operators import readable, refuse_forward_mode, turned
from hw4cli.arrays.gradients.backward import attention_backward

Options = dict[str, Any]


@torch.compiler.disable  # type: ignore[untyped-decorator]
def attend(q: Tensor, k: Tensor, v: Tensor, options: Options) -> Tensor:
    """O of q (batch, heads, Nq, d), k and v (batch, kv_heads, Nk, d), or, where cu_seqlens are among the options, of
    tensors without a batch. The options are arguments of hw4cli.attention, which checks all."""
    o: Tensor = _Sequences.apply(q, k, v, options)[0]
    return o


class _Sequences(torch.autograd.Function):  # type: ignore[misc]
    """Attention of sequences, and its derivative."""

    @staticmethod
    def forward(q: Tensor, k: Tensor, v: Tensor, options: Options) -> tuple[Tensor, Tensor]:
        """O and the LSE."""
        layout, arrays = _as_arrays((q, k, v))
        o, lse = attention(*arrays, layout=layout, return_lse=True, **options)
        return _as_tensor(o, layout, q), torch.as_tensor(lse)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, Tensor]) -> None:
        """Keep what the backward pass needs."""
        q, k, v, ctx.options = inputs
        ctx.mark_non_differentiable(output[1])
        ctx.save_for_backward(q, k, v, *output)

    @staticmethod
    def backward(ctx: Any, do: Tensor, _: Any) -> tuple[Any, ...]:
        """dQ, dK and dV."""
        q, k, v, o, lse = ctx.saved_tensors
        layout, (of_q, of_do, *others) = _as_arrays((q, do, k, v, o))
        options = {name: value for name, value in ctx.options.items() if name != "kernel"}
        arrays = of_do, of_q, *others, lse if lse.is_cuda else lse.numpy()
        made = attention_backward(*arrays, layout=layout, **options)
        return (*(_as_tensor(x, layout, like) for x, like in zip(made, (q, k, v), strict=True)), None)

    @staticmethod
    def jvp(ctx: Any, *_: Any) -> Any:
        refuse_forward_mode()


def _as_arrays(tensors: tuple[Tensor, ...]) -> tuple[str, list[Any]]:
    """The layout of the first one, and all as hw4cli.attention takes them: on the CPU it computes NumPy's arrays."""
    if tensors[0].is_cuda:
        return readable(tensors)
    return "BHND", list(map(array_of, tensors))


def _as_tensor(x: Any, layout: str, like: Tensor) -> Tensor:
    """What was computed as a tensor of the type of another one, turned back from the layout."""
    return turned(x, layout) if like.is_cuda else torch.from_numpy(x).to(like.dtype)

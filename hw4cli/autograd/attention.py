"""Attention of torch's tensors with gradients: the arguments of torch's scaled_dot_product_attention, checked."""

from typing import Any, Never

import torch

from hw4cli.arrays.operand import check_dense
from hw4cli.arrays.workload import TOP_LEFT, refuse
from hw4cli.autograd.operators import operator
from hw4cli.compute.dispatch import AUTO
from hw4cli.gradients.backward import FLOAT32_FORWARD


def attention(
    query: Any,
    key: Any,
    value: Any,
    attn_mask: Any = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    scale: float | None = None,
    enable_gqa: bool = False,
    *,
    align: str = TOP_LEFT,
    kernel: str | None = None,
    **not_supported: Never,
) -> Any:
    """softmax(scale Q Kᵀ) V with gradients, in place of torch.nn.functional.scaled_dot_product_attention.

    query is (..., heads, Nq, d), key and value are (..., kv_heads, Nk, d); with enable_gqa heads may be a multiple of
    kv_heads. On a GPU elements are float16, bfloat16 or float32; d is a multiple of 8 up to 128, or of 4 for float32.
    On the CPU NumPy computes, float64 too. is_causal: row i sees the keys 0 to i, as torch has it, or, with
    align="bottom-right", 0 to i + Nk - Nq. scale: 1/sqrt(d) by default. `kernel`: of the forward
    pass, as in hw4cli.attention; by default "auto", and for float32 on a GPU "flash", whose errors are float32's own.

    The forward pass is hw4cli.attention, the backward pass hw4cli.attention_backward: on the tensors' GPU and torch's
    current stream, with the same bits in every run. It is an operator for torch.compile, torch.autocast, torch.no_grad
    and torch.utils.checkpoint. Only what the kernels cannot read where it lies is copied: rows that do not begin at
    multiples of 16 bytes, and gradients that torch has expanded.

    Raises ValueError for attn_mask, dropout_p and shapes, strides or devices that do not fit, TypeError for other
    element types, MachineError if the GPU cannot do it; NotImplementedError if a second derivative is asked for.

    >>> import torch
    >>> q, k, v = torch.ones(3, 1, 2, 5, 8, requires_grad=True)
    >>> attention(q, k, v, is_causal=True).sum().backward()
    """
    refuse("attention", not_supported)
    _check(query, key, value, attn_mask, dropout_p, enable_gqa)
    kind = query.device.type
    if kind in ("cpu", "cuda") and torch.is_autocast_enabled(kind) and query.dtype != torch.float64:
        dtype = torch.get_autocast_dtype(kind)
        query, key, value = (x.to(dtype) for x in (query, key, value))
    if not query.numel() or not key.numel():
        return _of_nothing(query, key, value)
    q, k, v = (_with_four_dimensions(x) for x in (query, key, value))
    if kernel is None:
        kernel = FLOAT32_FORWARD if kind == "cuda" and query.dtype == torch.float32 else AUTO
    return operator(q, k, v, bool(is_causal), align, scale, kernel)[0].reshape(query.shape)


def _check(query: Any, key: Any, value: Any, attn_mask: Any, dropout_p: float, enable_gqa: bool) -> None:
    """Raise where the arguments ask for what there is not."""
    tensors = {"query": query, "key": key, "value": value}
    for name, x in tensors.items():
        if not isinstance(x, torch.Tensor):
            raise TypeError(f"{name} is a {type(x).__name__}: give a tensor of torch (hw4cli.attention takes others)")
        check_dense(name, x)
        if x.dim() < 2:
            raise ValueError(f"{name} has {x.dim()} dimensions: give (..., heads, N, d)")
        if x.dtype != query.dtype and not torch.is_autocast_enabled(query.device.type):
            raise TypeError(f"query is {_type(query)}, {name} {_type(x)}: give one element type")
        if x.dim() != query.dim() or x.shape[:-3] != query.shape[:-3]:
            raise ValueError(f"query and {name} differ in batches: {tuple(query.shape)} and {tuple(x.shape)}")
    if attn_mask is not None:
        raise ValueError("attn_mask is not supported: give is_causal=True for the causal mask, or no mask")
    if dropout_p:
        raise ValueError(f"dropout_p is {dropout_p}: there is no dropout here, give 0")
    if not enable_gqa and query.dim() > 2 and query.shape[-3] != key.shape[-3]:
        raise ValueError(f"query has {query.shape[-3]} heads, key {key.shape[-3]}: give enable_gqa=True to share them")


def _of_nothing(query: Any, key: Any, value: Any) -> Any:
    """What there is without batches, heads, rows or keys: zeros like query, whose gradients are zeros, too."""
    zeros = torch.where(torch.zeros_like(query, dtype=torch.bool), query, 0)
    return zeros + key[..., :0].sum() + value[..., :0].sum()


def _type(x: Any) -> str:
    return str(x.dtype).removeprefix("torch.")


def _with_four_dimensions(x: Any) -> Any:
    """A tensor as (batch, heads, N, d): dimensions before the heads are one batch."""
    if x.dim() == 4:
        return x
    return x.reshape(-1, *x.shape[-3:]) if x.dim() > 4 else x.reshape(*(4 - x.dim()) * (1,), *x.shape)

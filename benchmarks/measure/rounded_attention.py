"""Attention of float32 tensors as 16-bit kernels compute it: rounded to fp16 or bf16 before, and back behind.

Peers of benchmarks/measure/float32.py. The roundings are part of the call, as in a model under torch's autocast.
"""

from typing import Any

import torch
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.nn.functional import scaled_dot_product_attention


def fp16(q: Any, k: Any, v: Any, causal: bool, scale: float) -> Any:
    """O of tensors (batch, heads, N, d) by cuDNN's attention of fp16; causal: of as many keys as rows."""
    return _rounded(torch.float16, q, k, v, causal, scale)


def bf16(q: Any, k: Any, v: Any, causal: bool, scale: float) -> Any:
    """The same of bf16."""
    return _rounded(torch.bfloat16, q, k, v, causal, scale)


def _rounded(dtype: Any, q: Any, k: Any, v: Any, causal: bool, scale: float) -> Any:
    q, k, v = (x.to(dtype) for x in (q, k, v))
    with sdpa_kernel(SDPBackend.CUDNN_ATTENTION):
        o = scaled_dot_product_attention(q, k, v, is_causal=causal, scale=scale, enable_gqa=q.shape[1] != k.shape[1])
    return o.float()

"""The operators on the CPU: NumPy's arrays share the tensors' memory. bfloat16, which NumPy has not, is widened;
float64 is for gradcheck: whole matrices of scores."""

from dataclasses import replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from hw4cli.arrays.arguments import checked_window
from hw4cli.arrays.attention import attention, workload_of
from hw4cli.arrays.gradients.backward import attention_backward
from hw4cli.arrays.oncpu import attention_on_cpu
from hw4cli.arrays.operand import Operand, operand
from hw4cli.problem.oracle import exact_gradients
from hw4cli.problem.workload import FLOAT32, Workload

FLOAT64 = "float64"


def forward_on_cpu(
    tensors: tuple[Tensor, ...], o: Tensor, lse: Tensor, *, scale: float | None, kernel: str, **mask: Any
) -> None:
    """Writes O and the LSE. `mask`: causal, align and window, as hw4cli.attention has them."""
    q, k, v = arrays = [array_of(x) for x in tensors]
    if o.dtype == torch.float64:
        work, operands = _of_float64(q, k, v, scale=scale, **mask)
        result = operand("o", o.numpy(), "BHND")
        attention_on_cpu(work, operands, result, lse.numpy(), np.float64)
        return
    found, log_sums = attention(*arrays, scale=scale, kernel=kernel, return_lse=True, **mask)
    o.copy_(torch.from_numpy(found))
    lse.copy_(torch.from_numpy(log_sums))


def backward_on_cpu(tensors: tuple[Tensor, ...], made: tuple[Tensor, ...], *, scale: float | None, **mask: Any) -> None:
    """Writes dQ, dK and dV."""
    do, q, k, v, o, lse = (array_of(x) for x in tensors)
    if q.dtype == np.float64:
        work, _ = _of_float64(q, k, v, scale=scale, **mask)
        found = exact_gradients(
            do, q, k, v, causal=work.causal, offset=work.offset, scale=work.scale, window=work.window
        )
    else:
        found = attention_backward(do, q, k, v, o, lse, scale=scale, **mask)
    for tensor, result in zip(made, found, strict=True):
        tensor.copy_(torch.from_numpy(result))


def array_of(x: Tensor) -> Any:
    """NumPy's array in the same memory; of bfloat16, which NumPy has not, a wider copy."""
    x = x.detach()
    return (x.float() if x.dtype == torch.bfloat16 else x).numpy()


def _of_float64(
    q: Any, k: Any, v: Any, *, causal: bool, align: str, scale: float | None, window: Any
) -> tuple[Workload, tuple[Operand, ...]]:
    """What arrays of float64 ask for; they are checked as float32 ones are."""
    parts = zip("qkv", (q, k, v), strict=True)
    operands = tuple(replace(operand(name, x, "BHND"), dtype=FLOAT32) for name, x in parts)
    return workload_of(operands, causal, align, scale, checked_window(window)), operands

"""The operators on the CPU: NumPy's arrays share the tensors' memory. bfloat16, which NumPy has not, is widened;
float64 is for gradcheck: whole matrices of scores."""

from dataclasses import replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from hw4cli.arrays.arguments import checked_window
from hw4cli.arrays.attention import attention, workload_of
from hw4cli.arrays.gradients.backward import attention_backward, summed
from hw4cli.arrays.gradients.oncpu import backward_on_cpu as gradients_on_cpu
from hw4cli.arrays.oncpu import attention_on_cpu
from hw4cli.arrays.operand import Operand, operand
from hw4cli.arrays.scored import Scored, Words, scored
from hw4cli.arrays.sequences import RIGHT
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


def forward_of_float64(q: Any, k: Any, v: Any, *, kernel: str, **asked: Any) -> tuple[Any, Any]:
    """O and the LSE of NumPy's arrays, whose scores are changed: arguments are those of hw4cli.attention."""
    work, operands, changes = _changed(q, k, v, **asked)
    o, lse = np.empty((*q.shape[:3], v.shape[3])), np.empty(q.shape[:3])
    attention_on_cpu(work, operands, operand("o", o, "BHND"), lse, np.float64, changes.views)
    return o, lse


def backward_of_float64(
    do: Any, q: Any, k: Any, v: Any, o: Any, lse: Any, *, mask_gradient: bool = False, **asked: Any
) -> tuple[Any, ...]:
    """dQ, dK and dV, and the gradient of the additive mask if it is wanted."""
    work, operands, changes = _changed(q, k, v, gradient=mask_gradient, **asked)
    given = *operands, operand("o", o, "BHND"), operand("do", do, "BHND")
    made = tuple(np.empty(x.shape) for x in (q, k, v))
    dscore = np.zeros((work.batch, work.heads, work.Nq, work.Nk)) if mask_gradient else None
    places = tuple(operand("", x, "BHND") for x in made)
    gradients_on_cpu(work, given, lse, places, True, changes.views, dscore)
    return (*made, summed(dscore, changes.mask)) if mask_gradient else made


def _changed(
    q: Any,
    k: Any,
    v: Any,
    *,
    causal: bool,
    align: str,
    scale: float | None,
    window: Any,
    padding: str = RIGHT,
    gradient: bool = False,
    **words: Any,
) -> tuple[Workload, tuple[Operand, ...], Scored]:
    """What arrays of float64 ask for."""
    work, operands = _of_float64(q, k, v, causal=causal, align=align, scale=scale, window=window)
    some = {name: value for name, value in words.items() if value is not None}
    changes = scored(Words(**some), operands[0], work, gradient=gradient, wide=True)
    return changes.of(work), operands, changes


def array_of(x: Tensor) -> Any:
    """NumPy's array in the same memory; of bfloat16, which NumPy has not, a wider copy, and one of a negative view."""
    x = x.detach().resolve_neg()
    return (x.float() if x.dtype == torch.bfloat16 else x).numpy()


def _of_float64(
    q: Any, k: Any, v: Any, *, causal: bool, align: str, scale: float | None, window: Any
) -> tuple[Workload, tuple[Operand, ...]]:
    """What arrays of float64 ask for; they are checked as float32 ones are."""
    parts = zip("qkv", (q, k, v), strict=True)
    operands = tuple(replace(operand(name, x, "BHND"), dtype=FLOAT32) for name, x in parts)
    return workload_of(operands, causal, align, scale, checked_window(window)), operands

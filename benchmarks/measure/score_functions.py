# ruff: noqa: ANN001, ANN201 - CUTLASS's DSL gives arguments their types
"""What benchmarks/measure/scores.py asks of FlashAttention 4, in CUTLASS's DSL, which compiles it into the kernels.

A score's function takes it, scaled, with its batch, head, row and key, the sequence's length and tensors, by the names
that FlashAttention has; that of its gradient takes the gradient before it; that of a mask takes no score. All are
vectors, of one element where there is a tensor.
"""

import cutlass
from cutlass import cute


@cute.jit
def alibi(s, batch, head, q_idx, kv_idx, seqlen_info, aux_tensors):
    """s - 2^-(h+1) |i - j|, the slopes of measure/scores.py."""
    slope = cute.math.exp2((head + cute.full_like(head, 1)).to(cutlass.Float32) * cute.full_like(s, -1.0))
    apart = cute.where(q_idx < kv_idx, kv_idx - q_idx, q_idx - kv_idx)
    return s - slope * apart.to(cutlass.Float32)


@cute.jit
def bias(s, batch, head, q_idx, kv_idx, seqlen_info, aux_tensors):
    """s + bias[h, i, j], of bias (heads, N, N)."""
    values = cute.make_rmem_tensor(1, aux_tensors[0].element_type)
    values[0] = aux_tensors[0][head[0], q_idx[0], kv_idx[0]]
    return s + values.load().to(cutlass.Float32)


@cute.jit
def as_it_is(gradient, s, batch, head, q_idx, kv_idx, seqlen_info, aux_tensors):
    """The gradient of a sum's first term."""
    return gradient


@cute.jit
def mask(batch, head, q_idx, kv_idx, seqlen_info, aux_tensors):
    """Whether seen[i, j] is 1, of seen (N, N)."""
    values = cute.make_rmem_tensor(1, aux_tensors[0].element_type)
    values[0] = aux_tensors[0][q_idx[0], kv_idx[0]]
    return values.load().to(cutlass.Int32) == cute.full_like(kv_idx, 1)

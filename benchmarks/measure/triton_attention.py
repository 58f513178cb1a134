# ruff: noqa: ANN001, ANN201, E741 - Triton gives arguments their types
"""FlashAttention-2 in Triton, as its tutorials write it.

`hw4 bench --peers benchmarks/measure/triton_attention.py:attention` measures it, of float32 `...:tf32x3` and
`...:tf32`, too: products on tensor cores, of each factor in three parts, or in one. Triton comes with PyTorch. Tiles,
stages and warps are tuned at the first call for a shape.
"""

from typing import Any

import torch
import triton
import triton.language as tl

LOG2E = 1.44269504088896341
TILES = ((128, 64, 3, 4), (128, 64, 3, 8), (128, 128, 2, 8), (64, 64, 3, 4))  # rows, keys, stages, warps
TILES32 = ((64, 64, 2, 4), (128, 64, 2, 8), (128, 32, 2, 8))  # of float32: twice the bytes
HIGHEST, TF32, TF32X3 = "ieee", "tf32", "tf32x3"  # Triton's names of what a product of float32 is computed by


@triton.jit
def add_keys(
    acc, l, m, Q, k, v, k_row, v_row, rows, columns, scale, first_key, end, Nk, shift,
    BN: tl.constexpr, MASKED: tl.constexpr, CAUSAL: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """The online softmax over the keys from the first to the end, in tiles of BN."""
    for start in range(first_key, end, BN):
        keys = start + tl.arange(0, BN)
        at_k = k + keys[None, :] * k_row + columns[:, None]
        at_v = v + keys[:, None] * v_row + columns[None, :]
        if MASKED:
            K = tl.load(at_k, mask=keys[None, :] < Nk, other=0.0)
            V = tl.load(at_v, mask=keys[:, None] < Nk, other=0.0)
        else:
            K = tl.load(at_k)
            V = tl.load(at_v)
        s = tl.dot(Q, K, input_precision=PRECISION) * scale
        if MASKED:
            seen = keys[None, :] < Nk
            if CAUSAL:
                seen = seen & (keys[None, :] <= rows[:, None] + shift)
            s = tl.where(seen, s, float("-inf"))
        top = tl.maximum(m, tl.max(s, 1))
        base = tl.where(top == float("-inf"), 0.0, top)
        p = tl.exp2(s - base[:, None])
        shrink = tl.exp2(m - base)
        l = l * shrink + tl.sum(p, 1)
        acc = tl.dot(p.to(Q.dtype), V, acc * shrink[:, None], input_precision=PRECISION)
        m = top
    return acc, l, m


@triton.jit
def forward(
    q, k, v, o, q_batch, q_head, q_row, k_batch, k_head, k_row, v_batch, v_head, v_row, o_batch, o_head, o_row,
    heads, group, Nq, Nk, scale,
    D: tl.constexpr, CAUSAL: tl.constexpr, PRECISION: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr,
):  # fmt: skip
    """A tile of BM rows of a head."""
    tile = tl.program_id(0)
    batch = (tl.program_id(1) // heads).to(tl.int64)
    head = tl.program_id(1) % heads
    rows = tile * BM + tl.arange(0, BM)
    columns = tl.arange(0, D)
    inside = rows[:, None] < Nq
    at_q = q + batch * q_batch + head * q_head + rows[:, None] * q_row + columns[None, :]
    Q = tl.load(at_q, mask=inside, other=0.0)
    k += batch * k_batch + head // group * k_head
    v += batch * v_batch + head // group * v_head
    acc = tl.zeros((BM, D), tl.float32)
    l = tl.zeros((BM,), tl.float32)
    m = tl.full((BM,), float("-inf"), tl.float32)
    shift = Nk - Nq
    end = Nk
    whole = Nk // BN * BN
    if CAUSAL:
        end = tl.minimum(Nk, tl.maximum(0, tile * BM + BM + shift))
        whole = tl.minimum(whole, tl.maximum(0, tile * BM + shift + 1) // BN * BN)
    acc, l, m = add_keys(
        acc, l, m, Q, k, v, k_row, v_row, rows, columns, scale, 0, whole, Nk, shift, BN, False, CAUSAL, PRECISION
    )
    acc, l, m = add_keys(
        acc, l, m, Q, k, v, k_row, v_row, rows, columns, scale, whole, end, Nk, shift, BN, True, CAUSAL, PRECISION
    )
    O = acc / tl.where(l == 0.0, 1.0, l)[:, None]
    at_o = o + batch * o_batch + head * o_head + rows[:, None] * o_row + columns[None, :]
    tl.store(at_o, O.to(o.dtype.element_ty), mask=inside)


def tuned(tiles: tuple[tuple[int, int, int, int], ...]) -> Any:
    """The kernel with the fastest of these tiles for a shape."""
    configs = [triton.Config({"BM": m, "BN": n}, num_stages=stages, num_warps=warps) for m, n, stages, warps in tiles]
    return triton.autotune(configs, key=["Nq", "Nk", "D", "CAUSAL", "PRECISION"])(forward)


FORWARD, FORWARD32 = tuned(TILES), tuned(TILES32)


def attention(q: Any, k: Any, v: Any, causal: bool, scale: float, precision: str = HIGHEST) -> Any:
    """O of tensors (batch, heads, N, d) of 16 bits, or of 32; causal: the last row sees the last key. ValueError for
    other d."""
    batch, heads, Nq, d = q.shape
    if d not in (16, 32, 64, 128):
        raise ValueError(f"d is {d}: Triton's tiles have 16, 32, 64 or 128 columns")
    o = torch.empty_like(q)
    strides = (x.stride(n) for x in (q, k, v, o) for n in range(3))
    kernel = FORWARD32 if q.dtype == torch.float32 else FORWARD
    sizes = heads, heads // k.shape[1], Nq, k.shape[2], scale * LOG2E
    kernel[lambda tile: (triton.cdiv(Nq, tile["BM"]), batch * heads)](
        q, k, v, o, *strides, *sizes, D=d, CAUSAL=causal, PRECISION=precision
    )
    return o


def tf32x3(q: Any, k: Any, v: Any, causal: bool, scale: float) -> Any:
    """The same of float32, each product by three of TF32."""
    return attention(q, k, v, causal, scale, TF32X3)


def tf32(q: Any, k: Any, v: Any, causal: bool, scale: float) -> Any:
    """The same of float32, each product by one of TF32."""
    return attention(q, k, v, causal, scale, TF32)

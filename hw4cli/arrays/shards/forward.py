"""Attention of arrays that lie on several GPUs: each computes what it has, or K and V go round a ring."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from hw4cli.arrays.attention import attention
from hw4cli.arrays.operand import CUPY, TORCH
from hw4cli.arrays.shards.order import check_shards, seen_of
from hw4cli.arrays.shards.places import check_alike, check_counts, on_a_ring, on_device_of
from hw4cli.arrays.shards.ring import Ring
from hw4cli.problem.workload import TOP_LEFT

Part = tuple[Any, Any]  # O, and the log of each row's sum of exp(score)


def attention_of_each(q: Sequence[Any], k: Sequence[Any], v: Sequence[Any], **options: Any) -> list[Any]:
    """`attention` of each q, k and v, which lie together on one device: batches or heads that the caller has placed.

    GPUs compute at the same time, because no call waits. Options, and what is raised, are those of `attention`.

    >>> q = k = v = np.ones((1, 2, 5, 8), np.float16)
    >>> [o.shape for o in attention_of_each([q, q], [k, k], [v, v])]
    [(1, 2, 5, 8), (1, 2, 5, 8)]
    """
    check_counts(q=q, k=k, v=v)
    results = []
    for arrays in zip(q, k, v, strict=True):
        with on_device_of(arrays[0]):
            results.append(attention(*arrays, **options))
    return results


def attention_of_shards(
    q: Sequence[Any],
    k: Sequence[Any],
    v: Sequence[Any],
    *,
    causal: bool = False,
    zigzag: bool = False,
    scale: float | None = None,
    return_lse: bool = False,
) -> list[Any]:
    """Attention of one sequence whose rows and keys lie in equal parts, in order, on several devices.

    Every row sees the keys of all shards, or, causal, those up to its own. K and V go round: each device passes on what
    it has while it computes with it, and needs memory for two shards of them. On GPUs by NCCL, a thread each.

    `zigzag`: of n shards, the first has the first and the last of 2n equal parts of the sequence, the second the second
    and the last but one, and so on (`zigzag_shards`): causal, all devices then compute equally much.

    Returns O of each shard, on its device, or O and its LSE. Raises what `attention` and `ring_attention` raise, and
    MachineError if there is no NCCL.

    >>> x = np.random.default_rng(0).standard_normal((1, 2, 6, 8)).astype(np.float32)
    >>> shards = attention_of_shards(*[np.split(x, 3, axis=2)] * 3, causal=True)
    >>> np.allclose(np.concatenate(shards, axis=2), attention(x, x, x, causal=True), atol=1e-6)
    True
    """

    def shard(ring: Ring) -> Any:
        arrays = (q[ring.rank], k[ring.rank], v[ring.rank])
        return ring_attention(*arrays, ring, causal=causal, zigzag=zigzag, scale=scale, return_lse=return_lse)

    check_alike(q=q, k=k, v=v)
    return on_a_ring(q, shard)


def ring_attention(
    q: Any,
    k: Any,
    v: Any,
    ring: Ring,
    *,
    causal: bool = False,
    zigzag: bool = False,
    scale: float | None = None,
    return_lse: bool = False,
) -> Any:
    """What one worker does of attention_of_shards: `q`, `k` and `v` are its shards, (batch, heads, rows, d), all of one
    length. Workers of several processes make their ring by NcclRing.joined.

    Returns O of its rows, or O and its LSE. Raises ValueError if causal shards of q and k differ in length, or have an
    odd number of rows in a zigzag.
    """
    check_shards(q, k, causal, zigzag)
    so_far: Part | None = None
    for step in range(ring.size):
        arrive = ring.pass_on((k, v)) if step < ring.size - 1 else None
        owner = (ring.rank - step) % ring.size  # whose keys these are
        if seen := seen_of(q, ring.rank, owner, causal, zigzag):
            rows, keys, diagonal = seen
            some = q[:, :, rows], k[:, :, keys], v[:, :, keys]
            found = attention(*some, causal=diagonal, align=TOP_LEFT, scale=scale, return_lse=True)
            if so_far is None:
                so_far = (wide(found[0]), found[1]) if ring.size > 1 else found
            else:
                o, lse = so_far
                o[:, :, rows], lse[:, :, rows] = combined((o[:, :, rows], lse[:, :, rows]), found)
        if arrive:
            k, v = arrive()
    assert so_far is not None  # a worker's own keys come first
    o = cast(so_far[0], q)
    return (o, so_far[1]) if return_lse else o


def combined(*parts: Part) -> Part:
    """O and LSE of rows over all keys, from O and LSE over some of them each; float32, on the parts' device.

    >>> x = np.random.default_rng(0).standard_normal((1, 1, 4, 8)).astype(np.float32)
    >>> halves = [attention(x, x[:, :, a:b], x[:, :, a:b], return_lse=True) for a, b in ((0, 3), (3, 4))]
    >>> np.allclose(combined(*halves)[0], attention(x, x, x), atol=1e-6)
    True
    """
    (o, lse), *others = parts
    xp = _functions(lse)
    for next_o, next_lse in others:
        largest = xp.maximum(lse, next_lse)
        largest = xp.where(largest == -np.inf, xp.zeros_like(largest), largest)  # a row that has seen no key yet
        weight, next_weight = xp.exp(lse - largest), xp.exp(next_lse - largest)
        total = weight + next_weight
        divisor = xp.where(total == 0, xp.ones_like(total), total)
        o = o * (weight / divisor)[..., None] + next_o * (next_weight / divisor)[..., None]
        with np.errstate(divide="ignore"):
            lse = largest + xp.log(total)
    return o, lse


def wide(array: Any) -> Any:
    """An array of float32, of its own."""
    return array.float() if hasattr(array, "float") else array.astype(np.float32, copy=False)


def cast(o: Any, like: Any) -> Any:
    """O with the element type of another array."""
    return o.to(like.dtype) if hasattr(o, "to") and not hasattr(o, "astype") else o.astype(like.dtype, copy=False)


def _functions(array: Any) -> Any:
    """The module with an array's functions: all three have those that are needed."""
    library = type(array).__module__.split(".")[0]
    if library == TORCH:
        import torch

        return torch
    if library == CUPY:
        import cupy

        return cupy
    return np

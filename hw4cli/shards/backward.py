"""Gradients of attention whose sequence lies in shards on several GPUs: K, V and their gradients go round a ring."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from hw4cli.arrays.workload import TOP_LEFT
from hw4cli.gradients.backward import attention_backward
from hw4cli.shards.forward import cast, on_a_ring
from hw4cli.shards.ring import Arrive, Ring

Gradients = tuple[Any, Any, Any]


def attention_backward_of_shards(
    do: Sequence[Any],
    q: Sequence[Any],
    k: Sequence[Any],
    v: Sequence[Any],
    o: Sequence[Any],
    lse: Sequence[Any],
    *,
    causal: bool = False,
    scale: float | None = None,
) -> list[Gradients]:
    """dQ, dK and dV of `attention_of_shards`, for each shard, on its device. o and lse are what it returned with
    return_lse=True. Raises what `attention_backward` raises, and MachineError if there is no NCCL.

    >>> q, k, v, do = np.random.default_rng(0).standard_normal((4, 1, 2, 6, 8)).astype(np.float32)
    >>> from hw4cli.shards.forward import attention_of_shards
    >>> parts = [np.split(x, 2, axis=2) for x in (do, q, k, v)]
    >>> o, lse = zip(*attention_of_shards(*parts[1:], return_lse=True))
    >>> [dq.shape for dq, dk, dv in attention_backward_of_shards(*parts, o, lse)]
    [(1, 2, 3, 8), (1, 2, 3, 8)]
    """

    def shard(ring: Ring) -> Gradients:
        n = ring.rank
        return ring_attention_backward(do[n], q[n], k[n], v[n], o[n], lse[n], ring, causal=causal, scale=scale)

    return on_a_ring(q, shard)


def ring_attention_backward(
    do: Any, q: Any, k: Any, v: Any, o: Any, lse: Any, ring: Ring, *, causal: bool = False, scale: float | None = None
) -> Gradients:
    """What one worker does of attention_backward_of_shards.

    With O and LSE over all keys, each shard of keys adds its own share to the gradients; sums are in float32. dK and dV
    of a shard follow it round, while the next step is computed, and come home at the end.
    """
    own_k, own_v = k, v
    dq: Any = None
    shares: tuple[Any, ...] = (None, None)  # what is known of dK and dV of the keys that are here
    coming: Arrive | None = None
    for step in range(ring.size):
        arrive = ring.pass_on((k, v)) if step < ring.size - 1 else None
        owner = (ring.rank - step) % ring.size  # whose keys these are
        found: tuple[Any, ...] = (None, None, None)
        if not causal or owner <= ring.rank:
            diagonal = causal and owner == ring.rank
            gradients = attention_backward(do, q, k, v, o, lse, causal=diagonal, align=TOP_LEFT, scale=scale)
            found = tuple(map(_wide, gradients))
        dq = _sum(dq, found[0])
        if coming:  # only now: they were on their way while this worker computed
            shares = coming()
        shares = tuple(map(_sum, shares, found[1:]))
        if arrive:
            k, v = arrive()
        if ring.size > 1:
            coming = ring.pass_on(shares)
    dk, dv = coming() if coming else shares
    return cast(dq, q), cast(dk, own_k), cast(dv, own_v)


def _wide(array: Any) -> Any:
    """An array of float32."""
    return array.float() if hasattr(array, "float") else array.astype(np.float32, copy=False)


def _sum(a: Any, b: Any) -> Any:
    """Of two arrays, of which either may be None."""
    if a is None or b is None:
        return b if a is None else a
    return a + b

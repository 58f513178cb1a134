"""Gradients of attention whose sequence lies in shards on several GPUs: K, V and their gradients go round a ring."""

from collections.abc import Sequence
from typing import Any

from hw4cli.arrays.gradients.backward import gradients_of_some_keys
from hw4cli.arrays.shards.forward import cast, wide
from hw4cli.arrays.shards.order import check_shards, seen_of
from hw4cli.arrays.shards.places import check_alike, on_a_ring
from hw4cli.arrays.shards.ring import Arrive, Ring, packed
from hw4cli.problem.workload import TOP_LEFT

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
    zigzag: bool = False,
    scale: float | None = None,
) -> list[Gradients]:
    """dQ, dK and dV of `attention_of_shards`, for each shard, on its device. o and lse are what it returned with
    return_lse=True. Raises what `attention_backward` raises, and MachineError if there is no NCCL.

    >>> import numpy as np
    >>> q, k, v, do = np.random.default_rng(0).standard_normal((4, 1, 2, 6, 8)).astype(np.float32)
    >>> from hw4cli.arrays.shards.forward import attention_of_shards
    >>> parts = [np.split(x, 2, axis=2) for x in (do, q, k, v)]
    >>> o, lse = zip(*attention_of_shards(*parts[1:], return_lse=True))
    >>> [dq.shape for dq, dk, dv in attention_backward_of_shards(*parts, o, lse)]
    [(1, 2, 3, 8), (1, 2, 3, 8)]
    """

    def shard(ring: Ring) -> Gradients:
        n = ring.rank
        given = do[n], q[n], k[n], v[n], o[n], lse[n]
        return ring_attention_backward(*given, ring, causal=causal, zigzag=zigzag, scale=scale)

    check_alike(do=do, q=q, k=k, v=v, o=o, lse=lse)
    return on_a_ring(q, shard)


def ring_attention_backward(
    do: Any,
    q: Any,
    k: Any,
    v: Any,
    o: Any,
    lse: Any,
    ring: Ring,
    *,
    causal: bool = False,
    zigzag: bool = False,
    scale: float | None = None,
) -> Gradients:
    """What one worker does of attention_backward_of_shards.

    With O and LSE over all keys, each shard of keys adds its own share to the gradients; sums are in float32. dK and dV
    of a shard follow it round, while the next step is computed, and come home at the end.
    """
    check_shards(q, k, causal, zigzag)
    own_k, own_v = k, v
    sums: list[Any] = []  # dQ of these rows; dK and dV, as far as they are known, of the keys that are here
    coming: Arrive | None = None
    for step in range(ring.size):
        arrive = ring.pass_on((k, v)) if step < ring.size - 1 else None
        owner = (ring.rank - step) % ring.size  # whose keys these are
        found: tuple[Any, ...] = ()
        if seen := seen_of(q, ring.rank, owner, causal, zigzag):
            rows, keys, diagonal = seen
            some_do, some_q, some_o, some_lse = (x[:, :, rows] for x in (do, q, o, lse))
            given = some_do, some_q, k[:, :, keys], v[:, :, keys], some_o, packed(some_lse)
            found = tuple(map(wide, gradients_of_some_keys(*given, causal=diagonal, align=TOP_LEFT, scale=scale)))
        if coming:  # only now: they were on their way while this worker computed
            sums[1:] = coming()
        if not sums:
            sums = list(found)
        elif found:
            for total, share, where in zip(sums, found, (rows, keys, keys), strict=True):
                total[:, :, where] += share
        if arrive:
            k, v = arrive()
        if ring.size > 1:
            coming = ring.pass_on((sums[1], sums[2]))
    if coming:
        sums[1:] = coming()
    dq, dk, dv = sums
    return cast(dq, q), cast(dk, own_k), cast(dv, own_v)

"""Attention of arrays that lie on several GPUs: each computes what it has, or K and V go round a ring."""

import threading
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from typing import Any

import numpy as np

from hw4cli.arrays.attention import attention
from hw4cli.arrays.operand import CUPY, NUMPY, TORCH, operand
from hw4cli.arrays.workload import TOP_LEFT
from hw4cli.device.gpu import import_cupy
from hw4cli.shards.order import check_shards, seen_of
from hw4cli.shards.ring import NcclRing, Ring, ThreadRing

_ONE_AT_A_TIME = threading.Lock()
Part = tuple[Any, Any]  # O, and the log of each row's sum of exp(score)


def attention_of_each(q: Sequence[Any], k: Sequence[Any], v: Sequence[Any], **options: Any) -> list[Any]:
    """`attention` of each q, k and v, which lie together on one device: batches or heads that the caller has placed.

    GPUs compute at the same time, because no call waits. Options, and what is raised, are those of `attention`.

    >>> q = k = v = np.ones((1, 2, 5, 8), np.float16)
    >>> [o.shape for o in attention_of_each([q, q], [k, k], [v, v])]
    [(1, 2, 5, 8), (1, 2, 5, 8)]
    """
    _check_lengths(q, k, v)
    results = []
    for arrays in zip(q, k, v, strict=True):
        with _on_device_of(arrays[0]):
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

    _check_lengths(q, k, v)
    return on_a_ring(q, shard)


def on_a_ring(shards: Sequence[Any], work: Callable[[Ring], Any]) -> list[Any]:
    """What `work` returns for each place of a ring over the devices of some shards: a thread each, with its device the
    current one. The first error, if there is one, is raised. MachineError if there is no NCCL for GPUs."""
    failed = threading.Event()
    devices = [operand("q", one, "BHND").device for one in shards]
    rings: Sequence[Ring]
    if devices[0] is None:
        rings = ThreadRing.of(len(shards), failed.is_set)
    else:
        rings = NcclRing.of(tuple(device or 0 for device in devices))

    def place(ring: Ring) -> Any:
        with _on_device_of(shards[ring.rank]):
            return work(ring)

    with _ONE_AT_A_TIME:  # calls share their GPUs' rings
        return _each_in_a_thread([partial(place, ring) for ring in rings], failed)


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


def _on_device_of(array: Any) -> AbstractContextManager[Any]:
    """A block in which the array's GPU is the current one, for its library, too."""
    found = operand("q", array, "BHND")
    if found.library == NUMPY:
        return nullcontext()
    if found.library == TORCH:
        import torch

        context: AbstractContextManager[Any] = torch.cuda.device(found.device)
        return context
    device: AbstractContextManager[Any] = import_cupy().cuda.Device(found.device)
    return device


def _check_lengths(*lists: Sequence[Any]) -> None:
    counts = [len(one) for one in lists]
    if len(set(counts)) > 1 or not counts[0]:
        raise ValueError(
            f"there are {counts[0]} arrays of q, {counts[1]} of k and {counts[2]} of v: give as many of each"
        )


def _each_in_a_thread(tasks: Sequence[Callable[[], Any]], failed: threading.Event) -> list[Any]:
    """The results of tasks, each in a thread; the first error, if there is one."""
    results: list[Any] = [None] * len(tasks)
    errors: list[BaseException] = []

    def run(number: int) -> None:
        try:
            results[number] = tasks[number]()
        except BaseException as error:
            errors.append(error)
            failed.set()

    threads = [threading.Thread(target=run, args=(number,), daemon=True) for number in range(len(tasks))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if errors:
        raise errors[0]
    return results

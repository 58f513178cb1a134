"""Which rows of a sequence a shard has, in order or in a zigzag, and which of them see which keys of another shard."""

from collections.abc import Sequence
from typing import Any

import numpy as np

ALL = slice(None)


def seen_of(q: Any, rank: int, owner: int, causal: bool, zigzag: bool) -> tuple[slice, slice, bool] | None:
    """Which rows of shard `rank` see which keys of shard `owner`, and whether only those up to the diagonal; None if no
    row sees any.

    In a zigzag, a shard's first half stands before the first half of every later shard, and its second half behind the
    second half of those.
    """
    if not causal or owner == rank:
        return ALL, ALL, causal
    if not zigzag:
        return (ALL, ALL, False) if owner < rank else None
    half = q.shape[2] // 2
    return (ALL, slice(0, half), False) if owner < rank else (slice(half, None), ALL, False)


def check_shards(q: Any, k: Any, causal: bool, zigzag: bool) -> None:
    """Raise ValueError unless rows and keys of a shard can be compared by their places."""
    if causal and q.shape[2] != k.shape[2]:
        raise ValueError(f"causal shards have as many rows as keys, but q has {q.shape[2]} and k {k.shape[2]}")
    if zigzag and (q.shape[2] % 2 or k.shape[2] % 2):
        raise ValueError(f"shards of a zigzag have two halves, but q has {q.shape[2]} rows and k {k.shape[2]}")


def zigzag_shards(x: Any, count: int, axis: int = 2) -> list[Any]:
    """The shards of a whole array for `zigzag=True`: of 2·count equal parts, one from the front and one from the back.

    They are on the array's device. Raises ValueError if its length is not a multiple of 2·count.

    >>> [shard.tolist() for shard in zigzag_shards(np.arange(8), 2, axis=0)]
    [[0, 1, 6, 7], [2, 3, 4, 5]]
    """
    if x.shape[axis] % (2 * count):
        raise ValueError(f"a zigzag of {count} shards has {2 * count} equal parts: {x.shape[axis]} rows have none")
    parts = _parts(x, 2 * count, axis)
    return [_joined([parts[n], parts[-1 - n]], axis) for n in range(count)]


def from_zigzag(shards: Sequence[Any], axis: int = 2) -> Any:
    """The whole array of shards in a zigzag, which are on one device.

    >>> from_zigzag(zigzag_shards(np.arange(8), 2, axis=0), axis=0).tolist()
    [0, 1, 2, 3, 4, 5, 6, 7]
    """
    halves = [_parts(shard, 2, axis) for shard in shards]
    return _joined([first for first, _ in halves] + [second for _, second in reversed(halves)], axis)


def _parts(x: Any, count: int, axis: int) -> list[Any]:
    size = x.shape[axis] // count
    return [x[(ALL,) * axis + (slice(n * size, (n + 1) * size),)] for n in range(count)]


def _joined(parts: Sequence[Any], axis: int) -> Any:
    library = type(parts[0]).__module__.split(".")[0]
    if library == "torch":
        import torch

        return torch.cat(list(parts), dim=axis)
    if library == "cupy":
        import cupy

        return cupy.concatenate(parts, axis=axis)
    return np.concatenate(parts, axis=axis)

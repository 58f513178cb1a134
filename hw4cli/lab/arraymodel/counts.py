"""Counts that models of kernels for arrays share: bytes of matrices, and the tiles of keys that rows visit."""

from dataclasses import dataclass
from typing import Any

import numpy as np

from hw4cli.plans.formulas import FLOAT
from hw4cli.problem.workload import FLOAT32, Workload

HALF = 2  # bytes


@dataclass(frozen=True)
class Sizes:
    """Bytes of Q (as many as of O), of K (as many as of V); rows of all heads of Q."""

    q: int
    k: int
    rows: int

    @classmethod
    def of(cls, work: Workload) -> "Sizes":
        """Those of a workload."""
        element = FLOAT if work.dtype == FLOAT32 else HALF
        rows = work.batch * work.heads * work.Nq
        return cls(element * rows * work.d, element * work.batch * work.kv_heads * work.Nk * work.d, rows)


def times(a: Any, b: int) -> Any:
    """How many times b goes into numbers, rounded up."""
    return -(-a // b)


def keys_of(work: Workload, last_row: Any) -> Any:
    """How many keys rows see; not below 0."""
    return np.clip(last_row + work.offset + 1, 0, work.Nk) if work.causal else np.full_like(last_row, work.Nk)


def visited(work: Workload, rows: int, keys: int) -> tuple[int, int]:
    """Of tiles of so many rows, all heads: tiles of keys that they visit, at least one each; and the keys in these."""
    last = np.arange(0, work.Nq, rows, dtype=np.int64) + rows - 1
    tiles = np.maximum(1, times(keys_of(work, last), keys))
    heads = work.batch * work.heads
    return heads * int(tiles.sum()), heads * int(np.minimum(work.Nk, tiles * keys).sum())


def head_bytes(work: Workload, keys: int) -> int:
    """Bytes of so many keys of K and of V."""
    return 2 * (FLOAT if work.dtype == FLOAT32 else HALF) * keys * work.d

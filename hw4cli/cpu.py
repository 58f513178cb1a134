"""The CPU as hw4 uses it: its cores, and the tile of a computation on one of them."""

import os

# A tile of 1024 queries by 512 keys is 2 MB of float32: it stays in the L2 cache, and the BLAS is at its best.
QUERIES, KEYS = 1024, 512


def workers() -> int:
    """The number of cores that this process may use (a Slurm job sees its own)."""
    return len(os.sched_getaffinity(0))

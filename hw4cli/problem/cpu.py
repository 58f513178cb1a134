"""The CPU as hw4 uses it."""

import os


def workers() -> int:
    """The number of cores that this process may use (a Slurm job sees its own)."""
    return len(os.sched_getaffinity(0))

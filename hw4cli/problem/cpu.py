"""The CPU as hw4 uses it: tasks on all cores."""

import os
import threading
import time
from collections.abc import Callable, Iterable
from typing import Any

LONGEST_WAIT = 0.5  # seconds, in which a Ctrl-C may go unseen
BETWEEN_LOOKS = 0.01  # seconds


def workers() -> int:
    """The number of cores that this process may use (a Slurm job sees its own)."""
    return len(os.sched_getaffinity(0))


def on_all_cores(
    task: Callable[..., None],
    arguments: Iterable[tuple[Any, ...]],
    stop: threading.Event | None = None,
    done: Callable[..., None] = lambda *_: None,
) -> None:
    """Run task(*each) for each of the arguments, so many at a time as there are cores; done(*each) in their order.

    On Ctrl-C, or if a task fails, `stop` is set for those that run, which are waited for, and the others never begin.
    """
    from concurrent.futures import ThreadPoolExecutor, wait  # here, as it imports logging

    running: list[None] = []  # one for each that runs: a pool does not know a thread whose start Ctrl-C interrupted
    over = threading.Event()

    def run(*each: Any) -> None:
        running.append(None)
        try:
            if not over.is_set():
                task(*each)
        finally:
            running.pop()

    with ThreadPoolExecutor(workers()) as pool:
        try:
            for each, future in [(each, pool.submit(run, *each)) for each in arguments]:
                while not future.done():  # a Ctrl-C between two instructions, just before a wait, is seen after it
                    wait([future], LONGEST_WAIT)
                future.result()
                done(*each)
        except BaseException:
            over.set()
            pool.shutdown(wait=False, cancel_futures=True)  # first: whoever stops must not begin with another
            if stop:
                stop.set()
            while running:
                time.sleep(BETWEEN_LOOKS)
            raise

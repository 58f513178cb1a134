"""The ranked run of a kernel, as a process of its own: a job comes on stdin as JSON, its outcome goes to stdout."""

import json
import os
import sys
from dataclasses import asdict

from hw4cli.device.gpu import Gpu
from hw4cli.device.timing import GpuTimer
from hw4cli.errors import Hw4Error
from hw4cli.problem.workload import Workload
from hw4cli.show.leaderboard.entries import FAILED
from hw4cli.show.leaderboard.stages import Run, timed_kernel


def main() -> None:
    """Check a kernel on the data of a seed and time it with a cold L2."""
    answer = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # a kernel's own printf
    job = json.load(sys.stdin)
    try:
        run = timed_kernel(GpuTimer(Gpu()), job["kernel"], Workload.one_head(*job["shape"]), job["seed"], cold=True)
    except Hw4Error as error:
        run = Run(FAILED, str(error))
    json.dump(asdict(run), answer)
    answer.flush()
    os._exit(0)

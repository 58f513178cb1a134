"""The record of a benchmark: machine, software, commit, date, clocks, method, results."""

import os
import subprocess
from collections.abc import Sequence
from dataclasses import asdict
from importlib import import_module
from pathlib import Path
from typing import Any

from hw4cli.device.timing import GpuTimer
from hw4cli.lab.sampling import WARM_UP
from hw4cli.lab.tables import SCHEMA
from hw4cli.plans.measured import RUN_SPREAD
from hw4cli.resources import data_path
from hw4cli.system.machine import machine
from hw4cli.text.dates import today

OF_A_HOOK = {"GIT_DIR", "GIT_WORK_TREE", "GIT_INDEX_FILE"}  # what git tells the hooks that it runs
CACHE = {True: "L2 overwritten before each sample", False: "warm"}  # by whether a measurement is cold


def benchmark_record(
    timer: GpuTimer,
    rows: Sequence[Any],
    sgemm: float | None,
    cold: bool,
    before: dict[str, Any],
    others: bool = False,
    **method: Any,
) -> dict[str, Any]:
    """The record of rows, which are dataclasses; `method`: what differs from the method of kernels on files' cases.
    `others`: others' attention was timed, too."""
    return {
        **heading(),
        "hw4": import_module("hw4cli").__version__,  # which names what imports this module
        "machine": machine(timer.machine(), others),
        "clocks": {"before": before, "after": timer.clocks()},
        "sgemm_tflops": sgemm,
        "copy_gb_per_s": timer.copy_gb_per_s(),
        "method": {
            "timer": "CUDA events, kernels interleaved",
            "launches": "handed over while the cache is overwritten",
            "cache": CACHE[cold],
            "warm_up": WARM_UP,  # unless `method` says another number
            "interval": "95 % of the median, order statistics",
            "between_runs": RUN_SPREAD,
            "flops": "4*B*N*N*d; causal: half of it",
            "gb_per_s": "Q, K, V and O once",
            **method,
        },
        "rows": [asdict(row) for row in rows],
    }


def heading(kind: str | None = None) -> dict[str, Any]:
    """How every record begins: the schema, its kind, when it is made, and of which commit. Kernels' has no kind."""
    return {"schema": SCHEMA, **({"kind": kind} if kind else {}), **provenance()}


def provenance() -> dict[str, str | None]:
    """When a record is made, and of which commit."""
    return {"date": today(), "commit": commit()}


def commit() -> str | None:
    """The commit that is measured: HW4_COMMIT if it is set, else what git describes in the source tree; None where hw4
    is no part of a repository, though its folder may lie in somebody's."""
    if "HW4_COMMIT" in os.environ:
        return os.environ["HW4_COMMIT"]
    folder = data_path("entry.py").parent
    if git(folder, "ls-files", "--error-unmatch", "entry.py") is None:
        return None
    described = git(folder, "describe", "--always", "--dirty")
    return described.decode().strip() if described else None


def git(folder: Path, *words: str) -> bytes | None:
    """What a command of git prints in a folder, whatever repository a hook that runs us works on; None if it fails."""
    env = {name: value for name, value in os.environ.items() if name not in OF_A_HOOK}
    try:
        done = subprocess.run(
            ["git", "-C", str(folder), *words], stdin=subprocess.DEVNULL, capture_output=True, env=env
        )
    except OSError:
        return None
    return None if done.returncode else done.stdout

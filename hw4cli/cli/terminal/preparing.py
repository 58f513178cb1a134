"""Has hw4's kernels compiled before runs of it are timed, as a program is built before."""

import os
import subprocess
from collections.abc import Sequence
from contextlib import suppress
from typing import TYPE_CHECKING

from hw4cli.errors import MachineError

if TYPE_CHECKING:
    from hw4cli.problem.suite import Case

ON_CPU = "hw4 computed on the CPU by NumPy"
SECONDS = 600.0  # that compiling may take: half a minute of one core for all thirty cases


def prepare_kernels(
    command: Sequence[str], env: dict[str, str] | None, cases: "Sequence[Case]", launcher: Sequence[str] = ()
) -> str:
    """Have hw4, started by a command, compile all that these cases may need on the GPU here, or behind a launcher, as a
    submission is built before its first case. On a terminal, its bar and messages are seen.

    Returns a sentence on what computes where that is the CPU, else "".
    """
    from hw4cli.system.gpufiles import amd_gpu_is_here, nvidia_gpu_is_here
    from hw4cli.system.process import run_with_descendants

    if not launcher and not nvidia_gpu_is_here() and not amd_gpu_is_here():
        return f"{ON_CPU}: no GPU here"
    names = [case.name for case in cases]
    causal = ["--causal"] if any(case.shape.causal for case in cases) else []
    shown = None if os.isatty(2) else subprocess.DEVNULL
    with suppress(OSError, subprocess.TimeoutExpired):  # what is wrong, the cases will show
        asked = [*launcher, *command, "doctor", "--prepare", *causal, *names]
        printed, _, status = run_with_descendants(asked, os.environ if env is None else env, shown, SECONDS)
        if status == MachineError.exit_code and not printed:  # no line for a GPU that works
            return f"{ON_CPU}: no GPU here can be used (`hw4 doctor` shows why)"
    return ""

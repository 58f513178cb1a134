"""What is said where cupy is missing, without importing what computes on a GPU: that takes 10 ms."""

import sys
from importlib.util import find_spec

from hw4cli.errors import MachineError
from hw4cli.system.gpufiles import amd_gpu_is_here, nvidia_gpu_is_here

NO_NVIDIA_GPU = "there is no NVIDIA GPU here"


def check_cupy() -> None:
    """Raise MachineError where cupy is not installed, saying what to install; whether it loads, its import shows."""
    if "cupy" not in sys.modules and find_spec("cupy") is None:
        raise without_cupy()


def without_cupy() -> MachineError:
    """The error where cupy is missing: it is worth installing only where there is a GPU."""
    if not nvidia_gpu_is_here() and not amd_gpu_is_here():
        return MachineError(f"no GPU can be used: {NO_NVIDIA_GPU}")
    extras = "'.[cuda13]' or '.[cuda12]'" if nvidia_gpu_is_here() else "'.[rocm7]'"
    return MachineError(f"no GPU can be used: cupy is not installed (pip install {extras}, see docs/install.md)")

"""Whether a program needs a GPU, and whether one answers: a machine without one says nothing about the program."""

import mmap
from collections.abc import Mapping
from pathlib import Path

from hw4cli.system import amd, nvidia
from hw4cli.system.exits import names_missing_gpu

# What compilers leave in a program with kernels: the sections of device code, and the drivers' and runtimes' libraries.
MARKS = (b".nv_fatbin", b".hip_fatbin", b"libcuda.so", b"libcudart.so", b"libamdhip64.so")
ABSENT = (
    "no GPU answers here (see hw4 doctor), so that {what} cannot be judged: judge on a machine with one, or give "
    "each run one (--launcher 'srun --gres=gpu:1')"
)


def needs_gpu(program: Path) -> bool:
    """Whether a file is a native program with kernels for a GPU, or with a GPU's libraries. A script never is: it may
    load anything."""
    try:
        with program.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as content:
            return content[:4] == b"\x7fELF" and any(content.find(mark) >= 0 for mark in MARKS)
    except (OSError, ValueError):  # the second of an empty file
        return False


def gpu_answers(env: Mapping[str, str]) -> bool:
    """Whether CUDA or AMD's driver shows a GPU to programs with this environment, now."""
    return nvidia.cuda_answers(env) or amd.first_visible(env) is not None


def failed_without_gpu(stderr: str, env: Mapping[str, str]) -> bool:
    """Whether a program's message names a missing GPU or driver, and this machine indeed shows it none."""
    return names_missing_gpu(stderr) and not gpu_answers(env)

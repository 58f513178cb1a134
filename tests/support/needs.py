"""Programs of the system that tests need. Where one is missing, a test is skipped, and says what to install:

@needs("g++")                                   # a test; as `pytestmark`, a file; as `marks=`, one of its parameters
def test_...: ...

skip_without("make")                            # within a test or a fixture
"""

import os
import shutil

import pytest

# Debian's and Ubuntu's packages, where they have another name than the program.
PACKAGES = {
    "bwrap": "bubblewrap",
    "cc": "gcc",
    "chromedriver": "chromium-driver",
    "clang++": "clang",
    "cuobjdump": "nvidia-cuda-toolkit",
    "llvm-objdump": "llvm",
    "munged": "munge",
    "nvcc": "nvidia-cuda-toolkit",
    "prlimit": "util-linux",
    **dict.fromkeys(("srun", "sbatch", "squeue", "scancel", "scontrol"), "slurm-client"),
    "setpriv": "util-linux",
    "slurmctld": "slurm-wlm",
    "slurmd": "slurm-wlm",
}
# Daemons are not on every user's PATH.
PATH = f"{os.environ.get('PATH', '')}:/usr/sbin:/sbin"
COMPILER = "g++|clang++"  # any C++ compiler: what executes kernels on the CPU needs one
SLURM = ("munged", "slurmctld", "slurmd", "srun", "sbatch", "squeue", "scancel", "scontrol")


def why_not(*programs):
    """Why what needs these programs cannot run here, or an empty text; of "g++|clang++" any is enough."""
    lacking = [choice for choice in programs if not any(shutil.which(name, path=PATH) for name in choice.split("|"))]
    packages = {PACKAGES.get(name, name): None for name in (choice.partition("|")[0] for choice in lacking)}
    return f"needs {', '.join(lacking).replace('|', ' or ')} (Debian, Ubuntu: {', '.join(packages)})" if lacking else ""


def needs(*programs):
    """A mark: the test needs these programs."""
    return pytest.mark.skipif(bool(why_not(*programs)), reason=why_not(*programs))


def skip_without(*programs):
    """Skip the test that runs, where one of these programs is missing."""
    if reason := why_not(*programs):
        pytest.skip(reason)

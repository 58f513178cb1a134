"""The environment variables of judged programs and builds: what they need to find libraries, the GPU and the locale,
and no other variable of the judge. A variable that is not listed here may hold a password, which a program could
print."""

import re
import site
from collections.abc import Iterable, Mapping
from pathlib import Path

SYSTEM = ("PATH", "LANG", "LANGUAGE", "TZ", "SHELL", "TERM", "LOCPATH")
# Where libraries, headers and compilers are, as module systems (Lmod, Environment Modules, Spack) set it.
MODULES = (
    *("LD_LIBRARY_PATH", "LIBRARY_PATH", "CPATH", "C_INCLUDE_PATH", "CPLUS_INCLUDE_PATH", "PKG_CONFIG_PATH"),
    *("CMAKE_PREFIX_PATH", "MODULEPATH", "MODULESHOME", "LOADEDMODULES", "_LMFILES_", "NVHPC", "NVHPC_ROOT"),
    *("CC", "CXX", "CFLAGS", "CXXFLAGS", "CPPFLAGS", "LDFLAGS", "NVCC", "NVCCFLAGS"),
)
NVIDIA = ("NVIDIA_VISIBLE_DEVICES", "NVIDIA_DRIVER_CAPABILITIES", "NVIDIA_TF32_OVERRIDE")  # there is an NVIDIA_API_KEY
PYTHON = ("PYTHONPATH", "PYTHONHOME", "PYTHONUSERBASE", "PYTHONUNBUFFERED", "VIRTUAL_ENV", "CONDA_PREFIX")
NAMES = frozenset((*SYSTEM, *MODULES, *NVIDIA, *PYTHON))
FAMILIES = (
    *("LC_", "LMOD_", "EBROOT", "SPACK_"),
    *("CUDA_", "CUDNN_", "CUBLAS_", "NVCC_", "NVRTC_", "CUPY_", "NUMBA_", "TRITON_", "TORCH_"),
    *("ROCR_", "ROCM_", "HIP_", "HSA_", "HCC_", "GPU_"),
    *("OMP_", "GOMP_", "KMP_", "MKL_", "OPENBLAS_", "ASAN_", "UBSAN_", "TSAN_", "LSAN_"),
    "SLURM_",  # a program that calls srun itself needs to know the job
)
# Variables of a family that hold secrets all the same: SLURM_JWT lets its reader act as the user.
SECRET = re.compile(r"TOKEN|SECRET|PASS|CREDENTIAL|KEY|JWT|AUTH|COOKIE")
SET = ("HOME", "TMPDIR", "PWD")  # set to the program's own folder, whatever their values here


def is_passed(name: str) -> bool:
    """Whether programs get a variable of this name without --pass-env."""
    return name in NAMES or (name.startswith(FAMILIES) and not SECRET.search(name))


def environment(base: Mapping[str, str], folder: Path, answer: Path, wanted: Iterable[str] = ()) -> dict[str, str]:
    """A program's environment, a subset of `base`: its home and temporary folder are `folder`, and no value contains
    the path of the answer. The variables that `wanted` names are passed too.

    PYTHONUSERBASE is set, so that Python finds the user's own packages (~/.local) although HOME differs.
    """
    hidden = {str(answer.parent), str(answer.parent.resolve())}
    secret = {str(answer), str(answer.resolve())}
    wanted = set(wanted)
    env = {
        name: value
        for name, value in base.items()
        if (is_passed(name) or name in wanted) and value not in hidden and not any(path in value for path in secret)
    }
    user_base = env.get("PYTHONUSERBASE") or site.getuserbase()
    return {**env, **dict.fromkeys(SET, str(folder)), "PYTHONUSERBASE": user_base}

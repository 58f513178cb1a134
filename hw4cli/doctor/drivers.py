"""The GPUs as the drivers report them, without any Python package, and the cupy that fits them."""

import importlib.metadata
import os
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from hw4cli.doctor.finding import Finding, UnansweredError, output_of
from hw4cli.system.amd import gpus as amd_gpus
from hw4cli.system.gpufiles import amd_gpu_is_here

# CUDA 13 dropped the drivers before 580 and the GPUs before Turing (its release notes); CUDA 12 needs driver 525.
CUDA13_DRIVER, CUDA12_DRIVER, CUDA13_CC = 580, 525, 7.5
NO_GPU_HERE = "on a cluster: srun -p nvidia -N1 -n1 --gres=gpu:1 hw4 doctor"


@dataclass(frozen=True)
class NvidiaGpu:
    """A GPU as nvidia-smi reports it; memory in MiB. Old drivers do not report the compute capability."""

    name: str
    driver: str
    memory: str
    cc: float | None = None


def nvidia_gpus() -> list[NvidiaGpu] | None:
    """The GPUs that the NVIDIA driver shows; None without nvidia-smi. Raises UnansweredError if it does not answer."""
    fields = ["name", "driver_version", "memory.total", "compute_cap"]
    try:
        printed = output_of(_query(fields))
    except UnansweredError as reason:
        if "compute_cap" not in str(reason):
            raise
        printed = output_of(_query(fields[:3]))
    if printed is None:
        return None
    rows = [[cell.strip() for cell in line.split(",")] for line in printed.splitlines()]
    return [NvidiaGpu(row[0], row[1], row[2], _number(row[3:])) for row in rows if len(row) >= 3]


def _query(fields: list[str]) -> list[str]:
    return ["nvidia-smi", f"--query-gpu={','.join(fields)}", "--format=csv,noheader,nounits"]


def _number(cells: list[str]) -> float | None:
    return float(cells[0]) if cells and re.fullmatch(r"\d+\.\d+", cells[0]) else None


def nvidia() -> list[Finding]:
    """The NVIDIA driver, its GPUs, and whether the cupy that is installed fits them."""
    name = "NVIDIA driver"
    try:
        gpus = nvidia_gpus()
    except UnansweredError as reason:
        return [Finding(name, "warning", str(reason), NO_GPU_HERE), *cupy_fit(cupy_packages(), [])]
    if not gpus:
        found = "nvidia-smi is not on PATH" if gpus is None else "nvidia-smi shows no GPU"
        return [Finding(name, "missing", found, NO_GPU_HERE), *cupy_fit(cupy_packages(), [])]
    lines = [Finding(name, "ok", gpus[0].driver)]
    for index, gpu in enumerate(gpus):
        capability = f"compute capability {gpu.cc or 'unknown'}"
        lines.append(Finding(f"GPU {index}", "ok", f"{gpu.name}, {capability}, {gpu.memory} MiB"))
    return [*lines, *cupy_fit(cupy_packages(), gpus)]


def cupy_packages() -> dict[str, str]:
    """The installed distributions that bring the module cupy, by name, and their versions."""
    found = {}
    for distribution in importlib.metadata.distributions():
        name = str(distribution.metadata["Name"]).lower().replace("_", "-")
        if re.fullmatch(r"cupy(-cuda\d+x?|-rocm-.*)?|amd-cupy", name):
            found[name] = distribution.version
    return dict(sorted(found.items()))


def cupy_fit(packages: dict[str, str], gpus: Sequence[NvidiaGpu]) -> list[Finding]:
    """Whether there is exactly one cupy, and one for this driver and every GPU."""
    extra, why = wanted_extra(gpus)
    install = f"pip install '.[{extra}]'"
    found = ", ".join(f"{name} {version}" for name, version in packages.items())
    if not packages:
        if gpus or amd_gpu_is_here():
            return [Finding("cupy", "warning", "none is installed: the GPU cannot be used", f"{install}   # {why}")]
        return [Finding("cupy", "missing", "none is installed; only needed with a GPU")]
    remove = f"pip uninstall -y {' '.join(packages)} && {install}"
    if len(packages) > 1:
        return [Finding("cupy", "warning", f"{found} clash: only one may be installed", remove)]
    package = next(iter(packages))
    lines = [Finding("cupy", "ok", found)]
    if not gpus and _for_amd(package) and not amd_gpu_is_here():
        advice = f"pip uninstall -y {package}"
        lines = [Finding("cupy", "warning", f"{found} is for AMD GPUs, and there is none here", advice)]
    elif not gpus and amd_gpu_is_here() and not _for_amd(package):
        lines = [Finding("cupy", "warning", f"{found} does not fit: {why}", remove)]
    if gpus and _major(gpus[0].driver) < CUDA12_DRIVER:
        advice = f"update the NVIDIA driver to {CUDA12_DRIVER} or newer"
        lines = [Finding("cupy", "warning", f"{found}; the driver {gpus[0].driver} is too old for CUDA 12", advice)]
    elif gpus and (_for_amd(package) or (package == "cupy-cuda13x" and extra == "cuda12")):
        lines = [Finding("cupy", "warning", f"{found} does not fit: {why}", remove)]
    return lines


def _for_amd(package: str) -> bool:
    return "rocm" in package or package == "amd-cupy"


def wanted_extra(gpus: Sequence[NvidiaGpu]) -> tuple[str, str]:
    """The extra to install for these GPUs, or for AMD's if there are none of NVIDIA's, and why."""
    if not gpus and amd_gpu_is_here():
        return "rocm7", "the GPU is one of AMD's, on which hw4 runs with ROCm 7"
    for gpu in gpus:
        if _major(gpu.driver) < CUDA13_DRIVER:
            return "cuda12", f"driver {gpu.driver} is older than {CUDA13_DRIVER}, which CUDA 13 needs"
        if gpu.cc and gpu.cc < CUDA13_CC:
            return "cuda12", f"{gpu.name} has compute capability {gpu.cc}, CUDA 13 needs {CUDA13_CC}"
    return "cuda13", f"driver {CUDA13_DRIVER} or newer and compute capability {CUDA13_CC} or more"


def _major(version: str) -> int:
    number = re.match(r"\d+", version)
    return int(number[0]) if number else 0


def amd(root: Path = Path("/")) -> list[Finding]:
    """The AMD GPUs that the kernel's driver shows, and whether programs may use them."""
    kfd = root / "dev/kfd"
    if not kfd.exists():
        return [Finding("AMD GPU", "missing", "no /dev/kfd")]
    if not os.access(kfd, os.R_OK | os.W_OK):
        return [Finding("AMD GPU", "warning", "/dev/kfd is not ours to open", 'sudo usermod -aG render,video "$USER"')]
    found = amd_gpus(root)
    lines = [Finding(f"AMD GPU {index}", "ok", gpu.gfx) for index, gpu in enumerate(found)]
    return lines or [Finding("AMD GPU", "missing", "/dev/kfd shows no GPU")]


def counters(path: Path = Path("/proc/driver/nvidia/params")) -> list[Finding]:
    """Whether profilers may read the GPU's counters (NVIDIA's driver may keep them for the administrator)."""
    try:
        closed = re.search(r"^RmProfilingAdminOnly: *1", path.read_text(), re.MULTILINE)
    except OSError:
        return [Finding("counters", "missing", "no NVIDIA driver is loaded")]
    if not closed or _is_administrator():
        return [Finding("counters", "ok", "open to this user, the administrator" if closed else "open to everyone")]
    advice = "administrator: options nvidia NVreg_RestrictProfilingToAdminUsers=0 in /etc/modprobe.d, then reboot"
    return [Finding("counters", "warning", "closed: ncu will fail with ERR_NVGPUCTRPERM", advice)]


def _is_administrator() -> bool:
    """Whether this process has CAP_SYS_ADMIN (bit 21), which root in a container may lack."""
    capabilities = re.search(r"^CapEff:\s*(\w+)", Path("/proc/self/status").read_text(), re.MULTILINE)
    return capabilities is not None and bool(int(capabilities[1], 16) >> 21 & 1)

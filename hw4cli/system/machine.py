"""The machine that a record was made on: the same block of facts in every record, of whatever command."""

import json
import os
import platform
import shutil
import sys
from collections.abc import Mapping
from contextlib import suppress
from importlib import metadata
from pathlib import Path
from typing import Any

from hw4cli.system import nvidia

MOUNTS, BLOCK_DEVICES = Path("/proc/self/mountinfo"), Path("/sys/class/block")
GIB, GB = 1 << 30, 1e9
# Modules whose kernels are timed beside hw4's, or compile them: the name in records, and the package that has them.
OTHERS = {
    "torch": ("torch", "torch"),
    "triton": ("triton", "triton"),
    "tilelang": ("tilelang", "tilelang"),
    "flash_attn": ("flash_attn", "flash-attn"),
    "flash_attn_interface": ("flash_attn_3", "flash-attn-3"),
    "flash_attn.cute": ("flash_attn_4", "flash-attn-4"),
    "cutlass": ("cutlass_dsl", "nvidia-cutlass-dsl"),
    "cudnn": ("cudnn_frontend", "nvidia-cudnn-frontend"),
    "triton.language.extra.tlx": ("fbtriton", "fbtriton"),
}


def machine(
    gpu: Mapping[str, Any] | None = None, others: bool = False, folder: Path = Path(), versions: bool = True
) -> dict[str, Any]:
    """The GPU and its software, then the processor, memory, disk and system; None for what is missing.

    `gpu`: what is known of a GPU that is open; else the first one's name and driver are asked for, and none is opened.
    `others`: software of others was timed, and is named by its version, too. `folder`: where files are read and
    written, for the disk. Without `versions`, packages of Python are not named: they took no part.
    """
    if gpu is None:
        name, driver = nvidia.gpu_and_driver()
        gpu = {"gpu": name, "driver": driver}
    packages = {"numpy": _installed("numpy"), "cupy": _installed("cupy")} if versions else {}
    return {**packages, **gpu, **host(folder), **(others_versions() if others else {})}


def main() -> None:
    """Print the block as JSON: for a machine that a command behind srun runs on."""
    print(json.dumps(machine()))


def host(folder: Path = Path()) -> dict[str, Any]:
    """What is known of this machine without its GPU; `folder` is on the disk that counts."""
    library, version = platform.libc_ver()
    return {
        "cpu": _cpu(),
        "cores": len(os.sched_getaffinity(0)),
        "ram": f"{os.sysconf('SC_PHYS_PAGES') * os.sysconf('SC_PAGE_SIZE') / GIB:.4g} GiB",
        "disk": disk(folder),
        "linux": platform.release(),
        "glibc": version if library == "glibc" else None,
        "python": platform.python_version(),
    }


def others_versions() -> dict[str, str]:
    """The versions of others' packages that this process has imported, and of the cuDNN that torch has loaded, and
    cudnn-frontend, which may find another one."""
    found = {module: sys.modules[module] for module in OTHERS if module in sys.modules}
    if "flash_attn.cute" in found and not hasattr(found.get("flash_attn"), "flash_attn_func"):
        found.pop("flash_attn", None)  # only the folder that the fourth lies in
    versions = {OTHERS[name][0]: _version(module, OTHERS[name][1]) for name, module in found.items()}
    if "torch" in found and (number := found["torch"].backends.cudnn.version()):
        versions["cudnn"] = cudnn_version(int(number))
    if number := getattr(found.get("cudnn"), "backend_version", int)():
        versions["frontends_cudnn"] = cudnn_version(int(number))
    return versions


def _version(module: Any, package: str) -> str:
    """What a module says of itself, else what is installed: FlashAttention 4 says 0.0.0 of every version."""
    said = str(getattr(module, "__version__", "0.0.0"))
    if said != "0.0.0":
        return said
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return "unknown"


def cudnn_version(number: int) -> str:
    """As cuDNN counts: 91002 is 9.10.2, and 8902, before 9.0, is 8.9.2.

    >>> cudnn_version(91002), cudnn_version(8902)
    ('9.10.2', '8.9.2')
    """
    large = 10_000 if number >= 90_000 else 1000
    return f"{number // large}.{number % large // 100}.{number % 100}"


def filesystem(path: Path) -> str:
    """The kind of file system that a path is on, such as "ext4" or "nfs4"; "" if unknown."""
    return _mount(path)[0]


def disk(folder: Path) -> str | None:
    """The disk of a folder in words: "ext4, 1,024 GB, solid-state"; None if the system does not tell."""
    kind, source = _mount(folder)
    try:
        size = shutil.disk_usage(folder).total
    except OSError:
        return kind or None
    words = [kind] * bool(kind) + [f"{size / GB:,.0f} GB"]
    return ", ".join([*words, *["solid-state"] * _is_solid(source)])


def _mount(path: Path) -> tuple[str, str]:
    """The kind of the file system that a path is on, and what it lies on, such as /dev/sda1."""
    try:
        lines = MOUNTS.read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return "", ""
    mounts = {}
    for line in lines:  # 36 35 98:0 /root /mount/point options ... - kind source options
        before, _, after = line.partition(" - ")
        fields, described = before.split(), after.split()
        if len(fields) > 4 and len(described) > 1:
            mounts[fields[4].replace("\\040", " ")] = described[0], described[1]
    resolved = path.resolve()
    return next((mounts[str(place)] for place in (resolved, *resolved.parents) if str(place) in mounts), ("", ""))


def _is_solid(source: str) -> bool:
    """Whether a block device has no turning disks. That one has, a virtual machine's kernel says of any."""
    device = BLOCK_DEVICES / Path(source).name
    for place in (device, device.resolve().parent):
        with suppress(OSError, UnicodeDecodeError):
            return (place / "queue" / "rotational").read_text(encoding="ascii").strip() == "0"
    return False


def _cpu() -> str:
    lines = Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace").splitlines()
    models = (line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    return next(models, platform.machine())


def _installed(name: str) -> str | None:
    """The version of the package of this name, else of one that adds to it, as CuPy's wheels cupy-cuda12x do.

    (numpy-financial, numpyro and their like are none of them.)
    """
    found = {one.name.lower(): one.version for one in metadata.distributions() if one.name}
    wheels = (version for full, version in found.items() if full.startswith((f"{name}-cuda", f"{name}-rocm")))
    return found.get(name) or next(wheels, None)

"""NVIDIA's GPUs as NVML and nvidia-smi report them: which there are, and which one a program computes on, by UUID.

CUDA numbers GPUs fastest first, the driver's tools (NVML, nvidia-smi) by their place on the bus; neither counts GPUs
that a job may not use. So a number does not identify a GPU, but a UUID does.
"""

import os
import re
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache, partial
from typing import Any

TOOL_SECONDS = 30

# NVML's bits for why clocks are held down (nvml.h, nvmlClocksEventReason…); 1 is "idle" and no throttling.
THROTTLE_BITS = {
    0x4: "power cap",
    0x8: "hardware slowdown",
    0x20: "software thermal",
    0x40: "hardware thermal",
    0x80: "power brake",
}

# Prints the UUID of CUDA's first device, as bytes in hexadecimal; in its own process, because a process cannot leave
# CUDA.
ASK_CUDA = """
import ctypes
cuda, device, uuid = ctypes.CDLL("libcuda.so.1"), ctypes.c_int(), (ctypes.c_ubyte * 16)()
get = getattr(cuda, "cuDeviceGetUuid_v2", cuda.cuDeviceGetUuid)
if cuda.cuInit(0) == cuda.cuDeviceGet(ctypes.byref(device), 0) == get(uuid, device) == 0:
    print(bytes(uuid).hex())
"""


@dataclass(frozen=True)
class VisibleGpu:
    """A GPU with its MIG instances (`parts`), or such an instance; `whole` is the UUID of the GPU that it is part
    of."""

    uuid: str
    name: str
    whole: str | None = None
    parts: tuple["VisibleGpu", ...] = ()


def first_visible(env: Mapping[str, str]) -> VisibleGpu | None:
    """The first GPU that a program with this environment sees; None without one, or if the driver cannot be asked."""
    return _first_visible(env.get("CUDA_VISIBLE_DEVICES"), env.get("CUDA_DEVICE_ORDER"), table())


def _first_visible(wanted: str | None, order: str | None, gpus: tuple[VisibleGpu, ...]) -> VisibleGpu | None:
    first = "0" if wanted is None else wanted.partition(",")[0].strip()
    if number := re.match(r"\+?\d+", first):  # as strtol reads it
        index = int(number[0])
        if index >= len(gpus):
            return None
        if order == "PCI_BUS_ID" or len({gpu.name for gpu in gpus}) == 1:
            gpu = gpus[index]
        else:
            gpu = _first_for_cuda(wanted, order, gpus) or gpus[index]
        return gpu.parts[0] if gpu.parts else gpu
    every = [one for gpu in gpus for one in (gpu, *gpu.parts)]
    if found := re.fullmatch(r"MIG-(GPU-[\da-fA-F-]+)/(\d+)/(\d+)", first):  # as older drivers name a part
        [*wholes] = (gpu for gpu in gpus if gpu.uuid == found[1])
        return VisibleGpu(first, wholes[0].name, wholes[0].uuid) if wholes else None
    # The beginning of a UUID will do, if there is only one with it.
    matching = [one for one in every if first.startswith(("GPU-", "MIG-")) and one.uuid.startswith(first)]
    if len(matching) != 1:
        return None
    return matching[0].parts[0] if matching[0].parts else matching[0]


@cache
def _first_for_cuda(wanted: str | None, order: str | None, gpus: tuple[VisibleGpu, ...]) -> VisibleGpu | None:
    """What CUDA itself takes for the first, where GPUs are of several kinds; None if it cannot be asked."""
    asked = {"CUDA_VISIBLE_DEVICES": wanted, "CUDA_DEVICE_ORDER": order}
    env = {**os.environ, **{name: value for name, value in asked.items() if value is not None}}
    for name in [name for name, value in asked.items() if value is None]:
        env.pop(name, None)
    uuid = _output_of(sys.executable, "-S", "-c", ASK_CUDA, env=env).strip()
    return next((gpu for gpu in gpus if uuid and gpu.uuid.replace("-", "").lower() == f"gpu{uuid}"), None)


def cuda_answers(env: Mapping[str, str]) -> bool:
    """Whether CUDA shows a GPU to a program with this environment, asked anew: a GPU may fall away at any time."""
    return bool(_output_of(sys.executable, "-S", "-c", ASK_CUDA, env=env).strip())


@cache
def table() -> tuple[VisibleGpu, ...]:
    """The GPUs that this process may use, in the driver's order; empty without any, or without a driver."""
    listed = tuple(_by_nvml())
    return listed or tuple(_by_tool(_output_of("nvidia-smi", "-L")))


def _by_nvml() -> Iterator[VisibleGpu]:
    for index in range(query_nvml(lambda nvml: nvml.nvmlDeviceGetCount()) or 0):
        handle = query_nvml(partial(_call, "nvmlDeviceGetHandleByIndex", index))
        if handle is not None:
            uuid, name = _text("nvmlDeviceGetUUID", handle), _text("nvmlDeviceGetName", handle)
            yield VisibleGpu(uuid, name, parts=tuple(_parts_by_nvml(handle, uuid, name)))


def _parts_by_nvml(handle: Any, whole: str, name: str) -> Iterator[VisibleGpu]:
    for index in range(query_nvml(partial(_call, "nvmlDeviceGetMaxMigDeviceCount", handle)) or 0):
        part = query_nvml(partial(_call, "nvmlDeviceGetMigDeviceHandleByIndex", handle, index))
        if part is not None:
            yield VisibleGpu(_text("nvmlDeviceGetUUID", part), _text("nvmlDeviceGetName", part) or name, whole)


def _call(function: str, *arguments: Any) -> Any:
    *rest, nvml = arguments
    return getattr(nvml, function)(*rest)


def _text(function: str, handle: Any) -> str:
    """What a function of NVML returns for a handle; older versions of the module return bytes."""
    text = query_nvml(partial(_call, function, handle))
    return text.decode() if isinstance(text, bytes) else text or ""


def _by_tool(listed: str) -> list[VisibleGpu]:
    """From what `nvidia-smi -L` prints."""
    gpus: list[VisibleGpu] = []
    for line in listed.splitlines():
        if whole := re.match(r"GPU \d+: (.*) \(UUID: (GPU-[^)]+)\)", line):
            gpus.append(VisibleGpu(whole[2], whole[1]))
        elif gpus and (part := re.match(r"\s+MIG (\S+)\s.*\(UUID: (MIG-[^)]+)\)", line)):
            gpu = gpus[-1]
            piece = VisibleGpu(part[2], f"{gpu.name} MIG {part[1]}", gpu.uuid)
            gpus[-1] = VisibleGpu(gpu.uuid, gpu.name, parts=(*gpu.parts, piece))
    return gpus


def gpu_and_driver() -> tuple[str | None, str | None]:
    """The first GPU's name and the driver's version, by nvidia-smi: CUDA would open the GPU."""
    printed = _output_of("nvidia-smi", "--query-gpu=name,driver_version", "--format=csv,noheader")
    first = printed.strip().partition("\n")[0]
    name, _, driver = first.rpartition(", ")
    return (name, driver) if name else (None, None)


def _output_of(*command: str, env: Mapping[str, str] | None = None) -> str:
    """What a command prints; "" if it fails."""
    try:
        result = subprocess.run(command, capture_output=True, text=True, timeout=TOOL_SECONDS, check=True, env=env)
    except (OSError, subprocess.SubprocessError):
        return ""
    return result.stdout


@cache
def nvml() -> Any:
    """The module pynvml, initialised; None where it is not installed or does not answer."""
    try:
        import pynvml

        pynvml.nvmlInit()
    except ImportError:
        return None
    except pynvml.NVMLError:
        return None
    return pynvml


def query_nvml(question: Callable[[Any], Any]) -> Any:
    """The result of a query of NVML; None if NVML is missing or fails."""
    module = nvml()
    try:
        return question(module) if module else None
    except module.NVMLError:
        return None

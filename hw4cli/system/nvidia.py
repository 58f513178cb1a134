"""NVIDIA's driver, asked by NVML and nvidia-smi: which GPUs there are, and which a program will compute on, by UUID.

CUDA numbers GPUs fastest first, the driver's tools (NVML, nvidia-smi) by their place on the bus, and what a job may not
use neither counts. So a number alone names no GPU; a UUID does, everywhere.
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

# Prints the UUID of CUDA's first device, as bytes in hexadecimal; in a process of its own, for CUDA stays where it was.
ASK_CUDA = """
import ctypes
cuda, device, uuid = ctypes.CDLL("libcuda.so.1"), ctypes.c_int(), (ctypes.c_ubyte * 16)()
get = getattr(cuda, "cuDeviceGetUuid_v2", cuda.cuDeviceGetUuid)
if cuda.cuInit(0) == cuda.cuDeviceGet(ctypes.byref(device), 0) == get(uuid, device) == 0:
    print(bytes(uuid).hex())
"""


@dataclass(frozen=True)
class Gpu:
    """A GPU, or a part of one (MIG), and the parts that it has; `whole` is the UUID of that which it is a part of."""

    uuid: str
    name: str
    whole: str | None = None
    parts: tuple["Gpu", ...] = ()


def first_visible(env: Mapping[str, str]) -> Gpu | None:
    """The first GPU that a program with this environment sees; None without one, or if the driver cannot be asked."""
    return _first_visible(env.get("CUDA_VISIBLE_DEVICES"), env.get("CUDA_DEVICE_ORDER"), table())


def _first_visible(wanted: str | None, order: str | None, gpus: tuple[Gpu, ...]) -> Gpu | None:
    first = "0" if wanted is None else wanted.partition(",")[0].strip()
    if number := re.match(r"\+?\d+", first):  # as strtol reads it
        index = int(number[0])
        if index >= len(gpus):
            return None
        if order == "PCI_BUS_ID" or len({gpu.name for gpu in gpus}) == 1:
            gpu = gpus[index]
        else:
            gpu = _as_cuda_says(wanted, order, gpus) or gpus[index]
        return gpu.parts[0] if gpu.parts else gpu
    every = [one for gpu in gpus for one in (gpu, *gpu.parts)]
    if found := re.fullmatch(r"MIG-(GPU-[\da-fA-F-]+)/(\d+)/(\d+)", first):  # as older drivers name a part
        [*wholes] = (gpu for gpu in gpus if gpu.uuid == found[1])
        return Gpu(first, wholes[0].name, wholes[0].uuid) if wholes else None
    # The beginning of a UUID will do, if there is only one with it.
    matching = [one for one in every if first.startswith(("GPU-", "MIG-")) and one.uuid.startswith(first)]
    if len(matching) != 1:
        return None
    return matching[0].parts[0] if matching[0].parts else matching[0]


@cache
def _as_cuda_says(wanted: str | None, order: str | None, gpus: tuple[Gpu, ...]) -> Gpu | None:
    """What CUDA itself takes for the first, where GPUs are of several kinds; None if it cannot be asked."""
    asked = {"CUDA_VISIBLE_DEVICES": wanted, "CUDA_DEVICE_ORDER": order}
    env = {**os.environ, **{name: value for name, value in asked.items() if value is not None}}
    for name in [name for name, value in asked.items() if value is None]:
        env.pop(name, None)
    told = _said(sys.executable, "-S", "-c", ASK_CUDA, env=env).strip()
    return next((gpu for gpu in gpus if told and gpu.uuid.replace("-", "").lower() == f"gpu{told}"), None)


@cache
def table() -> tuple[Gpu, ...]:
    """The GPUs that this process may use, in the driver's order; empty without any, or without a driver."""
    listed = tuple(_by_nvml())
    return listed or tuple(_by_tool(_said("nvidia-smi", "-L")))


def _by_nvml() -> Iterator[Gpu]:
    for index in range(ask(lambda nvml: nvml.nvmlDeviceGetCount()) or 0):
        handle = ask(partial(_call, "nvmlDeviceGetHandleByIndex", index))
        if handle is not None:
            uuid, name = _text("nvmlDeviceGetUUID", handle), _text("nvmlDeviceGetName", handle)
            yield Gpu(uuid, name, parts=tuple(_parts_by_nvml(handle, uuid, name)))


def _parts_by_nvml(handle: Any, whole: str, name: str) -> Iterator[Gpu]:
    for index in range(ask(partial(_call, "nvmlDeviceGetMaxMigDeviceCount", handle)) or 0):
        part = ask(partial(_call, "nvmlDeviceGetMigDeviceHandleByIndex", handle, index))
        if part is not None:
            yield Gpu(_text("nvmlDeviceGetUUID", part), _text("nvmlDeviceGetName", part) or name, whole)


def _call(function: str, *arguments: Any) -> Any:
    *rest, nvml = arguments
    return getattr(nvml, function)(*rest)


def _text(function: str, handle: Any) -> str:
    """What a function of NVML's says of a handle; older versions of the module give bytes."""
    told = ask(partial(_call, function, handle))
    return told.decode() if isinstance(told, bytes) else told or ""


def _by_tool(listed: str) -> list[Gpu]:
    """From what `nvidia-smi -L` prints."""
    gpus: list[Gpu] = []
    for line in listed.splitlines():
        if whole := re.match(r"GPU \d+: (.*) \(UUID: (GPU-[^)]+)\)", line):
            gpus.append(Gpu(whole[2], whole[1]))
        elif gpus and (part := re.match(r"\s+MIG (\S+)\s.*\(UUID: (MIG-[^)]+)\)", line)):
            gpu = gpus[-1]
            piece = Gpu(part[2], f"{gpu.name} MIG {part[1]}", gpu.uuid)
            gpus[-1] = Gpu(gpu.uuid, gpu.name, parts=(*gpu.parts, piece))
    return gpus


def gpu_and_driver() -> tuple[str | None, str | None]:
    """The first GPU's name and the driver's version, as nvidia-smi tells them: asking CUDA would open the GPU."""
    first = _said("nvidia-smi", "--query-gpu=name,driver_version", "--format=csv,noheader").strip().partition("\n")[0]
    name, _, driver = first.rpartition(", ")
    return (name, driver) if name else (None, None)


def _said(*command: str, env: Mapping[str, str] | None = None) -> str:
    """What a command prints; nothing if it fails."""
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


def ask(question: Callable[[Any], Any]) -> Any:
    """What NVML answers; None where it does not."""
    module = nvml()
    try:
        return question(module) if module else None
    except module.NVMLError:
        return None

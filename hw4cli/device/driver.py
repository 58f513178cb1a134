"""What is asked of CUDA's driver: contexts, made in a thread while Python imports modules, as both take 0.2 s and more;
and launches that overlap, which cupy lacks."""

import ctypes
import struct
import threading
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hw4cli.errors import MachineError

if TYPE_CHECKING:
    from hw4cli.plans.plan import DeviceProperties, Launch

PROGRAMMATIC = 6  # CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION
# After these errors of CUDA a process can no longer use the GPU: uncorrectable memory, traps, wrong addresses, unknown.
LOST = {214, 220, 226, 700, 702, 710, *range(714, 722), 999}
EARLY_CC = 90  # from which a launch can begin before the one in front of it has ended

_making: threading.Thread | None = None


@cache
def driver() -> ctypes.CDLL:
    """The library of CUDA's driver. Raises OSError where there is none."""
    return ctypes.CDLL("libcuda.so.1")


def make_context(number: int) -> None:
    """Start making a GPU's primary context, which cupy will use, in a thread; silent where there is no GPU.

    Only the first call has an effect; ctypes lets other threads run while the driver works.
    """
    global _making
    if _making is None:
        _making = threading.Thread(target=_make, args=([number],), daemon=True)
        _making.start()


def make_other_contexts(words: str, source: Path) -> None:
    """Go on with those of the other GPUs that `--gpus WORDS` asks for, as far as a file's work is enough for them."""
    from hw4cli.problem.workload import Workload, most_gpus

    most = 1
    with suppress(OSError, struct.error):  # the command reports what is wrong, as with a pipe, which might never open
        if source.is_file():
            with source.open("rb") as file:
                most = most_gpus(words, Workload.one_head(*struct.unpack("<iii", file.read(12))))
    kind, _, listed = words.partition(":")
    numbers = [int(number) for number in listed.split(",")] if listed else [most]
    wanted = numbers if kind == "ids" else list(range(min(most, numbers[0])))
    if others := wanted[1:]:
        threading.Thread(target=_make, args=(others, _making), daemon=True).start()


def _make(numbers: list[int], after: threading.Thread | None = None) -> None:
    if after:
        after.join()
    try:
        cuda = driver()
    except OSError:
        return
    device, context = ctypes.c_int(), ctypes.c_void_p()
    for number in numbers:
        if cuda.cuInit(0) == 0 and cuda.cuDeviceGet(ctypes.byref(device), number) == 0:
            cuda.cuDevicePrimaryCtxRetain(ctypes.byref(context), device)


def enqueue(function: Any, step: "Launch", params: tuple[Any], stream: Any, props: "DeviceProperties") -> None:
    """Enqueue a launch on a stream of cupy's, which is the current one."""
    if step.early and props.cc >= EARLY_CC:
        _launch_early(function, step, params, stream)
    else:
        function((step.grid,), (step.block,), params, shared_mem=step.shared)


class Attribute(ctypes.Structure):
    """CUlaunchAttribute, of a value that is an int."""

    _fields_ = (("id", ctypes.c_int), ("pad", ctypes.c_int), ("value", ctypes.c_int), ("rest", ctypes.c_char * 60))


class Config(ctypes.Structure):
    """CUlaunchConfig: blocks and threads in three dimensions, shared bytes, the stream, attributes."""

    _fields_ = (
        ("sizes", ctypes.c_uint * 7),
        ("stream", ctypes.c_void_p),
        ("attributes", ctypes.POINTER(Attribute)),
        ("count", ctypes.c_uint),
    )


def _launch_early(function: Any, step: "Launch", params: tuple[Any], stream: Any) -> None:
    """Enqueue a launch that may begin before the one in front of it has ended."""
    sizes = (ctypes.c_uint * 7)(step.grid, 1, 1, step.block, 1, 1, step.shared)
    config = Config(sizes, stream.ptr, ctypes.pointer(Attribute(PROGRAMMATIC, 0, 1)), 1)
    passed = (ctypes.c_void_p * 1)(params[0].ctypes.data)
    status = driver().cuLaunchKernelEx(ctypes.byref(config), ctypes.c_void_p(function.kernel.ptr), passed, None)
    if status:
        raise MachineError(f"the driver refuses to launch {step.symbol} (error {status})")

"""CUDA's driver, and contexts, made in a thread while Python imports modules, as both take 0.2 s and more."""

import ctypes
import struct
import threading
from contextlib import suppress
from functools import cache
from pathlib import Path

# After these errors of CUDA a process can no longer use the GPU: uncorrectable memory, traps, wrong addresses, unknown.
LOST = {214, 220, 226, 700, 702, 710, *range(714, 722), 999}

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

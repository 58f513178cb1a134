"""CUDA's context, made while Python imports: both take some 0.2 s, and neither needs the other."""

import ctypes
import threading


def make_context() -> None:
    """Start making the first GPU's primary context, which cupy will use, in a thread; silent where there is no GPU.

    ctypes lets other threads run while the driver works.
    """
    threading.Thread(target=_make, daemon=True).start()


def _make() -> None:
    try:
        driver = ctypes.CDLL("libcuda.so.1")
    except OSError:
        return
    device, context = ctypes.c_int(), ctypes.c_void_p()
    if driver.cuInit(0) == 0 and driver.cuDeviceGet(ctypes.byref(device), 0) == 0:
        driver.cuDevicePrimaryCtxRetain(ctypes.byref(context), device)

"""CUDA's context, made while Python imports: both take 0.2 s and more, and neither needs the other."""

import ctypes
import threading

_begun = False


def make_context() -> None:
    """Start making the first GPU's primary context, which cupy will use, in a thread; silent where there is no GPU.

    The first call does; ctypes lets other threads run while the driver works.
    """
    global _begun
    if not _begun:
        _begun = True
        threading.Thread(target=_make, daemon=True).start()


def _make() -> None:
    try:
        driver = ctypes.CDLL("libcuda.so.1")
    except OSError:
        return
    device, context = ctypes.c_int(), ctypes.c_void_p()
    if driver.cuInit(0) == 0 and driver.cuDeviceGet(ctypes.byref(device), 0) == 0:
        driver.cuDevicePrimaryCtxRetain(ctypes.byref(context), device)

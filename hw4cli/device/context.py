"""CUDA's context, made in a thread while Python imports modules: both take 0.2 s and more."""

import ctypes
import threading

_started = False


def make_context() -> None:
    """Start making the first GPU's primary context, which cupy will use, in a thread; silent where there is no GPU.

    Only the first call has an effect; ctypes lets other threads run while the driver works.
    """
    global _started
    if not _started:
        _started = True
        threading.Thread(target=_make, daemon=True).start()


def _make() -> None:
    try:
        driver = ctypes.CDLL("libcuda.so.1")
    except OSError:
        return
    device, context = ctypes.c_int(), ctypes.c_void_p()
    if driver.cuInit(0) == 0 and driver.cuDeviceGet(ctypes.byref(device), 0) == 0:
        driver.cuDevicePrimaryCtxRetain(ctypes.byref(context), device)

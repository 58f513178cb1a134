"""The parts of cupy that a run needs, imported in 0.1 s; the rest is imported when an attribute of it is used.

`cupy/__init__.py` imports fft, linalg, random and much more that RawModule does without. Here the module `cupy` is made
and a few of its submodules are imported, but `__init__.py` is run only when an attribute is missing, and in the same
module, so that a later `import cupy` finds it complete. This depends on the structure of a cupy version: versions that
were not tested this way are imported as usual.

And what cupy lacks: a launch that may begin before the one in front of it has ended.
"""

import ctypes
import importlib
import importlib.util
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from types import ModuleType
from typing import Any

from hw4cli.compute.plan import DeviceProperties, Launch
from hw4cli.errors import MachineError

TESTED = {"14.2.0"}
PROGRAMMATIC = 6  # CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION
EARLY_CC = 90  # from which a launch can begin before the one in front of it has ended
_LOADING = threading.RLock()  # a thread that found the module half made would miss its parts


def load() -> Any:
    """The module cupy, its parts or the whole. Raises what `import cupy` raises. Any thread may call."""
    with _LOADING:
        return _load()


def _load() -> Any:
    if "cupy" in sys.modules:
        return sys.modules["cupy"]
    spec = importlib.util.find_spec("cupy")
    if spec is None or spec.loader is None:
        raise ModuleNotFoundError("No module named 'cupy'", name="cupy")
    cupy = importlib.util.module_from_spec(spec)
    rest = _Rest(cupy)
    sys.modules["cupy"] = cupy
    try:
        _import_parts(cupy)
    except (ImportError, AttributeError, OSError, RuntimeError):
        # Another structure of cupy, a library that is missing, CUDA that fails: the usual import follows. It raises
        # what is really wrong with cupy, and does not import again what is already there.
        rest.run()
    else:
        cupy.__dict__["__getattr__"] = rest
    return cupy


def _import_parts(cupy: ModuleType) -> None:
    version = importlib.import_module("cupy._version").__version__
    if version not in TESTED:
        raise ImportError(f"cupy {version} was not tested with a partial import")
    with _without_libraries():
        # In this order: cupy.cuda and the core import each other.
        cupy.ndarray = importlib.import_module("cupy._core.core").ndarray  # type: ignore[attr-defined]
        cuda = importlib.import_module("cupy.cuda")
        cupy.RawModule = importlib.import_module("cupy._core.raw").RawModule  # type: ignore[attr-defined]
    # __init__.py does this, too: without memory pools, each new array would wait for the GPU.
    cuda.set_allocator(cuda.MemoryPool().malloc)
    cuda.set_pinned_memory_allocator(cuda.PinnedMemoryPool().malloc)


@contextmanager
def _without_libraries() -> Iterator[None]:
    """Hide CUDA's other libraries from cupy in this block: it would start a process and load cuBLAS for cuTENSOR."""
    if "cuda.pathfinder" in sys.modules:
        yield
        return
    pathfinder = sys.modules["cuda.pathfinder"] = _Pathfinder("cuda.pathfinder")
    try:
        yield
    finally:
        del sys.modules["cuda.pathfinder"]
        pathfinder.finds_nothing = False


class _Pathfinder(ModuleType):
    """Replaces NVIDIA's search for libraries: it finds nothing in the block, and calls the real one later."""

    finds_nothing = True

    class NotFoundError(Exception):
        """The library was not searched for."""

    def __getattr__(self, name: str) -> Any:
        if not self.finds_nothing:
            return getattr(importlib.import_module("cuda.pathfinder"), name)
        if name == "DynamicLibNotFoundError":
            return self.NotFoundError
        if name == "load_nvidia_dynamic_lib":
            return self._load
        raise AttributeError(name)

    def _load(self, library: str) -> None:
        raise self.NotFoundError(f"{library} was not searched for")


class _Rest:
    """The module's `__getattr__`: runs its `__init__.py` when an attribute is missing, once."""

    def __init__(self, cupy: ModuleType) -> None:
        self._cupy, self._begun, self._lock = cupy, False, threading.RLock()

    def __call__(self, name: str) -> Any:
        if name.startswith("__") and name != "__version__":  # by the import system itself
            raise AttributeError(name)
        self.run()
        try:
            return self._cupy.__dict__[name]
        except KeyError:
            raise AttributeError(f"module 'cupy' has no attribute {name!r}") from None

    def run(self) -> None:
        """Run `__init__.py`, unless it has run or is running."""
        with self._lock:
            if self._begun:
                return
            self._begun = True
            try:
                self._cupy.__spec__.loader.exec_module(self._cupy)  # type: ignore[union-attr]
            except BaseException:
                sys.modules.pop("cupy", None)
                raise


@cache
def driver() -> ctypes.CDLL:
    """The library of CUDA's driver."""
    return ctypes.CDLL("libcuda.so.1")


def enqueue(function: Any, step: Launch, params: tuple[Any], stream: Any, props: DeviceProperties) -> None:
    """Enqueue a launch on a stream of cupy's, which is the current one."""
    if step.early and props.cc >= EARLY_CC:
        _launch_early(function, step, params, stream)
    else:
        function((step.grid,), (step.block,), params, shared_mem=step.shared)


class _Attribute(ctypes.Structure):
    """CUlaunchAttribute, of a value that is an int."""

    _fields_ = (("id", ctypes.c_int), ("pad", ctypes.c_int), ("value", ctypes.c_int), ("rest", ctypes.c_char * 60))


class _Config(ctypes.Structure):
    """CUlaunchConfig: blocks and threads in three dimensions, shared bytes, the stream, attributes."""

    _fields_ = (
        ("sizes", ctypes.c_uint * 7),
        ("stream", ctypes.c_void_p),
        ("attributes", ctypes.POINTER(_Attribute)),
        ("count", ctypes.c_uint),
    )


def _launch_early(function: Any, step: Launch, params: tuple[Any], stream: Any) -> None:
    """Enqueue a launch that may begin before the one in front of it has ended."""
    sizes = (ctypes.c_uint * 7)(step.grid, 1, 1, step.block, 1, 1, step.shared)
    config = _Config(sizes, stream.ptr, ctypes.pointer(_Attribute(PROGRAMMATIC, 0, 1)), 1)
    passed = (ctypes.c_void_p * 1)(params[0].ctypes.data)
    status = driver().cuLaunchKernelEx(ctypes.byref(config), ctypes.c_void_p(function.kernel.ptr), passed, None)
    if status:
        raise MachineError(f"the driver refuses to launch {step.symbol} (error {status})")

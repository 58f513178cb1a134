"""The parts of cupy that a run needs, imported in 0.1 s; the rest is imported when an attribute of it is used.

`cupy/__init__.py` imports fft, linalg, random and much more that RawModule does without. Here the module `cupy` is made
and a few of its submodules are imported, but `__init__.py` is run only when an attribute is missing, and in the same
module, so that a later `import cupy` finds it complete. This depends on the structure of a cupy version: versions that
were not tested this way are imported as usual.

It is kept because it saves a quarter of the start: of processor time, the best of eight starts with cupy 14.2.0 took
0.12 s with NumPy alone, 0.20 with these parts, and 0.27 with the whole; that without a GPU, where the whole has no
libraries to load.
"""

import importlib
import importlib.util
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import ModuleType
from typing import Any

TESTED = {"14.2.0"}
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

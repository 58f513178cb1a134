"""cupy for ROCm on a machine with an MI210, neither of which is there: the module `cupy` of a process of its own.

Memory is the host's. A module is loaded from a code object that HIP's compiler really made, and its functions execute
on the CPU, with wavefronts of 64 lanes. What cupy refuses on ROCm raises an error here.
"""

import ctypes
import os
import time
from types import SimpleNamespace

import numpy as np

from hw4cli.device.hip.codeobject import kernels_of
from hw4cli.emulator.build import PLAIN, shared_object
from hw4cli.emulator.library import FORWARDS, Library, _words
from hw4cli.plans.ladder import VARIANTS
from hw4cli.plans.launch import _LAYOUT as LAYOUT
from hw4cli.plans.launch import ABSMAX_CHUNK, FIELDS
from hw4cli.plans.plan import AMD_DEVICES, Launch
from hw4cli.problem.workload import Shape
from hw4cli.resources import kernel_path

__version__ = "14.2.0"
MI210 = AMD_DEVICES["gfx90a"]


class HipError(RuntimeError):
    """cupy's error of the runtime, the driver and the memory."""


class Data:
    """A pointer."""

    def __init__(self, values):
        self._values, self.ptr = values, values.ctypes.data

    def memset_async(self, byte, size, stream=None):
        self._values.reshape(-1).view(np.uint8)[:size] = byte


class ndarray:  # noqa: N801 - cupy's name
    """An array on the GPU."""

    def __init__(self, shape, dtype=np.float32, values=None):
        if values is None:
            space = np.empty(int(np.prod(shape)) * np.dtype(dtype).itemsize + 512, np.uint8)
            first = -space.ctypes.data % 512
            values = space[first : space.size - 512 + first].view(dtype).reshape(shape)
        self.values, self.shape, self.size, self.nbytes = values, values.shape, values.size, values.nbytes
        self.flags = values.flags
        self.data = Data(values)

    def __getitem__(self, part):
        return ndarray(0, values=self.values[part])

    def view(self, dtype):
        return ndarray(0, values=self.values.view(dtype))

    def set(self, values):
        self.values[...] = values

    def get(self, stream=None):
        return self.values.copy()


class Function:
    """A kernel of a module."""

    def __init__(self, symbol, resources):
        self.symbol, self.resources = symbol, resources

    @property
    def attributes(self):
        raise HipError("hipErrorInvalidValue")

    def __setattr__(self, name, value):
        if name == "max_dynamic_shared_size_bytes":
            raise HipError("hipErrorNotSupported")
        super().__setattr__(name, value)

    def __call__(self, grid, block, arguments, shared_mem=0):
        assert shared_mem + self.resources.shared <= 64 << 10
        step = Launch(self.symbol, *grid, *block, shared_mem)
        if self.symbol == "absmax":
            path = shared_object(kernel_path("absmax"), {"ABSMAX_CHUNK": ABSMAX_CHUNK}, 0, self.resources.lanes, PLAIN)
            words = _words(arguments[0].tobytes())
            assert Library(path)._launch(step, words, self.resources.lanes, FORWARDS)
            return
        passed = arguments[0].tobytes()
        fields = dict(zip(FIELDS, LAYOUT.unpack(passed), strict=True))
        shape = Shape(fields["batches"], fields["Nq"], fields["q.row"])
        variant = next(v for v in VARIANTS.values() if self.symbol.startswith(v.name))
        plan = variant.plan(shape, MI210)
        assert step in plan.launches
        path = shared_object(kernel_path(variant.name), plan.macros, 0, self.resources.lanes, PLAIN)
        assert Library(path).launch(step, passed, [], lanes=self.resources.lanes) == (True, ())


class RawModule:
    """A code object, loaded."""

    def __init__(self, path):
        with open(path, "rb") as file:  # noqa: PTH123
            self._kernels = kernels_of(file.read())

    def get_function(self, symbol):
        return Function(symbol, self._kernels[symbol])


class Event:
    """A moment."""

    done, seconds = True, 0.0

    def __init__(self, disable_timing=False):
        pass

    def record(self, stream=None):
        self.seconds = time.perf_counter()

    def synchronize(self):
        pass


class Stream:
    """A queue of work, which is done at once."""

    ptr = 0

    def __init__(self, non_blocking=False):
        pass

    def __enter__(self):
        return self

    def __exit__(self, *_):
        pass

    def synchronize(self):
        pass


Stream.null = Stream()


def _count():
    if os.environ.get("FAKE_ROCM") == "no GPU":
        raise HipError("hipErrorNoDevice: no ROCm-capable device is detected")
    return 1


class Device:
    """The MI210: what it says of its compute capability would pass for an H200's."""

    id, compute_capability = 0, "90"

    @property
    def attributes(self):
        raise HipError("hipErrorInvalidValue")


FACTS = {
    "name": b"AMD Instinct MI210",
    "gcnArchName": b"gfx90a:sramecc+:xnack-",
    "multiProcessorCount": 104,
    "sharedMemPerBlock": 64 << 10,
    "maxSharedMemoryPerMultiProcessor": 64 << 10,
    "maxThreadsPerMultiProcessor": 2048,
}
cuda = SimpleNamespace(
    Device=Device,
    Event=Event,
    Stream=Stream,
    get_current_stream=lambda: Stream.null,
    alloc_pinned_memory=lambda size: np.empty(size, np.uint8),
    driver=SimpleNamespace(CUDADriverError=HipError),
    get_cuda_path=lambda: None,
    get_elapsed_time=lambda first, last: 1000 * (last.seconds - first.seconds),
    memory=SimpleNamespace(OutOfMemoryError=HipError),
    nvrtc=SimpleNamespace(getVersion=lambda: (7, 0)),
    runtime=SimpleNamespace(
        CUDARuntimeError=HipError,
        deviceSynchronize=lambda: None,
        driverGetVersion=lambda: 70051831,
        getDeviceCount=_count,
        getDeviceProperties=lambda _: FACTS,
        is_hip=True,
        memGetInfo=lambda: (1 << 34, 1 << 36),
        memcpyAsync=lambda to, source, size, kind, stream: ctypes.memmove(to, source, size),
        memcpyDeviceToHost=2,
        memcpyHostToDevice=1,
        runtimeGetVersion=lambda: 70051831,
    ),
)

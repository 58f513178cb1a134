"""As much of torch, cupy and a GPU as hw4cli.attention needs for float32: tensors in the host's memory, and kernels
that are executed on the CPU."""

import ctypes
import sys
import threading
from contextlib import nullcontext
from types import SimpleNamespace

import numpy as np
from fakecupy import new

from hw4cli.arrays import attention as module
from hw4cli.arrays.float32 import Float32OnGpu
from hw4cli.device import gpu
from hw4cli.emulator.build import PLAIN, shared_object
from hw4cli.emulator.library import Library
from hw4cli.plans.plan import DEVICES
from hw4cli.resources import kernel_path

STREAM = 4096  # the address of torch's current stream
has_context: list[tuple[int, int]] = []  # threads that have a GPU's context, and which one's


class Tensor:
    """A tensor on GPU 0 that there is not."""

    requires_grad, device = False, SimpleNamespace(type="cuda", index=0)
    is_nested, layout, negative = False, "torch.strided", False

    def __init__(self, array):
        self.array, self.shape, self.dtype = array, array.shape, f"torch.{array.dtype.name}"

    def stride(self):
        return tuple(step // self.array.itemsize for step in self.array.strides)

    def is_neg(self):
        return self.negative

    def data_ptr(self):
        return self.array.ctypes.data

    def new_empty(self, shape, dtype=None):
        dtype = np.dtype(dtype or self.array.dtype)
        memory = np.empty(int(np.prod(shape)) * dtype.itemsize + 64, np.uint8)  # NumPy aligns less than a GPU does
        first = -memory.ctypes.data % 64
        torch.allocated.append((dtype.name, shape))
        return Tensor(memory[first : first + int(np.prod(shape)) * dtype.itemsize].view(dtype).reshape(shape))

    def permute(self, *order):
        return Tensor(self.array.transpose(*order))

    def clone(self, memory_format):
        made = self.new_empty(self.shape)
        made.array[...] = self.array
        return made

    def copy_(self, other):
        self.array[...] = other.array

    def reshape(self, *shape):
        return Tensor(self.array.reshape(*shape))

    def __getitem__(self, part):
        return Tensor(self.array[part])

    def __setitem__(self, part, other):
        self.array[part] = other.array


class Device(nullcontext):
    """The current device."""


torch = SimpleNamespace(
    allocated=[],
    capturing=False,
    contiguous_format=None,
    uint8=np.uint8,
    float32=np.float32,
    is_grad_enabled=lambda: True,
    cuda=SimpleNamespace(
        current_stream=lambda device: SimpleNamespace(cuda_stream=STREAM),
        is_current_stream_capturing=lambda: torch.capturing,
    ),
)


class Stream(nullcontext):
    """A stream of cupy's."""

    entered = 0

    def __init__(self, address):
        super().__init__()
        self.ptr = address

    def __enter__(self):
        Stream.entered += 1

    def __exit__(self, *error):
        Stream.entered -= 1

    @classmethod
    def from_external(cls, handle):
        version, address = handle.__cuda_stream__()
        assert version == 0
        return cls(address)


cupy = SimpleNamespace(
    ndarray=new,
    cuda=SimpleNamespace(
        Device=Device,
        Stream=Stream,
        runtime=SimpleNamespace(
            memsetAsync=lambda at, byte, size, stream: ctypes.memset(at, byte, size),
            setDevice=lambda number: has_context.append((threading.get_ident(), number)),
        ),
    ),
)


class Gpu:
    """A GPU whose kernels are executed on the CPU."""

    props, name, cupy = DEVICES[90], "no GPU", cupy
    copy = gpu.Gpu.copy

    def __init__(self):
        self.compiled, self.launched = {}, []

    def is_compiled(self, plan):
        return (plan.variant, plan.options) in self.compiled

    def functions(self, plan):
        key = plan.variant, plan.options
        if key not in self.compiled:
            path = shared_object(kernel_path(plan.source), plan.macros, self.props.cc, 32, PLAIN)
            self.compiled[key] = Library(path)
        return [self._function(self.compiled[key], plan, step) for step in plan.launches]

    def _function(self, library, plan, step):
        def launch(grid, block, params, shared_mem):
            assert Stream.entered, "on another stream than torch's"
            assert (block, shared_mem) == ((step.block,), step.shared)
            assert step.grid in (0, *grid)  # 0: as many as there is to copy
            assert library.launch(step, params[0].tobytes(), [], grid=grid[0])[0]
            self.launched.append(plan.variant)

        return launch

    def absmax_of_parts(self, address, parts, N, d, first, largest):
        assert Stream.entered, "on another stream than torch's"
        assert parts == 1
        rows = np.ctypeslib.as_array(ctypes.cast(address, ctypes.POINTER(ctypes.c_float)), (N, d))
        found = [np.abs(rows).max(), (rows.astype(float) ** 2).sum(axis=1).max()][: 1 if first == 2 else 2]
        ctypes.memmove(largest + 8 * first, np.array(found, np.float32).tobytes(), 4 * len(found))


def install(monkeypatch):
    """Let hw4cli.attention find this torch, this cupy and this GPU, which is returned."""
    gpu = Gpu()
    torch.allocated.clear()
    monkeypatch.setitem(sys.modules, "torch", torch)
    monkeypatch.setattr(torch, "capturing", False)
    monkeypatch.setattr(module, "import_cupy", lambda: cupy)
    float32 = Float32OnGpu(gpu)
    monkeypatch.setattr(module, "_open", lambda device: (None, float32))
    return gpu

"""As much of torch, cupy and a GPU as hw4cli.attention needs for float32: tensors in the host's memory, and kernels
that are executed on the CPU."""

import ctypes
import struct
import sys
import threading
from contextlib import nullcontext
from dataclasses import dataclass
from types import SimpleNamespace
from typing import NamedTuple

import fakedriver
import numpy as np
from fakecupy import new

from hw4cli.arrays import attention as module
from hw4cli.arrays import repeated
from hw4cli.arrays.float32 import Float32OnGpu
from hw4cli.arrays.gradients import backward
from hw4cli.arrays.gradients.ongpu import BackwardOnGpu
from hw4cli.arrays.ongpu import HalfOnGpu
from hw4cli.device import gpu
from hw4cli.emulator.build import PLAIN, shared_object
from hw4cli.emulator.library import Library
from hw4cli.plans import choice
from hw4cli.plans.launch import ABSMAX, ABSMAX_CHUNK
from hw4cli.plans.plan import DEVICES
from hw4cli.resources import kernel_path

STREAM = 4096  # the address of torch's current stream
has_context: list[tuple[int, int]] = []  # threads that have a GPU's context, and which one's


@dataclass(frozen=True)
class DType:
    """torch.NAME"""

    name: str

    def __str__(self):
        return f"torch.{self.name}"


class TorchDevice(NamedTuple):
    """torch.device"""

    type: str
    index: int


class Tensor:
    """A tensor on GPU 0 that there is not."""

    requires_grad, device = False, TorchDevice("cuda", 0)
    is_nested, layout, negative = False, "torch.strided", False

    def __init__(self, array):
        self.array, self.shape, self.dtype = array, array.shape, DType(array.dtype.name)

    def stride(self):
        return tuple(step // self.array.itemsize for step in self.array.strides)

    def untyped_storage(self):
        return SimpleNamespace(resize_=lambda size: None)

    def is_neg(self):
        return self.negative

    def data_ptr(self):
        return self.array.ctypes.data

    def new_empty(self, shape, dtype=None):
        name = np.dtype(getattr(dtype, "name", dtype) or self.array.dtype).name
        torch.allocated.append((name, shape))
        return empty(shape, DType(name), None)

    def contiguous(self):
        return self if self.array.flags.c_contiguous else Tensor(self.array.copy())

    @property
    def nbytes(self):
        return self.array.nbytes

    def permute(self, *order):
        return Tensor(self.array.transpose(*order))

    def clone(self, memory_format):
        made = self.new_empty(self.shape)
        made.array[...] = self.array
        return made

    def to(self, dtype):
        name = getattr(dtype, "name", None) or np.dtype(dtype).name
        return self if name == self.dtype.name else Tensor(self.array.astype(name))

    def copy_(self, other):
        self.array[...] = other.array

    def reshape(self, *shape):
        return Tensor(self.array.reshape(*shape))

    def sum(self, axis, keepdims):
        return Tensor(self.array.sum(axis=axis, keepdims=keepdims))

    def __add__(self, other):
        return Tensor(self.array + getattr(other, "array", other))

    def __getitem__(self, part):
        return Tensor(self.array[part])

    def __setitem__(self, part, other):
        self.array[part] = getattr(other, "array", other)


class Parameter(Tensor):
    """A tensor that is learnt."""


class Device(nullcontext):
    """The current device."""


class TensorGuards:
    """Whether tensors are alike, but for sizes and strides that are None."""

    def __init__(self, *tensors, dynamic_dims_sizes, dynamic_dims_strides):
        self._like = list(map(kind, tensors))
        each = dynamic_dims_sizes or [x.shape for x in tensors], dynamic_dims_strides or [x.stride() for x in tensors]
        self._numbers = [(*sizes, *strides) for sizes, strides in zip(*each, strict=True)]

    def check(self, *tensors):
        alike = self._like == list(map(kind, tensors)) and len({*map(id, tensors)}) == len(tensors)
        return alike and all(
            number in (None, own)
            for like, x in zip(self._numbers, tensors, strict=True)
            for number, own in zip(like, (*x.shape, *x.stride()), strict=True)
        )


def kind(x):
    """What torch's guards compare, beside sizes and strides; of what is no tensor: that it is none."""
    if not isinstance(x, Tensor):
        return (type(x),)
    return type(x), len(x.shape), x.dtype, x.requires_grad, x.negative


def empty(shape, dtype, device):
    name = getattr(dtype, "name", dtype)
    size = int(np.prod(shape)) * np.dtype(name).itemsize
    memory = np.empty(size + 64, np.uint8)  # NumPy aligns less than a GPU does
    first = -memory.ctypes.data % 64
    return Tensor(memory[first : first + size].view(name).reshape(shape))


def empty_like(x):
    torch.allocated.append((x.dtype.name, x.shape))
    return empty_strided(x.shape, x.stride(), x.dtype, None)


def empty_strided(shape, strides, dtype, device):
    """Memory in the order of the strides."""
    order = sorted(range(len(shape)), key=lambda n: -strides[n])
    made = empty(tuple(shape[n] for n in order), dtype, device).permute(*(order.index(n) for n in range(len(shape))))
    assert [s for s, n in zip(made.stride(), shape, strict=True) if n > 1] == [
        s for s, n in zip(strides, shape, strict=True) if n > 1
    ]
    return made


own = SimpleNamespace(
    _dispatch_keys=lambda x: SimpleNamespace(raw_repr=lambda: int(x.negative)),
    _len_torch_dispatch_stack=lambda: torch.watched,
    _are_functorch_transforms_active=lambda: False,
    _get_tracing_state=lambda: None,
    _cuda_getDevice=lambda: torch.current,
    _cuda_getCurrentRawStream=lambda device: STREAM,
    _dynamo=SimpleNamespace(guards=SimpleNamespace(TensorGuards=TensorGuards)),
)

torch = SimpleNamespace(
    allocated=[],
    capturing=False,
    watched=0,  # by modes
    current=0,  # the current GPU
    Tensor=Tensor,
    nn=SimpleNamespace(Parameter=Parameter),
    _C=own,
    device=lambda kind, number: number,
    no_grad=nullcontext,
    inference_mode=nullcontext,
    is_autocast_enabled=lambda kind: False,
    empty=empty,
    empty_strided=empty_strided,
    empty_like=empty_like,
    contiguous_format=None,
    uint8=np.uint8,
    float32=np.float32,
    int32=np.int32,
    is_grad_enabled=lambda: True,
    cuda=SimpleNamespace(
        current_device=lambda: torch.current,
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


class _Function:
    """A compiled one of cupy's."""

    def __init__(self, kernel, launch):
        self.kernel, self._launch = kernel, launch

    def __call__(self, grid, block, params, shared_mem):
        self._launch(grid, block, params, shared_mem)


class Gpu:
    """A GPU whose kernels are executed on the CPU. `launched`: by whom, but for what is `passed_over`."""

    props, name, cupy = DEVICES[90], "no GPU", cupy
    copy = gpu.Gpu.copy

    def __init__(self, driver):
        self.compiled, self.launched, self.passed_over, self.driver = {}, [], [], driver

    def is_compiled(self, plan):
        return (plan.variant, plan.options) in self.compiled

    def functions(self, plan):
        key = plan.variant, plan.options
        if key not in self.compiled:
            self.compiled[key] = self._library(plan.source, plan.defines)
        check = self._library(ABSMAX.name, {"ABSMAX_CHUNK": ABSMAX_CHUNK})  # which is compiled behind every kernel
        libraries = [check if step.symbol == ABSMAX.name else self.compiled[key] for step in plan.launches]
        return [self._function(library, plan, step) for library, step in zip(libraries, plan.launches, strict=True)]

    def _library(self, source, macros):
        return Library(shared_object(kernel_path(source), macros, self.props.cc, 32, PLAIN))

    def prepare(self, plans):
        """Each is compiled when it is asked for."""

    def _function(self, library, plan, step):
        """As the driver launches it, and as cupy does."""

        def run(grid, block, shared, argument):
            assert (block, shared) == (step.block, step.shared)
            assert step.grid in (0, grid)  # 0: as many as there is to copy
            assert library.launch(step, argument, [], grid=grid)[0]
            if plan.source != choice.CHOICE.name:
                (self.launched if self._computes(plan, argument) else self.passed_over).append(plan.variant)

        def launch(grid, block, params, shared_mem):
            assert Stream.entered, "on another stream than torch's"
            run(*grid, *block, shared_mem, params[0].tobytes())

        return _Function(self.driver.function(step.symbol, run).kernel, launch)

    def _computes(self, plan, argument):
        """Whether no other kernel is chosen, by what the launch is passed."""
        if not plan.macros.get("CHOSEN"):
            return True
        at, number = struct.unpack("<QI4x", argument[-16:])
        return ctypes.c_uint.from_address(at).value == number

    def absmax_of_parts(self, address, parts, N, d, first, largest):
        assert Stream.entered, "on another stream than torch's"
        assert parts == 1
        rows = np.ctypeslib.as_array(ctypes.cast(address, ctypes.POINTER(ctypes.c_float)), (N, d))
        found = [np.abs(rows).max(), (rows.astype(float) ** 2).sum(axis=1).max()][: 1 if first == 2 else 2]
        ctypes.memmove(largest + 8 * first, np.array(found, np.float32).tobytes(), 4 * len(found))


def keep_memory(monkeypatch):
    """Keep all that is made from now on, as a graph keeps what was made while it was captured."""
    kept, new = [], empty
    monkeypatch.setattr(sys.modules[__name__], "empty", lambda *given: kept.append(new(*given)) or kept[-1])


def captured(gpu, monkeypatch, call):
    """What a call returns while a graph is captured."""
    with monkeypatch.context() as patch:
        patch.setattr(torch, "capturing", True)
        patch.setattr(gpu.driver, "capturing", True)
        return call()


def install_kernels(monkeypatch):
    """The same with all kernels of a GPU of compute capability 8.0, of both passes, executed on the CPU."""
    made = install(monkeypatch)
    made.props = DEVICES[80]
    kernels = HalfOnGpu(made), Float32OnGpu(made)
    monkeypatch.setattr(module, "_open", lambda device: kernels)
    monkeypatch.setattr(backward, "import_cupy", lambda: cupy)
    monkeypatch.setattr(backward, "_open", lambda device: BackwardOnGpu(made))
    return made


def install(monkeypatch):
    """Let hw4cli.attention find this torch, this cupy and this GPU, which is returned."""
    gpu = Gpu(fakedriver.install(monkeypatch))
    monkeypatch.setattr(repeated, "LIBRARIES", {})
    repeated.FORWARD.clear()
    repeated.BACKWARD.clear()
    torch.allocated.clear()
    monkeypatch.setitem(sys.modules, "torch", torch)
    monkeypatch.setattr(torch, "capturing", False)
    monkeypatch.setattr(module, "import_cupy", lambda: cupy)
    float32 = Float32OnGpu(gpu)
    monkeypatch.setattr(module, "_open", lambda device: (None, float32))
    return gpu

"""Arrays of NumPy, CuPy and torch as operands: element type, shape, strides, address, device."""

from dataclasses import dataclass
from typing import Any

import numpy as np

from hw4cli.plans.launch import Matrix

NUMPY, CUPY, TORCH = "numpy", "cupy", "torch"
LAYOUTS = {"BHND": (0, 1, 2, 3), "BNHD": (0, 2, 1, 3)}  # where batch, head, row and column stand


@dataclass(frozen=True)
class Operand:
    """An array as (batch, heads, rows, d), and strides in elements: 0 in a dimension that has one element."""

    name: str
    library: str
    dtype: str
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    address: int
    device: int | None  # the GPU's number; None: the CPU
    array: Any
    layout: str

    @property
    def bhnd(self) -> Any:
        """A NumPy array, seen as (batch, heads, rows, d)."""
        return self.array.transpose(LAYOUTS[self.layout])

    @property
    def matrix(self) -> Matrix:
        """Where the array lies."""
        return Matrix(self.address, *self.strides)

    @property
    def element(self) -> int:
        """Bytes of an element."""
        return 4 if self.dtype == "float32" else 2

    @property
    def place(self) -> str:
        """The device, in words."""
        return "the CPU" if self.device is None else f"GPU {self.device}"


def operand(name: str, array: Any, layout: str) -> Operand:
    """An array as an operand.

    Raises TypeError for what is no array of a known library, and for a tensor that is not dense; ValueError for other
    dimensions than four, for a tensor on a device that is no GPU, for one that wants a gradient, or whose sign is due.
    """
    library, dtype, steps, itemsize, address, device = facts_of(name, array)
    check_dimensions(name, array, layout)
    order, sizes = LAYOUTS[layout], array.shape
    shape = tuple([int(sizes[n]) for n in order])
    strides = tuple([int(steps[n]) // itemsize if sizes[n] > 1 else 0 for n in order])
    return Operand(name, library, dtype, shape, strides, address, device, array, layout)


def check_dimensions(name: str, array: Any, layout: str) -> None:
    """Raise ValueError for other dimensions than four."""
    if len(array.shape) != 4:
        raise ValueError(f"{name} has {len(array.shape)} dimensions: give four, in the order of layout={layout!r}")


def facts_of(name: str, array: Any) -> tuple[str, str, Any, int, int, int | None]:
    """An array's library, element type, strides, the strides' bytes in an element, address and GPU. Raises as `operand`
    does, but for dimensions."""
    library = type(array).__module__.split(".")[0]
    if isinstance(array, np.ma.MaskedArray):
        raise TypeError(f"{name} has a mask: give an array without one ({name}.filled(0))")
    if isinstance(array, np.ndarray):
        return NUMPY, array.dtype.name, array.strides, array.itemsize, array.ctypes.data, None
    if library == CUPY and hasattr(array, "data") and hasattr(array, "strides"):
        return CUPY, array.dtype.name, array.strides, array.itemsize, array.data.ptr, array.device.id
    if hasattr(array, "data_ptr") and hasattr(array, "stride"):  # torch.Tensor and its subclasses
        _check_tensor(name, array)
        dtype = str(array.dtype).removeprefix("torch.")
        return TORCH, dtype, array.stride(), 1, array.data_ptr(), array.device.index
    raise TypeError(f"{name} is a {type(array).__name__}: give an array of NumPy, CuPy or torch")


def check_dense(name: str, tensor: Any) -> None:
    """Raise TypeError for a tensor of torch's whose elements do not stand at an address with strides."""
    if tensor.is_nested or str(tensor.layout) != "torch.strided":
        raise TypeError(f"{name} is a nested or sparse tensor: give a dense one")


def _check_tensor(name: str, tensor: Any) -> None:
    check_dense(name, tensor)
    if tensor.device.type != "cuda":
        raise ValueError(f"{name} is on {tensor.device}: move it to a GPU, or give a NumPy array ({name}.numpy())")
    if tensor.requires_grad and _torch().is_grad_enabled():
        raise ValueError(f"{name} requires a gradient: call hw4cli.torch.attention, or give {name}.detach()")
    if tensor.is_neg():  # torch negates its elements when it reads them
        raise ValueError(f"{name} is the negative of what lies in memory: give {name}.resolve_neg()")


def empty_like(model: Operand, shape: tuple[int, ...], dtype: str | None = None) -> Any:
    """A new array of the same library, on the same device; of the same element type, unless another is given."""
    if model.library == TORCH:
        return model.array.new_empty(shape, dtype=_torch_type(dtype) if dtype else None)
    if model.library == NUMPY:
        return np.empty(shape, dtype or model.array.dtype)
    import cupy

    with model.array.device:
        return cupy.empty(shape, dtype or model.array.dtype)


def cast(array: Any, dtype: Any) -> Any:
    """An array of another element type, by its name or as its library has it; the same, if it has it already."""
    if hasattr(array, "data_ptr"):
        return array.to(_torch_type(dtype) if isinstance(dtype, str) else dtype)
    with np.errstate(over="ignore"):
        return array.astype(dtype, copy=False)


def address_of(array: Any) -> int:
    """Where an array of torch's or CuPy's begins; 0 for None."""
    if array is None:
        return 0
    return int(array.data_ptr() if hasattr(array, "data_ptr") else array.data.ptr)


def _torch_type(name: str) -> Any:
    return getattr(_torch(), name)


def _torch() -> Any:
    import torch

    return torch


def contiguous(x: Operand) -> Operand:
    """A copy whose elements lie one after the other, as (batch, heads, rows, d); on the library's current stream."""
    if x.library == TORCH:
        made = x.array.permute(LAYOUTS[x.layout]).clone(memory_format=_torch().contiguous_format)
    else:
        made = x.bhnd.copy()
    return operand(x.name, made, "BHND")


def assign(to: Operand, source: Operand) -> None:
    """Copy the elements of one array to another, of the same library and (batch, heads, rows, d)."""
    if to.library == TORCH:
        to.array.permute(LAYOUTS[to.layout]).copy_(source.array)
    else:
        to.bhnd[...] = source.array


class _Handle:
    """A stream by its address, as CUDA's stream protocol has it."""

    def __init__(self, address: int) -> None:
        self._address = address

    def __cuda_stream__(self) -> tuple[int, int]:
        return 0, self._address


def stream_of(model: Operand, cupy: Any) -> Any:
    """The stream on which the array's library works now, as one of cupy's.

    This thread gets the GPU's context: a new thread has none before it calls CUDA's runtime, and without one the driver
    makes no tensor map."""
    cupy.cuda.runtime.setDevice(model.device or 0)
    if model.library == CUPY:
        return cupy.cuda.get_current_stream()
    return stream_at(_torch().cuda.current_stream(model.device).cuda_stream, cupy)


def stream_at(address: int, cupy: Any) -> Any:
    """A stream as one of cupy's."""
    if hasattr(cupy.cuda.Stream, "from_external"):  # since cupy 14.1; before, there was ExternalStream alone
        return cupy.cuda.Stream.from_external(_Handle(address))
    return cupy.cuda.ExternalStream(address)


def check_capture(model: Operand, compiled: bool) -> None:
    """Raise ValueError if a graph is captured, and the kernel would have to be compiled and loaded meanwhile."""
    if not compiled and is_capturing(model.library):
        raise ValueError(
            "the kernel for these sizes is not compiled yet, which cannot be done while a CUDA graph is captured: "
            "call attention once before, with arrays of the same sizes and options"
        )


def check_range_can_be_read(model: Operand) -> None:
    """Raise ValueError if a graph is captured: what a GPU finds cannot be waited for meanwhile."""
    if is_capturing(model.library):
        raise ValueError(
            "these arrays are read for their range, which a CUDA graph cannot wait for: give bounds=(the largest "
            "|element| of q, of k, of v), or kernel= without max_error="
        )


def is_capturing(library: str) -> bool:
    """Whether what a library enqueues now is not executed, but becomes part of a CUDA graph."""
    if library not in (TORCH, CUPY):
        return False
    if library == TORCH:
        return bool(_torch().cuda.is_current_stream_capturing())
    import cupy

    return bool(cupy.cuda.get_current_stream().is_capturing())


def largest(x: Operand) -> float:
    """The largest |element|, NaN if there is one that is no number. Waits for the GPU."""
    low, high = (float(bound) for bound in (x.array.min(), x.array.max()))
    return float(np.maximum(-low, high))

"""The GPU, through cupy. The only room that imports cupy, and only when a GPU is opened."""

from functools import cache
from typing import Any

import numpy as np

from hw4cli.casefile import Floats
from hw4cli.errors import MachineError
from hw4cli.resources import kernel_source
from hw4cli.shape import Shape
from hw4cli.stopwatch import Stopwatch
from hw4cli.variants import SHARED_DEFAULT, VARIANTS, Chip, Plan


class Gpu:
    """The current GPU. Raises MachineError, saying what to install or ask for, if there is none that works."""

    def __init__(self) -> None:
        self._cupy = _import_cupy()
        try:
            self._cupy.cuda.runtime.getDeviceCount()
            device = self._cupy.cuda.Device()
            attributes = device.attributes
        except self._cupy.cuda.runtime.CUDARuntimeError as error:
            raise MachineError(f"no GPU can be used: {_cuda_message(error)}") from None
        self.chip = Chip(
            cc=int(device.compute_capability),
            sms=attributes["MultiProcessorCount"],
            shared_limit=attributes.get("MaxSharedMemoryPerBlockOptin") or SHARED_DEFAULT,
        )
        self.name: str = self._cupy.cuda.runtime.getDeviceProperties(device.id)["name"].decode()
        self._functions = cache(self._compile)

    def prepare(self, variant: str, shape: Shape) -> None:
        """Compile a variant for a shape, so that `compute` starts at once."""
        self._functions_of(VARIANTS[variant].plan(shape, self.chip))

    def compute(self, variant: str, inputs: Any, outputs: Any) -> None:
        """Launch a variant on cupy arrays: inputs (n, 3, N, d) float32, outputs (n, N, d) float32; does not wait."""
        n, _, N, d = inputs.shape
        plan = VARIANTS[variant].plan(Shape(n, N, d), self.chip)
        scratch = self._cupy.empty(plan.scratch, self._cupy.uint8)
        pointer, part = inputs.data.ptr, N * d * inputs.itemsize
        arguments = (
            *(np.uint64(pointer + index * part) for index in range(3)),
            np.uint64(outputs.data.ptr),
            np.uint64(scratch.data.ptr),
            np.int64(3 * N * d),
            np.int64(N * d),
            np.int32(n),
            np.int32(N),
            np.int32(plan.splits),
            np.float32(d**-0.5),
        )
        for function, step in zip(self._functions_of(plan), plan.launches, strict=True):
            function((step.grid,), (step.block,), arguments, shared_mem=step.shared)

    def attention(self, block: Floats, variant: str, watch: Stopwatch) -> Floats:
        """O of each batch of a block (n, 3, N, d), as (n, N, d): copied in, computed, copied out.

        Raises MachineError if the block does not fit the GPU's free memory, or the GPU fails.
        """
        cupy = self._cupy
        n, _, N, d = block.shape
        try:
            with watch("copy in"):
                inputs = cupy.empty(block.shape, cupy.float32)
                inputs.set(block)
                outputs = cupy.empty((n, N, d), cupy.float32)
                cupy.cuda.runtime.deviceSynchronize()
            with watch("kernel"):
                self.compute(variant, inputs, outputs)
                cupy.cuda.runtime.deviceSynchronize()
            with watch("copy out"):
                return outputs.get()  # type: ignore[no-any-return]
        except cupy.cuda.memory.OutOfMemoryError:
            plan = VARIANTS[variant].plan(Shape(n, N, d), self.chip)
            needed = block.nbytes * 4 // 3 + plan.scratch
            free = cupy.cuda.runtime.memGetInfo()[0]
            raise MachineError(
                f"the GPU has no room for {n} batch(es) of N={N}, d={d}: {needed / 1e6:,.0f} MB are needed at once, "
                f"{free / 1e6:,.0f} MB are free"
            ) from None
        except (cupy.cuda.runtime.CUDARuntimeError, cupy.cuda.driver.CUDADriverError) as error:
            raise MachineError(f"the GPU failed in kernel {variant}: {_cuda_message(error)}") from None

    def _functions_of(self, plan: Plan) -> tuple[Any, ...]:
        return self._functions(plan.variant, plan.options, tuple((x.symbol, x.shared) for x in plan.launches))

    def _compile(self, variant: str, options: tuple[str, ...], symbols: tuple[tuple[str, int], ...]) -> tuple[Any, ...]:
        """The compiled functions, one a launch; cupy keeps the machine code in its cache on disk."""
        cupy = self._cupy
        try:
            module = cupy.RawModule(code=kernel_source(variant), options=("-std=c++17", *options))
            functions = tuple(module.get_function(symbol) for symbol, _ in symbols)
        except cupy.cuda.compiler.CompileException as error:
            lines = [line for line in str(error).splitlines() if "error" in line]
            raise MachineError(
                f"kernel {variant} does not compile for compute capability {self.chip.cc / 10}: "
                f"{lines[0] if lines else error}"
            ) from None
        except (RuntimeError, ImportError, OSError) as error:
            raise MachineError(f"kernel {variant} cannot be compiled: {str(error).splitlines()[0]}") from None
        for function, (_, shared) in zip(functions, symbols, strict=True):
            if shared > SHARED_DEFAULT:
                function.max_dynamic_shared_size_bytes = shared
        return functions


def _import_cupy() -> Any:
    try:
        import cupy
    except ImportError as error:
        if "cupy" in str(error) and not isinstance(error, ModuleNotFoundError):
            raise MachineError(f"cupy is installed but does not load: {str(error).splitlines()[0]}") from None
        raise MachineError(
            "no GPU can be used: cupy is not installed (pip install 'hw4cli[cuda13]', or [cuda12] for drivers "
            "before 580 and GPUs before Turing)"
        ) from None
    return cupy


def _cuda_message(error: Exception) -> str:
    """CUDA's own words, without the name of the exception."""
    return str(error).splitlines()[0]

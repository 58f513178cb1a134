"""The GPU, through cupy. The only module that imports cupy, and only when a GPU is opened."""

import os
import sys
import tempfile
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from functools import cache
from typing import Any

import numpy as np

from hw4cli.device.cupyparts import load
from hw4cli.device.driver import LOST
from hw4cli.device.hip.device import NO_AMD_GPU
from hw4cli.device.hip.device import properties as amd_properties
from hw4cli.device.launcher import by_cupy, by_value, enqueue
from hw4cli.device.machinecode import Kernel, MachineCode, kernel_cache
from hw4cli.device.nvrtc import UnknownArchitectureError
from hw4cli.device.presence import NO_NVIDIA_GPU, without_cupy
from hw4cli.errors import CompileError, KernelError, LostGpuError, MachineError
from hw4cli.plans import columns
from hw4cli.plans.columns import staged
from hw4cli.plans.formulas import FLOAT
from hw4cli.plans.ladder import VARIANTS
from hw4cli.plans.launch import (
    ABSMAX,
    ABSMAX_BYTES,
    ABSMAX_CHUNK,
    Matrices,
    absmax_arguments,
    absmax_launch,
    arguments,
    block_matrices,
)
from hw4cli.plans.plan import SHARED_DEFAULT, DeviceProperties, Launch, Plan, Tile, Variant
from hw4cli.problem.casefile import Floats
from hw4cli.problem.workload import Workload
from hw4cli.resources import is_own_kernel
from hw4cli.system.gpufiles import amd_gpu_is_here, nvidia_gpu_is_here
from hw4cli.text.words import counted

ALIGNMENT = 16  # bytes that a thread reads at once; by their sizes, the parts of arrays and scratch are aligned, too


class Gpu:
    """The current GPU. Raises MachineError, saying what to install or ask for, if there is none that works.

    >>> from hw4cli import MachineError, Shape, exact_attention, random_input
    >>> block = random_input(Shape(2, 128, 64), seed=1)
    >>> try:
    ...     O = Gpu().attention(block, "flash")
    ... except MachineError:
    ...     O = exact_attention(block)
    >>> O.shape
    (2, 128, 64)
    """

    _compiling = threading.RLock()

    def __init__(self) -> None:
        kept = kernel_cache(os.R_OK)  # before cupy is given one that it can write
        self.cupy = import_cupy()
        runtime = self.cupy.cuda.runtime
        is_here, nowhere = (amd_gpu_is_here, NO_AMD_GPU) if runtime.is_hip else (nvidia_gpu_is_here, NO_NVIDIA_GPU)
        try:
            runtime.getDeviceCount()
            device = self.cupy.cuda.Device()
            facts = runtime.getDeviceProperties(device.id)
            self.props = amd_properties(facts) if runtime.is_hip else _properties(device)
        except runtime.CUDARuntimeError as error:
            why = cuda_message(error) if is_here() else nowhere  # without a driver, CUDA blames its version
            raise MachineError(f"no GPU can be used: {why}") from None
        self.name: str = facts["name"].decode()
        folder = kept if os.environ.get("CUPY_CACHE_IN_MEMORY", "0") in ("", "0") else None
        self.code = MachineCode(self.props.cc, runtime.driverGetVersion(), folder, gfx=self.props.gfx)
        self.companions: Callable[[], Iterable[Plan]] = tuple  # of a plan that must be compiled
        self._variant = cache(_variant)  # a user's file is read once
        self._compiled = cache(self._compile)
        self._modules: dict[tuple[str, tuple[str, ...]], Any] = {}

    def plan(self, variant: str, shape: Workload, tile: Tile | None = None) -> Plan:
        """The plan by which a kernel of the ladder, or in a user's file, computes a shape on this GPU, compiled.

        Raises MachineError if it cannot, InputError and KernelError if something is wrong with the user's file.
        """
        plan = self._variant(variant).plan(shape, self.props, tile)
        for one in (plan, *columns.needed(shape.d)):
            self.functions(one)
        return plan

    def compute(self, plan: Plan, inputs: Any, outputs: Any) -> Any:
        """Launch a plan on cupy arrays: inputs (n, 3, N, d) float32, outputs (n, N, d) float32; does not wait.

        Returns the scratch: a kernel that finds absmax leaves the bits of five floats at its start, as `absmax` does.
        Raises ValueError if an array is not contiguous, or does not begin at a multiple of 16 bytes.
        """
        for array in (inputs, outputs):
            if not array.flags.c_contiguous or array.data.ptr % ALIGNMENT:
                raise ValueError(f"kernels take contiguous arrays that begin at a multiple of {ALIGNMENT} bytes")
        n, _, N, d = inputs.shape
        shape = Workload.one_head(n, N, d)
        return self.launch(plan, shape, block_matrices(shape, inputs.data.ptr, outputs.data.ptr))

    def launch(self, plan: Plan, shape: Workload, matrices: Matrices, offset: int = 0) -> Any:
        """Launch a plan on Q, K, V and O, which lie where `matrices` has them; causal, row i sees the keys up to
        i + offset. Does not wait. Returns the scratch."""
        scratch, stream = self.cupy.ndarray(plan.scratch, np.uint8), self.cupy.cuda.get_current_stream()
        if plan.finds_absmax:
            scratch.data.memset_async(0, ABSMAX_BYTES)
        stage = staged(plan, shape, matrices, scratch.data.ptr)
        if stage.before:
            self.copy(columns.launch_of(stage.before), columns.arguments(stage.before), stream)
        passed = arguments(plan, shape, stage.matrices, scratch.data.ptr, offset=offset)
        for function, step in zip(self.functions(plan), plan.launches, strict=True):
            enqueue(function, step, passed, stream, self.props)
        if stage.after:
            self.copy(columns.launch_of(stage.after), columns.arguments(stage.after), stream)
        return scratch

    def copy(self, step: Launch, passed: bytes, stream: Any) -> None:
        """Enqueue copies of matrices (compute/columns.py) on a stream of cupy's, the current one."""
        function = self.functions(columns.CODE)[columns.SYMBOLS.index(step.symbol)]
        enqueue(function, step, passed, stream, self.props)

    def absmax_of(self, plan: Plan, scratch: Any, inputs: Any, keys: Any = None) -> Any:
        """What `launch.magnitudes` reads, as uint32 on the GPU, by the plan that ran or else now.

        `keys` are K and V (2, N, d), where `inputs` are rows of Q alone. Does not wait.
        """
        if plan.finds_absmax:
            return scratch[:ABSMAX_BYTES].view(np.uint32)
        largest = self.cupy.ndarray(ABSMAX_BYTES // 4, np.uint32)
        largest.data.memset_async(0, largest.nbytes)
        N, d = (inputs if keys is None else keys).shape[-2:]
        rows, at, behind = inputs.size // d, inputs.data.ptr, 0 if keys is None else keys.data.ptr
        if plan.layout.staged is not None:  # what the plan has read: rows of whole chunks, K and V behind Q
            d, at = plan.d, scratch.data.ptr + plan.layout.staged
            behind = at + FLOAT * rows * d
        if keys is None:
            self.absmax_of_parts(at, rows // N, N, d, 0, largest.data.ptr)
        else:
            self.absmax_of_parts(at, 1, rows, d, 0, largest.data.ptr)
            self.absmax_of_parts(behind, 2, N, d, 1, largest.data.ptr)
        return largest

    def attention(self, block: Floats, variant: str, causal: bool = False) -> Floats:
        """O = softmax(QKᵀ/sqrt(d))V of each batch by a kernel of `hw4 explain`: copied in, computed, copied out.

        `block` is a float32 array (B, 3, N, d) of Q, K and V, the result a float32 array (B, N, d), both NumPy's.
        `causal`: row i sees the keys 0 to i alone. The variant may be a file, too, such as "./mine.cu". Its error is
        bounded for the assignment's values (docs/accuracy.md); for other values, no other kernel takes over here.

        Raises InputError for an array of another type or shape, or an unknown kernel; MachineError if the block does
        not fit the GPU's free memory, if the kernel does not run on this GPU, or if the GPU fails.
        """
        shape = Workload.of_block(block, causal)
        shape.check("the array")
        plan = self.plan(variant, shape)
        with self.translated_errors(plan, shape):
            inputs, outputs = self.upload(block), self.empty((shape.B, shape.N, shape.d))
            self.compute(plan, inputs, outputs)
            return outputs.get()  # type: ignore[no-any-return]

    def absmax(self, inputs: Any, largest: Any) -> None:
        """What `launch.magnitudes` reads, of inputs (n, 3, N, d), d a multiple of 4, as the bits of five floats. Does
        not wait. Any plan must have been compiled before: its module has this kernel, too."""
        largest.data.memset_async(0, largest.nbytes)
        n, _, N, d = inputs.shape
        self.absmax_of_parts(inputs.data.ptr, 3 * n, N, d, 0, largest.data.ptr)

    def absmax_of_parts(self, address: int, parts: int, N: int, d: int, first: int, largest: int) -> None:
        """The same of matrices (N, d) at an address, Q, K and V in turn from the first (0: Q) on; adds to `largest`."""
        passed = absmax_arguments(address, largest, N, d, first)
        by_cupy(self._absmax, absmax_launch(parts, N, d), (by_value(passed),))

    def is_compiled(self, plan: Plan) -> bool:
        """Whether a plan's functions are loaded already."""
        return (plan.source, plan.options) in self._modules

    def prepare(self, plans: Iterable[Plan]) -> None:
        """Compile into the cache what several plans need and is not there, at the same time: a process for each.

        What does not compile is refused by whoever needs it (`functions`)."""
        missing = self.code.missing(map(kernel_of, plans))
        if len(missing) > 1:
            with suppress(OSError):
                self.code.compile_all(missing, lambda kernel: None)

    def empty(self, shape: tuple[int, ...]) -> Any:
        """A new float32 array on the GPU."""
        return self.cupy.ndarray(shape, np.float32)

    def upload(self, block: Floats) -> Any:
        """A copy of an array on the GPU."""
        array = self.empty(block.shape)
        array.set(block)
        return array

    def wait(self) -> None:
        """Wait until the GPU has finished all work."""
        self.cupy.cuda.runtime.deviceSynchronize()

    @contextmanager
    def translated_errors(self, plan: Plan, shape: Workload) -> Iterator[None]:
        """Turn what cupy raises while a plan runs into MachineErrors."""
        cuda = self.cupy.cuda
        try:
            yield
        except cuda.memory.OutOfMemoryError:
            needed = shape.moved_bytes + plan.scratch
            free = cuda.runtime.memGetInfo()[0]
            raise MachineError(
                f"the GPU has not enough memory for {counted(shape.B, 'batch', 'batches')} of N={shape.N}, d={shape.d} "
                f"with kernel {plan.variant}: {needed / 1e6:,.0f} MB are needed at once, {free / 1e6:,.0f} MB are free"
            ) from None
        except (cuda.runtime.CUDARuntimeError, cuda.driver.CUDADriverError) as error:
            kind = LostGpuError if getattr(error, "status", None) in LOST else MachineError
            raise kind(f"the GPU failed in kernel {plan.variant}: {cuda_message(error)}") from None

    def read(self, plan: Plan, symbol: str, shape: tuple[int, ...]) -> Any:
        """A global array of int64 of a plan's compiled code, as a NumPy array of this shape; waits for the GPU."""
        self.functions(plan)
        memory = self._modules[plan.source, plan.options].get_global(symbol)
        return self.cupy.ndarray(shape, np.int64, memptr=memory).get()

    def machine_code(self, plan: Plan) -> bytes:
        """A plan's compiled code."""
        return self.code.get(kernel_of(plan))

    def functions(self, plan: Plan) -> tuple[Any, ...]:
        """The compiled functions of a plan, one a launch, compiled on first use."""
        with self._compiling:  # one thread compiles, the others wait for it
            return self._compiled(plan.source, plan.options, tuple((x.symbol, x.shared) for x in plan.launches))

    def _compile(self, variant: str, options: tuple[str, ...], symbols: tuple[tuple[str, int], ...]) -> tuple[Any, ...]:
        """The compiled functions, one a launch; the machine code is kept on disk."""
        kernel = variant, (f"-DABSMAX_CHUNK={ABSMAX_CHUNK}", *options)
        try:
            code = self.code.get(kernel, lambda: map(kernel_of, self.companions()))
            if is_own_kernel(variant):
                from hw4cli.device.compilerlog import entry_points
                from hw4cli.device.ownkernel import check_symbols

                check_symbols(variant, entry_points(code), [name for name, _ in symbols], [ABSMAX.name])
            with as_file(code) as path:
                module = self._modules[variant, options] = self.cupy.RawModule(path=path)
                functions = tuple(module.get_function(symbol) for symbol, _ in symbols)
                self._absmax = module.get_function(ABSMAX.name)
            for function, (_, shared) in zip(functions, symbols, strict=True):
                if shared > SHARED_DEFAULT and not self.props.gfx:  # AMD's GPUs need not be asked, nor can be
                    function.max_dynamic_shared_size_bytes = shared
        except CompileError as error:
            from hw4cli.device.compilerlog import first_error

            own = is_own_kernel(variant) and not isinstance(error, UnknownArchitectureError)
            raise (KernelError if own else MachineError)(
                f"kernel {variant} does not compile for {self.props.architecture}: {first_error(str(error), variant)}"
            ) from None
        except (RuntimeError, ImportError, OSError) as error:
            raise MachineError(f"kernel {variant} cannot be loaded: {str(error).splitlines()[0]}") from None
        return functions


def _properties(device: Any) -> DeviceProperties:
    """Of an NVIDIA GPU."""
    attributes, cc = device.attributes, int(device.compute_capability)
    return DeviceProperties(
        cc=cc,
        sms=attributes["MultiProcessorCount"],
        shared_limit=attributes.get("MaxSharedMemoryPerBlockOptin") or SHARED_DEFAULT,
        shared_sm=attributes["MaxSharedMemoryPerMultiprocessor"],
        warpgroups=cc == 90,
    )


def _variant(name: str) -> Variant:
    """A kernel of the ladder, or that of a user's file."""
    if not is_own_kernel(name):
        return VARIANTS[name]
    from hw4cli.device.ownkernel import kernel_named

    return kernel_named(name)


def import_cupy() -> Any:
    """The module cupy. Raises MachineError, saying what to install, if it is missing or does not load.

    Each call of `attention` asks for it: once it is there, no file is looked at."""
    global _cupy
    if _cupy is None or _cupy is not sys.modules.get("cupy"):
        _cupy = _imported_cupy()
    return _cupy


_cupy: Any = None  # whole, or with all parts that a run needs


def _imported_cupy() -> Any:
    folder = kernel_cache()
    if folder:
        os.environ["CUPY_CACHE_DIR"] = str(folder)
    try:
        return load()
    except ImportError as error:
        if "cupy" in str(error) and not isinstance(error, ModuleNotFoundError):
            raise MachineError(f"cupy is installed but does not load: {str(error).splitlines()[0]}") from None
        raise without_cupy() from None
    except OSError as error:
        raise MachineError(f"cupy is installed but does not load: {error}") from None


@contextmanager
def as_file(code: bytes) -> Iterator[str]:
    """A path from which machine code can be loaded, new each time: cupy takes what has the same path for the same."""
    with tempfile.NamedTemporaryFile(prefix="hw4-", suffix=".cubin", buffering=0) as file:
        file.write(code)
        yield file.name


def kernel_of(plan: Plan) -> Kernel:
    """What is compiled for a plan."""
    return plan.source, (f"-DABSMAX_CHUNK={ABSMAX_CHUNK}", *plan.options)


def cuda_message(error: Exception) -> str:
    """CUDA's message, without the name of the exception."""
    return str(error).splitlines()[0]

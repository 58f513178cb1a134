"""The rates of the GPU here, measured by kernels that do one thing (kernels/roofs/roofs.cu)."""

import statistics
from dataclasses import dataclass
from typing import Any

import numpy as np

from hw4cli import __version__
from hw4cli.device.gpu import Gpu, as_file
from hw4cli.device.timing import GpuTimer
from hw4cli.errors import CompileError, MachineError
from hw4cli.lab.measure.gpus import DFMA, DRAM, EXP2, FFMA, L2, SCALES, SHARED, TENSOR
from hw4cli.lab.measure.roofs import unit_of
from hw4cli.lab.record import heading
from hw4cli.plans.launch import ABSMAX_CHUNK
from hw4cli.plans.plan import DeviceProperties
from hw4cli.system.machine import machine

SOURCE = "roofs/roofs"  # in kernels/
THREADS, CHAINS, WARP = 256, 16, 32
L2_BUFFER = {True: 8 << 20, False: 1 << 20}  # bytes that stay in the L2 cache, by whether there are 4 MB or more of it
FIRST_ROUNDS, LEAST_MS, SAMPLES = 64, 5.0, 7
DEPTHS = {"fp16": 16, "bf16": 16, "tf32": 8, "int8": 32}  # numbers that the tensor cores' instructions sum at once


@dataclass(frozen=True)
class RoofKernel:
    """A kernel of roofs.cu: what it measures, its symbol, and what a thread does in a round, in bytes or operations;
    blocks a multiprocessor, bytes of shared memory a block, the least compute capability."""

    name: str
    symbol: str
    unit: str
    of_thread: float
    blocks: int = 8
    shared: int = 0
    least_cc: int = 0
    warpgroups: bool = False

    def runs_on(self, props: DeviceProperties) -> bool:
        """Whether the GPU has what it measures."""
        return props.cc >= self.least_cc and (props.warpgroups or not self.warpgroups)


KERNELS = (
    RoofKernel(L2, "roof_l2", "GB", 16 * CHAINS),
    RoofKernel(SHARED, "roof_shared", "GB", 16 * CHAINS, 4, 16 * THREADS * 4),
    RoofKernel(FFMA, "roof_ffma", "TFLOP", 2 * 8 * CHAINS),
    RoofKernel(DFMA, "roof_dfma", "TFLOP", 2 * 8 * CHAINS),
    RoofKernel(EXP2, "roof_exp2", "Gexp", 8 * CHAINS),
    *(
        RoofKernel(f"mma.sync {kind}", f"roof_mma_{kind}", "TFLOP", 2 * 16 * 8 * depth * CHAINS / WARP, 4, 0, 80)
        for kind, depth in DEPTHS.items()
    ),
    *(
        RoofKernel(
            f"wgmma {kind}", f"roof_wgmma_{kind}", "TFLOP", 2 * 64 * 128 * depth * CHAINS / 128, 2, 4096, 90, True
        )
        for kind, depth in DEPTHS.items()
    ),
)
FP16 = ("wgmma fp16", "mma.sync fp16")  # of which the faster stands for the tensor cores


def l2_buffer(props: DeviceProperties) -> int:
    """Bytes that roof_l2 reads: GPUs before 8.0 have 2 to 6 MB of L2 cache, an RTX 3090 6, all others more."""
    return L2_BUFFER[props.cc >= 80 and props.cc != 86]


def options(props: DeviceProperties) -> tuple[str, ...]:
    """The compiler's options for roofs.cu on a GPU."""
    macros = {"D": 64, "BR": 64, "BC": 64, "THREADS": THREADS, "BYTES": f"{l2_buffer(props)}u"}
    macros |= {"WARPGROUPS": int(props.warpgroups), "ABSMAX_CHUNK": ABSMAX_CHUNK}  # absmax.cu is compiled behind it
    own = ("-arch=sm_90a",) if props.warpgroups else ()
    return (*own, *(f"-D{name}={value}" for name, value in macros.items()))


def measured_rates(timer: GpuTimer) -> dict[str, float]:
    """The rate of each path of this GPU, in its unit (roofs.unit_of): medians of SAMPLES.

    Raises MachineError if the kernels do not compile or run.
    """
    gpu, rates = timer.gpu, dict[str, float]()
    if gpu.props.gfx:
        raise MachineError("hw4 bench roofs measures NVIDIA's GPUs so far: their kernels do not compile for AMD's")
    if copied := timer.copy_gb_per_s():
        rates[DRAM] = copied
    kernels = [kernel for kernel in KERNELS if kernel.runs_on(gpu.props)]
    functions = _functions(gpu, kernels)
    buffer = gpu.empty((l2_buffer(gpu.props) // 4,))
    buffer.data.memset(0, buffer.nbytes)
    for kernel in kernels:
        rates[kernel.name] = _rate(timer, kernel, functions[kernel.symbol], buffer)
    tensor = [rates[name] for name in FP16 if name in rates]
    return {**rates, TENSOR: max(tensor)} if tensor else rates


def _functions(gpu: Gpu, kernels: list[RoofKernel]) -> dict[str, Any]:
    try:
        with as_file(gpu.code.get((SOURCE, options(gpu.props)))) as path:
            module = gpu.cupy.RawModule(path=path)
            return {kernel.symbol: module.get_function(kernel.symbol) for kernel in kernels}
    except CompileError as error:
        raise MachineError(f"kernels/{SOURCE}.cu does not compile: {str(error).splitlines()[0]}") from None
    except (RuntimeError, OSError) as error:
        raise MachineError(f"kernels/{SOURCE}.cu cannot be loaded: {str(error).splitlines()[0]}") from None


def _rate(timer: GpuTimer, kernel: RoofKernel, function: Any, buffer: Any) -> float:
    """A kernel's rate: it runs for LEAST_MS at least, so that its beginning and its end do not count."""
    grid = kernel.blocks * timer.gpu.props.sms

    def milliseconds(rounds: int) -> float:
        def work() -> None:
            function((grid,), (THREADS,), (buffer, np.int32(rounds)), shared_mem=kernel.shared)

        return timer.milliseconds(work, cold=False)

    milliseconds(FIRST_ROUNDS)
    rounds = FIRST_ROUNDS * max(1, int(LEAST_MS / milliseconds(FIRST_ROUNDS)))
    middle = statistics.median(milliseconds(rounds) for _ in range(SAMPLES))
    return grid * THREADS * kernel.of_thread * rounds / (middle / 1e3) / SCALES[kernel.unit]


def roofs_record(timer: GpuTimer, rates: dict[str, float], before: dict[str, Any]) -> dict[str, Any]:
    """The record of roofs: machine, clocks, rates, method."""
    return {
        **heading("roofs"),
        "hw4": __version__,
        "machine": machine(timer.machine()),
        "clocks": {"before": before, "after": timer.clocks()},
        "method": f"CUDA events, medians of {SAMPLES} runs of {LEAST_MS:g} ms or more; DRAM: a copy, read and written",
        "units": {name: unit_of(name) for name in rates},
        "rates": rates,
    }

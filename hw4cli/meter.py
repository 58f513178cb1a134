"""What is measured on a GPU: times by CUDA events, SGEMM rate, occupancy, clocks; and what it and its driver are."""

import statistics
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from hw4cli.gpu import Gpu
from hw4cli.gpuwatch import THROTTLE_BITS
from hw4cli.plan import Plan

# Overwritten before each sample: far more than any L2 cache, and some 0.2 ms even on the fastest memory, in which
# Python hands over the work, so that the GPU never waits for it between the two events.
FLUSH_BYTES = 512 << 20


@dataclass(frozen=True)
class Resources:
    """What a compiled kernel takes of the GPU; occupancy is the share of a multiprocessor's warps that fit at once."""

    registers: int
    local_bytes: int
    shared_bytes: int
    occupancy: float


class Meter:
    """Measures on an opened GPU."""

    def __init__(self, gpu: Gpu) -> None:
        self.gpu = gpu
        self.cupy = gpu.cupy
        attributes = self.cupy.cuda.Device().attributes
        self._warps = attributes["MaxThreadsPerMultiProcessor"] // 32

    def milliseconds(self, work: Callable[[], object], cold: bool) -> float:
        """The time of one piece of GPU work between two events; cold: after the L2 cache was overwritten."""
        start, end = self.cupy.cuda.Event(), self.cupy.cuda.Event()
        self._flush.data.memset_async(0, FLUSH_BYTES, self.cupy.cuda.Stream.null)
        if not cold:
            work()
        start.record()
        work()
        end.record()
        end.synchronize()
        return float(self.cupy.cuda.get_elapsed_time(start, end))

    @cached_property
    def _flush(self) -> Any:
        return self.cupy.empty(FLUSH_BYTES, self.cupy.uint8)

    def resources(self, plan: Plan) -> Resources:
        """Registers, spills, shared memory and occupancy of a plan's main launch."""
        function, step = self.gpu.functions(plan)[plan.main], plan.launches[plan.main]
        attributes = function.attributes
        blocks = self.cupy.cuda.driver.occupancyMaxActiveBlocksPerMultiprocessor(
            function.kernel.ptr, step.block, step.shared
        )
        return Resources(
            registers=attributes["num_regs"],
            local_bytes=attributes["local_size_bytes"],
            shared_bytes=attributes["shared_size_bytes"] + step.shared,
            occupancy=blocks * (step.block // 32) / self._warps,
        )

    def sgemm_tflops(self, size: int = 8192) -> float | None:
        """cuBLAS's float32 rate on square matrices (TF32 off), median of seven; None where cuBLAS is not installed."""
        cupy = self.cupy
        try:
            a, b = (cupy.asarray(self._random(size)) for _ in range(2))
            out = cupy.empty((size, size), cupy.float32)
            times = [self.milliseconds(lambda: cupy.matmul(a, b, out=out), cold=False) for _ in range(10)][3:]
        except (ImportError, RuntimeError, OSError, cupy.cuda.memory.OutOfMemoryError):
            return None
        return 2 * size**3 / statistics.median(times) / 1e9

    def copy_gb_per_s(self, size: int = 1 << 30) -> float | None:
        """The rate at which the GPU's memory is read and written, together, by a copy within it; median of ten."""
        try:
            source, target = (self.cupy.empty(size, self.cupy.uint8) for _ in range(2))
        except self.cupy.cuda.memory.OutOfMemoryError:
            return None
        stream = self.cupy.cuda.Stream.null

        def copy() -> None:
            target.data.copy_from_device_async(source.data, size, stream)

        times = [self.milliseconds(copy, cold=False) for _ in range(10)]
        return 2 * size / statistics.median(times) / 1e6

    def _random(self, size: int) -> Any:
        import numpy as np

        return np.random.default_rng(0).uniform(-3, 3, (size, size)).astype(np.float32)

    def machine(self) -> dict[str, Any]:
        """The GPU and the software that a record must name."""
        runtime = self.cupy.cuda.runtime
        driver = self._nvml(lambda nvml, _: nvml.nvmlSystemGetDriverVersion())
        return {
            "gpu": self.gpu.name,
            "compute_capability": f"{self.gpu.chip.cc / 10:.1f}",
            "multiprocessors": self.gpu.chip.sms,
            "driver": driver or f"CUDA {_version(runtime.driverGetVersion())}",
            "cuda": _version(runtime.runtimeGetVersion()),
            "nvrtc": ".".join(map(str, self.cupy.cuda.nvrtc.getVersion())),
            "cupy": self.cupy.__version__,
        }

    def clocks(self) -> dict[str, Any]:
        """Clocks (MHz), temperature (°C), power (W) and throttle reasons now; empty without nvidia-ml-py."""

        def read(nvml: Any, handle: Any) -> dict[str, Any]:
            bits = nvml.nvmlDeviceGetCurrentClocksThrottleReasons(handle)
            return {
                "sm_mhz": nvml.nvmlDeviceGetClockInfo(handle, nvml.NVML_CLOCK_SM),
                "memory_mhz": nvml.nvmlDeviceGetClockInfo(handle, nvml.NVML_CLOCK_MEM),
                "temperature": nvml.nvmlDeviceGetTemperature(handle, nvml.NVML_TEMPERATURE_GPU),
                "watts": round(nvml.nvmlDeviceGetPowerUsage(handle) / 1000),
                "throttled": [name for bit, name in THROTTLE_BITS.items() if bits & bit],
            }

        return self._nvml(read) or {}

    def _nvml(self, ask: Callable[[Any, Any], Any]) -> Any:
        """Ask NVML about this GPU; None where it is not installed or does not answer."""
        try:
            import pynvml as nvml
        except ImportError:
            return None
        try:
            nvml.nvmlInit()
            handle = nvml.nvmlDeviceGetHandleByPciBusId(self.cupy.cuda.Device().pci_bus_id.encode())
            return ask(nvml, handle)
        except nvml.NVMLError:
            return None


def _version(number: int) -> str:
    """CUDA's 13000 as 13.0."""
    return f"{number // 1000}.{number % 1000 // 10}"

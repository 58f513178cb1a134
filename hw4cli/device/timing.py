"""Measurements on a GPU: times by CUDA events, SGEMM rate, occupancy, clocks; and the versions that a record names."""

import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from hw4cli.device.energy import PowerMeter
from hw4cli.device.gpu import Gpu
from hw4cli.device.hip.codeobject import kernels_of
from hw4cli.device.occupancy import occupancy
from hw4cli.plans.plan import Plan
from hw4cli.system.nvidia import THROTTLE_BITS

# Overwritten before each sample: far more than any L2 cache, and some 0.2 ms even on the fastest memory.
FLUSH_BYTES = 512 << 20
MOST_FLUSHES = 64  # one after the other: some 12 ms
BATCH_MS = 10  # of runs that are enqueued together, where they go on for long
RETRIES = 3  # of a late sample, before the flush is made longer: a single late one may have another cause


@dataclass(frozen=True)
class Sample:
    """The times of one piece of work in milliseconds: `gpu` on the GPU; `host` to enqueue its launches; `flush`, for
    which the GPU overwrote the cache before.

    A sample is late if the flush ended before all was enqueued: then `gpu` may include time in which the GPU waited.
    """

    gpu: float
    host: float
    flush: float
    late: bool


@dataclass(frozen=True)
class Resources:
    """What a compiled kernel takes of the GPU; occupancy is the share of a multiprocessor's warps that fit at once."""

    registers: int
    local_bytes: int
    shared_bytes: int
    occupancy: float


class GpuTimer:
    """Times work on an opened GPU."""

    def __init__(self, gpu: Gpu) -> None:
        self.gpu = gpu
        self.cupy = gpu.cupy
        self._flushes = 1  # so many times the cache is overwritten before a sample

    def sample(self, work: Callable[[], object], cold: bool) -> Sample:
        """The time of one piece of GPU work between two events; cold: after the L2 cache was overwritten.

        The host enqueues the work while the GPU overwrites the cache, so that the time of launches does not count:
        neither a kernel's nor the longer one of a framework. If the flush is too short for that, it is made longer for
        all later samples; only a sample with the longest flush can be late.
        """
        tries = 0
        while (sample := self._sample(work, cold)).late and self._flushes < MOST_FLUSHES:
            tries += 1
            if tries % RETRIES == 0:
                self._flushes *= 2
        return sample

    def _sample(self, work: Callable[[], object], cold: bool) -> Sample:
        cuda = self.cupy.cuda
        first, start, end = cuda.Event(), cuda.Event(), cuda.Event()
        first.record()
        for _ in range(self._flushes):
            self._flush.data.memset_async(0, FLUSH_BYTES, cuda.Stream.null)
        if not cold:
            work()
        start.record()
        began = time.perf_counter()
        work()
        end.record()
        host, late = 1000 * (time.perf_counter() - began), bool(start.done)
        end.synchronize()
        flush, gpu = float(cuda.get_elapsed_time(first, start)), float(cuda.get_elapsed_time(start, end))
        return Sample(gpu, host, flush, late)

    def milliseconds(self, work: Callable[[], object], cold: bool) -> float:
        """The GPU's time of one sample."""
        return self.sample(work, cold).gpu

    def sustained(self, work: Callable[[], object], seconds: float) -> dict[str, float | None]:
        """What a run takes back to back for so long, in milliseconds, and the watts and the clock (MHz) meanwhile.

        Watts and clock are None without nvidia-ml-py. The host is a batch of runs ahead of the GPU; all are None if it
        is too slow for that.
        """
        cuda = self.cupy.cuda
        batch = max(1, round(BATCH_MS / self.milliseconds(work, cold=False)))
        start, before, runs, idle = cuda.Event(), cuda.Event(), 0, 0
        start.record()
        before.record()
        with PowerMeter(self._nvml) as meter:
            began = time.perf_counter()
            while time.perf_counter() - began < seconds or runs < 2 * batch:
                for _ in range(batch):
                    work()
                runs += batch
                end = cuda.Event()
                end.record()
                idle += bool(before.done)
                before.synchronize()
                before = end
            before.synchronize()
        if idle > 1 + runs / batch / 10:  # the GPU had to wait, not for the first batch alone
            return dict.fromkeys(("sustained_ms", "watts", "sm_mhz"))
        return {
            "sustained_ms": float(cuda.get_elapsed_time(start, before)) / runs,
            "watts": meter.watts,
            "sm_mhz": meter.sm_mhz,
        }

    @cached_property
    def _flush(self) -> Any:
        return self.cupy.empty(FLUSH_BYTES, self.cupy.uint8)

    def resources(self, plan: Plan) -> Resources:
        """Registers, spills, shared memory and occupancy of a plan's main launch."""
        function, step = self.gpu.functions(plan)[plan.main], plan.launches[plan.main]
        if self.gpu.props.gfx:  # HIP does not answer cupy's questions
            used = kernels_of(self.gpu.machine_code(plan))[step.symbol]
            shared = used.shared + step.shared
            share = occupancy(self.gpu.props, used.registers, shared, step.block).share
            return Resources(used.registers, used.spilled, shared, share)
        attributes, warps = function.attributes, self.cupy.cuda.Device().attributes["MaxThreadsPerMultiProcessor"] // 32
        blocks = self.cupy.cuda.driver.occupancyMaxActiveBlocksPerMultiprocessor(
            function.kernel.ptr, step.block, step.shared
        )
        return Resources(
            registers=attributes["num_regs"],
            local_bytes=attributes["local_size_bytes"],
            shared_bytes=attributes["shared_size_bytes"] + step.shared,
            occupancy=blocks * (step.block // 32) / warps,
        )

    def sgemm_tflops(self) -> float | None:
        """cuBLAS's float32 rate on square matrices (TF32 off), median of seven; None where cuBLAS is not installed."""
        cupy, size = self.cupy, 8192
        try:
            a, b = (cupy.asarray(self._random(size)) for _ in range(2))
            out = cupy.empty((size, size), cupy.float32)
            times = [self.milliseconds(lambda: cupy.matmul(a, b, out=out), cold=False) for _ in range(10)][3:]
        except (ImportError, RuntimeError, OSError, cupy.cuda.memory.OutOfMemoryError):
            return None
        return 2 * size**3 / statistics.median(times) / 1e9

    def copy_gb_per_s(self) -> float | None:
        """The rate at which the GPU's memory is read and written, together, by a copy within it; median of ten."""
        size = 1 << 30
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

        return np.random.default_rng(0).random((size, size), np.float32) * np.float32(6) - np.float32(3)

    def machine(self) -> dict[str, Any]:
        """The GPU and the software that a record must name."""
        runtime, props, compiler = self.cupy.cuda.runtime, self.gpu.props, self.gpu.code.compiler.version
        toolkit = runtime.runtimeGetVersion()
        if props.gfx:
            versions = {"architecture": props.gfx, "hip": f"{toolkit // 10**7}.{toolkit // 10**5 % 100}"}
            return {
                "gpu": self.gpu.name,
                **versions,
                "multiprocessors": props.sms,
                **self._software("hiprtc", compiler),
            }
        driver = self._nvml(lambda nvml, _: nvml.nvmlSystemGetDriverVersion())
        return {
            "gpu": self.gpu.name,
            "compute_capability": f"{props.cc / 10:.1f}",
            "multiprocessors": props.sms,
            "driver": driver or f"CUDA {_version(runtime.driverGetVersion())}",
            "cuda": _version(toolkit),
            **self._software("nvrtc", compiler),
        }

    def _software(self, compiler: str, version: str) -> dict[str, str]:
        return {compiler: version, "cupy": self.cupy.__version__}

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
            return ask(nvml, self._handle)
        except nvml.NVMLError:
            return None

    @cached_property
    def _handle(self) -> Any:
        """The GPU, as NVML knows it. Raises NVMLError."""
        import pynvml as nvml

        nvml.nvmlInit()
        return nvml.nvmlDeviceGetHandleByPciBusId(self.cupy.cuda.Device().pci_bus_id.encode())


def _version(number: int) -> str:
    """CUDA's 13000 as 13.0."""
    return f"{number // 1000}.{number % 1000 // 10}"

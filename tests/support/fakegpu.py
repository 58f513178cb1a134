"""A GPU that there is not: arrays in the host's memory, kernels that are the CPU's computation, made-up times."""

import random
import sys
from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace

import numpy as np

from hw4cli.device.timing import Resources, Sample
from hw4cli.errors import MachineError
from hw4cli.plans.ladder import VARIANTS
from hw4cli.plans.plan import DEVICES
from hw4cli.problem.casefile import magnitudes_of
from hw4cli.problem.workload import Magnitudes
from hw4cli.stream.tiled import tiled_attention


class Memory:
    """An array on a GPU that there is not."""

    def __init__(self, values):
        self.values, self.shape, self.nbytes, self.data, self.size = (
            values,
            values.shape,
            values.nbytes,
            self,
            values.size,
        )

    def memset(self, byte, size):
        self.values.reshape(-1).view(np.uint8)[:size] = byte

    memset_async = memset

    def __getitem__(self, part):
        return Memory(self.values[part])

    def reshape(self, shape):
        return Memory(self.values.reshape(shape))

    def view(self, dtype):
        return self.values.view(dtype)

    def set(self, values):
        self.values[:] = values

    def get(self):
        return self.values


class FakeGpu:
    """As much of a Gpu as tests need; its kernels are the CPU's computation, and what `also` does."""

    name, props = "no GPU", DEVICES[90]

    def __init__(self, also=lambda inputs, outputs: None, found=magnitudes_of):
        self.also, self.found, self.scratches = also, found, []
        self.code = SimpleNamespace(driver=13000, compiler_id="1 2", missing=lambda kernels: [])
        self.cupy = SimpleNamespace(
            empty=self.scratch, cuda=SimpleNamespace(memory=SimpleNamespace(OutOfMemoryError=MemoryError))
        )

    def scratch(self, size, dtype):
        self.scratches.append(Memory(np.empty(size, dtype)))
        return self.scratches[-1]

    def empty(self, shape):
        return Memory(np.empty(shape, np.float32))

    def plan(self, kernel, shape, tile=None):
        if kernel == "shared":
            raise MachineError("kernel shared does not run here")
        return VARIANTS[kernel].plan(shape, self.props, tile)

    def functions(self, plan):
        if plan.macros["BR"] == 256:
            raise MachineError("kernel flash does not compile for compute capability 9.0: flash.cu:1: too large: `x`")

    def translated_errors(self, plan, shape):
        return nullcontext()

    def wait(self):
        pass

    def compute(self, plan, inputs, outputs):
        wide = np.float64 if plan.variant == "float64" else np.float32
        outputs.set(tiled_attention(inputs.values, wide))
        self.last, self.tile = plan.variant, (plan.macros["BR"], plan.macros["BC"])
        if plan.variant != "float64":
            self.also(inputs, outputs)

    def absmax_of(self, plan, scratch, inputs):
        found = Magnitudes(*self.found(inputs.values))
        numbers = found.q, found.q_norm**2, found.k, found.k_norm**2, found.v
        return Memory(np.float32(numbers).view(np.uint32))


MILLISECONDS = {
    "naive": 40.0,
    "smallbr": 10.0,
    "warp": 4.0,
    "float4": 3.0,
    "flash": 1.5,
    "exact": 0.8,
    "split": 0.25,
    "split8": 0.3,
}


TILES = {("flash", (128, 64)): 0.9, ("flash", (64, 16)): 1.5}  # how much longer than with its own


class FakeTimer:
    """As much of a GpuTimer as tests need: a kernel takes its time of MILLISECONDS, a little more with a cold cache."""

    def __init__(self, gpu):
        self.gpu, self.chance = gpu, random.Random(1)

    def sample(self, work, cold):
        work()
        ms = MILLISECONDS.get(self.gpu.last, 2.0) * self.chance.uniform(0.995, 1.005) * (1.02 if cold else 1)
        ms *= TILES.get((self.gpu.last, self.gpu.tile), 1.0)
        return Sample(ms, 0.01, 0.2, False)

    def resources(self, plan):
        return Resources(64, 0, 16384, 0.5)

    def machine(self):
        return {"gpu": self.gpu.name, "compute_capability": "9.0", "driver": "1.2", "cuda": "13.0", "cupy": "14"}

    def clocks(self):
        return {}

    def sgemm_tflops(self):
        return 50.0

    def copy_gb_per_s(self):
        return 4000.0


def wrong(inputs, outputs):
    """What a kernel does that leaves out its last row."""
    outputs.values[-1, -1] = 0


def install(module, broken=False):
    """Let a module of hw4's open this GPU; of `broken` ones, kernels are wrong."""
    module.Gpu = lambda: FakeGpu(wrong if broken else lambda inputs, outputs: None)
    module.GpuTimer = FakeTimer


def process(module, broken=False):
    """The command that runs a module's `main` in a process where this GPU is installed."""
    lines = (
        f"import sys; sys.path[:0] = {[str(Path(__file__).parent), *sys.path]!r}",
        f"import fakegpu, hw4cli.{module} as module",
        f"fakegpu.install(module, {broken})",
        "module.main()",
    )
    return [sys.executable, "-c", "\n".join(lines)]

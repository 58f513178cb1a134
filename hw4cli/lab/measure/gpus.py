"""What GPUs can do at best: rates of their makers' data sheets and white papers, for a GPU that is not here to be
measured.

A data sheet's rate is that of the boost clock, and no program reaches all of it; `hw4 bench roofs` measures
what one does.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace

from hw4cli.errors import InputError
from hw4cli.plans.plan import AMD_DEVICES, DEVICES, DeviceProperties

# Lanes of a multiprocessor, by compute capability: float32 FMA, exp2 (special function units), float64 FMA; CUDA
# programming guide, throughput of native arithmetic instructions.
LANES = {
    **{61: (128, 32, 4), 70: (64, 16, 32), 75: (64, 16, 2), 80: (64, 16, 32), 86: (128, 16, 2), 89: (128, 16, 2)},
    **{90: (128, 16, 64), 100: (128, 16, 64), 103: (128, 16, 2)},
}
NEWEST_LANES = (128, 16, 2)
# Of AMD's compute units: four SIMDs of 16 lanes, which on CDNA 2 do two products each at once (v_pk_fma_f32: the
# compiler takes it for nine of ten products of flash). That is also the rate of its fp32 matrix cores.
AMD_LANES = {"gfx90a": (128, 16, 64)}
OTHER_AMD_LANES = (64, 16, 32)
# Bytes that a multiprocessor takes a clock: of shared memory; of the L2 cache, where all do (estimated: 30 on an H100).
SHARED_BYTES, L2_BYTES = 128, 32
# Of an L2 cache, the share that holds what is read again: on an H200, whose driver says 60 MB, one half of a buffer of
# 43 MB came again (benchmarks/h200-cache.csv). A line read from the far half is copied to the near one, which costs
# capacity; of other GPUs the same share is assumed.
HOLDS = 0.72
# Clocks from a load to its use: from shared memory, the L1 cache, the L2 cache, DRAM. Jia et al. 2018 (GTX 1080's
# generation; DRAM estimated) and Luo et al. 2024 (A100, RTX 4090, H100 PCIe); of AMD's, estimates.
LATENCIES = {61: (24, 82, 216, 500), 80: (29, 38, 262, 466), 89: (30, 43, 273, 542), 90: (29, 41, 263, 479)}
AMD_LATENCIES = (64, 120, 270, 750)
# KB of a multiprocessor's L1 cache, from compute capability 7.0 on together with its shared memory (CUDA programming
# guide); of AMD's compute units.
L1_KB = {61: 48, 75: 96, 80: 192, 86: 128, 89: 128, 90: 256, 100: 256, 120: 128}
AMD_L1_KB = 16
# The resources that a kernel can be limited by, and the unit of each rate in a second.
DRAM, L2, SHARED, FFMA, DFMA, EXP2, TENSOR = "DRAM", "L2", "shared memory", "FFMA", "DFMA", "exp2", "tensor cores"
UNITS = {DRAM: "GB", L2: "GB", SHARED: "GB", FFMA: "TFLOP", DFMA: "TFLOP", EXP2: "Gexp", TENSOR: "TFLOP"}
SCALES = {"GB": 1e9, "TFLOP": 1e12, "Gexp": 1e9}
# Of a data sheet's rate: the most that flash's float32 products and split's fp16 products reached on an H100 or H200,
# and what a copy within the memory does. On other GPUs, assumptions.
REACHED = {FFMA: 0.83, TENSOR: 0.79, DRAM: 0.9, L2: 0.6}


@dataclass(frozen=True)
class GpuModel:
    """A GPU of the market: boost clock in GHz, GB/s of its memory, MB of L2 cache, TFLOP/s of fp16 products with
    float32 sums on tensor cores (dense)."""

    name: str
    cc: int
    sms: int
    clock: float
    dram: float
    l2: float
    tensor: float | None = None
    gfx: str = ""

    @property
    def props(self) -> DeviceProperties:
        """What a launch depends on."""
        return replace(AMD_DEVICES[self.gfx] if self.gfx else DEVICES[self.cc], sms=self.sms)

    @property
    def cache(self) -> int:
        """Bytes of its L2 cache that hold what is read again."""
        return int(HOLDS * self.l2 * (1 << 20))

    @property
    def latencies(self) -> tuple[int, int, int, int]:
        """Clocks from a load to its use: from shared memory, the L1 cache, the L2 cache, DRAM."""
        return AMD_LATENCIES if self.gfx else LATENCIES[max(cc for cc in LATENCIES if cc <= self.cc)]

    @property
    def line_clocks(self) -> int:
        """Clocks for a line of 128 bytes from the L1 cache: one; two where that gives 64 bytes at a time."""
        return 2 if self.gfx else 1

    @property
    def issued(self) -> int:
        """Instructions that a multiprocessor begins in a clock, each for 32 lanes."""
        return 2 if self.gfx else 4

    def l1_bytes(self, shared: int) -> int:
        """Bytes that a multiprocessor's L1 cache has, where blocks have so many of shared memory."""
        if self.gfx:
            return AMD_L1_KB << 10
        whole = L1_KB[max(cc for cc in L1_KB if cc <= self.cc)] << 10
        return whole if self.cc < 70 else max(0, whole - shared)

    @property
    def rates(self) -> dict[str, float]:
        """The best rate of each resource in its unit of UNITS a second."""
        fma, special, doubles = LANES.get(self.cc, NEWEST_LANES)
        if self.gfx:
            fma, special, doubles = AMD_LANES.get(self.gfx, OTHER_AMD_LANES)
        found = {
            DRAM: self.dram,
            L2: self.sms * L2_BYTES * self.clock,
            SHARED: self.sms * SHARED_BYTES * self.clock,
            FFMA: self.sms * 2 * fma * self.clock / 1e3,
            DFMA: self.sms * 2 * doubles * self.clock / 1e3,
            EXP2: self.sms * special * self.clock,
        }
        return found if self.tensor is None else {**found, TENSOR: self.tensor}


# The first of a compute capability stands for all of it.
MODELS = tuple(
    GpuModel(*row)
    for row in (
        ("GTX 1080", 61, 20, 1.733, 320, 2),
        ("T4", 75, 40, 1.590, 320, 4, 65),
        ("A100", 80, 108, 1.410, 1555, 40, 312),
        ("RTX 3090", 86, 82, 1.695, 936, 6, 71),
        ("RTX 4090", 89, 128, 2.520, 1008, 72, 165),
        ("L40S", 89, 142, 2.520, 864, 96, 362),
        ("H100", 90, 132, 1.980, 3350, 50, 989),
        ("H200", 90, 132, 1.980, 4800, 60, 989),
        ("H100 PCIe", 90, 114, 1.755, 2000, 50, 756),
        ("B200", 100, 148, 1.850, 8000, 126, 2250),
        ("RTX 5090", 120, 170, 2.407, 1792, 96, 210),
        ("MI210", 0, 104, 1.700, 1638, 8, None, "gfx90a"),
        ("MI100", 0, 120, 1.502, 1229, 8, None, "gfx908"),
    )
)
NAMES = tuple(model.name for model in MODELS)


def model_named(name: str) -> GpuModel:
    """The GPU of a name, in any case and with more words around it ("NVIDIA H200"), or of a compute capability ("9.0")
    or AMD's architecture ("gfx90a").

    Raises InputError if it is not known.
    """
    words = name.casefold()
    exact = [model for model in MODELS if model.name.casefold() == words]
    if found := exact or [model for model in MODELS if words == (model.gfx or f"{model.cc / 10:.1f}")]:
        return found[0]
    inside = [model for model in MODELS if model.name.casefold() in words]
    if inside:
        return max(inside, key=lambda model: len(model.name))
    raise InputError(
        f"there is no GPU {name!r} in the list: give a compute capability, as in 9.0, or one of {', '.join(NAMES)}"
    )


def model_for(name: str, cc: int, gfx: str = "") -> GpuModel:
    """The GPU that is called so, or else the first of a compute capability, or of the next older one; of AMD's, the
    first of an architecture, or an MI210."""
    try:
        return model_named(name)
    except InputError:
        if gfx:
            alike = [model for model in MODELS if model.gfx == gfx]
            return alike[0] if alike else model_named("MI210")
        older = [model for model in MODELS if not model.gfx and model.cc <= max(cc, MODELS[0].cc)]
        return next(model for model in older if model.cc == older[-1].cc)


def model_like(name: str, props: DeviceProperties) -> GpuModel:
    """The same with as many multiprocessors as there are."""
    return replace(model_for(name, props.cc, props.gfx), sms=props.sms)


def seconds(amounts: Mapping[str, float | None], rates: Mapping[str, float]) -> dict[str, float]:
    """How long each resource takes for its amount (bytes, operations) at its rate, where both are known."""
    return {
        name: amount / (rates[name] * SCALES[UNITS[name]])
        for name, amount in amounts.items()
        if amount and rates.get(name)
    }

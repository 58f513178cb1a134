"""How many blocks of a kernel a multiprocessor holds at once, and what keeps it from holding more.

The limits are those of the CUDA programming guide (table of technical specifications); how registers and shared memory
are handed out, in units, is what the CUDA occupancy calculator goes by. Those of AMD's GPUs are what LLVM's AMDGPU
back end goes by.
"""

from dataclasses import dataclass

from hw4cli.plans.formulas import ceil_div
from hw4cli.plans.plan import HIP_VOTES, DeviceProperties

WARP = 32  # threads
REGISTERS = 64 << 10  # of a multiprocessor, and the most that a block may have
REGISTER_UNIT = 256  # a warp gets a multiple of so many
PARTITIONS = 4  # of a multiprocessor; each has its own quarter of the registers, and warps stay where they begin


@dataclass(frozen=True)
class Limits:
    """What a multiprocessor holds at most, and the unit, in bytes, of a block's shared memory."""

    warps: int
    blocks: int
    shared_unit: int


LIMITS = {
    61: Limits(64, 32, 256),
    75: Limits(32, 16, 256),
    80: Limits(64, 32, 128),
    86: Limits(48, 16, 128),
    89: Limits(48, 24, 128),
    90: Limits(64, 32, 128),
    100: Limits(64, 32, 128),
    120: Limits(48, 24, 128),
}


@dataclass(frozen=True)
class SimdLimits:
    """What each of the four SIMDs of AMD's compute unit (or pair of them) holds: wavefronts, registers of a lane in all
    wavefronts together, and the unit in which a wavefront gets them."""

    waves: int
    registers: int
    register_unit: int


SIMDS = 4
LDS_UNIT = 512  # bytes
SIMD_LIMITS = {
    "gfx90a": SimdLimits(8, 512, 8),  # registers of the matrix cores included
    "gfx94": SimdLimits(8, 512, 8),
    "gfx9": SimdLimits(10, 256, 4),
    "gfx103": SimdLimits(16, 1024, 16),
    "gfx10": SimdLimits(20, 1024, 8),
    "gfx1": SimdLimits(16, 1536, 24),
}


@dataclass(frozen=True)
class Occupancy:
    """Blocks on a multiprocessor, the share of its warps that they are, and what the next block would lack: some of
    "threads", "registers", "shared memory" and "blocks"."""

    blocks: int
    share: float
    limited_by: tuple[str, ...]


def occupancy(props: DeviceProperties, registers: int, shared: int, threads: int) -> Occupancy:
    """The occupancy of a kernel by its registers a thread, bytes of shared memory a block, and threads a block.

    A compute capability that is not in the table is taken for the next older one. No blocks, where not one fits.
    """
    if props.gfx:
        return _on_amd(props, registers, shared, threads)
    limits = LIMITS[max(cc for cc in LIMITS if cc <= max(props.cc, min(LIMITS)))]
    warps = ceil_div(threads, WARP)
    registers_of_warp = ceil_div(max(1, registers) * WARP, REGISTER_UNIT) * REGISTER_UNIT
    warps_by_registers = REGISTERS // PARTITIONS // registers_of_warp * PARTITIONS
    shared_of_block = ceil_div(shared + props.shared_reserved, limits.shared_unit) * limits.shared_unit
    fitting = {
        "threads": limits.warps // warps,
        "registers": warps_by_registers // warps,
        "shared memory": props.shared_sm // max(1, shared_of_block),
        "blocks": limits.blocks,
    }
    if shared > props.shared_limit:
        fitting["shared memory"] = 0
    return _least(fitting, warps, limits.warps)


def _on_amd(props: DeviceProperties, registers: int, shared: int, threads: int) -> Occupancy:
    """The same on AMD's GPUs; `shared` includes what HIP itself takes."""
    limits = next(limits for name, limits in SIMD_LIMITS.items() if props.gfx.startswith(name))
    waves = ceil_div(threads, props.lanes)
    of_wave = ceil_div(max(1, registers), limits.register_unit) * limits.register_unit
    fitting = {
        "threads": SIMDS * limits.waves // waves,
        "registers": SIMDS * (limits.registers // of_wave) // waves,
        "shared memory": props.shared_sm // (ceil_div(max(1, shared), LDS_UNIT) * LDS_UNIT),
    }
    if shared > props.shared_limit + HIP_VOTES:
        fitting["shared memory"] = 0
    return _least(fitting, waves, SIMDS * limits.waves)


def _least(fitting: dict[str, int], warps: int, most: int) -> Occupancy:
    blocks = min(fitting.values())
    limited_by = tuple(name for name, count in fitting.items() if count == blocks)
    return Occupancy(blocks, blocks * warps / most, limited_by)

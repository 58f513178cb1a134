"""About how long launches take on a GPU, by what they are counted to do: a roofline with latency and occupancy.

A launch takes as long as the resource that needs the longest (`Times`). Of a multiprocessor:

- the pipe to the L1 cache and to shared memory: a clock for each line of 128 bytes that a request touches, each
  wavefront of shared memory, each shuffle;
- issue: four instructions of warps a clock; loads, stores, arithmetic, meetings, and of integer arithmetic a quarter,
  as loops are unrolled;
- its units for float32, float64, exponentials, and its tensor cores;
- latency: each warp waits for what it loads, eight loads at a time, and as many warps wait at once as there is room
  for.

And of the whole GPU the L2 cache, and DRAM. What a block asks for again is in a cache if that holds all that the
blocks there have asked for meanwhile (`missed`); what another block has asked for, in the L2 cache, if that block
began a short while ago, or if the cache holds all that the launch touches.

No constant belongs to a kernel. docs/emulator.md says beside which records they were chosen, and how far off it is.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from math import ceil

from hw4cli.device.occupancy import occupancy
from hw4cli.emulator.counts import (
    CONVERSIONS,
    DIVISIONS,
    EXPONENTIALS,
    FP32,
    FP64,
    FP64_FUNCTIONS,
    LOGARITHMS,
    NOT_MEETINGS,
    SECTOR,
    TIMES,
    WAVEFRONT,
    Counts,
)
from hw4cli.lab.measure.gpus import DFMA, DRAM, EXP2, FFMA, L2, REACHED, SCALES, TENSOR, UNITS, GpuModel
from hw4cli.plans.formulas import ceil_div

PIPE, ISSUE, LATENCY = "L1 and shared memory", "issue", "latency"
LAUNCH_SECONDS = 3e-6  # that it may take to begin a launch behind another, and to end it
WARP = 32  # threads
UNROLLED = 4  # of integer arithmetic, which finds addresses and counts, one in so many is left in an unrolled loop
BARRIER_CLOCKS = 30  # from the last thread's arrival to the first one's next instruction
DEPENDENT_CLOCKS = (
    2  # between two instructions of a warp: four where one needs the other's result, one where it does not
)
SPECIAL = (EXPONENTIALS, LOGARITHMS, DIVISIONS, CONVERSIONS)
DIVISION_STEPS = 8  # instructions beside a reciprocal
INTEGER_PRODUCTS = ("int8",)


@dataclass(frozen=True)
class Work:
    """What a launch does, in numbers by name (`amounts_of`), of all its blocks together; `shared` bytes a block and
    `registers` a thread (1: not known); `times`, how many launches are alike, of which `amounts` are the sum."""

    symbol: str
    blocks: int
    threads: int
    shared: int
    amounts: Mapping[str, float]
    registers: int = 1
    times: int = 1


def amounts_of(counts: Counts, lanes: int = WARP) -> dict[str, float]:
    """What launches come to, for warps of 32 lanes, whatever they were counted with."""
    wide = lanes // WARP
    meetings = [line for line in counts.lines if not (line.bytes or line.amount) and line.what not in NOT_MEETINGS]
    shuffles = sum(line.times for line in meetings if "shfl" in line.what)
    barriers = sum(line.lanes for line in meetings if line.what.startswith(("__syncthreads", "bar."))) / WARP
    requests = sum(line.times for line in counts.lines if line.wavefronts)
    divisions = DIVISION_STEPS * counts.total("times", DIVISIONS)
    floats = counts.floats + divisions
    tensor = sum(number for kind, number in counts.products.items() if kind not in INTEGER_PRODUCTS)
    integer = sum(number for kind, number in counts.products.items() if kind in INTEGER_PRODUCTS)
    of_global = [line for line in counts.lines if line.sectors]
    copied = sum(
        ceil_div(line.distinct, SECTOR) for line in counts.lines if line.what in ("copy in, global", "copy out, global")
    )
    return {
        "lines": sum(line.wavefronts for line in of_global),
        "wavefronts": counts.shared_wavefronts[0] + ceil_div(counts.operand_bytes, WAVEFRONT),
        "shuffles": wide * shuffles,
        "instructions": requests
        + wide * (floats + counts.others / UNROLLED)
        + sum(line.lanes for line in meetings) / WARP,
        "fp32": wide * (counts.total("times", FP32) + divisions),
        "fp64": wide * counts.total("times", FP64) + 16 * wide * counts.total("times", FP64_FUNCTIONS),
        "special": wide * counts.total("times", *SPECIAL),
        "tensor": tensor + integer / 2,
        "asked": sum(line.sectors for line in of_global if line.what.startswith("load")) + copied,
        "stored": sum(line.sectors for line in of_global if line.what.startswith("store")),
        "updated": sum(line.sectors for line in of_global if line.what.startswith("atomic")),
        "written": counts.written,
        **{name: getattr(counts, name) for name in ("first", "near_block", "far_block")},
        **{f"again {number}": asked for number, asked in enumerate(counts.again)},
        "accesses": sum(line.lanes for line in of_global) / (counts.grid * counts.threads),
        "waits_global": wide * counts.waits_global,
        "waits_shared": wide * (counts.waits_shared + shuffles),
        "barriers": barriers,
    }


@dataclass(frozen=True)
class Times:
    """About how many seconds launches take, and what each resource of a GPU needs for them."""

    seconds: float
    needs: Mapping[str, float] = field(default_factory=dict)

    @property
    def limit(self) -> str:
        """The resource that needs the longest."""
        return max(self.needs, key=lambda name: self.needs[name], default="")


def time_of(work: Work, gpu: GpuModel) -> Times | None:
    """About how long such launches take together; None where a block does not fit on the GPU."""
    held = occupancy(gpu.props, work.registers, work.shared, work.threads).blocks
    if not held:
        return None
    each = {name: amount / work.times for name, amount in work.amounts.items()}
    needs = _multiprocessor(work, each, gpu, held) | _memory(work, each, gpu, held)[0]
    return Times(
        work.times * (max(needs.values(), default=0.0) + LAUNCH_SECONDS),
        {name: work.times * needed for name, needed in needs.items()},
    )


def total(works: Sequence[Work], gpu: GpuModel) -> Times | None:
    """The same of launches one after the other."""
    return together([time_of(work, gpu) for work in works])


def together(times: Sequence[Times | None]) -> Times | None:
    """The sum; what limits it is what limits the longest. None where one is."""
    known = [time for time in times if time]
    if len(known) < len(times):
        return None
    longest = max(known, key=lambda time: time.seconds, default=Times(0.0))
    return Times(sum(time.seconds for time in known), longest.needs)


def _last(work: Work, gpu: GpuModel) -> float:
    """How many times longer the multiprocessor with the most blocks takes than all would on average."""
    return ceil(work.blocks / gpu.sms) * gpu.sms / work.blocks


def _multiprocessor(work: Work, each: Mapping[str, float], gpu: GpuModel, held: int) -> dict[str, float]:
    """Seconds that each resource of the multiprocessor with the most blocks needs."""
    rates = gpu.rates
    busiest = _last(work, gpu) / gpu.sms  # of all work, the share of this one
    hertz = gpu.clock * 1e9
    needs = {
        PIPE: (gpu.line_clocks * each["lines"] + each["wavefronts"] + each["shuffles"]) * busiest / hertz,
        ISSUE: each["instructions"] / gpu.issued * busiest / hertz,
    }
    for name, amount in (
        (FFMA, 2 * WARP * each["fp32"]),
        (DFMA, 2 * WARP * each["fp64"]),
        (EXP2, WARP * each["special"]),
    ):
        needs[name] = amount / (rates[name] * SCALES[UNITS[name]]) * busiest * gpu.sms
    if each["tensor"]:
        needs[TENSOR] = each["tensor"] / (rates.get(TENSOR, rates[FFMA]) * SCALES[UNITS[TENSOR]]) * busiest * gpu.sms
    needs = {name: needed / REACHED.get(name, 1.0) for name, needed in needs.items()}
    warps = ceil_div(work.threads, WARP)
    at_once = warps * min(held, ceil(work.blocks / gpu.sms))
    shared, *levels = gpu.latencies
    shares = _memory(work, each, gpu, held)[1]
    of_all = (
        each["waits_global"] * sum(share * clocks for share, clocks in zip(shares, levels, strict=True))
        + each["waits_shared"] * shared
        + each["barriers"] * BARRIER_CLOCKS
        + each["instructions"] * DEPENDENT_CLOCKS
    )
    return {**needs, LATENCY: of_all * busiest / at_once / hertz}


def _memory(
    work: Work, each: Mapping[str, float], gpu: GpuModel, held: int
) -> tuple[dict[str, float], tuple[float, float, float]]:
    """Seconds that the L2 cache and DRAM need; and which shares of the sectors that loads ask for come from the L1
    cache, the L2 cache and DRAM."""
    of_blocks = each["first"] + each["near_block"] + each["far_block"]
    resident = min(held, ceil(work.blocks / gpu.sms))
    l1 = gpu.l1_bytes(resident * work.shared) / resident
    behind = of_blocks + missed(work, each, l1)
    from_dram = each["first"]
    if SECTOR * each["first"] + each["written"] > gpu.cache:
        from_dram += each["far_block"] + missed(work, each, gpu.cache / min(work.blocks, resident * gpu.sms))
    moved = SECTOR * (behind + each["stored"] + 2 * each["updated"])
    needs = {L2: moved, DRAM: SECTOR * from_dram + each["written"]}
    rates = gpu.rates
    asked = max(each["asked"], behind, 1.0)
    shares = (asked - behind) / asked, max(0.0, behind - from_dram) / asked, min(from_dram, behind) / asked
    return {name: bytes_ / (rates[name] * 1e9 * REACHED[name]) for name, bytes_ in needs.items()}, shares


def missed(work: Work, each: Mapping[str, float], room: float) -> float:
    """Of the sectors that a block asks for again, all blocks together, those that a cache which holds so many bytes for
    each block has no longer.

    While a block makes so many accesses, as many of its sectors come into the cache as it asks for that it has not
    asked for within that time. So the time after which the room is full follows from the times between requests for
    the same sector (Xiang et al. 2013, a higher order theory of locality).
    """
    again = [each[f"again {number}"] for number in range(TIMES)]
    late = (
        each["first"] + each["near_block"] + each["far_block"] + sum(again)
    )  # at each time: not asked for so recently
    step = (
        SECTOR / work.blocks / max(1.0, each["accesses"])
    )  # bytes of a block's sector that is asked for once, an access
    filled = 0.0
    for number, asked in enumerate(again):
        width = max(1, 1 << number >> 1)
        filled += late * step * width
        if filled > room:
            return sum(again[number:])
        late -= asked
    return 0.0

"""Metrics by nvprof's names and units, and which counters of Nsight Compute and of rocprofv3 they are made of.

nvprof's own metrics (GPUs up to 7.0) keep their names. Nsight Compute's follow NVIDIA's guide to the transition, which
counts shared memory in wavefronts: each moves 32 banks of 4 bytes. rocprofv3's are the nearest that AMD's counters
have; they were taken from AMD's documentation and never tried on a GPU.
"""

from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass

from hw4cli.plans.work import SECTOR, WAVEFRONT

NVPROF, NCU, ROCPROF = "nvprof", "Nsight Compute", "rocprofv3"
TIME = "gpu__time_duration.sum"  # Nsight Compute's, in seconds here; of rocprofv3, the dispatch's own
Values = Mapping[str, float]  # counters of a launch by name, in base units: bytes, seconds, a second
# All reasons for which a warp does not issue, as Nsight Compute has them.
REASONS = (
    *("barrier", "branch_resolving", "dispatch_stall", "drain", "gmma", "imc_miss", "lg_throttle", "long_scoreboard"),
    *("math_pipe_throttle", "membar", "mio_throttle", "misc", "no_instruction", "not_selected", "short_scoreboard"),
    *("sleeping", "tex_throttle", "wait"),
)


def stall_counter(reason: str) -> str:
    """Nsight Compute's counter of a reason: warps that wait for it, for each instruction that is issued."""
    return f"smsp__average_warps_issue_stalled_{reason}_per_issue_active.ratio"


@dataclass(frozen=True)
class Metric:
    """A metric: name, description and unit as nvprof has them. `ncu`: counters whose sum, times `factor`, it is;
    `rate`: their sum a second. `nvprof`: counters with another name there, and their factor. `amd`: what it is made of
    by rocprofv3, with the formula, which also gets the seconds."""

    name: str
    title: str
    unit: str
    ncu: tuple[str, ...] = ()
    factor: float = 1.0
    rate: bool = False
    nvprof: tuple[str, ...] | None = None  # None: its own name; (): nvprof has none
    nvprof_factor: float = 1.0
    amd: tuple[str, ...] = ()
    amd_value: Callable[[Values, float], float] = lambda values, seconds: 0.0

    def counters(self, tool: str) -> tuple[str, ...]:
        """What a tool must be asked for."""
        if tool == NVPROF:
            return (self.name,) if self.nvprof is None else self.nvprof
        return self.amd if tool == ROCPROF else self.ncu

    def value(self, tool: str, values: Values) -> float | None:
        """The metric of a launch in its unit; None if a counter is missing."""
        wanted = self.counters(tool)
        if tool == ROCPROF:
            seconds = values.get(TIME)
            if not (wanted and seconds and all(name in values for name in wanted)):
                return None
            with suppress(ZeroDivisionError):  # a share of no cycles
                return self.amd_value(values, seconds)
            return None
        if tool == NVPROF:
            scale = 1e-9 if self.unit == "GB/s" else 1e3 if self.unit == "ms" else self.nvprof_factor
            return _sum(values, wanted, scale)
        if not self.rate:
            return _sum(values, wanted, self.factor)
        seconds = values.get(TIME)
        own = [values.get(f"{name}.per_second") for name in wanted]
        if None not in own:
            return self.factor * sum(rate for rate in own if rate is not None)
        return _sum(values, wanted, self.factor / seconds) if seconds else None


def _sum(values: Values, names: Iterable[str], scale: float) -> float | None:
    found = [values.get(name) for name in names]
    known = [value for value in found if value is not None]
    return scale * sum(known) if found and len(known) == len(found) else None


def _stall(name: str, title: str, *reasons: str) -> Metric:
    return Metric(name, title, "%", tuple(stall_counter(reason) for reason in reasons))


def _rate(name: str, title: str, counter: str, factor: float = 1.0) -> Metric:
    return Metric(name, title, "GB/s", (counter,), factor / 1e9, rate=True)


def _percent(name: str, title: str, counter: str) -> Metric:
    return Metric(name, title, "%", (counter,), nvprof=())


def _l2_reads(values: Values, seconds: float) -> float:
    return 64 * values["TCP_TCC_READ_REQ_sum"] / seconds / 1e9


def _l2_writes(values: Values, seconds: float) -> float:
    return 64 * values["TCP_TCC_WRITE_REQ_sum"] / seconds / 1e9


def _lds(values: Values, seconds: float) -> float:
    return 4 * 32 * (values["SQ_LDS_IDX_ACTIVE"] - values["SQ_LDS_BANK_CONFLICT"]) / seconds / 1e9


LDS = ("SQ_LDS_IDX_ACTIVE", "SQ_LDS_BANK_CONFLICT")  # loads and stores together: AMD does not count them apart
SHARED = "l1tex__data_pipe_lsu_wavefronts_mem_shared_op_{}.sum"
GLOBAL = "l1tex__t_bytes_pipe_lsu_mem_global_op_{}.sum"
OCCUPANCY = Metric(
    *("achieved_occupancy", "Achieved Occupancy", ""),
    ("sm__warps_active.avg.pct_of_peak_sustained_active",),
    0.01,
    amd=("OccupancyPercent",),
    amd_value=lambda values, seconds: values["OccupancyPercent"] / 100,
)
ACTIVITY = Metric(
    *("sm_efficiency", "Multiprocessor Activity", "%"),
    ("smsp__cycles_active.avg.pct_of_peak_sustained_elapsed",),
    amd=("SQ_BUSY_CU_CYCLES", "GRBM_GUI_ACTIVE", "CU_NUM"),
    amd_value=lambda v, seconds: 100 * 4 * v["SQ_BUSY_CU_CYCLES"] / (v["GRBM_GUI_ACTIVE"] * v["CU_NUM"]),
)
SHARED_LOADS, SHARED_STORES = (
    Metric(
        *(f"shared_{word}_throughput", f"Shared Memory {word.capitalize()} Throughput", "GB/s"),
        (SHARED.format(op),),
        WAVEFRONT / 1e9,
        rate=True,
        amd=LDS,
        amd_value=_lds,
    )
    for word, op in (("load", "ld"), ("store", "st"))
)
LOADS, STORES = (
    Metric(
        *(f"g{op}_throughput", f"Global {word} Throughput", "GB/s"),
        (GLOBAL.format(op),),
        1e-9,
        rate=True,
        amd=(counter,),
        amd_value=value,
    )
    for word, op, counter, value in (
        ("Load", "ld", "TCP_TCC_READ_REQ_sum", _l2_reads),
        ("Store", "st", "TCP_TCC_WRITE_REQ_sum", _l2_writes),
    )
)
DURATION = Metric("duration", "Duration", "ms", (TIME,), 1e3, nvprof=(), amd=(TIME,))
DRAM_READ, DRAM_WRITTEN = (
    Metric(
        *(f"dram_{word}", f"DRAM {word}", "MB"),
        (f"dram__bytes_{op}.sum",),
        1e-6,
        nvprof=(f"dram_{op}_transactions",),
        nvprof_factor=SECTOR / 1e6,
        amd=(counter,),
        amd_value=lambda values, seconds, counter=counter: values[counter] * 1024 / 1e6,  # type: ignore[misc]
    )
    for word, op, counter in (("read", "read", "FETCH_SIZE"), ("written", "write", "WRITE_SIZE"))
)
L2_TO_SM = Metric(
    *("l2_to_l1", "L2 to L1 traffic", "MB"),
    ("l1tex__m_xbar2l1tex_read_bytes.sum",),
    1e-6,
    nvprof=("l2_read_transactions",),
    nvprof_factor=SECTOR / 1e6,
)
SM_TO_L2 = Metric(
    *("l1_to_l2", "L1 to L2 traffic", "MB"),
    ("l1tex__m_l1tex2xbar_write_bytes.sum",),
    1e-6,
    nvprof=("l2_write_transactions",),
    nvprof_factor=SECTOR / 1e6,
)
SHARED_BYTES = Metric(
    *("shared_traffic", "Shared memory, loads and stores", "MB"),
    (SHARED.format("ld"), SHARED.format("st")),
    WAVEFRONT / 1e6,
    nvprof=("shared_load_transactions", "shared_store_transactions"),
    nvprof_factor=WAVEFRONT / 1e6,
)
L2_HITS = _percent("l2_hit_rate", "L2 hit rate", "lts__t_sector_hit_rate.pct")
MOVED = (DRAM_READ, DRAM_WRITTEN, L2_TO_SM, SM_TO_L2, SHARED_BYTES)  # what the model of a kernel has, too
ASSIGNMENT = (OCCUPANCY, ACTIVITY, SHARED_LOADS, SHARED_STORES, LOADS, STORES)
MEMORY = (
    DURATION,
    _percent("compute_throughput", "Compute throughput", "sm__throughput.avg.pct_of_peak_sustained_elapsed"),
    _percent("sm_busy", "SM busy", "sm__instruction_throughput.avg.pct_of_peak_sustained_active"),
    _percent("l1_throughput", "L1 throughput", "l1tex__throughput.avg.pct_of_peak_sustained_active"),
    _percent("l2_throughput", "L2 throughput", "lts__throughput.avg.pct_of_peak_sustained_elapsed"),
    _percent("dram_throughput", "DRAM throughput", "gpu__dram_throughput.avg.pct_of_peak_sustained_elapsed"),
    _percent("l1_hit_rate", "L1 hit rate", "l1tex__t_sector_hit_rate.pct"),
    *(L2_HITS, DRAM_READ, DRAM_WRITTEN, L2_TO_SM, SM_TO_L2, SHARED_BYTES),
)
STALLS = (
    _stall("stall_inst_fetch", "Issue Stall Reasons (Instructions Fetch)", "no_instruction", "branch_resolving"),
    _stall("stall_exec_dependency", "Issue Stall Reasons (Execution Dependency)", "short_scoreboard", "wait"),
    _stall("stall_memory_dependency", "Issue Stall Reasons (Data Request)", "long_scoreboard"),
    _stall("stall_constant_memory_dependency", "Issue Stall Reasons (Immediate constant)", "imc_miss"),
    _stall("stall_texture", "Issue Stall Reasons (Texture)", "tex_throttle"),
    _stall("stall_sync", "Issue Stall Reasons (Synchronization)", "barrier", "membar"),
    _stall("stall_pipe_busy", "Issue Stall Reasons (Pipe Busy)", "math_pipe_throttle", "mio_throttle"),
    _stall("stall_memory_throttle", "Issue Stall Reasons (Memory Throttle)", "drain", "lg_throttle"),
    _stall("stall_not_selected", "Issue Stall Reasons (Not Selected)", "not_selected"),
    _stall("stall_other", "Issue Stall Reasons (Other)", "dispatch_stall", "misc", "sleeping"),
)
GMMA = Metric("stall_gmma", "Waiting for products of warpgroups", "%", (stall_counter("gmma"),), nvprof=())
BANKS = "l1tex__data_bank_conflicts_pipe_lsu_mem_shared_op_{}.sum"
STEPS = (
    Metric("shared_ld_bank_conflict", "Bank conflicts of shared loads", "", (BANKS.format("ld"),)),
    Metric("shared_st_bank_conflict", "Bank conflicts of shared stores", "", (BANKS.format("st"),)),
    *(ACTIVITY, OCCUPANCY),
    Metric("ipc", "Executed IPC", "", ("sm__inst_executed.avg.per_cycle_active",)),
    Metric("inst_integer", "Integer Instructions", "", ("smsp__sass_thread_inst_executed_op_integer_pred_on.sum",)),
    Metric("inst_executed", "Instructions Executed", "", ("smsp__inst_executed.sum",)),
    *(LOADS, STORES),
    _rate("dram_read_throughput", "Device Memory Read Throughput", "dram__bytes_read.sum"),
    _rate("dram_write_throughput", "Device Memory Write Throughput", "dram__bytes_write.sum"),
    _rate("l2_read_throughput", "L2 Throughput (Reads)", "lts__t_sectors_op_read.sum", SECTOR),
    _rate("l2_write_throughput", "L2 Throughput (Writes)", "lts__t_sectors_op_write.sum", SECTOR),
    Metric(
        *("shared_efficiency", "Shared Memory Efficiency", "%"),
        ("smsp__sass_average_data_bytes_per_wavefront_mem_shared.pct",),
    ),
    Metric(
        *("eligible_warps_per_cycle", "Eligible Warps Per Active Cycle", ""),
        ("smsp__warps_eligible.avg.per_cycle_active",),
        4,
    ),
    Metric(
        *("warp_execution_efficiency", "Warp Execution Efficiency", "%"),
        ("smsp__thread_inst_executed_per_inst_executed.ratio",),
        100 / 32,
    ),
    Metric(
        *("issue_slot_utilization", "Issue Slot Utilization", "%"),
        ("smsp__issue_active.avg.pct_of_peak_sustained_active",),
    ),
    *(one for one in STALLS if one.name not in ("stall_memory_throttle", "stall_not_selected")),
)
CYCLES = tuple(f"sm__cycles_active.{which}" for which in ("min", "avg", "max"))  # of the multiprocessors
BALANCE = (
    *(
        Metric(f"sm_cycles_{word}", f"Cycles that the {title} multiprocessor has work", "", (counter,), nvprof=())
        for word, title, counter in zip(("least", "mean", "most"), ("idlest", "mean", "busiest"), CYCLES, strict=True)
    ),
    Metric("sm_imbalance", "Multiprocessor Imbalance (most - mean, of most)", "%", CYCLES, nvprof=()),
)
EVENTS = {"shared_ld_bank_conflict", "shared_st_bank_conflict"}  # which nvprof counts as events, not metrics
SETS = {"assignment": ASSIGNMENT, "memory": MEMORY, "steps": STEPS, "stalls": (*STALLS, GMMA), "balance": BALANCE}
# How busy each resource is, in percent of its peak: the nearest limit of a kernel is the busiest.
BUSY = tuple(
    Metric(
        name, name, "%", (counter,), nvprof=(own,) if own else (), nvprof_factor=10
    )  # nvprof has levels from 0 to 10
    for name, counter, own in (
        ("DRAM", "gpu__dram_throughput.avg.pct_of_peak_sustained_elapsed", "dram_utilization"),
        ("the L2 cache", "lts__throughput.avg.pct_of_peak_sustained_elapsed", "l2_utilization"),
        (
            "shared memory and L1",
            "l1tex__data_pipe_lsu_wavefronts.avg.pct_of_peak_sustained_elapsed",
            "shared_utilization",
        ),
        (
            "the FMA units",
            "sm__inst_executed_pipe_fma.avg.pct_of_peak_sustained_active",
            "single_precision_fu_utilization",
        ),
        ("the tensor cores", "sm__pipe_tensor_cycles_active.avg.pct_of_peak_sustained_active", ""),
        (
            "the special function units (exp2)",
            "sm__inst_executed_pipe_xu.avg.pct_of_peak_sustained_active",
            "special_fu_utilization",
        ),
        ("the issue slots", "smsp__issue_active.avg.pct_of_peak_sustained_active", ""),
    )
)


def impossible(metric: Metric, value: float | None) -> str:
    """Why a value is refused, or "". Nsight Compute counts sectors and those that hit in different passes over a
    launch, and whatever else uses the L2 cache meanwhile counts, too: of a launch of some microseconds, such as one
    that writes a counter, the one can be twice the other. What is no share is no hit rate."""
    if metric.name.endswith("_hit_rate") and value is not None and value > 100:
        return f"{value:.0f} % cannot be: hits and sectors were counted in different runs of so short a launch"
    return ""


def imbalance(least: float, mean: float, most: float) -> float:
    """Of a launch's cycles, the percentage that the mean multiprocessor has no work while the last one still has.

    >>> imbalance(60.0, 90.0, 100.0)
    10.0
    """
    if not 0 <= least <= mean <= most or not most:
        raise ValueError(f"least {least:g}, mean {mean:g} and most {most:g} are not in this order, or are all 0")
    return 100 * (most - mean) / most


def of_stalls(values: Values) -> float:
    """What all reasons to wait sum up to, by which a single one is a share; 0 if they were not measured."""
    return sum(values.get(stall_counter(reason), 0.0) for reason in REASONS)


def value_of(metric: Metric, tool: str, values: Values) -> float | None:
    """A metric of a launch in its unit: a stall of Nsight Compute's in percent of all. None if it was not measured."""
    if tool == NCU and metric.name.startswith("stall_"):
        total = of_stalls(values)
        found = [values[name] for name in metric.ncu if name in values]  # an architecture may lack one
        return 100 * sum(found) / total if found and total else None
    if tool == NCU and metric.name == "sm_imbalance":
        with suppress(KeyError, ValueError):
            return imbalance(*(values[name] for name in CYCLES))
        return None
    return metric.value(tool, values)

"""Section 4.b of the report: what was measured on AMD's GPU alone, and what rocprofv3 counted there."""

from collections.abc import Mapping
from statistics import fmean

from hw4cli.show.picture import short_gpu
from hw4cli.show.report.document import missing, table
from hw4cli.show.report.material import Material, function_of, is_amd
from hw4cli.show.report.profile import CONFLICTS, DRAM, LANES, ROCPROF
from hw4cli.show.report.steps import factor
from hw4cli.text.tables import escaped

# What is made of rocprofv3's counters, and what a report calls it.
# Shared memory's loads and stores are counted together.
COUNTED = {
    "achieved_occupancy": "achieved_occupancy (OccupancyPercent / 100)",
    "sm_efficiency": "sm_efficiency, % (SQ_BUSY_CU_CYCLES)",
    LANES: f"lanes that work, % ({LANES})",
    "shared_load_throughput": "shared memory (LDS), loads and stores, GB/s",
    CONFLICTS: f"of its cycles, bank conflicts, % ({CONFLICTS})",
    "gld_throughput": "L2 to L1, GB/s (64 bytes a TCP_TCC_READ_REQ)",
    "gst_throughput": "L1 to L2, GB/s (64 bytes a TCP_TCC_WRITE_REQ)",
    DRAM[0]: "device memory read, GB (FETCH_SIZE)",
    DRAM[1]: "device memory written, GB (WRITE_SIZE)",
}


def experiments(material: Material) -> str:
    """Each kernel on AMD's GPU, compared with the first; and its counters. Empty without such a record or profile."""
    return "\n\n".join(part for part in (_times(material), _counters(material)) if part)


def _times(material: Material) -> str:
    points = {
        (p.where, p.name): (p, source.record.gpu)
        for source in material.sources
        if is_amd(source.record.gpu)
        for p in source.record.points
    }
    if not points:
        return ""
    first = {where: p.ms for (where, _), (p, _) in reversed(points.items())}
    several = {where for where, _ in points if sum(place == where for place, _ in points) > 1}
    rows = []
    for (where, name), (p, gpu) in points.items():
        if where in several:
            used = [p.figures.get(key) for key in ("registers", "shared_bytes", "occupancy")]
            cells = ["-" if value is None else f"{value:.4g}" for value in used]
            speed = [f"{p.ms:.4g}", f"{p.tflops:.4g}", factor(first[where] / p.ms)]
            rows.append([escaped(short_gpu(gpu)), escaped(function_of(name)), escaped(where), *speed, *cells])
    if not rows:
        return missing("one kernel alone was measured on AMD's GPU: measure it with and without what is for AMD alone")
    header = ["GPU", "kernel", "case (B, N, d)", "ms", "TFLOP/s", "×", "registers", "shared bytes", "occupancy"]
    return f"{table(header, rows)}\n\n× is how many times as fast as the first kernel of the case. Tool: `hw4 bench`."


def _counters(material: Material) -> str:
    found: dict[str, dict[str, list[float]]] = {}
    for one in material.profile:
        if one.tool == ROCPROF:
            for key, value in one.figures.items():
                found.setdefault(one.kernel, {}).setdefault(key, []).append(value)
    if not found:
        return ""
    means: Mapping[str, Mapping[str, float]] = {
        kernel: {key: fmean(values) for key, values in own.items()} for kernel, own in found.items()
    }
    listed = [key for key in COUNTED if any(key in own for own in means.values())]
    rows = [[COUNTED[key], *("-" if key not in own else f"{own[key]:.4g}" for own in means.values())] for key in listed]
    return f"{table(['', *map(escaped, means)], rows)}\n\nTool: rocprofv3 `--pmc`, a run for each group of counters."

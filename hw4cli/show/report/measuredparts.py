"""What sections 2 to 4 say: tables of the profile, the machines, the judging, two GPUs, and what is left to gain."""

from typing import Any

from hw4cli.judge.scoring.reasons import score_words
from hw4cli.judge.scoring.record import Standing
from hw4cli.judge.scoring.results import RESULT_COLUMNS, result_cells
from hw4cli.lab.measure.gpus import DRAM as DRAM_ROOF
from hw4cli.lab.measure.gpus import UNITS, model_for
from hw4cli.lab.measure.roofs import unit_of
from hw4cli.plans.ladder import VARIANTS
from hw4cli.problem.verdict import Verdict
from hw4cli.show.curves import amounts_of, shares
from hw4cli.show.picture import gpus, short_gpu
from hw4cli.show.records import Point, Record
from hw4cli.show.report.document import missing, table
from hw4cli.show.report.material import Material, comparable, function_of
from hw4cli.show.report.profile import DRAM, METRICS, NVPROF, ROCPROF, Counters
from hw4cli.show.report.steps import factor
from hw4cli.text.tables import escaped
from hw4cli.text.words import counted

MACHINE = {  # of a record, and what the table of the system calls it
    "gpu": "GPU",
    "compute_capability": "compute capability",
    "architecture": "architecture",
    "multiprocessors": "multiprocessors",
    "driver": "driver",
    "cuda": "CUDA",
    "nvrtc": "NVRTC",
    "hip": "HIP",
    "hiprtc": "hiprtc",
    "cpu": "CPU",
    "cores": "cores",
    "ram": "memory",
    "disk": "disk",
    "linux": "Linux",
    "glibc": "glibc",
    "python": "Python",
    "numpy": "NumPy",
    "cupy": "CuPy",
    "torch": "PyTorch",
    "cudnn": "cuDNN",
    "triton": "Triton",
}


def about(material: Material) -> str:
    """What the report is of: the kernel, the case, and the files."""
    names = [source.record.name for source in material.sources]
    names += [material.judged.user + "'s journal"] if material.judged else []
    names += [one.source for one in material.profile]
    if not names:
        return missing(
            "the folder holds no record: `hw4 bench -o FILE.json`, `hw4 judge --output` and a profiler make some"
        )
    what = (
        f"Kernel `{material.kernel}` on {escaped(material.case)}"
        if material.kernel and material.case
        else "Whole programs"
    )
    where = f", {material.gpu}" if material.gpu else ""
    return f"{what}{where}. Tables and charts are made from {escaped(', '.join(dict.fromkeys(names)))}."


def profile(material: Material) -> str:
    """Section 2: the six metrics of each kernel that was profiled, and the traffic of device memory."""
    if all(one.tool == ROCPROF for one in material.profile):
        return missing("no profile is here: `hw4 profile -o FILE.json` makes one; so do ncu and nvprof with --csv")
    shown = _of_the_report(material)
    names = {metric.name: f"{metric.name}{f', {metric.unit}' if metric.unit else ''}" for metric in METRICS}
    names.update(zip(DRAM, ("device memory read, GB", "device memory written, GB"), strict=True))
    listed = [key for key in names if key not in DRAM or any(key in one.figures for one in shown)]
    rows = [[escaped(names[key]), *(_figure(one, key) for one in shown)] for key in listed]
    header = ["", *(escaped(one.kernel) for one in shown)]
    gpus = {one.source: f" on {one.gpu}" if one.gpu else "" for one in shown}
    tools = " and ".join(dict.fromkeys(f"{one.tool} ({one.source}){gpus[one.source]}" for one in shown))
    absent = [metric.name for metric in METRICS if not any(metric.name in one.figures for one in shown)]
    end = [missing(f"the profile has no {', '.join(absent)}")] if absent else []
    notes = ["gld and gst count what passes through L1, not device memory."]
    if any(one.tool != NVPROF for one in shown):
        notes.append("Shared memory's rates count each wavefront as 128 bytes, bank conflicts included.")
    theory = material.point.figures.get("occupancy") if material.point else None
    most = f"By its registers and shared memory, `{material.kernel}` can reach an occupancy of {theory or 0:.2f}."
    planned = [most] if theory else []
    return "\n\n".join([f"Measured by {escaped(tools)}. {' '.join(notes)}", table(header, rows), *planned, *end])


def _of_the_report(material: Material) -> list[Counters]:
    """The profiled launches of the report's kernel; all, where it was not profiled."""
    name = function_of(material.kernel)
    known = [one for one in material.profile if one.tool != ROCPROF]  # that is for section 4
    own = [one for one in known if name and (one.kernel == name or one.kernel.startswith(f"{name}_"))]
    return own or known


def _figure(one: Counters, key: str) -> str:
    value = one.figures.get(key)
    return "-" if value is None else f"{value:,.0f}" if value >= 1000 else f"{value:.4g}"


def system(material: Material) -> str:
    """Section 3.a: the machine of each kind of record."""
    rows: dict[str, dict[str, None]] = {}
    for source in material.sources:
        if source.record.gpu == material.gpu:
            for key, words in MACHINE.items():
                if (value := source.machine.get(key)) is not None:
                    rows.setdefault(words, {})[escaped(str(value))] = None
    peaks = {
        "cuBLAS SGEMM, measured": (max((r.sgemm_tflops or 0 for r in material.records), default=0), "TFLOP/s"),
        "copy in device memory, measured": (max((r.copy_gb_per_s or 0 for r in material.records), default=0), "GB/s"),
    }
    for name, rate in material.roofs.rates.items() if material.roofs else ():
        if name in UNITS and name != DRAM_ROOF:
            peaks[f"{name}, measured"] = rate, f"{unit_of(name)}"
    rows.update({words: {f"{value:,.4g} {unit}": None} for words, (value, unit) in peaks.items() if value})
    if not rows:
        return missing("no record names a machine: make one with `hw4 bench -o FILE.json`")
    order = [words for words in (*MACHINE.values(), *peaks) if words in rows]
    return table(["", "this system"], [[words, "; ".join(rows[words])] for words in order])


def judged(material: Material) -> str:
    """Section 3.c: the score, and all cases."""
    standing = material.judged
    if not standing:
        return missing("no judging is here: `hw4 judge --program ./hw4 --output` into this folder makes a journal")
    said = (
        f"{standing.passed} of {counted(len(standing.cases), 'case')} AC, {score_words(standing)}. Time "
        f"{standing.time:.2f} s + Penalty {standing.penalty:g} s = {standing.time + standing.penalty:.2f} s."
    )
    gpu = (standing.session.get("gpu") or {}).get("name")
    where = [f"Judged on {escaped(str(gpu))}."] if gpu else []
    return "\n\n".join([" ".join([said, *where]), *_results(standing)])


def _results(standing: Standing) -> list[str]:
    """Each case's verdict and time, those that are accepted, too; reasons only where there is one."""
    results = [standing.results[case] for case in standing.cases if case in standing.results]
    if not results:
        return []
    reasons = any(result.reason for result in results)
    header = ["verdict" if name == "" else name for name in RESULT_COLUMNS][: None if reasons else -1]
    rows = [list(map(escaped, result_cells(result)))[: len(header)] for result in results]
    return [table(header, rows)]


def two_gpus(material: Material) -> str:
    """Section 4.b: the same kernels on two GPUs or more, the report's kernel on every case, the others on its case;
    empty for records of one GPU."""
    names = gpus([source.record for source in material.sources if source.record.points])
    if len(names) < 2:
        return ""
    names.sort(key=lambda gpu: gpu != material.gpu)
    measured: list[dict[Any, Point]] = []
    for gpu in names:
        own = comparable([source.record for source in material.sources if source.record.gpu == gpu])
        asked = [p for p in own if p.kernel == material.kernel or p.case == material.case]
        measured.append({(p.kernel, p.where): p for p in asked})
    both = [key for key in measured[0] if all(key in own for own in measured)]
    if not both:
        return missing(f"no kernel was measured on the same case on {' and '.join(map(escaped, names))}")
    header = ["kernel", "case (B, N, d)", *(f"{escaped(short_gpu(gpu))}, ms" for gpu in names)]
    header += [f"× {escaped(short_gpu(gpu))}" for gpu in names[1:]]
    rows = []
    for key in both:
        times = [own[key].ms for own in measured]
        row = [*map(escaped, key), *(f"{time:.4g}" for time in times)]
        rows.append([*row, *(factor(times[0] / time) for time in times[1:])])
    note = f"× is how many times as fast as on the {escaped(short_gpu(names[0]))}."
    return "\n\n".join([table(header, rows), note])


def headroom(material: Material) -> str:
    """The work log's end: how near the kernel is to what the GPU was measured to do, and to the whole process."""
    point = material.point
    rows = []
    if point:
        record = next((r for r in material.records if any(p is point for p in r.points)), None)
        rows = _reached(material, point) or (_peaks(point, record) if record else [])
        rows += _share(material, point)
    if not rows:
        return missing("no record holds the kernel beside the GPU's peaks: make one with `hw4 bench -o FILE.json`")
    return table([f"{escaped(material.kernel)} on {escaped(material.case)}", "reached", "the most there is", "%"], rows)


def _reached(material: Material, point: Point) -> list[list[str]]:
    """What the kernel's own launches ask of each resource, by their model, beside what this GPU was measured to do; the
    nearest roof first. A kernel on tensor cores is measured by these, not by float32's units."""
    if not material.roofs:
        return []
    rates, model = material.roofs.rates, model_for(material.gpu, material.props.cc)
    amounts = amounts_of(point, model)
    found = sorted(shares(amounts, rates, point.ms).items(), key=lambda one: -one[1])
    return [
        [
            f"{name}, {unit_of(name)}",
            f"{share / 100 * rates[name]:,.4g}",
            f"{rates[name]:,.4g}, measured by hw4 bench roofs",
            f"{share:.2g}",
        ]
        for name, share in found
    ]


def _peaks(point: Point, record: Record) -> list[list[str]]:
    """Beside a copy, and of kernels in float32 beside cuBLAS in float32, which is no roof of tensor cores."""
    rows = []
    entry = VARIANTS.get(point.kernel)
    if record.sgemm_tflops and not (entry and entry.pieces):
        share = 100 * point.tflops / record.sgemm_tflops
        most = f"{record.sgemm_tflops:.2f}, cuBLAS SGEMM"
        rows.append(["rate, TFLOP/s", f"{point.tflops:.2f}", most, f"{share:.0f}"])
    moved = point.figures.get("gb_per_s")
    if moved and record.copy_gb_per_s:
        share = 100 * moved / record.copy_gb_per_s
        most = f"{record.copy_gb_per_s:,.0f}, a copy"
        rows.append(["Q, K, V and O once, GB/s", f"{moved:,.1f}", most, f"{share:.2g}"])
    return rows


def _share(material: Material, point: Point) -> list[list[str]]:
    """The kernel's part of the judged process on the same case, if that was accepted."""
    result = material.judged.results.get(point.case) if material.judged else None
    if not result or result.verdict is not Verdict.AC or not result.wall:
        return []
    share = point.ms / 1000 / result.wall
    most = f"{result.wall:.3f}, the whole process"
    return [["time of the kernel, s", f"{point.ms / 1000:.4g}", most, f"{100 * share:.2g}"]]

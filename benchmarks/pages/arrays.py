"""Tables of attention of arrays: beside peers, without rest, decoding beside a copy, errors."""

from benchmarks.pages.table import Record, Table, beside, timed
from hw4cli.lab.arrays.named import described
from hw4cli.lab.arrays.tables import workload_of
from hw4cli.show.leaderboard.published import PUBLISHED, Published
from hw4cli.show.leaderboard.workload import Workload

NUMBERS = {"normal": "normal", "uniform": "uniform in [-3, 3)"}
PEERS = ("cuDNN", "FA2")


def published(row: Record, gpu: str) -> Published | None:
    """The fastest that others published for a row's workload on this GPU."""
    work = workload_of(row)
    if (work.kv_heads, work.Nk) != (work.heads, work.Nq):
        return None
    same = Workload(work.batch, work.Nq, work.d, work.heads, work.dtype, work.causal)
    figures = [one for one in PUBLISHED if one.workload == same and one.machine in gpu]
    return min(figures, key=lambda one: one.ms, default=None)


def arrays(record: Record) -> Table:
    """A line for each workload: the first kernel's figures, how many times as fast as others it is, and the others'
    times; at the end what others published, by their own measurement."""
    gpu, copy = record["machine"].get("gpu") or "", record.get("copy_gb_per_s")  # GB/s
    theirs: dict[str, str] = {}  # sources, by who is shown
    header = ["workload", "(B, H, N, d)", "kernel", "ms", "TFLOP/s", "of a copy", "pairs", "rel. error"]
    header += [text for name in PEERS for text in (f"{name} ms", f"× {name}")] + ["published"]
    lines = []
    for own, by_kernel in beside(record):
        line = [f"`{own['case']}`", described(workload_of(own)), own["kernel"]]
        line += [f"{own['median']:.4g}", f"{own['tflops']:.0f}", f"{own['gb_per_s'] / copy:.0%}" if copy else "-"]
        line.append("-" if own["pairs_percent"] is None else f"{own['pairs_percent']:.1f}%")
        line.append(f"{own['relative_error']:.1e}")
        for name in PEERS:
            other = by_kernel.get(name)
            line += [f"{other['median']:.4g}", f"{other['median'] / own['median']:.2f}"] if other else ["-", "-"]
        one = published(own, gpu)
        who = one.program.partition(",")[0] if one else ""
        theirs |= {who: one.source} if one else {}
        lines.append([*line, f"{one.ms:g} ms, {who}" if one else "-"])
    sources = "; ".join(f"{who}: {source}" for who, source in sorted(theirs.items()))
    return Table(header, lines, (f"Published figures were not measured here ({sources}).",) if sources else ())


def sustained(record: Record) -> Table:
    """A line for each workload that ran without rest, of ours and each peer: time, watts and clock."""
    header = ["workload", "kernel", "ms", "TFLOP/s", "watts", "MHz"]
    header += [text for name in PEERS for text in (f"{name} ms", f"× {name}", "watts", "MHz")]
    lines = []
    for own, by_kernel in beside(record):
        if not own["sustained_ms"]:
            continue
        rate = own["tflops"] * own["median"] / own["sustained_ms"]
        line = [f"`{own['case']}`", own["kernel"], f"{own['sustained_ms']:.4g}", f"{rate:.0f}", *_power(own)]
        for name in PEERS:
            other = by_kernel.get(name)
            if other and other["sustained_ms"]:
                ratio = other["sustained_ms"] / own["sustained_ms"]
                line += [f"{other['sustained_ms']:.4g}", f"{ratio:.2f}", *_power(other)]
            else:
                line += ["-"] * 4
        lines.append(line)
    return Table(header, lines)


def decoding(record: Record) -> Table:
    """A line for each workload of measure/decoding.py, in microseconds: ours, a kernel that only reads K and V, a
    copy that moves as many bytes, and the peers."""
    header = ["(B, H, N, d)", "kernel", "K and V", "µs", "only read", "copy", "of the copy's rate"]
    header += [text for name in PEERS for text in (name, f"× {name}")]
    lines = []
    for own, by_kernel in beside(record):
        memory = record["memory"][own["case"]]
        line = [described(workload_of(own)), own["kernel"], f"{memory['bytes'] / 1e6:.0f} MB"]
        line += [f"{1000 * ms:.1f}" for ms in (own["median"], memory["read"], memory["copy"])]
        line.append(f"{memory['copy'] / own['median']:.0%}")
        for name in PEERS:
            other = by_kernel.get(name)
            line += [f"{1000 * other['median']:.1f}", f"{other['median'] / own['median']:.2f}"] if other else ["-", "-"]
        lines.append(line)
    return Table(header, lines)


def _power(row: Record) -> list[str]:
    return ["-" if row[key] is None else f"{row[key]:.0f}" for key in ("watts", "sm_mhz")]


def exactness(record: Record) -> Table:
    """A line for each kind of numbers: of each kernel and peer the largest error, and that of the answer's norm."""
    rows = timed(record)
    kernels = list(dict.fromkeys(row["kernel"] for row in rows))
    kinds: dict[tuple[str, int, str], dict[str, str]] = {}
    for row in rows:
        kind = row["dtype"], row["shape"][2], row["distribution"]
        kinds.setdefault(kind, {})[row["kernel"]] = f"{row['max_error']:.1e}, {row['relative_error']:.1e}"
    lines = [
        [f"{dtype}, d={d}, {NUMBERS[distribution]}", *(errors.get(kernel, "-") for kernel in kernels)]
        for (dtype, d, distribution), errors in kinds.items()
    ]
    return Table(["numbers", *kernels], lines)

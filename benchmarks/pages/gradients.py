"""Tables of gradients: beside peers, over N and d, of each design, and their errors."""

from benchmarks.pages.table import Record, Table, beside, made, timed, times
from hw4cli.lab.arrays.named import described
from hw4cli.lab.tables import workload_of
from hw4cli.plans import backwardwgmma as hopper
from hw4cli.plans import gradients as choice
from hw4cli.plans.backwardcut import KEYS
from hw4cli.plans.formulas import FLOAT
from hw4cli.plans.gradientwork import is_one_pass, owned_rows
from hw4cli.plans.plan import DEVICES
from hw4cli.plans.tensorwork import HALF
from hw4cli.problem.workload import Workload

GRADIENT_PEERS = ("cuDNN", "FA2", "efficient")


def gradients(backward: Record, both: Record) -> Table:
    """A line for each workload: of the backward pass our time, rate and error, and the peers' times and errors; then
    the times of both passes. Behind a peer's time stands how many times as fast ours is."""
    names = [name for name in GRADIENT_PEERS if name in {row["kernel"] for row in timed(backward)}]
    header = ["workload", "(B, H, N, d)", "kernel", "backward ms", "TFLOP/s", "error"]
    header += [text for name in names for text in (f"{name} ms", "error")]
    header += ["both passes ms", *(f"{name} ms" for name in names)]
    trained = {own["case"]: (own, found) for own, found in beside(both)}
    lines = []
    for own, found in beside(backward):
        case, text = own["case"], described(workload_of(own))
        line = [f"`{case}`" if case != text else "-", text, own["kernel"], f"{own['median']:.4g}"]
        line += [f"{own['tflops']:.0f}", _gradient_error(own)]
        for other in map(found.get, names):
            line += [times(other, own), _gradient_error(other)] if other else ["-", "-"]
        also, others = trained.get(case, (None, {}))
        line.append(f"{also['median']:.4g}" if also else "-")
        line += [times(others[name], also) if also and name in others else "-" for name in names]
        lines.append(line)
    return Table(header, lines, ("Error: of the gradients' norm, the worst of three; *: a second run had other bits.",))


def _gradient_error(row: Record) -> str:
    return f"{row['relative_error']:.1e}" + ("" if row["repeats"] else "*")


def sweep(record: Record) -> Table:
    """A line for each workload, in few columns: sizes, our gradients' time, the peers', and how many times as fast ours
    are as the fastest of these."""
    header = ["N", "d", "type", "mask", "ours, ms", *(f"{name}, ms" for name in GRADIENT_PEERS), "× the fastest"]
    lines = []
    for own, found in beside(record):
        work = workload_of(own)
        peers = {name: row["median"] for name, row in found.items() if not row["ours"]}
        line = [str(work.Nq), str(work.d), work.dtype, "causal" if work.causal else "-", f"{own['median']:.4g}"]
        line += [f"{peers[name]:.4g}" if name in peers else "-" for name in GRADIENT_PEERS]
        lines.append([*line, f"{min(peers.values()) / own['median']:.2f}" if peers else "-"])
    return Table(header, lines)


def designs(record: Record) -> Table:
    """A line for each workload of 16-bit elements and each of our designs by tensor cores: products, bytes, time, and
    whether the same bits came again; then the peers'."""
    header = ["workload", "(B, H, N, d)", "design", "products", "GB streamed", "GB added to dQ", "MB of scratch"]
    header += ["ms", "TFLOP/s", "bits again"]
    lines = []
    for row in timed(record):
        work, name = workload_of(row), row["kernel"]
        line = [f"`{row['case']}`", described(work), name if row["ours"] else f"*{name}*"]
        if row["ours"]:
            streamed, added = moved(work, name)
            plan = choice.plan(work, DEVICES[90], name)
            products = "5" if is_one_pass(plan) else "7"
            line += [products, f"{streamed / 1e9:.1f}", f"{added / 1e9:.1f}", f"{plan.scratch / 1e6:.1f}"]
        else:
            line += ["5", "-", "-", "-"]
        again = "the same" if row["repeats"] else "other ones"
        lines.append([*line, f"{row['median']:.4g}", f"{row['tflops']:.0f}", again])
    note = (
        "Streamed: what blocks copy of the matrices that pass by, from the L2 cache or memory. TFLOP/s: of 5 products."
    )
    return Table(header, lines, (note,))


def moved(work: Workload, name: str) -> tuple[float, float]:
    """Bytes that blocks of a design by tensor cores stream past the rows that they own; and bytes added to dQ."""
    row = 2 * HALF * work.d
    of_queries = row + hopper.STATS_BYTES
    plan = choice.plan(work, DEVICES[90], name)
    if is_one_pass(plan):
        rows = work.computed_pairs(1, KEYS) / KEYS
        return rows * of_queries, rows * FLOAT * hopper.columns(work)
    dq, dkdv = (owned_rows(plan, which) for which in ("DQ", "DKDV"))
    return work.computed_pairs(dq, 1) / dq * row + work.computed_pairs(1, dkdv) / dkdv * of_queries, 0.0


def errors(record: Record) -> Table:
    """A line for each type and kind of numbers of a record of measure/gradient_errors.py: the errors of dQ, dK and
    dV by each implementation; and what they were measured on."""
    by = list(dict.fromkeys(row["by"] for row in record["rows"]))
    table = {(row["dtype"], row["numbers"], row["by"]): _three_errors(row) for row in record["rows"]}
    kinds = dict.fromkeys((row["dtype"], row["numbers"]) for row in record["rows"])
    lines = [[*kind, *(table.get((*kind, name), "-") for name in by)] for kind in kinds]
    machine, (batch, heads, N, d) = record["machine"], record["shape"]
    facts = f"{machine['gpu']}, driver {machine['driver']}, torch {machine['torch']}, cuDNN {machine['cudnn']}"
    caption = f"({batch}, {heads}, {N}, {d}) causal; {facts}; {made(record)}."
    return Table(["type", "numbers", *by], lines, (caption,))


def _three_errors(row: Record) -> str:
    return ", ".join(f"{x:.1e}" for x in row["errors"]) + ("" if row["repeats"] else "*")

"""Tables of several GPUs and nodes: files, arrays in shards, predictions."""

from benchmarks.pages.table import Record, Table, shape_of
from hw4cli.problem.workload import Shape
from hw4cli.show.scaling import SEQUENCE, STRONG, WEAK, load_scaling
from hw4cli.stream.nodes.model import predicted
from hw4cli.text.words import counted

SCALING_COLUMNS = (
    "file (B, N, d)",
    "GPUs",
    "kernel",
    "stream s",
    "process s",
    "× one GPU",
    "efficiency",
    "predicted s",
)
JOINED = "others from s"  # when further GPUs had been opened


def scaling(record: Record) -> Table:
    """A line for each file and number of GPUs; where the work grows with them, × is the work in the same time."""
    found, lines = load_scaling(record["path"]), []
    for step in (step for what in (STRONG, WEAK) for steps in found.of(what).values() for step in steps):
        sizes = shape_of(step.row)
        file = sizes if step.name == "x".join(map(str, step.row["shape"])) else f"{step.name} {sizes}"
        joined = ", ".join(f"{seconds:.2f}" for seconds in step.row.get("joined", ())) or "-"
        times = f"{step.seconds:.3f}", f"{step.row['wall']:.3f}"
        ratios = f"{step.speedup:.2f}", f"{step.efficiency:.2f}", f"{step.predicted:.3f}"
        lines.append([file, str(step.gpus), step.row["kernel"], *times, *ratios, joined])
    return Table([*SCALING_COLUMNS, JOINED], lines, (_measured_on(record),))


def in_shards(record: Record) -> Table:
    """A line for each pass over a sequence in shards and number of GPUs."""
    found, lines = load_scaling(record["path"]), []
    for steps in found.of(SEQUENCE).values():
        for step in steps:
            _, heads, rows, d = step.row["shape"]
            causal, backward = step.row["causal"], step.row["direction"] == "backward"
            flops = 4 * heads * rows * rows * d * (2.5 if backward else 1) / (2 if causal else 1)
            name = f"{step.row['direction']}{', causal' if causal else ''}"
            times = f"{step.seconds:.4f}", f"{steps[0].seconds * steps[0].gpus / step.gpus:.4f}"
            figures = f"{flops / step.seconds / 1e12:.0f}", f"{step.speedup:.2f}", f"{step.efficiency:.2f}"
            lines.append([name, str(step.gpus), *times, *figures, f"{step.row['relative_error']:.1e}"])
    header = ["pass", "GPUs", "s", "predicted s", "TFLOP/s", "× one GPU", "efficiency", "relative error"]
    return Table(header, lines)


PREDICTED_FOR = {  # files, and on how many GPUs of a node, and nodes
    (8, 1 << 20, 64): ((1, 1), (2, 1), (4, 1), (8, 1), (8, 4), (8, 16)),
    (128, 1 << 20, 64): ((8, 1), (8, 4), (8, 16)),
}


def predictions(record: Record) -> Table:
    """What the machine's rates predict for two files, on more GPUs and nodes; beside it what was measured."""
    found = load_scaling(record["path"])
    steps = {(tuple(step.row["shape"]), step.gpus): step for step in found.steps if step.what == STRONG}
    measured = {place: f"{step.seconds:.2f}" for place, step in steps.items()}
    rates = found.rates(next((step.kernel for (sizes, _), step in steps.items() if sizes in PREDICTED_FOR), ""))
    lines = []
    for sizes, places in PREDICTED_FOR.items():
        for gpus, nodes in places:
            one = predicted(Shape(*sizes), rates, gpus, nodes)
            place = f"{nodes} nodes of {gpus} GPUs" if nodes > 1 else counted(gpus, "GPU")
            seconds = measured.get((sizes, gpus), "-") if nodes == 1 else "-"
            lines.append([str(sizes), place, f"{one.seconds:.2f}", f"{one.efficiency:.2f}", one.limit, seconds])
    return Table(["file", "on", "predicted s", "efficiency", "limited by", "measured s"], lines)


def over_nodes(record: Record) -> Table:
    """A line for each place of a record of measure/nodes.py, and the machine in a sentence. × and efficiency are
    beside one node with one rank; where the work grows with the nodes, × is the work in the same time."""
    lines = []
    for row in record["rows"]:
        best = min(row["seconds"])
        nodes, sizes = row["nodes"], shape_of(row)
        one = next(min(x["seconds"]) for x in record["rows"] if (x["what"], x["nodes"]) == (row["what"], 1))
        times = one / best * (nodes if row["what"] == "weak" else 1)
        place = f"{counted(nodes, 'node')}, {counted(row['ranks'], 'rank')} each" if nodes else "one process, no Slurm"
        ratios = [f"{times:.2f}", f"{times / nodes:.2f}"] if nodes else ["-", "-"]
        lines.append([row["what"], sizes, place, f"{best:.2f}", *ratios])
    runs = len(record["rows"][0]["seconds"])
    header = ["scaling", "file (B, N, d)", "on", "process s", "× one node", "efficiency"]
    made = f"commit {record['commit'] or 'unknown'}, {record['date']}, {record['path'].name}"
    where = f"{record['machine']['cpu']}, a core for each node, load {record['load']:.1f}, {made}"
    return Table(header, lines, (f"{where}; the least of {runs} runs each.",))


def _measured_on(record: Record) -> str:
    """The machine, its rates, the software and the commit in one sentence."""
    found, by = load_scaling(record["path"]), record["rates"]["by"]
    rates = found.rates("")
    others = record["rates"].get("kernels", {}).items()
    by += "".join(f"; {name}: {flops / 1e12:.4g}" for name, flops in others if not by.endswith(f"kernel {name}"))
    copies = ""
    if rates.to_gpu and rates.from_gpu:
        copies = f", {rates.to_gpu / 1e9:.3g} GB/s to a GPU, {rates.from_gpu / 1e9:.3g} GB/s from it"
    return (
        f"{record['machine']['cores']} cores, {found.facts}. Rates: {rates.flops / 1e12:.4g} TFLOP/s ({by}), "
        f"{rates.cache_read / 1e9:.3g} GB/s read, {rates.cache_write / 1e9:.3g} GB/s written"
        f"{copies}, {rates.opening:.2g} s to open a further GPU."
    )

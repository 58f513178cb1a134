"""Make what shows the records here: `make results`. Tables in README.md and docs/, pictures in docs/pictures/, and
hw4cli/compute/measured.py and hw4cli/tuning/measured.py.

A table stands between `<!-- results: RECORD.json VIEW -->` and `<!-- end -->`. VIEW is `list` (a line for each kernel
and case), `versus` (a line for each case: the first kernel, and the others beside it), `brief` (what `auto` takes on
Hopper, and how many times faster it is), `programs` (a line for each case of an end-to-end record), `arrays` (a line
for each workload of arrays: the first kernel, the peers, and what others published), `sustained` (the same, run after
run without rest), `masks` (a line for each workload with and without a mask), `exactness` (errors, and peers'),
`gradients` (as `arrays`, of gradients, with the peers' errors), `designs` (gradients: a line for each of our designs),
`errors` (gradients: a line for each kind of numbers), `energy` (a line for each kernel that ran without rest),
`counters` (a line for each launch of a profile), `tuned` (a line for each workload of `hw4 tune`), `builds` (two
builds in turns), `scaling` or `shards` (a line for each number of GPUs: files, or one sequence of arrays), `foreseen`
(what a model makes of the machine's rates) or `nodes` (a line for each number of nodes and ranks). Instead of a record
that is not made yet, or has no line for a view, there is a sentence.
"""

import json
import re
import sys
from pathlib import Path
from typing import Any

from benchmarks import pictures
from benchmarks.arraytables import arrays, exactness, masks, sustained
from benchmarks.facts import run_spread, source, tuned_source
from benchmarks.gradienttables import designs, errors, gradients
from benchmarks.measuretables import builds, counters, energy, tuned
from benchmarks.rungs import ladder
from hw4cli.compute.dispatch import ranking
from hw4cli.compute.measured import RUN_SPREAD
from hw4cli.compute.plan import DEVICES
from hw4cli.lab.tables import COLUMNS, cells, read_record
from hw4cli.nodes.model import predicted
from hw4cli.problem.shape import Shape
from hw4cli.show.scaling import SEQUENCE, STRONG, WEAK, Scaling, load_scaling
from hw4cli.text.tables import markdown
from hw4cli.text.words import counted

HERE = Path(__file__).resolve().parent
NOT_MEASURED = "*Not measured yet.*\n"
MARKED = re.compile(r"(<!-- results: (\S+) (\w+) -->\n).*?(<!-- end -->)", re.DOTALL)


def caption(record: dict[str, Any]) -> str:
    """The machine, the software, the commit and the method in one sentence."""
    machine, method = record["machine"], record["method"]
    sgemm = f", cuBLAS SGEMM {record['sgemm_tflops']:.1f} TFLOP/s" if record["sgemm_tflops"] else ""
    copy = f", copy {record['copy_gb_per_s']:,.0f} GB/s" if record.get("copy_gb_per_s") else ""
    samples = [row["samples"] for row in record["rows"] if row["samples"]]
    rest = f", {method['pause']}" if "pause" in method else ""
    known = all(row.get("host_ms") is not None for row in record["rows"] if row["samples"])
    late = "" if known else "; the host's times are not recorded: less than 1 ms may include launches"
    return (
        f"{machine['gpu']}, driver {machine['driver']}, CUDA {machine['cuda']}, cupy {machine['cupy']}{sgemm}{copy}; "
        f"commit {record['commit']}, {record['date']}; medians of {min(samples)} to {max(samples)} samples, "
        f"{method['timer']}, {method['cache']}{rest}{late}; FLOPs = {method['flops']}."
    )


def as_list(rows: list[dict[str, Any]]) -> str:
    """A line for each row that was timed, and a sentence for each that was not, or not as it should be."""
    shown = ["kernel", "case", "shape", "median", "spread", "tflops", "sgemm_percent", "max_error"]
    shown += ["registers", "shared_bytes", "occupancy"]
    places = [list(COLUMNS).index(key) for key in shown]
    timed = [[cells(row)[place] for place in places] for row in rows if row["status"] == "ok"]
    reasons = [f"\n- {row['kernel']} on {row['case']}: {row['reason']}\n" for row in rows if row["reason"]]
    return markdown([COLUMNS[key] for key in shown], timed) + "".join(reasons)


def versus(rows: list[dict[str, Any]]) -> str:
    """A line for each case: the first kernel's figures, then the others' rates and how many times faster it is."""
    kernels = list(dict.fromkeys(row["kernel"] for row in rows))
    table = {(row["case"], row["kernel"]): row for row in rows}
    first, others = kernels[0], kernels[1:]
    header = ["case", "(B, N, d)", f"{first} ms", "TFLOP/s", "GB/s", "max error"]
    header += [text for other in others for text in (f"{other} TFLOP/s", "×")]
    lines = []
    for case in dict.fromkeys(row["case"] for row in rows):
        own = table[case, first]
        _, _, shape, median, _, _, tflops, _, memory, error, *_ = cells(own)
        line = [case, shape, median, tflops, memory, error]
        for other in others:
            row = table[case, other]
            timed = row["status"] == "ok" and own["status"] == "ok"
            line += [f"{row['tflops']:.2f}", f"{row['median'] / own['median']:.2f}"] if timed else ["-", "-"]
        lines.append(line)
    return markdown(header, lines)


BRIEF_COLUMNS = ["shape", "median", "tflops", "max_error"]
BRIEF = {"flash": "flash", "torch efficient": "PyTorch"}  # the kernels that it is compared with, and their names


def brief(rows: list[dict[str, Any]]) -> str:
    """A line for each case of the suite: what `auto` takes on Hopper, and how many times faster it is than others."""
    table = {(row["case"], row["kernel"]): row for row in rows}
    header = ["case", "(B, N, d)", "kernel", "ms", "TFLOP/s", "max error", *(f"× {name}" for name in BRIEF.values())]
    lines = []
    for case in dict.fromkeys(row["case"] for row in rows if row["case"].startswith("t")):
        N, d = table[case, rows[0]["kernel"]]["shape"][1:]
        own = table[case, ranking(DEVICES[90], "", d, N)[0][0]]
        shape, median, tflops, error = (cells(own)[list(COLUMNS).index(key)] for key in BRIEF_COLUMNS)
        ratios = (f"{table[case, other]['median'] / own['median']:.1f}" for other in BRIEF)
        lines.append([case, shape, own["kernel"], median, tflops, error, *ratios])
    return markdown(header, lines)


def programs(rows: list[dict[str, Any]]) -> str:
    """A line for each case of an end-to-end record: every program's median, and the others' ratio to the first."""
    names = list(dict.fromkeys(row["program"] for row in rows))
    table = {(row["case"], row["program"]): row for row in rows}
    header = ["case", "(B, N, d)", f"{names[0]} s"] + [text for name in names[1:] for text in (f"{name} s", "ratio")]
    lines = []
    for case in dict.fromkeys(row["case"] for row in rows):
        first, *others = (table[case, name] for name in names)
        shape = "({}, {}, {})".format(*first["shape"]) if first["shape"] else ""
        line = [case, shape, f"{first['median']:.3f}"]
        lines.append(line + [text for row in others for text in (f"{row['median']:.3f}", f"{row['ratio']:.2f}")])
    return markdown(header, lines)


def programs_caption(record: dict[str, Any]) -> str:
    """The machine, the software, the commit and the method in one sentence."""
    machine, method = record["machine"], record["method"]
    facts = ", ".join(f"{name} {value}" for name, value in machine.items() if isinstance(value, (str, int)))
    methods = "; ".join(f"{name}: {value}" for name, value in method.items())
    return f"{facts}; commit {record['commit']}, {record['date']}; {methods}."


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


def scaling(record: Scaling) -> str:
    """A line for each file and number of GPUs; where the work grows with them, × is the work in the same time."""
    lines = []
    for step in (step for what in (STRONG, WEAK) for steps in record.of(what).values() for step in steps):
        sizes = "({}, {}, {})".format(*step.row["shape"])
        file = sizes if step.name == "x".join(map(str, step.row["shape"])) else f"{step.name} {sizes}"
        joined = ", ".join(f"{seconds:.2f}" for seconds in step.row.get("joined", ())) or "-"
        times = f"{step.seconds:.3f}", f"{step.row['wall']:.3f}"
        ratios = f"{step.speedup:.2f}", f"{step.efficiency:.2f}", f"{step.predicted:.3f}"
        lines.append([file, str(step.gpus), step.row["kernel"], *times, *ratios, joined])
    return markdown([*SCALING_COLUMNS, JOINED], lines)


def in_shards(record: Scaling) -> str:
    """A line for each pass over a sequence in shards and number of GPUs."""
    lines = []
    for steps in record.of(SEQUENCE).values():
        for step in steps:
            _, heads, rows, d = step.row["shape"]
            causal, backward = step.row["causal"], step.row["direction"] == "backward"
            flops = 4 * heads * rows * rows * d * (2.5 if backward else 1) / (2 if causal else 1)
            name = f"{step.row['direction']}{', causal' if causal else ''}"
            figures = f"{step.seconds:.4f}", f"{flops / step.seconds / 1e12:.0f}", f"{step.speedup:.2f}"
            lines.append(
                [name, str(step.gpus), *figures, f"{step.efficiency:.2f}", f"{step.row['relative_error']:.1e}"]
            )
    header = ["pass", "GPUs", "s", "TFLOP/s", "× one GPU", "efficiency", "relative error"]
    return markdown(header, lines) if lines else "Not measured.\n"


FORESEEN = {  # files, and on how many GPUs of a node, and nodes
    (8, 1 << 20, 64): ((1, 1), (2, 1), (4, 1), (8, 1), (8, 4), (8, 16)),
    (128, 1 << 20, 64): ((8, 1), (8, 4), (8, 16)),
}


def foreseen(record: Scaling) -> str:
    """What the machine's rates predict for two files, on more GPUs and nodes; beside it what was measured."""
    steps = {(tuple(step.row["shape"]), step.gpus): step for step in record.steps if step.what == STRONG}
    measured = {place: f"{step.seconds:.2f}" for place, step in steps.items()}
    rates = record.rates(next((step.kernel for (sizes, _), step in steps.items() if sizes in FORESEEN), ""))
    lines = []
    for sizes, places in FORESEEN.items():
        for gpus, nodes in places:
            one = predicted(Shape(*sizes), rates, gpus, nodes)
            place = f"{nodes} nodes of {gpus} GPUs" if nodes > 1 else counted(gpus, "GPU")
            found = measured.get((sizes, gpus), "-") if nodes == 1 else "-"
            lines.append([str(sizes), place, f"{one.seconds:.2f}", f"{one.efficiency:.2f}", one.limit, found])
    return markdown(["file", "on", "predicted s", "efficiency", "limited by", "measured s"], lines)


def over_nodes(path: Path) -> str:
    """A line for each place of a record of benchmarks/nodes.py, and the machine in a sentence. × and efficiency are
    beside one node with one rank; where the work grows with the nodes, × is the work in the same time."""
    record = json.loads(path.read_text(encoding="utf-8"))
    lines = []
    for row in record["rows"]:
        best = min(row["seconds"])
        nodes, sizes = row["nodes"], "({}, {}, {})".format(*row["shape"])
        one = next(min(x["seconds"]) for x in record["rows"] if (x["what"], x["nodes"]) == (row["what"], 1))
        times = one / best * (nodes if row["what"] == "weak" else 1)
        place = f"{counted(nodes, 'node')}, {counted(row['ranks'], 'rank')} each" if nodes else "one process, no Slurm"
        ratios = [f"{times:.2f}", f"{times / nodes:.2f}"] if nodes else ["-", "-"]
        lines.append([row["what"], sizes, place, f"{best:.2f}", *ratios])
    runs = len(record["rows"][0]["seconds"])
    header = ["scaling", "file (B, N, d)", "on", "process s", "× one node", "efficiency"]
    made = f"commit {record['commit'] or 'unknown'}, {record['date']}, {path.name}"
    where = f"{record['machine']['cpu']}, a core for each node, load {record['load']:.1f}, {made}"
    return f"{markdown(header, lines)}\n{where}; the least of {runs} runs each.\n"


def scaling_caption(path: Path) -> str:
    """The machine, its rates, the software and the commit in one sentence."""
    record, raw = load_scaling(path), json.loads(path.read_text(encoding="utf-8"))
    rates, by = record.rates(""), raw["rates"]["by"]
    others = raw["rates"].get("kernels", {}).items()
    by += "".join(f"; {name}: {flops / 1e12:.4g}" for name, flops in others if not by.endswith(f"kernel {name}"))
    copies = f", {rates.to_gpu / 1e9:.3g} GB/s to a GPU, {rates.from_gpu / 1e9:.3g} GB/s from it"
    return (
        f"{raw['machine']['cores']} cores, {record.facts}. Rates: {rates.flops / 1e12:.4g} TFLOP/s ({by}), "
        f"{rates.cache_read / 1e9:.3g} GB/s read, {rates.cache_write / 1e9:.3g} GB/s written"
        f"{copies if rates.to_gpu and rates.from_gpu else ''}, {rates.opening:.2g} s to open a further GPU."
    )


VIEWS = {
    "gradients": gradients,
    "designs": designs,
    "list": as_list,
    "versus": versus,
    "brief": brief,
    "energy": energy,
    "programs": programs,
    "sustained": sustained,
    "masks": masks,
    "exactness": exactness,
}


def _tuned(records: list[dict[str, Any]]) -> str:
    return tuned(records, RUN_SPREAD)


def filled(text: str) -> str:
    """A page's text with its marked tables made anew."""

    def table(match: re.Match[str]) -> str:
        if not (HERE / match[2]).exists():
            return f"{match[1]}{NOT_MEASURED}{match[4]}"
        if match[3] in (of_text := {"counters": counters, "tuned": _tuned, "builds": builds}):
            found = json.loads((HERE / match[2]).read_text(encoding="utf-8"))
            shown = of_text[match[3]]
            many = found if isinstance(found, list) else [found]
            return f"{match[1]}{shown(found if shown is builds else many)}{match[4]}"
        if match[3] in (by_gpus := {"scaling": scaling, "shards": in_shards, "foreseen": foreseen}):
            path = HERE / match[2]
            note = f"\n{scaling_caption(path)}\n" if match[3] == "scaling" else ""
            return f"{match[1]}{by_gpus[match[3]](load_scaling(path))}{note}{match[4]}"
        if match[3] == "nodes":
            return f"{match[1]}{over_nodes(HERE / match[2])}{match[4]}"
        if match[3] == "errors":
            return f"{match[1]}{errors(json.loads((HERE / match[2]).read_text(encoding='utf-8')))}{match[4]}"
        record = read_record(HERE / match[2])
        text = programs_caption(record) if record.get("kind") == "end-to-end" else caption(record)
        gpu, rows = record["machine"].get("gpu") or "", record["rows"]
        copy = record.get("copy_gb_per_s")
        shown = arrays(rows, gpu, copy) if match[3] == "arrays" else VIEWS[match[3]](rows)
        if shown.count("\n") <= 2:  # a header without a line
            return f"{match[1]}{NOT_MEASURED}{match[4]}"
        return f"{match[1]}{shown}\n{text}\n{match[4]}"

    return MARKED.sub(table, text)


def pages() -> list[Path]:
    """The pages that may hold tables."""
    return [HERE.parent / "README.md", *sorted((HERE.parent / "docs").glob("*.md"))]


def tuned_records() -> list[dict[str, Any]]:
    """The records of `hw4 tune`."""
    return [json.loads(path.read_text(encoding="utf-8")) for path in sorted((HERE / "tuned").glob("*.json"))]


def made() -> dict[Path, str]:
    """What each file that is made from the records must hold."""
    records = [read_record(path) for path in sorted(HERE.glob("*.json"))]
    texts = {page: ladder(page, filled(page.read_text(encoding="utf-8")), HERE) for page in pages()}
    package = HERE.parent / "hw4cli"
    return {
        **texts,
        package / "compute/measured.py": source(records),
        package / "tuning/measured.py": tuned_source(tuned_records(), run_spread(records)),
    }


if __name__ == "__main__":
    for path, text in made().items():
        if path.read_text(encoding="utf-8") != text:
            path.write_text(text, encoding="utf-8")
            print(f"{path.name} is up to date again", file=sys.stderr)
    for name in pictures.make():
        print(f"{name}.svg is up to date again", file=sys.stderr)

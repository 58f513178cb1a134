"""Make what shows the records here: `make results`. Tables in README.md and docs/, pictures in docs/pictures/, and
hw4cli/plans/measured.py and hw4cli/device/tuning/measured.py.

A table stands between `<!-- results: RECORD.json VIEW -->` and `<!-- end -->`. VIEW is `list` (a line for each kernel
and case), `versus` (a line for each case: the first kernel, and the others beside it), `brief` (of some cases: what
`auto` takes on Hopper, and beside it what has float32's error), `programs` (a line for each case of an end-to-end
record), `arrays` (a line for each workload of arrays: the first kernel, the peers, and what others published),
`sustained` (the same, run after run without rest), `decoding` (a line for each workload of few rows, beside a copy),
`limits` (a line for each profile: what is busiest), `schedules` (a line for each workload of half), `masks` (a line for
each workload with and without a mask), `exactness` (errors, and peers'), `gradients` (as `arrays`, of gradients, with
the peers' errors), `sweep` (the same in few columns, without errors), `designs` (gradients: a line for each of our
designs), `errors` (gradients: a line for each kind of numbers), `energy` (a line for each kernel that ran without
rest), `counters` (a line for each launch of a profile), `assignment` (the same, of the assignment's metrics alone),
`tuned` (a line for each workload of `hw4 tune`), `quickly` (what quick tuning takes, beside the fastest of every tile),
`candidates` (tiles of the fastest kernel), `rungs` (a line for each kernel: its nearest limit by the model), `lengths`
(a line for each kernel, a column for each N), `builds` (two builds in turns), `scaling` or `shards` (a line for each
number of GPUs: files, or one sequence of arrays), `predictions` (what a model makes of the machine's rates) or `nodes`
(a line for each number of nodes and ranks). Instead of a record that is not made yet, or has no line for a view, there
is a sentence.
"""

import json
import re
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from benchmarks import pictures
from benchmarks.arraytables import arrays, decoding, exactness, limits, masks, schedules, sustained
from benchmarks.facts import run_spread, source, tuned_source
from benchmarks.gradienttables import designs, errors, gradients, sweep
from benchmarks.measuretables import (
    assignment,
    builds,
    candidates,
    counters,
    energy,
    over_lengths,
    quickly,
    rung_limits,
    tuned,
)
from benchmarks.rungs import ladder
from benchmarks.scalingtables import in_shards, over_nodes, predictions, scaling, scaling_caption
from hw4cli.lab.tables import COLUMNS, cells, read_record
from hw4cli.plans.dispatch import ranking
from hw4cli.plans.measured import RUN_SPREAD
from hw4cli.plans.plan import DEVICES
from hw4cli.show.scaling import Scaling, load_scaling
from hw4cli.text.tables import markdown

HERE = Path(__file__).resolve().parent
View = Callable[[Path], str]  # from a record's file to what a page shows of it
MARKED = re.compile(r"(<!-- results: (\S+) (\w+) -->\n).*?(<!-- end -->)", re.DOTALL)


def caption(record: dict[str, Any]) -> str:
    """The machine, the software, the commit and the method in one sentence."""
    machine, method = record["machine"], record["method"]
    sgemm = f", cuBLAS SGEMM {record['sgemm_tflops']:.1f} TFLOP/s" if record["sgemm_tflops"] else ""
    copy = f", copy {record['copy_gb_per_s']:,.0f} GB/s" if record.get("copy_gb_per_s") else ""
    samples = sorted({row["samples"] for row in record["rows"] if row["samples"]})
    number = f"{samples[0]} to {samples[-1]}" if len(samples) > 1 else f"{samples[0]}"
    rest = f", {method['pause']}" if "pause" in method else ""
    known = all(row.get("host_ms") is not None for row in record["rows"] if row["samples"])
    late = "" if known else "; the host's times are not recorded: less than 1 ms may include launches"
    return (
        f"{machine['gpu']}, driver {machine['driver']}, CUDA {machine['cuda']}, cupy {machine['cupy']}{sgemm}{copy}; "
        f"commit {record['commit']}, {record['date']}; medians of {number} samples, "
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


BRIEF_COLUMNS = ["shape", "kernel", "median", "tflops", "max_error"]
BRIEF_CASES = ("t12", "t21", "t22", "t28", "t30")  # short and long rows of both head sizes
PYTORCH = "torch efficient"


def brief(rows: list[dict[str, Any]]) -> str:
    """Three lines for each of some cases: what `auto` takes on Hopper, then, at the error of float32, `exact` and
    PyTorch; and how many times faster than PyTorch each is."""
    table = {(row["case"], row["kernel"]): row for row in rows}
    header = ["case", "(B, N, d)", "kernel", "ms", "TFLOP/s", "max error", "× PyTorch"]
    lines = []
    for case in BRIEF_CASES:
        N, d = table[case, rows[0]["kernel"]]["shape"][1:]
        for kernel in (ranking(DEVICES[90], "", d, N)[0][0], "exact", PYTORCH):
            own = table[case, kernel]
            shape, name, *figures = (cells(own)[list(COLUMNS).index(key)] for key in BRIEF_COLUMNS)
            ratio = f"{table[case, PYTORCH]['median'] / own['median']:.1f}"
            lines.append([case, shape, "PyTorch, float32" if kernel == PYTORCH else name, *figures, ratio])
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


def of_record(view: Callable[[dict[str, Any]], str]) -> View:
    """The view of a record of `hw4 bench`, and how it was made; a sentence where the view has a header alone."""

    def text(path: Path) -> str:
        record = read_record(path)
        shown = view(record)
        how = programs_caption(record) if record.get("kind") == "end-to-end" else caption(record)
        return f"{shown}\n{how}\n" if shown.count("\n") > 2 else ""

    return text


def of_rows(view: Callable[[list[dict[str, Any]]], str]) -> View:
    """The same of a record's rows alone."""
    return of_record(lambda record: view(record["rows"]))


def of_arrays(record: dict[str, Any]) -> str:
    """The view `arrays`, which says whose machine it is and how fast that copies."""
    return arrays(record["rows"], record["machine"].get("gpu") or "", record.get("copy_gb_per_s"))


def of_json(view: Callable[[Any], str]) -> View:
    """The view of a whole file."""
    return lambda path: view(json.loads(path.read_text(encoding="utf-8")))


def of_list(view: Callable[[list[dict[str, Any]]], str]) -> View:
    """The view of a file with one document or a list of them."""
    return of_json(lambda found: view(found if isinstance(found, list) else [found]))


def of_scaling(view: Callable[[Scaling], str]) -> View:
    """The view of a record of benchmarks/scaling.py."""
    return lambda path: view(load_scaling(path))


def beside_quick(path: Path) -> str:
    """The view `quickly` of GPU-full.json, beside GPU.json."""
    full, quick = (json.loads(one.read_text(encoding="utf-8")) for one in (path, quick_record(path)))
    return quickly(full, quick)


def quick_record(path: Path) -> Path:
    """The record of quick tuning of the same GPU."""
    return path.with_name(path.name.replace("-full", ""))


VIEWS: dict[str, View] = {
    "list": of_rows(as_list),
    "versus": of_rows(versus),
    "brief": of_rows(brief),
    "programs": of_rows(programs),
    "arrays": of_record(of_arrays),
    "sustained": of_rows(sustained),
    "decoding": of_record(decoding),
    "limits": of_list(limits),
    "schedules": of_list(schedules),
    "masks": of_rows(masks),
    "exactness": of_rows(exactness),
    "gradients": of_rows(gradients),
    "sweep": of_rows(sweep),
    "designs": of_rows(designs),
    "errors": of_json(errors),
    "energy": of_rows(energy),
    "counters": of_list(counters),
    "assignment": of_list(assignment),
    "tuned": of_list(lambda records: tuned(records, RUN_SPREAD)),
    "quickly": beside_quick,
    "candidates": of_list(candidates),
    "rungs": of_record(rung_limits),
    "lengths": of_rows(over_lengths),
    "builds": of_json(builds),
    "scaling": lambda path: f"{of_scaling(scaling)(path)}\n{scaling_caption(path)}\n",
    "shards": of_scaling(in_shards),
    "predictions": of_scaling(predictions),
    "nodes": over_nodes,
}


def filled(text: str) -> str:
    """A page's text with its marked tables made anew."""

    def table(match: re.Match[str]) -> str:
        begin, record, view, end = match.groups()
        path = HERE / record
        shown = VIEWS[view](path) if path.exists() else ""
        return "".join((begin, shown or f"*Not measured yet: {record}.*\n", end))

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

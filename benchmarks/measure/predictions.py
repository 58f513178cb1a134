"""Times predicted from counts, beside those of records: python -m benchmarks.measure.predictions RECORD... -o FILE

Each kernel of the ladder in the records of benchmarks/ that are named is executed on the CPU, on parts of its shapes,
and counted; hw4cli/lab/measure/timing.py predicts a time from that. A kernel that cannot be counted so has a sentence
in place of rows. No GPU is needed; it takes some minutes. docs/emulator.md shows the file.
"""

import argparse
import json
import sys
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from benchmarks import HERE
from benchmarks.measure.scripts import end_with, new_file, write_record
from hw4cli.errors import Hw4Error
from hw4cli.lab.measure.counted import counted_works
from hw4cli.lab.measure.gpus import model_named
from hw4cli.lab.measure.timing import total
from hw4cli.lab.record import heading
from hw4cli.plans.ladder import VARIANTS
from hw4cli.problem.workload import Workload


def rows_of(record: dict[str, Any], reasons: dict[str, str]) -> list[dict[str, Any]]:
    """What was measured and what is predicted, for each row of a record whose kernel is one of the ladder with its own
    tile; `reasons`: why others of the ladder have none, by kernel."""
    gpu = model_named(record["machine"]["gpu"])
    found = []
    for row in record["rows"]:
        kernel = row["kernel"]
        if kernel not in VARIANTS or kernel in reasons or not row.get("median"):
            continue
        B, N, d = row["shape"]
        shape = Workload.one_head(B, N, d, bool(row.get("causal")))
        plan = VARIANTS[kernel].plan(shape, gpu.props)
        try:
            works = counted_works(VARIANTS[kernel], shape, gpu.props)
        except Hw4Error as error:
            reasons[kernel] = str(error)
            continue
        main = plan.launches[plan.main].symbol  # whose registers a record has
        works = [replace(work, registers=row["registers"] or 1) if work.symbol == main else work for work in works]
        if time := total(works, gpu):
            numbers = {
                "measured_ms": row["median"],
                "predicted_ms": float(f"{1e3 * time.seconds:.4g}"),
                "limit": time.limit,
            }
            found.append({"gpu": gpu.name, "kernel": kernel, "shape": [B, N, d], "causal": shape.causal, **numbers})
    return found


def main(arguments: Sequence[str] | None = None) -> None:
    """Write the file."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("records", nargs="+", metavar="RECORD", help="such as h200-ladder.json")
    parser.add_argument("-o", "--output", type=new_file, required=True)
    options = parser.parse_args(arguments)
    reasons: dict[str, str] = {}
    rows: list[dict[str, Any]] = []
    for name in options.records:
        rows += rows_of(json.loads((HERE / name).read_text(encoding="utf-8")), reasons)
        print(f"{name}: {len(rows)} rows so far", file=sys.stderr, flush=True)
    about = {**heading("predictions"), "records": options.records, "reasons": reasons}
    write_record(options.output, {**about, "rows": rows})


if __name__ == "__main__":
    end_with(main)

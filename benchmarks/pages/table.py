"""From a record to a table: every view of results.py takes the one and gives the other."""

import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hw4cli.text.tables import markdown

Record = dict[str, Any]  # as its file has it, and its "path"


@dataclass(frozen=True)
class Table:
    """A header, lines of as many cells, and paragraphs below them."""

    header: list[str]
    lines: list[list[str]]
    below: tuple[str, ...] = ()


View = Callable[[Record], Table]


def read(path: Path) -> Record:
    """A record; a file that holds a list of documents has these in "documents"."""
    found = json.loads(path.read_text(encoding="utf-8"))
    whole = found if isinstance(found, dict) else {"kind": found[0].get("kind"), "documents": found}
    return {**whole, "path": path}


def documents(record: Record) -> list[Record]:
    """The documents of a record, of which it may be the only one."""
    found: list[Record] = record.get("documents", [record])
    return found


def timed(record: Record) -> list[Record]:
    """The rows of a record whose times count."""
    return [row for row in record["rows"] if row["status"] == "ok"]


def beside(record: Record) -> list[tuple[Record, dict[str, Record]]]:
    """Of each workload of arrays that ours computed: the row of our first kernel, and all rows by their kernels."""
    rows = timed(record)
    found = []
    for case in dict.fromkeys(row["case"] for row in rows):
        by_kernel = {row["kernel"]: row for row in rows if row["case"] == case}
        if own := next((row for row in by_kernel.values() if row["ours"]), None):
            found.append((own, by_kernel))
    return found


def text(view: View, record: Record) -> str:
    """What a page shows of a record: the table, what stands below it, and how it was measured. "" without a line."""
    table = view(record)
    if not table.lines:
        return ""
    how = HOW[kind](record) if (kind := record.get("kind")) in HOW else ""
    return markdown(table.header, table.lines) + "".join(f"\n{words}\n" for words in (*table.below, how) if words)


def shape_of(row: Record) -> str:
    """The sizes of a row's files: (B, N, d)."""
    return "({}, {}, {})".format(*row["shape"])


def made(record: Record) -> str:
    """Of which commit, and when."""
    return f"commit {record['commit']}, {record['date']}"


def kernels_measured(record: Record) -> str:
    """The machine, the software, the commit and the method of a record of kernels, in one sentence."""
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
        f"{made(record)}; medians of {number} samples, "
        f"{method['timer']}, {method['cache']}{rest}{late}; FLOPs = {method['flops']}."
    )


def programs_measured(record: Record) -> str:
    """The same of a record of programs."""
    facts = ", ".join(f"{name} {value}" for name, value in record["machine"].items() if isinstance(value, (str, int)))
    methods = "; ".join(f"{name}: {value}" for name, value in record["method"].items())
    return f"{facts}; {made(record)}; {methods}."


# By the kind of record. Views of the others say it themselves.
HOW: dict[str | None, Callable[[Record], str]] = {
    None: kernels_measured,
    "arrays": kernels_measured,
    "end-to-end": programs_measured,
}

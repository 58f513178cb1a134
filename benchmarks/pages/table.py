"""From a record to a table: every view of results.py takes the one and gives the other."""

import json
from collections.abc import Callable, Iterable, Sequence
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
    otherwise: str = ""  # what is said where there is no line, of a record that is there


View = Callable[..., Table]  # of a record, or of several that belong together


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


def times(other: Record, own: Record, key: str = "median") -> str:
    """Another's time, and how many times as fast ours is."""
    return f"{other[key]:.4g} ({other[key] / own[key]:.2f})"


def text(view: View, *records: Record) -> str:
    """What a page shows of records: the table, what stands below it, and how it was measured. "" without a line, unless
    the view has a sentence for that."""
    table = view(*records)
    if not table.lines:
        return table.otherwise and f"{table.otherwise}\n"
    how = HOW[kind](*records) if (kind := records[0].get("kind")) in HOW else ""
    return markdown(table.header, table.lines) + "".join(f"\n{words}\n" for words in (*table.below, how) if words)


def shape_of(row: Record) -> str:
    """The sizes of a row's files: (B, N, d)."""
    return "({}, {}, {})".format(*row["shape"])


def made(*records: Record) -> str:
    """Of which commits, and when."""
    commits, dates = (_distinct(record[key] for record in records) for key in ("commit", "date"))
    return f"commit{'s' * (len(commits) > 1)} {', '.join(commits)}, {', '.join(dates)}"


def _distinct(values: Iterable[str]) -> list[str]:
    return list(dict.fromkeys(values))


def _range(values: Iterable[float | None], form: str) -> str:
    """The values that are known, as they are shown: one, or from the least to the largest; "" without any."""
    known = [value for value in values if value]
    shown = _distinct(format(value, form) for value in (min(known), max(known))) if known else []
    return " to ".join(shown)


REST = " of rest before each sample"
# Others' packages, as a record's machine names them, and as pages do.
PACKAGES = {
    "torch": "torch",
    "cudnn": "cuDNN",
    "triton": "Triton",
    "tilelang": "TileLang",
    "flash_attn": "flash-attn",
    "flash_attn_3": "flash-attn-3",
    "flash_attn_4": "flash-attn-4",
    "cutlass_dsl": "CUTLASS DSL",
    "cudnn_frontend": "cudnn-frontend",
    "frontends_cudnn": "its cuDNN",
    "fbtriton": "fbtriton",
}


def kernels_measured(*records: Record) -> str:
    """The machine, the software, the commit and the method of records of kernels, in one sentence."""
    machines = [record["machine"] for record in records]
    gpu, driver, cuda, cupy = (
        " and ".join(_distinct(machine[key] for machine in machines)) for key in ("gpu", "driver", "cuda", "cupy")
    )
    sgemm = _range((record["sgemm_tflops"] for record in records), ".1f")
    copy = _range((record.get("copy_gb_per_s") for record in records), ",.0f")
    rows = [row for record in records for row in record["rows"] if row["samples"]]
    methods = [record["method"] for record in records]
    pauses = _distinct(method["pause"] for method in methods if "pause" in method)
    late = "" if all(row.get("host_ms") is not None for row in rows) else "; the host's times are not recorded: "
    return "".join(
        (
            f"{gpu}, driver {driver}, CUDA {cuda}, cupy {cupy}",
            _peers_versions(records),
            f", cuBLAS SGEMM {sgemm} TFLOP/s" if sgemm else "",
            f", copy {copy} GB/s" if copy else "",
            f"; {made(*records)}; medians of {_range((row['samples'] for row in rows), 'd')} samples, ",
            f"{methods[0]['timer']}, {methods[0]['cache']}",
            f", {' or '.join(pause.removesuffix(REST) for pause in pauses)}{REST}" if pauses else "",
            f"{late}less than 1 ms may include launches" if late else "",
            f"; FLOPs = {', or '.join(_distinct(method['flops'].replace('*', '·') for method in methods))}.",
        )
    )


def _peers_versions(records: Sequence[Record]) -> str:
    """Of others that were timed: the versions, or that these are not recorded; "" where there are none."""
    timed_others = [
        record["machine"] for record in records if any(_is_of_others(row) and row["samples"] for row in record["rows"])
    ]
    if not timed_others:
        return ""
    known = [
        f"{words} {' and '.join(versions)}"
        for name, words in PACKAGES.items()
        if (versions := _distinct(machine[name] for machine in timed_others if machine.get(name)))
    ]
    unknown = [machine for machine in timed_others if not machine.get("torch")]
    return "".join(f", {words}" for words in known) + ", torch's version not recorded" * bool(unknown)


def _is_of_others(row: Record) -> bool:
    """Whether a row is a peer's; rows of files do not say whose they are, but name torch."""
    return row.get("ours") is False or row.get("kernel", "").startswith("torch ")


def programs_measured(record: Record) -> str:
    """The same of a record of programs."""
    facts = ", ".join(f"{name} {value}" for name, value in record["machine"].items() if isinstance(value, (str, int)))
    methods = "; ".join(f"{name}: {value}" for name, value in record["method"].items())
    return f"{facts}; {made(record)}; {methods}."


# By the kind of record. Views of the others say it themselves.
HOW: dict[str | None, Callable[..., str]] = {
    None: kernels_measured,
    "arrays": kernels_measured,
    "end-to-end": programs_measured,
}

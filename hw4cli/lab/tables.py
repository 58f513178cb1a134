"""The records of `hw4 bench` as rows of tables: the README's results come from here, too."""

from pathlib import Path
from typing import Any

from hw4cli.errors import InputError
from hw4cli.lab.arrays.named import described
from hw4cli.problem.workload import Workload
from hw4cli.system.reading import read_json

SCHEMA = 1  # of the records
TIMELINE = "timeline"  # the kind of a record of blocks
BUILDS = "builds"  # of one of two builds in turns
ARRAYS = "arrays"  # of attention of arrays
PROGRAMS = "end-to-end"  # of whole programs
CALLS = "calls"  # of the time of calls, of the host and in all
FORWARD, BACKWARD, BOTH = "forward", "backward", "both"  # the passes of attention that are measured
COLUMNS = {
    "kernel": "kernel",
    "case": "case",
    "shape": "(B, N, d)",
    "median": "median ms",
    "spread": "±",
    "samples": "n",
    "tflops": "TFLOP/s",
    "sgemm_percent": "% SGEMM",
    "gb_per_s": "GB/s",
    "max_error": "max error",
    "registers": "regs",
    "shared_bytes": "shared KB",
    "occupancy": "occupancy",
}


def cells(row: dict[str, Any]) -> list[str]:
    """A benchmark row's values as they are shown, in the order of COLUMNS."""

    def number(key: str, form: str, factor: float = 1) -> str:
        value = row[key]
        return "-" if value is None else format(value * factor, form)

    spread = "-" if row["median"] is None else f"{(row['high'] - row['low']) / 2 / row['median']:.1%}"
    return [
        row["kernel"],
        row["case"],
        "({}, {}, {})".format(*row["shape"]),
        number("median", ".4g"),
        spread,
        str(row["samples"]),
        number("tflops", ".2f"),
        number("sgemm_percent", ".0f"),
        number("gb_per_s", ".0f"),
        number("max_error", ".1e"),
        number("registers", "d"),
        number("shared_bytes", ".1f", 1 / 1024),
        number("occupancy", ".0%"),
    ]


CAUSAL_NOTE = (
    "TFLOP/s of causal attention: 2·B·N²·d in the time, by convention half of 4·B·N²·d; "
    "pairs: how many of the N² pairs of a query and a key are in tiles that the kernel computes"
)


def pairs(row: dict[str, Any]) -> str:
    """The cell of the column "pairs", which tables of causal attention have beside TFLOP/s."""
    percent = row.get("pairs_percent")
    return "-" if percent is None else f"{percent:.1f}%"


WITHOUT_REST = {
    "sustained ms": ("sustained_ms", ".4g"),
    "watts": ("watts", ".0f"),
    "J": ("joules", ".4g"),
    "GFLOP/J": ("gflop_per_joule", ".1f"),
}


def without_rest(row: dict[str, Any]) -> list[str]:
    """The cells of the columns WITHOUT_REST, which tables have where kernels also ran back to back."""
    return ["-" if row.get(key) is None else format(row[key], form) for key, form in WITHOUT_REST.values()]


PROGRAM_COLUMNS = ["case", "(B, N, d)", "program", "median s", "min s", "max s", "ratio", "max error"]


def program_cells(row: dict[str, Any]) -> list[str]:
    """An end-to-end row's values as they are shown, in the order of PROGRAM_COLUMNS."""

    def number(key: str, form: str) -> str:
        return "-" if row[key] is None else format(row[key], form)

    return [
        row["case"],
        "({}, {}, {})".format(*row["shape"]) if row["shape"] else "-",
        row["program"],
        number("median", ".3f"),
        number("fastest", ".3f"),
        number("slowest", ".3f"),
        number("ratio", ".2f"),
        number("max_error", ".1e"),
    ]


BUILD_COLUMNS = ["kernel", "case", "build", "median ms", "within", "between", "B / A", "pairs", ""]


def build_cells(row: dict[str, Any]) -> list[str]:
    """The values of a row of builds as they are shown, in the order of BUILD_COLUMNS."""

    def number(key: str, form: str) -> str:
        return "-" if row[key] is None else format(row[key], form)

    pairs = "-" if row["least"] is None else f"{row['least']:.4f} to {row['most']:.4f}"
    return [
        *(row["kernel"], row["case"], row["build"]),
        *(number("median", ".4g"), number("within", ".2%"), number("between", ".2%"), number("ratio", ".4f")),
        *(pairs, row["verdict"] or ""),
    ]


def table(timed: list[dict[str, Any]], programs: bool) -> tuple[list[str], list[list[str]]]:
    """The header and the lines of rows that were timed, of programs or of kernels.

    Beside rates of causal attention stands the column "pairs"; behind them, of runs without rest, power and energy.
    """
    if programs:
        return PROGRAM_COLUMNS, [program_cells(row) for row in timed]
    header, lines = list(COLUMNS.values()), [cells(row) for row in timed]
    if any(row.get("sustained_ms") for row in timed):
        at = header.index(COLUMNS["gb_per_s"]) + 1
        header = [*header[:at], *WITHOUT_REST, *header[at:]]
        lines = [[*line[:at], *without_rest(row), *line[at:]] for line, row in zip(lines, timed, strict=True)]
    if any(row.get("causal") for row in timed):
        at = header.index(COLUMNS["tflops"]) + 1
        header = [*header[:at], "pairs", *header[at:]]
        lines = [[*line[:at], pairs(row), *line[at:]] for line, row in zip(lines, timed, strict=True)]
    return header, lines


# ---- Calls

CALL_COLUMNS = ["workload", "(B, H, N, d)", "pass", "function", "host µs", "whole µs"]
CALLS_NOTE = (
    "host: until a call is enqueued; whole: of calls one behind the other until the GPU is done, for each; empty: the "
    "backward pass of a function that computes nothing, which is torch's own share"
)


def call_cells(row: dict[str, Any]) -> list[str]:
    """The values of a row of calls as they are shown, in the order of CALL_COLUMNS."""
    times = (format(row[key], ".1f") for key in ("host_us", "whole_us"))
    return [row["case"], described(Workload(**row["work"])), row["direction"], row["kernel"], *times]


# ---- Arrays

ARRAY_COLUMNS = ("kernel", "workload", "(B, H, N, d)", "median ms", "±", "n", "TFLOP/s", "×", "GB/s", "pairs")
SUSTAINED = ("sustained ms", "watts", "MHz", "J", "GFLOP/J")
LAST = ("rel. error", "max error", "regs", "shared KB", "occupancy")
ARRAY_NOTE = (
    "TFLOP/s: 4·B·H·Nq·Nk·d operations in the time, of causal attention by convention half of them; pairs: how many of "
    "the Nq·Nk pairs of a row and a key are in tiles that the kernel computes; ×: the first kernel's rate is so many "
    "times this one's"
)
GRADIENT_NOTE = (
    "of the backward pass 2.5 times as many operations are counted, of both passes 3.5 times, whatever a kernel "
    "computes: two passes without atomic operations have 7 products, not 5; rel. error: of dQ, dK and dV, the worst"
)


def workload_of(row: dict[str, Any]) -> Workload:
    """The workload of a row, without the mask's offset."""
    heads, (batch_heads, Nq, d) = row["heads"], row["shape"]
    sizes = batch_heads // heads, heads, row["kv_heads"], Nq, row["Nk"], d
    return Workload(row["dtype"], *sizes, bool(row["causal"]), dv=row.get("dv", 0))


def array_table(timed: list[dict[str, Any]]) -> tuple[list[str], list[list[str]]]:
    """The header and the lines of rows that were timed."""
    sustained = any(row["sustained_ms"] for row in timed)
    first: dict[str, dict[str, Any]] = {}
    for row in timed:
        first.setdefault(row["case"], row)
    header = [*ARRAY_COLUMNS, *(SUSTAINED if sustained else ()), *LAST]
    lines = [_array_cells(row, first[row["case"]], sustained) for row in timed]
    if any(_pass(row) != FORWARD for row in timed):
        header.insert(2, "pass")
        for line, row in zip(lines, timed, strict=True):
            line.insert(2, _pass(row))
    return header, lines


def _pass(row: dict[str, Any]) -> str:
    return str(row.get("pass") or FORWARD)


def array_notes(timed: list[dict[str, Any]]) -> list[str]:
    """What the figures of rows that were timed mean, a sentence or two each."""
    gradients = any(_pass(row) != FORWARD for row in timed)
    return [ARRAY_NOTE] * bool(timed) + [GRADIENT_NOTE] * gradients


def _array_cells(row: dict[str, Any], first: dict[str, Any], sustained: bool) -> list[str]:
    def number(key: str, form: str, factor: float = 1) -> str:
        return "-" if row.get(key) is None else format(row[key] * factor, form)

    text = described(workload_of(row))
    forms = {"sustained_ms": ".4g", "watts": ".0f", "sm_mhz": ".0f", "joules": ".4g", "gflop_per_joule": ".1f"}
    beside = [number(key, form) for key, form in forms.items()]
    return [
        row["kernel"],
        row["case"] if row["case"] != text else "-",
        text,
        number("median", ".4g"),
        f"{(row['high'] - row['low']) / 2 / row['median']:.1%}",
        str(row["samples"]),
        number("tflops", ".1f"),
        f"{row['median'] / first['median']:.2f}",
        number("gb_per_s", ".0f"),
        number("pairs_percent", ".1f") + "%" * (row["pairs_percent"] is not None),
        *(beside if sustained else ()),
        number("relative_error", ".1e"),
        number("max_error", ".1e"),
        number("registers", "d"),
        number("shared_bytes", ".1f", 1 / 1024),
        number("occupancy", ".0%"),
    ]


def read_record(path: Path) -> dict[str, Any]:
    """A record that `hw4 bench` wrote. InputError if the file is missing, is none, or is one of another schema."""
    try:
        record = read_json(path)
    except OSError as error:
        raise InputError(f"cannot read {path}: {error.strerror}") from None
    except ValueError:
        raise InputError(f"{path} is not a record of hw4 bench: it is not JSON") from None
    if not isinstance(record, dict) or "rows" not in record or "machine" not in record:
        raise InputError(f"{path} is not a record of hw4 bench")
    if record.get("schema") != SCHEMA:
        raise InputError(f"{path} is a record of schema {record.get('schema')}, but this hw4 reads schema {SCHEMA}")
    return record

"""Records of attention of arrays as rows of tables."""

from typing import Any

from hw4cli.lab.arrays.named import described
from hw4cli.lab.arrays.passes import FORWARD
from hw4cli.problem.workload import Workload

KIND = "arrays"  # of a record
COLUMNS = ("kernel", "workload", "(B, H, N, d)", "median ms", "±", "n", "TFLOP/s", "×", "GB/s", "pairs")
SUSTAINED = ("sustained ms", "watts", "MHz", "J", "GFLOP/J")
LAST = ("rel. error", "max error", "regs", "shared KB", "occupancy")
NOTE = (
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
    return Workload(row["dtype"], *sizes, bool(row["causal"]))


def table(timed: list[dict[str, Any]]) -> tuple[list[str], list[list[str]]]:
    """The header and the lines of rows that were timed."""
    sustained = any(row["sustained_ms"] for row in timed)
    first: dict[str, dict[str, Any]] = {}
    for row in timed:
        first.setdefault(row["case"], row)
    header = [*COLUMNS, *(SUSTAINED if sustained else ()), *LAST]
    lines = [_cells(row, first[row["case"]], sustained) for row in timed]
    if any(_pass(row) != FORWARD for row in timed):
        header.insert(2, "pass")
        for line, row in zip(lines, timed, strict=True):
            line.insert(2, _pass(row))
    return header, lines


def _pass(row: dict[str, Any]) -> str:
    return str(row.get("pass") or FORWARD)


def notes(timed: list[dict[str, Any]]) -> list[str]:
    """What the figures of rows that were timed mean, a sentence or two each."""
    gradients = any(_pass(row) != FORWARD for row in timed)
    return [NOTE] * bool(timed) + [GRADIENT_NOTE] * gradients


def _cells(row: dict[str, Any], first: dict[str, Any], sustained: bool) -> list[str]:
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

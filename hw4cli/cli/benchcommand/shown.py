"""What `hw4 bench` prints while it measures, and the record at its end."""

import json
import statistics
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from hw4cli.lab.tables import BUILDS, CALLS, PROGRAMS
from hw4cli.text.records import record_text
from hw4cli.text.words import columns, printable, wrapped

if TYPE_CHECKING:
    from hw4cli.text.tables import Bars


BUILDS_NOTE = (
    "median: of the processes' medians; within: half the 95 % interval of one process's median; between: the standard "
    "deviation of the processes' medians; pairs: the least and the most of B / A, of processes one behind the other"
)


HYPERFINE = ".hyperfine.json"  # of programs: the JSON that hyperfine exports, which its scripts and other tools read


def announce(case: str, detail: str = "") -> None:
    """Name the case that is now checked and measured: on a terminal, above the rows so far. `detail`: a line below."""
    lines = [f"{case} …", *([wrapped(detail, columns(sys.stderr))] if detail else [])]
    print(*lines, sep="\n", file=sys.stderr, flush=True)


def publish(result: dict[str, Any], as_json: bool, outputs: Sequence[Path]) -> None:
    """Print a record, and write it to `outputs`, each in the format of its ending."""
    from hw4cli.cli.terminal.options import write_outputs
    from hw4cli.text import tables

    document = record_text(result)
    click.echo(document if as_json else shown(result, columns(sys.stdout)), nl=False)
    texts = {
        ".json": lambda: document,
        ".csv": lambda: tables.comma_separated(result["rows"]),
        ".md": lambda: markdown(result),
        HYPERFINE: lambda: json.dumps(hyperfine(result), indent=2) + "\n",
    }
    write_outputs(outputs, texts)


def shown(result: dict[str, Any], width: int | None) -> str:
    """A record as a table for a terminal of this width."""
    from hw4cli.text import tables

    timed, header, lines, below = _table(result)
    notes = "".join(f"{wrapped(line, width)}\n" for line in below)
    bars = None if result.get("kind") in (BUILDS, CALLS) else _bars(timed, len(header))
    return tables.plain(header, lines, width, bars) + notes


def markdown(result: dict[str, Any]) -> str:
    """A record as Markdown."""
    from hw4cli.text import tables

    _, header, lines, below = _table(result)
    return tables.markdown(header, lines) + "".join(f"\n{line}\n" for line in below)


def _table(result: dict[str, Any]) -> tuple[list[dict[str, Any]], list[str], list[list[str]], list[str]]:
    """The rows that were timed, the table of them, and sentences below it."""
    from hw4cli.lab.tables import (
        ARRAYS,
        BUILD_COLUMNS,
        CALL_COLUMNS,
        CALLS_NOTE,
        CAUSAL_NOTE,
        array_notes,
        array_table,
        build_cells,
        call_cells,
        table,
    )

    timed = [row for row in result["rows"] if row["status"] == "ok"]
    arrays, builds, calls = (result.get("kind") == kind for kind in (ARRAYS, BUILDS, CALLS))
    if calls:
        header, lines = CALL_COLUMNS, [call_cells(row) for row in timed]
    elif builds:
        header, lines = BUILD_COLUMNS, [build_cells(row) for row in timed]
    else:
        header, lines = array_table(timed) if arrays else table(timed, programs=_of_programs(result))
    below = _reasons(result)
    if builds:
        below += [f"{letter}: {printable(source)}" for letter, source in result["builds"].items()] + [BUILDS_NOTE]
    elif calls:
        below.append(CALLS_NOTE)
    elif arrays:
        below += array_notes(timed)
    elif any(row.get("causal") for row in timed):
        below.append(CAUSAL_NOTE)
    return timed, header, lines, below


def _of_programs(result: dict[str, Any]) -> bool:
    return result.get("kind") == PROGRAMS


def _reasons(result: dict[str, Any]) -> list[str]:
    """Why kernels or programs were not timed, a line each."""
    who = "program" if _of_programs(result) else "kernel"
    return [printable(f"{r[who]} on {r['case']} {r['status']}: {r['reason']}") for r in result["rows"] if r["reason"]]


def hyperfine(result: dict[str, Any]) -> dict[str, Any]:
    """A record of programs as hyperfine's JSON: times in seconds, those of the processor as means."""
    found = []
    for row in result["rows"]:
        times, users, systems = (row.get(name) or () for name in ("seconds", "user_seconds", "system_seconds"))
        if row["status"] != "ok" or not users:  # a sum over cases is no command
            continue
        found.append(
            {
                "command": row["program"],
                "mean": statistics.fmean(times),
                "stddev": statistics.stdev(times) if len(times) > 1 else None,
                "median": row["median"],
                "user": statistics.fmean(users),
                "system": statistics.fmean(systems),
                "min": row["fastest"],
                "max": row["slowest"],
                "times": [*times],
                "exit_codes": [0] * len(times),
                "parameters": {"case": row["case"]},
            }
        )
    return {"results": found}


def _bars(rows: list[dict[str, Any]], columns: int) -> "Bars":
    """Kernels' rates, which compare over cases; programs' times, as shares of the longest of their case."""
    from hw4cli.text.bars import shares, shows_blocks
    from hw4cli.text.tables import Bars

    blocks = shows_blocks(sys.stdout)
    if rows and "program" in rows[0]:
        longest = {row["case"]: max(one["median"] for one in rows if one["case"] == row["case"]) for row in rows}
        return Bars("time", [row["median"] / longest[row["case"]] for row in rows], blocks, columns)
    return Bars("rate", shares([row["tflops"] for row in rows]), blocks, columns)

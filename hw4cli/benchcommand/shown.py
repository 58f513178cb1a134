"""What `hw4 bench` prints while it measures, and the record at its end."""

import json
import statistics
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from hw4cli.text.words import columns, print_message, printable, wrapped

if TYPE_CHECKING:
    from hw4cli.text.tables import Bars


BUILDS_NOTE = (
    "median: of the processes' medians; within: half the 95 % interval of one process's median; between: the standard "
    "deviation of the processes' medians; pairs: the least and the most of B / A, of processes one behind the other"
)


HYPERFINE = "hyperfine"  # of programs: the JSON that hyperfine exports, which its scripts and other tools read


def announce(case: str) -> None:
    """Name the case that is now checked and measured: on a terminal, above the rows so far."""
    print(f"{case} …", file=sys.stderr, flush=True)


def publish(result: dict[str, Any], form: str, output: Path | None) -> None:
    """Print a record; write it to `output`, if given."""
    from hw4cli.system.files import write_text

    click.echo(formatted(result, form), nl=False)
    if form == HYPERFINE:  # which has no place for what failed
        for reason in _reasons(result):
            print_message(reason)
    if output:
        write_text(output, json.dumps(result, indent=1) + "\n")


def formatted(result: dict[str, Any], form: str) -> str:
    """A record as text: a table, Markdown, CSV or JSON."""
    from hw4cli.arraylab.tables import KIND, notes
    from hw4cli.arraylab.tables import table as array_table
    from hw4cli.lab.tables import BUILD_COLUMNS, BUILDS, CAUSAL_NOTE, build_cells, table
    from hw4cli.text import tables

    if form == "json":
        return json.dumps(result, indent=1) + "\n"
    if form == HYPERFINE:
        return json.dumps(hyperfine(result), indent=2) + "\n"
    if form == "csv":
        return tables.comma_separated(result["rows"])
    programs = _of_programs(result)
    timed = [row for row in result["rows"] if row["status"] == "ok"]
    arrays = result.get("kind") == KIND
    builds = result.get("kind") == BUILDS
    if builds:
        header, lines = BUILD_COLUMNS, [build_cells(row) for row in timed]
    else:
        header, lines = array_table(timed) if arrays else table(timed, programs=programs)
    reasons = _reasons(result)
    if builds:
        reasons += [f"{letter}: {printable(source)}" for letter, source in result["builds"].items()] + [BUILDS_NOTE]
    elif arrays:
        reasons += notes(timed)
    elif any(row.get("causal") for row in timed):
        reasons.append(CAUSAL_NOTE)
    if form == "markdown":
        return tables.markdown(header, lines) + "".join(f"\n{line}\n" for line in reasons)
    width = columns(sys.stdout)
    below = "".join(f"{wrapped(line, width)}\n" for line in reasons)
    return tables.plain(header, lines, width, None if builds else _bars(timed, len(header))) + below


def _of_programs(result: dict[str, Any]) -> bool:
    return result.get("kind") == "end-to-end"


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

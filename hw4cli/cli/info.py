"""`hw4 info`: what an input file holds."""

import json
import sys
from pathlib import Path

import click

from hw4cli import __version__
from hw4cli.cli.terminal.options import FILE, json_option
from hw4cli.problem.workload import Workload
from hw4cli.system.importing import Importing
from hw4cli.text.words import columns, wrapped

SCHEMA = 1


@click.command()
@click.argument("file", type=FILE)
@json_option
def info(file: Path, as_json: bool) -> None:
    """Show what an input file holds.

    That is its header, sizes, the ranges of Q, K and V, and what is outside the assignment's ranges.
    """
    with Importing():
        from hw4cli.problem.casefile import InputFile

    with InputFile(file) as inputs:
        shape, ranges = inputs.shape, inputs.ranges()
    notes = shape.notes()
    outside = [name for name, (low, high) in ranges.items() if low < -3 or high > 3]
    if outside:
        notes.append(f"{', '.join(outside)} leave [-3, 3]")
    if as_json:
        _print_document(file, shape, ranges, notes)
    else:
        _print(shape, ranges, notes)


def _print(shape: Workload, ranges: dict[str, tuple[float, float]], notes: list[str]) -> None:
    lines = [
        ("(B, N, d)", str(shape)),
        ("size", f"{shape.input_bytes:,} bytes; the output will have {shape.output_bytes:,}"),
        ("work", f"{shape.flops / 1e9:,.2f} GFLOP (4·B·N²·d)"),
        *((name, f"{low:.6g} … {high:.6g}") for name, (low, high) in ranges.items()),
        *(("note", f"outside the assignment: {note}") for note in notes),
    ]
    if not notes:
        lines.append(("note", "within the assignment's ranges"))
    for label, text in lines:
        click.echo(wrapped(text, columns(sys.stdout), " " * 11, first=f"{label:11}"))


def _print_document(file: Path, shape: Workload, ranges: dict[str, tuple[float, float]], notes: list[str]) -> None:
    """The same as JSON; docs/verify.md describes the fields."""
    document = {
        "schema": SCHEMA,
        "kind": "hw4-info",
        "version": __version__,
        "file": str(file),
        "shape": [shape.B, shape.N, shape.d],
        "input_bytes": shape.input_bytes,
        "output_bytes": shape.output_bytes,
        "flops": shape.flops,
        "ranges": ranges,
        "outside": notes,
    }
    click.echo(json.dumps(document, indent=1))

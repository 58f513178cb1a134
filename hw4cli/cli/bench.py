"""`hw4 bench`: times of kernels on the device."""

import json
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from hw4cli.cli.options import FILE, shapes_option
from hw4cli.errors import InputError, MachineError
from hw4cli.shape import Shape
from hw4cli.variants import DEFAULT, VARIANTS

if TYPE_CHECKING:
    from hw4cli.bench import Row, Subject
    from hw4cli.gpu import Gpu
    from hw4cli.meter import Meter


def _parse_tiles(_: click.Context, param: click.Parameter, values: tuple[str, ...]) -> list[dict[str, int]]:
    tiles = []
    for value in values:
        match = re.fullmatch(r"(\d+)x(\d+)", value)
        if not match:
            raise click.BadParameter(f"{value!r} is not a tile: give rows x keys, as in 128x32", param=param)
        tiles.append({"BR": int(match[1]), "BC": int(match[2])})
    return tiles


@click.command()
@click.argument("kernels", nargs=-1)
@click.option("--cases", default="", help="Cases of the suite, such as t22,t28-t30.")
@shapes_option("A shape; may be given several times.")
@click.option("--tile", "tiles", multiple=True, callback=_parse_tiles, metavar="BRxBC", help="Tiles to try instead.")
@click.option("--warm", is_flag=True, help="Leave the L2 cache as the run before left it.")
@click.option("--peers", type=click.Choice(["torch"]), help="Measure others' attention in the same run.")
@click.option(
    "--format",
    "form",
    type=click.Choice(["table", "json", "csv", "markdown"]),
    default="table",
    show_default=True,
    help="How to print the results.",
)
@click.option("--output", type=FILE, help="Write the record there as JSON, too.")
@click.option("--compare", "older", type=FILE, help="Say what became faster or slower since this record.")
def bench(
    kernels: tuple[str, ...],
    cases: str,
    shapes: list[Shape],
    tiles: list[dict[str, int]],
    warm: bool,
    peers: str | None,
    form: str,
    output: Path | None,
    older: Path | None,
) -> int:
    """Time KERNELS (default: flash; "all" is the whole ladder) on the GPU, one against the other.

    Each answer is checked first: a kernel that is wrong, or cannot run, is told and not timed. Then the kernels take
    turns until their medians are sure. Example: hw4 bench flash float4 --cases t28 --peers torch

    Exit status 0 if all went well, 1 if a kernel was wrong, failed, or (with --compare) became slower.
    """
    from hw4cli.bench import compare, measure, record, write_text
    from hw4cli.gpu import Gpu
    from hw4cli.meter import Meter
    from hw4cli.tables import read_record

    then = read_record(older) if older else None
    chosen = _cases(cases, shapes)
    gpu = Gpu()
    meter = Meter(gpu)
    subjects = _subjects(gpu, meter, kernels or (DEFAULT,), tiles, peers)
    before, sgemm = meter.clocks(), meter.sgemm_tflops()
    rows: list[Row] = []
    for case in chosen:
        click.echo(f"{case[0]} …", err=True)
        rows += measure(meter, subjects, case, sgemm, cold=not warm)
    result = record(meter, rows, sgemm, cold=not warm, before=before)
    click.echo(_formatted(result, form), nl=False)
    if output:
        write_text(output, json.dumps(result, indent=1) + "\n")
    changes = compare(rows, then) if then else []
    for change in changes:
        click.echo(f"{change.kernel} {change.case}: {change.word}, {change.ratio:.3f} of the older time", err=True)
    bad = any(row.status != "ok" for row in rows) or any(change.word == "slower" for change in changes)
    return 1 if bad else 0


def _cases(names: str, shapes: list[Shape]) -> list[tuple[str, Shape, int]]:
    """(name, shape, seed) of what to measure on."""
    from hw4cli import suite

    if not names and not shapes:
        raise click.UsageError(
            "name the cases (--cases t22,t30) or a shape (--shape 4,16384,64)", click.get_current_context()
        )
    named = [(case.name, case.shape, case.seed) for case in suite.select([names])] if names else []
    return [*named, *((f"{shape.B}x{shape.N}x{shape.d}", shape, 0) for shape in shapes)]


def _subjects(
    gpu: "Gpu", meter: "Meter", kernels: tuple[str, ...], tiles: list[dict[str, int]], peers: str | None
) -> "list[Subject]":
    from hw4cli.bench import kernel_subject

    names = list(VARIANTS) if kernels == ("all",) else kernels
    for name in names:
        if name not in VARIANTS:
            raise InputError(f"there is no kernel {name!r}: the ladder has {', '.join(VARIANTS)}")
    choices: list[dict[str, int] | None] = [*tiles] or [None]
    subjects = [kernel_subject(gpu, meter, name, tile) for name in names for tile in choices]
    if peers == "torch":
        from hw4cli.peers import torch_subjects

        try:
            subjects += torch_subjects(gpu)
        except MachineError as reason:
            click.echo(f"hw4: {reason}", err=True)
    return subjects


def _formatted(result: dict[str, Any], form: str) -> str:
    from hw4cli import tables

    if form == "json":
        return json.dumps(result, indent=1) + "\n"
    if form == "csv":
        return tables.comma_separated(result["rows"])
    good = [row for row in result["rows"] if row["status"] == "ok"]
    lines = [tables.cells(row) for row in good]
    bad = [f"{r['kernel']} on {r['case']} {r['status']}: {r['reason']}" for r in result["rows"] if r["status"] != "ok"]
    if form == "markdown":
        return tables.markdown(list(tables.COLUMNS.values()), lines) + "".join(f"\n{line}\n" for line in bad)
    return tables.plain(list(tables.COLUMNS.values()), lines) + "".join(f"{line}\n" for line in bad)

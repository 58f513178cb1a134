"""`hw4 info`: what an input file holds."""

from pathlib import Path

import click

from hw4cli.cli.options import FILE


@click.command()
@click.argument("file", type=FILE)
def info(file: Path) -> None:
    """Tell what an input FILE holds: header, size, ranges, and where it leaves the assignment's ranges."""
    from hw4cli.casefile import InputFile

    with InputFile(file) as inputs:
        shape, found = inputs.shape, inputs.ranges()
    click.echo(f"(B, N, d)  {shape}")
    click.echo(f"size       {shape.input_bytes:,} bytes; the output will have {shape.output_bytes:,}")
    click.echo(f"work       {shape.flops / 1e9:,.2f} GFLOP (4·B·N²·d)")
    for name, (low, high) in found.items():
        click.echo(f"{name}          {low:.6g} … {high:.6g}")
    notes = shape.notes()
    outside = [name for name, (low, high) in found.items() if low < -3 or high > 3]
    if outside:
        notes.append(f"{', '.join(outside)} leave [-3, 3]")
    for note in notes:
        click.echo(f"note       outside the assignment: {note}")
    if not notes:
        click.echo("note       within the assignment's ranges")

"""`hw4 verify`: compare an output with its answer."""

from pathlib import Path

import click

from hw4cli.cli.options import FILE, shape_option
from hw4cli.cli.params import Number
from hw4cli.errors import InputError
from hw4cli.shape import Shape
from hw4cli.words import printable


@click.command()
@click.argument("output", type=FILE)
@click.argument("answer", type=FILE)
@shape_option("To tell places as batch, row, column.  [default: that of the input beside ANSWER]")
@click.option(
    "--tolerance",
    type=Number(0, 1e30),
    default=5e-3,
    show_default=True,
    help="Largest error that is right.",
)
def verify(output: Path, answer: Path, shape: Shape | None, tolerance: float) -> int:
    """Compare OUTPUT with ANSWER, element by element.

    Exit status 0 if every element is a number within the tolerance, 1 if not.
    """
    from hw4cli.judge import compare_files
    from hw4cli.verdict import Comparison

    for path in (output, answer):
        if not path.is_file():
            raise InputError(f"{path} is not a file" if path.exists() else f"{path} does not exist")
    sizes = output.stat().st_size, answer.stat().st_size
    shape = shape or _shape_beside(answer)
    if shape and shape.output_bytes != sizes[1]:
        raise InputError(f"{answer} has {sizes[1]:,} bytes, but an answer of shape {shape} has {shape.output_bytes:,}")
    if sizes[1] == 0 or sizes[1] % 4:
        raise InputError(f"{answer} has {sizes[1]:,} bytes, which is no answer: it must be float32 numbers")
    if sizes[0] != sizes[1]:
        click.echo(printable(f"wrong: {output} has {sizes[0]:,} bytes, the answer {sizes[1]:,}"))
        return 1
    try:
        result = compare_files(output, answer, Comparison(tolerance))
    except ValueError as error:
        raise InputError(f"{answer}: {error}") from None
    click.echo(f"elements    {result.count:,}")
    click.echo(f"wrong       {result.wrong:,}")
    click.echo(f"NaN or Inf  {result.not_finite:,}")
    click.echo(f"max error   {result.max_error:.3g}")
    for label, index in (("first wrong", result.first), ("worst", result.worst)):
        if index is not None:
            click.echo(f"{label:<11} {shape.place(index) if shape else f'element {index:,}'}")
    click.echo("right" if result.right else f"wrong: {result.reason(shape)}")
    return 0 if result.right else 1


def _shape_beside(answer: Path) -> Shape | None:
    """The shape of the input that lies beside its answer, as gen leaves them: t07 beside t07.out."""
    from hw4cli.casefile import InputFile

    if answer.suffix != ".out":
        return None
    try:
        with InputFile(answer.with_suffix("")) as inputs:
            return inputs.shape
    except InputError:
        return None

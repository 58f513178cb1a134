"""`hw4 plot`: a picture from records."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import click

from hw4cli.system.importing import Importing
from hw4cli.terminal.options import FILE, shape_option
from hw4cli.terminal.params import OneOf
from hw4cli.text.words import printable

# What a kind shows, and the options that it takes.
KINDS: dict[str, tuple[str, ...]] = {
    "latency": ("over",),
    "rate": ("over",),
    "speedup": ("base", "over"),
    "ladder": ("case",),
    "tiles": (),
    "error": (),
    "programs": (),
    "roofline": ("roofs",),
    "traffic": ("shape",),
    "energy": ("over",),
    "scaling": (),
}


@click.command()
@click.argument("kind", type=OneOf(list(KINDS)), metavar="KIND")
@click.argument("records", nargs=-1, required=True, type=FILE, metavar="RECORDS...")
@click.option("-o", "--output", type=FILE, required=True, metavar="FILE", help="FILE.svg, FILE.png or FILE.pdf.")
@click.option("--base", metavar="KERNEL", help="speedup: over which kernel.")
@click.option("--case", metavar="CASE", help="ladder: on which case.  [default: the one with the most kernels]")
@shape_option("traffic: the shape that was profiled.")
@click.option("--roofs", type=FILE, help="roofline: below these roofs, a record of `hw4 roofs --output`.")
@click.option(
    "--over",
    type=OneOf(["N", "cases"]),
    help="latency, rate, speedup, energy: over N, or case by case.  [default: N where one B, or one B·N, has three]",
)
@click.pass_context
def plot(ctx: click.Context, /, kind: str, records: tuple[Path, ...], output: Path, **options: Any) -> None:
    """Draw a picture of RECORDS, which `hw4 bench --output` wrote.

    \b
    KIND is
    latency   time of each kernel, over N or by case
    rate      TFLOP/s of each kernel, over N or by case
    speedup   how many times as fast as --base
    ladder    all kernels on one case, against the first
    tiles     TFLOP/s by a tile's rows and keys
    error     largest error of each kernel, and its bound
    programs  whole programs, from file to file
    roofline  rates below measured roofs: copy and SGEMM
    traffic   bytes of the GPU's memory, measured and modelled
    energy    GFLOP per joule, over N or by case
    scaling   times as fast as one GPU, over GPUs

    For traffic, RECORDS are CSV files of Nsight Compute's counters (hw4 profile --log); for scaling, records of
    benchmarks/scaling.py. Needs matplotlib. The same records make the same file.
    Example: hw4 plot ladder benchmarks/h200-ladder.json -o ladder.svg
    """
    for name, value in options.items():
        if value is not None and name not in KINDS[kind]:
            raise click.UsageError(f"--{name} does not go with {kind}", ctx)
    if kind == "speedup" and not options["base"]:
        raise click.UsageError("speedup needs --base KERNEL, the kernel to compare with", ctx)
    if kind == "traffic" and not options["shape"]:
        raise click.UsageError("traffic needs --shape B,N,d, the shape that was profiled", ctx)
    with Importing():
        from hw4cli.measure.roofs import read as read_roofs
        from hw4cli.show.draw import FORMATS, render
        from hw4cli.show.kinds import KINDS as DRAWN
        from hw4cli.show.records import load
        from hw4cli.show.scaling import load_scaling
        from hw4cli.show.traffic import load_profile
        from hw4cli.system.files import NewFile, check_place

    form = output.suffix.removeprefix(".").lower()
    if form not in FORMATS:
        raise click.UsageError(f"{output} is not the name of a picture: let it end in .svg, .png or .pdf", ctx)
    check_place(output, *records, *filter(None, (options["roofs"],)))
    chosen = {name: options[name] for name in KINDS[kind] if options[name] is not None}
    if path := chosen.get("roofs"):
        chosen["roofs"] = read_roofs(path)
    readers: dict[str, Callable[[Path], Any]] = {"traffic": load_profile, "scaling": load_scaling}
    read = readers.get(kind, load)
    content = render(DRAWN[kind]([read(path) for path in records], **chosen), form)
    with NewFile(output) as file:
        file.write(memoryview(content))
    click.echo(printable(f"wrote {output}"), err=True)

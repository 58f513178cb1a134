"""`hw4 timeline`: what one block of a kernel does when."""

import json
from pathlib import Path

import click

from hw4cli.problem.shape import Shape
from hw4cli.system.importing import Importing
from hw4cli.system.interrupts import end_if_stuck
from hw4cli.terminal.options import FILE, shapes_option
from hw4cli.terminal.params import OneOf, Whole
from hw4cli.text.words import printable


@click.command()
@click.argument("kernels", nargs=-1, required=True, type=OneOf(("flash", "split")), metavar="KERNELS...")
@shapes_option("A shape; may be given several times.")
@click.option("--block", type=Whole(min=0), metavar="N", default=0, show_default=True, help="Number of the block.")
@click.option("-o", "--output", type=FILE, required=True, metavar="FILE", help="The record, for `hw4 lab`.")
def timeline(kernels: tuple[str, ...], shapes: list[Shape], block: int, output: Path) -> None:
    """Record when one block of KERNELS copies, multiplies and takes exponentials, by the GPU's clock.

    KERNELS are flash, and split where warpgroups multiply. `hw4 lab` draws the record beside the kernel's steps.
    Example: hw4 timeline flash split --shape 4,16384,64 --output timeline.json
    """
    with Importing():
        from hw4cli.device.gpu import Gpu
        from hw4cli.device.timing import GpuTimer
        from hw4cli.stepper.blocktimeline import measure, record
        from hw4cli.system.files import check_place, write_text

    if not shapes:
        raise click.UsageError("name a shape (--shape 4,16384,64)")
    check_place(output)
    end_if_stuck()
    gpu = Gpu()
    rows = [measure(gpu, kernel, shape, block) for kernel in kernels for shape in shapes]
    write_text(output, json.dumps(record(GpuTimer(gpu), rows)) + "\n")
    click.echo(printable(f"wrote {output}"), err=True)

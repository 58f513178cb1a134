"""`hw4 export`: a kernel as a program of one file, to hand in."""

from pathlib import Path

import click

from hw4cli.cli.terminal.options import output_option
from hw4cli.cli.terminal.params import KernelName, OneOf
from hw4cli.plans.ladder import VARIANTS
from hw4cli.system.importing import Importing

ENDINGS = {"nvcc": ".cu", "hip": ".hip"}


@click.command()
@click.argument("kernel", type=KernelName([*VARIANTS]), metavar="KERNEL")
@click.option(
    "--for",
    "target",
    type=OneOf([*ENDINGS]),
    help="The compiler: nvcc, or hip for hipcc and AMD's GPUs.  [default: by the ending of -o, else nvcc]",
)
@output_option()
def export(kernel: str, target: str | None, output: Path | None) -> None:
    """Write a kernel as a program of one file, to hand in.

    \b
    hw4 export flash -o hw4.cu    built by nvcc -O3 -std=c++14 -arch=native
    hw4 export flash -o hw4.hip   by hipcc -O3 -std=c++14 --offload-arch=gfx90a
    hw4 export ./mine.cu          on stdout

    KERNEL is one of the ladder (see hw4 explain) or a file FILE.cu of your own. The program takes INPUTFILE OUTPUTFILE,
    any d from 1 to 128. It needs no other file, and can be read from top to bottom. Kernels on tensor cores are
    refused.
    """
    with Importing():
        from hw4cli.lab.handin.program import HIP, NVCC, program_text
        from hw4cli.system.files import check_place, write_text

    chosen = target or (HIP if output and output.name.endswith(ENDINGS[HIP]) else NVCC)
    if output:
        check_place(output)
    text = program_text(kernel, chosen, output.name if output else f"hw4{ENDINGS[chosen]}")
    if output:
        write_text(output, text)
    else:
        click.echo(text, nl=False)

"""`hw4 INPUTFILE OUTPUTFILE`."""

import gc
import os
import time
from pathlib import Path

import click

from hw4cli.cli.options import FILE
from hw4cli.stopwatch import Stopwatch
from hw4cli.variants import DEFAULT, VARIANTS


@click.command()
@click.argument("inputfile", type=FILE)
@click.argument("outputfile", type=FILE)
@click.option(
    "--device",
    type=click.Choice(["auto", "cuda", "cpu"]),
    default="auto",
    show_default=True,
    help="Where to compute; auto is the GPU if there is one, else the CPU.",
)
@click.option(
    "--kernel",
    type=click.Choice(list(VARIANTS)),
    default=DEFAULT,
    show_default=True,
    help="Which kernel of the ladder computes on the GPU.",
)
@click.option("--timing", is_flag=True, help="Tell on stderr where the time went.")
@click.option("--quiet", is_flag=True, help="Print nothing but errors.")
def run(inputfile: Path, outputfile: Path, device: str, kernel: str, timing: bool, quiet: bool) -> None:
    """Compute attention: read INPUTFILE, write OUTPUTFILE.

    This is the default command: `hw4 INPUTFILE OUTPUTFILE` is enough. The output appears when it is whole;
    until then, and after any error, an older OUTPUTFILE stays as it was.
    """
    # Batches are spread over the cores by us; the BLAS of NumPy would do the same once more.
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    gc.disable()  # importing makes many objects and no garbage: 10 ms less to the start
    if device != "cpu":
        from hw4cli.context import make_context

        make_context()
    from hw4cli import pipeline
    from hw4cli.reference import workers

    def say(sentence: str) -> None:
        if not quiet:
            click.echo(f"hw4: {sentence}", err=True)

    devices = {"auto": pipeline.auto(kernel, say), "cuda": pipeline.cuda(kernel), "cpu": pipeline.cpu}
    watch = Stopwatch()
    started = time.perf_counter()
    shape = pipeline.run(inputfile, outputfile, devices[device], workers(), watch, say)
    if not quiet:
        click.echo(f"(B, N, d): {shape}")
        click.echo(f"Time: {time.perf_counter() - started:.3f} seconds")
    if timing:
        click.echo(watch.table(), err=True)

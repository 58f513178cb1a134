"""`hw4 INPUTFILE OUTPUTFILE`."""

import gc
import os
import sys
import time
from pathlib import Path

import click

from hw4cli.commands import WITHOUT_GPU
from hw4cli.compute.variants import VARIANTS
from hw4cli.resources import is_own_kernel
from hw4cli.stream.timeline import Timeline
from hw4cli.system.importing import Importing
from hw4cli.terminal.bar import Bar
from hw4cli.terminal.options import FILE, causal_option
from hw4cli.terminal.params import Gpus, KernelName, Number, OneOf
from hw4cli.text.words import columns, wrapped

BAR_DELAY = 2.0  # seconds: most runs are over by then


@click.command()
@click.argument("inputfile", type=FILE)
@click.argument("outputfile", type=FILE)
@click.option(
    "--device",
    type=OneOf(["auto", "cuda", "cpu", "emulate"]),
    default="auto",
    show_default=True,
    help="Where to compute; auto is the GPU if there is one, else the CPU; emulate executes the GPU's kernels on the "
    "CPU, for small files.",
)
@click.option(
    "--kernel",
    type=KernelName(["auto", *VARIANTS]),
    metavar="KERNEL",
    default="auto",
    show_default=True,
    help="Which kernel computes on the GPU, one of the ladder (see hw4 kernels) or a file FILE.cu; auto is the fastest "
    "that is exact enough.",
)
@click.option(
    "--max-error",
    type=Number(0, min_open=True),
    help="The largest error of an element that is allowed.  [default: 0.004, proven]",
)
@causal_option("Let row i see the keys 0 to i alone.")
@click.option(
    "--gpus",
    type=Gpus(),
    metavar="GPUS",
    help="Compute on several of this node's GPUs: all, count:N for the first N, or ids:0,2 for those numbers.",
)
@click.option("--timing", is_flag=True, help="Show on stderr where the time went.")
@click.option("--quiet", is_flag=True, help="Print nothing but errors.")
@click.pass_context
def run(
    ctx: click.Context,
    inputfile: Path,
    outputfile: Path,
    device: str,
    kernel: str,
    max_error: float | None,
    causal: bool,
    gpus: str | None,
    timing: bool,
    quiet: bool,
) -> None:
    """Compute attention: read INPUTFILE, write OUTPUTFILE.

    This is the default command: `hw4 INPUTFILE OUTPUTFILE` is enough. The output appears when it is complete; until
    then, and after any error, an older OUTPUTFILE stays as it was.
    """
    if device == "cpu" and kernel != "auto":
        raise click.UsageError(f"--kernel {kernel} is for the GPU and does not go with --device cpu", ctx)
    if gpus and device in WITHOUT_GPU:
        raise click.UsageError(f"--gpus {gpus} does not go with --device {device}", ctx)
    # hw4 spreads batches over the cores itself; NumPy's BLAS would start as many threads again for each.
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    gc.disable()  # imports make many objects and no garbage: this saves 10 ms
    with Importing():
        if device not in WITHOUT_GPU:
            from hw4cli.device.context import make_context

            make_context()
        from hw4cli.problem.cpu import workers
        from hw4cli.stream import pipeline

    if is_own_kernel(kernel):
        from hw4cli.device.ownkernel import kernel_named

        kernel_named(kernel)  # reports what is wrong with the file before anything is opened
        if max_error is not None:
            raise click.UsageError(f"--max-error does not go with {kernel}: no bound of its error is known", ctx)

    timeline = Timeline()
    bar = Bar("computing", timeline.progress, BAR_DELAY, wanted=not quiet)

    def notify(sentence: str) -> None:
        if not quiet:
            bar.print_message(sentence)

    devices = {
        "auto": pipeline.auto(kernel, max_error, notify),
        "cuda": pipeline.cuda(kernel, max_error),
        "cpu": pipeline.cpu(max_error),
        "emulate": pipeline.emulated(kernel, max_error),
    }
    members = pipeline.several(kernel, max_error, gpus) if gpus else pipeline.alone(devices[device])
    started = time.perf_counter()
    with bar:
        shape, summary = pipeline.run(inputfile, outputfile, members, workers(), timeline, notify, causal)
    if not quiet:
        click.echo(f"(B, N, d): {shape}")
        click.echo(f"Time: {time.perf_counter() - started:.3f} seconds")
    if timing:
        width = columns(sys.stderr)
        click.echo(timeline.table(width), err=True)
        click.echo(wrapped(summary, width, " " * 8, first=""), err=True)

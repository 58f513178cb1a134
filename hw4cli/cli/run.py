"""`hw4 INPUTFILE OUTPUTFILE`."""

import gc
import os
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

import click

from hw4cli import __version__
from hw4cli.cli.terminal.bar import Bar
from hw4cli.cli.terminal.options import FILE, causal_option, shared, split_command
from hw4cli.cli.terminal.params import Gpus, KernelName, Number, OneOf
from hw4cli.cli.terminal.sections import Sections
from hw4cli.commands import WITHOUT_GPU, first_gpu
from hw4cli.errors import Hw4Error, LostGpuError
from hw4cli.plans.ladder import VARIANTS
from hw4cli.resources import is_own_kernel, python_command
from hw4cli.stream.timeline import Timeline
from hw4cli.system.importing import Importing
from hw4cli.text.words import columns, wrapped

if TYPE_CHECKING:
    from hw4cli.problem.workload import Workload
    from hw4cli.stream.nodes.place import Place
    from hw4cli.stream.pipeline import Job
    from hw4cli.stream.team import Notify

# In the environment of a process that began again: its --gpus are its own, not those that a node's ranks share.
OWN_GPUS = "HW4_OWN_GPUS"
BAR_DELAY = 2.0  # seconds: most runs are over by then


@click.command(cls=Sections, rare=["max_error", "resume", "ranks"])
@click.argument("inputfile", type=FILE)
@click.argument("outputfile", type=FILE)
@shared("device", type=OneOf(["auto", "cuda", "cpu", "emulate"]), default="auto", show_default=True)
@click.option(
    "--kernel",
    type=KernelName(["auto", *VARIANTS]),
    metavar="KERNEL",
    default="auto",
    show_default=True,
    help="Which kernel computes on the GPU, one of the ladder (see hw4 explain) or a file FILE.cu; auto is the fastest "
    "that is exact enough.",
)
@click.option(
    "--max-error",
    type=Number(0, min_open=True),
    help="The largest error of an element that is allowed.  [default: 0.004, proven]",
)
@causal_option
@click.option(
    "--gpus",
    type=Gpus(),
    metavar="GPUS",
    help="Compute on several of this node's GPUs: all, count:N for the first N, or ids:0,2 for those numbers.",
)
@shared("srun", metavar="OPTIONS")
@shared("resume", is_flag=True)
@click.option(
    "--ranks",
    is_flag=True,
    help="This process is one of several that srun, torchrun or mpirun started: compute its share of the file.",
)
@click.option("--step", metavar="KEY", hidden=True, help="With --ranks: --srun started this process, for this work.")
@click.option("--timing", is_flag=True, help="Show on stderr where the time went.")
@click.option("--quiet", is_flag=True, help="Print nothing but errors.")
@click.pass_context
def run(ctx: click.Context, /, inputfile: Path, outputfile: Path, timing: bool, quiet: bool, **options: Any) -> None:
    """Compute attention: read INPUTFILE, write OUTPUTFILE.

    \b
    hw4 testcases/t01 my.out                     `hw4 run` may be left out
    hw4 testcases/t01 my.out --kernel ./mine.cu  by a kernel of your own
    hw4 my.in my.out --device emulate            by the kernels, on the CPU
    hw4 my.in my.out --gpus all --timing         by all GPUs of this node

    --device emulate executes the GPU's kernels on the CPU, for small files. The output appears when it is complete;
    until then, and after any error, an older OUTPUTFILE stays as it was.
    """
    _check_together(ctx, timing=timing, **options)
    device, kernel, max_error = options["device"], options["kernel"], options["max_error"]
    # hw4 spreads batches over the cores itself; NumPy's BLAS would start as many threads again for each.
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    gc.disable()  # imports make many objects and no garbage: this saves 10 ms
    with Importing():
        if device not in WITHOUT_GPU and not options["ranks"] and not options["srun"]:
            from hw4cli.device.driver import make_context, make_other_contexts

            make_context(first_gpu(options["gpus"]))
            if options["gpus"]:
                make_other_contexts(options["gpus"], inputfile)
        from hw4cli.problem.cpu import workers
        from hw4cli.stream import pipeline

    if is_own_kernel(kernel):
        from hw4cli.device.ownkernel import kernel_named

        kernel_named(kernel)  # reports what is wrong with the file before anything is opened
        if max_error is not None:
            raise click.UsageError(f"--max-error does not go with {kernel}: no bound of its error is known", ctx)

    timeline = Timeline()
    bar = Bar("computing", timeline.progress, BAR_DELAY, wanted=not quiet and not options["ranks"])

    def notify(sentence: str) -> None:
        if not quiet:
            bar.print_message(sentence)

    started = time.perf_counter()
    if options["ranks"]:
        _compute_share(inputfile, outputfile, timeline, notify, workers(), options)
        return
    if options["srun"]:
        with bar:
            shape = _compute_by_slurm(ctx, inputfile, outputfile, timeline, notify, {**options, "quiet": quiet})
    else:
        job = _job(options, workers(), notify)
        try:
            with bar:
                shape, summary = pipeline.run(inputfile, outputfile, job, timeline, notify)
        except LostGpuError as error:
            if not error.others:
                raise
            _begin_again(error.others, notify)
    if not quiet:
        click.echo(f"(B, N, d): {shape}")
        click.echo(f"Time: {time.perf_counter() - started:.3f} seconds")
    if timing:
        width = columns(sys.stderr)
        click.echo(timeline.table(width), err=True)
        click.echo(wrapped(summary, width, " " * 8, first=""), err=True)


def _check_together(ctx: click.Context, device: str, kernel: str, gpus: str | None, **options: Any) -> None:
    """Raise UsageError for options that do not go together."""
    problems = {
        f"--kernel {kernel} is for the GPU and does not go with --device cpu": device == "cpu" and kernel != "auto",
        f"--gpus {gpus} does not go with --device {device}": gpus and device in WITHOUT_GPU,
        "--srun is empty": options["srun"] is not None and not options["srun"].strip(),
        "--resume goes with --srun": options["resume"] and not options["srun"],
        "--ranks does not go with --srun, which starts the ranks itself": options["ranks"] and options["srun"],
        "--timing is of a single process, and does not go with --srun and --ranks": options["timing"]
        and (options["srun"] or options["ranks"]),
    }
    for problem, is_one in problems.items():
        if is_one:
            raise click.UsageError(problem, ctx)


def _job(options: dict[str, Any], cores: int, notify: "Notify", place: "Place | None" = None) -> "Job":
    """How the file is computed, by these options, in this process, which has this place among several."""
    from hw4cli.stream import pipeline

    device, kernel, max_error, gpus = (options[name] for name in ("device", "kernel", "max_error", "gpus"))
    if device not in WITHOUT_GPU and (gpus or place):
        of_node = (place.local, place.local_size) if place and OWN_GPUS not in os.environ else (0, 1)
        members = pipeline.several(kernel, max_error, gpus or "all", *of_node)
    else:
        devices = {
            "auto": pipeline.auto(kernel, max_error, notify),
            "cuda": pipeline.cuda(kernel, max_error),
            "cpu": pipeline.cpu(max_error),
            "emulate": pipeline.emulated(kernel, max_error),
        }
        members = pipeline.alone(devices[device])
    # A kernel of the user's own may take the rows of Q and of K for as many.
    return pipeline.Job(members, cores, options["causal"], whole_batches=is_own_kernel(kernel) or device == "emulate")


def _deciding(options: dict[str, Any]) -> list[object]:
    """What decides about the output's bytes."""
    kernel = options["kernel"]
    text = Path(kernel).read_text(encoding="utf-8", errors="replace") if is_own_kernel(kernel) else ""
    return [__version__, text, *(options[name] for name in ("device", "kernel", "max_error", "causal"))]


def _begin_again(gpus: tuple[int, ...], notify: "Notify") -> NoReturn:
    """Become a process that has these GPUs alone: where one is lost, CUDA may refuse all others to the same process."""
    notify("no GPU works in this process any more: beginning again with the others")
    words = ["--gpus", f"ids:{','.join(map(str, gpus))}"]
    given, files = sys.argv[1:], len(sys.argv)
    if "--" in given:
        files = given.index("--")
    command = [*python_command("entry", "-P"), *given[:files], *words, *given[files:]]
    os.execve(command[0], command, {**os.environ, OWN_GPUS: "1"})


def _compute_share(
    source: Path, target: Path, timeline: Timeline, notify: "Notify", cores: int, options: dict[str, Any]
) -> None:
    """Do what one of several processes does; the first one completes the output, unless --srun will."""
    with Importing():
        from hw4cli.stream.nodes.place import place
        from hw4cli.stream.nodes.rank import compute_share

    here = place(by_slurm=options["step"] is not None)

    def note(sentence: str) -> None:
        notify(f"{here}: {sentence}")

    try:
        job = _job(options, cores, note, here)
        compute_share(source, target, job, _deciding(options), timeline, note, here, options["step"])
    except Hw4Error as error:
        if isinstance(error, LostGpuError) and error.others:
            _begin_again(error.others, note)
        raise type(error)(f"{here} failed: {error}") from None


def _compute_by_slurm(
    ctx: click.Context, source: Path, target: Path, timeline: Timeline, notify: "Notify", options: dict[str, Any]
) -> "Workload":
    """Have srun's processes compute the file."""
    with Importing():
        from hw4cli.stream.nodes.launch import compute_by_slurm

    words = split_command(options["srun"], "--srun", ctx)
    given = {f"--{name.replace('_', '-')}": options[name] for name in ("device", "kernel", "max_error", "gpus")}
    passed = [f"{name}={value}" for name, value in given.items() if value is not None]
    passed += ["--causal"] * options["causal"] + ["--quiet"] * options["quiet"]
    go_on, progress = options["resume"], timeline.progress
    return compute_by_slurm(source, target, words, passed, _deciding(options), go_on, progress, notify)

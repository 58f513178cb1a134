"""`hw4 bench`: times of kernels on the device, or of whole programs; and what the GPU reaches at best."""

import re
from pathlib import Path
from typing import Any

import click

from hw4cli.cli.benchcommand.shown import HYPERFINE
from hw4cli.cli.terminal.grammar import CASES, KERNELS, SHAPES, WORKLOADS, What, what_argument
from hw4cli.cli.terminal.launches import ALL
from hw4cli.cli.terminal.options import FILE, causal_option, folder_option, is_given, json_option, output_option, shared
from hw4cli.cli.terminal.params import Number, TileSizes, Whole, complete_command
from hw4cli.cli.terminal.sections import Sections
from hw4cli.errors import InputError
from hw4cli.plans.ladder import VARIANTS
from hw4cli.plans.registry import ARRAY_KERNELS
from hw4cli.system.importing import Importing
from hw4cli.system.interrupts import end_if_stuck


def _parse_peers(ctx: click.Context, param: click.Parameter, value: str | None) -> tuple[str, ...]:
    words = tuple(filter(None, re.split(r"[,\s]+", value or "")))
    if words:
        with Importing():
            from hw4cli.lab.peers import check_peers
        try:
            check_peers(words)
        except InputError as error:
            raise click.BadParameter(str(error), ctx, param) from None
    return words


ROOFS = "roofs"
PEERS_OF_TORCH = ("torch", "cudnn", "fa2", "efficient", "math")
PEERS = (
    *(*PEERS_OF_TORCH, "flash-attn", "flash-attn-2", "flash-attn-3", "flash-attn-4", "flash-attn-4-deterministic"),
    *("cudnn-frontend", "cudnn-frontend-deterministic", "cudnn-blocks", "cudnn-flex", "cudnn-flex-deterministic"),
    *("tlx", "flex", "flex-tf32"),
)
SAMPLING = {"warm", "error", "sustained", "warm_up"}  # of arrays a pause, too
OF_KERNELS = {"peers", "older", "against", "processes", "samples", *SAMPLING}
# The options of each of the three benchmarks, what asks for it, and the plain arguments that it takes.
OPTIONS = {
    "files": OF_KERNELS | {"causal", "tiles"},
    "arrays": OF_KERNELS | {"pause", "direction"},
    "calls": {"calls", "peers", "samples"},
    "programs": {"programs", "folder", "samples", "cold"},
}
ASKS = {"arrays": "a workload", "calls": "--calls", "programs": "--program"}


@click.command(
    cls=Sections,
    rare=["direction", "warm", "warm_up", "processes", "error", "pause", "sustained", "folder", "cold"],
    sections={
        "Kernels": ["causal", "direction", "tiles", "peers", "older", "against", "processes"],
        "Samples": ["samples", "warm_up", "warm", "error", "pause", "sustained"],
        "Calls and whole programs": ["calls", "programs", "folder", "cold"],
        "Results": ["as_json", "outputs"],
    },
)
@what_argument(KERNELS, CASES, SHAPES, WORKLOADS, kernels=[*VARIANTS, *ARRAY_KERNELS, ALL, ROOFS])
@causal_option
@click.option(
    "--pass",
    "direction",
    type=click.Choice(["fwd", "bwd", "both"]),
    default="fwd",
    show_default=True,
    help="For a workload: the forward pass, the backward pass, or both.",
)
@click.option(
    "--tile", "tiles", type=TileSizes(), multiple=True, metavar="BRxBC", help="Another tile; may be given again."
)
@click.option("--warm", is_flag=True, help="Leave the L2 cache as the run before left it.")
@click.option(
    "--peers",
    metavar="PEERS",
    callback=_parse_peers,
    help=f"Time others' attention, too, in turns: {', '.join(PEERS)}.",
)
@click.option(
    "--calls", is_flag=True, help="For workloads: time whole calls and the host's part of them, beside torch's."
)
@click.option("--compare", "older", type=FILE, help="Show what became faster or slower since this record.")
@click.option("--against", metavar="BUILD", help="Alternate with another build: a folder or a commit.")
@click.option(
    "--processes", type=Whole(1, 100), metavar="N", help="Processes of each build.  [default: 6 with --against]"
)
@shared("samples", type=Whole(1, 1000))
@click.option(
    "--error",
    type=Number(0.0001, 1),
    default=0.005,
    show_default=True,
    metavar="SHARE",
    help="Sample until the interval of each median is this share of it, to either side.",
)
@click.option("--pause", type=Number(0, 10), default=0, metavar="SECONDS", help="Let the GPU rest before each sample.")
@click.option("--sustained", is_flag=True, help="Also run each for 0.9 s without rest: power and energy.")
@click.option(
    "--warm-up", type=Whole(0, 1000), default=3, show_default=True, metavar="N", help="Runs before the first sample."
)
@shared("program", "programs", type=str, multiple=True, metavar="COMMAND", shell_complete=complete_command)
@folder_option
@click.option("--cold", is_flag=True, help="Drop the input from the page cache before each run.")
@json_option
@output_option(".json", ".csv", ".md")
@click.pass_context
def bench(ctx: click.Context, /, what: What, outputs: tuple[Path, ...], as_json: bool, **others: Any) -> int:
    """Time kernels or whole programs, or what this GPU reaches.

    \b
    hw4 bench flash split t28        kernels on a case, in turns
    hw4 bench all 4,16384,64         the ladder on a shape (B, N, d)
    hw4 bench half tilelang          arrays of 16 or 32 bits, with heads
    hw4 bench --calls bert gpt2      calls as a model makes them
    hw4 bench t11 --program ./mine   whole programs, hw4 among them
    hw4 bench roofs                  copy, L2, FMA, exp2, tensor cores

    A kernel is one of the ladder (default: flash) or a file, as in ./mine.cu. Each answer is checked first: what is
    wrong or cannot run is not timed, and the reason is printed. docs/performance.md has more.

    Exit status 1 if one was wrong, failed, or (with --compare) became slower.
    """
    from hw4cli.system.files import check_place

    kind = "programs" if others["programs"] else "calls" if others["calls"] else "arrays" if what.workloads else "files"
    _check_options(ctx, what, kind)
    if kind != "programs" and any(path.name.endswith(HYPERFINE) for path in outputs):
        raise click.UsageError(f"{HYPERFINE} is of whole programs: give --program, too", ctx)
    sources = [*what.kernels, *" ".join(others["programs"]).split(), others["older"] or ""]
    for path in outputs:
        check_place(path, *(Path(source) for source in sources if source))
    if ROOFS in what.kernels:
        from hw4cli.cli.terminal.roofs import measure_roofs

        return measure_roofs(as_json, outputs)
    if others["against"] is not None or others["processes"]:
        from hw4cli.cli.benchcommand.builds import SURE, arguments_of, bench_builds

        if others["older"]:
            raise click.UsageError("--compare and --against both name what to compare with: give one of them", ctx)
        _check_workloads(ctx, what)
        return bench_builds(arguments_of(ctx), others["against"], others["processes"] or SURE, as_json, outputs)
    if kind == "calls":
        from hw4cli.cli.benchcommand.calls import bench_calls

        return bench_calls(what.workloads, others["peers"], others["samples"] or CALL_BATCHES, as_json, outputs)
    if kind == "programs":
        from hw4cli.cli.benchcommand.programs import bench_programs

        samples = others["samples"] or PROGRAM_RUNS
        programs, folder, cold = others["programs"], others["folder"], others["cold"]
        return bench_programs(ctx, what, programs, folder, samples, cold, as_json, outputs)
    end_if_stuck()
    with Importing():
        from hw4cli.lab.sampling import Sampling
    samples, error, warm = others["samples"] or MOST_SAMPLES, others["error"], others["warm"]
    passed_on: dict[str, Any] = {
        "sampling": Sampling(samples, error, not warm, others["pause"], others["sustained"], others["warm_up"]),
        **{name: others[name] for name in OPTIONS[kind] - {"against", "processes", "pause", "samples", *SAMPLING}},
    }
    from hw4cli.cli.benchcommand.kernels import bench_arrays, bench_files

    return (bench_arrays if kind == "arrays" else bench_files)(ctx, what, as_json, outputs, **passed_on)


MOST_SAMPLES, CALL_BATCHES, PROGRAM_RUNS = 100, 20, 5  # of a kernel, of calls, of a program


def _check_workloads(ctx: click.Context, what: What) -> None:
    """Raise what processes would end with, for cases or workloads that there are not."""
    if what.workloads:
        from hw4cli.lab.arrays.named import workload

        for text in what.workloads:
            workload(text)
    else:
        what.named_shapes(ctx)


def _check_options(ctx: click.Context, what: What, kind: str) -> None:
    """Raise UsageError for what goes only with another kind of benchmark."""
    if ROOFS in what.kernels:
        given = [param.opts[0] for param in ctx.command.params if is_given(ctx, param.name or "")]
        others = [
            *(name for name in what.kernels if name != ROOFS),
            *filter(None, [what.cases]),
            *what.shapes,
            *what.workloads,
        ]
        if unfit := [*map(str, others), *({*given} - {"what", "-o", "--json"})]:
            raise click.UsageError(f"{unfit[0]} does not go with roofs, which are measured alone", ctx)
    for param in ctx.command.params:
        name = param.name or ""
        kinds = [one for one, options in OPTIONS.items() if name in options]
        if is_given(ctx, name) and kinds and kind not in kinds:
            wrong = f"does not go with {ASKS[kind]}" if kind in ASKS else f"goes only with {ASKS[kinds[0]]}"
            raise click.UsageError(f"{param.opts[0]} {wrong}", ctx)
    wrong_words = {
        "a kernel's name": kind in ("programs", "calls") and what.kernels,
        "a workload": kind == "programs" and what.workloads,
        "a shape": kind != "files" and what.shapes,
        "a case": kind in ("arrays", "calls") and what.cases,
    }
    for words, found in wrong_words.items():
        if found:
            raise click.UsageError(f"{words} does not go with {ASKS[kind]}", ctx)

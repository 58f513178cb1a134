"""`hw4 bench`: times of kernels on the device, or of whole programs."""

import re
from pathlib import Path
from typing import Any

import click

from hw4cli.compute.variants import VARIANTS
from hw4cli.errors import InputError
from hw4cli.problem.shape import Shape
from hw4cli.system.importing import Importing
from hw4cli.system.interrupts import end_if_stuck
from hw4cli.terminal.launches import OF_ARRAYS, OF_GRADIENTS, chosen_cases
from hw4cli.terminal.options import FILE, cases_option, causal_option, folder_option, format_option, shapes_option
from hw4cli.terminal.params import KernelName, Number, Whole, complete_command, complete_workloads
from hw4cli.terminal.sections import Sections


def _parse_tiles(_: click.Context, param: click.Parameter, values: tuple[str, ...]) -> list[dict[str, int]]:
    tiles = []
    for value in values:
        match = re.fullmatch(r"([1-9]\d*)x([1-9]\d*)", value)
        if not match:
            raise click.BadParameter(f"{value!r} is not a tile: give rows x keys, as in 128x32", param=param)
        tiles.append({"BR": int(match[1]), "BC": int(match[2])})
    return tiles


def _parse_peers(ctx: click.Context, param: click.Parameter, value: str | None) -> tuple[str, ...]:
    words = tuple(filter(None, re.split(r"[,\s]+", value or "")))
    if words:
        with Importing():
            from hw4cli.arraylab.peers import check_peers
        try:
            check_peers(words)
        except InputError as error:
            raise click.BadParameter(str(error), ctx, param) from None
    return words


ALL = "all"
PEERS = ("torch", "cudnn", "fa2", "efficient", "math", "flash-attn")
SAMPLING = {"warm", "samples", "error", "sustained"}  # of arrays a pause, too
KERNELS = {"kernels", "peers", "older", "against", "processes", *SAMPLING}
# The options of each of the three benchmarks, and the option that asks for it.
OPTIONS = {
    "files": KERNELS | {"cases", "shapes", "causal", "tiles"},
    "arrays": KERNELS | {"workloads", "pause", "direction"},
    "programs": {"cases", "programs", "folder", "runs", "cold"},
}
ASKS = {"arrays": "--workload", "programs": "--end-to-end"}


@click.command(
    cls=Sections,
    sections={
        "On what": ["cases", "shapes", "causal", "workloads", "direction"],
        "Kernels": ["tiles", "peers", "older", "against", "processes"],
        "Samples": ["warm", "samples", "error", "pause", "sustained"],
        "Whole programs": ["end_to_end", "programs", "folder", "runs", "cold"],
        "Results": ["form", "output"],
    },
)
@click.argument(
    "kernels", nargs=-1, type=KernelName([*VARIANTS, *OF_ARRAYS, *OF_GRADIENTS, ALL]), metavar="[KERNELS]..."
)
@cases_option("Cases of the suite, such as t22,t28-t30.")
@shapes_option("A shape; may be given several times.")
@causal_option("Causal attention: row i sees the keys 0 to i alone.")
@click.option(
    "--workload",
    "workloads",
    multiple=True,
    metavar="WORKLOAD",
    shell_complete=complete_workloads,
    help="Arrays with heads: a name or sizes (docs/workloads.md); may be given several times.",
)
@click.option(
    "--pass",
    "direction",
    type=click.Choice(["fwd", "bwd", "both"]),
    default="fwd",
    show_default=True,
    help="Of a workload: O, or dQ, dK and dV, or all.",
)
@click.option("--tile", "tiles", multiple=True, callback=_parse_tiles, metavar="BRxBC", help="Tiles to try instead.")
@click.option("--warm", is_flag=True, help="Leave the L2 cache as the run before left it.")
@click.option(
    "--peers",
    metavar="PEERS",
    callback=_parse_peers,
    help=f"Measure others' attention in the same run: of {', '.join(PEERS)}; FILE.py:FUNCTION.",
)
@click.option("--compare", "older", type=FILE, help="Show what became faster or slower since this record.")
@click.option(
    "--against", metavar="BUILD", help="In turns with another build: a folder, or a commit of this source tree."
)
@click.option(
    "--processes", type=Whole(1, 100), metavar="N", help="Processes of each build.  [default: 6 with --against]"
)
@click.option("--samples", type=Whole(1, 1000), default=100, show_default=True, help="The most samples of each kernel.")
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
@click.option("--end-to-end", is_flag=True, help="Time whole processes on --cases, not kernels.")
@click.option(
    "--program",
    "programs",
    multiple=True,
    metavar="COMMAND",
    shell_complete=complete_command,
    help="A command that takes INPUTFILE OUTPUTFILE, to compare hw4 with; may be given several times.",
)
@folder_option("Where the cases are (see hw4 gen).")
@click.option("--runs", type=Whole(1), default=5, show_default=True, help="Runs of each program.")
@click.option("--cold", is_flag=True, help="Drop the input from the page cache before each run.")
@format_option("table", "json", "csv", "markdown", "hyperfine")
@click.option("--output", type=FILE, help="Write the record there as JSON, too.")
@click.pass_context
def bench(
    ctx: click.Context,
    /,
    end_to_end: bool,
    cases: str,
    workloads: tuple[str, ...],
    form: str,
    output: Path | None,
    **others: Any,
) -> int:
    """Time KERNELS (default: flash; "all" is the whole ladder) on the GPU, in turns.

    A kernel is one of the ladder, or a file of your own, as in ./mine.cu (docs/kernels-of-your-own.md). Each answer is
    checked first: a kernel that is wrong or cannot run is not timed, and the reason is printed. Then the kernels take
    turns until the interval of each median is narrow. Example: hw4 bench flash float4 --cases t28 --peers torch

    With --workload: arrays of 16 or 32 bits, with heads, on the GPU. Example: hw4 bench half --workload tilelang
    --workload "B=2 H=16 N=8192 d=128 dtype=bf16 causal" --peers cudnn,fa2. With --pass bwd the gradients are
    timed, with --pass both O and the gradients; 2.5 and 3.5 times as many operations are counted, by convention.

    With --end-to-end: wall times of whole programs, from start to exit. Each --program and hw4 itself are checked on
    each case, then they take turns; ratios are to the first. Example: hw4 bench --end-to-end --cases
    t11-t13 --program ./hw4

    With --compare: only what exceeds the spread from run to run is called faster or slower, and a warm record is not
    compared with a cold one.

    With --against: processes of another build and of this one take turns, A B A B, and the spread within and between
    processes is shown (--processes alone: of this build). Example: hw4 bench flash --cases t28 --against HEAD~3

    Exit status 0 if all went well, 1 if a kernel or program was wrong, failed, or (with --compare) became slower.
    """
    from hw4cli.system.files import check_place

    what = "programs" if end_to_end else "arrays" if workloads else "files"
    _check_options(ctx, what)
    if form == "hyperfine" and what != "programs":
        raise click.UsageError("--format hyperfine is of whole programs: give --end-to-end, too", ctx)
    if output:
        sources = [*others["kernels"], *" ".join(others["programs"]).split(), others["older"] or ""]
        check_place(output, *(Path(source) for source in sources if source))
    if others["against"] is not None or others["processes"]:
        from hw4cli.benchcommand.builds import SURE, arguments_of, bench_builds

        if others["older"]:
            raise click.UsageError("--compare and --against both name what to compare with: give one of them", ctx)
        _check_workloads(ctx, workloads, cases, others["shapes"])
        return bench_builds(arguments_of(ctx), others["against"], others["processes"] or SURE, form, output)
    if what != "programs":
        end_if_stuck()
    given = {**others, "cases": cases, "workloads": workloads}
    passed_on = OPTIONS[what] - {"against", "processes", "pause", *SAMPLING}
    chosen: dict[str, Any] = {name: given[name] for name in passed_on}
    if what == "programs":
        from hw4cli.benchcommand.programs import bench_programs

        return bench_programs(ctx=ctx, form=form, output=output, **chosen)
    with Importing():
        from hw4cli.lab.sampling import Sampling
    samples, error, warm = others["samples"], others["error"], others["warm"]
    chosen["sampling"] = Sampling(samples, error, not warm, others["pause"], others["sustained"])
    if what == "arrays":
        from hw4cli.benchcommand.arrays import bench_arrays

        return bench_arrays(ctx=ctx, form=form, output=output, **chosen)
    from hw4cli.benchcommand.files import bench_kernels

    return bench_kernels(ctx=ctx, form=form, output=output, **chosen)


def _check_workloads(ctx: click.Context, workloads: tuple[str, ...], cases: str, shapes: list[Shape]) -> None:
    """Raise what processes would end with, for cases or workloads that there are not."""
    if workloads:
        from hw4cli.arraylab.named import workload

        for text in workloads:
            workload(text)
    else:
        chosen_cases(ctx, cases, shapes)


def _check_options(ctx: click.Context, what: str) -> None:
    """Raise UsageError for an option that goes only with another kind of benchmark."""
    for param in ctx.command.params:
        name = param.name or ""
        given = ctx.get_parameter_source(name) is click.core.ParameterSource.COMMANDLINE
        kinds = [kind for kind, options in OPTIONS.items() if name in options]
        if given and kinds and what not in kinds:
            option = param.opts[0] if isinstance(param, click.Option) else "a kernel's name"
            wrong = f"does not go with {ASKS[what]}" if what in ASKS else f"goes only with {ASKS[kinds[0]]}"
            raise click.UsageError(f"{option} {wrong}", ctx)

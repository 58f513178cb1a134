"""`hw4 bench`: times of kernels on the device, or of whole programs."""

import json
import re
import statistics
import sys
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from hw4cli.compute.variants import DEFAULT, VARIANTS
from hw4cli.errors import MachineError
from hw4cli.problem.shape import Shape
from hw4cli.system.importing import Importing
from hw4cli.terminal.bar import LiveTable
from hw4cli.terminal.options import FILE, causal_option, folder_option, format_option, program_command, shapes_option
from hw4cli.terminal.params import KernelName, OneOf, Whole, complete_cases, complete_command
from hw4cli.terminal.sections import Sections
from hw4cli.text.words import columns, print_message, printable, wrapped

if TYPE_CHECKING:
    from hw4cli.device.gpu import Gpu
    from hw4cli.device.timing import GpuTimer
    from hw4cli.lab.bench import Implementation, KernelResult, Measurement
    from hw4cli.text.tables import Bars


def _parse_tiles(_: click.Context, param: click.Parameter, values: tuple[str, ...]) -> list[dict[str, int]]:
    tiles = []
    for value in values:
        match = re.fullmatch(r"([1-9]\d*)x([1-9]\d*)", value)
        if not match:
            raise click.BadParameter(f"{value!r} is not a tile: give rows x keys, as in 128x32", param=param)
        tiles.append({"BR": int(match[1]), "BC": int(match[2])})
    return tiles


KERNELS_ONLY = {"kernels", "shapes", "causal", "tiles", "warm", "peers", "older"}
PROGRAMS_ONLY = {"programs", "folder", "runs", "cold"}
ALL = "all"


@click.command(
    cls=Sections,
    sections={
        "On what": ["cases", "shapes", "causal"],
        "Kernels": ["tiles", "warm", "peers", "older"],
        "Whole programs": ["end_to_end", "programs", "folder", "runs", "cold"],
        "Results": ["form", "output"],
    },
)
@click.argument("kernels", nargs=-1, type=KernelName([*VARIANTS, ALL]), metavar="[KERNELS]...")
@click.option(
    "--cases",
    metavar="CASES",
    default="",
    shell_complete=complete_cases,
    help="Cases of the suite, such as t22,t28-t30.",
)
@shapes_option("A shape; may be given several times.")
@causal_option("Causal attention: row i sees the keys 0 to i alone.")
@click.option("--tile", "tiles", multiple=True, callback=_parse_tiles, metavar="BRxBC", help="Tiles to try instead.")
@click.option("--warm", is_flag=True, help="Leave the L2 cache as the run before left it.")
@click.option("--peers", type=OneOf(["torch"]), help="Measure others' attention in the same run.")
@click.option("--compare", "older", type=FILE, help="Show what became faster or slower since this record.")
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
@format_option("table", "json", "csv", "markdown")
@click.option("--output", type=FILE, help="Write the record there as JSON, too.")
@click.pass_context
def bench(ctx: click.Context, /, end_to_end: bool, cases: str, form: str, output: Path | None, **others: Any) -> int:
    """Time KERNELS (default: flash; "all" is the whole ladder) on the GPU, in turns.

    A kernel is one of the ladder, or a file of your own, as in ./mine.cu (docs/kernels-of-your-own.md). Each answer is
    checked first: a kernel that is wrong or cannot run is not timed, and the reason is printed. Then the kernels take
    turns until the interval of each median is narrow. Example: hw4 bench flash float4 --cases t28 --peers torch

    With --end-to-end: wall times of whole programs, from start to exit. Each --program and hw4 itself are checked on
    each case, then they take turns; ratios are to the first. Example: hw4 bench --end-to-end --cases
    t11-t13 --program ./hw4

    With --compare: only what exceeds the spread from run to run is called faster or slower, and a warm record is not
    compared with a cold one.

    Exit status 0 if all went well, 1 if a kernel or program was wrong, failed, or (with --compare) became slower.
    """
    from hw4cli.system.files import check_place

    _check_options(ctx, end_to_end)
    if output:
        check_place(output, *map(Path, [*others["kernels"], *" ".join(others["programs"]).split()]))
    names = PROGRAMS_ONLY if end_to_end else KERNELS_ONLY
    run = _bench_programs if end_to_end else _bench_kernels
    return run(ctx=ctx, cases=cases, form=form, output=output, **{name: others[name] for name in names})


def _check_options(ctx: click.Context, end_to_end: bool) -> None:
    """Raise UsageError for an option that goes only with the other kind of benchmark."""
    for param in ctx.command.params:
        given = ctx.get_parameter_source(param.name or "") is click.core.ParameterSource.COMMANDLINE
        what = param.opts[0] if isinstance(param, click.Option) else "a kernel's name"
        if given and end_to_end and param.name in KERNELS_ONLY:
            raise click.UsageError(f"{what} does not go with --end-to-end", ctx)
        if given and not end_to_end and param.name in PROGRAMS_ONLY:
            raise click.UsageError(f"{what} goes only with --end-to-end", ctx)


def _bench_programs(
    ctx: click.Context,
    cases: str,
    form: str,
    output: Path | None,
    programs: tuple[str, ...],
    folder: Path,
    runs: int,
    cold: bool,
) -> int:
    with Importing():
        from hw4cli.judge.runcase import check_present
        from hw4cli.lab import endtoend
        from hw4cli.problem import suite

    if not cases:
        raise click.UsageError("name the cases, as in --cases t01,t11-t13", ctx)
    selected = suite.select([cases])
    commands = [(" ".join(program.split()), *program_command(program, ctx)) for program in programs]
    compared = endtoend.with_distinct_names(
        [endtoend.Program(*command) for command in (*commands, ("hw4", *program_command(None, ctx)))]
    )
    check_present(selected, folder)
    rows: list[endtoend.ProgramResult] = []
    with LiveTable(["case", "program", "median s", "runs"]) as live:
        for case in selected:
            _announce(case.name)

            def show(one: endtoend.ProgramMeasurement, case: str = case.name) -> None:
                name, seconds = one.program.name, one.seconds
                middle = f"{statistics.median(seconds):.3f}" if seconds else one.status
                live.update((name, case), [case, name, middle, f"{len(seconds)} of {runs}"])

            rows += endtoend.measure(compared, case, folder, runs, cold, print_message, show)
    result = endtoend.program_record(compared, [*rows, *endtoend.sums(rows)], runs, cold)
    _publish(result, form, output)
    return 0 if all(row.status == "ok" for row in rows) else 1


def _bench_kernels(
    ctx: click.Context,
    cases: str,
    form: str,
    output: Path | None,
    kernels: tuple[str, ...],
    shapes: list[Shape],
    causal: bool,
    tiles: list[dict[str, int]],
    warm: bool,
    peers: str | None,
    older: Path | None,
) -> int:
    with Importing():
        from hw4cli.compute.measured import RUN_SPREAD
        from hw4cli.device.gpu import Gpu
        from hw4cli.device.ownkernel import kernel_named
        from hw4cli.device.timing import GpuTimer
        from hw4cli.lab.bench import benchmark_record, measure
        from hw4cli.lab.changes import check_comparable, compare
        from hw4cli.lab.tables import read_record
        from hw4cli.lab.times import median_interval

    then = None
    if older:
        then = read_record(older)
        check_comparable(then, older, cold=not warm)
    chosen = _cases(ctx, cases, shapes, causal)
    for name in kernels:
        if name != ALL:
            kernel_named(name)  # reports what is wrong with a file before a GPU is opened
    gpu = Gpu()
    timer = GpuTimer(gpu)
    implementations = _implementations(gpu, timer, kernels or (DEFAULT,), tiles, peers)
    before, sgemm = timer.clocks(), timer.sgemm_tflops()
    rows: list[KernelResult] = []
    with LiveTable(["kernel", "case", "median ms", "±", "n"]) as live:
        for case in chosen:
            _announce(case[0])

            def show(one: "Measurement", case: str = case[0]) -> None:
                median, low, high = median_interval(one.times)
                spread = f"{(high - low) / 2 / median:.1%}"
                live.update((one.name, case), [one.name, case, f"{median:.4g}", spread, str(len(one.samples))])

            rows += measure(timer, implementations, case, sgemm, not warm, show)
    _publish(benchmark_record(timer, rows, sgemm, cold=not warm, before=before), form, output)
    changes = compare(rows, then) if then else []
    if then and not changes:
        print_message(f"{older} has no kernel on a case of this run: nothing is compared")
    if then and then["machine"].get("gpu") != gpu.name:
        print_message(f"{older} was measured on another GPU, {then['machine'].get('gpu')}")
    for change in changes:
        click.echo(f"{change.kernel} {change.case}: {change.direction}, {change.ratio:.3f} of the older time", err=True)
    if changes:
        click.echo(
            f"faster and slower: by more than {RUN_SPREAD:.1%}, the spread of one kernel from run to run", err=True
        )
    bad = any(row.status != "ok" for row in rows) or any(change.direction == "slower" for change in changes)
    return 1 if bad else 0


def _announce(case: str) -> None:
    """Name the case that is now checked and measured: on a terminal, above the rows so far."""
    print(f"{case} …", file=sys.stderr, flush=True)


def _publish(result: dict[str, Any], form: str, output: Path | None) -> None:
    """Print a record; write it to `output`, if given."""
    from hw4cli.system.files import write_text

    click.echo(_formatted(result, form), nl=False)
    if output:
        write_text(output, json.dumps(result, indent=1) + "\n")


def _cases(ctx: click.Context, names: str, shapes: list[Shape], causal: bool = False) -> list[tuple[str, Shape, int]]:
    """(name, shape, seed) of what to measure on."""
    from hw4cli.problem import suite

    if not names and not shapes:
        raise click.UsageError("name the cases (--cases t22,t30) or a shape (--shape 4,16384,64)", ctx)
    named = [(case.name, case.shape, case.seed) for case in suite.select([names])] if names else []
    found = [*named, *((f"{shape.B}x{shape.N}x{shape.d}", shape, 0) for shape in shapes)]
    if not causal:
        return found
    return [(f"{name} causal", replace(shape, causal=True), seed) for name, shape, seed in found]


def _implementations(
    gpu: "Gpu", timer: "GpuTimer", kernels: tuple[str, ...], tiles: list[dict[str, int]], peers: str | None
) -> "list[Implementation]":
    from hw4cli.lab.bench import kernel_implementation

    names = dict.fromkeys(one for name in kernels for one in (VARIANTS if name == ALL else [name]))
    choices: list[dict[str, int] | None] = [*tiles] or [None]
    implementations = [kernel_implementation(gpu, timer, name, tile) for name in names for tile in choices]
    if peers == "torch":
        from hw4cli.lab.baselines import torch_implementations

        try:
            implementations += torch_implementations(gpu)
        except MachineError as reason:
            print_message(reason)
    return implementations


def _formatted(result: dict[str, Any], form: str) -> str:
    from hw4cli.lab.tables import CAUSAL_NOTE, table
    from hw4cli.text import tables

    if form == "json":
        return json.dumps(result, indent=1) + "\n"
    if form == "csv":
        return tables.comma_separated(result["rows"])
    who = "program" if result.get("kind") == "end-to-end" else "kernel"
    timed = [row for row in result["rows"] if row["status"] == "ok"]
    header, lines = table(timed, programs=who == "program")
    reasons = [
        printable(f"{r[who]} on {r['case']} {r['status']}: {r['reason']}") for r in result["rows"] if r["reason"]
    ]
    if any(row.get("causal") for row in timed):
        reasons.append(CAUSAL_NOTE)
    if form == "markdown":
        return tables.markdown(header, lines) + "".join(f"\n{line}\n" for line in reasons)
    width = columns(sys.stdout)
    notes = "".join(f"{wrapped(line, width)}\n" for line in reasons)
    return tables.plain(header, lines, width, _bars(timed)) + notes


def _bars(rows: list[dict[str, Any]]) -> "Bars":
    """Kernels' rates, which compare over cases; programs' times, as shares of the longest of their case."""
    from hw4cli.lab.tables import COLUMNS, PROGRAM_COLUMNS
    from hw4cli.text.bars import shares, shows_blocks
    from hw4cli.text.tables import Bars

    blocks = shows_blocks(sys.stdout)
    if rows and "program" in rows[0]:
        longest = {row["case"]: max(one["median"] for one in rows if one["case"] == row["case"]) for row in rows}
        return Bars("time", [row["median"] / longest[row["case"]] for row in rows], blocks, len(PROGRAM_COLUMNS))
    return Bars("rate", shares([row["tflops"] for row in rows]), blocks, len(COLUMNS))

"""`hw4 profile`: a profiler's metrics of kernels or of a program, beside a model; and the timeline of a block."""

import json
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from hw4cli.cli.terminal.grammar import CASES, KERNELS, SHAPES, WORKLOADS, What, what_argument
from hw4cli.cli.terminal.launches import ALL, compiled_table, launch_table, with_ladder
from hw4cli.cli.terminal.options import (
    causal_option,
    folder_option,
    is_given,
    json_option,
    output_option,
    program_command,
    shared,
    split_command,
    write_outputs,
)
from hw4cli.cli.terminal.params import OneOf, TileSizes, Whole, complete_command
from hw4cli.cli.terminal.sections import Sections
from hw4cli.errors import MachineError
from hw4cli.plans.ladder import VARIANTS
from hw4cli.plans.registry import ARRAY_KERNELS
from hw4cli.plans.registry import KERNELS as ENTRIES
from hw4cli.system.importing import Importing
from hw4cli.system.interrupts import end_if_stuck
from hw4cli.text.records import record_text
from hw4cli.text.words import columns, print_message, wrapped

if TYPE_CHECKING:
    from hw4cli.lab.measure.jobs import Job
    from hw4cli.lab.measure.profile import ProfiledLaunch
    from hw4cli.lab.measure.profilers import ProfiledGpu

# Of hw4cli.lab.measure.metrics, which completion need not import.
SETS = ("assignment", "memory", "steps", "stalls", "balance")
TIMELINE, OF_TIMELINE = "timeline", tuple(name for name, entry in ENTRIES.items() if entry.stamps)
TOOLS = {"nvprof": "nvprof", "ncu": "Nsight Compute", "rocprofv3": "rocprofv3"}


def _lengths(ctx: click.Context, param: click.Parameter, value: str | None) -> list[int]:
    words = value.split(",") if value else []
    if not all(word.strip().isdecimal() and 0 < int(word) < 2**31 for word in words):
        raise click.BadParameter(f"{value!r} is not a list of N, as in 512,1024,2048", ctx, param)
    return [int(word) for word in words]


@click.command(cls=Sections, rare=["sweep", "tiles", "folder", "tool", "srun", "block"])
@what_argument(KERNELS, CASES, SHAPES, WORKLOADS, kernels=[*VARIANTS, *ARRAY_KERNELS, ALL])
@shared("program", "programs", type=str, multiple=True, metavar="COMMAND", shell_complete=complete_command)
@causal_option
@click.option(
    "--sweep", callback=_lengths, metavar="N,N,...", help="Profile at each of these N instead of the shape's."
)
@click.option(
    "--tile",
    "tiles",
    type=TileSizes(stages=True),
    multiple=True,
    metavar="BRxBC",
    help="Another tile; may be given again.",
)
@folder_option
@click.option(
    "--set",
    "sets",
    multiple=True,
    type=OneOf((*SETS, TIMELINE)),
    help="Which metrics; may be given again.  [default: assignment]",
)
@click.option("--tool", type=OneOf([*TOOLS]), help="The profiler.  [default: the one that the GPU needs]")
@shared("srun", metavar="OPTIONS")
@click.option("--block", type=Whole(min=0), metavar="N", default=0, help="The block whose timeline is recorded.")
@json_option
@output_option(".json", ".csv", ".nvprof")
@click.pass_context
def profile(
    ctx: click.Context,
    /,
    what: What,
    programs: tuple[str, ...],
    causal: bool,
    sweep: list[int],
    tiles: list[dict[str, int]],
    folder: Path,
    sets: tuple[str, ...],
    tool: str | None,
    srun: str | None,
    block: int,
    as_json: bool,
    outputs: tuple[Path, ...],
) -> int:
    """Count what kernels or programs do on the GPU, or record when.

    \b
    hw4 profile flash t28 --set memory
    hw4 profile all 16,4096,64               the ladder on a shape (B, N, d)
    hw4 profile flash t28 --program ./mine   both in one table
    hw4 profile flash t28 --set timeline -o timeline.json

    \b
    --set is
    assignment  occupancy, SM efficiency, throughputs
    memory      time, busy units, hit rates, bytes moved
    steps       25 metrics: conflicts, rates, stalls
    stalls      why warps wait, in shares
    balance     how long multiprocessors are idle at the end
    timeline    when a block of flash, split or half copies and multiplies

    By nvprof, Nsight Compute or rocprofv3, under nvprof's names. -o FILE.csv is the profiler's own table, which
    `hw4 report` and `hw4 plot` read.
    """
    if TIMELINE in sets:
        return record_timeline(ctx, what, block, as_json, outputs)
    if is_given(ctx, "block"):
        raise click.UsageError("--block goes only with --set timeline", ctx)
    with Importing():
        from hw4cli.device.ownkernel import kernel_named
        from hw4cli.lab.candidates import SPACES
        from hw4cli.lab.measure.profilers import (
            AMD,
            ClosedCountersError,
            Profiler,
            find_gpu,
            find_tool,
            machine_behind,
            tool_for,
            version_of,
        )
        from hw4cli.system.files import check_place

    if not what.kernels and not programs:
        raise click.UsageError("name kernels, or a program by --program", ctx)
    if programs and (what.shapes or causal or sweep or tiles):
        raise click.UsageError(
            "a shape, --causal, --sweep and --tile go with kernels alone: a program reads a case's file", ctx
        )
    names = with_ladder(what.kernels)
    arrays = what.workload(ctx, ARRAY_KERNELS, causal=causal, sweep=sweep, program=programs)
    if arrays and (unfit := [name for name in names if tiles and name not in SPACES]):
        raise click.UsageError(f"{unfit[0]} has one tile on a workload: --tile goes with {' and '.join(SPACES)}", ctx)
    if not arrays and any("STAGES" in tile for tile in tiles):
        raise click.UsageError("a tile of three numbers, BRxBCxSTAGES, is for half on a workload", ctx)
    tables_of = (len(sweep) or 1) * (len(tiles) or 1) * (bool(names) + len(programs))
    if tables_of > 1 and any(path.suffix == ".csv" for path in outputs):
        raise click.UsageError("a .csv takes what is profiled at once: kernels on one shape, or one program", ctx)
    commands = [program_command(program, ctx)[0] for program in dict.fromkeys(programs)]
    for path in outputs:
        check_place(path, *map(Path, [*names, *(word for command in commands for word in command)]))
    chosen = None if arrays else what.shape(ctx, causal)
    for own in () if arrays else names:
        kernel_named(own)  # or a wrong file would be found after the GPU and its profiler
    prefix = [] if srun is None else ["srun", *split_command(srun, "--srun", ctx)]
    gpu = find_gpu(prefix)
    if names and gpu.cc == AMD:
        raise MachineError(
            "kernels are profiled on NVIDIA's GPUs so far: here, profile hw4 as a program, as in "
            "t28 --program 'hw4 --kernel flash'"
        )
    name = TOOLS[tool] if tool else tool_for(gpu)
    profiler = Profiler(name, find_tool(name, prefix), prefix)
    version, here = version_of(profiler), machine_behind(prefix, gpu)
    records, own_tables, forms = [], list[str](), list[str]()
    with tempfile.TemporaryDirectory(prefix=".hw4-output-", dir="." if prefix else None) as place:
        from hw4cli.lab.measure import jobs
        from hw4cli.lab.measure.profile import record
        from hw4cli.lab.measure.profileforms import nvprof_form
        from hw4cli.problem import suite

        if arrays:
            wanted = [jobs.of_arrays(names, arrays, what.workloads[0], gpu, tile) for tile in tiles or (None,)]
        else:
            assert chosen is not None
            named = suite.select([what.cases])[0] if what.cases else None
            foreign = jobs.program_jobs(commands, named, folder, Path(place)) if named and commands else []
            shapes = jobs.swept(chosen, sweep)
            if ALL in what.kernels:
                names, reasons = jobs.startable(names, shapes, gpu)
                for reason in reasons:
                    print_message(reason)
            wanted = jobs.of_files(names, foreign, shapes, named, gpu, tiles or (None,))
        try:
            for one in wanted:
                found, text = jobs.profile(one, sets or ("assignment",), profiler, version)
                own_tables.append(text)
                forms.append(nvprof_form(found.launches, gpu.name))
                if not as_json:
                    _show(one.what, found.launches, profiler.tool, gpu)
                records.append(record(found, gpu.name, here))
        except ClosedCountersError as closed:
            print_message(closed)
            _print_static(wanted[0].jobs, gpu, as_json)
            return ClosedCountersError.exit_code
    document = record_text(records[0] if len(records) == 1 else records)
    if as_json:
        click.echo(document, nl=False)
    texts = {".json": lambda: document, ".csv": lambda: own_tables[0], ".nvprof": lambda: "".join(forms)}
    write_outputs(outputs, texts)
    return 0


def record_timeline(ctx: click.Context, what: What, block: int, as_json: bool, outputs: Sequence[Path]) -> int:
    """Record when one block of kernels copies, multiplies and takes exponentials, by the GPU's clock. The exit status.

    The kernels are flash, split where warpgroups multiply, and half on a workload. `hw4 plot` draws the record beside
    the kernel's steps.
    """
    given = [param.opts[0] for param in ctx.command.params if is_given(ctx, param.name or "")]
    if unfit := [name for name in given if name not in ("what", "--set", "--block", "--json", "-o")]:
        raise click.UsageError(f"{unfit[0]} does not go with --set timeline", ctx)
    if len(ctx.params["sets"]) > 1:
        raise click.UsageError("--set timeline is recorded alone, without other sets", ctx)
    for name in what.kernels:
        if name not in OF_TIMELINE:
            raise click.UsageError(f"the timeline is of {', '.join(OF_TIMELINE)}, not of {name}", ctx)
    if not what.kernels:
        raise click.UsageError("name flash or split and a case or a shape, or half and a workload", ctx)
    arrays = what.workload(ctx, ARRAY_KERNELS)
    shapes = [] if arrays else [shape for _, shape, _ in what.named_shapes(ctx)]
    if not as_json and not outputs:
        raise click.UsageError("the timeline is a record for `hw4 plot`: give -o FILE.json", ctx)
    if unfit := [str(path) for path in outputs if path.suffix != ".json"]:
        raise click.UsageError(f"{unfit[0]}: a timeline is a record, and ends in .json", ctx)
    with Importing():
        from hw4cli.device.gpu import Gpu
        from hw4cli.device.timing import GpuTimer
        from hw4cli.lab.cases import ArrayCase
        from hw4cli.lab.stepper.blocktimeline import measure, measure_arrays, record
        from hw4cli.system.files import check_place

    for path in outputs:
        check_place(path)
    end_if_stuck()
    gpu = Gpu()
    timer = GpuTimer(gpu)
    rows = [measure(gpu, kernel, shape, block) for kernel in what.kernels for shape in shapes]
    rows += [measure_arrays(timer, kernel, ArrayCase(arrays), block) for kernel in what.kernels if arrays]
    document = record_text(record(timer, rows))
    if as_json:
        click.echo(document, nl=False)
    write_outputs(outputs, {".json": lambda: document})
    return 0


def _show(what: str, launches: "Sequence[ProfiledLaunch]", tool: str, gpu: "ProfiledGpu") -> None:
    """Print a profile, with the sentence on the launch that takes the longest of hw4's, and of each program."""
    from hw4cli.lab.measure.profile import sentences
    from hw4cli.lab.measure.profileforms import model_table, table

    width = columns(sys.stdout)
    click.echo(wrapped(f"{what}: {gpu.name}, {tool}", width) + "\n")
    click.echo(table(launches, width))
    if beside := model_table(launches, width):
        click.echo(beside)
    for sentence in sentences(launches, tool):
        click.echo(wrapped(sentence, width))


def _print_static(jobs: "Sequence[Job]", gpu: "ProfiledGpu", as_json: bool) -> None:
    """What is known without counters: registers, spills, shared memory, occupancy and what limits it."""
    from hw4cli.lab.measure.gpus import model_for
    from hw4cli.lab.measure.static import FIELDS, of_kernels, of_program
    from hw4cli.text import tables

    props, width = model_for(gpu.name, gpu.cc).props, columns(sys.stdout)
    facts = of_kernels(jobs, props)
    known = [{"program": "", **{name: fact.record()[name] for name in FIELDS}} for fact in facts]
    for job in jobs:
        try:
            known += [{"program": job.program, **row} for row in (of_program(job, props) if job.program else ())]
        except MachineError as reason:
            print_message(reason)
    if as_json:
        click.echo(json.dumps(known, indent=1))
    else:
        if facts:
            click.echo(tables.plain(*launch_table(facts), width), nl=False)
        if known[len(facts) :]:
            click.echo("\n" * bool(facts) + tables.plain(*compiled_table(known[len(facts) :]), width), nl=False)

"""`hw4 profile`: a profiler's metrics of kernels or of a program, beside a model."""

import json
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from hw4cli.compute.variants import VARIANTS
from hw4cli.errors import MachineError
from hw4cli.problem.shape import Shape
from hw4cli.system.importing import Importing
from hw4cli.terminal.launches import (
    ALL,
    ARRAY_KERNELS,
    chosen_shape,
    chosen_workload,
    compiled_table,
    launch_table,
    with_ladder,
)
from hw4cli.terminal.options import (
    FILE,
    causal_option,
    folder_option,
    format_option,
    program_command,
    shape_option,
    split_command,
    workload_option,
)
from hw4cli.terminal.params import KernelName, OneOf, complete_cases, complete_command
from hw4cli.text.words import columns, print_message, wrapped

if TYPE_CHECKING:
    from hw4cli.arraymodel.jobs import Job
    from hw4cli.measure.profile import ProfiledLaunch
    from hw4cli.measure.profilers import ProfiledGpu

SETS = ("assignment", "memory", "steps", "stalls")  # of hw4cli.measure.metrics, which completion need not import
TOOLS = {"nvprof": "nvprof", "ncu": "Nsight Compute", "rocprofv3": "rocprofv3"}


def _lengths(ctx: click.Context, param: click.Parameter, value: str | None) -> list[int]:
    words = value.split(",") if value else []
    if not all(word.strip().isdecimal() and 0 < int(word) < 2**31 for word in words):
        raise click.BadParameter(f"{value!r} is not a list of N, as in 512,1024,2048", ctx, param)
    return [int(word) for word in words]


@click.command()
@click.argument("kernels", nargs=-1, type=KernelName([*VARIANTS, *ARRAY_KERNELS, ALL]), metavar="[KERNELS]...")
@click.option(
    "--program",
    "programs",
    multiple=True,
    metavar="COMMAND",
    shell_complete=complete_command,
    help="Profile a command that takes INPUTFILE OUTPUTFILE, all its launches; may be given again.",
)
@click.option("--case", metavar="CASE", shell_complete=complete_cases, help="A case of the suite, such as t28.")
@shape_option("A shape, for kernels.")
@causal_option("Causal attention, for kernels.")
@workload_option(f"Arrays, for {', '.join(ARRAY_KERNELS)}.")
@click.option("--sweep", callback=_lengths, metavar="N,N,...", help="For each of these N in place of the shape's.")
@folder_option("Where the cases are, for --program (see hw4 gen).")
@click.option(
    "--set", "sets", multiple=True, type=OneOf(SETS), help="Which metrics; may be given again.  [default: assignment]"
)
@click.option("--tool", type=OneOf([*TOOLS]), help="The profiler.  [default: the one that the GPU needs]")
@click.option("--srun", metavar="OPTIONS", help="Profile by srun with these options, as in '-p nvidia --gres=gpu:1'.")
@format_option("table", "nvprof", "json", "csv")
@click.option("--output", type=FILE, help="Write the profile there as JSON, too.")
@click.option("--log", type=FILE, help="Write the profiler's own table there, which `hw4 report` reads.")
@click.pass_context
def profile(
    ctx: click.Context,
    /,
    kernels: tuple[str, ...],
    programs: tuple[str, ...],
    case: str | None,
    shape: Shape | None,
    causal: bool,
    workload: str | None,
    sweep: list[int],
    folder: Path,
    sets: tuple[str, ...],
    tool: str | None,
    srun: str | None,
    form: str,
    output: Path | None,
    log: Path | None,
) -> int:
    """Count what KERNELS, or a program, do on the GPU, by nvprof, Nsight Compute or rocprofv3.

    "all" is the whole ladder, as far as the GPU can start it. Programs stand in one table with kernels.

    \b
    --set is
    assignment  occupancy, SM efficiency, throughputs
    memory      time, busy units, hit rates, bytes moved
    steps       25 metrics: conflicts, rates, stalls
    stalls      why warps wait, in shares

    Names and units are nvprof's, whichever tool counts. Of a kernel, the bytes that its plan should move stand beside
    those that it moved. Example: hw4 profile flash --case t28 --set memory
    """
    with Importing():
        from hw4cli.device.ownkernel import kernel_named
        from hw4cli.measure.profilers import AMD, ClosedCountersError, Profiler, find_gpu, find_tool, tool_for
        from hw4cli.system.files import check_place, write_text

    if not kernels and not programs:
        raise click.UsageError("name kernels, or a program by --program", ctx)
    if programs and (shape or causal or sweep):
        raise click.UsageError(
            "--shape, --causal and --sweep go with kernels alone: a program reads a case's file", ctx
        )
    names = with_ladder(kernels)
    arrays = chosen_workload(ctx, names, workload, (case, shape, causal, sweep, programs))
    if log and (len(sweep) or 1) * (bool(kernels) + len(programs)) > 1:
        raise click.UsageError("--log takes what is profiled at once: kernels on one shape, or one program", ctx)
    if output and log and output.resolve() == log.resolve():
        raise click.UsageError("--output and --log are one file: give each a name of its own", ctx)
    commands = [program_command(program, ctx)[0] for program in dict.fromkeys(programs)]
    for path in filter(None, (output, log)):
        check_place(path, *map(Path, [*names, *(word for command in commands for word in command)]))
    chosen = None if arrays else chosen_shape(ctx, case, shape, causal)
    for own in () if arrays else names:
        kernel_named(own)  # or a wrong file would be found after the GPU and its profiler
    prefix = [] if srun is None else ["srun", *split_command(srun, "--srun", ctx)]
    gpu = find_gpu(prefix)
    if names and gpu.cc == AMD:
        raise MachineError(
            "kernels are profiled on NVIDIA's GPUs so far: here, profile hw4 as a program, as in "
            "--program 'hw4 --kernel flash' --case t28"
        )
    name = TOOLS[tool] if tool else tool_for(gpu)
    profiler = Profiler(name, find_tool(name, prefix), prefix)
    records = []
    with tempfile.TemporaryDirectory(prefix=".hw4-output-", dir="." if prefix else None) as place:
        from hw4cli.arraymodel import jobs
        from hw4cli.measure.profile import record
        from hw4cli.problem import suite

        if arrays:
            wanted = [jobs.of_arrays(names, arrays, str(workload), gpu)]
        else:
            assert chosen is not None
            named = suite.select([case])[0] if case else None
            foreign = jobs.program_jobs(commands, named, folder, Path(place)) if named and commands else []
            shapes = jobs.swept(chosen, sweep)
            if ALL in kernels:
                names, reasons = jobs.startable(names, shapes, gpu)
                for reason in reasons:
                    print_message(reason)
            wanted = jobs.of_files(names, foreign, shapes, named, gpu)
        try:
            for one in wanted:
                launches, text = jobs.profile(one, sets or ("assignment",), profiler)
                if log:
                    write_text(log, text)
                _show(one.what, launches, profiler.tool, gpu, form)
                records.append(record(profiler.tool, gpu.name, one.what, launches))
        except ClosedCountersError as closed:
            print_message(closed)
            _print_static(wanted[0].jobs, gpu, form)
            return ClosedCountersError.exit_code
    _publish(records, form, output)
    return 0


def _show(what: str, launches: "Sequence[ProfiledLaunch]", tool: str, gpu: "ProfiledGpu", form: str) -> None:
    """Print a profile for people, or in nvprof's form, with the sentence on the launch that takes the longest of hw4's,
    and of each program."""
    from hw4cli.measure.profile import sentences
    from hw4cli.measure.profileforms import model_table, nvprof_form, table

    width = columns(sys.stdout)
    if form == "nvprof":
        click.echo(nvprof_form(launches, gpu.name), nl=False)
    if form != "table":
        return
    click.echo(wrapped(f"{what}: {gpu.name}, {tool}", width) + "\n")
    click.echo(table(launches, width))
    if beside := model_table(launches, width):
        click.echo(beside)
    for sentence in sentences(launches, tool):
        click.echo(wrapped(sentence, width))


def _publish(records: list[dict[str, Any]], form: str, output: Path | None) -> None:
    """Print records as JSON or CSV; write them to `output`, if given."""
    from hw4cli.system.files import write_text
    from hw4cli.text import tables

    document = json.dumps(records[0] if len(records) == 1 else records, indent=1) + "\n"
    if form == "json":
        click.echo(document, nl=False)
    elif form == "csv":
        flat = [
            {"of": one["of"], "launch": number, **{key: launch[key] for key in ("program", "kernel")}, **metric}
            for one in records
            for number, launch in enumerate(one["launches"])
            for metric in launch["metrics"]
        ]
        click.echo(tables.comma_separated(flat), nl=False)
    if output:
        write_text(output, document)


def _print_static(jobs: "Sequence[Job]", gpu: "ProfiledGpu", form: str) -> None:
    """What is known without counters: registers, spills, shared memory, occupancy and what limits it."""
    from hw4cli.arraymodel.static import FIELDS, of_kernels, of_program
    from hw4cli.measure.gpus import model_for
    from hw4cli.text import tables

    props, width = model_for(gpu.name, gpu.cc).props, columns(sys.stdout)
    facts = of_kernels(jobs, props)
    known = [{"program": "", **{name: fact.record()[name] for name in FIELDS}} for fact in facts]
    for job in jobs:
        try:
            known += [{"program": job.program, **row} for row in (of_program(job, props) if job.program else ())]
        except MachineError as reason:
            print_message(reason)
    if form == "json":
        click.echo(json.dumps(known, indent=1))
    elif form == "csv":
        click.echo(tables.comma_separated(known), nl=False)
    else:
        if facts:
            click.echo(tables.plain(*launch_table(facts), width), nl=False)
        if known[len(facts) :]:
            click.echo("\n" * bool(facts) + tables.plain(*compiled_table(known[len(facts) :]), width), nl=False)

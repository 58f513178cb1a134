"""`hw4 check`: compile kernels for every architecture, without a GPU."""

import json
import sys
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from click.core import ParameterSource

from hw4cli.cli.terminal.bar import Bar
from hw4cli.cli.terminal.grammar import CASES, KERNELS, PROGRAMS, SHAPES, What, what_argument
from hw4cli.cli.terminal.launches import ALL, with_ladder
from hw4cli.cli.terminal.options import causal_option, json_option, output_option, shared, write_outputs
from hw4cli.cli.terminal.params import FOLDER, FileName, Number, OneOf
from hw4cli.cli.terminal.programs import (
    ARGUMENTS,
    ProgramOptions,
    TakesArguments,
    check_program,
    programs_of,
    with_story_below,
)
from hw4cli.errors import InputError, KernelError, MachineError
from hw4cli.plans.ladder import VARIANTS
from hw4cli.plans.plan import AMD_DEVICES, DEVICES
from hw4cli.problem.workload import Workload
from hw4cli.resources import is_own_kernel
from hw4cli.system.importing import Importing
from hw4cli.text.progress import Progress
from hw4cli.text.words import columns, print_message, wrapped

if TYPE_CHECKING:
    from hw4cli.device.kernelcheck import CheckedLaunch
    from hw4cli.emulator.check import Mistake
    from hw4cli.plans.plan import DeviceProperties, Variant

ARCHITECTURES = {**{f"{cc / 10:.1f}": props for cc, props in DEVICES.items()}, **AMD_DEVICES}
BAR_DELAY = 1.0  # seconds: most checks are over by then


class Architecture(OneOf):
    """A compute capability such as 9.0; 90 and sm_90 are the same. An architecture of AMD's such as gfx90a. Or a GPU's
    name such as T4."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        """The architecture. InputError if it is none that is known."""
        from hw4cli.lab.measure.gpus import model_named

        digits = str(value).removeprefix("sm_").removesuffix("a")
        dotted = f"{digits[:-1]}.{digits[-1]}" if digits.isdecimal() and len(digits) > 1 else str(value)
        if dotted in self.choices:
            return dotted
        model = model_named(str(value))
        return model.gfx or f"{model.cc / 10:.1f}"


@click.command(cls=TakesArguments, rare=["include", "define", "seconds", "story", "stdin"])
@what_argument(KERNELS, PROGRAMS, CASES, SHAPES, kernels=[*VARIANTS, ALL], required=True)
@shared("gpu", "architectures", multiple=True, type=Architecture([*ARCHITECTURES]), metavar="GPU")
@causal_option
@click.option("--run", "execute", is_flag=True, help="Execute them on the CPU, and look for races and other mistakes.")
@click.option("--counts", is_flag=True, help="With --run: count bytes, conflicts, operations instead.")
@click.option("--include", type=FOLDER, multiple=True, metavar="DIR", help="A further folder of a program's headers.")
@click.option("-D", "define", multiple=True, metavar="NAME=VALUE", help="A macro that is set for a program.")
@click.option(
    "--seconds",
    type=Number(min=0),
    default=30,
    show_default=True,
    help="Limit of a program's processor time with --run; larger cases get more; 0: no limit.",
)
@click.option(
    "--story",
    type=Number(min=0),
    default=10,
    show_default=True,
    help="Processor time for finding the fewest thread switches that show a mistake; 0: do not look.",
)
@click.option(
    "--stdin",
    type=FileName(exists=True, dir_okay=False, path_type=Path),
    help="A file that a program reads as its standard input.",
)
@json_option
@output_option(".json", ".csv")
@click.pass_context
def check(
    ctx: click.Context,
    /,
    what: What,
    architectures: tuple[str, ...],
    causal: bool,
    execute: bool,
    counts: bool,
    include: tuple[Path, ...],
    define: tuple[str, ...],
    seconds: float,
    story: float,
    stdin: Path | None,
    as_json: bool,
    outputs: tuple[Path, ...],
) -> int:
    """Compile kernels or programs without a GPU, or execute them.

    \b
    hw4 check ./mine.cu             for every architecture
    hw4 check all --gpu 7.5         the ladder for one; --gpu may be given again
    hw4 check ./mine.cu --run       finds races, accesses out of bounds
    hw4 check flash 1,131,64 --run  on one shape (B, N, d)
    hw4 check ./mine.cu --run --counts  bytes, conflicts, operations
    hw4 check ./hw4.cu --run        a whole program, on small cases
    hw4 check ./a.cu --run -- 3 x   with these arguments

    For each launch: registers of a thread, bytes that spill, shared memory and threads of a block, how many blocks a
    multiprocessor holds, which share of its warps that is, and what limits it. Without a case or shape, it is for
    1,4096,64.

    With --run a C++ compiler makes programs of the kernels that run on the CPU, as for compute capability 8.0, on
    shapes with tails and on data that shows mistakes, causal too where the kernel is one of the ladder; a sentence for
    each mistake (docs/check.md).

    Exit status 1 if a kernel does not compile, lacks a function, cannot start, or is for none of the architectures; or
    if --run finds a mistake.
    """
    with Importing():
        from hw4cli.device.kernelcheck import check as check_one
        from hw4cli.device.kernelcheck import compiler_for
        from hw4cli.device.ownkernel import kernel_named
        from hw4cli.system.files import check_place

    if not execute and ctx.get_parameter_source("story") is ParameterSource.COMMANDLINE:
        raise click.UsageError("--story goes with --run", ctx)
    if counts and not execute:
        raise click.UsageError("--counts goes with --run", ctx)
    if what.programs:
        options = ProgramOptions(include, define, seconds, ctx.meta.get(ARGUMENTS), stdin, story)
        return _check_programs(ctx, what, architectures, causal, execute, counts, options, as_json, outputs)
    if given := [name for name, value in (("--include", include), ("-D", define), ("--stdin", stdin)) if value]:
        raise click.UsageError(f"{given[0]} is for a whole program", ctx)
    if ARGUMENTS in ctx.meta:
        raise click.UsageError("what stands behind -- is for a whole program", ctx)
    if not what.kernels:
        raise click.UsageError("name a kernel, as in flash or ./mine.cu", ctx)
    names = with_ladder(what.kernels)
    shape = what.shape(ctx, causal) if what.cases or what.shapes else None
    for path in outputs:
        check_place(path, *map(Path, names))
    variants = [kernel_named(name) for name in names]
    if execute:
        chosen = [ARCHITECTURES[name] for name in architectures or ["8.0"]]
        if counts:
            return _count(variants, chosen, shape, causal, as_json, outputs)
        return _execute(variants, chosen, shape, causal, story, as_json, outputs)
    devices = [props for name, props in ARCHITECTURES.items() if name in architectures] or [*DEVICES.values()]
    compilers, missing = {}, {}
    for props in devices:
        try:
            compilers[props] = compiler_for(props)
        except MachineError as error:
            missing[_name(props)] = error
    if not compilers:
        raise next(iter(missing.values()))
    rows: list[CheckedLaunch] = []
    progress = Progress(len(variants) * len(compilers))
    with Bar("compiling", progress, BAR_DELAY, wanted=True):
        for variant in variants:
            for props in devices:
                if props in compilers:
                    rows += check_one(variant, props, shape or Workload.one_head(1, 4096, 64, causal), compilers[props])
                    progress.add(1)
    found = [asdict(row) for row in rows]
    _publish(found, _table(rows, len(variants) > 1), as_json, outputs)
    for sentence in [*_problems(rows), *_not_compiled(missing)]:
        print_message(sentence)
    return 1 if any(row.wrong for row in rows) or not any(row.symbol for row in rows) else 0


def _check_programs(
    ctx: click.Context,
    what: What,
    architectures: tuple[str, ...],
    causal: bool,
    execute: bool,
    counts: bool,
    options: ProgramOptions,
    as_json: bool,
    outputs: Sequence[Path],
) -> int:
    """Compile whole programs, or run them on the CPU; 1 if anything is wrong with one."""
    with Importing():
        from hw4cli.system.files import check_place

    if causal:
        raise click.UsageError("--causal is for kernels: a program has its own mask", ctx)
    if options.arguments is not None and not execute:
        raise click.UsageError("what stands behind -- goes with --run", ctx)
    if options.stdin and not execute:
        raise click.UsageError("--stdin goes with --run", ctx)
    if options.stdin and options.stdin.is_fifo():
        raise InputError(
            f"{options.stdin} is a pipe: --stdin needs a file, which the program reads in each of its runs"
        )
    if execute and len(architectures) > 1:
        raise click.UsageError("a program runs as on one GPU: give --gpu once", ctx)
    files = [*what.programs, *(name for name in what.kernels if is_own_kernel(name))]
    if others := [name for name in what.kernels if not is_own_kernel(name)]:
        raise click.UsageError(f"{others[0]} is a kernel: check it by itself, without a program", ctx)
    for path in outputs:
        check_place(path, *map(Path, files))
    programs = programs_of(files, options.define)
    shape = what.shape(ctx) if what.cases or what.shapes else None
    if execute:
        gpu = architectures[0] if architectures else "8.0"
        return _execute_programs(programs, gpu, shape, counts, options, as_json, outputs)
    return _compile_programs(programs, architectures, options, as_json, outputs)


def _execute_programs(
    programs: Sequence[tuple[Path, ...]],
    gpu: str,
    shape: Workload | None,
    counts: bool,
    options: ProgramOptions,
    as_json: bool,
    outputs: Sequence[Path],
) -> int:
    """Run whole programs on the CPU, and print what is wrong with them or, of `counts`, what they do; 1 if anything is
    wrong with one."""
    with Importing():
        from hw4cli.cli.terminal.counts import count_program
        from hw4cli.lab.measure.gpus import model_named

    model = model_named(gpu)
    name = f"{'AMD' if model.gfx else 'NVIDIA'} {model.name}, executed on the CPU"
    records: list[dict[str, Any]] = []
    lines: list[str] = []
    texts: list[str] = []
    all_right = True
    for each in programs:
        if counts:
            own, text, right = count_program(each, model.props, name, options, shape)
            texts.append(text)
        else:
            own, its_lines, right = check_program(each, model.props, name, options, shape)
            lines += its_lines
        records += own
        all_right = all_right and right
    if lines:
        texts.append("".join(f"{wrapped(line, columns(sys.stdout), '    ', '')}\n" for line in lines))
    _publish(records, "\n".join(texts), as_json, outputs)
    return 0 if all_right else 1


def _compile_programs(
    programs: Sequence[tuple[Path, ...]],
    architectures: tuple[str, ...],
    options: ProgramOptions,
    as_json: bool,
    outputs: Sequence[Path],
) -> int:
    """Compile whole programs for each architecture, and print what compilers say; 1 if anything is wrong with one."""
    with Importing():
        from hw4cli.device.programcheck import check_program as compile_one
        from hw4cli.device.programcheck import has_hipcc
        from hw4cli.emulator.program.build import Source

    rows: list[CheckedLaunch] = []
    missing: dict[str, MachineError] = {}
    notes: list[str] = []
    chosen = [props for name, props in ARCHITECTURES.items() if name in architectures]
    progress = Progress()
    with Bar("compiling", progress, BAR_DELAY, wanted=True):
        for each in programs:
            is_hip = Source(each).hip
            if is_hip and not has_hipcc():
                row, note = _compiled_for_cpu(each, options)
                rows += [row] if row else []
                notes += [note] if note else []
                continue
            devices = chosen or [*(AMD_DEVICES if is_hip else DEVICES).values()]
            progress.grow(len(devices))
            for props in devices:
                try:
                    rows += compile_one(each, props, options.include, options.define)
                except MachineError as error:
                    missing[_name(props)] = error
                progress.add(1)
    if not rows and missing:
        raise next(iter(missing.values()))
    _publish([asdict(row) for row in rows], _table(rows, len(programs) > 1), as_json, outputs)
    for sentence in [*_problems(rows), *_not_compiled(missing), *notes]:
        print_message(sentence)
    return 1 if any(row.wrong for row in rows) else 0


def _compiled_for_cpu(files: tuple[Path, ...], options: ProgramOptions) -> "tuple[CheckedLaunch | None, str]":
    """What a compiler for the CPU finds wrong with a HIP program, where there is no hipcc; or a sentence."""
    from hw4cli.device.kernelcheck import CheckedLaunch
    from hw4cli.emulator.program.build import Source, compile_program

    try:
        compile_program(Source(files, options.include, options.define), lanes=64, watched=False)
    except InputError as error:
        sentence, name = str(error), f"{files[0].name} "
        if not sentence.startswith(f"{name}does not compile for the CPU"):  # it needs what the CPU has not
            return None, sentence
        return CheckedLaunch(str(files[0]), "the CPU", problem=sentence.removeprefix(name), wrong=True), ""
    return None, f"{files[0]} is C++ for a CPU's compiler; hipcc, which says more, is not installed"


def _execute(
    variants: "list[Variant]",
    devices: "list[DeviceProperties]",
    shape: Workload | None,
    causal: bool,
    story: float,
    as_json: bool,
    outputs: Sequence[Path],
) -> int:
    """Run kernels on the CPU and print what is wrong with them; 1 if anything is."""
    with Importing():
        from hw4cli.emulator.check import ALL_CAUSAL, ALL_FULL, check_kernel

    progress = Progress()  # check_kernel says how much there is to do
    found: list[tuple[DeviceProperties, Mistake]] = []
    lacking: dict[str, KernelError] = {}
    with Bar("running", progress, BAR_DELAY, wanted=True):
        for variant in variants:
            for props in devices:
                if props.cc < variant.least_cc:
                    print_message(f"{variant.name} needs compute capability {variant.least_cc / 10}")
                else:
                    own = is_own_kernel(variant.name)  # it need not know the mask
                    shapes = ALL_CAUSAL if causal else ALL_FULL if own else (*ALL_FULL, *ALL_CAUSAL)
                    try:
                        mistakes = check_kernel(
                            variant,
                            props=props,
                            shape=shape,
                            shapes=shapes,
                            lanes=[props.lanes],
                            story=story,
                            progress=progress,
                        )
                    except KernelError as error:  # it lacks a function that will be launched
                        lacking.setdefault(variant.name, error)
                        mistakes = []
                    found += [(props, mistake) for mistake in mistakes]
    records = [{"compute_capability": _name(props), **mistake.record()} for props, mistake in found]
    shown = {str(one): one.story for _, one in reversed(found)}
    texts = [*with_story_below((text, shown[text]) for text in dict.fromkeys(str(one) for _, one in found))]
    lines = [wrapped(line, columns(sys.stdout), "    ", "") for line in texts]
    wrong = {mistake.kernel for _, mistake in found} | {*lacking}
    lines += [f"{variant.name}: no mistake found" for variant in variants if variant.name not in wrong]
    _publish(records, "".join(f"{line}\n" for line in lines), as_json, outputs)
    for lack in lacking.values():
        print_message(lack)
    return 1 if wrong else 0


def _count(
    variants: "list[Variant]",
    devices: "list[DeviceProperties]",
    shape: Workload | None,
    causal: bool,
    as_json: bool,
    outputs: Sequence[Path],
) -> int:
    """Run kernels on the CPU and print what they do; 1 if one does not come to its end."""
    with Importing():
        from hw4cli.cli.terminal.counts import count_kernel

    records: list[dict[str, Any]] = []
    texts: list[str] = []
    status = 0
    progress = Progress()
    with Bar("counting", progress, BAR_DELAY, wanted=True):
        for variant in variants:
            for props in devices:
                try:
                    own, text = count_kernel(variant, props, shape, causal, progress)
                except KernelError as error:
                    print_message(error)
                    status = 1
                    continue
                records += [{"compute_capability": _name(props), **record} for record in own]
                texts.append(text)
    _publish(records, "\n".join(texts), as_json, outputs)
    return status


def _name(props: "DeviceProperties") -> str:
    return props.gfx or f"{props.cc / 10:.1f}"


def _publish(records: list[dict[str, Any]], text: str, as_json: bool, outputs: Sequence[Path]) -> None:
    """Print what was found, and write it to `outputs`."""
    from hw4cli.text import tables

    document = json.dumps(records, indent=1) + "\n"
    click.echo(document if as_json else text, nl=False)
    write_outputs(outputs, {".json": lambda: document, ".csv": lambda: tables.comma_separated(records)})


def _table(rows: "Sequence[CheckedLaunch]", several: bool) -> str:
    from hw4cli.text import tables

    shown = [row for row in rows if row.symbol]
    if not shown:
        return ""
    order = list(dict.fromkeys((row.kernel, row.symbol) for row in shown))
    amd = any(row.accumulation_registers is not None for row in shown)
    lines = [_cells(row, several, amd) for row in sorted(shown, key=lambda row: order.index((row.kernel, row.symbol)))]
    return tables.plain([*lines[0]], [[*line.values()] for line in lines], columns(sys.stdout))


def _cells(row: "CheckedLaunch", several: bool, amd: bool) -> dict[str, str]:
    """A row's cells by the titles of their columns; the kernel's name where there are several kernels; the registers of
    matrix cores where there is a GPU of AMD's."""
    shown = {
        "launch": row.symbol,
        "on": row.compute_capability,
        "registers": row.registers,
        **({"accumulation": row.accumulation_registers} if amd else {}),
        "spilled": row.spilled_bytes,
        "shared KB": None if row.shared_bytes is None else f"{row.shared_bytes / 1024:.1f}",
        "threads": row.threads,
        "blocks": row.blocks,
        "occupancy": None if row.occupancy is None else f"{row.occupancy:.0%}",
        "limited by": ", ".join(row.limited_by),
    }
    cells = {"kernel": row.kernel, **shown} if several else shown
    return {title: "-" if cell is None else str(cell) for title, cell in cells.items()}


def _problems(rows: "Sequence[CheckedLaunch]") -> list[str]:
    """A sentence for each problem of a kernel, with the architectures that it is on, where it is not on all."""
    found: dict[tuple[str, str], dict[str, None]] = {}
    for row in rows:
        if row.problem:
            found.setdefault((row.kernel, row.problem), {})[row.compute_capability] = None
    tried = {row.kernel: {one.compute_capability for one in rows if one.kernel == row.kernel} for row in rows}
    return [
        ("" if {*on} == tried[kernel] else f"for {_listed([*on])}: ") + f"{kernel} {problem}"
        for (kernel, problem), on in found.items()
    ]


def _not_compiled(missing: dict[str, MachineError]) -> list[str]:
    """A sentence for each compiler that is missing, where others are there."""
    found: dict[str, list[str]] = {}
    for name, error in missing.items():
        found.setdefault(str(error), []).append(name)
    return [f"nothing was compiled for {_listed(on)}: {reason}" for reason, on in found.items()]


def _listed(words: Sequence[str]) -> str:
    return " and ".join(filter(None, (", ".join(words[:-1]), words[-1])))

"""`hw4 check`: compile kernels for every architecture, without a GPU."""

import json
import sys
from collections.abc import Sequence
from dataclasses import asdict, replace
from typing import TYPE_CHECKING, Any

import click

from hw4cli.compute.plan import AMD_DEVICES, DEVICES
from hw4cli.compute.variants import VARIANTS
from hw4cli.errors import MachineError
from hw4cli.problem.shape import Shape
from hw4cli.resources import is_own_kernel
from hw4cli.system.importing import Importing
from hw4cli.terminal.bar import Bar
from hw4cli.terminal.options import causal_option, format_option, shape_option
from hw4cli.terminal.params import KernelName, OneOf
from hw4cli.text.progress import Progress
from hw4cli.text.words import columns, print_message, wrapped

if TYPE_CHECKING:
    from hw4cli.compute.plan import DeviceProperties, Variant
    from hw4cli.device.kernelcheck import CheckedLaunch

ALL = "all"
ARCHITECTURES = {**{f"{cc / 10:.1f}": props for cc, props in DEVICES.items()}, **AMD_DEVICES}
BAR_DELAY = 1.0  # seconds: most checks are over by then


class Architecture(OneOf):
    """A compute capability such as 9.0; 90 and sm_90 are the same. Or an architecture of AMD's such as gfx90a."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        """The compute capability. BadParameter if it is none that is known."""
        digits = str(value).removeprefix("sm_").removesuffix("a")
        dotted = f"{digits[:-1]}.{digits[-1]}" if digits.isdecimal() and len(digits) > 1 else value
        return super().convert(dotted, param, ctx)


@click.command()
@click.argument("kernels", nargs=-1, required=True, type=KernelName([*VARIANTS, ALL]), metavar="KERNELS...")
@click.option(
    "--arch",
    "architectures",
    multiple=True,
    type=Architecture([*ARCHITECTURES]),
    metavar="X.Y",
    help="A compute capability to compile for, or AMD's gfx90a, gfx908 or gfx1030; may be given several times.  "
    "[default: all compute capabilities that hw4 knows]",
)
@shape_option("The shape that tiles and launches are for.  [default: 1,4096,64]")
@causal_option("Check causal attention alone; else --run does so, too, with the kernels of the ladder.")
@click.option(
    "--run",
    "execute",
    is_flag=True,
    help="Execute them instead, on the CPU, on small inputs, and look for races and other mistakes.  "
    "[--arch: 8.0 by default]",
)
@format_option("table", "json", "csv")
def check(
    kernels: tuple[str, ...],
    architectures: tuple[str, ...],
    shape: Shape | None,
    causal: bool,
    execute: bool,
    form: str,
) -> int:
    """Compile KERNELS for every architecture, without a GPU, and count what they use.

    A kernel is one of the ladder, a file of your own, as in ./mine.cu (docs/kernels-of-your-own.md), or "all". For each
    of its launches: registers of a thread, bytes that spill, shared memory and threads of a block, how many blocks a
    multiprocessor holds, which share of its warps that is, and what limits it.

    With --run a C++ compiler makes programs of them that run on the CPU, on shapes with tails and on data that shows
    mistakes: a sentence for each race, each access where none may be, each wrong answer (docs/check.md).

    Exit status 1 if a kernel does not compile, lacks a function, cannot start, or is for none of the architectures; or
    if --run finds a mistake.
    """
    with Importing():
        from hw4cli.device.kernelcheck import check as check_one
        from hw4cli.device.kernelcheck import compiler_for
        from hw4cli.device.ownkernel import kernel_named

    names = dict.fromkeys(one for name in kernels for one in (VARIANTS if name == ALL else [name]))
    variants = [kernel_named(name) for name in names]
    if shape:
        shape = replace(shape, causal=causal)
    if execute:
        chosen = [ARCHITECTURES[name] for name in architectures or ["8.0"]]
        return _execute(variants, chosen, shape, causal, form)
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
                    rows += check_one(variant, props, shape or Shape(1, 4096, 64, causal), compilers[props])
                    progress.add(1)
    click.echo(_formatted(rows, form, len(variants) > 1), nl=False)
    for sentence in [*_problems(rows, len(compilers)), *_not_compiled(missing)]:
        print_message(sentence)
    return 1 if any(row.wrong for row in rows) or not any(row.symbol for row in rows) else 0


def _execute(
    variants: "list[Variant]", devices: "list[DeviceProperties]", shape: Shape | None, causal: bool, form: str
) -> int:
    """Run kernels on the CPU and print what is wrong with them; 1 if anything is."""
    with Importing():
        from hw4cli.emulator.check import ALL_CAUSAL, ALL_FULL, check_kernel

    from hw4cli.text import tables

    progress = Progress(len(variants) * len(devices))
    found = []
    with Bar("running", progress, BAR_DELAY, wanted=True):
        for variant in variants:
            for props in devices:
                if props.cc < variant.least_cc:
                    print_message(f"{variant.name} needs compute capability {variant.least_cc / 10}")
                else:
                    own = is_own_kernel(variant.name)  # it need not know the mask
                    shapes = ALL_CAUSAL if causal else ALL_FULL if own else (*ALL_FULL, *ALL_CAUSAL)
                    mistakes = check_kernel(variant, props=props, shape=shape, shapes=shapes, lanes=[props.lanes])
                    found += [(props, mistake) for mistake in mistakes]
                progress.add(1)
    records = [{"compute_capability": _name(props), **mistake.record()} for props, mistake in found]
    if form == "json":
        click.echo(json.dumps(records, indent=1))
    elif form == "csv":
        click.echo(tables.comma_separated(records), nl=False)
    else:
        for line in dict.fromkeys(str(mistake) for _, mistake in found):
            click.echo(wrapped(line, columns(sys.stdout), "    ", first=""))
        wrong = {mistake.kernel for _, mistake in found}
        for variant in variants:
            if variant.name not in wrong:
                click.echo(f"{variant.name}: no mistake found")
    return 1 if found else 0


def _name(props: "DeviceProperties") -> str:
    return props.gfx or f"{props.cc / 10:.1f}"


def _formatted(rows: "Sequence[CheckedLaunch]", form: str, several: bool) -> str:
    from hw4cli.text import tables

    if form == "json":
        return json.dumps([asdict(row) for row in rows], indent=1) + "\n"
    if form == "csv":
        return tables.comma_separated([asdict(row) for row in rows])
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


def _problems(rows: "Sequence[CheckedLaunch]", architectures: int) -> list[str]:
    """A sentence for each problem of a kernel, with the architectures that it is on, where it is not on all."""
    found: dict[tuple[str, str], dict[str, None]] = {}
    for row in rows:
        if row.problem:
            found.setdefault((row.kernel, row.problem), {})[row.compute_capability] = None
    return [
        ("" if len(on) == architectures else f"for {_listed([*on])}: ") + f"{kernel} {problem}"
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

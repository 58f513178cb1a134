"""`hw4 tune`: the fastest kernel and tile for a workload on this GPU."""

import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from hw4cli.cli.terminal.bar import LiveTable
from hw4cli.cli.terminal.grammar import CASES, KERNELS, SHAPES, WORKLOADS, What, what_argument
from hw4cli.cli.terminal.launches import chosen_gpu
from hw4cli.cli.terminal.options import causal_option, json_option, output_option, shared, write_outputs
from hw4cli.cli.terminal.params import OneOf, TileSizes
from hw4cli.errors import Hw4Error, os_error
from hw4cli.plans.kernels16 import ENTRIES16
from hw4cli.plans.ladder import VARIANTS
from hw4cli.plans.registry import ARRAY_KERNELS
from hw4cli.problem.workload import Workload
from hw4cli.system.importing import Importing
from hw4cli.system.interrupts import end_if_stuck
from hw4cli.system.machine import machine
from hw4cli.text.records import record_text
from hw4cli.text.words import columns, counted, print_message, printable, wrapped

if TYPE_CHECKING:
    from hw4cli.device.timing import GpuTimer
    from hw4cli.lab.arrays.named import NamedWorkload
    from hw4cli.lab.candidates import ArraySpace, FileSpace, Space, TunedRow
    from hw4cli.lab.sampling import Measurement

PRESETS = ("report", "triton", "tilelang")  # of hw4cli.lab.candidates, which completion need not import


OF_ARRAYS = tuple(name for name, entry in ENTRIES16.items() if entry.space)


@click.command()
@what_argument(KERNELS, CASES, SHAPES, WORKLOADS, kernels=[*VARIANTS, *OF_ARRAYS])
@causal_option
@click.option(
    "--tile", "tiles", type=TileSizes(), multiple=True, metavar="BRxBC", help="Another tile; may be given again."
)
@click.option("--preset", type=OneOf(PRESETS), help="Tiles that others have published (docs/tune.md).")
@click.option(
    "--quick", is_flag=True, help="Only the kernels' own tiles (half: each schedule), with five samples of each."
)
@shared("gpu", metavar="GPU")
@click.option("--no-keep", is_flag=True, help="Do not use the result in later runs of `hw4 IN OUT`.")
@json_option
@output_option(".json", ".csv")
@click.pass_context
def tune(ctx: click.Context, /, what: What, as_json: bool, outputs: tuple[Path, ...], **others: Any) -> int:
    """Find the fastest kernel and tile for a workload on this GPU.

    \b
    hw4 tune t28                 of split, split8, exact and flash
    hw4 tune flash 4,16384,64    the tiles of one kernel on a shape
    hw4 tune half lm8k           the tilings of half on a workload
    hw4 tune flash t28 --gpu T4  times nothing: what could start there

    What cannot start is listed with the reason. The others are checked against float64, then timed in turns until their
    medians are sure. `hw4 IN OUT` goes by what was found from then on, for inputs of that size, and says so with
    --timing; so does attention of arrays (docs/tune.md).

    Exit status 0 if a candidate was timed (or, with --gpu, could start), else 1.
    """
    with Importing():
        from hw4cli.device.ownkernel import kernel_named
        from hw4cli.lab.arrays.named import described
        from hw4cli.lab.candidates import AUTOMATIC, PRESETS, PRESETS16, FileSpace, sized
        from hw4cli.lab.cases import FileCase
        from hw4cli.system.files import check_place

    if others["tiles"] and others["preset"]:
        raise click.UsageError("--tile and --preset both name the tiles: give one of them", ctx)
    names = list(dict.fromkeys(what.kernels))
    arrays = what.workload(ctx, ARRAY_KERNELS, causal=others["causal"])
    if arrays and (not names or others["tiles"]):
        raise click.UsageError("a workload takes half or half_mma, whose tilings are of their own: no --tile", ctx)
    if arrays and others["preset"] and others["preset"] not in PRESETS16:
        raise click.UsageError(f"the preset {others['preset']} is of float32: name a case or a shape", ctx)
    for path in outputs:
        check_place(path, *(Path(name) for name in names if name.endswith(".cu")))
    end_if_stuck()
    if arrays:
        keeping = not (others["no_keep"] or others["quick"] or others["preset"])
        found, here = _of_arrays(names, arrays, others["gpu"], others["quick"], others["preset"] or "", keeping)
        work = arrays.work
        sizes = {"shape": [work.batch * work.heads, work.Nq, work.d], "dtype": work.dtype, "causal": work.causal}
        if work.kv_heads != work.heads or work.Nk != work.Nq:
            sizes = {}  # which a shape of three numbers cannot say
        shown = {"case": arrays.name, "workload": described(work), "seed": arrays.seed, **sizes}
        return _publish([(arrays.name, f"(B, H, N, d) = {shown['workload']}", shown, found)], here, as_json, outputs)
    cases = what.named_shapes(ctx, others["causal"])
    tiles = [sized(*tile) for tile in PRESETS[others["preset"]]] if others["preset"] else others["tiles"]
    variants = [kernel_named(name) for name in dict.fromkeys(names or AUTOMATIC)]
    spaces = [FileSpace(variants, FileCase(*case), tiles, others["quick"]) for case in cases]
    if others["gpu"]:
        results = [_result(space, _without_gpu(space, others["gpu"])) for space in spaces]
        return _publish(results, {}, as_json, outputs)
    results, here = _timed(spaces, others["quick"], not others["no_keep"], outputs)
    return _publish(results, here, as_json, outputs)


Result = tuple[str, str, dict[str, Any], "list[TunedRow]"]  # a workload, in words, as its record has it; candidates


def _result(space: "FileSpace", rows: "list[TunedRow]") -> Result:
    name, shape = space.case.name, space.case.work
    facts = {"case": name, "shape": [*shape.sizes], "causal": shape.causal, "seed": space.case.seed}
    return name, f"(B, N, d) = {shape}", facts, rows


def _document(results: Sequence[Result], machine: dict[str, Any]) -> str:
    """The record: where and when candidates were timed, and what became of them."""
    from hw4cli.lab.record import provenance

    timed = {**provenance(), "machine": machine}
    workloads = [{**facts, "rows": [row.record() for row in rows]} for *_, facts, rows in results]
    document = {"schema": 1, "kind": "tune", **(timed if machine else {}), "workloads": workloads}
    return record_text(document)


def _publish(results: Sequence[Result], machine: dict[str, Any], as_json: bool, outputs: Sequence[Path]) -> int:
    """Print what became of the candidates of each workload, and write it to `outputs`. The exit status."""
    from hw4cli.text import tables

    for name, words, _, rows in () if as_json else results:
        _show(name, words, rows)
    text = _document(results, machine)
    if as_json:
        click.echo(text, nl=False)
    flat = [{"case": facts["case"], **row.record()} for *_, facts, rows in results for row in rows]
    write_outputs(outputs, {".json": lambda: text, ".csv": lambda: tables.comma_separated(flat)})
    return 0 if any(row.status in ("ok", "fits") for *_, rows in results for row in rows) else 1


def _of_arrays(
    names: Sequence[str], case: "NamedWorkload", gpu: str | None, quick: bool, preset: str = "", keeping: bool = False
) -> "tuple[list[TunedRow], dict[str, Any]]":
    """Tune kernels of arrays, each by itself, on the GPU here, and name the machine; or, for one that is not, say what
    could start. Those that were refused come last."""
    from hw4cli.lab.candidates import ArraySpace
    from hw4cli.lab.cases import ArrayCase

    spaces = [ArraySpace(name, ArrayCase(case), quick, preset) for name in names]
    if gpu:
        found = [sorted(_without_gpu(space, gpu), key=lambda row: row.status == "refused") for space in spaces]
        return [row for rows in found for row in rows], {}
    timer, rows = _timer(), list["TunedRow"]()
    with LiveTable(["candidate", "median ms", "n"]) as live:
        for space in spaces:
            own = _tuned(timer, space, quick, lambda one, cells: live.update(one, [one, *cells]))
            if keeping:
                _keep_tiling(timer.gpu, space, own)
            rows += own
    return sorted(rows, key=lambda row: (row.status == "refused", row.median or 0.0)), machine(timer.machine())


def _without_gpu(space: "Space", gpu: str) -> "list[TunedRow]":
    """What could start on a GPU that is not here. Raises MachineError where there is no compiler for it."""
    from hw4cli.device.kernelcheck import compiler_for
    from hw4cli.lab.tune import filtered

    _, props, _ = chosen_gpu(gpu)
    return filtered(space, props, compiler_for(props))


def _timer() -> "GpuTimer":
    from hw4cli.device.gpu import Gpu
    from hw4cli.device.timing import GpuTimer

    return GpuTimer(Gpu())


def _tuned(timer: "GpuTimer", space: "Space", quick: bool, show: Callable[[str, list[str]], None]) -> "list[TunedRow]":
    """Tune a space; `show` gets a candidate's name, its median and number of samples after each of these."""
    from hw4cli.lab.times import median_interval
    from hw4cli.lab.tune import tune

    def notify(one: "Measurement") -> None:
        show(one.name, [f"{median_interval(one.times)[0]:.4g}", str(len(one.samples))])

    return tune(timer, space, quick, notify)


def _timed(
    spaces: "Sequence[FileSpace]", quick: bool, keeping: bool, outputs: Sequence[Path]
) -> tuple[list[Result], dict[str, Any]]:
    """Tune each case on the GPU here, and keep what `auto` may go by; and name the machine. Of what is cut off, a .json
    of `outputs` has the cases that came to their end."""
    from hw4cli.system.files import write_text

    timer, results = _timer(), list[Result]()
    here = machine(timer.machine())
    with LiveTable(["candidate", "case", "median ms", "n"]) as live:
        for space in spaces:
            name = space.case.name
            print(f"{printable(name)} …", file=sys.stderr, flush=True)

            def show(one: str, cells: list[str], name: str = name) -> None:
                live.update((one, name), [one, name, *cells])

            rows = _tuned(timer, space, quick, show)
            results.append(_result(space, rows))
            for path in outputs:
                if path.suffix == ".json":
                    write_text(path, _document(results, here))
            if keeping:
                _keep(timer.gpu, space.case.work, rows)
    return results, here


def _keep(gpu: Any, shape: Workload, rows: "Sequence[TunedRow]") -> None:
    """Keep what `auto` may go by: the order of all its kernels, or nothing if one of them was not timed."""
    from hw4cli.device.tuning.store import keep, machine_of
    from hw4cli.lab.candidates import automatic
    from hw4cli.lab.tune import finding
    from hw4cli.plans.dispatch import ranking

    own = ranking(gpu.props, gpu.name, shape.d, shape.N, shape.causal)[0][0]
    found = finding(rows, first=own)
    choices = automatic(shape, gpu.props)
    able = {name for name in choices if gpu.props.cc >= VARIANTS[name].least_cc and not gpu.props.gfx}
    if not able <= {*found.kernels}:
        return
    try:
        keep(machine_of(gpu), shape, found)
    except OSError as error:
        print_message(os_error(error, "keep what was found"))
    except Hw4Error as error:
        print_message(error)


def _keep_tiling(gpu: Any, space: "ArraySpace", rows: "Sequence[TunedRow]") -> None:
    """Keep the tiling that `attention` may go by, where it takes this kernel by itself: the fastest, or the kernel's
    own if none is surely faster."""
    from hw4cli.device.tuning.store import keep_tiling, machine_of
    from hw4cli.lab.tune import surest
    from hw4cli.plans.kernels16 import kernel16

    work = space.case.work
    best = surest(rows)
    if best is None or kernel16(work, gpu.props) != space.kernel:
        return
    tiling = next((one.tiling for one in space.candidates(gpu.props) if one.name == best.name), None)
    if tiling is None:
        return
    try:
        keep_tiling(machine_of(gpu), work, space.kernel, tiling)
    except OSError as error:
        print_message(os_error(error, "keep what was found"))
    except Hw4Error as error:
        print_message(error)


def _show(name: str, words: str, rows: "Sequence[TunedRow]") -> None:
    from hw4cli.lab.tune import gain
    from hw4cli.text import tables

    width, shown = columns(sys.stdout), [row for row in rows if row.status != "refused"]
    timed = any(row.median is not None for row in shown)
    click.echo(wrapped(f"{name}, {words}" if name not in words else words, width) + "\n")
    best = next((row.median for row in shown if row.median), None)
    lines = []
    for row in shown:
        low, high, middle = row.low or 0.0, row.high or 0.0, row.median or 0.0
        times = [f"{middle:.4g}", f"{(high - low) / 2 / middle:.1%}", f"{middle / best:.3f}"] if middle and best else []
        facts = [
            "-" if row.registers is None else str(row.registers),
            "-" if row.shared_bytes is None else f"{row.shared_bytes / 1024:.1f}",
            "-" if row.occupancy is None else f"{row.occupancy:.0%}",
        ]
        note = "its own" if row.own else "dropped" if row.status == "dropped" else ""
        lines.append([row.name, *(times or ["-"] * 3 * timed), *facts, note])
    header = ["candidate", *(["median ms", "±", "x best"] * timed), "registers", "shared KB", "occupancy", "tile"]
    if lines:
        click.echo(tables.plain(header, lines, width))
    alike: dict[str, list[str]] = {}
    for row in rows:
        if row.status == "refused":
            alike.setdefault(row.reason, []).append(row.name)
    for reason, (first, *others) in alike.items():
        names = f"{first} and {counted(len(others), 'other')}" if others else first
        click.echo(wrapped(f"{names}: {reason}", width, "    ", first=""))
    if timed:
        click.echo(wrapped(gain(rows), width))

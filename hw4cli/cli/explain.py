"""`hw4 explain`: the kernels, and of some their launches, traffic and limits, without running them."""

import json
import sys
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import click

from hw4cli.cli.terminal.bar import Bar
from hw4cli.cli.terminal.grammar import CASES, KERNELS, SHAPES, WORKLOADS, What, what_argument
from hw4cli.cli.terminal.launches import ALL, chosen_gpu, launch_table, traffic_table, with_ladder
from hw4cli.cli.terminal.options import causal_option, json_option, output_option, shared, write_outputs
from hw4cli.errors import InputError, MachineError
from hw4cli.plans.ladder import VARIANTS
from hw4cli.plans.plan import DeviceProperties, Plan, Variant
from hw4cli.plans.registry import ARRAY_KERNELS
from hw4cli.problem.workload import Workload
from hw4cli.resources import is_own_kernel
from hw4cli.system.importing import Importing
from hw4cli.text.progress import Progress
from hw4cli.text.words import columns, print_message, wrapped

if TYPE_CHECKING:
    from hw4cli.lab.arrays.named import NamedWorkload
    from hw4cli.lab.measure.explanation import LaunchFacts
    from hw4cli.plans.plan import LaunchModel


ROOFS = "roofs"
BAR_DELAY = 1.0  # seconds


@click.command()
@what_argument(KERNELS, CASES, SHAPES, WORKLOADS, kernels=[*VARIANTS, *ARRAY_KERNELS, ALL, ROOFS])
@causal_option
@shared("gpu", metavar="GPU")
@json_option
@output_option(".json", ".csv", ".md")
@click.pass_context
def explain(
    ctx: click.Context, /, what: What, causal: bool, gpu: str | None, as_json: bool, outputs: tuple[Path, ...]
) -> int:
    """Show all kernels, or launches, traffic and limits of some.

    \b
    hw4 explain                        the ladder: idea, tile, error of each
    hw4 explain flash t28 --gpu T4     what limits a kernel on a case
    hw4 explain all 4,200,64           the ladder on a shape (B, N, d)
    hw4 explain half tilelang          a kernel of arrays, on a workload
    hw4 explain roofs --gpu T4         what is known of a GPU's rates

    Needs no GPU: without --gpu it is the one here, or else an H100. Registers come from NVRTC, bytes and FLOPs from
    the kernel's plan, the least time of each resource from its rate: the one that `hw4 bench roofs` measured on this
    GPU, or the data sheet's (docs/explain.md).
    """
    from hw4cli.system.files import check_place

    for path in outputs:
        check_place(path, *(Path(name) for name in what.kernels))
    if what.kernels == (ROOFS,) and not (what.cases or what.shapes or what.workloads or causal):
        from hw4cli.cli.terminal.roofs import show_roofs

        return show_roofs(gpu, as_json, outputs)
    if ROOFS in what.kernels:
        raise click.UsageError("roofs are explained alone, without kernels, cases and shapes", ctx)
    if not what.kernels and not what.workloads and not causal:
        from hw4cli.cli.terminal.ladder import show_ladder

        d = what.shape(ctx).d if what.cases or what.shapes else 64
        return show_ladder(gpu, d, as_json, outputs)
    return explain_kernels(ctx, what, causal, gpu, as_json, outputs)


def explain_kernels(
    ctx: click.Context, what: What, causal: bool, gpu: str | None, as_json: bool, outputs: tuple[Path, ...]
) -> int:
    """Show how kernels are launched for a case, what they move and compute, and what limits them. The exit status."""
    if not what.kernels:
        raise click.UsageError("name a kernel, as in flash", ctx)
    with Importing():
        from hw4cli.device.kernelcheck import compiler_for
        from hw4cli.lab.measure.explanation import explain_plan
        from hw4cli.lab.measure.roofs import rates_of
        from hw4cli.text import tables

    names = with_ladder(what.kernels)
    arrays = what.workload(ctx, ARRAY_KERNELS, causal=causal)
    chosen = None if arrays else what.shape(ctx, causal)
    planned = _planner(names, chosen, arrays)
    name, props, model = chosen_gpu(gpu)
    rates, source = rates_of(model, gpu or name)
    try:
        compiler = compiler_for(props)
    except MachineError:
        compiler = None
    records, texts, code = [], list[str](), 0
    for kernel in names:
        try:
            plan, models, on, d, source_of_work = planned(kernel, props, model.cache)
            facts, unknown = explain_plan(plan.variant, plan, models, props, rates, compiler)
        except MachineError as error:
            print_message(error)
            code = MachineError.exit_code if kernel in what.kernels else code  # "all" is what the GPU can start
            continue
        heading = f"{kernel} on {on}: {name}, {props.architecture}, {props.sms} multiprocessors"
        text = partial(_text, heading, plan, facts, rates, source, unknown, d, props, source_of_work)
        texts.append(text(None))
        if not as_json:
            click.echo(("\n" if len(texts) > 1 else "") + text(columns(sys.stdout)), nl=False)
        tile = _tile(plan)
        records += [
            {"kernel": kernel, "gpu": name, "tile": tile, "splits": plan.splits, **fact.record()} for fact in facts
        ]
    if code and not records:
        return code
    document = json.dumps(records, indent=1) + "\n"
    if as_json:
        click.echo(document, nl=False)
    flat = [{**row, "least_seconds": json.dumps(row["least_seconds"])} for row in records]
    written = {
        ".json": lambda: document,
        ".csv": lambda: tables.comma_separated(flat),
        ".md": lambda: "\n".join(f"```\n{text}```\n" for text in texts),
    }
    write_outputs(outputs, written)
    return code


Planned = tuple[Plan, "list[LaunchModel]", str, int, str]
Planner = Callable[[str, DeviceProperties, int], Planned]


def _planner(names: Sequence[str], shape: Workload | None, arrays: "NamedWorkload | None") -> Planner:
    """What makes the plan of a kernel for a GPU with an L2 cache of so many bytes, the models of its launches, the
    workload in words, d, and of a kernel of the user's own where the models come from.

    Raises InputError for a file that is not a kernel.
    """
    from hw4cli.lab.measure.model import launch_models, planned_arrays

    if arrays:
        from hw4cli.lab.arrays.named import described

        def of_arrays(name: str, props: DeviceProperties, cache: int) -> Planned:
            plan, models = planned_arrays(name, arrays.work, props, cache)
            return plan, models, f"(B, H, N, d) = {described(arrays.work)}", arrays.work.d, ""

        return of_arrays
    from hw4cli.device.ownkernel import kernel_named

    assert shape is not None
    variants = {name: kernel_named(name) for name in names}

    def of_shape(name: str, props: DeviceProperties, cache: int) -> Planned:
        plan, on = variants[name].plan(shape, props), f"(B, N, d) = {shape}"
        if is_own_kernel(name):
            models, source = _of_own_kernel(variants[name], plan, shape, props, cache)
            return plan, models, on, shape.d, source
        return plan, launch_models(plan, shape, props, cache), on, shape.d, ""

    return of_shape


def _of_own_kernel(
    variant: Variant, plan: Plan, shape: Workload, props: DeviceProperties, cache: int
) -> "tuple[list[LaunchModel], str]":
    """The models of the launches of a kernel of the user's own, from what it does on the CPU; where nothing here
    executes it, from what every kernel of attention must do; and a sentence that says so."""
    from hw4cli.lab.measure.counted import counted_models
    from hw4cli.lab.measure.model import launch_models

    progress = Progress()
    try:
        with Bar("counting", progress, BAR_DELAY, wanted=True):
            models = counted_models(variant, shape, props, progress)
    except (MachineError, InputError) as error:
        least = (
            f"{error}: shown is what every fused kernel of attention must move and multiply; what {variant.name} does "
            "beside that is not known"
        )
        return launch_models(plan, shape, props, cache), least
    return models, (
        "bytes and operations are counted where the CPU executes the kernel on small shapes, and follow from them; "
        "what a block reads again is taken to come from its multiprocessor's own cache"
    )


def _text(
    heading: str,
    plan: Plan,
    facts: "Sequence[LaunchFacts]",
    rates: Mapping[str, float],
    source: str,
    unknown: str,
    d: int,
    props: DeviceProperties,
    source_of_work: str,
    width: int | None,
) -> str:
    """A kernel's heading, its tables of launches, traffic and limits, and sentences on its tile and nearest limit, in
    lines of so many columns, or whole ones."""
    from hw4cli.lab.measure.explanation import formula_tile, nearest
    from hw4cli.lab.measure.gpus import UNITS
    from hw4cli.text import tables

    longest, needed, total = nearest(facts)
    limits = [[name, f"{_rate(rates[name])} {UNITS[name]}/s", _ms(total[name])] for name in total]
    own, whole, own_tile = formula_tile(d), formula_tile(d, props.shared_limit), _tile(plan)
    tile = (
        f"{f'tile {own_tile} (rows x keys)' if own_tile else 'tiles that differ by pass'}, keys in {plan.splits} "
        f"part{'s' * (plan.splits > 1)}; the assignment's formula Bc = ceil(M/4d), Br = min(Bc, d) gives "
        f"{own[0]}x{own[1]} for M = 48 KB of floats"
    )
    if whole != own:
        tile += f", {whole[0]}x{whole[1]} for the {props.shared_limit >> 10} KB of a block here"
    sentences = [
        tile,
        _reuse_sentence(facts),
        _hits_sentence(facts),
        _nearest_sentence(longest, needed, total, rates, source),
    ]
    busiest = max(facts, key=lambda fact: max(fact.least.values(), default=0.0))
    if busiest.grid < props.sms:
        sentences[-1] += f"; {busiest.symbol} has blocks for {busiest.grid} of {props.sms} multiprocessors alone"
    if source_of_work:
        sentences.append(source_of_work)
    if unknown:
        sentences.insert(0, f"{unknown}: without them, occupancy is that of threads and shared memory alone")
    parts = [
        f"{wrapped(heading, width)}\n",
        tables.plain(*launch_table(facts), width),
        tables.plain(*traffic_table(facts), width),
        tables.plain(["limit", f"rate ({source})", "at least ms"], limits, width),
        "".join(f"{wrapped(sentence, width)}\n" for sentence in filter(None, sentences)),
    ]
    return "\n".join(parts)


def _hits_sentence(facts: "Sequence[LaunchFacts]") -> str:
    """Of each launch, how much of what blocks ask for is in the L2 cache."""
    rates = [f"{fact.symbol} {fact.model.l2_hits:.1%}" for fact in facts if fact.model.l2_hits is not None]
    return f"hits in the L2 cache, by the model: {', '.join(rates)}" if rates else ""


def _tile(plan: Plan) -> str:
    """A plan's tile, "" where its launches have tiles of their own."""
    return f"{plan.macros['BR']}x{plan.macros['BC']}" if "BR" in plan.macros else ""


def _reuse_sentence(facts: "Sequence[LaunchFacts]") -> str:
    """How often what a block brings to its multiprocessor is used there: why shared memory is worth its size."""
    used = [f"{fact.symbol} {fact.reuse:.3g}" for fact in facts if fact.reuse and fact.reuse >= 1]
    return f"reuse: bytes in shared memory for each from the L2 cache: {', '.join(used)}" if used else ""


def _nearest_sentence(
    longest: str, needed: float, total: Mapping[str, float], rates: Mapping[str, float], source: str
) -> str:
    from hw4cli.lab.measure.gpus import UNITS

    if not longest:
        return ""
    rate = f"{_rate(rates[longest])} {UNITS[longest]}/s"
    words = f"nearest limit: {longest}, at least {_ms(needed)} ms at {rate} ({source})"
    others = sorted((name for name in total if name != longest), key=lambda name: -total[name])
    if others:
        words += f"; then {others[0]}, {total[others[0]] / needed:.0%} of that"
    return words


def _ms(seconds: float) -> str:
    return f"{1e3 * seconds:.4g}"


def _rate(rate: float) -> str:
    return f"{rate:,.0f}" if rate >= 1000 else f"{rate:.4g}"

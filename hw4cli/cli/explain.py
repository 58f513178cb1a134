"""`hw4 explain`: a kernel's launches, traffic and limits, without running it."""

import json
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

import click

from hw4cli.compute.plan import DeviceProperties, Plan
from hw4cli.compute.variants import VARIANTS
from hw4cli.errors import MachineError
from hw4cli.problem.shape import Shape
from hw4cli.system.importing import Importing
from hw4cli.terminal.launches import (
    ALL,
    ARRAY_KERNELS,
    chosen_gpu,
    chosen_shape,
    chosen_workload,
    launch_table,
    traffic_table,
    with_ladder,
)
from hw4cli.terminal.options import causal_option, format_option, shape_option, workload_option
from hw4cli.terminal.params import KernelName, complete_cases
from hw4cli.text.words import columns, print_message, wrapped

if TYPE_CHECKING:
    from hw4cli.arraylab.named import NamedWorkload
    from hw4cli.measure.explanation import LaunchFacts
    from hw4cli.measure.model import LaunchModel


@click.command()
@click.argument(
    "kernels", nargs=-1, required=True, type=KernelName([*VARIANTS, *ARRAY_KERNELS, ALL]), metavar="KERNELS..."
)
@click.option("--case", metavar="CASE", shell_complete=complete_cases, help="A case of the suite, such as t28.")
@shape_option("A shape.")
@causal_option("Causal attention: row i sees the keys 0 to i alone.")
@workload_option(f"Arrays, for {', '.join(ARRAY_KERNELS)}.")
@click.option(
    "--gpu", metavar="GPU", help="A GPU or compute capability, as in T4 or 7.5.  [default: the one here, or else H100]"
)
@format_option("table", "json", "csv")
@click.pass_context
def explain(
    ctx: click.Context,
    /,
    kernels: tuple[str, ...],
    case: str | None,
    shape: Shape | None,
    causal: bool,
    workload: str | None,
    gpu: str | None,
    form: str,
) -> int:
    """Show how KERNELS are launched for a case, what they move and compute, and what limits them. Needs no GPU.

    Registers come from NVRTC, bytes and FLOPs from the kernel's plan, the least time of each resource from its rate:
    the one that `hw4 roofs` measured on this GPU, or the data sheet's (docs/explain.md).
    "all" is the whole ladder, as far as the GPU can start it.
    Example: hw4 explain flash split --case t28 --gpu T4; hw4 explain half --workload tilelang
    """
    with Importing():
        from hw4cli.device.kernelcheck import compiler_for
        from hw4cli.measure.explanation import explain_plan
        from hw4cli.measure.roofs import rates_of
        from hw4cli.text import tables

    names = with_ladder(kernels)
    arrays = chosen_workload(ctx, names, workload, (case, shape, causal))
    chosen = None if arrays else chosen_shape(ctx, case, shape, causal)
    planned = _planner(names, chosen, arrays)
    name, props, model = chosen_gpu(gpu)
    rates, source = rates_of(model, gpu or name)
    try:
        compiler = compiler_for(props)
    except MachineError:
        compiler = None
    records, code = [], 0
    for place, kernel in enumerate(names):
        try:
            plan, models, what, d = planned(kernel, props, model.cache)
            facts, unknown = explain_plan(plan.variant, plan, models, props, rates, compiler)
        except MachineError as error:
            print_message(error)
            code = MachineError.exit_code if kernel in kernels else code  # "all" is what the GPU can start
            continue
        if form == "table":
            heading = f"{kernel} on {what}: {name}, {props.architecture}, {props.sms} multiprocessors"
            text = _text(heading, plan, facts, rates, source, unknown, d, props)
            click.echo(("\n" if place else "") + text, nl=False)
        tile = _tile(plan)
        records += [
            {"kernel": kernel, "gpu": name, "tile": tile, "splits": plan.splits, **fact.record()} for fact in facts
        ]
    if form == "json":
        click.echo(json.dumps(records, indent=1))
    elif form == "csv":
        flat = [{**row, "least_seconds": json.dumps(row["least_seconds"])} for row in records]
        click.echo(tables.comma_separated(flat), nl=False)
    return code


Planner = Callable[[str, DeviceProperties, int], "tuple[Plan, list[LaunchModel], str, int]"]


def _planner(names: Sequence[str], shape: Shape | None, arrays: "NamedWorkload | None") -> Planner:
    """What makes the plan of a kernel for a GPU with an L2 cache of so many bytes, the models of its launches, the
    workload in words, and d.

    Raises InputError for a file that is not a kernel.
    """
    if arrays:
        from hw4cli.arraylab.named import described
        from hw4cli.arraymodel.launches import array_models, plan_of

        def of_arrays(name: str, props: DeviceProperties, cache: int) -> "tuple[Plan, list[LaunchModel], str, int]":
            plan = plan_of(name, arrays.work, props)
            return (
                plan,
                array_models(plan, arrays.work, props, cache),
                f"(B, H, N, d) = {described(arrays.work)}",
                arrays.work.d,
            )

        return of_arrays
    from hw4cli.device.ownkernel import kernel_named
    from hw4cli.measure.model import launch_models

    assert shape is not None
    variants = {name: kernel_named(name) for name in names}

    def of_shape(name: str, props: DeviceProperties, cache: int) -> "tuple[Plan, list[LaunchModel], str, int]":
        plan = variants[name].plan(shape, props)
        return plan, launch_models(plan, shape, props, cache), f"(B, N, d) = {shape}", shape.d

    return of_shape


def _text(
    heading: str,
    plan: Plan,
    facts: "Sequence[LaunchFacts]",
    rates: Mapping[str, float],
    source: str,
    unknown: str,
    d: int,
    props: DeviceProperties,
) -> str:
    """A kernel's heading, its tables of launches, traffic and limits, and sentences on its tile and nearest limit."""
    from hw4cli.measure.explanation import formula_tile, nearest
    from hw4cli.measure.gpus import UNITS
    from hw4cli.text import tables

    width = columns(sys.stdout)
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
    sentences = [tile, _nearest_sentence(longest, needed, total, rates, source)]
    busiest = max(facts, key=lambda fact: max(fact.least.values(), default=0.0))
    if busiest.grid < props.sms:
        sentences[1] += f"; {busiest.symbol} has blocks for {busiest.grid} of {props.sms} multiprocessors alone"
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


def _tile(plan: Plan) -> str:
    """A plan's tile, "" where its launches have tiles of their own."""
    return f"{plan.macros['BR']}x{plan.macros['BC']}" if "BR" in plan.macros else ""


def _nearest_sentence(
    longest: str, needed: float, total: Mapping[str, float], rates: Mapping[str, float], source: str
) -> str:
    from hw4cli.measure.gpus import UNITS

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

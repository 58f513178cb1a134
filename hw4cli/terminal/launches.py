"""The GPU and the shape that a command is asked for, and its tables of a kernel's launches."""

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import click

from hw4cli.compute.plan import DeviceProperties
from hw4cli.compute.variants import VARIANTS
from hw4cli.errors import MachineError
from hw4cli.problem.shape import Shape

if TYPE_CHECKING:
    from hw4cli.arraylab.named import NamedWorkload
    from hw4cli.measure.explanation import LaunchFacts

OF_ARRAYS = ("half", "half_mma", "half_split", "half_cores")
OF_GRADIENTS = ("backward_once", "backward_wgmma", "backward_mma", "backward", "backward_atomic")
ARRAY_KERNELS = (*OF_ARRAYS, *OF_GRADIENTS)  # those of hw4cli.arraymodel.launches.NAMES
UNNAMED = "9.0"  # whose GPU is taken where there is none here
ALL = "all"  # the whole ladder
Table = tuple[list[str], list[list[str]]]  # header and lines


def with_ladder(names: Sequence[str]) -> list[str]:
    """Kernels, each once, with all of the ladder in the place of ALL."""
    return list(dict.fromkeys(one for name in names for one in (VARIANTS if name == ALL else [name])))


def chosen_shape(ctx: click.Context, case: str | None, shape: Shape | None, causal: bool) -> Shape:
    """The shape of --case or --shape. Raises UsageError unless exactly one is given, InputError for an unknown case."""
    if (case is None) == (shape is None):
        raise click.UsageError("give one case (--case t28) or one shape (--shape 4,16384,64)", ctx)
    if case is not None:
        from hw4cli.problem import suite

        found = suite.select([case])
        if len(found) > 1:
            raise click.UsageError(f"--case takes one case, and {case} are {len(found)}", ctx)
        shape = found[0].shape
    assert shape is not None
    return replace(shape, causal=causal)


def chosen_cases(
    ctx: click.Context, names: str, shapes: Sequence[Shape], causal: bool = False
) -> list[tuple[str, Shape, int]]:
    """(name, shape, seed) of each of --cases and --shape. Raises UsageError if there is none, InputError for an unknown
    case."""
    from hw4cli.problem import suite

    if not names and not shapes:
        raise click.UsageError("name the cases (--cases t22,t30) or a shape (--shape 4,16384,64)", ctx)
    named = [(case.name, case.shape, case.seed) for case in suite.select([names])] if names else []
    found = [*named, *((f"{shape.B}x{shape.N}x{shape.d}", shape, 0) for shape in shapes)]
    return [(f"{name} causal" if causal else name, replace(shape, causal=causal), seed) for name, shape, seed in found]


def chosen_workload(
    ctx: click.Context, kernels: Sequence[str], text: str | None, others: Sequence[object]
) -> "NamedWorkload | None":
    """The workload of --workload, None where it is not given; `others`: the options that say what it says, too.

    Raises UsageError where kernels of arrays and of files' cases are mixed, InputError for what is no workload.
    """
    for name in kernels:
        if text is None and name in ARRAY_KERNELS:
            raise click.UsageError(f"{name} computes arrays: give --workload, as in --workload tilelang", ctx)
        if text is not None and name not in ARRAY_KERNELS:
            raise click.UsageError(f"{name} computes files' cases: give --case or --shape, not --workload", ctx)
    if text is None:
        return None
    if any(others):
        raise click.UsageError("--workload says all: leave out --case, --shape, --causal, --sweep and --program", ctx)
    from hw4cli.arraylab.named import workload

    return workload(text)


def chosen_gpu(name: str | None) -> tuple[str, DeviceProperties, Any]:
    """Name, properties and model of the GPU that is asked for, or else of the one here, or else of an H100.

    Raises InputError for a GPU that is not known.
    """
    from hw4cli.measure.gpus import model_like, model_named

    if name is not None:
        model = model_named(name)
        return model.name, model.props, model
    from hw4cli.device.gpu import Gpu

    try:
        gpu = Gpu()
    except MachineError:
        model = model_named(UNNAMED)
        return model.name, model.props, model
    return gpu.name, gpu.props, model_like(gpu.name, gpu.props)


def launch_table(facts: "Sequence[LaunchFacts]") -> Table:
    """Resources, occupancy and waves of each launch."""
    header = ["launch", "blocks", "threads", "registers", "spilled", "shared KB", "blocks/SM", "occupancy"]
    lines = [
        [
            fact.symbol,
            f"{fact.grid:,}",
            str(fact.threads),
            "-" if fact.registers is None else str(fact.registers),
            "-" if fact.spilled_bytes is None else str(fact.spilled_bytes),
            f"{fact.shared_bytes / 1024:.1f}",
            str(fact.blocks),
            f"{fact.occupancy:.0%}",
            f"{fact.waves:,.2f}",
            f"{fact.last_wave:.0%}",
            ", ".join(fact.limited_by),
        ]
        for fact in facts
    ]
    return [*header, "waves", "last wave", "limited by"], lines


def compiled_table(rows: Sequence[dict[str, Any]]) -> Table:
    """Resources and occupancy of a program's kernels, of hw4cli.arraymodel.static."""
    header = ["program", "kernel", "threads", "registers", "stack", "shared KB", "blocks/SM", "occupancy", "limited by"]
    return header, [
        [
            *(row["program"], row["launch"], str(row["threads"]), str(row["registers"]), str(row["spilled_bytes"])),
            *(f"{row['shared_bytes'] / 1024:.1f}", str(row["blocks"]), f"{row['occupancy']:.0%}"),
            ", ".join(row["limited_by"]),
        ]
        for row in rows
    ]


def traffic_table(facts: "Sequence[LaunchFacts]") -> Table:
    """What each launch moves and computes, by the model."""
    header = ["launch", "DRAM read MB", "written", "L2 to SM MB", "SM to L2 MB", "shared GB", "GFLOP", "by", "Gexp"]

    def line(fact: "LaunchFacts") -> list[str]:
        model = fact.model
        by = {"tensor": model.tensor_flops, "int8": model.int8_operations, "FFMA": model.ffma_flops}
        by |= {"DFMA": model.dfma_flops}
        flops = sum(by.values())
        return [
            fact.symbol,
            *(f"{moved / 1e6:,.1f}" if any(model.dram) else "-" for moved in model.dram),
            *(["-", "-"] if model.l2 is None else [f"{moved / 1e6:,.1f}" for moved in model.l2]),
            _gb(model.shared, model.operands),
            f"{flops / 1e9:,.1f}" if flops else "-",
            ", ".join(name for name, number in by.items() if number) or "-",
            f"{model.exponentials / 1e9:,.3f}" if model.exponentials else "-",
            f"{model.tiles:,}" if model.tiles else "-",
        ]

    return [*header, "tiles"], [line(fact) for fact in facts]


def _gb(by_threads: int | None, by_tensor_cores: int) -> str:
    return f"{((by_threads or 0) + by_tensor_cores) / 1e9:,.1f}" if by_threads or by_tensor_cores else "-"

"""The kernels and the GPU that a command is asked for, and its tables of a kernel's launches."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from hw4cli.errors import MachineError
from hw4cli.plans.ladder import VARIANTS
from hw4cli.plans.plan import DeviceProperties
from hw4cli.plans.registry import ARRAY_KERNELS

if TYPE_CHECKING:
    from hw4cli.lab.measure.explanation import LaunchFacts

UNNAMED = "9.0"  # whose GPU is taken where there is none here
ALL = "all"  # the whole ladder
KNOWN = frozenset((*VARIANTS, *ARRAY_KERNELS, ALL))
Table = tuple[list[str], list[list[str]]]  # header and lines


def with_ladder(names: Sequence[str]) -> list[str]:
    """Kernels, each once, with all of the ladder in the place of ALL."""
    return list(dict.fromkeys(one for name in names for one in (VARIANTS if name == ALL else [name])))


def chosen_gpu(name: str | None) -> tuple[str, DeviceProperties, Any]:
    """Name, properties and model of the GPU that is asked for, or else of the one here, or else of an H100.

    Raises InputError for a GPU that is not known.
    """
    from hw4cli.lab.measure.gpus import model_like, model_named

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
    """Resources and occupancy of a program's kernels, of hw4cli.lab.measure.static."""
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

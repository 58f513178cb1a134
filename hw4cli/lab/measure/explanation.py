"""A kernel's launches on a GPU in figures, without running them: resources, occupancy, waves, traffic, and the roof."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from hw4cli.device.occupancy import occupancy
from hw4cli.errors import MachineError
from hw4cli.lab.measure.gpus import DRAM, seconds
from hw4cli.lab.measure.model import launch_models
from hw4cli.plans.formulas import FLOAT, ceil_div
from hw4cli.plans.plan import SHARED_DEFAULT, DeviceProperties, LaunchModel, Plan, Variant
from hw4cli.problem.workload import Workload


@dataclass(frozen=True)
class LaunchFacts:
    """One launch: blocks and threads of one, registers of a thread and bytes spilled (None: not compiled), bytes of
    shared memory of a block; blocks that a multiprocessor holds, the share of its warps that they are, and by what they
    are limited; how many times all multiprocessors are filled (waves), and how full the last time is; the model of its
    work, and the least seconds that each resource of the multiprocessors that have a block needs for it."""

    symbol: str
    grid: int
    threads: int
    registers: int | None
    spilled_bytes: int | None
    shared_bytes: int
    blocks: int
    occupancy: float
    limited_by: tuple[str, ...]
    waves: float
    last_wave: float
    model: LaunchModel
    least: Mapping[str, float]

    @property
    def roof(self) -> str | None:
        """The resource that needs the longest; None if nothing is known of the work."""
        return max(self.least, key=lambda name: self.least[name], default=None)

    @property
    def reuse(self) -> float | None:
        """Bytes that threads move in shared memory for each from the L2 cache; None where either is unknown or there
        is none."""
        read = self.model.l2[0] if self.model.l2 else 0
        return self.model.shared / read if self.model.shared and read else None

    def record(self) -> dict[str, Any]:
        """All of it by name, as JSON and CSV have it."""
        model = self.model
        read, written = model.l2 or (None, None)
        return {
            "launch": self.symbol,
            "grid": self.grid,
            "threads": self.threads,
            "registers": self.registers,
            "spilled_bytes": self.spilled_bytes,
            "shared_bytes": self.shared_bytes,
            "blocks": self.blocks,
            "occupancy": self.occupancy,
            "limited_by": [*self.limited_by],
            "waves": self.waves,
            "last_wave": self.last_wave,
            "dram_read_bytes": model.dram[0],
            "dram_written_bytes": model.dram[1],
            "l2_to_sm_bytes": read,
            "sm_to_l2_bytes": written,
            "l2_hits": model.l2_hits,
            "shared_bytes_moved": model.shared,
            "shared_bytes_for_each_from_l2": self.reuse,
            "shared_bytes_of_tensor_cores": model.operands,
            "ffma_flops": model.ffma_flops,
            "dfma_flops": model.dfma_flops,
            "tensor_flops": model.tensor_flops,
            "int8_operations": model.int8_operations,
            "exponentials": model.exponentials,
            "tiles": model.tiles,
            "roof": self.roof,
            "least_seconds": dict(self.least),
        }


def explain(
    variant: Variant, shape: Workload, props: DeviceProperties, rates: Mapping[str, float], compiler: Any
) -> tuple[Plan, list[LaunchFacts], str]:
    """A kernel's plan for a shape, its launches, and why registers are not known, if they are not.

    `compiler` is one that compiles for the GPU, or None. Raises MachineError if the kernel cannot start there or
    does not compile.
    """
    plan = variant.plan(shape, props)
    return plan, *explain_plan(variant.name, plan, launch_models(plan, shape, props), props, rates, compiler)


def explain_plan(
    name: str,
    plan: Plan,
    models: Sequence[LaunchModel],
    props: DeviceProperties,
    rates: Mapping[str, float],
    compiler: Any,
) -> tuple[list[LaunchFacts], str]:
    """The same of a plan and the models of its launches."""
    used, unknown = _compiled(name, plan, props, compiler)
    facts = []
    for launch, model in zip(plan.launches, models, strict=True):
        own = used.get(launch.symbol)
        shared = launch.shared + (own.shared if own else 0)
        held = occupancy(props, own.registers if own else 1, shared, launch.block)
        slots = held.blocks * props.sms
        waves = launch.grid / slots if slots else 0.0
        facts.append(
            LaunchFacts(
                launch.symbol,
                launch.grid,
                launch.block,
                own.registers if own else None,
                own.spilled if own else None,
                shared,
                held.blocks,
                held.share,
                held.limited_by,
                waves,
                (launch.grid - (ceil_div(launch.grid, slots) - 1) * slots) / slots if slots else 0.0,
                model,
                seconds(model.amounts, _rates_of(launch.grid, props.sms, rates)),
            )
        )
    return facts, unknown


def _rates_of(blocks: int, sms: int, rates: Mapping[str, float]) -> dict[str, float]:
    """The rates that so many blocks reach at best: beside DRAM, resources are those of multiprocessors."""
    share = min(1.0, blocks / sms)
    return {name: rate if name == DRAM else rate * share for name, rate in rates.items()}


def _compiled(name: str, plan: Plan, props: DeviceProperties, compiler: Any) -> tuple[dict[str, Any], str]:
    from hw4cli.device.kernelcheck import compiled

    if compiler is None:
        return {}, f"there is no compiler for {props.architecture} here to count registers"
    made = compiled(name, plan, props, compiler)
    if made.wrong:
        where = made.wrong.replace("does not compile:", f"does not compile for {props.architecture}:", 1)
        raise MachineError(f"kernel {name} {where}")
    unknown = "" if made.used else f"NVRTC {compiler.version} is older than this GPU and does not count registers"
    return dict(made.used), unknown


def formula_tile(d: int, memory: int = SHARED_DEFAULT) -> tuple[int, int]:
    """The assignment's block sizes (Br, Bc): Bc = ceil(M / 4d) and Br = min(Bc, d), where M is the number of floats
    that so many bytes of on-chip memory hold.

    >>> formula_tile(64)
    (48, 48)
    """
    keys = ceil_div(memory // FLOAT, 4 * d)
    return min(keys, d), keys


def nearest(facts: Sequence[LaunchFacts]) -> tuple[str, float, dict[str, float]]:
    """The resource that all launches together need longest, those seconds, and the seconds of every resource."""
    total: dict[str, float] = {}
    for launch in facts:
        for name, needed in launch.least.items():
            total[name] = total.get(name, 0.0) + needed
    if not total:
        return "", 0.0, {}
    longest = max(total, key=lambda name: total[name])
    return longest, total[longest], total

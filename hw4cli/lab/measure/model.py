"""What each launch of a kernel moves and computes, by its plan: a model to put beside a profiler's counters.

The numbers are those of the formulas in the registry's entries (plans/work.py); here is added what the L2 cache cannot
hold until it is read again (cache.py).
"""

from hw4cli.device.occupancy import occupancy
from hw4cli.errors import MachineError
from hw4cli.lab.candidates import plan_of
from hw4cli.lab.measure.cache import with_again
from hw4cli.plans.arraykernel import ArrayKernel
from hw4cli.plans.formulas import ceil_div
from hw4cli.plans.plan import NOTHING_KNOWN, DeviceProperties, LaunchModel, Plan, Tile, Variant
from hw4cli.plans.registry import KERNELS
from hw4cli.plans.tensorwork import attention
from hw4cli.plans.work import fused
from hw4cli.problem.workload import Workload

TILE, MOST_TILES = 64, 1 << 21


def planned_arrays(
    kernel: str, work: Workload, props: DeviceProperties, cache: int = 0, tile: Tile | None = None
) -> tuple[Plan, list[LaunchModel]]:
    """The plan of a kernel of arrays, and the models of its launches. Raises MachineError where the kernel does not
    run, and for a workload that would take minutes to plan and to count."""
    if work.batch * work.heads * ceil_div(max(work.Nq, work.Nk), TILE) > MOST_TILES:
        raise MachineError(
            f"{kernel} has more than {MOST_TILES:,} tiles of {TILE} rows or keys in all heads, which would "
            "take minutes to count: give fewer heads, or a shorter sequence"
        )
    plan = plan_of(kernel, work, props, tile)
    return plan, launch_models(plan, work, props, cache)


def launch_models(plan: Plan, work: Workload, props: DeviceProperties, cache: int = 0) -> list[LaunchModel]:
    """The model of each launch of a plan. Of a kernel in a user's file, DRAM and FLOPs alone, as if it were fused.

    `cache`: bytes of the L2 cache; 0 for one that holds all.
    """
    found = _by_entry(plan, work, props)
    if not cache:
        return found
    held = [occupancy(props, 1, launch.shared, launch.block).blocks for launch in plan.launches]
    return [with_again(model, cache, blocks) for model, blocks in zip(found, held, strict=True)]


def _by_entry(plan: Plan, work: Workload, props: DeviceProperties) -> list[LaunchModel]:
    entry = KERNELS.get(plan.variant)
    if isinstance(entry, Variant | ArrayKernel):
        return entry.models(plan, work, props)
    formula = attention if "PV_PIECES" in plan.macros else fused
    return formula(NOTHING_KNOWN, plan, work.stored, props)

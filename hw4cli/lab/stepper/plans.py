"""Every kernel's plan for some cases on GPUs of every compute capability, as data that names each fact once."""

from collections.abc import Callable, Mapping
from dataclasses import asdict, replace
from typing import Any

import numpy as np

from hw4cli.errors import MachineError
from hw4cli.lab.stepper.ownership import is_known, layouts
from hw4cli.lab.stepper.work import ALGORITHM_1, UNITS, work
from hw4cli.plans.common import split_keys
from hw4cli.plans.formulas import FLOAT, ceil_div
from hw4cli.plans.ladder import VARIANTS, block_of
from hw4cli.plans.plan import DEVICES, DeviceProperties, Plan
from hw4cli.problem.workload import Workload

FIRST = "shared"  # the kernel to begin with: the first whose block is worth a walk


class Table:
    """Different values, each with a number."""

    def __init__(self) -> None:
        self.values: list[Any] = []
        self._numbers: dict[Any, int] = {}

    def number(self, key: Any, value: Callable[[], Any]) -> int:
        """The number of what has a key; of a new one, that of its value, which comes last."""
        if key not in self._numbers:
            self.values.append(value())
            self._numbers[key] = len(self.values) - 1
        return self._numbers[key]


def data(shapes: Mapping[str, Workload]) -> dict[str, Any]:
    """Plans of the kernels that steps are known of for named shapes: data that JSON can hold.

    plans[kernel][device][case] is a pair, without and with a causal mask, of [geometry, splits, the grid of each
    launch, bytes that the launches which convert or combine read, and write]; or of a sentence, why the kernel cannot
    start.
    """
    geometries, works = Table(), Table()
    kernels = {name: variant for name, variant in VARIANTS.items() if is_known(name)}

    def entry(name: str, props: DeviceProperties, shape: Workload) -> Any:
        try:
            plan = kernels[name].plan(shape, props)
        except MachineError as error:
            return str(error)
        sizes = tuple((launch.symbol, launch.block, launch.shared) for launch in plan.launches)
        macros = {**plan.macros, "CAUSAL": 0}  # blocks are made alike
        key = name, props.cc >= 90, tuple(macros.items()), sizes
        number = geometries.number(key, lambda: _geometry(plan, works, props))
        return [number, plan.splits, [launch.grid for launch in plan.launches], *_other_bytes(plan, shape)]

    def both(name: str, props: DeviceProperties, shape: Workload) -> list[Any]:
        return [entry(name, props, replace(shape, causal=causal)) for causal in (False, True)]

    return {
        "first": FIRST,
        "kernels": list(kernels),
        "devices": [{"cc": props.cc, "sms": props.sms, "shared": props.shared_limit} for props in DEVICES.values()],
        "cases": [[name, shape.B, shape.N, shape.d] for name, shape in shapes.items()],
        "plans": [
            [[both(name, props, shape) for shape in shapes.values()] for props in DEVICES.values()] for name in kernels
        ],
        "geometries": geometries.values,
        "works": works.values,
        "algorithm": asdict(ALGORITHM_1),
        "units": UNITS,
    }


def _geometry(plan: Plan, works: Table, props: DeviceProperties) -> dict[str, Any]:
    """What a plan says of each of its blocks."""
    macros, variant = plan.macros, VARIANTS[plan.variant]
    held, done = layouts(plan.variant, macros), work(block_of(plan.variant).walk, macros, props.cc)
    BR, BC, d, threads = (macros[name] for name in ("BR", "BC", "D", "THREADS"))
    return {
        "work": works.number(repr(done), lambda: asdict(done)),
        "BR": BR,
        "BC": BC,
        "d": d,
        "threads": threads,
        "width": macros.get("WIDTH", d),
        "stages": macros.get("STAGES", 1),
        "sub": macros.get("SUB", BC),  # keys after which m may move
        "threshold": macros.get("RESCALE_THRESHOLD", 0),
        "resident": macros.get("BLOCKS"),  # blocks on a multiprocessor, where the kernel says so
        "value_blocks": 1 if done.fused else ceil_div(BR * d, threads),  # that compute O of the rows
        "launches": [[launch.symbol, launch.block, launch.shared] for launch in plan.launches],
        "main": plan.main,
        "regions": list(variant.regions(d, macros).items()),
        "algorithm_regions": list(_algorithm_1_regions(BR, BC, d).items()),
        "scores": asdict(held[0]),
        "outputs": asdict(held[1]),
    }


def _algorithm_1_regions(BR: int, BC: int, d: int) -> dict[str, int]:
    """Shared memory of a block of Algorithm 1 with tiles of this size."""
    rows, keys = FLOAT * BR * d, FLOAT * BC * d
    return {"Q": rows, "K": keys, "V": keys, "S": FLOAT * BR * BC, "O": rows, "m, l": 2 * FLOAT * BR}


def _other_bytes(plan: Plan, shape: Workload) -> tuple[int, int]:
    """Bytes that launches before and after the main one read and write."""
    helpers = [helper_bytes(launch.symbol, plan, shape) for launch in plan.launches]
    return sum(read for read, _ in helpers), sum(written for _, written in helpers)


def helper_bytes(symbol: str, plan: Plan, shape: Workload) -> tuple[int, int]:
    """Bytes that a launch beside the main one reads and writes: K and V become tiles, parts become O. 0 of others."""
    layout = plan.layout
    if symbol.endswith("_convert"):
        return 2 * FLOAT * shape.elements, layout.row_stats - layout.tiles
    if symbol.endswith("_combine"):
        parts = layout.size - layout.row_stats
        return parts * _splits_with_keys(plan, shape) // (plan.splits * shape.N), FLOAT * shape.elements
    return 0, 0


def _splits_with_keys(plan: Plan, shape: Workload) -> int:
    """In how many splits a row has keys, all rows of a batch together: kernels/schedule.cuh, splits_of."""
    if not shape.causal:
        return plan.splits * shape.N
    keys = split_keys(shape.N, plan.macros["BC"], plan.splits)
    return int((np.arange(keys, shape.N + keys) // keys).sum())

"""Every kernel's plan for some cases on GPUs of every compute capability, as data that names each fact once."""

from collections.abc import Callable, Mapping
from dataclasses import asdict, replace
from typing import Any

from hw4cli.errors import MachineError
from hw4cli.lab.stepper.work import ALGORITHM_1, Work, work
from hw4cli.plans.formulas import FLOAT, ceil_div
from hw4cli.plans.ladder import VARIANTS
from hw4cli.plans.plan import DEVICES, UNITS, DeviceProperties, Plan
from hw4cli.plans.work import helper_bytes
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
    kernels = {name: variant for name, variant in VARIANTS.items() if variant.block.walk}

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
        "algorithm": _data(ALGORITHM_1),
        "units": UNITS,
    }


def _geometry(plan: Plan, works: Table, props: DeviceProperties) -> dict[str, Any]:
    """What a plan says of each of its blocks."""
    macros, variant = plan.macros, VARIANTS[plan.variant]
    assert variant.block.owns is not None
    (scores, outputs), done = variant.block.owns(macros), work(variant.block, macros, props.cc)
    BR, BC, d, threads = (macros[name] for name in ("BR", "BC", "D", "THREADS"))
    return {
        "work": works.number(repr(done), lambda: _data(done)),
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
        "scores": scores._asdict(),
        "outputs": outputs._asdict(),
    }


def _data(done: Work) -> dict[str, Any]:
    """A block's work, in dictionaries."""
    found = asdict(done)
    for part in found["parts"]:
        for phase in (*part["phases"], *part["inner"]):
            phase["moves"] = [move._asdict() for move in phase["moves"]]
    return found


def _algorithm_1_regions(BR: int, BC: int, d: int) -> dict[str, int]:
    """Shared memory of a block of Algorithm 1 with tiles of this size."""
    rows, keys = FLOAT * BR * d, FLOAT * BC * d
    return {"Q": rows, "K": keys, "V": keys, "S": FLOAT * BR * BC, "O": rows, "m, l": 2 * FLOAT * BR}


def _other_bytes(plan: Plan, shape: Workload) -> tuple[int, int]:
    """Bytes that launches before and after the main one read and write."""
    helpers = [helper_bytes(launch.symbol, plan, shape) for launch in plan.launches]
    return sum(read for read, _ in helpers), sum(written for _, written in helpers)

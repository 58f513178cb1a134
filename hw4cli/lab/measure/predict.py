"""Times that formulas predict for GPUs on which nobody has measured: python3 -m hw4cli.lab.measure.predict prints them.
What is predicted from counts, of any kernel, is in timing.py.

A prediction is a range. Its lower end: the longest of what each resource needs (`hw4 explain`), as if all else were
hidden behind it, where resources reach the share of their rates that they reached on an H200. Its upper end: nothing is
hidden, and the last blocks wait for one another. On H100s and H200s what was measured lies in the range (flash: on all
cases; split: on those from N = 2048 on); that says nothing about other architectures.
"""

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from hw4cli.device.occupancy import SIMDS
from hw4cli.device.ownkernel import kernel_named
from hw4cli.lab.measure.explanation import LaunchFacts, explain
from hw4cli.lab.measure.gpus import DRAM, EXP2, FFMA, L2, MODELS, REACHED, GpuModel, model_named
from hw4cli.lab.measure.timing import LAUNCH_SECONDS
from hw4cli.problem import suite
from hw4cli.problem.workload import Workload
from hw4cli.resources import data_path
from hw4cli.text.tables import markdown

MATRIX = str(data_path("kernels/hip/matrix.cu"))
PCIE_GB_PER_S = 12.0  # third generation, 16 lanes: what copies of pinned memory reach


@dataclass(frozen=True)
class Prediction:
    """The least and the most seconds that a kernel is predicted to take, and the resource that needs the longest."""

    least: float
    most: float
    roof: str

    def __str__(self) -> str:
        return f"{_rounded(1000 * self.least)} to {_rounded(1000 * self.most)}"


def _rounded(number: float) -> str:
    """A predicted number with two digits: it is not known better."""
    return f"{float(f'{number:.2g}'):g}"


def predict(kernel: str, shape: Workload, model: GpuModel) -> Prediction:
    """How long a kernel takes on a GPU. Raises MachineError if it cannot start there."""
    _, facts, _ = explain(kernel_named(kernel), shape, model.props, model.rates, None)
    return predicted(facts, model)


def predicted(facts: Sequence[LaunchFacts], model: GpuModel) -> Prediction:
    """How long launches take on a GPU, by what they move and compute."""
    ranges = [_launch(launch, model) for launch in facts]
    longest = max(facts, key=lambda launch: max(launch.least.values(), default=0.0))
    return Prediction(sum(low for low, _ in ranges), sum(high for _, high in ranges), longest.roof or "")


def _launch(launch: LaunchFacts, model: GpuModel) -> tuple[float, float]:
    waves = launch.blocks * math.ceil(launch.threads / model.props.lanes)
    busy = min(1.0, waves / SIMDS) if model.gfx else 1.0  # the share of the SIMDs that have a wavefront
    needed = {name: seconds / REACHED.get(name, 1.0) for name, seconds in launch.least.items()}
    for name in (FFMA, EXP2):
        needed[name] = needed.get(name, 0.0) / busy
    memory = max(needed.pop(DRAM, 0.0), needed.pop(L2, 0.0))
    last = math.ceil(launch.waves) / launch.waves if launch.waves else 1.0
    return max(memory, *needed.values()), max(memory, sum(needed.values())) * min(last, 2.0) + LAUNCH_SECONDS


def cases(kernels: Iterable[tuple[str, str]]) -> Iterator[dict[str, str]]:
    """A row for each case of the assignment: the predicted milliseconds of kernels, each on a GPU."""
    for case in suite.cases().values():
        found = {f"{kernel}, {gpu}": predict(_path(kernel), case.shape, model_named(gpu)) for kernel, gpu in kernels}
        moved = 16 * case.shape.elements / PCIE_GB_PER_S / 1e6
        cells = {title: str(one) for title, one in found.items()}
        yield {"case": case.name, "(B, N, d)": str(case.shape), **cells, "copies": _rounded(moved)}


def others() -> Iterator[dict[str, str]]:
    """A row for each GPU: flash and split on t22, where both run, and which is predicted to be the faster."""
    shape = suite.cases()["t22"].shape
    for model in MODELS:
        row = {"GPU": model.name, "architecture": model.gfx or f"{model.cc / 10:.1f}"}
        flash = predict("flash", shape, model)
        split = predict("split", shape, model) if model.cc >= kernel_named("split").least_cc else None
        first = "split" if split and split.most < flash.least else "flash" if not split else "not decided"
        yield {**row, "flash ms": str(flash), "split ms": "-" if split is None else str(split), "faster": first}


def _path(kernel: str) -> str:
    return MATRIX if kernel == "matrix" else kernel


COLUMNS = (("flash", "GTX 1080"), ("flash", "MI210"), ("matrix", "MI210"))
TABLES = {"cases": lambda: cases(COLUMNS), "others": others}


def table(name: str) -> str:
    """One of TABLES as Markdown."""
    rows = list(TABLES[name]())
    return markdown([*rows[0]], [[*row.values()] for row in rows])


if __name__ == "__main__":
    for name in TABLES:
        print(f"{name}\n\n{table(name)}")

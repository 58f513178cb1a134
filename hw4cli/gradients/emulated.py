"""kernels/backward.cu executed on the CPU, in all its detail: for tests, and for whoever changes the kernel."""

from dataclasses import dataclass
from typing import Any

import numpy as np

from hw4cli.arrays.emulated import ctypes_span, matrix
from hw4cli.arrays.workload import Workload
from hw4cli.compute.plan import DEVICES
from hw4cli.emulator.build import RACE, shared_object
from hw4cli.emulator.library import FORWARDS, Library, Schedule, Watched
from hw4cli.emulator.report import Finding
from hw4cli.gradients.plan import NAME, Arrays, Tile, arguments, plan
from hw4cli.resources import kernel_path


@dataclass(frozen=True)
class Outcome:
    """dQ, dK and dV, what was found, and whether the kernels came to their end."""

    gradients: tuple[Any, Any, Any]
    findings: tuple[Finding, ...]
    finished: bool


def run_backward(
    work: Workload,
    do: Any,
    q: Any,
    k: Any,
    v: Any,
    o: Any,
    lse: Any,
    *,
    tile: Tile | None = None,
    scale: float | None = None,
    build: str = RACE,
    schedule: Schedule = FORWARDS,
    cc: int = 80,
    lanes: int = 32,
) -> Outcome:
    """The kernels on arrays (batch, heads, rows, d): float32, or uint16 whose words are fp16 or bf16."""
    planned = plan(work, DEVICES[cc], tile)
    library = Library(shared_object(kernel_path(NAME), planned.macros, cc, lanes, build))
    results = tuple(np.empty_like(x) for x in (q, k, v))
    for result in results:
        result.view(np.uint8).fill(0xFF)  # NaN, of every type
    delta = np.full(lse.shape, np.nan, np.float32)
    given = [("Q", q), ("K", k), ("V", v), ("O", o), ("dO", do), ("LSE", lse)]
    made = zip(("dQ", "dK", "dV"), results, strict=True)
    watched = [Watched(*ctypes_span(x), False, name) for name, x in given]
    watched += [Watched(*ctypes_span(x), True, name) for name, x in made]
    at = Arrays(tuple(map(matrix, (q, k, v, o, do, *results))), lse.ctypes.data, delta.ctypes.data)
    passed = arguments(work, at, scale or work.scale)
    findings: tuple[Finding, ...] = ()
    for step in planned.launches:
        first = step is planned.launches[0]  # it writes delta, which the others read
        finished, found = library.launch(
            step, passed, [*watched, Watched(*ctypes_span(delta), first, "delta")], schedule
        )
        findings += found
        if not finished:
            return Outcome(results, findings, False)
    return Outcome(results, findings, True)

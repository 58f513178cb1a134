"""The kernels of gradients executed on the CPU, in all its detail: for tests, and for whoever changes the kernel."""

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from hw4cli.arrays.emulated import ctypes_span, matrix, placed, tensor_map
from hw4cli.emulator.build import RACE, shared_object
from hw4cli.emulator.counts import Counts
from hw4cli.emulator.library import FORWARDS, GAP, Library, Schedule, Watched, space
from hw4cli.emulator.report import Finding
from hw4cli.plans import gradients as choice
from hw4cli.plans.backward import Arrays
from hw4cli.plans.plan import DEVICES
from hw4cli.problem.workload import Workload
from hw4cli.resources import kernel_path

MADE = ("dQ", "dK", "dV", "scratch")
SCORES = "gradients of scores"


@dataclass(frozen=True)
class Outcome:
    """dQ, dK and dV, what was found, and whether the kernels came to their end."""

    gradients: tuple[Any, Any, Any]
    findings: tuple[Finding, ...]
    finished: bool
    counts: tuple[Counts, ...] = ()  # of the launches, in the build that counts


def run_backward(
    work: Workload,
    do: Any,
    q: Any,
    k: Any,
    v: Any,
    o: Any,
    lse: Any,
    *,
    kernel: str = "backward",
    tile: Any = None,
    build: str = RACE,
    schedule: Schedule = FORWARDS,
    cc: int = 80,
    lanes: int = 32,
    blocks: int = 2,
    whole: bool = True,
    source: Path | None = None,
    sms: int = 0,
    adds_as: int = 0,
    views: tuple[Any, ...] = (),
    scores: Any = None,
) -> Outcome:
    """The kernels on arrays (batch, heads, rows, d): float32, or uint16 whose words are fp16 or bf16. So many blocks at
    most, where blocks take tile after tile. `whole`: o and lse are of these keys, and of no others. `source`: a file in
    place of the kernel's own. `sms`: so many multiprocessors, if not as many as usual. `adds_as`: tensor cores add as
    those of that compute capability do, or exactly. `views`: the arrays that a score names; `scores`: the float32
    (batch, heads, Nq, Nk) of zeros in which gradients of scores are wanted."""
    props = replace(DEVICES[cc], sms=sms or DEVICES[cc].sms)
    planned = choice.plan(work, props, kernel, tile)
    library = Library(shared_object(source or kernel_path(planned.source), planned.defines, cc, lanes, build))
    library.add_as(adds_as)
    scratch = np.zeros(planned.scratch, np.uint8)
    given = {"Q": q, "K": k, "V": v, "O": o, "dO": do, "LSE": lse, "dQ": q, "dK": k, "dV": v, "scratch": scratch}
    given |= {f"array {n} of the score": x for n, x in enumerate(views)}
    given |= {} if scores is None else {SCORES: scores}
    buffer, starts = space([ctypes_span(x)[1] for x in given.values()], GAP)
    at = {}
    for (name, x), start in zip(given.items(), starts, strict=False):
        at[name] = placed(x, buffer[start : start + ctypes_span(x)[1]])
    made = [at[name] for name in MADE]
    for result in made:
        result.view(np.uint8).fill(0xFF)  # NaN, of every type
    scratch, table = np.split(at["scratch"], [planned.scratch - len(planned.table)])
    table[:] = np.frombuffer(planned.table, np.uint8)
    matrices = tuple(matrix(at[name]) for name in ("Q", "K", "V", "O", "dO", *MADE[:3]))
    arrays = Arrays(
        matrices,
        at["LSE"].ctypes.data,
        at["scratch"].ctypes.data,
        whole,
        views=tuple(at[f"array {n} of the score"].ctypes.data for n in range(len(views))),
        scores=0 if scores is None else at[SCORES].ctypes.data,
    )
    parts = {**at, "scratch": scratch, "table": table}
    watched = [Watched(*ctypes_span(x), name in (*MADE, SCORES), name) for name, x in parts.items() if x.size]
    passed = choice.arguments(planned, work, arrays, tensor_map)
    steps = planned.launches
    if choice.GRADIENTS[planned.variant].persistent:  # its blocks take tile after tile
        steps = tuple(step._replace(grid=min(step.grid, blocks)) if step.shared else step for step in steps)
    finished, findings = library.launches(steps, passed, watched, schedule, lanes)
    if scores is not None:
        scores[...] = at[SCORES]
    return Outcome((made[0], made[1], made[2]), findings, finished, tuple(library.counts))

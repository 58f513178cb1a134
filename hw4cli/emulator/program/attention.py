"""A program that takes INPUT OUTPUT, checked as a solution of the homework: small cases, whose answers are known."""

import math
import re
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from hw4cli.emulator.check import RANDOM_DATA, make_data
from hw4cli.emulator.library import FORWARDS, LOCKSTEP, RANDOM, REVERSE, Schedule
from hw4cli.emulator.program.beside import run_beside
from hw4cli.emulator.program.build import Source, compile_program, read
from hw4cli.emulator.program.execute import CRASHED, ENDED, GPUS, SECONDS, TOO_SLOW, Execution, run_program
from hw4cli.emulator.program.launches import blanked
from hw4cli.emulator.program.story import FROM_RUN_TO_RUN, with_stories, writes_else
from hw4cli.emulator.report import Finding
from hw4cli.emulator.story import story_of
from hw4cli.errors import InputError
from hw4cli.plans.plan import DEVICES, DeviceProperties
from hw4cli.problem.arrays import compare, read_output, write_input
from hw4cli.problem.casefile import Floats
from hw4cli.problem.cpu import workers
from hw4cli.problem.oracle import exact_attention
from hw4cli.problem.workload import Workload
from hw4cli.system.children import Children

# As the course has them; and what it allows a program not to know: N that is no multiple of 128.
CASES = (Workload.one_head(2, 128, 32), Workload.one_head(1, 256, 64))
ODD = (Workload.one_head(1, 131, 64),)
MULTIPLE = 128
# In the time of which so much work is done: B N^2 d. The limit of a larger case is longer.
USUAL_WORK = 2 * 256 * 256 * 64
OTHER_ORDERS = (Schedule(REVERSE), Schedule(RANDOM, 1))
_ARGUMENTS = re.compile(r"\bmain\s*\([^,()]*,[^,()]*?(\w+)\s*(?:\[\s*\]\s*)?\)")
ACCEPTED, WRONG, FAILED, LATE = "AC", "NA", "RE", "TLE"


@dataclass(frozen=True)
class Case:
    """A program on one case: its verdict and a sentence; what was found in all orders of threads; and whether the
    verdict is AC where the lanes of a warp run in lockstep (None: not tried)."""

    shape: Workload
    verdict: str
    why: str
    execution: Execution
    findings: tuple[Finding, ...]
    notes: tuple[Finding, ...]
    in_lockstep: bool | None = None

    @property
    def odd(self) -> bool:
        """Whether the course's cases have no such N."""
        return self.shape.N % MULTIPLE != 0

    def __str__(self) -> str:
        words = f"{self.shape}: {self.verdict}"
        if self.in_lockstep or (self.verdict == ACCEPTED and self.execution.lockstep):
            words += ", relies on warps in lockstep" + ("" if self.verdict == ACCEPTED else " (AC in lockstep)")
        return f"{words}, {self.why}" if self.why else words


def takes_a_case(source: Source) -> bool:
    """Whether a program seems to take INPUT OUTPUT: its text uses the second argument, whatever main calls it."""
    for path in source.files:
        text = blanked(read(path))
        names = {"argv", *_ARGUMENTS.findall(text)}
        if re.search(rf"\b(?:{'|'.join(names)})\s*\[\s*2\s*\]", text):
            return True
    return False


def limit_of(shape: Workload, seconds: float) -> float:
    """The processor's time for a case, `seconds` for a usual one."""
    return seconds * max(1.0, shape.B * shape.N**2 * shape.d / USUAL_WORK)


def check_attention(
    source: Source,
    *,
    gpu: DeviceProperties = DEVICES[80],
    gpu_name: str = "",
    shapes: Sequence[Workload] = (*CASES, *ODD),
    seconds: float = SECONDS,
    until: float = math.inf,
    gpus: int = GPUS,
    watched: bool = True,
    orders: Sequence[Schedule] = OTHER_ORDERS,
    story: float = 0.0,
    sandbox: bool = True,
    progress: Callable[[int, int, int], None] | None = None,
) -> list[Case]:
    """A program on cases (`orders`: the first one in these orders of threads, too); each with its verdict. What would
    begin after `until`, a time of the monotonic clock, is left out, and no run is given longer than until then.
    `story`: so many seconds are spent on the fewest switches that show what depends on the order.

    Raises InputError if it does not compile or needs what the CPU lacks, MachineError if there is no compiler.
    """
    lanes = 64 if source.hip else gpu.lanes
    program = compile_program(source, cc=gpu.cc or 80, lanes=lanes, watched=watched)
    done: list[Case] = []
    with (
        tempfile.TemporaryDirectory(prefix="hw4-") as name,
        ThreadPoolExecutor(1) as pool,
        Children() as children,
    ):
        folder = Path(name)

        def run(
            shape: Workload, schedule: Schedule, beside: bool = False, replay: Sequence[str] | None = None
        ) -> tuple[Execution, Floats | str]:
            """The execution, in a process beside this one or not, and the answer or what is wrong with it."""
            output = folder / ("beside" if beside else "here") / "case.out"
            output.parent.mkdir(exist_ok=True)
            output.unlink(missing_ok=True)
            arguments = [str(folder / "case.in"), output.name]
            limit = min(limit_of(shape, seconds), max(1.0, until - time.monotonic()))
            how: dict[str, Any] = {"gpu": gpu, "gpu_name": gpu_name, "seconds": limit, "schedule": schedule}
            how |= {"gpus": gpus, "folder": output.parent, "sandbox": sandbox, "replay": replay}
            if beside:
                execution = run_beside(children, program, arguments, **how)
            else:
                execution = run_program(program, arguments, **how, progress=progress)
            try:
                return execution, read_output(output, shape)
            except FileNotFoundError:
                return execution, "it has written no output"
            except (InputError, OSError) as error:
                return execution, str(error).replace(str(output), "its output")

        for shape in shapes:
            if time.monotonic() > until:
                break
            inputs = make_data(RANDOM_DATA, shape)
            write_input(folder / "case.in", inputs)
            answer = exact_attention(inputs)
            several = shape == shapes[0] and workers() > 1
            begun = {order: pool.submit(run, shape, order, True) for order in orders[: int(several)]}
            execution, output = run(shape, FORWARDS)
            if execution.end != ENDED and begun:
                children.kill()  # it would take as long
            verdict, why = judged(execution, output, answer, shape)
            findings, notes = list(execution.findings), list(execution.notes)
            in_lockstep = None

            def replay(attempts: Sequence[Sequence[str]], shape: Workload = shape) -> Iterator[Execution]:
                return (run(shape, FORWARDS, replay=switches)[0] for switches in attempts)

            if shape == shapes[0] and execution.end == ENDED:
                for schedule in orders:
                    if time.monotonic() > until:
                        break
                    other, its_output = begun[schedule].result() if schedule in begun else run(shape, schedule)
                    findings += with_stories(execution, other, replay, story)
                    notes += other.notes
                    if _differ(output, its_output) and _differ(output, run(shape, FORWARDS)[1]):
                        notes.append(FROM_RUN_TO_RUN)
                    elif _differ(output, its_output):
                        words = "the answer depends on the order in which threads take their turns"
                        known = any(finding.kind == "order" for finding in findings)
                        lines = () if known else story_of(other, replay, partial(writes_else, execution), story)
                        findings.append(Finding("order", words, story=lines))
            if verdict != ACCEPTED and execution.lockstep:
                other, its_output = run(shape, Schedule(LOCKSTEP))
                in_lockstep = judged(other, its_output, answer, shape)[0] == ACCEPTED
            done.append(Case(shape, verdict, why, execution, once(findings), once(notes), in_lockstep))
    return done


def _differ(output: Floats | str, other: Floats | str) -> bool:
    """Whether two outputs are there and not the same."""
    if isinstance(output, str) or isinstance(other, str):
        return False
    return not np.array_equal(output, other, equal_nan=True)


def judged(execution: Execution, output: Floats | str, answer: Floats, shape: Workload) -> tuple[str, str]:
    """The verdict on an output, and a sentence."""
    if execution.end == TOO_SLOW:
        return LATE, execution.why
    said = next((f": {line.strip()}" for line in reversed(execution.errors.splitlines()) if line.strip()), "")
    if execution.end != ENDED:
        return FAILED, f"{execution.end}: {execution.why}{said if execution.end == CRASHED else ''}"
    if execution.status:
        return FAILED, f"it ends with exit status {execution.status}{said}"
    if isinstance(output, str):
        return WRONG, output
    comparison = compare(output, answer)
    return (ACCEPTED if comparison.right else WRONG), comparison.reason(shape)


def once(findings: Sequence[Finding]) -> tuple[Finding, ...]:
    """Findings of several runs, those that name the same lines as one; the causes before their effects."""
    from hw4cli.emulator.check import KINDS

    found: dict[tuple[str, ...], Finding] = {}
    for finding in findings:
        places = re.findall(r"[\w.-]+:\d+", finding.sentence)
        key = (finding.kind, *places) if places else (finding.kind, finding.sentence)
        old = found.get(key)
        found[key] = replace(old, times=old.times + finding.times) if old else finding
    order = [*KINDS]
    return tuple(sorted(found.values(), key=lambda finding: [*order, finding.kind].index(finding.kind)))

"""What is known of launches without counters: of hw4's kernels by their plans, of programs by their machine code."""

import re
import shutil
import subprocess
from collections.abc import Sequence
from typing import Any

from hw4cli.device.kernelcheck import compiler_for
from hw4cli.device.occupancy import occupancy
from hw4cli.errors import MachineError
from hw4cli.lab.measure.counters import symbol
from hw4cli.lab.measure.explanation import LaunchFacts, explain_plan
from hw4cli.lab.measure.jobs import Job
from hw4cli.lab.measure.profilers import CUOBJDUMP, find_tool
from hw4cli.plans.plan import DeviceProperties
from hw4cli.text.words import printable

FIELDS = (
    *("launch", "grid", "threads", "registers", "spilled_bytes", "shared_bytes", "blocks", "occupancy", "limited_by"),
)
THREADS = (128, 256, 512, 1024)  # of a block, for which a program's kernels are shown: its machine code has no launches
PART = re.compile(r"^arch = sm_(\d+)a?$(.*?)(?=^Fatbin|\Z)", re.MULTILINE | re.DOTALL)
FUNCTION = re.compile(r"^ Function (\S+):\s+REG:(\d+) STACK:(\d+) SHARED:(\d+)", re.MULTILINE)


def of_kernels(jobs: Sequence[Job], props: DeviceProperties) -> list[LaunchFacts]:
    """The launches of hw4's kernels; without registers where nothing here compiles for the GPU."""
    try:
        compiler = compiler_for(props)
    except MachineError:
        compiler = None
    planned = [pair for job in jobs for pair in job.planned]
    return [
        fact for plan, models in planned for fact in explain_plan(plan.variant, plan, models, props, {}, compiler)[0]
    ]


def of_program(job: Job, props: DeviceProperties) -> list[dict[str, Any]]:
    """The kernels in a program's machine code for a GPU, each in blocks of THREADS: fields as of LaunchFacts.record,
    `spilled_bytes` with all else that is on a thread's stack. Shared memory is what is declared, without dynamic one.

    Raises MachineError if there is no cuobjdump, or no machine code for the GPU in the program's file.
    """
    path = shutil.which(job.target[0]) or job.target[0]
    printed = subprocess.run(
        [find_tool(CUOBJDUMP), "--dump-resource-usage", path], capture_output=True, text=True, errors="replace"
    ).stdout
    parts = {int(cc): text for cc, text in PART.findall(printed) if FUNCTION.search(text)}
    fitting = [cc for cc in parts if cc // 10 == props.cc // 10 and cc <= props.cc]
    if not fitting:
        raise MachineError(f"{printable(path)} has no machine code for compute capability {props.cc / 10:.1f}")
    found = []
    for name, registers, stack, shared in FUNCTION.findall(parts[max(fitting)]):
        declared = max(0, int(shared) - props.shared_reserved)
        for threads in THREADS:
            held = occupancy(props, int(registers), declared, threads)
            if held.blocks:
                facts = (_demangled(name), None, threads, int(registers), int(stack), declared)
                found.append(dict(zip(FIELDS, (*facts, held.blocks, held.share, [*held.limited_by]), strict=True)))
    return found


def _demangled(name: str) -> str:
    """A function's name as it is written, if there is a program that knows; else as it is."""
    try:
        shown = subprocess.run(["c++filt", name], capture_output=True, text=True, errors="replace", check=True).stdout
    except (OSError, subprocess.SubprocessError):
        return name
    return symbol(shown.strip())

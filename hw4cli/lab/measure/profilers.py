"""Profilers as programs: which one a GPU needs, where it is, how it is called, and what it answers."""

import glob
import json
import os
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from hw4cli.errors import MachineError, os_error
from hw4cli.lab.measure.metrics import EVENTS, NCU, NVPROF, ROCPROF, TIME
from hw4cli.resources import IMPORT_PATH, python_command
from hw4cli.system.machine import machine
from hw4cli.system.nvidia import first_visible
from hw4cli.system.process import run_with_descendants
from hw4cli.text.words import printable

CUOBJDUMP = "cuobjdump"  # which shows what a program's machine code takes, without running it
EXECUTABLES = {NVPROF: "nvprof", NCU: "ncu", ROCPROF: "rocprofv3", CUOBJDUMP: "cuobjdump"}
PLACES = {  # beside PATH, the newest last
    NVPROF: ("{CUDA_PATH}/bin/nvprof", "{CUDA_HOME}/bin/nvprof", "/usr/local/cuda*/bin/nvprof"),
    NCU: (
        *("{CUDA_PATH}/bin/ncu", "{CUDA_HOME}/bin/ncu", "/usr/local/cuda*/bin/ncu"),
        "/opt/nvidia/nsight-compute/*/ncu",
    ),
    ROCPROF: ("/opt/rocm*/bin/rocprofv3",),
    CUOBJDUMP: ("{CUDA_PATH}/bin/cuobjdump", "{CUDA_HOME}/bin/cuobjdump", "/usr/local/cuda*/bin/cuobjdump"),
}
NEWEST_NVPROF_CC = 70  # nvprof's last GPU; a later ncu than 2019's starts at 7.0, today's at 7.5
GET = {
    NVPROF: "CUDA 12 and older have it: module load cuda/12",
    NCU: "it comes with the CUDA toolkit: module load cuda",
    ROCPROF: "it comes with ROCm: module load rocm",
    CUOBJDUMP: "it comes with the CUDA toolkit: module load cuda",
}
CLOSED = re.compile(r"ERR_NVGPUCTRPERM|CUPTI_ERROR_INSUFFICIENT_PRIVILEGES|insufficient privileges", re.IGNORECASE)
UNKNOWN = re.compile(r"(?:[Ff]ailed to find|[Ii]nvalid|[Uu]nknown) metrics?:? *['\"]?([\w.]+)")
HOW_TO_OPEN = (
    "the driver keeps the GPU's counters for the administrator (ERR_NVGPUCTRPERM): run the command as root, or let the "
    "administrator put `options nvidia NVreg_RestrictProfilingToAdminUsers=0` into a file in /etc/modprobe.d and reboot"
)
AMD_FILE = Path("/dev/kfd")
AMD = 0  # the compute capability of its GPUs
MOST_UNKNOWN = 12  # metrics that an older or newer ncu may not know


class ClosedCountersError(MachineError):
    """The driver lets only the administrator read the GPU's counters."""


@dataclass(frozen=True)
class ProfiledGpu:
    """The GPU that will be profiled: its name and compute capability, of AMD's AMD."""

    name: str
    cc: int


@dataclass(frozen=True)
class Profiler:
    """A profiler: which one, its path, and the command before it, such as srun."""

    tool: str
    path: str
    prefix: Sequence[str] = ()


def find_gpu(prefix: Sequence[str] = ()) -> ProfiledGpu:
    """The GPU that a program takes here, or the first one where commands behind `prefix` (such as srun) run.

    Raises MachineError if there is none.
    """
    visible = None if prefix else first_visible(os.environ)
    chosen = ["-i", visible.whole or visible.uuid] if visible else []
    command = [*prefix, "nvidia-smi", *chosen, "--query-gpu=name,compute_cap", "--format=csv,noheader"]
    try:
        asked = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, errors="replace")
    except OSError:
        asked = None
    for line in asked.stdout.splitlines() if asked and not asked.returncode else ():
        name, _, capability = line.rpartition(",")
        if match := re.fullmatch(r"(\d+)\.(\d)", capability.strip()):
            return ProfiledGpu(printable(name.strip()), 10 * int(match[1]) + int(match[2]))
    if not prefix and AMD_FILE.exists():
        return ProfiledGpu("AMD GPU", AMD)
    raise MachineError(
        "there is no GPU to profile, or nvidia-smi does not show it: on a cluster, add --srun '-p nvidia "
        "--gres=gpu:1'; hw4 explain needs none"
    )


def tool_for(gpu: ProfiledGpu) -> str:
    """nvprof to compute capability 7.0, Nsight Compute from there on, rocprofv3 for AMD."""
    if gpu.cc == AMD:
        return ROCPROF
    return NVPROF if gpu.cc <= NEWEST_NVPROF_CC else NCU


def find_tool(tool: str, prefix: Sequence[str] = ()) -> str:
    """The path of a profiler; its bare name behind a prefix, as another machine will look for it.

    Raises MachineError, with where to get it, if it is not here.
    """
    name = EXECUTABLES[tool]
    if found := shutil.which(name):
        return found
    if prefix:
        return name
    homes = {key: os.environ.get(key, "/nonexistent") for key in ("CUDA_PATH", "CUDA_HOME")}
    for pattern in PLACES[tool]:
        if places := sorted(glob.glob(pattern.format(**homes))):  # noqa: PTH207 - patterns may be absolute
            return places[-1]
    raise MachineError(f"{name} is not on PATH: {GET[tool]}")


def command_line(
    tool: str, path: str, counters: Sequence[str], folder: Path, target: Sequence[str], from_start: bool
) -> list[str]:
    """The command that profiles a target. What it measures goes into `folder`. `from_start`: every launch is profiled,
    not only those between cudaProfilerStart and cudaProfilerStop."""
    if tool == ROCPROF:
        asked = [name for name in dict.fromkeys(counters) if name != TIME]
        options = ["--pmc", *asked, "--output-format", "csv", "-d", str(folder), "-o", "profile"]
        return [path, *options, "--", *target]
    log = ["--log-file", str(folder / "log.csv")]
    start = [] if from_start else ["--profile-from-start", "off"]
    if tool == NVPROF:
        metrics = [name for name in dict.fromkeys(counters) if name not in EVENTS]
        events = [name for name in dict.fromkeys(counters) if name in EVENTS]
        asked = [*(["--metrics", ",".join(metrics)] * bool(metrics)), *(["--events", ",".join(events)] * bool(events))]
        return [path, "--csv", *log, *start, *asked, *target]
    form = ["--csv", "--page", "raw", "--print-units", "base", "--clock-control", "none", "--target-processes", "all"]
    return [path, *form, *log, *start, "--metrics", ",".join(dict.fromkeys(counters)), *target]


def version_of(profiler: Profiler) -> str:
    """A profiler's version, as it prints it; "" if it does not."""
    try:
        printed, status = _run([*profiler.prefix, profiler.path, "--version"])
    except MachineError:
        return ""
    found = re.search(r"\d+(?:\.\d+)+", printed)
    return found[0] if found and not status else ""


def machine_behind(prefix: Sequence[str], gpu: ProfiledGpu) -> dict[str, object]:
    """The block of facts about the machine where commands behind `prefix` run; its GPU alone, if it does not answer."""
    if not prefix:
        return machine()
    try:
        printed, status = _run([*prefix, *python_command("system.machine", "-P")])
        found = json.loads(printed.strip().splitlines()[-1]) if not status else None
    except (MachineError, ValueError, IndexError):
        found = None
    return found if isinstance(found, dict) else {"gpu": gpu.name}


def profile_text(
    profiler: Profiler, counters: Sequence[str], target: Sequence[str], from_start: bool
) -> tuple[str, str]:
    """What a profiler writes of a target: its tables; and the command line, as records have it.

    Raises ClosedCountersError where counters are closed, MachineError if the profiler or the target fails.
    """
    tool, prefix, asked = profiler.tool, profiler.prefix, list(counters)
    # Behind a prefix, another machine writes the files: it sees this folder, as a rule, and not this machine's /tmp.
    with tempfile.TemporaryDirectory(prefix=".hw4-profile-", dir="." if prefix else None) as name:
        folder = Path(name).resolve()
        for _ in range(MOST_UNKNOWN):
            command = [*prefix, *command_line(tool, profiler.path, asked, folder, target, from_start)]
            printed, status = _run(command)
            text = "".join(file.read_text(errors="replace") for file in sorted(folder.rglob("*.csv")))
            everything = f"{text}\n{printed}"
            if CLOSED.search(everything):
                raise ClosedCountersError(HOW_TO_OPEN)
            unknown = {match.partition(".")[0] for match in UNKNOWN.findall(everything)}
            fewer = [counter for counter in asked if counter.partition(".")[0] not in unknown]
            if not status or len(fewer) == len(asked):
                break
            asked = fewer
    if status:
        lines = [line for line in (printed.strip() or text.strip()).splitlines() if line.strip()]
        last = printable(lines[-1].strip()) if lines else "it printed nothing"
        raise MachineError(f"{EXECUTABLES[tool]} failed with status {status}: {last}")
    return everything, _stated(command, folder)


def _stated(command: Sequence[str], folder: Path) -> str:
    """A command line as a record may have it, of which others read: without the places of this machine, for which stand
    {folder}, of the profiler's files, {hw4}, of this package, and python3."""
    line = shlex.join("python3" if word == sys.executable else word for word in command)
    return line.replace(str(folder), "{folder}").replace(IMPORT_PATH, "{hw4}")


def _run(command: Sequence[str]) -> tuple[str, int]:
    env = {**os.environ, "LC_ALL": "C"}  # Nsight Compute groups digits as the locale does
    try:
        printed, _, status = run_with_descendants(command, env, stderr=subprocess.STDOUT)
    except OSError as error:
        raise os_error(error, f"start {command[0]}") from None
    return printed.decode(errors="replace"), status

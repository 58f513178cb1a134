"""What this machine has and lacks for hw4: one table of checks, which run at the same time, each with a time limit."""

import json
import re
import tempfile
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from hw4cli.doctor import host
from hw4cli.doctor.drivers import NO_GPU_HERE, amd, counters, nvidia
from hw4cli.doctor.finding import CHILDREN, Finding, UnansweredError, output_of, tool
from hw4cli.problem.workload import Workload
from hw4cli.resources import has_solution
from hw4cli.text.words import counted

SAMPLE = Workload.one_head(2, 130, 32)  # more rows than two tiles: the tail is checked, too
SAMPLE_ERROR = 2e-5  # of a kernel in float32 on such a case
SAMPLE_SECONDS = 60.0  # a first CUDA context and compilation on a slow network folder may take ten
JUDGE = "judge"  # of hw4 without its kernels
CHECK_SECONDS = 15.0  # for any other check: a network folder may never answer

Check = Callable[[], list[Finding]]


@dataclass(frozen=True)
class Target:
    """Where `hw4 IN OUT` will run: on "gpu", "cpu" or nowhere (None); the device's name; the reason, unless "gpu".
    Of the judge alone `on` is "judge"."""

    on: str | None
    device: str
    because: str = ""

    def __str__(self) -> str:
        if self.on == JUDGE:
            return "this is the judge alone: it judges programs, and computes nothing itself"
        if self.on is None:
            return f"hw4 will not run: {self.because}"
        return f"hw4 will run on: {self.device}" + (f", because {self.because}" if self.because else "")


@dataclass(frozen=True)
class Report:
    """All findings, by group, and where hw4 will run."""

    groups: dict[str, list[Finding]]
    target: Target


def run_checks(python: Sequence[str], env: Mapping[str, str] | None, folder: Path) -> Report:
    """Run all checks. `python` and `env` start a module of this package; `folder` is that of the cases.

    The judge alone computes nothing: of it, what judging needs is checked.
    """
    if not has_solution():
        return _judges_report(folder)
    sample = Background("sample", SAMPLE_SECONDS, lambda: run_sample(python, env))
    try:
        gpu_facts = Background("probe", SAMPLE_SECONDS, lambda: probe(python, env))
        groups = _findings(checks(folder))
        facts = gpu_facts.result(lambda error: {"failed": _message(error)})
        groups["Compiler"][:0] = compiler(facts)
        target = sample.result(lambda error: Target(None, "", _message(error).removeprefix("hw4: ")))
    finally:
        CHILDREN.kill()
        sample.wait(1)  # after Ctrl-C: until its folder is removed
    if target.on == "gpu":
        target = Target("gpu", f"GPU 0, {facts.get('gpu', 'whose name is unknown')}")
    return Report(groups, target)


def _findings(table: "list[tuple[str, str, Check]]") -> dict[str, list[Finding]]:
    """What checks find, which run at the same time, by group."""
    running = [(group, Background(name, CHECK_SECONDS, function)) for group, name, function in table]
    groups = {group: list[Finding]() for group, _ in running}
    for group, check in running:
        groups[group] += check.result(partial(_check_failed, check.name))
    return groups


def _judges_report(folder: Path) -> Report:
    """What concerns the judge alone: no cache of kernels, nothing of a run, no profiler, no cupy."""
    table = [one for one in checks(folder) if one[0] != "Profilers" and one[1] not in ("kernel cache", "bytecode")]
    try:
        groups = _findings(table)
    finally:
        CHILDREN.kill()
    shown = {group: [line for line in lines if line.name != "cupy"] for group, lines in groups.items()}
    return Report(shown, Target(JUDGE, ""))


def _check_failed(name: str, error: Exception) -> list[Finding]:
    return [Finding(name, "warning", f"could not be checked: {_message(error)}")]


def _message(error: Exception) -> str:
    """An error's message, without an OSError's number."""
    return getattr(error, "strerror", None) or str(error) or type(error).__name__


class Background:
    """A function in a daemon thread, which, unlike those of concurrent.futures, does not delay the exit."""

    def __init__(self, name: str, seconds: float, work: Callable[[], Any]) -> None:
        self.name, self._work, self._result = name, work, None
        self._error: Exception | None = TimeoutError(f"no answer within {seconds:g} s")
        self._deadline = time.monotonic() + seconds
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        try:
            self._result, self._error = self._work(), None
        except Exception as error:
            self._error = error

    def result(self, otherwise: Callable[[Exception], Any]) -> Any:
        """What the function returned, or what `otherwise` returns for its error: a TimeoutError if it still runs."""
        self.wait(self._deadline - time.monotonic())
        return otherwise(self._error) if self._error else self._result

    def wait(self, seconds: float) -> None:
        """Wait until the function has ended, for so long at most."""
        self._thread.join(max(0, seconds))


def checks(folder: Path) -> list[tuple[str, str, Check]]:
    """The table: (group, name, check). A group's lines come in this order."""

    def program(group: str, name: str, purpose: str, get: str) -> tuple[str, str, Check]:
        return group, name, lambda: [tool(name, purpose, get)]

    toolkit = "module load cuda, or install the CUDA toolkit"
    rocm = "module load rocm, or install ROCm"
    return [
        ("Machine", "Python", host.python_version),
        ("Machine", "bytecode", host.bytecode),
        ("Machine", "processor", host.processor),
        ("Machine", "memory", host.memory),
        ("Machine", "cases", lambda: host.suite_space(folder)),
        ("Machine", "temporary files", lambda: host.case_space("temporary files", tempfile.gettempdir())),
        ("Machine", "/dev/shm", lambda: host.case_space("/dev/shm", "/dev/shm")),
        ("GPU", "NVIDIA driver", nvidia),
        ("GPU", "AMD GPU", amd),
        ("Compiler", "kernel cache", host.cache),
        program("Compiler", "nvcc", "`make hw4`", toolkit),
        program("Compiler", "hipcc", "AMD GPUs", rocm),
        ("Profilers", "counters", counters),
        program("Profilers", "ncu", "GPUs from 7.5 on", toolkit),
        program("Profilers", "nsys", "timelines", toolkit),
        program("Profilers", "nvprof", "GPUs up to 7.0", "module load cuda/12; newer GPUs need ncu"),
        program("Profilers", "compute-sanitizer", "finding wrong memory accesses", toolkit),
        program("Profilers", "rocprofv3", "AMD GPUs", rocm),
        ("Judge", "Slurm", host.slurm),
        ("Judge", "bwrap", host.bubblewrap),
        ("Judge", "process control", host.process_control),
    ]


def run_sample(python: Sequence[str], env: Mapping[str, str] | None) -> Target:
    """Run `hw4 IN OUT` on a small case, and check the answer. Raises UnansweredError if it fails or is wrong."""
    import numpy as np

    from hw4cli.problem.casefile import FLOAT32, InputFile
    from hw4cli.problem.cpu import workers
    from hw4cli.problem.oracle import exact_attention
    from hw4cli.problem.rules import TOLERANCE
    from hw4cli.problem.suite import generate_input

    with tempfile.TemporaryDirectory(prefix="hw4-doctor-", ignore_cleanup_errors=True) as folder:
        source, target = Path(folder, "in"), Path(folder, "out")
        generate_input(source, SAMPLE, 0, lambda _: None)
        command = [*python, "hw4cli", "run", str(source), str(target)]
        printed = output_of(command, SAMPLE_SECONDS - 1, env, errors=True) or ""
        with InputFile(source) as inputs:
            expected = exact_attention(inputs.batches(0, SAMPLE.B)).reshape(-1)
        got = np.fromfile(target, FLOAT32)
    if got.shape != expected.shape or not np.abs(got - expected).max() <= TOLERANCE:
        raise UnansweredError("the answer of a small case is wrong")
    reason = re.search(r"^hw4: (.*); using the CPU$", printed, re.MULTILINE)
    return Target("cpu", f"the CPU, {counted(workers(), 'core')}", reason[1]) if reason else Target("gpu", "")


def probe(python: Sequence[str], env: Mapping[str, str] | None) -> dict[str, Any]:
    """The facts that hw4cli.doctor.probe prints."""
    printed = output_of([*python, "hw4cli.doctor.probe"], SAMPLE_SECONDS - 1, env) or ""
    facts: dict[str, Any] = json.loads(printed.splitlines()[-1])
    return facts


def compiler(facts: Mapping[str, Any]) -> list[Finding]:
    """The run-time compiler, the headers that cupy gives it, and a kernel compiled and run just now."""
    if "failed" in facts:
        return [Finding("kernel", "warning", f"cupy and the GPU could not be asked: {facts['failed']}", NO_GPU_HERE)]
    if "no cupy" in facts:
        nvrtc = Finding("NVRTC", "missing", "needed to check and explain kernels", "pip install nvidia-cuda-nvrtc")
        if "nvrtc" in facts:
            nvrtc = Finding("NVRTC", "ok", f"{facts['nvrtc']}, to check and explain kernels")
        return [nvrtc, Finding("kernel", "missing", facts["no cupy"])]
    name, wanted = ("hiprtc", "'.[rocm7]'") if facts["hip"] else ("NVRTC", "'.[cuda13]'   # or '.[cuda12]'")
    reinstall = f"pip install --force-reinstall {wanted}"
    if "no NVRTC" in facts:
        lines = [Finding(name, "warning", facts["no NVRTC"], reinstall)]
    else:
        lines = [Finding(name, "ok", f"{facts['nvrtc']}, through cupy {facts['cupy']}")]
    folder = facts["headers"]
    if not facts["hip"] and folder:
        lines.append(Finding("CUDA headers", "ok", folder))
    elif not facts["hip"]:
        lines.append(Finding("CUDA headers", "warning", "not in any place that cupy knows", reinstall))
    if "no GPU" in facts:
        return [*lines, Finding("kernel", "missing", f"not run: {facts['no GPU']}")]
    if "no kernel" in facts:
        return [*lines, Finding("kernel", "warning", facts["no kernel"], reinstall)]
    error, what = facts["kernel error"], f"compiled and run on {facts['gpu']}, {facts['architecture']}"
    lines.append(Finding("kernel choice", "ok", facts["choice"]))
    if not error <= SAMPLE_ERROR:
        return [*lines, Finding("kernel", "warning", f"{what}: wrong by {error:.1e}", "make gpu-test")]
    return [*lines, Finding("kernel", "ok", f"{what}: right within {error:.1e}")]

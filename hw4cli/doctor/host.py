"""The host: Python, folders, memory, Slurm, and what judging needs of the system."""

import ctypes
import os
import platform
import shlex
import shutil
import sys
from pathlib import Path

from hw4cli.doctor.finding import Finding, UnansweredError, output_of
from hw4cli.system.machine import filesystem
from hw4cli.text.words import counted

PR_GET_CHILD_SUBREAPER = 37
NETWORK = ("nfs", "lustre", "gpfs", "beegfs", "cifs", "ceph", "fuse.sshfs")


def python_version() -> list[Finding]:
    """The interpreter."""
    return [Finding("Python", "ok", f"{platform.python_version()}, {sys.executable}")]


def cache() -> list[Finding]:
    """The folder of compiled kernels: its place, size and file system, and whether it can be written."""
    from hw4cli.device.machinecode import kernel_cache

    name, advice = "kernel cache", 'export CUPY_CACHE_DIR="/tmp/$USER-cupy"'
    folder, wanted = kernel_cache(), os.environ.get("CUPY_CACHE_DIR")
    if folder is None:
        return [Finding(name, "warning", "neither the home nor the temporary folder can be written", advice)]
    if wanted and folder != Path(wanted):
        found = f"CUPY_CACHE_DIR={wanted} cannot be written: using {folder}"
        return [Finding(name, "warning", found, advice)]
    sizes = [entry.stat().st_size for entry in os.scandir(folder) if entry.is_file()]
    found = f"{folder}, {counted(len(sizes), 'file')}, {sum(sizes) / 1e6:.1f} MB"
    kind = filesystem(folder)
    if kind.startswith(NETWORK):
        return [Finding(name, "warning", f"{found}, on {kind}: slow to start from", advice)]
    return [Finding(name, "ok", found)]


def slurm() -> list[Finding]:
    """Slurm's version, its partitions and whether we are inside an allocation."""
    try:
        version = output_of(["sinfo", "--version"])
        if version is None:
            inside = " though SLURM_JOB_ID is set" if "SLURM_JOB_ID" in os.environ else ""
            return [Finding("Slurm", "missing", f"no sinfo on PATH{inside}; only a cluster has it")]
        partitions = (output_of(["sinfo", "--noheader", "--format=%P %G"]) or "").split("\n")
    except UnansweredError as reason:
        return [Finding("Slurm", "warning", str(reason), "ask the administrators of the cluster, or run scontrol ping")]
    shown = "; ".join(dict.fromkeys(filter(None, (" ".join(line.split()) for line in partitions))))
    lines = [Finding("Slurm", "ok", f"{version.strip()}; partitions: {shown or 'none'}")]
    if shutil.which("srun") is None:
        lines.append(Finding("srun", "missing", "not on PATH", "sudo apt install slurm-client"))
    job = os.environ.get("SLURM_JOB_ID")
    gpus = os.environ.get("SLURM_STEP_GPUS") or os.environ.get("SLURM_JOB_GPUS")
    if job and gpus is None:
        advice = "ask for one: srun -p nvidia -N1 -n1 --gres=gpu:1"
        return [*lines, Finding("allocation", "warning", f"inside job {job}, which has no GPU", advice)]
    inside = f"inside job {job}, GPU {gpus}" if job else "outside: srun or salloc takes one"
    return [*lines, Finding("allocation", "ok", inside)]


def bubblewrap() -> list[Finding]:
    """Whether bwrap is installed and may create the namespaces of a sandbox."""
    try:
        printed = output_of(["bwrap", "--ro-bind", "/", "/", "--unshare-pid", "--unshare-net", "true"])
    except UnansweredError as reason:
        advice = "allow user namespaces (sysctl kernel.unprivileged_userns_clone=1), or judge without a sandbox"
        return [Finding("bwrap", "warning", f"does not work: {reason}", advice)]
    if printed is None:
        found = "not on PATH; for a sandbox around judged programs"
        return [Finding("bwrap", "missing", found, "sudo apt install bubblewrap")]
    return [Finding("bwrap", "ok", str(shutil.which("bwrap")))]


def process_control() -> list[Finding]:
    """Whether the kernel lets the judge wait for a program and find its grandchildren: pidfd and subreaper."""
    try:
        os.close(os.pidfd_open(os.getpid()))
    except OSError as error:
        return [Finding("process control", "warning", f"no pidfd: {error.strerror}", "use a Linux kernel from 5.3 on")]
    flag = ctypes.c_int()
    if ctypes.CDLL(None).prctl(PR_GET_CHILD_SUBREAPER, ctypes.byref(flag), 0, 0, 0) != 0:
        found = "no PR_SET_CHILD_SUBREAPER: left-behind processes cannot be found"
        return [Finding("process control", "warning", found, "judge outside of this container")]
    return [Finding("process control", "ok", "pidfd and subreaper")]


def bytecode() -> list[Finding]:
    """Whether Python keeps the bytecode of what a run imports, or compiles it at each start."""
    from hw4cli.doctor.bytecode import missing, sources_of_a_run

    sources = sources_of_a_run()
    lacking = missing(sources)
    count = len(lacking)
    if not count:
        return [Finding("bytecode", "ok", f"kept of all {counted(len(sources), 'module')} that a run imports")]
    found = f"{counted(count, 'module')} of {len(sources)} that a run imports are compiled at each start"
    folders = " ".join(shlex.quote(str(folder)) for folder in dict.fromkeys(map(_package_folder, lacking)))
    without_gpu = f"{shlex.quote(sys.executable)} -m compileall -q {folders}"
    return [Finding("bytecode", "warning", found, f"hw4 doctor --prepare; without a GPU: {without_gpu}")]


def _package_folder(source: Path) -> Path:
    """The folder of the whole package that a module belongs to; its own folder if it is in none."""
    folder = source.parent
    while (folder.parent / "__init__.py").is_file():
        folder = folder.parent
    return folder


def processor() -> list[Finding]:
    """The cores that this process may use, and all cores."""
    mine, all_cores = len(os.sched_getaffinity(0)), os.cpu_count()
    return [Finding("processor", "ok", f"{mine} of {counted(all_cores or mine, 'core')}, {platform.machine()}")]


def memory() -> list[Finding]:
    """The host's memory; the largest case takes about its own size in the page cache."""
    import psutil

    now = psutil.virtual_memory()
    found = f"{now.available / 1e9:.1f} of {now.total / 1e9:.1f} GB free"
    if now.available < 1e9:
        return [Finding("memory", "warning", found, "close other programs, or ask Slurm for more with --mem")]
    return [Finding("memory", "ok", found)]


def suite_space(folder: Path) -> list[Finding]:
    """Whether the cases and answers that are still to be generated fit into the cases' folder."""
    from hw4cli.problem.suite import cases

    missing = 0
    for case in cases().values():
        parts = ((case.input_path(folder), case.shape.input_bytes), (case.answer_path(folder), case.shape.output_bytes))
        missing += sum(size for path, size in parts if not path.exists() or path.stat().st_size != size)
    if not missing:
        return [Finding("cases", "ok", f"all {len(cases())} are in {folder}")]
    return [_space("cases", folder, missing, "the cases still to make", "make fewer (hw4 gen t01-t10) or name --dir")]


def case_space(name: str, folder: str) -> list[Finding]:
    """Whether the largest case and its output fit into a folder."""
    from hw4cli.problem.suite import cases

    need = max(case.shape.input_bytes + case.shape.output_bytes for case in cases().values())
    return [_space(name, Path(folder), need, "the largest case", "free some, or set TMPDIR to another folder")]


def _space(name: str, folder: Path, need: int, what: str, advice: str) -> Finding:
    if not folder.is_dir():
        return Finding(name, "missing", f"there is no folder {folder}")
    free = shutil.disk_usage(folder).free
    found = f"{folder}: {free / 1e9:.1f} GB free, {what} take{'' if what.endswith('make') else 's'} {need / 1e9:.1f} GB"
    return Finding(name, "ok", found) if free >= need else Finding(name, "warning", found, advice)

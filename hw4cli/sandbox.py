"""`--sandbox bwrap`: a program that sees the system, its own folder and its private folder, and nothing else.

bubblewrap makes namespaces as an ordinary user: no network, no other processes, system folders read-only, the GPU's
devices. Another user's files, the answers among them, do not exist in there.
"""

import os
import shlex
import shutil
import subprocess
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from functools import cache
from pathlib import Path

from hw4cli.errors import MachineError
from hw4cli.exits import StartError, signal_of
from hw4cli.process import Run

SYSTEM = ("/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/etc", "/opt", "/sys", "/nix", "/run/nvidia")
DEVICES = ("/dev/nvidia*", "/dev/kfd", "/dev/dri", "/dev/dxg")
# Variables that name folders with libraries, one or several with colons between them.
LIBRARY_VARIABLES = (
    *("LD_LIBRARY_PATH", "PYTHONPATH", "PYTHONUSERBASE", "VIRTUAL_ENV", "CONDA_PREFIX"),
    *("CUDA_HOME", "CUDA_PATH", "ROCM_PATH", "CUPY_CACHE_DIR"),
)


@cache
def check() -> None:
    """Raise MachineError, saying what to install, unless bwrap is here and works."""
    if shutil.which("bwrap") is None:
        raise MachineError("--sandbox bwrap needs bubblewrap: install it (Debian, Ubuntu: apt install bubblewrap)")
    probe = ["bwrap", "--unshare-all", "--die-with-parent", "--ro-bind", "/", "/", "--proc", "/proc", "true"]
    try:
        result = subprocess.run(probe, capture_output=True, text=True, timeout=30)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise MachineError(f"--sandbox bwrap: bwrap does not run here: {error}") from None
    if result.returncode:
        raise MachineError(
            f"--sandbox bwrap does not work here ({result.stderr.strip()}): it needs user namespaces "
            "(sysctl kernel.unprivileged_userns_clone, or apt install bubblewrap with AppArmor's profile for it)"
        )


def wrap(command: Sequence[str], private: Path, env: Mapping[str, str], secret: Path) -> list[str]:
    """The command inside a sandbox in which `private` alone is writable. `secret` is the folder of the answers: where
    the sandbox shows it (a program may lie beside them), the answers in it are empty."""
    shown = [Path(name) for name in SYSTEM]
    shown += [folder for folder in _folders(command, env) if not folder.is_relative_to("/usr")]
    words = ["bwrap", "--die-with-parent", "--unshare-pid", "--unshare-net", "--unshare-ipc", "--unshare-uts"]
    words += ["--proc", "/proc", "--dev", "/dev", "--tmpfs", "/dev/shm", "--tmpfs", "/tmp"]
    for folder in shown:
        words += ["--ro-bind-try", str(folder), str(folder)]
    for device in _devices():
        words += ["--dev-bind-try", device, device]
    for place in {secret.absolute(), secret.resolve()}:
        if any(place.is_relative_to(folder) for folder in shown):
            for answer in sorted(place.glob("*.out")):
                words += ["--ro-bind", "/dev/null", str(answer)]
    return [*words, "--bind", str(private), str(private), "--chdir", str(private), "--", *command]


def unwrap(run: Run, program: str) -> Run:
    """A run in the sandbox as one of the program: bwrap tells signals as a shell does. Raises StartError if the program
    could not be started, MachineError if the sandbox could not be made."""
    said = run.stderr.strip()
    if run.exit_code == 1 and said.startswith("bwrap: execvp"):
        raise StartError(f"{program} cannot be started in the sandbox: {said.rpartition(': ')[2]}")
    if run.exit_code == 1 and said.startswith("bwrap: "):
        raise MachineError(f"the sandbox cannot be made: {said}")
    number = signal_of(run.exit_code)
    return replace(run, exit_code=-number) if number else run


def _devices() -> list[str]:
    patterns = (Path(pattern) for pattern in DEVICES)
    return [str(device) for pattern in patterns for device in sorted(pattern.parent.glob(pattern.name))]


def _folders(command: Sequence[str], env: Mapping[str, str]) -> Iterable[Path]:
    """The folders that a command needs: those of its files and of the interpreters that run them, and of libraries."""
    files = [word for word in command if word.startswith("/") and Path(word).is_file()]
    files += [found for file in files for word in interpreter(file) if (found := shutil.which(word))]
    folders = [
        _prefix(folder) for file in files for folder in dict.fromkeys((Path(file).parent, Path(file).resolve().parent))
    ]
    listed = (name for variable in LIBRARY_VARIABLES for name in env.get(variable, "").split(":"))
    folders += [Path(name) for name in listed if name.startswith("/")]
    # What lies in another needs no place of its own, and the root itself hides nothing.
    return [folder for folder in dict.fromkeys(folders) if folder != Path("/")]


def _prefix(folder: Path) -> Path:
    """Where a program's libraries are, too: /x/bin/python3 needs /x/lib, and python3 in a virtual environment /x."""
    parent = folder.parent
    belongs = (parent / "pyvenv.cfg").is_file() or any((parent / "lib").glob("python3*"))
    return parent if folder.name == "bin" and belongs and str(parent) != os.path.expanduser("~") else folder  # noqa: PTH111


def interpreter(file: str) -> list[str]:
    """The programs that a script's first line names: what stands behind #!, and what env is to look for."""
    try:
        with open(file, "rb") as script:  # noqa: PTH123
            first = script.readline(256)
        words = shlex.split(os.fsdecode(first[2:])) if first.startswith(b"#!") else []
    except (OSError, ValueError):
        return []
    return words[: 2 if Path(words[0]).name == "env" else 1] if words else []

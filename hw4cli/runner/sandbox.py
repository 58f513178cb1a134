"""The command lines of bubblewrap (bwrap), which runs a program in namespaces of its own.

The program sees the system's folders, those of its own files and its private ones. There is no network, no process but
its own, which are killed with it or with the judge, and no privilege that could undo this. All but the private folders
is read-only. bubblewrap works for an ordinary user and for root.
"""

import os
import shutil
import subprocess
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cache
from pathlib import Path

from hw4cli.errors import MachineError
from hw4cli.system.account import Account

SYSTEM = ("/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/etc", "/opt", "/sys", "/nix", "/run/nvidia")
DEVICE_FILES = ("/dev/nvidia*", "/dev/kfd", "/dev/dri", "/dev/dxg")
# Variables whose values are folders of libraries, separated by colons.
LIBRARY_VARIABLES = (
    *("LD_LIBRARY_PATH", "PYTHONPATH", "VIRTUAL_ENV", "CONDA_PREFIX"),
    *("CUDA_HOME", "CUDA_PATH", "ROCM_PATH", "CUPY_CACHE_DIR"),
)
PROCESSES = ("--unshare-pid", "--unshare-ipc", "--die-with-parent", "--proc", "/proc")
ISOLATION = ("--unshare-net", "--unshare-uts", "--unshare-cgroup-try")
# In order of preference: a user namespace that allows no further one; one that does (bubblewrap before 0.8); none,
# where bwrap is a setuid program or only root may create one.
USER_NAMESPACES = (("--unshare-user", "--disable-userns"), ("--unshare-user",), ())
INSTALL = "install it (Debian, Ubuntu: apt install bubblewrap)"


@cache
def privilege_options(account: Account | None) -> tuple[str, ...]:
    """bwrap's options that remove all privileges of a program that runs as this user. Raises MachineError, with what to
    install, if bwrap is missing or does not work."""
    if shutil.which("bwrap") is None:
        raise MachineError(f"the sandbox needs bubblewrap: {INSTALL}")
    drop = ("--cap-drop", "ALL")
    if account:
        if shutil.which("setpriv") is None:
            raise MachineError("the sandbox needs setpriv to run programs as another user: install util-linux")
        # Root makes the sandbox, and setpriv changes the user in it.
        choices = [(*drop, "--cap-add", "CAP_SETUID", "--cap-add", "CAP_SETGID")]
    else:
        choices = [(*namespace, *drop) for namespace in USER_NAMESPACES]
    message = ""
    for options in choices:
        mounts = ("--ro-bind", "/", "/", "--dev", "/dev")
        probe = [*_bwrap(), *options, *PROCESSES, *ISOLATION, *mounts, *setpriv(account), "true"]
        try:
            result = subprocess.run(probe, capture_output=True, text=True, timeout=30)
        except (OSError, subprocess.TimeoutExpired) as error:
            raise MachineError(f"the sandbox: bwrap does not run here: {error}") from None
        if result.returncode == 0:
            return options
        message = message or result.stderr.strip()
    raise MachineError(
        f"the sandbox does not work here ({message}): it needs user namespaces "
        "(sysctl kernel.unprivileged_userns_clone, or apt install bubblewrap with AppArmor's profile for it)"
    )


def setpriv(account: Account | None) -> list[str]:
    """The prefix of a command that makes it run as a user, without a way back."""
    if account is None:
        return []
    groups = ",".join(map(str, account.groups))
    return [
        *(shutil.which("setpriv") or "setpriv", f"--reuid={account.uid}", f"--regid={account.gid}"),
        *([f"--groups={groups}"] if groups else ["--clear-groups"]),
        *("--inh-caps=-all", "--bounding-set=-all", "--"),
    ]


def wrap_processes(command: Sequence[str], account: Account | None) -> list[str]:
    """The command in a process namespace of its own: it sees every file, but no other process, and all its processes
    are killed with it."""
    bwrap = [*_bwrap(), *privilege_options(account), "--dev-bind", "/", "/", *PROCESSES]
    return [*bwrap, "--", *setpriv(account), *command]


def wrap(
    command: Sequence[str],
    visible: Iterable[Path],
    private: Path,
    scratch: Path,
    hidden: Iterable[Path],
    account: Account | None,
) -> list[str]:
    """The command inside a sandbox: `visible` files and folders are mounted read-only, `private` is writable, and
    `scratch` replaces /tmp and /dev/shm. `hidden` folders look empty but for what is `visible` in them."""
    bwrap = [*_bwrap(), *privilege_options(account), *PROCESSES, *ISOLATION, "--dev", "/dev"]
    for device in _devices():
        bwrap += ["--dev-bind-try", device, device]
    for name in ("/tmp", "/dev/shm"):
        bwrap += ["--bind", str(scratch), name]
    for name in SYSTEM:
        bwrap += ["--ro-bind-try", name, name]
    mounts = {**dict.fromkeys(visible, "visible"), **dict.fromkeys(_hidden_paths(hidden, visible), "hidden")}
    # Deeper folders are mounted later, over those above them.
    for path, kind in sorted(mounts.items(), key=lambda item: len(item[0].parts)):
        if kind == "visible":
            bwrap += ["--dir", str(path.parent), "--ro-bind", str(path), str(path)]
        else:
            bwrap += ["--tmpfs", str(path)]
    emptied = [str(path) for path, kind in mounts.items() if kind == "hidden"]
    bwrap += ["--dir", str(private.parent), "--bind", str(private), str(private)]
    # /proc has settings of the whole system, which root may change even without privileges.
    for name in (*emptied, "/proc", "/dev", "/"):
        bwrap += ["--remount-ro", name]
    return [*bwrap, "--", *setpriv(account), *command]


def visible_paths(command: Sequence[str], env: Mapping[str, str], hidden: Iterable[Path]) -> list[Path]:
    """The paths that a command needs in its sandbox: the folders of the files among its arguments, and those of the
    libraries that the environment names. Of a file in a hidden folder, only the file."""
    closed = {Path(os.path.realpath(folder)) for folder in hidden}
    files = [Path(argument) for argument in command if argument.startswith("/") and os.path.isfile(argument)]  # noqa: PTH113
    found = []
    for file in files:
        for path in (file, Path(os.path.realpath(file))):
            folder = _install_prefix(path.parent)
            alone = folder == Path("/") or Path(os.path.realpath(folder)) in closed
            found.append(path if alone else folder)
    listed = (name for variable in LIBRARY_VARIABLES for name in env.get(variable, "").split(":"))
    found += [Path(name) for name in listed if name.startswith("/") and name != "/"]
    if base := env.get("PYTHONUSERBASE"):
        found.append(Path(base, "lib"))  # not all of ~/.local, which may hold keys
    return [
        path
        for path in dict.fromkeys(found)
        if os.path.exists(path)  # noqa: PTH110
        and (real := Path(os.path.realpath(path))) not in closed
        and (not _is_below(path, SYSTEM) or any(real.is_relative_to(folder) for folder in closed))
    ]


def is_visible(path: str, visible: Iterable[Path]) -> bool:
    """Whether a program in a sandbox with these `visible` paths finds a file."""
    return all(_is_below(Path(name), (*SYSTEM, *visible)) for name in (path, os.path.realpath(path)))


def _hidden_paths(hidden: Iterable[Path], visible: Iterable[Path]) -> Iterator[Path]:
    """The paths under which the sandbox would show hidden folders."""
    for folder in hidden:
        target = Path(os.path.realpath(folder))
        for mounted in (*map(Path, SYSTEM), *visible):
            real = Path(os.path.realpath(mounted))
            if target.is_dir() and target.is_relative_to(real):
                yield mounted / target.relative_to(real)


def _is_below(path: Path, folders: Iterable[str | Path]) -> bool:
    return any(path.is_relative_to(folder) for folder in folders)


def _bwrap() -> list[str]:
    return [shutil.which("bwrap") or "bwrap"]


def _devices() -> list[str]:
    patterns = (Path(pattern) for pattern in DEVICE_FILES)
    return [str(device) for pattern in patterns for device in sorted(pattern.parent.glob(pattern.name))]


def _install_prefix(folder: Path) -> Path:
    """The folder that holds a program and its libraries: /x for /x/bin/python3 with /x/lib, or in a virtual environment
    /x; else the program's own folder."""
    parent = folder.parent
    belongs = (parent / "pyvenv.cfg").is_file() or any((parent / "lib").glob("python3*"))
    return parent if folder.name == "bin" and belongs and str(parent) != os.path.expanduser("~") else folder  # noqa: PTH111

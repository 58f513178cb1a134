"""bubblewrap (bwrap): a program that sees the system's folders, its own and its private ones, and nothing else.

bubblewrap makes namespaces as an ordinary user or as root: no network, no process but the program's own, which all die
with it or with the judge, no privilege that could undo it. What is shown is read-only.
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
DEVICES = ("/dev/nvidia*", "/dev/kfd", "/dev/dri", "/dev/dxg")
# Variables that name folders with libraries, one or several with colons between them.
LIBRARY_VARIABLES = (
    *("LD_LIBRARY_PATH", "PYTHONPATH", "VIRTUAL_ENV", "CONDA_PREFIX"),
    *("CUDA_HOME", "CUDA_PATH", "ROCM_PATH", "CUPY_CACHE_DIR"),
)
PROCESSES = ("--unshare-pid", "--unshare-ipc", "--die-with-parent", "--proc", "/proc")
ALONE = ("--unshare-net", "--unshare-uts", "--unshare-cgroup-try")
# In order of preference. A user namespace in which no other can be made; in which one can (before 0.8); and none, where
# bwrap is a setuid program, or only root may make one.
USER_NAMESPACES = (("--unshare-user", "--disable-userns"), ("--unshare-user",), ())
INSTALL = "install it (Debian, Ubuntu: apt install bubblewrap)"


@cache
def privileges(account: Account | None) -> tuple[str, ...]:
    """The words for bwrap that leave a program no privilege, as this user. Raises MachineError, saying what to install,
    unless bwrap is here and works."""
    if shutil.which("bwrap") is None:
        raise MachineError(f"the sandbox needs bubblewrap: {INSTALL}")
    drop = ("--cap-drop", "ALL")
    if account:
        if shutil.which("setpriv") is None:
            raise MachineError("the sandbox needs setpriv to run programs as another user: install util-linux")
        # Root makes the sandbox, and another user is put into it: see become.
        choices = [(*drop, "--cap-add", "CAP_SETUID", "--cap-add", "CAP_SETGID")]
    else:
        choices = [(*words, *drop) for words in USER_NAMESPACES]
    said = ""
    for words in choices:
        probe = [
            *_bwrap(),
            *words,
            *PROCESSES,
            *ALONE,
            "--ro-bind",
            "/",
            "/",
            "--dev",
            "/dev",
            *become(account),
            "true",
        ]
        try:
            result = subprocess.run(probe, capture_output=True, text=True, timeout=30)
        except (OSError, subprocess.TimeoutExpired) as error:
            raise MachineError(f"the sandbox: bwrap does not run here: {error}") from None
        if result.returncode == 0:
            return words
        said = said or result.stderr.strip()
    raise MachineError(
        f"the sandbox does not work here ({said}): it needs user namespaces (sysctl kernel.unprivileged_userns_clone, "
        "or apt install bubblewrap with AppArmor's profile for it)"
    )


def become(account: Account | None) -> list[str]:
    """The words that make what follows them run as a user, with no way back."""
    if account is None:
        return []
    groups = ",".join(map(str, account.groups))
    return [
        *(shutil.which("setpriv") or "setpriv", f"--reuid={account.uid}", f"--regid={account.gid}"),
        *([f"--groups={groups}"] if groups else ["--clear-groups"]),
        *("--inh-caps=-all", "--bounding-set=-all", "--"),
    ]


def contain(command: Sequence[str], account: Account | None) -> list[str]:
    """The command with processes of its own, which cannot reach others, and all die with it. It sees every file."""
    return [*_bwrap(), *privileges(account), "--dev-bind", "/", "/", *PROCESSES, "--", *become(account), *command]


def wrap(
    command: Sequence[str],
    own: Iterable[Path],
    private: Path,
    scratch: Path,
    hidden: Iterable[Path],
    account: Account | None,
) -> list[str]:
    """The command inside a sandbox, with these `own` files and folders of its read-only, `private` to work in, and
    `scratch` in place of /tmp and /dev/shm. What is in a `hidden` folder, and not of its own, is not there."""
    words = [*_bwrap(), *privileges(account), *PROCESSES, *ALONE, "--dev", "/dev"]
    for device in _devices():
        words += ["--dev-bind-try", device, device]
    for name in ("/tmp", "/dev/shm"):
        words += ["--bind", str(scratch), name]
    for name in SYSTEM:
        words += ["--ro-bind-try", name, name]
    places = {**dict.fromkeys(own, "own"), **dict.fromkeys(_seen(hidden, own), "hidden")}
    # The deeper place comes later, and so lies over the others.
    for place, kind in sorted(places.items(), key=lambda item: len(item[0].parts)):
        if kind == "own":
            words += ["--dir", str(place.parent), "--ro-bind", str(place), str(place)]
        else:
            words += ["--tmpfs", str(place)]
    emptied = [str(place) for place, kind in places.items() if kind == "hidden"]
    words += ["--dir", str(private.parent), "--bind", str(private), str(private)]
    # In /proc are settings of the whole system, which root may change also without privileges.
    for name in (*emptied, "/proc", "/dev", "/"):
        words += ["--remount-ro", name]
    return [*words, "--", *become(account), *command]


def own_files(command: Sequence[str], env: Mapping[str, str], hidden: Iterable[Path]) -> list[Path]:
    """What a sandbox must show for a command: the folders of the files that it names, and of the libraries that the
    environment names. Of a file in a hidden folder, the file alone."""
    closed = {Path(os.path.realpath(folder)) for folder in hidden}
    files = [Path(word) for word in command if word.startswith("/") and os.path.isfile(word)]  # noqa: PTH113
    found = []
    for file in files:
        for path in (file, Path(os.path.realpath(file))):
            folder = _prefix(path.parent)
            alone = folder == Path("/") or Path(os.path.realpath(folder)) in closed
            found.append(path if alone else folder)
    listed = (name for variable in LIBRARY_VARIABLES for name in env.get(variable, "").split(":"))
    found += [Path(name) for name in listed if name.startswith("/") and name != "/"]
    if base := env.get("PYTHONUSERBASE"):
        found.append(Path(base, "lib"))  # and not ~/.local, where keys may lie
    return [
        path
        for path in dict.fromkeys(found)
        if os.path.exists(path)  # noqa: PTH110
        and (real := Path(os.path.realpath(path))) not in closed
        and (not _is_in(path, SYSTEM) or any(real.is_relative_to(folder) for folder in closed))
    ]


def shows(path: str, own: Iterable[Path]) -> bool:
    """Whether a program in the sandbox finds this file."""
    return all(_is_in(Path(place), (*SYSTEM, *own)) for place in (path, os.path.realpath(path)))


def _seen(hidden: Iterable[Path], own: Iterable[Path]) -> Iterator[Path]:
    """Under which names hidden folders would be seen in the sandbox."""
    for folder in hidden:
        place = Path(os.path.realpath(folder))
        for shown in (*map(Path, SYSTEM), *own):
            real = Path(os.path.realpath(shown))
            if place.is_dir() and place.is_relative_to(real):
                yield shown / place.relative_to(real)


def _is_in(path: Path, folders: Iterable[str | Path]) -> bool:
    return any(path.is_relative_to(folder) for folder in folders)


def _bwrap() -> list[str]:
    return [shutil.which("bwrap") or "bwrap"]


def _devices() -> list[str]:
    patterns = (Path(pattern) for pattern in DEVICES)
    return [str(device) for pattern in patterns for device in sorted(pattern.parent.glob(pattern.name))]


def _prefix(folder: Path) -> Path:
    """Where a program's libraries are, too: /x/bin/python3 needs /x/lib, and python3 in a virtual environment /x."""
    parent = folder.parent
    belongs = (parent / "pyvenv.cfg").is_file() or any((parent / "lib").glob("python3*"))
    return parent if folder.name == "bin" and belongs and str(parent) != os.path.expanduser("~") else folder  # noqa: PTH111

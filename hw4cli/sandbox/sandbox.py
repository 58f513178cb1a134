"""The command lines of bubblewrap (bwrap), which runs a program in namespaces of its own.

The program sees the system's folders, those of its own files and its private ones. There is no network, no process but
its own, which are killed with it or with the judge, and no privilege that could undo this. All but the private folders
is read-only. A filter (seccomp) refuses the system calls that could reach around the namespaces. bubblewrap works for
an ordinary user and for root.
"""

import os
import re
import shutil
import stat
import subprocess
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from hw4cli.errors import MachineError
from hw4cli.sandbox import seccomp
from hw4cli.sandbox.memory import SHARED, TEMPORARY, PrivateMemory
from hw4cli.system.account import Account

SYSTEM = ("/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/etc", "/opt", "/sys", "/nix", "/run/nvidia")
DEVICE_FILES = ("/dev/nvidia*", "/dev/kfd", "/dev/dri", "/dev/dxg")
# Variables whose values are folders of libraries, separated by colons.
LIBRARY_VARIABLES = (
    *("LD_LIBRARY_PATH", "PYTHONPATH", "VIRTUAL_ENV", "CONDA_PREFIX"),
    *("CUDA_HOME", "CUDA_PATH", "ROCM_PATH", "CUPY_CACHE_DIR"),
)
HIDE_FILE = ("--ro-bind", "/dev/null")  # it cannot be opened there: the mount has no devices
# Folders with state of the kernel that root may read even without privileges.
KERNEL_STATE = ("/sys/kernel/debug", "/sys/kernel/tracing", "/sys/firmware")
# A session of its own, since a program can signal the whole of its process group, bwrap included.
PROCESSES = ("--unshare-pid", "--unshare-ipc", "--die-with-parent", "--new-session", "--proc", "/proc")
# The sandbox's first process: its memory would be open to a program of the same user.
FIRST = ("--tmpfs", "/proc/1", "--remount-ro", "/proc/1")
# Lists of the user's keys, which the filter keeps out of reach otherwise.
KEYS = tuple(
    word
    for name in ("/proc/keys", "/proc/key-users")
    if os.path.exists(name)  # noqa: PTH110
    for word in (*HIDE_FILE, name)
)
ISOLATION = ("--unshare-net", "--unshare-uts", "--unshare-cgroup-try")
# In order of preference: a user namespace that allows no further one; one that does (bubblewrap before 0.8); none,
# where bwrap is a setuid program or only root may create one.
USER_NAMESPACES = (("--unshare-user", "--disable-userns"), ("--unshare-user",), ())
OCTAL = re.compile(r"\\([0-7]{3})")  # how the kernel writes blanks in the paths of mounts
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
        wanted = ("CAP_SETUID", "CAP_SETGID", "CAP_SETPCAP")  # the last for --bounding-set
        choices = [(*drop, *(word for name in wanted for word in ("--cap-add", name)))]
    else:
        choices = [(*namespace, *drop) for namespace in USER_NAMESPACES]
    message = ""
    for options in choices:
        mounts = ("--ro-bind", "/", "/", "--dev", "/dev")
        wrapped = Wrapped((*options, *PROCESSES, *FIRST, *KEYS, *ISOLATION, *mounts), (*setpriv(account), "true"))
        try:
            with wrapped.command() as (probe, files):
                result = subprocess.run(probe, capture_output=True, text=True, timeout=30, pass_fds=files)
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


def can_run_as(account: Account | None) -> bool:
    """Whether this machine lets root become a user that has a number and no name; some containers know few users. It
    becomes one as programs without a sandbox do, which need no setpriv."""
    if account is None:
        return True
    try:
        subprocess.run(["true"], user=account.uid, group=account.gid, extra_groups=account.groups, timeout=30)
    except (OSError, subprocess.TimeoutExpired):
        return False
    return True


@dataclass(frozen=True)
class Wrapped:
    """A command in a sandbox with these options of bwrap."""

    options: Sequence[str]
    inside: Sequence[str]

    @contextmanager
    def command(self) -> Iterator[tuple[list[str], tuple[int, ...]]]:
        """The command line that starts it, once, and the files that it must inherit. They hold the filter, the options,
        which the program and other users would see on a command line (they name the hidden folders), and, last, what
        bwrap says of its processes."""
        with ExitStack() as stack:
            options = "".join(f"{option}\0" for option in self.options).encode(errors="surrogateescape")
            texts = (seccomp.program(), options, b"")
            files = tuple(stack.enter_context(_memory_file(text)) for text in texts)
            flags = ("--seccomp", "--args", "--info-fd")
            words = [word for flag, file in zip(flags, files, strict=True) for word in (flag, str(file))]
            yield [shutil.which("bwrap") or "bwrap", *words, "--", *self.inside], files


def first_process(files: Sequence[int]) -> int:
    """The number of the first process of the sandbox that these files were made for. MachineError if bwrap has not said
    it."""
    said = re.search(rb'"child-pid": *(\d+)', os.pread(files[-1], 4096, 0))
    if not said:
        raise MachineError("the sandbox: bwrap does not say which its processes are")
    return int(said[1])


@cache
def has_sized_memory() -> bool:
    """Whether bwrap can mount a file system in memory of a given size (0.7 or newer)."""
    try:
        return "--size " in subprocess.run(["bwrap", "--help"], capture_output=True, text=True, timeout=30).stdout
    except (OSError, subprocess.TimeoutExpired):
        return False


@contextmanager
def _memory_file(content: bytes) -> Iterator[int]:
    """A file in memory, of which there is only the descriptor; it is read from its start."""
    file = os.memfd_create("hw4-sandbox")
    try:
        os.write(file, content)
        os.lseek(file, 0, os.SEEK_SET)
        yield file
    finally:
        os.close(file)


def wrap_processes(command: Sequence[str], account: Account | None) -> Wrapped:
    """The command in a process namespace of its own: it sees every file, but no other process, and all its processes
    are killed with it."""
    return Wrapped(
        (*privilege_options(account), "--dev-bind", "/", "/", *PROCESSES, *FIRST, *KEYS), (*setpriv(account), *command)
    )


def wrap(
    command: Sequence[str],
    visible: Iterable[Path],
    private: Path,
    scratch: Path | PrivateMemory,
    hidden: Iterable[Path],
    account: Account | None,
) -> Wrapped:
    """The command inside a sandbox: `visible` files and folders are mounted read-only, `private` is writable, and
    `scratch` replaces /tmp and /dev/shm, or has them all. `hidden` folders look empty but for what is `visible` in
    them."""
    bwrap = [*privilege_options(account), *PROCESSES, *FIRST, *KEYS, *ISOLATION, "--dev", "/dev"]
    for device in _devices():
        bwrap += ["--dev-bind-try", device, device]
    if isinstance(scratch, Path):
        for name in (TEMPORARY, SHARED):
            bwrap += ["--bind", str(scratch), name]
    else:
        bwrap += scratch.options()
    for name in SYSTEM:
        bwrap += ["--ro-bind-try", name, name]
    mounts = {**dict.fromkeys(visible, "visible"), **dict.fromkeys(_hidden_paths(hidden, visible), "hidden")}
    # Deeper folders are mounted later, over those above them.
    for path, kind in sorted(mounts.items(), key=lambda item: len(item[0].parts)):
        if kind == "visible":
            bwrap += ["--dir", str(path.parent), "--ro-bind", str(path), str(path)]
        elif path.is_dir():
            bwrap += ["--tmpfs", str(path)]
        elif path.exists():
            bwrap += [*HIDE_FILE, str(path)]
    if account is None and os.geteuid() == 0:
        closed_files, closed_folders = _only_roots()
        for name in closed_folders:
            bwrap += ["--tmpfs", name, "--remount-ro", name]
        for name in closed_files:
            bwrap += [*HIDE_FILE, name]
        for name in _settings_of_the_system():
            bwrap += ["--ro-bind", name, name]
    emptied = [str(path) for path, kind in mounts.items() if kind == "hidden" and path.is_dir()]
    if _is_below(private.parent, (*SYSTEM, *visible)):  # there it is the judge's, which others may not enter
        bwrap += ["--tmpfs", str(private.parent)]
        emptied.append(str(private.parent))
    bwrap += ["--dir", str(private.parent)]
    bwrap += ["--bind", str(private), str(private)] if isinstance(scratch, Path) else scratch.folder_options()
    # /proc itself stays writable: CUDA names its threads there.
    for name in (*emptied, "/dev", "/"):
        bwrap += ["--remount-ro", name]
    return Wrapped(bwrap, (*setpriv(account), *command))


def visible_paths(
    command: Sequence[str], env: Mapping[str, str], hidden: Iterable[Path], mounts: Iterable[str] = ()
) -> list[Path]:
    """The paths that a command needs in its sandbox: the folders of the files among its arguments, those of the
    libraries that the environment names, and the `mounts`. Of a file in a hidden folder, only the file."""
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
    found += map(Path, mounts)
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


@cache
def _only_roots() -> tuple[list[str], list[str]]:
    """The files and the folders of the system's settings that others than their owner may not read: root's programs
    run as root, if without privileges."""
    files, folders = [], [name for name in KERNEL_STATE if os.path.isdir(name)]  # noqa: PTH112
    for folder, inside, names in os.walk("/etc"):
        for name in (*inside, *names):
            mode = os.lstat(path := os.path.join(folder, name)).st_mode  # noqa: PTH118
            if stat.S_ISDIR(mode) and mode & 0o005 != 0o005:
                folders.append(path)
                inside.remove(name)
            elif stat.S_ISREG(mode) and not mode & 0o004:
                files.append(path)
    return files, folders


def _settings_of_the_system() -> list[str]:
    """What root may change in /proc even without privileges; not what belongs to a process."""
    with os.scandir("/proc") as entries:
        return sorted(
            entry.path
            for entry in entries
            if not (entry.name.isdigit() or entry.is_symlink() or entry.path in KEYS)
            and (entry.is_dir() or entry.stat().st_mode & 0o222)
        )


def _hidden_paths(hidden: Iterable[Path], visible: Iterable[Path]) -> Iterator[Path]:
    """The paths under which the sandbox would show hidden folders, or what is in them."""
    mounts = _mounts()
    shown = [(mounted, Path(os.path.realpath(mounted))) for mounted in (*map(Path, SYSTEM), *visible)]
    for folder in hidden:
        target = Path(os.path.realpath(folder))
        if target.is_dir():
            for path in dict.fromkeys((target, *_aliases(target, mounts))):
                for mounted, real in shown:
                    if path.is_relative_to(real):
                        yield mounted / path.relative_to(real)


def _aliases(folder: Path, mounts: Sequence[tuple[str, Path, Path]]) -> Iterator[Path]:
    """Where further mounts show a folder, or something in it: the same file system may be mounted in several places,
    and parts of it too."""
    # Of several mounts in one place the last is seen.
    above = [mount for mount in reversed(mounts) if folder.is_relative_to(mount[2])]
    own = max(above, key=lambda mount: len(mount[2].parts))
    inside = own[1] / folder.relative_to(own[2])  # the folder's path in its file system
    for device, root, place in mounts:
        if device != own[0]:
            continue
        if inside.is_relative_to(root):
            yield place / inside.relative_to(root)
        elif root.is_relative_to(inside):
            yield place


def _mounts() -> list[tuple[str, Path, Path]]:
    """The mounts of this machine: the device's number, the folder or file of its file system that is mounted, and
    where."""
    lines = Path("/proc/self/mountinfo").read_text(encoding="utf-8", errors="surrogateescape").splitlines()
    fields = (line.split(" ") for line in lines)
    plain = (
        (device, *(OCTAL.sub(lambda found: chr(int(found[1], 8)), name) for name in names))
        for _, _, device, *names in (one[:5] for one in fields)
    )
    return [(device, Path(root), Path(place)) for device, root, place in plain]


def _is_below(path: Path, folders: Iterable[str | Path]) -> bool:
    return any(path.is_relative_to(folder) for folder in folders)


def _devices() -> list[str]:
    patterns = (Path(pattern) for pattern in DEVICE_FILES)
    return [str(device) for pattern in patterns for device in sorted(pattern.parent.glob(pattern.name))]


def _install_prefix(folder: Path) -> Path:
    """The folder that holds a program and its libraries: /x for /x/bin/python3 with /x/lib, or in a virtual environment
    /x; else the program's own folder."""
    parent = folder.parent
    belongs = (parent / "pyvenv.cfg").is_file() or any((parent / "lib").glob("python3*"))
    return parent if folder.name == "bin" and belongs and str(parent) != os.path.expanduser("~") else folder  # noqa: PTH111

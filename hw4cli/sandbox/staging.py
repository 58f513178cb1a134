"""The private folder of a run: it holds a copy of the input under a random name, and is removed after the run.

In the sandbox it is a file system of its own, if there is enough memory (memory.py). Else its parent folder is
the judge's, and holds a mark, which the program must not change: the token of the judge that owns it.

The input is copied, not linked: a program that swaps its arguments would write through a link into the case. The copy
takes 0.4 s for the largest input (672 MB), little more than reading it into memory before the clock starts.
"""

import fcntl
import os
import re
import secrets
import shutil
import stat
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from hw4cli.errors import MachineError, os_error
from hw4cli.problem.casefile import open_regular
from hw4cli.sandbox.memory import PrivateMemory
from hw4cli.sandbox.quota import RESERVE
from hw4cli.sandbox.sandbox import has_sized_memory
from hw4cli.system import owner
from hw4cli.system.account import Account
from hw4cli.system.interrupts import SignalsDeferred

MEMORY = Path("/dev/shm")
SHARE = 4  # a run's files may take one part in this many of the free memory
COPY_BYTES = 64 << 20  # copied at a time
NO_LIMIT = 1 << 60
NO_BOUNDS = (NO_LIMIT, NO_LIMIT, NO_LIMIT)
PREFIX = "hw4-judge-"
NAME = re.compile(re.escape(PREFIX) + "[a-z0-9_]{8}")  # a name that mkdtemp makes
MARK = "owner"  # the file in such a folder that holds its judge's token


@dataclass(frozen=True)
class Stage:
    """A run's private `folder`, with the input and the path for the output; `scratch` for the program's other files;
    `root`, which holds both. `kind` is "memory" or "disk". These are the paths as the program sees them. With `memory`
    they are in a file system of the sandbox's own, and `scratch` and `root` are none."""

    root: Path
    folder: Path
    scratch: Path
    source: Path
    output: Path
    kind: str
    memory: PrivateMemory | None = None
    held: int = -1

    @property
    def descriptor(self) -> int:
        """A descriptor of the folder, which stays the same folder whatever the program does to its path; -1 if the
        sandbox was not entered."""
        return self.memory.held if self.memory else self.held


@contextmanager
def staged(
    original: Path,
    output_bytes: int,
    parent: Path | None = None,
    user: Account | None = None,
    mounted: bool = False,
    bounds: tuple[int, int, int] = NO_BOUNDS,
) -> Iterator[Stage]:
    """A new private folder with a copy of the input: in a file system in memory where the files fit into a quarter of
    it, else under `parent` or TMPDIR, in the page cache. `user` becomes its owner. `mounted`: the program runs in a
    sandbox, which gets a file system of its own with these `bounds` (bytes, files, bytes in /dev/shm), if it is in
    memory. MachineError without enough space for input and output."""
    needed = original.stat().st_size + output_bytes
    kind = "memory" if parent is None and needed * SHARE <= free_memory() else "disk"
    source, output = secrets.token_hex(4), f"{secrets.token_hex(4)}.out"
    if mounted and kind == "memory" and has_sized_memory():
        with PrivateMemory(*bounds, lambda folder: _copy(original, folder, source, user), user) as memory:
            folder = memory.folder
            yield Stage(Path(), folder, Path(), folder / source, folder / output, kind, memory)
        return
    parent = MEMORY if kind == "memory" else parent or Path(tempfile.gettempdir())
    free, needed = shutil.disk_usage(parent).free, needed + (RESERVE if kind == "disk" else 0)
    if free < needed:
        raise MachineError(f"{parent} has {free:,} bytes free, but a run takes {needed:,}: set TMPDIR elsewhere")
    with private_folder(parent, closed=mounted or user is None) as root:
        folder, scratch = root / "run", root / "tmp"
        folder.mkdir(mode=0o700)
        scratch.mkdir(mode=0o700)
        held = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            _copy(original, held, source, user)
            if user:
                user.give(folder, scratch)
            yield Stage(root, folder, scratch, folder / source, folder / output, kind, held=held)
        finally:
            os.close(held)


@contextmanager
def private_folder(parent: Path, closed: bool = True) -> Iterator[Path]:
    """A new folder in `parent`, marked as this judge's and removed after the block, or by a later judge if this one is
    killed. Unless it is `closed`, other users may enter it, whom something in it is given to. MachineError if it cannot
    be made."""
    remove_orphans(parent)
    folder = lock = None
    try:
        with SignalsDeferred():  # an interrupt during this block is raised at its end: inside `try`
            try:
                folder = Path(tempfile.mkdtemp(prefix=PREFIX, dir=parent)).resolve()
                (folder / MARK).write_text(owner.token())
                folder.chmod(0o700 if closed else 0o711)
                lock = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
            except OSError as error:
                raise os_error(error, f"make a folder in {parent}") from None
        with suppress(OSError):  # some file systems have no locks
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        yield folder
    finally:
        with SignalsDeferred():
            if folder is not None:
                _remove_folder(folder)
            if lock is not None:
                os.close(lock)


def remove_orphans(parent: Path) -> None:
    """Remove the folders of judges that were killed. Such a folder has a name of this form, is not a link, belongs to
    this user, and holds the mark of a process of this machine that has ended; no other folder is removed."""
    for folder in parent.glob(f"{PREFIX}*"):
        with suppress(OSError, ValueError):
            if NAME.fullmatch(folder.name) and _is_orphan(folder):
                _remove_folder(folder)


def _remove_folder(folder: Path) -> None:
    """Remove a judge's folder, its mark last: if this judge is killed meanwhile, the rest can still be attributed."""
    for path in folder.iterdir():
        if path.name != MARK:
            remove(path)
    remove(folder)


def _is_orphan(folder: Path) -> bool:
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)  # BlockingIOError: its judge lives
        mark = os.open(MARK, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK, dir_fd=descriptor)
        with os.fdopen(mark, "rb") as file:
            status, token = os.fstat(mark), file.read(1000).decode(errors="replace")
        is_ours = {status.st_uid, os.fstat(descriptor).st_uid} == {os.geteuid()} and stat.S_ISREG(status.st_mode)
        return is_ours and owner.is_dead(token)
    finally:
        os.close(descriptor)


def _copy(source: Path, folder: int, name: str, user: Account | None) -> None:
    """Copy a file into an open folder, for a user, within the kernel; where the file system allows it, blocks are
    shared (copy_file_range)."""
    try:
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
        target = os.open(name, flags, 0o644, dir_fd=folder)
        with open_regular(source) as reader, os.fdopen(target, "wb", buffering=0) as writer:
            ours, theirs = reader.fileno(), writer.fileno()
            if user:
                os.fchown(theirs, user.uid, user.gid)
            size = os.fstat(ours).st_size
            try:
                copied = os.copy_file_range(ours, theirs, size)
            except OSError:  # between two file systems, or not supported
                copied = 0
            while copied < size:
                count = os.sendfile(theirs, ours, copied, min(COPY_BYTES, size - copied))
                if not count:
                    raise MachineError(f"{source} became shorter while it was copied")
                copied += count
    except OSError as error:
        raise os_error(error, f"copy {source} into a private folder") from None


def free_memory() -> int:
    """Bytes that files in memory may take: the least of the memory available, the free space of its file system, and
    what is left of the job's or container's limit (its cgroup)."""
    try:
        lines = Path("/proc/meminfo").read_text(encoding="ascii").splitlines()
        available = next(int(line.split()[1]) << 10 for line in lines if line.startswith("MemAvailable:"))
        return min(available, shutil.disk_usage(MEMORY).free, _cgroup_free()) if os.access(MEMORY, os.W_OK) else 0
    except (OSError, StopIteration):
        return 0


def _cgroup_free(root: Path = Path("/sys/fs/cgroup"), own: Path = Path("/proc/self/cgroup")) -> int:
    """The least that is left of the memory limits of this process's cgroup and its parents, in both versions of
    cgroups. The page cache counts as used there, but is freed when memory is needed."""
    left = [NO_LIMIT]
    for line in own.read_text(encoding="utf-8").splitlines():
        _, controllers, path = line.split(":", 2)
        if controllers == "":
            top, names = root, ("memory.max", "memory.current", "inactive_file")
        elif "memory" in controllers.split(","):
            top, names = root / "memory", ("memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file")
        else:
            continue
        folder = top / path.lstrip("/")
        for group in (folder, *folder.parents):
            with suppress(OSError, ValueError):  # "max" is no limit
                limit, used = (int((group / name).read_text(encoding="ascii")) for name in names[:2])
                statistics = dict(line.split() for line in (group / "memory.stat").read_text().splitlines())
                left.append(max(0, limit - used + int(statistics.get(names[2], 0))))
            if group == top:
                break
    return min(left)


def absolute_command(command: list[str]) -> list[str]:
    """A command that works in another folder: its program, and the arguments that are files, as absolute paths."""
    program = command[0] if "/" in command[0] else shutil.which(command[0]) or command[0]
    files = [str(Path(argument).absolute()) if _is_file(argument) else argument for argument in command[1:]]
    return [str(Path(program).absolute()) if "/" in program else program, *files]


def _is_file(argument: str) -> bool:
    try:
        return Path(argument).is_file()
    except (OSError, ValueError):
        return False


def remove(folder: Path) -> None:
    """Remove a folder and its contents, including folders without permissions and paths longer than the system allows.
    Links are not followed; if the folder itself has become a link, only the link is removed. No process may still use
    it."""
    if folder.is_symlink() or folder.is_file():
        folder.unlink(missing_ok=True)
        return
    try:
        folder.chmod(stat.S_IRWXU)
        shutil.rmtree(folder)
    except FileNotFoundError:
        return
    except (OSError, RecursionError):
        for command in (["chmod", "-R", "u+rwx"], ["rm", "-rf"]):
            subprocess.run([*command, "--", folder], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, check=False)

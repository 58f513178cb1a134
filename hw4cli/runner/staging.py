"""The private folder of a run: a copy of the input under a random name, nothing else; made, looked after, removed.

It lies in a folder of ours, beside what the program must not change: the mark that tells whose it is.

A copy, because a program that mixes up its arguments would write through a link into our own file. It costs what the
reading of the input before the clock starts would cost anyway, and a little more (0.4 s for the largest, 672 MB).
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
from hw4cli.runner.quota import RESERVE
from hw4cli.system import owner
from hw4cli.system.account import Account
from hw4cli.system.interrupts import Held

MEMORY = Path("/dev/shm")
SHARE = 4  # of the memory that is free, a run's files may take one part in this many
COPY_BYTES = 64 << 20  # copied at a time
NO_LIMIT = 1 << 60
PREFIX = "hw4-judge-"
NAME = re.compile(re.escape(PREFIX) + "[a-z0-9_]{8}")  # as mkdtemp makes them
MARK = "owner"  # in such a folder: the token of the judge whose it is


@dataclass(frozen=True)
class Stage:
    """A run's private folder, with its input, and where the output belongs; and a folder for other files of the
    program's. `whole` is what holds both. `kind` is "memory" or "disk"."""

    whole: Path
    folder: Path
    scratch: Path
    source: Path
    output: Path
    kind: str


@contextmanager
def staged(
    original: Path, output_bytes: int, parent: Path | None = None, who: Account | None = None
) -> Iterator[Stage]:
    """A fresh private folder with a copy of the input, which then is in memory: in a file system there, where the files
    fit comfortably, else in the page cache, under `parent` or TMPDIR. It is given to `who`, if that is not us.
    MachineError without room for them."""
    needed = original.stat().st_size + output_bytes
    kind = "memory" if parent is None and needed * SHARE <= free_memory() else "disk"
    parent = MEMORY if kind == "memory" else parent or Path(tempfile.gettempdir())
    free, needed = shutil.disk_usage(parent).free, needed + (RESERVE if kind == "disk" else 0)
    if free < needed:
        raise MachineError(f"{parent} has {free:,} bytes free, but a run takes {needed:,}: set TMPDIR elsewhere")
    with private_folder(parent) as whole:
        folder, scratch = whole / "run", whole / "tmp"
        stage = Stage(
            whole, folder, scratch, folder / secrets.token_hex(4), folder / f"{secrets.token_hex(4)}.out", kind
        )
        folder.mkdir(mode=0o700)
        scratch.mkdir(mode=0o700)
        _copy(original, stage.source)
        if who:
            who.give(folder, scratch, stage.source)
        yield stage


@contextmanager
def private_folder(parent: Path) -> Iterator[Path]:
    """A fresh folder of ours in `parent`, marked as such, and removed in the end, or by a later judge if this one is
    killed. MachineError if it cannot be made."""
    remove_orphans(parent)
    with Held():
        try:
            folder = Path(tempfile.mkdtemp(prefix=PREFIX, dir=parent)).resolve()
            (folder / MARK).write_text(owner.token())
            folder.chmod(0o711)  # what is in it is another user's, perhaps
            lock = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
        except OSError as error:
            raise os_error(error, f"make a folder in {parent}") from None
    try:
        with suppress(OSError):  # some file systems have no locks
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        yield folder
    finally:
        with Held():
            _remove_whole(folder)
            os.close(lock)


def remove_orphans(parent: Path) -> None:
    """Remove our folders whose judges were killed. A folder is ours if it has such a name, is no link, belongs to us,
    and holds the mark of a process of this machine that is no more; whatever else is called like that stays."""
    for folder in parent.glob(f"{PREFIX}*"):
        with suppress(OSError, ValueError):
            if NAME.fullmatch(folder.name) and _is_orphan(folder):
                _remove_whole(folder)


def _remove_whole(folder: Path) -> None:
    """Remove a folder of ours, the mark last: what is left by a judge that is killed meanwhile is still ours."""
    for path in folder.iterdir():
        if path.name != MARK:
            remove(path)
    remove(folder)


def _is_orphan(folder: Path) -> bool:
    place = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    try:
        fcntl.flock(place, fcntl.LOCK_EX | fcntl.LOCK_NB)  # BlockingIOError: its judge lives
        mark = os.open(MARK, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK, dir_fd=place)
        with os.fdopen(mark, "rb") as file:
            status, token = os.fstat(mark), file.read(1000).decode(errors="replace")
        is_ours = {status.st_uid, os.fstat(place).st_uid} == {os.geteuid()} and stat.S_ISREG(status.st_mode)
        return is_ours and owner.is_dead(token)
    finally:
        os.close(place)


def _copy(source: Path, target: Path) -> None:
    """Copy a file within the kernel; blocks are shared where the file system can (copy_file_range)."""
    try:
        with open_regular(source) as reader, target.open("xb", buffering=0) as writer:
            ours, theirs = reader.fileno(), writer.fileno()
            size = os.fstat(ours).st_size
            try:
                copied = os.copy_file_range(ours, theirs, size)
            except OSError:  # another file system, or one that cannot
                copied = 0
            while copied < size:
                count = os.sendfile(theirs, ours, copied, min(COPY_BYTES, size - copied))
                if not count:
                    raise MachineError(f"{source} became shorter while it was copied")
                copied += count
    except OSError as error:
        raise os_error(error, f"copy {source} to {target.parent}") from None


def free_memory() -> int:
    """Bytes that files in memory may take in all: what is available of it, of its file system, and of what the job or
    container is allowed (its cgroup)."""
    try:
        lines = Path("/proc/meminfo").read_text(encoding="ascii").splitlines()
        available = next(int(line.split()[1]) << 10 for line in lines if line.startswith("MemAvailable:"))
        return min(available, shutil.disk_usage(MEMORY).free, _cgroup_rest()) if os.access(MEMORY, os.W_OK) else 0
    except (OSError, StopIteration):
        return 0


def _cgroup_rest(root: Path = Path("/sys/fs/cgroup"), own: Path = Path("/proc/self/cgroup")) -> int:
    """The least that is left of the memory limits of this process's cgroup and those around it, in both versions of
    cgroups. Files that were read count as used there, but make room when it is needed."""
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
        for place in (folder, *folder.parents):
            with suppress(OSError, ValueError):  # "max" is no limit
                limit, used = (int((place / name).read_text(encoding="ascii")) for name in names[:2])
                statistics = dict(line.split() for line in (place / "memory.stat").read_text().splitlines())
                left.append(max(0, limit - used + int(statistics.get(names[2], 0))))
            if place == top:
                break
    return min(left)


def absolute(words: list[str]) -> list[str]:
    """A command for another folder: its program and those arguments that are files by the caller's folder, in full."""
    program = words[0] if "/" in words[0] else shutil.which(words[0]) or words[0]
    files = [str(Path(word).absolute()) if _is_file(word) else word for word in words[1:]]
    return [str(Path(program).absolute()) if "/" in program else program, *files]


def _is_file(word: str) -> bool:
    try:
        return Path(word).is_file()
    except (OSError, ValueError):
        return False


def remove(folder: Path) -> None:
    """Remove a folder and all in it, also what its maker may not enter, and what lies deeper than a path can name. No
    process may be left in it; links are not followed, and if it has become one itself, only the link goes."""
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

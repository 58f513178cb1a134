"""The private folder of a run: a copy of the input under a random name, nothing else; made, looked after, removed.

A copy, because a program that mixes up its arguments would write through a link into our own file. It costs what the
reading of the input before the clock starts would cost anyway, and a little more (0.4 s for the largest, 672 MB).
"""

import fcntl
import os
import secrets
import shutil
import stat
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from hw4cli.casefile import open_regular
from hw4cli.errors import MachineError, os_error

MEMORY = Path("/dev/shm")
SHARE = 4  # of the memory that is free, a run's files may take one part in this many
COPY_BYTES = 64 << 20  # copied at a time
NO_LIMIT = 1 << 60
PREFIX = "hw4-judge-"
ORPHAN_SECONDS = 60.0  # a younger folder may be one that is just being made


@dataclass(frozen=True)
class Stage:
    """A run's private folder, with its input, and where the output belongs. `kind` is "memory" or "disk"."""

    folder: Path
    source: Path
    output: Path
    kind: str


@contextmanager
def staged(original: Path, output_bytes: int, parent: Path | None = None) -> Iterator[Stage]:
    """A fresh private folder with a copy of the input, which then is in memory: in a file system there, where the files
    fit comfortably, else in the page cache, under `parent` or TMPDIR. MachineError without room for them."""
    needed = original.stat().st_size + output_bytes
    kind = "memory" if parent is None and needed * SHARE <= free_memory() else "disk"
    parent = MEMORY if kind == "memory" else parent or Path(tempfile.gettempdir())
    free = shutil.disk_usage(parent).free
    if free < needed:
        raise MachineError(f"{parent} has {free:,} bytes free, but a run takes {needed:,}: set TMPDIR elsewhere")
    _remove_orphans(parent)
    try:
        folder = Path(tempfile.mkdtemp(prefix=PREFIX, dir=parent)).resolve()
        mark = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
        with suppress(OSError):  # some file systems have no locks
            fcntl.flock(mark, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        raise os_error(error, f"make a folder in {parent}") from None
    try:
        stage = Stage(folder, folder / secrets.token_hex(4), folder / f"{secrets.token_hex(4)}.out", kind)
        _copy(original, stage.source)
        yield stage
    finally:
        remove(folder)
        os.close(mark)


def _remove_orphans(parent: Path) -> None:
    """Remove our folders whose judges were killed: nobody holds their lock, which goes with its process."""
    for folder in parent.glob(f"{PREFIX}*"):
        with suppress(OSError):
            status = folder.lstat()
            if status.st_uid != os.getuid() or time.time() - status.st_mtime < ORPHAN_SECONDS:
                continue
            mark = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
            try:
                fcntl.flock(mark, fcntl.LOCK_EX | fcntl.LOCK_NB)
                remove(folder)
            finally:
                os.close(mark)


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
    container is allowed (its cgroup's limit)."""
    try:
        lines = Path("/proc/meminfo").read_text(encoding="ascii").splitlines()
        available = next(int(line.split()[1]) << 10 for line in lines if line.startswith("MemAvailable:"))
        return min(available, shutil.disk_usage(MEMORY).free, _cgroup_limit()) if os.access(MEMORY, os.W_OK) else 0
    except (OSError, StopIteration):
        return 0


def _cgroup_limit() -> int:
    """The smallest memory limit of this process's cgroup and those around it, in both versions of cgroups."""
    limits = [NO_LIMIT]
    for line in Path("/proc/self/cgroup").read_text(encoding="utf-8").splitlines():
        _, controllers, path = line.split(":", 2)
        if controllers == "":
            root, name = Path("/sys/fs/cgroup"), "memory.max"
        elif "memory" in controllers.split(","):
            root, name = Path("/sys/fs/cgroup/memory"), "memory.limit_in_bytes"
        else:
            continue
        folder = root / path.lstrip("/")
        for place in (folder, *folder.parents):
            with suppress(OSError, ValueError):  # "max" is no limit
                limits.append(int((place / name).read_text(encoding="ascii")))
            if place == root:
                break
    return min(limits)


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

"""A lock for each GPU, so that the judges of a machine run one program at a time on it."""

import fcntl
import os
import re
import stat
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

from hw4cli.errors import MachineError, os_error
from hw4cli.system import amd, nvidia

LOCKS = Path("/tmp")  # one folder for all users, whatever their TMPDIR

PATIENCE = 300.0  # seconds in which another user's judge should be done with its run
LOOK = 0.02  # seconds between two tries

_without: set[Path] = set()  # locks of all users that did not work: they are not waited for again

Say = Callable[[str], None]


def gpu_name(env: Mapping[str, str]) -> str | None:
    """The UUID of the first GPU that a program with this environment sees, NVIDIA's or AMD's; the name in the
    environment where the driver does not answer; None without a GPU."""
    if nvidia.table():
        gpu = nvidia.first_visible(env)
        return gpu.uuid if gpu else None
    if amd.gpus():
        other = amd.first_visible(env)
        return f"amd-{other.uuid}" if other else None
    wanted = env.get("CUDA_VISIBLE_DEVICES")
    if wanted is None and not Path("/dev/nvidiactl").exists():
        return None
    first = ("0" if wanted is None else wanted).partition(",")[0].strip()
    return first if re.fullmatch(r"[\w/-]+", first) and not first.startswith("-") else None


@contextmanager
def gpu_lock(env: Mapping[str, str], say: Say) -> Iterator[None]:
    """Hold the lock of the GPU that a program with this environment sees; other judges of this machine wait for it.

    There are two: one that only this user's judges can reach, and one for all users, which any of them could hold for
    ever: it is waited for no longer than PATIENCE, and not at all where it is no plain file. `say` gets a message if
    another judge holds one, or if the second does not work. A lock ends with its process, even one that is killed.
    """
    gpu = gpu_name(env)
    if gpu is None:
        yield
        return
    name = "hw4-gpu-" + re.sub(r"[^\w-]", "_", gpu) + ".lock"
    with ExitStack() as stack:
        waiting = f"waiting for GPU {gpu}: another judge is running a program on it"
        if own := own_folder():
            with suppress(MachineError):  # a full disk, say: the other lock is left
                file = stack.enter_context(_opened(own / name))
                if not _is_locked(file):
                    say(waiting)
                    fcntl.flock(file, fcntl.LOCK_EX)
        path = LOCKS / name
        try:
            file = stack.enter_context(_opened(path))
        except MachineError as error:
            if path not in _without:
                say(f"{error}: judges of other users are not waited for")
                _without.add(path)
        else:
            _wait_for_others(file, path, gpu, waiting, say)
        yield


def _wait_for_others(file: int, path: Path, gpu: str, waiting: str, say: Say) -> None:
    """Lock the file of all users, or go on without it after PATIENCE."""
    if _is_locked(file) or path in _without:
        return
    say(waiting)
    deadline = time.monotonic() + PATIENCE
    while not _is_locked(file):
        if time.monotonic() > deadline:
            _without.add(path)
            say(
                f"{path} has been held for {PATIENCE / 60:g} minutes by another process: going on without it, so that "
                f"other programs may run on GPU {gpu} beside the judged one, and make it slower"
            )
            return
        time.sleep(LOOK)


def _is_locked(file: int) -> bool:
    """Whether the file is locked now, by us; or nobody can lock it, since its file system has no locks (NFS has none of
    files that are open for reading alone, and homes are often there)."""
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError:
        return True
    return True


def own_folder() -> Path | None:
    """A folder of this machine that only this user can enter, for its locks; None if there is none."""
    user = os.geteuid()
    for folder in (Path("/run/hw4") if user == 0 else Path(f"/run/user/{user}"), _cache()):
        with suppress(OSError):
            if user == 0 or folder.parts[1] != "run":
                folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            status = folder.lstat()
            if stat.S_ISDIR(status.st_mode) and status.st_uid == user and not status.st_mode & 0o077:
                return folder
    return None


def _cache() -> Path:
    """In the home, which machines may share: they have folders of their own there."""
    return Path(os.path.expanduser("~/.cache/hw4"), f"locks-{os.uname().nodename}")  # noqa: PTH111


@contextmanager
def _opened(path: Path) -> Iterator[int]:
    """The open lock's file, which every user who finds it may lock and nobody can write. It is never removed: another
    process may just be opening it. Raises MachineError if it cannot be made, or is no plain file."""
    flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
    try:
        try:
            descriptor = os.open(path, flags | os.O_CREAT | os.O_EXCL, 0o444)
            os.fchmod(descriptor, 0o444)  # whatever the umask
        except FileExistsError:
            descriptor = os.open(path, flags)
    except OSError as error:
        raise os_error(error, f"lock the GPU with {path}") from None
    try:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            raise MachineError(f"cannot lock the GPU: {path} is not a regular file, remove it")
        yield descriptor
    finally:
        os.close(descriptor)

"""A lock for each GPU, so that the judges of a machine run one program at a time on it."""

import fcntl
import os
import re
import stat
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from hw4cli.errors import MachineError, os_error
from hw4cli.system import amd, nvidia

LOCKS = Path("/tmp")  # one folder for all users, whatever their TMPDIR

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

    `say` gets a message if another judge holds it. The lock ends with its process, even one that is killed. Raises
    MachineError if the lock's file cannot be made.
    """
    gpu = gpu_name(env)
    if gpu is None:
        yield
        return
    name = re.sub(r"[^\w-]", "_", gpu)
    descriptor = _open_lock(LOCKS / f"hw4-gpu-{name}.lock")
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            say(f"waiting for GPU {gpu}: another judge is running a program on it")
            fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


def _open_lock(path: Path) -> int:
    """Open the lock's file, which every user may lock and nobody can write. It is never removed: another process may
    just be opening it."""
    flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
    try:
        try:
            descriptor = os.open(path, flags | os.O_CREAT | os.O_EXCL, 0o444)
            os.fchmod(descriptor, 0o444)  # whatever the umask
        except FileExistsError:
            descriptor = os.open(path, flags)
    except OSError as error:
        raise os_error(error, f"lock the GPU with {path}") from None
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise MachineError(f"cannot lock the GPU: {path} is not a regular file, remove it")
    return descriptor

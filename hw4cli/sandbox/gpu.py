"""The GPU of judged programs: whether one answers, whose turn it is, and what happens on it while one runs.

Of two judges of a machine one runs a program on a GPU at a time. Memory, clock and other users are as the driver (NVML,
or AMD's in /sys) reports them: NVML needs the package nvidia-ml-py; without it, or without a GPU, all values are None.
AMD's driver does not name other users and throttling to everyone.
"""

import fcntl
import mmap
import os
import re
import stat
import statistics
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hw4cli.errors import MachineError, os_error
from hw4cli.system import amd, nvidia
from hw4cli.system.exits import names_missing_gpu
from hw4cli.system.nvidia import THROTTLE_BITS, query_nvml

# What compilers leave in a program with kernels: the sections of device code, and the drivers' and runtimes' libraries.
MARKS = (b".nv_fatbin", b".hip_fatbin", b"libcuda.so", b"libcudart.so", b"libamdhip64.so")
ABSENT = (
    "no GPU answers here (see hw4 doctor), so that {what} cannot be judged: judge on a machine with one, or give "
    "each run one (--launcher 'srun --gres=gpu:1')"
)

LOCKS = Path("/tmp")  # one folder for all users, whatever their TMPDIR
PATIENCE = 300.0  # seconds in which another user's judge should be done with its run
LOOK = 0.02  # seconds between two tries
PERIOD = 0.1  # seconds between two samples: each costs the driver some time

_without: set[Path] = set()  # locks of all users that did not work: they are not waited for again

Say = Callable[[str], None]


def needs_gpu(program: Path) -> bool:
    """Whether a file is a native program with kernels for a GPU, or with a GPU's libraries. A script never is: it may
    load anything."""
    try:
        with program.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as content:
            return content[:4] == b"\x7fELF" and any(content.find(mark) >= 0 for mark in MARKS)
    except (OSError, ValueError):  # the second of an empty file
        return False


def gpu_answers(env: Mapping[str, str]) -> bool:
    """Whether CUDA or AMD's driver shows a GPU to programs with this environment, now."""
    return nvidia.cuda_answers(env) or amd.first_visible(env) is not None


def failed_without_gpu(stderr: str, env: Mapping[str, str]) -> bool:
    """Whether a program's message names a missing GPU or driver, and this machine indeed shows it none."""
    return names_missing_gpu(stderr) and not gpu_answers(env)


def first_gpu() -> dict[str, str] | None:
    """Name and UUID of the first GPU that programs see; None without one."""
    if gpu := nvidia.first_visible(os.environ):
        return {"name": gpu.name, "uuid": gpu.uuid}
    other = None if nvidia.table() else amd.first_visible(os.environ)
    return {"name": f"AMD {other.gfx}", "uuid": other.uuid} if other else None


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


@dataclass
class GpuUsage:
    """The use of the GPU during a run; None is unknown. `memory`: the peak in bytes, less what was in use before;
    `clock`: the median of the multiprocessors' clock in MHz; `note`: what may have disturbed the run; `absent`: the
    program said that there is no GPU, and this machine indeed has none for it."""

    memory: int | None = None
    clock: int | None = None
    note: str | None = None
    absent: bool = False


@contextmanager
def watch_gpu(env: Mapping[str, str]) -> Iterator[GpuUsage]:
    """Sample the GPU in a thread while the block runs; the values are set when the block has ended."""
    usage = GpuUsage()
    gpu = nvidia.first_visible(env)
    handle = _handle(gpu.uuid) if gpu else None
    other = None if gpu else amd.first_visible(env)
    others = 0
    if gpu is not None and handle is not None:
        others = query_nvml(lambda nvml: len(nvml.nvmlDeviceGetComputeRunningProcesses(handle))) or 0
        sampler = _Sampler(_Nvml(handle, _handle(gpu.whole) if gpu.whole else handle))
    elif other is not None:
        sampler = _Sampler(_Amd(other))
    else:
        yield usage
        return
    sampler.start()
    try:
        yield usage
    finally:
        sampler.stop()
        sampler.summarize(usage, others)


class _Nvml:
    """What NVML says of a GPU now. NVML's calls release Python's lock."""

    def __init__(self, handle: Any, physical: Any) -> None:
        self._handle, self._physical = handle, physical  # a MIG instance has memory of its own, but no clock

    def memory(self) -> int | None:
        used = query_nvml(lambda nvml: nvml.nvmlDeviceGetMemoryInfo(self._handle).used)
        return None if used is None else int(used)

    def clock(self) -> int | None:
        clock = query_nvml(lambda nvml: nvml.nvmlDeviceGetClockInfo(self._physical, nvml.NVML_CLOCK_SM))
        return None if clock is None else int(clock)

    def throttled(self) -> int:
        return query_nvml(lambda nvml: nvml.nvmlDeviceGetCurrentClocksThrottleReasons(self._physical)) or 0


class _Amd:
    """The same of a GPU of AMD's."""

    def __init__(self, gpu: amd.AmdGpu) -> None:
        self._gpu = gpu

    def memory(self) -> int | None:
        return self._gpu.memory_used

    def clock(self) -> int | None:
        return self._gpu.clock

    def throttled(self) -> int:
        return 0


class _Sampler:
    """A thread that samples a GPU."""

    def __init__(self, gpu: _Nvml | _Amd) -> None:
        self._gpu = gpu
        self._done = threading.Event()
        self._thread = threading.Thread(target=self._sample, daemon=True)
        self._before: int | None = gpu.memory()
        self._memory: list[int] = []
        self._clocks: list[int] = []
        self._throttled = 0

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self._done.set()
        self._thread.join(timeout=5)

    def _sample(self) -> None:
        while not self._done.wait(PERIOD):
            used, clock = self._gpu.memory(), self._gpu.clock()
            self._throttled |= self._gpu.throttled()
            if used is not None:
                self._memory.append(used)
            if clock is not None:
                self._clocks.append(clock)

    def summarize(self, usage: GpuUsage, others: int) -> None:
        if self._memory and self._before is not None:
            usage.memory = max(0, max(self._memory) - self._before)
        if self._clocks:
            usage.clock = round(statistics.median(self._clocks))
        notes = [f"{others} other process{'es were' if others > 1 else ' was'} on the GPU"] if others else []
        why = [name for bit, name in THROTTLE_BITS.items() if self._throttled & bit]
        notes += [f"the GPU's clock was throttled: {', '.join(why)}"] if why else []
        usage.note = "; ".join(notes) or None


def _handle(uuid: str) -> Any:
    """NVML's handle of a GPU or MIG instance; None if NVML does not know it."""
    return query_nvml(lambda nvml: nvml.nvmlDeviceGetHandleByUUID(uuid))

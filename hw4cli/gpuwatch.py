"""The GPU while a program runs on it: one program at a time, and what the driver (NVML) tells of it meanwhile.

NVML needs the package nvidia-ml-py; without it, or without a GPU, nothing is told, and nothing breaks.
"""

import fcntl
import os
import re
import stat
import statistics
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hw4cli import gpus
from hw4cli.errors import MachineError, os_error
from hw4cli.gpus import ask

LOCKS = Path("/tmp")  # one folder for all users, whatever their TMPDIR
PERIOD = 0.1  # seconds between two looks at the GPU: each takes the driver a moment

# NVML's bits for why clocks are held down (nvml.h, nvmlClocksEventReason…); 1 is "idle" and no throttling.
THROTTLE_BITS = {
    0x4: "power cap",
    0x8: "hardware slowdown",
    0x20: "software thermal",
    0x40: "hardware thermal",
    0x80: "power brake",
}

Say = Callable[[str], None]


@dataclass
class Sight:
    """What was seen of the GPU during a run; None is not seen. Memory in bytes, above what was in use before; the
    median clock of the multiprocessors in MHz; `note` tells what may have disturbed the run."""

    memory: int | None = None
    clock: int | None = None
    note: str | None = None


def gpu_name(env: Mapping[str, str]) -> str | None:
    """The first GPU that a program with this environment sees, by its UUID; where the driver cannot be asked, as the
    environment names it; None without one."""
    if gpus.table():
        gpu = gpus.first_visible(env)
        return gpu.uuid if gpu else None
    wanted = env.get("CUDA_VISIBLE_DEVICES")
    if wanted is None and not Path("/dev/nvidiactl").exists():
        if not Path("/dev/kfd").exists():
            return None
        wanted = "amd-" + env.get("ROCR_VISIBLE_DEVICES", env.get("HIP_VISIBLE_DEVICES", "0"))
    first = ("0" if wanted is None else wanted).partition(",")[0].strip()
    return first if re.fullmatch(r"[\w/-]+", first) and not first.startswith("-") else None


@contextmanager
def gpu_lock(env: Mapping[str, str], say: Say) -> Iterator[None]:
    """Have the GPU that a program with this environment sees to ourselves, among the judges of this machine.

    `say` is told if another has it; a lock goes with its process, even one that is killed. Raises MachineError if the
    lock cannot be made.
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
    """A file that anyone may lock and nobody can write. It is never removed: another may just be opening it."""
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


@contextmanager
def watched(env: Mapping[str, str]) -> Iterator[Sight]:
    """Look at the GPU from a thread while the block runs; what was seen is complete when the block has ended."""
    sight = Sight()
    gpu = gpus.first_visible(env)
    handle = _handle(gpu.uuid) if gpu else None
    if gpu is None or handle is None:
        yield sight
        return
    others = ask(lambda nvml: len(nvml.nvmlDeviceGetComputeRunningProcesses(handle))) or 0
    looks = _Looks(handle, _handle(gpu.whole) if gpu.whole else handle)
    looks.start()
    try:
        yield sight
    finally:
        looks.stop()
        looks.tell(sight, others)


class _Looks:
    """A thread's looks at a GPU. NVML's calls let other threads run."""

    def __init__(self, handle: Any, whole: Any) -> None:
        self._handle, self._whole = handle, whole  # a part of a GPU has memory of its own, and no clock
        self._done = threading.Event()
        self._thread = threading.Thread(target=self._work, daemon=True)
        self._before: int | None = self._used()
        self._memory: list[int] = []
        self._clocks: list[int] = []
        self._throttled = 0

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self._done.set()
        self._thread.join(timeout=5)

    def _used(self) -> int | None:
        used = ask(lambda nvml: nvml.nvmlDeviceGetMemoryInfo(self._handle).used)
        return None if used is None else int(used)

    def _work(self) -> None:
        while not self._done.wait(PERIOD):
            used = self._used()
            clock = ask(lambda nvml: nvml.nvmlDeviceGetClockInfo(self._whole, nvml.NVML_CLOCK_SM))
            self._throttled |= ask(lambda nvml: nvml.nvmlDeviceGetCurrentClocksThrottleReasons(self._whole)) or 0
            if used is not None:
                self._memory.append(used)
            if clock is not None:
                self._clocks.append(int(clock))

    def tell(self, sight: Sight, others: int) -> None:
        if self._memory and self._before is not None:
            sight.memory = max(0, max(self._memory) - self._before)
        if self._clocks:
            sight.clock = round(statistics.median(self._clocks))
        notes = [f"{others} other process{'es were' if others > 1 else ' was'} on the GPU"] if others else []
        why = [name for bit, name in THROTTLE_BITS.items() if self._throttled & bit]
        notes += [f"the GPU's clock was held down: {', '.join(why)}"] if why else []
        sight.note = "; ".join(notes) or None


def _handle(uuid: str) -> Any:
    """NVML's handle of a GPU, or a part of one; None if it does not know it."""
    return ask(lambda nvml: nvml.nvmlDeviceGetHandleByUUID(uuid))

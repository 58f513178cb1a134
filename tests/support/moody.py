"""A device for the pipeline that is slow, moody and sometimes broken, and a run over it in memory."""

import random
import signal
import sys
import threading
import time
from contextlib import contextmanager

import numpy as np
import pytest

from hw4cli.errors import MachineError
from hw4cli.stream.layout import Files
from hw4cli.stream.scheduler import Stream
from hw4cli.stream.team import Member, Team
from hw4cli.stream.timeline import Timeline

PLUS = {"fast": np.uint8(1), "slow": np.uint8(2), "slowest": np.uint8(3)}


class Moody:
    """A device whose "attention" is the first third of a batch, plus 1 by the kernel "fast", 2 by "slow" and 3 by
    "slowest", after random delays; watches its own use."""

    def __init__(self, shape, layout, delay=0.0, fail=None, slots=None, seed=0, error=OSError):
        self.shape, self.layout, self.delay, self.fail, self.most = shape, layout, delay, fail, slots
        self.random, self.error = random.Random(seed), error
        self.computed = []  # (kernel, batches) of each start
        self.cancelled = threading.Event()

    def pause(self, stage):
        if self.delay:
            time.sleep(self.random.random() * self.delay)
        if self.fail and self.fail[0] == stage:
            self.fail = (stage, self.fail[1] - 1)
            if self.fail[1] < 0:
                raise self.error(f"{stage} failed")

    def cancel(self):
        self.cancelled.set()

    @property
    def batches(self):
        return self.layout.group

    def use(self):
        self.pause("use")

    def slot_count(self, wanted):
        return min(wanted, self.most or wanted)

    def key_count(self, wanted):
        return min(wanted, self.most or wanted)

    def buffer(self, size):
        self.pause("buffer")
        return np.full(size, 0xEE, np.uint8)

    def new_slot(self):
        return MoodySlot(self)

    def new_keys(self):
        return MoodyMemory(8 * self.shape.N * self.shape.d)


class MoodyMemory:
    """K and V of a batch."""

    def __init__(self, size):
        self.space, self.filled, self.lock = np.zeros(size, np.uint8), 0, threading.Lock()

    def copy_in(self, buffer, offset):
        self.space[offset : offset + len(buffer)] = buffer
        with self.lock:
            self.filled += len(buffer)


class MoodySlot(MoodyMemory):
    def __init__(self, device):
        self.device = device
        self.batch = 12 * device.shape.N * device.shape.d
        super().__init__(device.layout.group * self.batch)
        self.again = False

    def copy_in(self, buffer, offset):
        self.device.pause("copy in")
        super().copy_in(buffer, offset)
        self.again = False

    def start(self, part, kernel, keys):
        self.device.pause("start")
        self.device.computed.append((kernel, part.batches))
        size = part.batches * self.batch if keys is None else part.rows * 4 * self.device.shape.d
        if not self.again:
            assert self.filled == size, "started before all pieces were in, or with a stranger's"
        self.filled, self.again = 0, False
        if keys is None:
            self.result = (self.space[:size].reshape(part.batches, 3, -1)[:, 0] + PLUS[kernel]).reshape(-1)
        else:
            assert keys.filled % len(keys.space) == 0, "started before K and V were in"
            self.result = self.space[:size] + PLUS[kernel] + keys.space[0] + keys.space[-1]
            self.keys = keys, keys.space.copy()

    def finish(self):
        self.device.pause("finish")
        if keys := getattr(self, "keys", None):
            assert np.array_equal(keys[0].space, keys[1]), "K and V were overwritten while they were in use"
        self.again = True  # until new pieces come in, a start is a repetition
        return 1.0, 2.0, 3.0

    def copy_out(self, offset, buffer):
        self.device.pause("copy out")
        buffer[:] = self.result[offset : offset + len(buffer)]


class Chosen:
    """A choice of kernels that is always the same."""

    first = "fast"

    def record_in(self, other):
        pass

    def summary(self):
        return "kernel: fast"


def run_team(shape, layout, devices, speeds=None, fail=None, opening=lambda number: None):
    """Stream random bytes through several devices; returns the input, the output, what was said, and the team.

    `fail`: the file's "read" or "write" that raises, and after how many. `opening` is called before one is opened.
    """
    size = 12 * shape.elements
    source = np.random.default_rng(0).integers(0, 256, size, np.uint8)
    target, said, counts = np.zeros(size // 3, np.uint8), [], {"read": 0, "write": 0}

    def counted(stage):
        counts[stage] += 1
        if fail and fail[0] == stage and counts[stage] > fail[1]:
            raise MachineError(f"the file's {stage} failed")

    def read(buffer, offset):
        counted("read")
        buffer[:] = source[offset : offset + len(buffer)]

    def write(buffer, offset):
        counted("write")
        target[offset : offset + len(buffer)] = buffer

    def opened(number):
        def open_device(*_):
            opening(number)
            return devices[number], Chosen()

        return open_device

    speeds = speeds or [1.0] * len(devices)
    members = [Member(f"GPU {number}", speed, opened(number), number) for number, speed in enumerate(speeds)]
    team = Team(members, shape, layout, Timeline())
    team.compute(layout.parts(shape), Files(read, write), lambda choice: lambda part, found: "fast", said.append)
    return source, target, said, team


def run(shape, layout, device, source=None, choose=lambda *_: "fast", note_read=lambda *_: None):
    """Stream random bytes through a device; returns the input and the output."""
    size = 12 * shape.elements
    source = np.random.default_rng(0).integers(0, 256, size, np.uint8) if source is None else source
    target = np.zeros(size // 3, np.uint8)

    def copy_from(buffer, offset):
        device.pause("read")
        note_read(len(buffer), offset)
        buffer[:] = source[offset : offset + len(buffer)]

    def copy_to(buffer, offset):
        device.pause("write")
        target[offset : offset + len(buffer)] = buffer

    stream = Stream(shape, layout, device, Files(copy_from, copy_to), "fast", choose, Timeline())
    stream.run()
    return source, target


def expected_of_rows(shape, source, plus=1):
    """What a device computes by ranges of rows: Q, plus the first byte of K and the last one of V."""
    thirds = source.reshape(shape.B, 3, -1)
    return (thirds[:, 0] + thirds[:, 1, :1] + thirds[:, 2, -1:] + np.uint8(plus)).reshape(-1)


def expected(shape, source, plus=1):
    return (source.reshape(shape.B, 3, -1)[:, 0] + np.uint8(plus)).reshape(-1)


@contextmanager
def interrupted_after(seconds):
    """SIGINT, so many seconds from now, is raised in the block."""
    timer = threading.Timer(seconds, interrupt)
    timer.start()
    try:
        with interrupted():
            yield
    finally:
        timer.join()


@contextmanager
def interrupted_once(condition):
    """SIGINT is raised in the block as soon as a condition holds."""
    over = threading.Event()

    def wait():
        while not condition():
            if over.wait(0.005):
                return
        interrupt()

    thread = threading.Thread(target=wait)
    thread.start()
    try:
        with interrupted():
            yield
    finally:
        over.set()
        thread.join()


def interrupt():
    signal.pthread_kill(threading.main_thread().ident, signal.SIGINT)


@contextmanager
def interrupted():
    """A block that Ctrl-C ends. Where Python drops it, in a callback or a finaliser, it comes once more, as the command
    has it do (hw4cli/system/interrupts.py)."""
    usual = sys.unraisablehook

    def again(dropped):
        if isinstance(dropped.exc_value, KeyboardInterrupt):
            threading.Timer(0.05, interrupt).start()
        else:
            usual(dropped)

    sys.unraisablehook = again
    try:
        with pytest.raises(KeyboardInterrupt):
            yield
    finally:
        sys.unraisablehook = usual

"""Several devices that compute one file together: each streams parts of it, and they share what is left."""

import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from queue import Empty, SimpleQueue
from typing import ParamSpec, TypeVar

from hw4cli.errors import KernelError, LostGpuError, MachineError
from hw4cli.plans.dispatch import Choice
from hw4cli.problem.workload import Workload
from hw4cli.stream.layout import Device, Files, Layout
from hw4cli.stream.scheduler import GRACE, Choose, Stream
from hw4cli.stream.timeline import Timeline
from hw4cli.stream.work import Part, Work, stretches

P = ParamSpec("P")
R = TypeVar("R")

# Opens a device for a file's shape and layout.
OpenDevice = Callable[[Workload, Layout, Timeline], tuple[Device, Choice]]
Notify = Callable[[str], None]  # shows the user a sentence


@dataclass(frozen=True)
class Member:
    """A device that may compute a share: its name in messages, its speed beside the others', how it is opened, and a
    GPU's number."""

    name: str
    speed: float
    open: OpenDevice
    number: int = 0


class Team:
    """Devices that compute parts of a file at the same time; a single one, too.

    The first that can be opened is opened at once; its Choice records what all use. The others are opened while it
    works, and join. One that fails leaves its parts to the others. Raises what the file, the values or the last device
    raise.
    """

    def __init__(self, members: Sequence[Member], shape: Workload, layout: Layout, timeline: Timeline) -> None:
        self._shape, self._timeline = shape, timeline
        self._unopened: list[str] = []  # sentences about those that failed before the first one worked
        self._device, self.choice = self._first_open(members, layout)
        self._members = members[len(self._unopened) :]
        self._layout = replace(layout, group=self._device.batches)
        self._opened = [self._device]
        self._streams: list[Stream] = []
        self._failed = 0
        self._lost: Member | None = None  # the first whose GPU CUDA gave up; others of the process may fail after it
        self._joined_at: dict[int, float] = {}  # when each member's stream was ready
        self._error: BaseException | None = None
        self._an_end: SimpleQueue[None] = SimpleQueue()
        self._lock = threading.Lock()
        self.work = Work([])

    def _first_open(self, members: Sequence[Member], layout: Layout) -> tuple[Device, Choice]:
        for member in members[:-1]:
            try:
                return member.open(self._shape, layout, self._timeline)
            except KernelError:  # which no other device would take, either
                raise
            except MachineError as error:
                self._unopened.append(_without(member, error))
        return members[-1].open(self._shape, layout, self._timeline)

    def compute(self, parts: Sequence[Part], files: Files, chooser: Callable[[Choice], Choose], notify: Notify) -> None:
        """Compute parts of the file, which may be fewer than all. Groups are cut where the device's are smaller."""
        mine = [piece for part in parts for piece in part.cut(self._layout.group)]
        speeds = [member.speed for member in self._members]
        self.work = Work(stretches(mine, self._shape, speeds))
        self._files, self._chooser, self._notify = files, chooser, notify
        for sentence in self._unopened:
            notify(sentence)
        self._began = time.perf_counter()
        if len(self._members) == 1:
            self._stream(0, self._device, self.choice, files).run()
            return
        self._files = Files(self._not_the_devices(files.read), self._not_the_devices(files.write), files.written)
        threads = [
            threading.Thread(target=self._take_part, args=(number,), daemon=True) for number in range(len(speeds))
        ]
        try:
            for thread in threads:
                thread.start()
            while not self.work.finished and self._error is None:
                with suppress(Empty):  # a short timeout, for Ctrl-C that comes just before `get`
                    self._an_end.get(timeout=0.1)
        except BaseException as error:
            self._end(error)
        if self._error:
            deadline = time.monotonic() + GRACE + 1
            for thread in threads:
                if thread.ident:
                    thread.join(max(0.0, deadline - time.monotonic()))
            raise self._error

    def finish(self) -> None:
        """Wait for what the devices do besides."""
        for device in self._opened:
            device.finish()

    def summary(self) -> str:
        """Which kernels computed, and, of several devices, which one how many parts, and from when on."""
        if len(self._members) == 1:
            return self.choice.summary()
        shares = enumerate(zip(self._members, self.work.shares, strict=True))
        parts = (f"{count:,} by {one.name}{self._from(number)}" for number, (one, count) in shares)
        return f"{self.choice.summary()}; parts: {', '.join(parts)}"

    def _from(self, number: int) -> str:
        """When a member began, in words; the first one does at once."""
        return f" (from {self._joined_at[number]:.2f} s on)" if number and number in self._joined_at else ""

    def _take_part(self, number: int) -> None:
        try:
            device, choice = self._joined(number)
            while True:
                self._stream(number, device, choice, self._files).run()
                if not self.work.wait_for_more():
                    return
        except MachineError as error:
            if self._error is None:
                self._go_on_without(number, error)
        except BaseException as error:
            self._end(error)
        finally:
            self._an_end.put(None)

    def _joined(self, number: int) -> tuple[Device, Choice]:
        if number == 0:
            return self._device, self.choice
        device, choice = self._members[number].open(self._shape, self._layout, self._timeline)
        if device.batches < self._layout.group:
            raise MachineError(
                f"it has memory for {device.batches} batches, where the others take {self._layout.group}"
            )
        choice.record_in(self.choice)
        with self._lock:
            self._opened.append(device)
        return device, choice

    def _stream(self, number: int, device: Device, choice: Choice, files: Files) -> Stream:
        choose = self._not_the_devices(self._chooser(choice))
        first = choice.first
        stream = Stream(self._shape, self._layout, device, files, first, choose, self._timeline, self.work, number)
        with self._lock:
            self._streams.append(stream)
            self._joined_at.setdefault(number, time.perf_counter() - self._began)
        if self._error:
            raise self._error
        return stream

    def _go_on_without(self, number: int, error: MachineError) -> None:
        """Leave a device's parts to the others, if there are others."""
        self.work.leave(number)
        with self._lock:
            self._failed += 1
            alone = self._failed == len(self._members)
            if isinstance(error, LostGpuError):
                self._lost = self._lost or self._members[number]
                error.others = tuple(one.number for one in self._members if one is not self._lost)
        if alone:
            self._end(error)
        elif not self.work.finished:
            self._notify(_without(self._members[number], error))

    def _not_the_devices(self, function: Callable[P, R]) -> Callable[P, R]:
        """The same function; if it raises, no device has failed, and all of them end."""

        def guarded(*args: P.args, **kwargs: P.kwargs) -> R:
            try:
                return function(*args, **kwargs)
            except BaseException as error:
                self._end(error)
                raise

        return guarded

    def _end(self, error: BaseException) -> None:
        with self._lock:
            self._error = self._error or error
            streams = list(self._streams)
        self.work.give_up()
        for stream in streams:
            stream.fail(error)
        self._an_end.put(None)


def _without(member: Member, error: MachineError) -> str:
    return f"{member.name} failed, and the others compute its share: {error}"

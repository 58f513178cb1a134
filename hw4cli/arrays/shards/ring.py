"""Rings of workers, one a shard of the keys: each passes arrays to the next one, and gets those of the one before."""

import functools
import importlib
import threading
import warnings
from collections.abc import Callable, Sequence
from queue import Empty, Queue
from typing import Any, Protocol

from hw4cli.arrays.operand import Operand, empty_like, operand, stream_of
from hw4cli.device.gpu import import_cupy
from hw4cli.errors import MachineError

PERIOD = 0.5  # seconds between two looks at whether another worker has failed

Arrive = Callable[[], tuple[Any, ...]]  # waits for what was sent here


class Ring(Protocol):
    """A worker's place in a ring."""

    rank: int
    size: int

    def pass_on(self, arrays: tuple[Any, ...]) -> Arrive:
        """Begin to send arrays to the next worker; the result waits for as many, of the same shapes, from the one
        before. Until then, what was sent must not change."""

    def abort(self) -> None:
        """Wait no longer for the others, of whom one has failed. Any thread may call."""


class ThreadRing:
    """A ring of threads of one process; arrays themselves are handed on."""

    def __init__(self, rank: int, queues: "Sequence[Queue[tuple[Any, ...]]]") -> None:
        self.rank, self.size, self._queues, self._aborted = rank, len(queues), queues, threading.Event()

    @classmethod
    def of(cls, size: int) -> "list[ThreadRing]":
        """The places of so many threads."""
        queues: list[Queue[tuple[Any, ...]]] = [Queue() for _ in range(size)]
        return [cls(rank, queues) for rank in range(size)]

    def pass_on(self, arrays: tuple[Any, ...]) -> Arrive:
        """Hand arrays to the next thread."""
        self._queues[(self.rank + 1) % self.size].put(arrays)

        def arrive() -> tuple[Any, ...]:
            while not self._aborted.is_set():
                try:
                    return self._queues[self.rank].get(timeout=PERIOD)
                except Empty:
                    continue
            raise MachineError("another shard's worker has failed")

        return arrive

    def abort(self) -> None:
        """Let `arrive` raise MachineError."""
        self._aborted.set()


class NcclRing:
    """A ring of GPUs by NCCL, through cupy; each place is a thread's, or a process's, with its GPU the current one.

    Copies run on a stream of their own, beside what the caller's stream computes. MachineError if there is no NCCL.
    """

    def __init__(self, rank: int, size: int, communicator: Any) -> None:
        self.rank, self.size, self._communicator, self._calling = rank, size, communicator, threading.Lock()
        self._cupy = import_cupy()
        self._stream = self._cupy.cuda.Stream(non_blocking=True)

    @staticmethod
    def unique_id() -> Any:
        """What all places of a ring over several processes need: one makes it, and gives it to the others. Of cupy 14,
        128 bytes."""
        return _nccl().get_unique_id()

    @classmethod
    def joined(cls, rank: int, size: int, unique_id: Any) -> "NcclRing":
        """A place in a ring over several processes, on the current GPU. Waits for the others."""
        return cls(rank, size, _nccl().NcclCommunicator(size, unique_id, rank))

    @classmethod
    @functools.cache  # making one takes a second
    def of(cls, gpus: tuple[int, ...]) -> "list[NcclRing]":
        """The places of GPUs of this process, each for a thread; the same for the same GPUs."""
        cupy, places = import_cupy(), []
        for rank, (gpu, communicator) in enumerate(
            zip(gpus, _nccl().NcclCommunicator.initAll(list(gpus)), strict=True)
        ):
            with cupy.cuda.Device(gpu):
                places.append(cls(rank, len(gpus), communicator))
        return places

    def pass_on(self, arrays: tuple[Any, ...]) -> Arrive:
        """Enqueue the copies behind the caller's stream; `arrive` lets that stream wait for them, not the thread."""
        sent = [operand("array", packed(array), "BHND") for array in arrays]
        received = [empty_like(one, tuple(one.array.shape)) for one in sent]
        targets = [operand("array", array, "BHND") for array in received]
        callers = stream_of(sent[0], self._cupy)
        self._stream.wait_event(callers.record())
        self._exchange([(one.address, to.address, _bytes(one)) for one, to in zip(sent, targets, strict=True)])
        done = self._stream.record()

        def arrive() -> tuple[Any, ...]:
            callers.wait_event(done)
            sent.clear()  # only now may its memory be used again
            return tuple(received)

        return arrive

    def _exchange(self, copies: Sequence[tuple[int, int, int]]) -> None:
        """Enqueue copies, each from an address here to the next place, and from the one before to an address here."""
        nccl, stream = _nccl(), self._stream.ptr
        onward, before = (self.rank + 1) % self.size, (self.rank - 1) % self.size
        with self._calling:
            if self._communicator is None:
                raise MachineError("another shard's worker has failed")
            nccl.groupStart()
            for mine, theirs, size in copies:
                self._communicator.send(mine, size, nccl.NCCL_UINT8, onward, stream)
                self._communicator.recv(theirs, size, nccl.NCCL_UINT8, before, stream)
            nccl.groupEnd()

    def abort(self) -> None:
        """End this place's copies, which would else wait on the GPU for others that never come. Rings of GPUs are made
        anew when they are needed again."""
        enqueued = self._calling.acquire(timeout=PERIOD)  # if not, a call waits there for a worker that has failed
        communicator, self._communicator = self._communicator, None
        NcclRing.of.cache_clear()
        if communicator is not None:
            communicator.abort()
        if enqueued:
            self._calling.release()


def packed(array: Any) -> Any:
    """The array, or a copy of it, whose elements lie one after the other: what is sent is one piece of memory."""
    if hasattr(array, "is_contiguous"):
        return array.contiguous()
    return array if array.flags.c_contiguous else array.copy()


def _bytes(x: Operand) -> int:
    return int(x.array.nbytes)


@functools.cache
def _nccl() -> Any:
    """cupy's module for NCCL, which `import cupy` leaves out; it finds NCCL among installed packages, too."""
    import_cupy()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the error says what cupy's warning does
        try:
            nccl = importlib.import_module("cupy.cuda.nccl")
        except ImportError:
            nccl = None
    if not getattr(nccl, "available", False):
        raise MachineError("cupy finds no NCCL here: install nvidia-nccl-cu13 or nvidia-nccl-cu12, as your cupy is")
    return nccl

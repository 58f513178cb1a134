"""A NCCL that is none: copies between threads of this process, as far as rings need it."""

import ctypes
import threading

import numpy as np

from hw4cli.arrays.shards.places import in_threads
from hw4cli.arrays.shards.ring import NcclRing


def on_rings_by_nccl(monkeypatch, size, work, fake=None):
    """What `work` returns for each place of a ring of this size, a thread each."""
    fake = fake or FakeNccl(size)
    monkeypatch.setattr("hw4cli.arrays.shards.ring._nccl", lambda: fake)
    monkeypatch.setattr("hw4cli.arrays.shards.ring.stream_of", lambda *_: FakeStream())
    cupy = type("cupy", (), {"cuda": type("cuda", (), {"Stream": FakeStream})})
    monkeypatch.setattr("hw4cli.arrays.shards.ring.import_cupy", lambda: cupy)
    rings = [NcclRing(rank, size, fake.communicator(rank)) for rank in range(size)]
    return in_threads(work, rings)


class FakeNccl:
    """As much of cupy's NCCL and of its streams as a ring uses; copies happen when the group ends."""

    NCCL_UINT8, available = 1, True

    def __init__(self, size):
        self.calls = [[] for _ in range(size)]
        self.barrier = threading.Barrier(size)
        self.local, self.aborted = threading.local(), []

    def groupStart(self):  # noqa: N802 (cupy's name)
        self.local.calls = []

    def groupEnd(self):  # noqa: N802
        rank = self.local.calls[0][0]
        self.calls[rank] = self.local.calls
        self.barrier.wait()
        for kind, address, size, peer in [call[1:] for call in self.local.calls]:
            if kind == "recv":
                number = [call for call in self.local.calls if call[1] == "recv"].index(
                    (rank, kind, address, size, peer)
                )
                sent = [call for call in self.calls[peer] if call[1] == "send" and call[4] == rank][number]
                assert sent[3] == size
                view(address, size)[:] = view(sent[2], size)
        self.barrier.wait()

    def communicator(self, rank):
        fake = self

        class Communicator:
            def send(self, address, size, kind, peer, stream):
                fake.local.calls.append((rank, "send", address, size, peer))

            def recv(self, address, size, kind, peer, stream):
                fake.local.calls.append((rank, "recv", address, size, peer))

            def abort(self):
                fake.aborted.append(rank)
                fake.barrier.abort()

        return Communicator()


def view(address, size):
    return np.frombuffer((ctypes.c_uint8 * size).from_address(address), np.uint8)


class FakeStream:
    ptr = 0

    def __init__(self, non_blocking=False):
        self.waited = []

    def record(self):
        return object()

    def wait_event(self, event):
        self.waited.append(event)

"""Work on several devices of this process: shards that go together, a thread for each, and what becomes of failures."""

import threading
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any

from hw4cli.arrays.operand import NUMPY, TORCH, operand
from hw4cli.arrays.shards.ring import NcclRing, Ring, ThreadRing
from hw4cli.device.gpu import import_cupy
from hw4cli.problem.cpu import LONGEST_WAIT

_ONE_AT_A_TIME = threading.Lock()


def check_counts(**lists: Sequence[Any]) -> None:
    """Raise TypeError for what is no list of arrays, ValueError unless there are as many of each name, and any."""
    for name, arrays in lists.items():
        if not isinstance(arrays, list | tuple):
            raise TypeError(f"{name} is a {type(arrays).__name__}: give a list of arrays, one for each device")
    counts = [f"{len(arrays)} of {name}" for name, arrays in lists.items()]
    if len({len(arrays) for arrays in lists.values()}) > 1 or not all(lists.values()):
        raise ValueError(f"of arrays, there are {', '.join(counts[:-1])} and {counts[-1]}: give as many of each")


def check_alike(**lists: Sequence[Any]) -> None:
    """Raise ValueError, too, if the arrays of a name differ in shape or element type: a ring receives what it sends."""
    check_counts(**lists)
    for name, arrays in lists.items():
        for n, array in enumerate(arrays):
            for what in ("shape", "dtype"):
                first, here = (getattr(one, what, None) for one in (arrays[0], array))
                if here != first:
                    raise ValueError(
                        f"shards are alike, but {name}[0] has {what} {_shown(first)}, {name}[{n}] {_shown(here)}"
                    )


def _shown(value: Any) -> str:
    return str(tuple(value)) if isinstance(value, tuple) else str(value)


def on_a_ring(shards: Sequence[Any], work: Callable[[Ring], Any]) -> list[Any]:
    """What `work` returns for each place of a ring over the devices of some shards: a thread each, with its device the
    current one. The first error, if there is one, is raised. ValueError unless all shards lie in the host's memory, or
    each on a GPU of its own. MachineError if there is no NCCL for GPUs."""
    devices = [operand("q", one, "BHND").device for one in shards]
    _check_places(devices)

    def place(ring: Ring) -> Any:
        with on_device_of(shards[ring.rank]):
            return work(ring)

    with _ONE_AT_A_TIME:  # calls share their GPUs' rings
        if devices[0] is None:
            return in_threads(place, ThreadRing.of(len(shards)))
        return in_threads(place, NcclRing.of(tuple(device or 0 for device in devices)))


def _check_places(devices: Sequence[int | None]) -> None:
    if None in devices:
        if any(device is not None for device in devices):
            there = next(n for n, device in enumerate(devices) if device is not None)
            raise ValueError(f"shard {there} lies on a GPU, shard {devices.index(None)} in the host's memory")
        return
    for n, device in enumerate(devices):
        if (first := devices.index(device)) < n:
            raise ValueError(f"shards {first} and {n} lie on GPU {device}, but a ring has one on each")


def in_threads(work: Callable[[Any], Any], rings: Sequence[Ring]) -> list[Any]:
    """What `work` returns for each place of a ring, in a thread each. The first error ends the others and is raised."""
    results: list[Any] = [None] * len(rings)
    errors: list[BaseException] = []

    def fail(error: BaseException) -> None:
        errors.append(error)
        for ring in rings:
            ring.abort()

    def run(number: int) -> None:
        try:
            results[number] = work(rings[number])
        except BaseException as error:
            fail(error)

    threads = [threading.Thread(target=run, args=(number,), daemon=True) for number in range(len(rings))]
    try:
        for thread in threads:
            thread.start()
        for thread in threads:
            while thread.is_alive():
                thread.join(LONGEST_WAIT)
    except BaseException as error:  # Ctrl-C
        fail(error)
        raise
    if errors:
        raise errors[0]
    return results


def on_device_of(array: Any) -> AbstractContextManager[Any]:
    """A block in which the array's GPU is the current one, for its library, too."""
    found = operand("q", array, "BHND")
    if found.library == NUMPY:
        return nullcontext()
    if found.library == TORCH:
        import torch

        context: AbstractContextManager[Any] = torch.cuda.device(found.device)
        return context
    device: AbstractContextManager[Any] = import_cupy().cuda.Device(found.device)
    return device

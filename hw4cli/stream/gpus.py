"""Which of a node's GPUs compute a file: all, so many, or those that are named; and their shares."""

from collections.abc import Sequence

from hw4cli.device.gpu import cuda_message, import_cupy
from hw4cli.errors import MachineError
from hw4cli.text.words import counted

MULTIPROCESSORS, KILOHERTZ = 16, 13  # cudaDevAttrMultiProcessorCount, cudaDevAttrClockRate


def chosen(words: str, here: int) -> list[int]:
    """The numbers of the GPUs that `all`, `count:N` or `ids:0,2` asks for, of so many. MachineError if there are fewer.

    >>> chosen("ids:2,0", 4)
    [2, 0]
    """
    kind, _, listed = words.partition(":")
    numbers = [*range(here)] if kind == "all" else [int(number) for number in listed.split(",")]
    if kind == "count" and numbers[0] <= here:
        numbers = [*range(numbers[0])]
    if max(numbers) >= here:
        are = "is 1 GPU, number 0" if here == 1 else f"are {counted(here, 'GPU')}, numbers 0 to {here - 1}"
        raise MachineError(f"--gpus {words}: here {are} (CUDA_VISIBLE_DEVICES decides which are seen)")
    return numbers


def of_process(gpus: Sequence[int], place: int, processes: int) -> list[int]:
    """Those of a node's GPUs that one of several processes there uses: a stretch, or one, in turn, if there are fewer.

    >>> [of_process(range(8), place, 4) for place in range(4)]
    [[0, 1], [2, 3], [4, 5], [6, 7]]
    >>> [of_process([0], place, 2) for place in range(2)]
    [[0], [0]]
    """
    if len(gpus) < processes:
        return [gpus[place % len(gpus)]]
    return list(gpus[place * len(gpus) // processes : (place + 1) * len(gpus) // processes])


def count_here() -> int:
    """How many GPUs this process sees. MachineError if none can be used."""
    runtime = import_cupy().cuda.runtime
    try:
        count: int = runtime.getDeviceCount()
    except runtime.CUDARuntimeError as error:
        raise MachineError(f"no GPU can be used: {cuda_message(error)}") from None
    return count


def speed(number: int) -> float:
    """A GPU's speed, estimated from its multiprocessors and its clock: for a first share, which work corrects."""
    runtime = import_cupy().cuda.runtime
    try:
        multiprocessors, clock = (runtime.deviceGetAttribute(what, number) for what in (MULTIPROCESSORS, KILOHERTZ))
    except runtime.CUDARuntimeError:
        return 1.0
    return float(multiprocessors) * float(clock) or 1.0

"""How long a file should take on so many GPUs and nodes, by a machine's rates: a model, with its limits named."""

import math
from dataclasses import dataclass

from hw4cli.problem.workload import Workload
from hw4cli.stream.layout import GROUP_BYTES
from hw4cli.stream.work import pairs, parts_of, rows_of_a_part


@dataclass(frozen=True)
class Rates:
    """What a node does in a second: bytes that are read and written (in the page cache, and read from the disk), bytes
    that go to and from one GPU, floating-point operations of one GPU, or of the CPU where there is none; and the time
    that opening a further GPU takes, and that the smallest file's stream takes, in seconds."""

    cache_read: float
    cache_write: float
    disk_read: float | None  # None where files lie in memory
    flops: float
    to_gpu: float | None = None
    from_gpu: float | None = None
    opening: float = 0.0
    starting: float = 0.0


@dataclass(frozen=True)
class Prediction:
    """Seconds of the stream, from the first GPU's opening to the last byte; what limits them; and the efficiency,
    beside one GPU."""

    gpus: int
    nodes: int
    seconds: float
    limit: str
    efficiency: float = 1.0


def predicted(shape: Workload, rates: Rates, gpus: int, nodes: int = 1, cached: bool = True) -> Prediction:
    """A file on so many GPUs of each of so many nodes. `cached`: it lies in the page cache of each node.

    Stages work at the same time: reading, copying, computing, writing. The slowest decides; before it stands what every
    file takes, and what is read until all GPUs compute, and behind it what the last part writes. The second GPU is open
    as soon as the first begins, because modules are imported meanwhile; further ones join one after the other.
    """
    one = _seconds(shape, rates, 1, 1, cached)[0]
    seconds, limit = _seconds(shape, rates, gpus, nodes, cached)
    return Prediction(gpus, nodes, seconds, limit, one / seconds / (gpus * nodes))


def _seconds(shape: Workload, rates: Rates, gpus: int, nodes: int, cached: bool) -> tuple[float, str]:
    to_gpu, from_gpu = rates.to_gpu or math.inf, rates.from_gpu or math.inf
    batch = 12 * shape.N * shape.d
    rows = rows_of_a_part(shape)
    group = min(shape.B, max(1, GROUP_BYTES // batch))
    parts, workers = parts_of(shape, group, rows), gpus * nodes
    busy = min(workers, len(parts))
    share = -(-len(parts) // busy)  # parts of the GPU that has the most
    reading = rates.cache_read if cached or rates.disk_read is None else rates.disk_read
    read = float(shape.input_bytes)
    begin = batch * group  # bytes that a GPU needs before it can compute
    if rows < shape.N:
        begin = batch // 3 * 2 + 4 * rows * shape.d
        read += max(0, busy - shape.B) * (batch // 3 * 2)  # K and V that go to several GPUs
    written = 4 * parts[-1].batches * parts[-1].rows * shape.d
    stages = {
        "reading": read / nodes / reading,
        "copying to the GPUs": read / busy / to_gpu,
        "copying from the GPUs": shape.output_bytes / busy / from_gpu,
        "writing": shape.output_bytes / nodes / rates.cache_write,
        "computing": share * 4 * shape.d * max(pairs(part, shape) for part in parts) / rates.flops,
    }
    limit = max(stages, key=lambda name: stages[name])
    first = max(begin * min(gpus, busy) / reading, begin / to_gpu)
    last = max(written * min(gpus, busy) / rates.cache_write, written / from_gpu)
    here = min(gpus, busy)
    joining = sum(range(here - 1)) / here * rates.opening  # the mean of 0, 0, 1, 2, ... times that
    return rates.starting + first + stages[limit] + last + joining, limit

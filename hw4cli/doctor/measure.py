"""A machine's rates: page cache, disk, copies to and from GPUs, attention; each in a second or less."""

import ctypes
import os
import re
import subprocess
import tempfile
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np

from hw4cli.device.gpu import Gpu
from hw4cli.errors import MachineError, os_error
from hw4cli.lab.endtoend import cached_share, evict
from hw4cli.plans.dispatch import AUTO, Choice, candidates
from hw4cli.problem.arrays import random_input
from hw4cli.problem.casefile import HEADER
from hw4cli.problem.workload import Workload
from hw4cli.resources import python_command
from hw4cli.stream.layout import PIECE_BYTES, READERS, WRITERS
from hw4cli.stream.nodes.model import Rates
from hw4cli.stream.tiled import tiled_attention

FILE_BYTES, BUFFER_BYTES, COPIES = 512 << 20, 64 << 20, 8
LONG, SAMPLE, CPU_SAMPLE = (
    1 << 20,
    Workload.one_head(4, 32768, 64),
    Workload.one_head(2, 2048, 64),
)  # keys of a long file; what is computed
STEADY = 1.0  # seconds of computing, in which the clock becomes what it is in a long file
SMALL, STARTS = Workload.one_head(1, 128, 64), 3  # a file that is computed at once, and how often
CACHED = 0.01  # of a file, above which it was not read from a disk


def measured(folder: Path) -> tuple[Rates, str]:
    """The rates of this machine for files in a folder, and what computed. MachineError if they cannot be measured."""
    reading, writing, disk = _files(folder)
    try:
        gpu = Gpu()
    except MachineError as reason:
        return Rates(reading, writing, disk, _cpu_flops()), f"the CPU, because {reason}"
    to_gpu, from_gpu = _copies(gpu)
    flops, kernel = _flops(gpu)
    rates = Rates(reading, writing, disk, flops, to_gpu, from_gpu, _opening(gpu), _starting(folder))
    return rates, f"{gpu.name}, kernel {kernel}"


def _files(folder: Path) -> tuple[float, float, float | None]:
    """Bytes a second that are read from the page cache, written to it, and read from the disk (None: there is none)."""
    offsets = range(0, FILE_BYTES, PIECE_BYTES)
    data = np.random.default_rng(0).bytes(PIECE_BYTES)
    try:
        with tempfile.NamedTemporaryFile(prefix=".hw4-rates-", dir=folder) as file:
            number = file.fileno()
            os.pwrite(number, data, 0)
            writing = _rate(lambda at: os.pwrite(number, data, at), offsets, WRITERS)
            reading = max(_rate(lambda at: os.preadv(number, [_buffer()], at), offsets, READERS) for _ in range(2))
            evict(Path(file.name))
            if cached_share(Path(file.name)) > CACHED:
                return reading, writing, None
            disk = _rate(lambda at: os.preadv(number, [_buffer()], at), offsets, READERS)
    except OSError as error:
        raise os_error(error, f"write {FILE_BYTES >> 20} MB into {folder}") from None
    return reading, writing, disk


def _buffer() -> Any:
    return np.empty(PIECE_BYTES, np.uint8)


def _rate(move: Callable[[int], int], offsets: range, threads: int) -> float:
    """Bytes a second that so many threads move."""
    with ThreadPoolExecutor(threads) as pool:
        began = time.perf_counter()
        moved = sum(pool.map(move, offsets))
        return moved / (time.perf_counter() - began)


def _copies(gpu: Gpu) -> tuple[float, float]:
    """Bytes a second to the GPU and from it, from and to pinned memory."""
    cuda = gpu.cupy.cuda
    runtime, stream = cuda.runtime, cuda.Stream(non_blocking=True)
    pinned, memory = cuda.alloc_pinned_memory(BUFFER_BYTES), gpu.empty((BUFFER_BYTES // 4,))
    ctypes.memset(pinned.ptr, 0, BUFFER_BYTES)

    def rate(target: int, source: int, kind: int) -> float:
        runtime.memcpyAsync(target, source, BUFFER_BYTES, kind, stream.ptr)
        stream.synchronize()
        began = time.perf_counter()
        for _ in range(COPIES):
            runtime.memcpyAsync(target, source, BUFFER_BYTES, kind, stream.ptr)
        stream.synchronize()
        return COPIES * BUFFER_BYTES / (time.perf_counter() - began)

    there = rate(memory.data.ptr, pinned.ptr, runtime.memcpyHostToDevice)
    return there, rate(pinned.ptr, memory.data.ptr, runtime.memcpyDeviceToHost)


def _flops(gpu: Gpu) -> tuple[float, str]:
    """Operations a second of the kernel that answers long files, and its name. With the numbers that files have: the
    same kernel is faster where all are 0, because the GPU then needs less power."""
    kernels, why = candidates(AUTO, gpu.props, gpu.name, SAMPLE.d, LONG)
    kernel = Choice(kernels, why, SAMPLE.d, LONG, gpu.props).first
    return rate_of(gpu, kernel), kernel


def rate_of(gpu: Gpu, kernel: str) -> float:
    """Operations a second of a kernel, in a sample that it computes for STEADY seconds."""
    plan = gpu.plan(kernel, SAMPLE)
    outputs = gpu.empty((SAMPLE.B, SAMPLE.N, SAMPLE.d))
    inputs = gpu.upload(random_input(SAMPLE, seed=1))

    def rate(times: int) -> float:
        gpu.wait()
        began = time.perf_counter()
        for _ in range(times):
            gpu.compute(plan, inputs, outputs)
        gpu.wait()
        return times * SAMPLE.flops / (time.perf_counter() - began)

    once = [rate(1) for _ in range(2)][-1]
    return rate(max(1, round(STEADY * once / SAMPLE.flops)))


def _opening(gpu: Gpu) -> float:
    """Seconds until a second GPU has a context; 0 if there is none."""
    cuda = gpu.cupy.cuda
    if cuda.runtime.getDeviceCount() < 2:
        return 0.0
    began = time.perf_counter()
    with cuda.Device(1):
        cuda.runtime.free(0)
    return time.perf_counter() - began


def _starting(folder: Path) -> float:
    """Seconds of the stream of a small file: memory is pinned, kernels are loaded. The least of some processes'."""
    with tempfile.TemporaryDirectory(prefix=".hw4-rates-", dir=folder) as name:
        source = Path(name, "in")
        source.write_bytes(HEADER.pack(*SMALL.sizes) + random_input(SMALL, seed=1).tobytes())
        options = (str(source), str(source.with_name("out")), "--device", "cuda", "--timing")
        return min(_stream_seconds([*python_command("entry", "-P"), "run", *options]) for _ in range(STARTS))


def _stream_seconds(command: list[str]) -> float:
    """From the first GPU's opening on. MachineError if the command fails."""
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        raise MachineError(done.stderr.strip().removeprefix("hw4: "))
    found = dict(re.findall(r"^(start|total) +([\d.]+) s", done.stderr, re.MULTILINE))
    return float(found["total"]) - float(found["start"])


def _cpu_flops() -> float:
    """Operations a second of the CPU's attention, on all cores."""
    block = np.zeros((CPU_SAMPLE.B, 3, CPU_SAMPLE.N, CPU_SAMPLE.d), "<f4")
    began = time.perf_counter()
    tiled_attention(block)
    return CPU_SAMPLE.flops / (time.perf_counter() - began)

"""The GPU tests: processes that share a GPU, its memory, and what they compile. Without a GPU they are skipped, and say
why. Those marked `alone` compare times, or count what the whole GPU does: `make gpu-test` runs them after the others.
"""

import fcntl
import hashlib
import os
import sys
from collections import deque
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from itertools import chain as joined
from itertools import count
from pathlib import Path
from typing import Any

import gpuexact
import pytest
from helpers import run_hw4

from hw4cli.device.gpu import Gpu, kernel_of
from hw4cli.errors import Hw4Error, MachineError
from hw4cli.problem.cpu import workers
from hw4cli.stream.kernels import plans_of_file

MANY = 500  # tests, of which compiling would take most of the time
PROGRAMS = 6  # chains of tests that start programs: the driver opens a GPU for one program after the other
KEPT = 1 << 30  # bytes of the GPU's memory that a process may keep from test to test


@pytest.hookimpl(wrapper=True)
def pytest_collection_modifyitems(items):
    ours = {item for item in items if Path(__file__).parent in item.path.parents}
    programs = count()
    for item in items:
        if item in ours:
            item.add_marker(pytest.mark.gpu)
            if "hw4" in item.fixturenames or item.path.stem == "test_gpu_native":
                item.add_marker(pytest.mark.chain(f"programs {next(programs) % PROGRAMS}"))
    yield  # what is not asked for is taken out
    processes = int(os.environ.get("PYTEST_XDIST_WORKER_COUNT", "1"))
    if processes > 1:
        dealt = iter(deal([item for item in items if item in ours], processes))
        items[:] = [next(dealt) if item in ours else item for item in items]


def deal(items, processes):
    """The items in an order in which each process has as many chains as the others first, then single items.

    pytest-xdist's `worksteal` cuts the order into equal parts, one a process; one that is done takes from others' ends.
    """
    chains: dict[str, list[Any]] = {}
    rest: deque[Any] = deque()
    for item in items:
        mark = item.get_closest_marker("chain")
        (chains.setdefault(mark.args[0], []) if mark else rest).append(item)
    parts: list[list[Any]] = [[] for _ in range(processes)]
    for n, chain in enumerate(sorted(chains.values(), key=len)):
        parts[n % processes] += chain
    sizes = [(len(items) + n) // processes for n in range(processes)]  # the last parts have one more
    for part, size in zip(parts, sizes, strict=True):
        rest.extend(part[size:])
        del part[size:]
    while rest:
        for part, size in zip(parts, sizes, strict=True):
            if rest and len(part) < size:
                part.append(rest.popleft())
    return list(joined(*parts))


@pytest.fixture
def hw4():
    """Run `hw4 ARGS` as a process of its own, with a context of its own on the GPU."""
    return run_hw4


@pytest.fixture(scope="session")
def run_folder(tmp_path_factory):
    """A folder that all processes of this run of the tests share."""
    folder = tmp_path_factory.getbasetemp()
    return folder.parent if "PYTEST_XDIST_WORKER" in os.environ else folder


@pytest.fixture(scope="session")
def locked():
    """A context with a file that no other process of this run has at the same time."""

    @contextmanager
    def lock(path):
        with path.open("w") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            yield

    return lock


@pytest.fixture
def much_memory(run_folder, locked):
    """For tests that need 10 GB of the GPU's memory: there is so much for one of them at a time."""
    with locked(run_folder / "much-memory"):
        yield
        give_memory_back(most=0)


@pytest.fixture(scope="session")
def opened_gpu():
    """The GPU, before anything is compiled for the tests."""
    try:
        return Gpu()
    except MachineError as reason:
        pytest.skip(str(reason))


@pytest.fixture(scope="session")
def gpu(request, opened_gpu, run_folder):
    if len(request.session.items) > MANY:
        compile_together(opened_gpu, request.session.items, run_folder)
    return opened_gpu


def compile_together(gpu, items, folder):
    """Compile beforehand, on all cores, what the tests of files with a function `plans` need.

    Each of pytest-xdist's processes compiles what no other has claimed, by a file in the folder that they share; else
    this one starts a process for each core.
    """
    modules = dict.fromkeys(item.module for item in items if hasattr(item.module, "plans"))
    kernels = dict.fromkeys(kernel_of(plan) for module in modules for plan in module.plans(gpu.props))
    lanes = max(1, workers() // int(os.environ.get("PYTEST_XDIST_WORKER_COUNT", "1")))

    def is_ours(what):
        name = hashlib.sha256(repr(what).encode()).hexdigest()
        with suppress(FileExistsError):
            (folder / f"compiled-{name}").touch(exist_ok=False)
            return True
        return False

    def compile_one(kernel):
        if is_ours(kernel) and gpu.code.missing([kernel]):
            if lanes > 1:
                gpu.code.start(kernel).wait()
            else:
                with suppress(Hw4Error):  # the test that needs it says so
                    gpu.code.compile(kernel)

    if is_ours("the oracle"):
        gpuexact.compile_it()
    with ThreadPoolExecutor(lanes) as pool:
        list(pool.map(compile_one, reversed(kernels)))  # the last of the ladder take longest


@pytest.fixture
def prepared(gpu):
    """Compiles all that a file of a shape may need with kernel "auto": else float64 stands in for what is missing."""

    def compile_for(shape):
        for plan in plans_of_file(shape, gpu):
            gpu.machine_code(plan)

    return compile_for


@pytest.fixture(autouse=True)
def memory():
    """After each test the GPU's memory is given back but for a little: other processes need it."""
    yield
    give_memory_back(most=KEPT)


def give_memory_back(most):
    """Free what CuPy and torch keep for later, each if it is more than so many bytes."""
    if (cupy := sys.modules.get("cupy")) and hasattr(cupy, "get_default_memory_pool"):
        pool = cupy.get_default_memory_pool()
        if pool.total_bytes() > most:
            pool.free_all_blocks()
    if (torch := sys.modules.get("torch")) and torch.cuda.is_initialized() and torch.cuda.memory_reserved() > most:
        torch.cuda.empty_cache()

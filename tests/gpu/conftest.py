"""The GPU tests: processes that share a GPU, its memory, and what they compile. Without a GPU they are skipped, and say
why. Those marked `alone` compare times, or count what the whole GPU does: `make gpu-test` runs them after the others.
"""

import hashlib
import os
import sys
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path

import gpuexact
import pytest

from hw4cli.device.gpu import Gpu, kernel_of
from hw4cli.errors import Hw4Error, MachineError
from hw4cli.problem.cpu import workers

MANY = 500  # tests, of which compiling would take most of the time
PROGRAMS = 6  # tests at once that start programs: the driver opens a GPU for one program after the other
FIRST = ("test_gpu_sanitizer", "test_gpu_random", "test_gpu_torch")  # whose tests take longest
KEPT = 1 << 30  # bytes of the GPU's memory that a process may keep from test to test


def pytest_collection_modifyitems(items):
    here = [item for item in items if Path(__file__).parent in item.path.parents]
    programs = 0
    for item in here:
        item.add_marker(pytest.mark.gpu)
        if {"hw4", "program"} & {*item.fixturenames} and not item.get_closest_marker("alone"):
            item.add_marker(pytest.mark.xdist_group(f"programs {programs % PROGRAMS}"))
            programs += 1
    in_order = iter(sorted(here, key=lambda item: FIRST.index(item.path.stem) if item.path.stem in FIRST else 9))
    ours = {*here}
    items[:] = [next(in_order) if item in ours else item for item in items]


@pytest.fixture(scope="session")
def run_folder(tmp_path_factory):
    """A folder that all processes of this run of the tests share."""
    folder = tmp_path_factory.getbasetemp()
    return folder.parent if "PYTEST_XDIST_WORKER" in os.environ else folder


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


@pytest.fixture(autouse=True)
def memory():
    """After each test the GPU's memory is given back but for a little: other processes need it."""
    yield
    if (cupy := sys.modules.get("cupy")) and hasattr(cupy, "get_default_memory_pool"):
        pool = cupy.get_default_memory_pool()
        if pool.total_bytes() > KEPT:
            pool.free_all_blocks()
    if (torch := sys.modules.get("torch")) and torch.cuda.is_initialized() and torch.cuda.memory_reserved() > KEPT:
        torch.cuda.empty_cache()

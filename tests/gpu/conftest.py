"""The GPU tests share one opened GPU; without a GPU they are skipped, and say why."""

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from hw4cli.compute.variants import VARIANTS
from hw4cli.device.gpu import Gpu, kernel_of
from hw4cli.errors import MachineError
from hw4cli.problem.cpu import workers
from hw4cli.problem.shape import Shape

MANY = 500  # tests, of which compiling would take most of the time


def pytest_collection_modifyitems(items):
    for item in items:
        if Path(__file__).parent in item.path.parents:
            item.add_marker(pytest.mark.gpu)


@pytest.fixture(scope="session")
def gpu(request):
    try:
        gpu = Gpu()
    except MachineError as reason:
        pytest.skip(str(reason))
    if len(request.session.items) > MANY:
        shapes = [item.callspec.params.get("shape") for item in request.session.items if hasattr(item, "callspec")]
        compile_side_by_side(gpu, {shape for shape in shapes if type(shape) is tuple and len(shape) == 3})
    return gpu


def compile_side_by_side(gpu, shapes):
    """Compile what tests of these shapes need, a process for each core: one after the other it takes minutes."""
    variants = [variant for variant in VARIANTS.values() if gpu.props.cc >= variant.least_cc]
    plans = (variant.plan(Shape(*shape), gpu.props) for variant in variants for shape in sorted(shapes))
    with ThreadPoolExecutor(workers()) as pool:
        list(pool.map(lambda kernel: gpu.code.start(kernel).wait(), gpu.code.missing(map(kernel_of, plans))))

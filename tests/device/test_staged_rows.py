"""Plans for rows that kernels cannot load as they are, on a GPU that is made up: the CPU executes its kernels."""

import ctypes
from contextlib import nullcontext
from types import SimpleNamespace

import numpy as np
import pytest
from fakecupy import new
from helpers import definition, random_block
from needs import COMPILER, needs
from slow import few, quick_of_each

from hw4cli.device.gpu import Gpu
from hw4cli.emulator.build import PLAIN, shared_object
from hw4cli.emulator.library import Library
from hw4cli.plans.ladder import VARIANTS
from hw4cli.plans.launch import ABSMAX_BYTES, ABSMAX_CHUNK, Matrix, magnitudes
from hw4cli.plans.plan import DEVICES
from hw4cli.problem.casefile import magnitudes_of
from hw4cli.problem.oracle import exact_attention
from hw4cli.problem.workload import Shape
from hw4cli.resources import kernel_path

pytestmark = needs(COMPILER)
STREAM = nullcontext()


class EmulatedGpu(Gpu):
    """A Gpu without its driver."""

    props = DEVICES[80]

    def __init__(self):
        self.cupy = SimpleNamespace(ndarray=new, cuda=SimpleNamespace(get_current_stream=lambda: STREAM))
        self.launched, self._variant, self._libraries = [], VARIANTS.__getitem__, {}

    def functions(self, plan):
        key = plan.variant, plan.options
        if key not in self._libraries:
            path = shared_object(kernel_path(plan.source), plan.macros, self.props.cc, 32, PLAIN)
            self._libraries[key] = Library(path)

        def function(step):
            def launch(grid, block, params, shared_mem):
                assert self._libraries[key].launch(step, params[0].tobytes(), [], grid=grid[0])[0]
                self.launched.append(step.symbol)

            return launch

        return [function(step) for step in plan.launches]

    def absmax_of_parts(self, address, parts, N, d, first, largest):
        path = shared_object(kernel_path("absmax"), {"ABSMAX_CHUNK": ABSMAX_CHUNK}, self.props.cc, 32, PLAIN)
        found, _ = Library(path).find_absmax(floats_at(address, (parts, N, d)), first=first)
        before = floats_at(largest, (ABSMAX_BYTES // 4,))
        np.maximum(before, found, out=before)
        self.launched.append("absmax")


def floats_at(address, shape):
    return np.ctypeslib.as_array(ctypes.cast(address, ctypes.POINTER(ctypes.c_float)), shape)


def on_gpu(array):
    made = new(array.shape, np.float32)
    made.set(array)
    return made


@pytest.fixture(scope="module")
def gpu():
    return EmulatedGpu()


# Of a padded head size 32, 64 and 128 each; one column alone.
@quick_of_each(2)
@pytest.mark.parametrize("kernel", ["flash", "split", "float64"])
@pytest.mark.parametrize("d", [1, *few((31, 59, 65))])
def test_batches_of_a_file_are_computed_by_the_code_of_the_next_multiple(gpu, kernel, d):
    block, gpu.launched[:] = random_block(2, 67, d), []
    inputs, outputs = on_gpu(block), new((2, 67, d), np.float32)
    outputs[:] = np.nan
    plan = gpu.plan(kernel, Shape(2, 67, d))
    scratch = gpu.compute(plan, inputs, outputs)
    assert gpu.launched == ["columns32", *(launch.symbol for launch in plan.launches), "columns32"]
    assert np.abs(outputs - definition(block)).max() < (3e-3 if kernel == "split" else 2e-5)
    found = magnitudes(gpu.absmax_of(plan, scratch, inputs).view(np.float32).tolist())
    np.testing.assert_allclose(found, magnitudes_of(block), atol=1e-2)
    assert found[:3] == magnitudes_of(block)[:3]
    assert (gpu.launched[-1] == "absmax") == (kernel != "split")  # which finds it itself


def test_a_range_of_rows_has_its_own_queries_and_all_keys(gpu):
    block = random_block(1, 90, 59)[0]
    first, rows = 20, 40
    q, kv, o = on_gpu(block[0, first : first + rows]), on_gpu(block[1:]), new((rows, 59), np.float32)
    shape = Shape(1, 90, 59, True, rows)
    plan = gpu.plan("flash", shape)
    matrices = tuple(Matrix(x.data.ptr, 0, 0, 59) for x in (q, kv[0], kv[1], o))
    scratch = gpu.launch(plan, shape, matrices, first)
    expected = exact_attention(block[None], causal=True)[0, first : first + rows]
    assert np.abs(o - expected).max() < 2e-5
    found = magnitudes(gpu.absmax_of(plan, scratch, q, kv).view(np.float32).tolist())
    assert found[:3] == (np.abs(block[0, first : first + rows]).max(), np.abs(block[1]).max(), np.abs(block[2]).max())


def test_a_multiple_is_read_and_written_where_it_lies(gpu):
    block, gpu.launched[:] = random_block(1, 40, 60), []
    plan = gpu.plan("flash", Shape(1, 40, 60))
    gpu.compute(plan, on_gpu(block), new((1, 40, 60), np.float32))
    assert gpu.launched == ["flash"]

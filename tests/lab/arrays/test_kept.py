"""What is launched again and again keeps the memory that it works on: a pointer to freed memory would be another's."""

import gc
import weakref
from types import SimpleNamespace

import numpy as np
import pytest
from fakecupy import new

from hw4cli.lab.arraymodel import target
from hw4cli.lab.arrays import ours
from hw4cli.lab.arrays.named import workload
from hw4cli.plans.half import Arrays
from hw4cli.plans.launch import Matrix

CASE = workload("B=1 H=2 N=64 d=64 dtype=fp16 causal")


class Memory:
    """An array on a GPU that there is not."""

    made: list["weakref.ref[Memory]"] = []

    def __init__(self, shape, dtype):
        self.shape, self.nbytes = shape, 512
        self.data = SimpleNamespace(ptr=id(self), memset=lambda value, count: None)
        Memory.made.append(weakref.ref(self))


class Kernels:
    """What plans and launches, and does neither."""

    def __init__(self, gpu=None):
        self.launched = []

    def plan(self, *args, **kwargs):
        return SimpleNamespace(scratch=4, launches=())

    planned = plan

    def launch(self, work, arrays, *args, **kwargs):
        self.launched.append(arrays.scratch)
        Kernels.last = arrays


@pytest.fixture
def gpu(monkeypatch):
    Memory.made.clear()
    for module, name in ((ours, "HalfOnGpu"), (ours, "Float32OnGpu"), (target, "HalfOnGpu"), (target, "BackwardOnGpu")):
        monkeypatch.setattr(module, name, Kernels)
    monkeypatch.setattr(ours, "pairs_percent", lambda *args: 100.0)
    monkeypatch.setattr(target, "matrix", lambda array: Matrix(array.data.ptr, 1, 1, 1))
    cupy = SimpleNamespace(
        ndarray=Memory, copyto=lambda to, of: None, cuda=SimpleNamespace(Stream=SimpleNamespace(null=None))
    )
    return SimpleNamespace(cupy=cupy, functions=lambda plan: ())


def work_on_arrays(gpu, by):
    x = new((1, 2, 64, 64), np.uint16)  # the caller's, who keeps them
    arrays = SimpleNamespace(q=x, k=x, v=x, o=x, matrices=Arrays(*4 * [Matrix(0, 1, 1, 1)])[:4])
    if by == "bench":
        facts = SimpleNamespace(registers=1, shared_bytes=1, occupancy=1)
        timer = SimpleNamespace(resources=lambda plan: facts)
        return ours.implementation(gpu, timer, "half").prepare(CASE, arrays)[0]
    return target.runner(gpu, by, CASE, arrays)


@pytest.mark.parametrize("by", ["bench", "half", "backward"])
def test_what_is_launched_again_keeps_its_memory(gpu, by):
    work = work_on_arrays(gpu, by)
    gc.collect()
    assert Memory.made
    assert all(memory() for memory in Memory.made)
    work()
    del work
    gc.collect()
    assert not any(memory() for memory in Memory.made)


def test_gradients_that_are_profiled_read_no_array_twice_where_training_reads_two(gpu):
    work_on_arrays(gpu, "backward")()
    q, _, _, o, do, *made = (matrix.data for matrix in Kernels.last.matrices)
    assert len({q, o, do, *made}) == 6

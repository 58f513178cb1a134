"""What a call that is repeated need not do again."""

import sys
from contextlib import nullcontext
from types import SimpleNamespace

import pytest

from hw4cli.arrays.gradients import ongpu
from hw4cli.device import gpu
from hw4cli.plans import gradients
from hw4cli.plans.backward import Arrays
from hw4cli.plans.launch import Matrix
from hw4cli.plans.plan import DEVICES
from hw4cli.problem.workload import Workload

WORK = Workload("bfloat16", 2, 4, 2, 256, 256, 64, True)


class Gpu:
    """One that keeps what it is to launch."""

    props = DEVICES[90]

    def __init__(self):
        self.launched = []

    def functions(self, plan):
        def function(symbol):
            return lambda grid, block, params, shared_mem: self.launched.append((symbol, grid, params[0].tobytes()))

        return [function(step.symbol) for step in plan.launches]


def arrays(first):
    """Of q, k, v, o, do, dq, dk and dv, from an address on."""
    q, k = WORK.heads, WORK.kv_heads
    at = [first + (n << 24) for n in range(10)]
    heads = zip(at[:8], (q, k, k, q, q, q, k, k), strict=True)
    matrices = [Matrix(there, count * 256 * 64, 256 * 64, 64) for there, count in heads]
    return Arrays(tuple(matrices), at[8], at[9])


def a_map(box):
    return f"{box.address:<16}{box.sizes}{box.strides}{box.box}".encode()[:128].ljust(128)


@pytest.mark.parametrize("kernel", list(gradients.GRADIENTS))
def test_gradients_of_the_same_arrays_are_launched_with_the_arguments_of_the_first_time(monkeypatch, kernel):
    encoded = []
    monkeypatch.setattr(ongpu, "encode", lambda box: encoded.append(box) or a_map(box))
    found = Gpu()
    backward = ongpu.BackwardOnGpu(found)
    for there in (arrays(1 << 30), arrays(1 << 30), arrays(1 << 31)):
        found.launched.clear()
        before = len(encoded)
        backward.launch(WORK, there, WORK.scale, nullcontext(), kernel)
        expected = gradients.arguments(backward.planned(WORK, kernel), WORK, there, a_map)
        assert [params for *_, params in found.launched] == [expected] * len(found.launched) and found.launched
        if there == arrays(1 << 30) and before:
            assert len(encoded) == before
    assert backward._prepared.cache_info().hits == 1


def test_cupy_that_is_there_is_taken_without_a_look_at_files(monkeypatch):
    cupy = SimpleNamespace()
    monkeypatch.setattr(gpu, "_cupy", None)
    monkeypatch.setattr(gpu, "load", lambda: sys.modules.setdefault("cupy", cupy))
    monkeypatch.setitem(sys.modules, "cupy", cupy)
    assert gpu.import_cupy() is cupy
    monkeypatch.setattr(gpu, "kernel_cache", lambda: pytest.fail("looked at the cache's folder"))
    assert gpu.import_cupy() is cupy

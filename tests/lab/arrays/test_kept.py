"""What is launched again and again keeps the memory that it works on: a pointer to freed memory would be another's. And
what a profiler sees of it."""

import gc
import json
import weakref
from types import SimpleNamespace

import fakecupy
import fakegpu
import numpy as np
import pytest
from fakecupy import new
from slow import slow
from test_measure import Answering
from test_passes import GradientsOf

from hw4cli.lab import kernels, target
from hw4cli.lab.arrays.named import workload
from hw4cli.lab.cases import ArrayCase
from hw4cli.lab.tables import BACKWARD, BOTH, FORWARD
from hw4cli.plans.dispatch import AUTO
from hw4cli.plans.plan import DEVICES
from hw4cli.problem.suite import uniform
from hw4cli.problem.workload import Shape

CASE = ArrayCase(workload("B=1 H=2 N=64 d=64 dtype=fp16 causal"))
CASE_OF_A_FILE = Shape(2, 9, 5, causal=True)


class Memory:
    """An array on a GPU that there is not."""

    made: list["weakref.ref[Memory]"] = []

    def __init__(self, shape, dtype):
        self.data = SimpleNamespace(ptr=id(self))
        Memory.made.append(weakref.ref(self))


class Kernels:
    """What plans and launches, and does neither."""

    def __init__(self, gpu=None, planner=None):
        self.launched = []

    def planned(self, *args, **kwargs):
        return SimpleNamespace(scratch=4, launches=())

    def launch(self, work, arrays, *args, **kwargs):
        self.launched.append(arrays.scratch)


@slow
def test_what_is_launched_again_keeps_its_memory(monkeypatch):
    Memory.made.clear()
    for name in ("HalfOnGpu", "Float32OnGpu"):
        monkeypatch.setattr(kernels, name, Kernels)
    monkeypatch.setattr(kernels, "pairs_percent", lambda *args: 100.0)
    cupy = SimpleNamespace(ndarray=Memory, cuda=SimpleNamespace(Stream=SimpleNamespace(null=None)))
    facts = SimpleNamespace(registers=1, shared_bytes=1, occupancy=1)
    gpu = SimpleNamespace(cupy=cupy, functions=lambda plan: ())
    x = new((1, 2, 64, 64), np.uint16)  # the caller's, who keeps them
    one = kernels.ArrayKernel(SimpleNamespace(gpu=gpu, resources=lambda plan: facts), "half", CASE)
    one.prepare(SimpleNamespace(arrays=SimpleNamespace(q=x, k=x, v=x, o=x)))
    gc.collect()
    (memory,) = Memory.made
    one.run()
    one.run()
    assert one._half.launched == 2 * [id(memory())]
    del one
    gc.collect()
    assert memory() is None


@pytest.mark.parametrize(("direction", "each"), [(BACKWARD, ["backward"]), (BOTH, ["forward", "backward"])])
def test_gradients_are_run_on_o_and_an_lse_that_the_forward_pass_made(direction, each, monkeypatch):
    calls = []

    def forward(work, operands, lse, kernel, *_):
        calls.append("forward")
        assert [x.name for x in operands] == ["q", "k", "v", "o"] and kernel == AUTO

    def backward(work, given, lse, made, kernel):
        calls.append("backward")
        assert [x.name for x in (*given, *made)] == ["q", "k", "v", "o", "do", "dq", "dk", "dv"]
        assert (lse.dtype, lse.shape, work.scale, kernel) == ("float32", (1, 2, 64, 1), 0.125, "backward_mma")

    monkeypatch.setattr(kernels, "attention_on_gpu", forward)
    monkeypatch.setattr(kernels, "backward_on_gpu", backward)
    monkeypatch.setattr(kernels, "BackwardOnGpu", lambda gpu: SimpleNamespace(plan=lambda work, name: name))
    facts = SimpleNamespace(registers=1, shared_bytes=1, occupancy=1)
    gpu = SimpleNamespace(cupy=fakecupy.cupy, props=DEVICES[80])
    case = ArrayCase(CASE.workload, direction)
    one, data = kernels.GradientKernel(SimpleNamespace(gpu=gpu, resources=lambda plan: facts), case), case.opened(gpu)
    one.prepare(data)
    one.run()
    assert calls == ["forward", *each]
    made = data.arrays.dq, data.arrays.dk, data.arrays.dv
    assert all(x is y for x, y in zip(one.answer()[-3:], made, strict=True))
    assert (len(one.answer()) == 4) == (direction == BOTH)


@pytest.fixture
def profiled(monkeypatch):
    """Runs the process that is profiled, on a GPU that there is not; what happened, in order."""
    events = []

    class Runtime:
        def profilerStart(self):  # noqa: N802 - CUDA's name
            events.append("start")

        def profilerStop(self):  # noqa: N802
            events.append("stop")

    memory = SimpleNamespace(OutOfMemoryError=MemoryError)
    cupy = SimpleNamespace(**{**vars(fakecupy.cupy), "cuda": SimpleNamespace(runtime=Runtime(), memory=memory)})
    code = SimpleNamespace(missing=lambda kernels: [])
    gpu = SimpleNamespace(cupy=cupy, code=code, wait=lambda: events.append("wait"))

    def contender(timer, name, case):
        one = GradientsOf(name) if name in kernels.GRADIENT_KERNELS else Answering(name)
        own, one.case = one.run, case
        one.run = lambda: (events.append(name), own())
        one.planned = lambda: SimpleNamespace(variant=name, options=(), launches=())
        return one

    def run(names, text):
        monkeypatch.setattr(target, "contender_named", contender)
        monkeypatch.setattr(target, "compile_side_by_side", lambda gpu, plans: events.append(len(plans)))
        target.run(gpu, names, json.loads(target.of_arrays(names, text)))
        return events

    return run


def test_of_each_kernel_the_second_run_is_profiled(profiled):
    events = profiled(["half", "backward"], "H=2 N=9 d=5 dtype=fp16")
    once = [[name, "wait", "start", name, "wait", "stop"] for name in ("half", "backward")]
    assert events == [2, *once[0], *once[1]]


@pytest.mark.parametrize(("names", "direction"), [(["half"], FORWARD), (["half", "backward"], BACKWARD)])
def test_what_is_profiled_has_rows_that_kernels_can_load_and_what_gradients_need(names, direction):
    case = target.case_for(names, {"workload": "H=2 N=9 d=5 dtype=fp16 scale=0.5"})
    assert (case.work.d, case.work.scale, case.direction) == (8, 0.5, direction)
    files = target.case_for(["flash"], json.loads(target.of_files(["flash"], CASE_OF_A_FILE, 7)))
    assert (files.work, files.seed) == (CASE_OF_A_FILE.stored, 7)


def test_gradients_that_are_profiled_read_no_array_twice_where_training_reads_two():
    gpu = SimpleNamespace(cupy=fakecupy.cupy)
    arrays = target.case_for(["backward"], {"workload": "H=2 N=9 d=8 dtype=fp16"}).opened(gpu).gradients
    addresses = {getattr(arrays, name).data.ptr for name in ("q", "k", "v", "o", "do", "dq", "dk", "dv")}
    assert len(addresses) == 8


def test_kernels_on_files_are_profiled_on_the_numbers_of_the_case(monkeypatch):
    """Of a GPU that there is not, whose kernels are the CPU's computation."""
    events = []
    gpu = fakegpu.FakeGpu(lambda inputs, outputs: events.extend([gpu.last, inputs.values.copy()]))
    runtime = SimpleNamespace(profilerStart=lambda: events.append("start"), profilerStop=lambda: events.append("stop"))
    gpu.cupy.cuda.runtime = runtime
    monkeypatch.setattr(target, "GpuTimer", fakegpu.FakeTimer)
    target.run(gpu, ["flash", "float4"], json.loads(target.of_files(["flash", "float4"], Shape(2, 16, 8), 5)))
    words = [event for event in events if isinstance(event, str)]
    assert words == ["flash", "start", "flash", "stop", "float4", "start", "float4", "stop"]
    numbers = np.concatenate(list(uniform(5, 3 * 2 * 16 * 8)))
    assert all((event.ravel() == numbers).all() for event in events if not isinstance(event, str))

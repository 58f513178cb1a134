"""`hw4 doctor --prepare`: no first run has to compile anything, of files, of arrays, of their gradients."""

import json
import re
from types import SimpleNamespace

import faketorch
import pytest
from slow import slow

import hw4cli
import hw4cli.doctor.bytecode
import hw4cli.doctor.prepare
from hw4cli.arrays import attention
from hw4cli.arrays.float32 import Float32OnGpu
from hw4cli.cli import run_command
from hw4cli.device.gpu import kernel_of
from hw4cli.device.machinecode import MachineCode
from hw4cli.doctor.prepare import plans_of_arrays, prepare
from hw4cli.errors import MachineError
from hw4cli.lab.arrays.named import named, workload
from hw4cli.plans import gradients as choice
from hw4cli.plans.kernels16 import plan16
from hw4cli.plans.ladder import VARIANTS
from hw4cli.plans.plan import DEVICES
from hw4cli.problem.workload import Shape
from hw4cli.stream.kernels import plans_of_file
from hw4cli.text.progress import Progress


@pytest.fixture
def machine(tmp_path, monkeypatch):
    """A machine with GPUs of some kinds, on which compiling takes no time; the kernels that are in the cache."""
    kept = set()

    def start(self, kernel):
        kept.add((self.cc, kernel))
        return SimpleNamespace(wait=lambda seconds: 0)

    monkeypatch.setattr(hw4cli.doctor.bytecode, "sources_of_a_run", dict)
    monkeypatch.setattr(MachineCode, "start", start)
    monkeypatch.setattr(MachineCode, "is_kept", lambda self, kernel: (self.cc, kernel) in kept)
    monkeypatch.setattr(
        MachineCode, "missing", lambda self, kernels: [k for k in dict.fromkeys(kernels) if not self.is_kept(k)]
    )

    def has(*gpus, folder=tmp_path):
        current = iter([])

        def gpu():
            name, cc = next(current)
            return SimpleNamespace(name=name, props=DEVICES[cc], code=MachineCode(cc, 13000, folder))

        def count():
            nonlocal current
            current = iter(gpus)
            return len(gpus)

        device = SimpleNamespace(use=lambda: None)
        cupy = SimpleNamespace(cuda=SimpleNamespace(Device=lambda number: device))
        monkeypatch.setattr(hw4cli.doctor.prepare, "Gpu", gpu)
        monkeypatch.setattr(hw4cli.doctor.prepare, "count_here", count)
        monkeypatch.setattr(hw4cli.doctor.prepare, "import_cupy", lambda: cupy)
        return kept

    return has


H200, H100, GTX = ("NVIDIA H200", 90), ("NVIDIA H100 80GB HBM3", 90), ("NVIDIA GeForce GTX 1060", 61)


def test_all_thirty_cases_by_default_and_what_is_there_is_not_compiled_again(machine, capsys):
    machine(H200)
    assert run_command(["doctor", "--prepare"]) == 0
    assert run_command(["doctor", "--prepare"]) == 0
    first, second = capsys.readouterr().out.splitlines()
    assert first.startswith("NVIDIA H200: 20 kernels compiled in ")
    assert second.startswith("NVIDIA H200: nothing to do, 20 were there, in ")


def test_some_cases_whatever_else_the_cache_holds(machine):
    gpu = SimpleNamespace(name=H200[0], props=DEVICES[90], code=SimpleNamespace(driver=13000, compiler_id=""))
    kept = machine(H200)
    assert run_command(["doctor", "--prepare", "t01"]) == 0
    assert run_command(["doctor", "--prepare", "t10", "--causal"]) == 0
    for shape in (Shape(320, 128, 32), Shape(10, 2048, 64, causal=True)):
        assert {(90, kernel_of(plan)) for plan in plans_of_file(shape, gpu)} <= kept
    assert not {(90, kernel_of(plan)) for plan in plans_of_file(Shape(10, 2048, 64), gpu)} <= kept


def test_gpus_of_each_kind_have_their_own(machine, capsys):
    kept = machine(H200, H200, GTX)
    assert run_command(["doctor", "--prepare", "t01", "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert [one["gpu"] for one in document["prepared"]] == [H200[0], GTX[0]]
    assert {cc for cc, _ in kept} == {90, 61}


@pytest.mark.parametrize("name", named())
def test_a_workload_with_its_gradients(machine, name):
    kept, work = machine(H200), workload(name).work
    assert run_command(["doctor", "--prepare", name]) == 0
    compiled = {kernel for _, kernel in kept}
    assert kernel_of(choice.plan(work, DEVICES[90])) in compiled
    if work.dtype != "float32":
        assert kernel_of(plan16(work, DEVICES[90])) in compiled
    else:
        assert {"split_wgmma", "exact", "flash", "float64", "choice"} <= {file for file, _ in compiled}


@pytest.mark.parametrize("causal", [False, True])
def test_float32_arrays_of_which_the_gpu_chooses_the_kernel_find_all_kernels_compiled(monkeypatch, causal):
    """With columns that are no whole chunks, a mask and shared heads: the call compiles nothing more."""
    needed, driver = set(), faketorch.install(monkeypatch).driver

    def functions(plan):
        needed.add(kernel_of(plan))
        return [driver.function(step.symbol) for step in plan.launches]

    gpu = SimpleNamespace(props=DEVICES[90], name="NVIDIA H200", cupy=faketorch.cupy, functions=functions)
    gpu.is_compiled, gpu.copy = lambda plan: False, lambda *given: None
    gpu.prepare = lambda plans: needed.update(map(kernel_of, plans))
    monkeypatch.setattr(attention, "_open", lambda device: (None, Float32OnGpu(gpu)))
    q, k, v = (faketorch.empty((2, heads, 300, 62), "float32", None) for heads in (16, 4, 4))
    hw4cli.attention(q, k, v, causal=causal)
    work = workload(f"B=2 H=16 KVH=4 N=300 d=62 dtype=fp32{' causal' * causal}").work
    assert {file for file, _ in needed} == {"choice", "split_short", "exact", "flash", "float64"}
    assert needed <= {kernel_of(plan) for plan in plans_of_arrays(work, DEVICES[90], "NVIDIA H200")}


def test_float32_arrays_that_share_heads_are_called_with_more_rows(machine):
    work = workload("B=2 H=16 KVH=4 N=300 d=64 dtype=fp32").work
    plans = {kernel_of(plan) for plan in plans_of_arrays(work, DEVICES[90], "NVIDIA H200")}
    from hw4cli.problem.workload import Shape

    assert kernel_of(VARIANTS["split"].plan(Shape(8, 300, 64, False, 1200), DEVICES[90])) in plans
    assert kernel_of(VARIANTS["split"].plan(Shape(32, 300, 64, False, 300), DEVICES[90])) in plans


def test_cases_and_workloads_together(machine):
    kept = machine(H100)
    assert run_command(["doctor", "--prepare", "t02", "lm8k"]) == 0
    assert {"split_short", "half", "float64"} <= {file for _, (file, _) in kept}


def test_without_a_gpu_it_says_so(capsys):
    assert run_command(["doctor", "--prepare"]) == 3
    assert capsys.readouterr().err.startswith("hw4: no GPU can be used: ")


def test_where_no_kernel_can_be_kept_it_says_so_before_compiling(machine, capsys):
    kept = machine(H200, folder=None)
    assert run_command(["doctor", "--prepare"]) == 3
    assert "CUPY_CACHE_IN_MEMORY is set, or no folder can be written" in capsys.readouterr().err
    assert not kept


def test_a_kernel_that_is_not_there_afterwards_is_an_error_with_its_reason(machine, monkeypatch, capsys):
    machine(GTX)
    monkeypatch.setattr(MachineCode, "start", lambda self, kernel: SimpleNamespace(wait=lambda seconds: 1))
    monkeypatch.setattr(MachineCode, "compile", lambda self, kernel: b"")
    [done] = prepare([Shape(1, 128, 64)], [], Progress())
    assert done.compiled == 0
    assert re.match(r"compiled kernels cannot be kept in .*: make room there", done.problem)
    assert run_command(["doctor", "--prepare", "t01"]) == 3
    out, err = capsys.readouterr()
    assert out.startswith(GTX[0])  # the GPU works, all the same
    assert err.startswith("hw4: compiled kernels cannot be kept in ")


@pytest.mark.parametrize(
    ("words", "problem"),
    [
        (["t01"], "CASE needs --prepare"),
        (["lm8k"], "WORKLOAD needs --prepare"),
        (["--causal"], "--causal needs --prepare"),
        (["--prepare", "--measure"], "--prepare and --measure do not go together"),
        (["--prepare", "t99"], "t99"),
        (["--prepare", "lm9k"], "'lm9k' is no CASE or WORKLOAD. Did you mean 'lm8k'?"),
    ],
)
def test_what_does_not_go_together_or_does_not_exist_is_refused(words, problem, capsys):
    assert run_command(["doctor", *words]) == 2
    assert problem in capsys.readouterr().err


@slow
def test_kernels_are_really_compiled_with_nvrtc(tmp_path, monkeypatch):
    pytest.importorskip("nvidia.cu13", reason="needs NVRTC (pip install 'hw4cli[dev]')")
    gpu = SimpleNamespace(name=GTX[0], props=DEVICES[80], code=MachineCode(80, 13000, tmp_path))
    cupy = SimpleNamespace(cuda=SimpleNamespace(Device=lambda number: SimpleNamespace(use=lambda: None)))
    monkeypatch.setattr(hw4cli.doctor.prepare, "Gpu", lambda: gpu)
    monkeypatch.setattr(hw4cli.doctor.prepare, "count_here", lambda: 1)
    monkeypatch.setattr(hw4cli.doctor.prepare, "import_cupy", lambda: cupy)
    shape, progress = Shape(1, 8, 4), Progress()
    [done] = prepare([shape], [], progress)
    assert progress.done == progress.total == done.compiled == len(list(tmp_path.iterdir()))
    plans = {kernel_of(plan) for plan in plans_of_file(shape, gpu)}
    assert code_of(tmp_path).missing(plans) == []


def code_of(folder):
    return MachineCode(80, 13000, folder)


def test_kernels_count_though_what_a_run_imports_cannot_be_imported(machine, monkeypatch, capsys):
    """A judge takes the absence of a line for the absence of a GPU."""

    def cannot():
        raise MachineError("what a run imports cannot be imported: too slow")

    machine(H200)
    monkeypatch.setattr(hw4cli.doctor.bytecode, "sources_of_a_run", cannot)
    assert run_command(["doctor", "--prepare", "t01"]) == 3
    out, err = capsys.readouterr()
    assert out.startswith("NVIDIA H200: ")
    assert err == "hw4: what a run imports cannot be imported: too slow\n"

"""A small file does not wait for a compiler: it is computed by what is compiled, or by what compiles the fastest."""

import os
import pty
import subprocess
import sys
from types import SimpleNamespace

import pytest

import hw4cli.stream.cudadevice
from hw4cli.device.gpu import kernel_of
from hw4cli.device.machinecode import MachineCode
from hw4cli.plans.dispatch import AUTO
from hw4cli.plans.ladder import FALLBACK, VARIANTS
from hw4cli.plans.plan import DEVICES
from hw4cli.problem import suite
from hw4cli.problem.workload import Magnitudes, Shape
from hw4cli.stream.cudadevice import CudaDevice, somebody_watches
from hw4cli.stream.layout import choose_layout
from hw4cli.stream.timeline import Timeline

CASES = suite.cases()


@pytest.fixture
def compiled(tmp_path, monkeypatch):
    """The set of kernels that are compiled, by variant and options; opening a device plans, and compiles nothing."""
    kept = set()

    class PlanningGpu:
        name, props = "NVIDIA H200", DEVICES[90]

        def __init__(self):
            self.code = MachineCode(90, 13000, tmp_path)
            runtime = SimpleNamespace(memGetInfo=lambda: (1 << 34, 1 << 34))
            self.cupy = SimpleNamespace(cuda=SimpleNamespace(runtime=runtime))

        def plan(self, kernel, shape, tile=None):
            return VARIANTS[kernel].plan(shape, self.props, tile)

    monkeypatch.setattr(hw4cli.stream.cudadevice, "Gpu", PlanningGpu)
    monkeypatch.setattr(hw4cli.stream.cudadevice, "import_cupy", lambda: None)
    monkeypatch.setattr(MachineCode, "is_kept", lambda self, kernel: kernel in kept)
    return kept


def opened(shape, kernel=AUTO, max_error=None, alone=True):
    return CudaDevice(kernel, max_error, shape, choose_layout(shape, 4), Timeline(), alone=alone)


def compile_for(shape, kernel, compiled):
    layout = choose_layout(shape, 4)
    for part in layout.parts(shape):
        compiled.add(kernel_of(VARIANTS[kernel].plan(shape.with_batches(part.batches), DEVICES[90])))


def test_a_group_has_fewer_batches_only_where_memory_does_not_hold_them(compiled, monkeypatch):
    shape = Shape(4000, 512, 64)
    whole = opened(shape).group.B
    assert whole == choose_layout(shape, 4).group > 8
    half = 16 * shape.N * shape.d * (whole // 2)  # bytes of Q, K, V and O
    monkeypatch.setattr(hw4cli.stream.cudadevice, "BUDGET", half + half // 2)
    assert [opened(shape, "float4").group.B, whole] == [whole // 2, 85]


@pytest.mark.parametrize("name", [f"t{number:02}" for number in range(1, 11)])
def test_with_nothing_compiled_a_case_of_two_seconds_is_computed_in_float64(compiled, name):
    assert opened(CASES[name].shape).choice.first == FALLBACK


@pytest.mark.parametrize("name", [name for name in CASES if name > "t10"])
def test_a_case_that_computes_more_waits_for_the_kernel_that_computes_it_soonest(compiled, name):
    choice = opened(CASES[name].shape).choice
    assert choice.first == choice.preferred != FALLBACK


def test_what_is_compiled_for_one_case_says_nothing_of_another(compiled):
    compile_for(CASES["t01"].shape, "split", compiled)
    assert opened(CASES["t01"].shape).choice.first == "split"
    assert opened(CASES["t10"].shape).choice.first == FALLBACK


def test_the_fastest_kernel_that_is_compiled_answers(compiled):
    shape = CASES["t10"].shape
    compile_for(shape, "split", compiled)
    assert opened(shape).choice.first == "split"
    compile_for(shape, "split8", compiled)
    assert opened(shape).choice.first == "split8"


def test_a_case_with_a_smaller_last_part_needs_the_kernel_for_that_part_too(compiled):
    shape = Shape(1400, 128, 32)  # parts of 682, 682 and 36 batches
    sizes = {part.batches for part in choose_layout(shape, 4).parts(shape)}
    plans = [kernel_of(VARIANTS["split"].plan(shape.with_batches(n), DEVICES[90])) for n in sorted(sizes)]
    compiled.add(plans[0])
    assert (opened(shape).choice.first == "split") == (len(set(plans)) == 1)
    compiled.update(plans)
    assert opened(shape).choice.first == "split"


def test_values_too_large_for_what_is_compiled_are_computed_in_float64_unless_the_right_kernel_is_there(compiled):
    shape, large = CASES["t01"].shape, Magnitudes(3.0, 3.0, 24.0)
    compile_for(shape, "split", compiled)
    assert opened(shape).choice.kernel_for(large) == FALLBACK
    compile_for(shape, "exact", compiled)
    assert opened(shape).choice.kernel_for(large) == "exact"


def test_a_kernel_that_comes_during_a_run_is_not_taken_by_some_of_its_groups(compiled):
    choice, usual = opened(CASES["t01"].shape).choice, Magnitudes(3.0, 3.0, 3.0, 12.0, 12.0)
    assert choice.kernel_for(usual) == FALLBACK
    compile_for(CASES["t01"].shape, "split", compiled)
    assert choice.kernel_for(usual) == FALLBACK


def test_who_asks_for_a_kernel_or_computes_with_others_gets_the_one_that_belongs_there(compiled):
    shape = CASES["t10"].shape
    assert opened(shape, "split").choice.first == "split"
    assert opened(shape, alone=False).choice.first == "split8"


def test_timing_says_that_the_preferred_kernel_was_not_compiled_and_what_does_it(compiled):
    choice = opened(CASES["t10"].shape).choice
    choice.note(FALLBACK, 10, Magnitudes(3.0, 3.0, 3.0))
    assert "10 batches by float64, error at most" in choice.summary()
    assert "preferred split8: " in choice.summary()
    assert choice.summary().endswith("but not compiled (`hw4 doctor --prepare` does it)")
    assert choice.exceptions_sentence() is None
    compile_for(CASES["t10"].shape, "split8", compiled)
    assert "not compiled" not in opened(CASES["t10"].shape).choice.summary()


@pytest.fixture
def started(monkeypatch):
    """The kernels that a process was started for, to go on when the run has ended."""
    found = []
    monkeypatch.setattr(MachineCode, "start", lambda self, *kernels, apart: found.append((kernels, apart)))
    return found


def test_at_a_terminal_what_was_missing_is_compiled_for_the_next_runs_this_files_first(compiled, started, monkeypatch):
    monkeypatch.setattr(hw4cli.stream.cudadevice, "somebody_watches", lambda: True)
    opened(CASES["t10"].shape)
    [(kernels, apart)] = started
    assert apart
    assert kernels[0][0] == "split8_wgmma"  # the file of split8 on such a GPU
    assert len(kernels) > 8  # those of the other files, too


def test_elsewhere_and_where_all_is_there_no_process_is_started(compiled, started, monkeypatch):
    opened(CASES["t10"].shape)
    monkeypatch.setattr(hw4cli.stream.cudadevice, "somebody_watches", lambda: True)
    compile_for(CASES["t10"].shape, "split8", compiled)
    opened(CASES["t10"].shape)
    opened(CASES["t12"].shape)
    assert not started


WATCHED = "from hw4cli.stream.cudadevice import somebody_watches as s; raise SystemExit(40 + s())"


@pytest.mark.parametrize(
    ("through", "env", "watched"),
    [
        (None, {}, True),
        ("stdin", {}, False),
        ("stdout", {}, False),
        ("stderr", {}, False),
        (None, {"SLURM_JOB_ID": "7"}, False),
    ],
)
def test_a_run_is_watched_if_all_its_streams_are_a_terminal_outside_of_a_job(through, env, watched):
    master, terminal = pty.openpty()
    streams = dict.fromkeys(("stdin", "stdout", "stderr"), terminal) | ({through: subprocess.PIPE} if through else {})
    clean = {name: value for name, value in os.environ.items() if not name.startswith("SLURM_")}
    run = subprocess.Popen([sys.executable, "-c", WATCHED], env={**clean, **env}, **streams)
    run.communicate()
    os.close(terminal)
    os.close(master)
    assert run.returncode == 40 + watched


def test_a_run_without_a_terminal_is_not_watched():
    assert not somebody_watches()

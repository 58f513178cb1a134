"""`hw4 tune half`: tilings of arrays' kernels, on a GPU that is made up and without any."""

import re
import subprocess
import sys
from dataclasses import replace
from importlib import import_module
from types import SimpleNamespace

import fakecupy
import pytest
from fakegpu import FakeTimer
from helpers import ROOT, csv_rows, fails, fits, hw4_env, on_a_terminal
from slow import quick_of_each, slow
from test_measure import Answering

from hw4cli.arrays.ongpu import tuned
from hw4cli.cli.tune import OF_ARRAYS
from hw4cli.device.timing import Sample
from hw4cli.errors import MachineError
from hw4cli.lab.arrays.named import workload
from hw4cli.lab.candidates import SPACES, ArraySpace, tiling_of
from hw4cli.lab.cases import ArrayCase
from hw4cli.lab.tune import planned, tune
from hw4cli.plans.kernels16 import plan16
from hw4cli.plans.plan import DEVICES

CASE = ArrayCase(workload("B=1 H=4 N=33 Nk=40 d=64 dtype=fp16"))
SLOW, FAST = 2.0, 0.5
WEIGHED = {"in_order=4", *(f"polynomial={share} in_order=4" for share in (1, 2, 3, 4, 6))}


@pytest.fixture
def timer(monkeypatch):
    """A GPU on which tilings with four groups are slow, and those with three groups and four stages fast."""

    def compiled(plan):
        if plan.macros["BC"] == 80:
            raise MachineError("kernel half does not compile for compute capability 9.0: half.cu:20: too much: `x`")

    code = SimpleNamespace(missing=lambda kernels: [])
    gpu = SimpleNamespace(cupy=fakecupy.cupy, wait=lambda: None, props=DEVICES[90], functions=compiled, code=code)
    timer = FakeTimer(gpu)

    def sample(work, cold):
        work()
        factor = SLOW if gpu.tiling.groups == 4 else FAST if (gpu.tiling.groups, gpu.tiling.stages) == (3, 4) else 1
        return Sample(factor * timer.chance.uniform(0.995, 1.005), 0.01, 0.2, False)

    class WithTiling(Answering):
        def __init__(self, timer, kernel, case, tiling, title):
            super().__init__(title)
            self.tiling = tiling

        def run(self):
            super().run()
            gpu.tiling = self.tiling

    timer.sample = sample
    monkeypatch.setattr("hw4cli.lab.candidates.ArrayKernel", WithTiling)
    return timer


def test_the_command_takes_the_kernels_that_have_a_space():
    assert {*OF_ARRAYS} == {*SPACES}


def test_each_tiling_is_timed_dropped_or_refused_with_a_reason(timer):
    rows = tune(timer, ArraySpace("half", CASE))
    usual = {one for one in SPACES["half"] if not (one.polynomial or one.in_order)}
    assert len(rows) == len({row.name for row in rows}) == 1 + len(usual) + 2 * len(WEIGHED)
    status = {(dict(row.knobs)["groups"], row.tile[1], dict(row.knobs)["stages"]): row.status for row in rows}
    assert status[4, 64, 2] == "dropped"
    assert status[4, 80, 4] == "refused"
    first = rows[0]
    assert (dict(first.knobs)["groups"], dict(first.knobs)["stages"]) == (3, 4)
    assert first.samples > next(row.samples for row in rows if row.status == "dropped")
    assert sum(row.own for row in rows) == 1
    reasons = {row.reason for row in rows if row.status == "refused"}
    assert reasons == {"does not compile: half.cu:20: too much"}


@pytest.mark.parametrize("d", [32, 64, 128])
@pytest.mark.parametrize("N", [64, 128, 129])
def test_the_tiling_that_is_called_a_kernels_own_is_the_one_that_it_takes_by_itself(N, d):
    case = ArrayCase(workload(f"B=1 H=4 N={N} d={d} dtype=fp16"))
    for kernel in SPACES:
        space = ArraySpace(kernel, case)
        [own] = [one for one in space.candidates(DEVICES[90]) if one.own]
        assert plan16(case.work, DEVICES[90], kernel, own.tiling) == plan16(case.work, DEVICES[90], kernel)
        assert planned(space, [own], DEVICES[90])[1] == []


def test_quick_takes_five_samples_of_the_kernels_own_tiling_in_each_schedule(timer):
    rows = tune(timer, ArraySpace("half", ArrayCase(workload("B=1 H=1 N=200 d=64 dtype=fp16")), quick=True), quick=True)
    assert {row.samples for row in rows} == {5}
    names = ("ahead", "turns", "lazy")
    schedules = {tuple(dict(row.knobs).get(name, 1) for name in names): row.own for row in rows}
    assert schedules == {(1, 1, 1): True, (1, 0, 1): False, (0, 0, 1): False, (1, 1, 0): False}


@pytest.mark.parametrize(("d", "tiles"), [(32, ["192x128", "256x64"]), (64, ["192x128", "256x64"]), (128, ["192x80"])])
def test_shares_of_exponentials_by_polynomial_are_tried_with_the_usual_tiles(d, tiles):
    space = ArraySpace("half", ArrayCase(workload(f"B=1 H=4 N=900 d={d} dtype=fp16")))
    names = [one.name for one in space.candidates(DEVICES[90]) if "in_order" in one.name]
    ones = int(d == 64)
    stages = {"192x128": "groups=3 stages=2", "256x64": "groups=4 stages=4", "192x80": "groups=3 stages=2"}
    assert {*names} == {f"half {tile} {stages[tile]} ones={ones} {way}" for tile in tiles for way in WEIGHED}
    assert not any("in_order" in one.name for one in replace(space, quick=True).candidates(DEVICES[90]))


def test_a_share_is_asked_for_by_its_macro():
    work = CASE.work
    found = tiling_of("half", work, DEVICES[90], {"BR": 192, "BC": 128, "POLYNOMIAL": 3})
    assert (found.groups, found.polynomial, found.in_order) == (3, 3, 4)
    assert tiling_of("half", work, DEVICES[90], {"BR": 192, "BC": 128}).polynomial == 0
    with pytest.raises(MachineError, match="half has no tiling of 192x128, POLYNOMIAL=5: `hw4 tune half` lists them"):
        tiling_of("half", work, DEVICES[90], {"BR": 192, "BC": 128, "POLYNOMIAL": 5})


def test_what_does_not_fit_a_gpus_shared_memory_is_left_out():
    space = ArraySpace("half_mma", CASE)
    plans, refused = planned(space, [*space.candidates(DEVICES[75])], DEVICES[75])
    assert plans
    assert refused
    assert all(max(launch.shared for launch in plan.launches) <= 64 << 10 for plan in plans.values())


FEW = f"""
import sys
sys.path.insert(0, {str(ROOT)!r})
import hw4cli.lab.candidates as lab
lab.SPACES = {{name: space[:2] for name, space in lab.SPACES.items()}}
from hw4cli.cli import run_command
sys.exit(run_command())
"""
ARGUMENTS = ("tune", "half_mma", "B=1 H=1 N=64 d=32 dtype=fp16", "--gpu", "T4")
SHORT_ROWS = ("tune", "half", "B=1 H=1 N=64 d=64 dtype=fp16", "--gpu", "H100")


@quick_of_each(1)
@pytest.mark.parametrize("arguments", [ARGUMENTS, SHORT_ROWS])
def test_without_a_gpu_what_could_start_is_listed(arguments, tmp_path):
    command = [sys.executable, "-c", FEW, *arguments, "-o", tmp_path / "a.csv"]
    result = subprocess.run(command, capture_output=True, text=True, env=hw4_env())
    assert result.returncode == 0, result.stderr
    rows = csv_rows(tmp_path / "a.csv")
    assert [(row["own"], row["status"]) for row in rows] == [("True", "fits"), ("False", "fits"), ("False", "fits")]
    assert all(int(row["registers"]) > 0 for row in rows)


def test_candidates_that_cannot_start_for_one_reason_share_a_line(hw4):
    text = hw4("tune", "half", "lm8k", "--gpu", "8.0").stdout
    [line] = [line for line in text.splitlines() if "needs compute capability 9.0" in line]
    assert re.match(r"half 192x64 groups=3 stages=4 ones=0 and \d\d others: needs", line)


@slow
def test_a_table_fits_the_terminal():
    code, text = on_a_terminal(60, *ARGUMENTS, start=("-c", FEW))
    assert code == 0, text
    assert fits(text, 60)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["half", "t01"], "half computes arrays: name a workload"),
        (["flash", "lm8k"], "flash computes files: name a case"),
        (["lm8k"], "a workload takes half or half_mma"),
        (["half", "lm8k", "--tile", "64x64"], "no --tile"),
        (["half", "lm8k", "--causal"], "--causal does not go with a workload"),
    ],
)
def test_a_wrong_request_is_refused_in_a_sentence(hw4, arguments, words):
    fails(hw4("tune", *arguments), 2, words)


def test_the_command_keeps_the_fastest_tiling_for_attention_to_go_by(timer, monkeypatch, tmp_path):
    """Where the intervals of the medians lie apart."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    timer.gpu.name, timer.gpu.code.driver, timer.gpu.code.compiler_id = "Test GPU", 13000, "nvrtc"
    command = import_module("hw4cli.cli.tune")
    case = workload("B=1 H=1 N=400 d=64 dtype=fp16")
    monkeypatch.setattr(command, "_timer", lambda: timer)
    monkeypatch.setattr(command, "machine", lambda facts: {})
    before = tuned(timer.gpu)(case.work, DEVICES[90])
    command._of_arrays(["half"], case, None, False, keeping=False)
    assert tuned(timer.gpu)(case.work, DEVICES[90]) == before == plan16(case.work, DEVICES[90])
    command._of_arrays(["half"], case, None, False, keeping=True)
    macros = tuned(timer.gpu)(case.work, DEVICES[90]).macros
    assert (macros["GROUPS"], macros["STAGES"]) == (3, 4), "which the GPU of this test is fast with"

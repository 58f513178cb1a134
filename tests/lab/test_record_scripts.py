"""The scripts that make the records of kernels of files, and of `split` without warpgroups."""

import json
import os
import sys
from types import SimpleNamespace

import fakegpu
from helpers import run_script

from benchmarks import without_warpgroups
from benchmarks.rungs import with_measured
from hw4cli.cli.bench import bench
from hw4cli.cli.profile import profile
from hw4cli.cli.tune import tune
from hw4cli.plans.variants import VARIANTS
from hw4cli.problem import suite
from hw4cli.problem.shape import Shape


def records(tmp_path, calls):
    """Record -> the options of `hw4 bench` as click understands them."""
    asked = [call[3:] for call in calls if call[:3] == ["-m", "hw4cli", "bench"]]
    found = (bench.make_context("bench", words).params for words in asked)
    return {options["outputs"][0].name.removesuffix(".json"): options for options in found}


def test_the_script_asks_for_every_record_of_files_and_more_only_by_their_names(tmp_path):
    result, calls = run_script("files.sh", tmp_path, "h200")
    assert result.returncode == 0, result.stderr
    asked = records(tmp_path, calls)
    assert {"h200-split", "h200-flash", "h200-ladder", "h200-tiles"} <= {*asked}
    assert {"split", "split8", "exact", "flash"} == {*asked["h200-split"]["what"].kernels}
    assert [case.name for case in suite.select([asked["h200-flash"]["what"].cases])][-1] == "t30"
    assert asked["h200-ladder"]["what"].kernels == ("all",)
    assert [call[1] for call in calls if call[1] != "hw4cli"] == ["benchmarks.without_warpgroups"]
    assert not {"h200-thirty", "h200-heads", "h200-end-to-end"} & {*asked}
    _, calls = run_script("files.sh", tmp_path, "h200", WHAT="thirty heads")
    assert {*records(tmp_path, calls)} == {"h200-thirty", "h200-heads"}


def test_the_scripts_ask_for_tuning_and_for_every_kernel_over_n(tmp_path):
    _, calls = run_script("files.sh", tmp_path, "h100", WHAT="tuned tuned-full tuned-flash")
    asked = [tune.make_context("tune", call[3:]).params for call in calls]
    outputs = [options["outputs"][0].relative_to(tmp_path).as_posix() for options in asked]
    assert outputs == ["tuned/h100.json", "tuned/h100-full.json", "tuned/h100-flash.json"]
    assert (tmp_path / "tuned").is_dir()
    assert all(options["no_keep"] for options in asked)
    quick, full, flash = asked
    assert (quick["quick"], quick["what"].kernels, len(suite.select([quick["what"].cases]))) == (True, (), 30)
    assert (full["quick"], flash["what"].kernels, flash["what"].cases) == (False, ("flash",), "t28")
    result, calls = run_script("figures.sh", tmp_path, "h100")
    assert result.returncode == 0, result.stderr
    asked = records(tmp_path, calls)
    for d in (32, 64):
        both = [options for name, options in asked.items() if name.endswith((f"d{d}", f"d{d}-causal", "paper"))]
        assert {kernel for options in both for kernel in options["what"].kernels} == {*VARIANTS}
    lengths = {shape.N for options in asked.values() for shape in options["what"].shapes}
    assert lengths == {128 << n for n in range(9)}
    assert all(options["causal"] == name.endswith("-causal") for name, options in asked.items())
    assert asked["h100-energy"]["sustained"]
    (profiled,) = (call for call in calls if "profile" in call)
    assert {*VARIANTS} - {"float64"} <= {*profiled}


def test_every_rung_and_a_homework_are_profiled_in_one_call(tmp_path):
    made = tmp_path / "make"
    made.write_text(f"#!/bin/sh\necho $* > {tmp_path}/targets\n")
    made.chmod(0o755)
    path = f"{tmp_path}:{os.environ['PATH']}"
    result, calls = run_script("figures.sh", tmp_path, "h200", WHAT="assignment", PATH=path)
    assert result.returncode == 0, result.stderr
    assert (tmp_path / "targets").read_text() == "students\n"
    generated, profiled = (call[2:] for call in calls)
    assert generated == ["gen", "t20", "--no-answers"]
    options = profile.make_context("profile", profiled[1:]).params
    assert {*options["what"].kernels} == {*VARIANTS} - {"float64"}
    assert (options["programs"], options["what"].cases) == (("./student", "./student-padded"), "t20")
    assert options["outputs"] == (tmp_path / "h200-assignment.json",)
    assert options["sets"][0] == "assignment"


def test_the_script_names_a_record_that_it_does_not_know(tmp_path):
    result, calls = run_script("files.sh", tmp_path, "h200", WHAT="laddder")
    assert (result.returncode, calls) == (2, [])
    assert "there is no record laddder" in result.stderr


PAGE = """
# The ladder
## warp
*Measured* 15.45 ms, 17.8
TFLOP/s. *Note:* 3 ms. *Measured* 4 ms.
| `warp` | 20.4 | twice |
| other: `flash` | 1 |
## flash
*Measured* 47.5 TFLOP/s, *measured* 3.
## naive
*Measured* 1 ms.
"""


def test_the_ladders_figures_are_those_of_the_record():
    facts = {"status": "ok", "tflops": 18.26}
    rows = [{"kernel": "warp", "median": 14.888, **facts}, {"kernel": "flash", "median": 6.4, **facts}]
    failed = {"kernel": "naive", "median": None, "tflops": None, "status": "failed"}
    changed = {"15.45": "14.89", "17.8": "18.3", "20.4": "14.9", "| 1 |": "| 6 |", "47.5": "18.3"}
    expected = PAGE
    for old, new in changed.items():
        expected = expected.replace(old, new)
    assert with_measured(PAGE, [*rows, failed]) == expected


def test_split_is_measured_without_warpgroups_beside_what_the_gpu_takes(monkeypatch, tmp_path):
    planned = []

    class Gpu(fakegpu.FakeGpu):
        def plan(self, kernel, shape, tile=None):
            plan = super().plan(kernel, shape, tile)
            planned.append((plan.variant, plan.macros.get("WARPGROUPS")))
            return plan

    monkeypatch.setattr(without_warpgroups, "Gpu", Gpu)
    monkeypatch.setattr(without_warpgroups, "GpuTimer", fakegpu.FakeTimer)
    case = SimpleNamespace(name="small", shape=Shape(2, 512, 64), seed=1)
    monkeypatch.setattr(without_warpgroups.suite, "select", lambda names: [case])
    output = tmp_path / "record.json"
    monkeypatch.setattr(sys, "argv", ["without_warpgroups", "--samples", "5", "--output", str(output)])
    assert without_warpgroups.main() == 0
    assert {(name, groups) for name in ("split", "split8") for groups in (0, 1)} <= {*planned}
    rows = json.loads(output.read_text())["rows"]
    assert [row["kernel"] for row in rows] == ["split-mma", "split8-mma", "split", "split8"]
    assert all(row["status"] == "ok" for row in rows)
    assert not {row["kernel"] for row in rows[:2]} & {*VARIANTS}, "nothing chooses a kernel by these times"

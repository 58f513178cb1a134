"""How records are made: by commands that hw4 understands, one after the other, and what happens where one fails."""

import importlib.util
import json
import os
import shlex
import subprocess
import sys
from types import SimpleNamespace

import fakegpu
import pytest
from helpers import HANGS, ROOT

from benchmarks.measure import __main__ as measure
from benchmarks.measure import decoding, ofarrays, without_warpgroups
from benchmarks.measure.recipes import RECIPES
from hw4cli.cli.bench import bench
from hw4cli.cli.gen import gen
from hw4cli.cli.profile import profile
from hw4cli.cli.tune import tune
from hw4cli.lab.arrays.named import workload
from hw4cli.plans.ladder import VARIANTS
from hw4cli.problem import suite
from hw4cli.problem.workload import Shape

COMMANDS = {"bench": bench, "tune": tune, "profile": profile, "gen": gen}


def asked(name):
    """The options of a record's command, as click understands them."""
    _, command, *words = shlex.split(RECIPES[name].command)
    params = COMMANDS[command].make_context(command, words).params
    return {**vars(params["what"]), **params}  # an option comes before a plain argument of its name


@pytest.mark.parametrize("name", RECIPES)
def test_every_record_is_made_by_a_command_that_there_is(name):
    recipe = RECIPES[name]
    for words in map(shlex.split, (*recipe.before, recipe.command)):
        if words[0] == "make":
            assert f"\n{words[1]}: " in (ROOT / "Makefile").read_text()
        elif words[0] == "hw4cli":
            COMMANDS[words[1]].make_context(words[1], words[2:])
        else:
            assert importlib.util.find_spec(words[0])
    if recipe.command.startswith(("hw4cli bench ", "hw4cli tune ", "hw4cli profile ")):
        what = asked(name)
        assert {*what["kernels"]} <= {*VARIANTS, *ARRAY_KERNELS, "all", "roofs"}
        assert (
            [workload(text).work for text in what["workloads"]]
            or what["cases"]
            or what["shapes"]
            or name in ("roofs", "calls")
        )


ARRAY_KERNELS = {"half", "half_mma", "half_split", "half_cores"}
ARRAY_KERNELS |= {f"backward_{design}" for design in ("once", "atomic", "wgmma", "mma")}


def test_records_of_files_have_the_cases_and_kernels_that_pages_tell_of():
    assert {"split", "split8", "exact", "flash"} == {*asked("split")["kernels"]}
    assert [case.name for case in suite.select([asked("flash")["cases"]])][-1] == "t30"
    assert asked("ladder")["kernels"] == ("all",)
    quick, full, flash = (asked(name) for name in ("tuned", "tuned-full", "tuned-flash"))
    assert all(options["no_keep"] for options in (quick, full, flash))
    assert (quick["quick"], quick["kernels"], len(suite.select([quick["cases"]]))) == (True, (), 30)
    assert (full["quick"], flash["kernels"], flash["cases"]) == (False, ("flash",), "t28")


def test_every_kernel_is_measured_over_n_with_and_without_a_mask_and_profiled():
    """Every one that has a record: a kernel of somebody's own has none yet."""
    record = json.loads((ROOT / "benchmarks/h200-ladder.json").read_text())
    kernels = {row["kernel"] for row in record["rows"]}
    over = {name: asked(name) for name in RECIPES if name.startswith(("sweep-", "rungs-d", "paper"))}
    for d in (32, 64):
        both = [options for name, options in over.items() if f"d{d}" in name or name == "paper"]
        assert {kernel for options in both for kernel in options["kernels"]} == kernels
    assert {shape.N for options in over.values() for shape in options["shapes"]} == {128 << n for n in range(9)}
    assert all(options["causal"] == name.endswith("-causal") for name, options in over.items())
    assert asked("energy")["sustained"] and asked("energy-half")["sustained"]
    together = asked("assignment")
    assert {*asked("rungs-profile")["kernels"]} == {*together["kernels"]} == kernels - {"float64"}
    assert (together["programs"], together["cases"]) == (("./student", "./student-padded"), "t20")
    assert RECIPES["assignment"].before == ("make students", "hw4cli gen t20 --no-answers")


def test_records_of_arrays_have_every_peer_and_each_shape_with_and_without_a_mask():
    arrays, mma, masks, shared, exactness = (asked(name) for name in ("arrays", "mma", "masks", "shared", "exactness"))
    cases = {
        name: [workload(text) for text in asked(name)["workloads"]] for name in ("mma", "masks", "shared", "exactness")
    }
    assert {"tilelang-causal", "lm16k", "t11-half", "t12-half"} <= {*arrays["workloads"]}
    assert arrays["kernels"] == () and arrays["peers"] == ("cudnn", "fa2") and arrays["sustained"]
    assert mma["kernels"] == ("half_mma",) and {case.work.d for case in cases["mma"]} == {32, 64, 128}
    assert masks["kernels"] == ("split", "exact", "flash")
    assert shared["kernels"] == () and {case.work.Nq for case in cases["shared"]} == {64, 128, 512, 8192}
    assert exactness["kernels"][:3] == ("half", "half_mma", "half_split") and exactness["peers"] == ("cudnn", "fa2")
    assert len({(case.work.dtype, case.work.d, case.distribution) for case in cases["exactness"]}) == 8
    works = [case.work for case in cases["masks"]]
    assert len(works) == 2 * len({(work.batch, work.Nq, work.d) for work in works})
    assert min(workload(text).work.Nk for text in decoding.WORKLOADS) > 4000
    for what, workloads in ofarrays.WORKLOADS.items():
        assert RECIPES[what].command == f"benchmarks.measure.ofarrays {what}"
        assert [workload(text) for text in workloads]


def test_records_of_gradients_have_both_passes_shared_heads_and_each_design():
    assert [asked(name)["direction"] for name in ("gradients", "training", "designs")] == ["bwd", "both", "bwd"]
    assert asked("designs")["kernels"] == ("backward_once", "backward_atomic", "backward_wgmma", "backward_mma")
    works = [workload(text).work for text in asked("gradients")["workloads"]]
    assert {work.heads // work.kv_heads for work in works} == {1, 4} and {work.d for work in works} == {64, 128}
    swept = [workload(text).work for text in asked("gradients-sweep")["workloads"]]
    assert len(swept) == 24 == len({(work.Nq, work.d, work.dtype, work.causal) for work in swept})


RECORDER = """#!{python}
import json, os, sys
with open({calls!r}, "a") as calls:
    calls.write(json.dumps([os.path.basename(sys.argv[0]), *sys.argv[1:]]) + "\\n")
sys.exit({statuses}.get(sys.argv[-1].rpartition("/")[2], 0))
"""


@pytest.fixture
def make(monkeypatch, tmp_path):
    """Calls `python -m benchmarks.measure` with a Python and a make that run nothing, and end with the status that is
    given for a record; the exit status, and their calls."""

    def run(*words, **statuses):
        calls = tmp_path / "calls"
        calls.write_text("")
        for program in ("python", "make"):
            path = tmp_path / program
            named = {name.replace("_", "-") + ".json": status for name, status in statuses.items()}
            path.write_text(RECORDER.format(python=sys.executable, calls=str(calls), statuses=named))
            path.chmod(0o755)
        monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
        monkeypatch.setattr(measure.sys, "argv", ["measure", "--folder", str(tmp_path / "made"), *words])
        with monkeypatch.context() as patch:
            patch.setattr(measure.sys, "executable", str(tmp_path / "python"))
            status = measure.main()
        return status, [json.loads(line) for line in calls.read_text().splitlines()]

    return run


def test_a_record_is_written_in_its_folder_behind_what_it_needs(make, tmp_path):
    status, calls = make("h200", "assignment", "split")
    assert status == 0
    assert calls[:2] == [["make", "students"], ["python", "-m", "hw4cli", "gen", "t20", "--no-answers"]]
    assert [call[-2:] for call in calls[2:]] == [
        ["--output", f"{tmp_path}/made/figures/h200-assignment.json"],
        ["--output", f"{tmp_path}/made/h200-split.json"],
    ]
    assert (tmp_path / "made/figures").is_dir()


def test_a_pattern_names_several_records_and_none_twice(make):
    _, calls = make("h200", "tuned*", "tuned", "sweep-d32*")
    assert [call[-1].rpartition("/")[2] for call in calls] == [
        *("h200.json", "h200-full.json", "h200-flash.json", "h200-half.json"),
        *("h200-sweep-d32.json", "h200-sweep-d32-causal.json"),
    ]


def test_a_record_that_fails_keeps_no_other_from_being_made_but_a_lack_of_the_machine_does(make):
    status, calls = make("h200", "split", "flash", h200_split=1)
    assert (status, len(calls)) == (1, 2)
    status, calls = make("h200", "split", "flash", h200_split=3)
    assert (status, len(calls)) == (3, 1)


def test_commands_are_printed_and_not_run(make, capsys, tmp_path):
    assert make("h100", "ladder", "--print") == (0, [])
    words = f"-m hw4cli bench all t28 --samples 6 --output {tmp_path}/made/h100-ladder.json"
    assert capsys.readouterr().out == f"{tmp_path}/python {words}\n"
    assert not (tmp_path / "made").exists()


def call(*words):
    env = {**os.environ, "CUDA_VISIBLE_DEVICES": ""}
    command = [sys.executable, "-m", "benchmarks.measure", *words]
    return subprocess.run(command, cwd=ROOT, env=env, capture_output=True, text=True, timeout=HANGS)


def test_wrong_arguments_make_nothing_and_are_named(tmp_path):
    for words, part in ((("h200", "laddder"), "there is no record laddder"), ((), "GPU"), (("h200",), "RECORD")):
        result = call("--folder", tmp_path / "made", *words)
        assert (result.returncode, result.stdout) == (2, "")
        assert part in result.stderr
    assert not (tmp_path / "made").exists()


def test_it_ends_where_the_machine_lacks_what_every_record_needs(tmp_path):
    result = call("--folder", tmp_path, "h100", "split", "flash")
    assert result.returncode == 3
    assert [line.partition(":")[0] for line in result.stderr.splitlines()] == ["hw4"]


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

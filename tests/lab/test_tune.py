"""`hw4 tune`: what cannot start is left out, what is wrong or slow drops out, what is surely faster is kept."""

import json
import os
import re
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import fakegpu
import pytest
from helpers import ROOT, csv_rows, hw4_env
from records import as_written
from slow import slow

import hw4cli.lab.tune
from benchmarks.pages.facts import tuned_source
from hw4cli.lab.candidates import PRESETS, FileSpace, TunedRow, sized
from hw4cli.lab.cases import FileCase
from hw4cli.lab.tune import finding, gain, tune
from hw4cli.plans.ladder import VARIANTS
from hw4cli.plans.plan import DEVICES
from hw4cli.problem.workload import Shape

CASE = FileCase("1x128x64", Shape(1, 128, 64), 0)
RUN = (
    "import sys, fakegpu, hw4cli.device.gpu, hw4cli.device.timing\n"
    "fakegpu.install(hw4cli.device.gpu), fakegpu.install(hw4cli.device.timing)\n"
    "from hw4cli.cli import run_command\n"
    "sys.exit(run_command(sys.argv[1:]))"
)


NO_MEMORY = (
    "import hw4cli.lab.tune as lab, hw4cli.errors\n"
    "prepare = lab.prepare\n"
    "def only_small(timer, some, case):\n"
    "    if case.work.N > 16: raise hw4cli.errors.MachineError('no memory')\n"
    "    return prepare(timer, some, case)\n"
    "lab.prepare = only_small\n"
)


@pytest.fixture
def hw4(hw4_in_process):
    return hw4_in_process


def on_a_fake_gpu(folder, *args, before=""):
    env = hw4_env(XDG_CACHE_HOME=str(folder))
    env["PYTHONPATH"] = os.pathsep.join([str(ROOT / "tests/support"), env["PYTHONPATH"]])
    command = [sys.executable, "-c", before + RUN, *map(str, args)]
    return subprocess.run(command, env=env, cwd=ROOT, capture_output=True, text=True, timeout=120)


def candidates(variants, shape, props, tiles=()):
    return FileSpace(variants, FileCase("", shape, 0), [sized(*tile) for tile in tiles]).candidates(props)


def rows_of(kernels, gpu=None, tiles=(), quick=False):
    space = FileSpace([VARIANTS[name] for name in kernels], CASE, [sized(*tile) for tile in tiles])
    return tune(fakegpu.FakeTimer(gpu or fakegpu.FakeGpu()), space, quick)


def test_every_tile_of_the_space_is_timed_dropped_or_refused_with_a_reason():
    rows = rows_of(["flash"])
    assert {row.tile for row in rows} == {*VARIANTS["flash"].space}
    status = {row.tile: row.status for row in rows}
    assert status[64, 16] == "dropped"
    assert [row.tile for row in rows if row.own] == [(128, 32)]
    refused = {row.tile: row.reason for row in rows if row.status == "refused"}
    assert refused == dict.fromkeys([(256, 16), (256, 32), (256, 64)], "does not compile: flash.cu:1: too large")
    assert rows[0].tile == (128, 64)
    assert rows[0].samples > next(row.samples for row in rows if row.status == "dropped")


def test_the_kernels_own_tile_is_timed_to_the_end_however_slow_it_is(monkeypatch):
    monkeypatch.setattr(hw4cli.lab.tune, "HOPELESS", 1.0)
    rows = rows_of(["flash"])
    timed = {row.tile: (row.status, row.samples) for row in rows if row.status != "refused"}
    best, own = rows[0], next(row for row in rows if row.own)
    assert own.median > best.median
    assert timed.pop(own.tile) == timed.pop(best.tile) == ("ok", best.samples)
    assert {status for status, _ in timed.values()} == {"dropped"}


@slow
def test_the_gain_is_said_and_what_is_surely_faster_is_kept():
    rows = rows_of(["split", "exact", "flash"])
    kept = finding(rows)
    assert kept.kernels == ("split", "exact", "flash")
    assert kept.tiles == {"flash": {"BR": 128, "BC": 64}}
    assert re.fullmatch(
        r"fastest: flash 128x64, 1\.3\d+ ms, 1\d\.\d% faster than flash's own 128x32", gain(rows_of(["flash"]))
    )


def row(kernel, tile, median, own=False, spread=0.01):
    return TunedRow(kernel, tile, own, "ok", "", median, median * (1 - spread), median * (1 + spread), 10)


def test_a_tile_whose_interval_meets_that_of_the_kernels_own_is_not_kept():
    rows = [row("flash", (128, 64), 0.99), row("flash", (128, 32), 1.0, own=True)]
    assert finding(rows).tiles == {}
    assert gain(rows) == "fastest: flash's own 128x32, 1 ms; no other tile is surely faster"
    assert finding([row("flash", (128, 64), 0.9), rows[1]]).tiles == {"flash": {"BR": 128, "BC": 64}}


def test_the_kernel_that_auto_takes_stays_first_unless_another_is_surely_faster():
    rows = [row("split", (192, 64), 0.99, own=True), replace(row("split8", (192, 64), 1.0, own=True), low=0.97)]
    assert finding(rows).kernels == ("split", "split8")
    assert finding(rows, first="split8").kernels == ("split8", "split")
    assert finding([replace(rows[0], high=0.96), rows[1]], first="split8").kernels == ("split", "split8")
    assert finding([replace(rows[0], high=0.96), rows[1]], 0.03, first="split8").kernels == ("split8", "split")
    assert finding(rows[:1], first="split8").kernels == ("split",)


def test_knobs_of_the_own_tile_are_tried_one_at_a_time_and_kept_with_it():
    chosen = [*candidates([VARIANTS["flash"], VARIANTS["split"]], Shape(4, 4096, 64), DEVICES[90])]
    knobs = {one.name for one in chosen if one.knobs}
    assert knobs >= {"flash 128x32 BLOCKS=2", "split 192x64 STAGES=2", "split 192x64 STAGES=3"}
    own = {one.name.partition(" ")[0]: one for one in chosen if one.own}
    assert all(VARIANTS[one.kernel].plan(Shape(4, 4096, 64), DEVICES[90], one.sizes) for one in own.values())
    (few,) = (one for one in chosen if one.name == "split 192x64 STAGES=2")
    plan = VARIANTS["split"].plan(Shape(4, 4096, 64), DEVICES[90], few.sizes)
    assert plan.macros["STAGES"] == 2
    assert plan.launches[plan.main].shared < VARIANTS["split"].plan(Shape(4, 4096, 64), DEVICES[90]).launches[1].shared
    rows = [row("flash", (128, 32), 1.0, own=True), replace(row("flash", (128, 32), 0.5), knobs=few.knobs)]
    assert finding(sorted(rows, key=lambda one: one.median)).tiles == {"flash": {"BR": 128, "BC": 32, "STAGES": 2}}


def test_in_blocks_that_convert_there_are_no_stages_to_choose():
    chosen = candidates([VARIANTS["split"]], Shape(9600, 128, 64), DEVICES[90])
    assert [one for one in chosen if one.knobs] == []


def test_a_kernel_whose_bound_depends_on_the_tile_is_never_kept():
    assert finding([row("float4", (128, 32), 0.1, own=True), row("flash", (128, 32), 1.0, own=True)]).kernels == (
        "flash",
    )


def test_a_case_is_named_as_it_is_to_explain_and_profile(hw4, tmp_path):
    result = hw4("tune", "smallbr", "t01", "--gpu", "9.0", "--tile", "4x32", "-o", tmp_path / "a.csv")
    assert result.returncode == 0, result.stderr
    assert (tmp_path / "a.csv").read_text().splitlines()[1].startswith("t01,smallbr,4x32,")


def test_a_wrong_candidate_is_refused_and_not_timed():
    rows = rows_of(["flash"], fakegpu.FakeGpu(fakegpu.wrong), [(64, 32)])
    assert {row.status for row in rows} == {"refused"}
    assert all("elements are off" in row.reason for row in rows)
    assert gain(rows) == "no candidate could be timed"


def test_quick_takes_five_samples_of_each():
    assert {row.samples for row in rows_of(["flash", "split"], quick=True) if row.median} == {5}


def test_the_command_keeps_what_it_finds_for_runs_to_go_by(tmp_path):
    result = on_a_fake_gpu(tmp_path, "tune", "1,16,8", "--output", tmp_path / "a.json")
    assert result.returncode == 0, result.stderr
    assert "split 128x128" in result.stdout
    assert "flash 256x16 and 2 others: does not compile: flash.cu:1: too large" in result.stdout
    assert re.search(r"^fastest: split's own 128x128, 0\.2\d+ ms; no other tile is surely faster$", result.stdout, re.M)
    (kept,) = Path(tmp_path, "hw4/tuned").glob("*.json")
    (entry,) = json.loads(kept.read_text())["workloads"].values()
    assert entry["kernels"] == ["split", "exact", "flash"]
    assert entry["tiles"] == {"flash": {"BR": 128, "BC": 64}}
    record = as_written((tmp_path / "a.json").read_text())
    (workload,) = record["workloads"]
    assert workload["shape"] == [1, 16, 8]
    assert record["machine"]["gpu"] == "no GPU"
    assert re.fullmatch(r"\d{4}-\d\d-\d\d", record["date"])


def test_of_tuning_that_is_cut_off_the_file_has_what_came_to_its_end(tmp_path):
    file = tmp_path / "a.json"
    options = ("flash", "--quick", "1,16,8", "1,32,8", "--output", file)
    result = on_a_fake_gpu(tmp_path, "tune", *options, before=NO_MEMORY)
    assert (result.returncode, result.stderr.splitlines()[-1]) == (3, "hw4: no memory")
    assert [one["case"] for one in json.loads(file.read_text())["workloads"]] == ["1x16x8"]


def test_a_committed_tile_is_faster_by_more_than_runs_differ():
    def row(tile, median, own=False, knobs=(), kernel="split"):
        return TunedRow(kernel, tile, own, "ok", "", median, median, median, 5, 128, 1, 0.5, knobs).record()

    def tuned(*rows):
        flash = row((128, 32), 5.0, own=True, kernel="flash")  # a record of one kernel alone does not count
        one = {"case": "t28", "shape": [4, 16384, 64], "causal": False, "rows": [*rows, flash]}
        machine = {"gpu": "NVIDIA H200", "compute_capability": "9.0"}
        record = {"date": "2026-11-22", "machine": machine, "workloads": [one]}
        scope = {}
        exec(tuned_source([record], 0.03), scope)
        return scope["TUNED"]["NVIDIA H200"]["N=16384 d=64 rows=2^16"]

    own = row((192, 64), 1.0, own=True)
    assert tuned(row((128, 64), 0.98), own) == (("split", "flash"), {}, "2026-11-22")
    faster = row((192, 64), 0.95, knobs=(("STAGES", 4),))
    assert tuned(faster, own)[1] == {"split": {"BR": 192, "BC": 64, "STAGES": 4}}


def test_what_was_tuned_is_written_as_the_formatter_has_it_however_long_a_line_gets():
    def rows(kernel, faster):
        own = TunedRow(kernel, (192, 64), True, "ok", "", 1.0, 1.0, 1.0, 5)
        return [replace(own, tile=(128, 64), own=False, median=faster, low=faster, high=faster).record(), own.record()]

    def source(faster):
        found = [row for kernel in ("split8", "split", "exact", "flash") for row in rows(kernel, faster)]
        one = {"shape": [4, 16384, 64], "causal": True, "rows": found}
        machine = {"gpu": "NVIDIA H200", "compute_capability": "9.0"}
        return tuned_source([{"date": "2026-11-22", "machine": machine, "workloads": [one]}], 0.03)

    for text in (source(1.0), source(0.9)):
        command = [sys.executable, "-m", "ruff", "format", "--diff", "--config", ROOT / "pyproject.toml", "-"]
        result = subprocess.run(command, input=text, capture_output=True, text=True)
        assert (result.returncode, result.stdout) == (0, ""), result.stdout + result.stderr
    assert source(1.0).count("\n") < source(0.9).count("\n")


@pytest.mark.parametrize("options", [["flash"], ["--no-keep"], ["float4"]])
def test_what_does_not_compare_all_kernels_of_auto_is_not_kept(tmp_path, options):
    result = on_a_fake_gpu(tmp_path, "tune", *options, "--quick", "1,16,8")
    assert result.returncode == 0, result.stderr
    assert not Path(tmp_path, "hw4").exists()


def test_without_a_gpu_what_could_start_is_listed_and_what_could_not_with_the_reason(hw4, tmp_path):
    options = ("smallbr", "1,128,64", "--gpu", "9.0")
    assert hw4("tune", *options, "--tile", "4x32", "--tile", "64x32", "-o", tmp_path / "a.csv").returncode == 0
    rows = csv_rows(tmp_path / "a.csv")
    assert [(row["tile"], row["status"]) for row in rows] == [("4x32", "fits"), ("64x32", "refused")]
    assert "would need 2048 threads a block" in rows[1]["reason"]
    assert int(rows[0]["registers"]) > 0


@slow
def test_all_tiles_of_the_counter_example_compile(hw4, tmp_path):
    assert hw4("tune", "smallbr", "1,128,64", "--gpu", "9.0", "-o", tmp_path / "a.csv").returncode == 0
    rows = csv_rows(tmp_path / "a.csv")
    assert {(row["tile"], row["status"]) for row in rows} == {(f"{BR}x32", "fits") for BR in (1, 2, 4, 8, 16, 32)}


def test_a_preset_has_the_tiles_of_its_document(hw4):
    own = [one.tile for one in candidates([VARIANTS["float4"]], CASE.work, DEVICES[90], PRESETS["report"])]
    assert sorted(own) == sorted(PRESETS["report"])
    assert {len(PRESETS["report"]), len(PRESETS["triton"]), len(PRESETS["tilelang"])} == {7, 4, 1}


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["flash"], "name a case"),
        (["t01", "--tile", "big"], "is not a tile"),
        (["t01", "--tile", "64x32", "--preset", "report"], "give one of them"),
    ],
)
def test_a_wrong_request_is_refused_in_a_sentence(hw4, arguments, words):
    result = hw4("tune", *arguments)
    assert (result.returncode, len(result.stderr.splitlines())) == (2, 1)
    assert words in result.stderr


@pytest.mark.parametrize(("shape", "names"), [(Shape(1, 8192, 64), 2), (Shape(1, 128, 64), 1), (Shape(1, 8192, 32), 1)])
def test_split8_is_tried_beside_split_where_it_is_another_kernel(shape, names):
    both = [VARIANTS["split"], VARIANTS["split8"]]
    assert len({one.kernel for one in candidates(both, shape, DEVICES[90])}) == names
    assert {one.kernel for one in candidates(both[1:], shape, DEVICES[90])} == {"split8"}


def candidates_of(hw4, *words):
    result = hw4("tune", *words, "--gpu", "H100", "--json")
    assert result.returncode == 0, result.stderr
    return json.loads(result.stdout)["workloads"][0]["rows"]


@slow
def test_the_tutorials_five_configurations_are_those_of_half_mma_where_a_warp_has_16_rows(hw4_in_process):
    rows = candidates_of(hw4_in_process, "half_mma", "lm16k", "--preset", "triton")
    fitting = {(row["tile"], row["knobs"].split()[0]) for row in rows if row["status"] == "fits" and not row["own"]}
    assert fitting == {("64x64", "warps=4"), ("128x64", "warps=8"), ("128x128", "warps=8")}
    refused = {(row["tile"], row["knobs"]): row["reason"] for row in rows if row["status"] == "refused"}
    assert set(refused) == {("64x64", "warps=8"), ("64x128", "warps=8")}
    assert all("16 rows a warp" in reason for reason in refused.values())


@slow
def test_the_articles_configuration_is_one_of_halfs_with_its_two_stages(hw4_in_process):
    rows = candidates_of(hw4_in_process, "half", "tilelang", "--preset", "tilelang")
    (one,) = [row for row in rows if not row["own"]]
    assert (one["tile"], one["status"]) == ("128x128", "fits")
    assert one["knobs"].split()[:2] == ["groups=2", "stages=2"]


def test_a_preset_of_float32_is_refused_on_a_workload(hw4_in_process):
    result = hw4_in_process("tune", "half", "lm16k", "--preset", "report", "--gpu", "H100")
    assert (result.returncode, "is of float32" in result.stderr) == (2, True)


def test_a_tile_may_have_another_value_of_a_knob(hw4, tmp_path):
    tiles = ("--tile", "32x32", "--tile", "32x32,WARP_ROWS=1", "--tile", "64x32,WARP_ROWS=1")
    result = hw4("tune", "warp", "t28", "--gpu", "9.0", *tiles, "-o", tmp_path / "a.json")
    assert result.returncode == 0, result.stderr
    assert "warp 64x32 WARP_ROWS=1: " in result.stdout
    assert "would need 2048 threads a block" in " ".join(result.stdout.split())
    (workload,) = as_written((tmp_path / "a.json").read_text())["workloads"]
    assert ("32x32", "WARP_ROWS=1", "fits") in {(row["tile"], row["knobs"], row["status"]) for row in workload["rows"]}


@pytest.mark.parametrize(
    ("tile", "words"),
    [
        ("32x32,ROWS=1", "warp 32x32 ROWS=1: has no ROWS that could be another"),
        ("32x32,WARP_ROWS", "is not a tile"),
        ("32x32,WARP_ROWS=", "is not a tile"),
    ],
)
def test_a_knob_that_is_none_is_named(hw4, tile, words):
    result = hw4("tune", "warp", "t28", "--gpu", "9.0", "--tile", tile)
    assert words in " ".join((result.stdout + result.stderr).split())

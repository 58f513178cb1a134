"""The models of all rungs, against their profiles on an H200."""

import json

import pytest
from helpers import ROOT
from recordings import counted_models

from hw4cli.lab.measure.gpus import model_named
from hw4cli.lab.measure.metrics import SETS
from hw4cli.lab.measure.model import launch_models
from hw4cli.plans.plan import DEVICES
from hw4cli.plans.variants import VARIANTS
from hw4cli.problem import suite
from hw4cli.problem.shape import Shape

PROFILE = json.loads((ROOT / "benchmarks/figures/h200-rungs-profile.json").read_text())  # hw4 profile
SHAPE, H200 = Shape(16, 4096, 64), model_named("H200").props
COUNTED = {
    launch["kernel"].removesuffix("_kernel"): {metric["name"]: metric["value"] for metric in launch["metrics"]}
    for launch in PROFILE["launches"]
}
RUNGS = [name for name in VARIANTS if name in COUNTED]


def model_of(name):
    plan = VARIANTS[name].plan(SHAPE, DEVICES[90])
    return launch_models(plan, SHAPE, DEVICES[90])[plan.main]


def test_the_profile_has_every_rung_but_split8_and_those_that_are_no_kernel_of_one_launch():
    assert {*VARIANTS} - {*RUNGS} - {"split8"} == {"naive", "float64"}


@pytest.mark.parametrize("name", [name for name in RUNGS if name not in ("halfwarp_local", "smallbr")])
def test_a_rung_asked_of_the_l2_cache_what_its_model_has(name):
    model, counted = model_of(name), COUNTED[name]
    assert 1e6 * counted["l2_to_l1"] == pytest.approx(model.l2[0], rel=0.05)
    if name != "float4":
        assert 1e6 * counted["l1_to_l2"] == pytest.approx(model.l2[1], rel=0.02)


def test_arrays_in_local_memory_are_written_for_every_key():
    """Q, O, m and l of a row, of which half a warp has 112 bytes a lane."""
    assert COUNTED["halfwarp_local"]["l1_to_l2"] > 10_000 * COUNTED["halfwarp"]["l1_to_l2"]
    assert COUNTED["halfwarp_local"]["dram_read"] < 1.05 * COUNTED["halfwarp"]["dram_read"]


def test_the_papers_loops_move_several_times_as_much_through_dram_and_the_cache_as_those_turned_round():
    """Of O, l and m, which have 33 MB, the L2 cache keeps a different part each time: 314, 476 and 674 MB were read."""
    turned = COUNTED["shared"]
    assert COUNTED["paper"]["dram_read"] > 5 * turned["dram_read"]
    assert COUNTED["paper"]["l1_to_l2"] > 100 * turned["l1_to_l2"]


ON_T20 = json.loads((ROOT / "benchmarks/figures/h200-assignment.json").read_text())["launches"]
SIX = {metric.name for metric in SETS["assignment"]}
T20 = suite.cases()["t20"].shape
# Whose blocks share tiles in a multiprocessor's own cache, and what the models leave out: docs/explain.md.
APART = ("naive", "global", "rowthread", "smallbr", "halfwarp_strided", "halfwarp_local")


def test_one_table_has_the_assignments_metrics_of_every_rung_and_of_a_homework():
    found = {
        (one["program"], one["kernel"]): {x["name"] for x in one["metrics"] if x["value"] is not None} for one in ON_T20
    }
    assert all(known >= SIX for known in found.values())
    symbols = {launch.symbol for name in VARIANTS for launch in VARIANTS[name].plan(T20, H200).launches}
    assert symbols - {kernel for program, kernel in found if not program} == {"float64"}
    assert {key for key in found if key[0]} == {("./student", "attention<64>"), ("./student-padded", "attention<64>")}


@pytest.mark.parametrize("name", [name for name in VARIANTS if name not in (*APART, "float64")])
def test_what_a_rung_moves_on_t20_is_the_models_within_5_percent(name):
    plan = VARIANTS[name].plan(T20, H200)
    counted = {one["kernel"]: {x["name"]: x["value"] for x in one["metrics"]} for one in ON_T20 if not one["program"]}
    for model in counted_models(plan, T20):
        seen = counted[model.symbol]
        assert 1e6 * seen["dram_read"] == pytest.approx(model.dram[0], rel=0.05), model.symbol
        assert 1e6 * seen["l2_to_l1"] == pytest.approx(model.l2[0], rel=0.05), model.symbol

"""The models of all rungs, against their profile on an H200."""

import json

import pytest
from helpers import ROOT

from hw4cli.compute.plan import DEVICES
from hw4cli.compute.variants import VARIANTS
from hw4cli.measure.model import launch_models
from hw4cli.problem.shape import Shape

PROFILE = json.loads((ROOT / "benchmarks/figures/h200-rungs-profile.json").read_text())  # hw4 profile
SHAPE = Shape(16, 4096, 64)
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

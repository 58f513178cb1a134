"""Mutations of the project's own kernels, with which the emulator's recall is measured (docs/emulator.md).

`mutations.json` has of each the kernel file, a text that it has once, what stands in its place, and, where not every
kernel shows it, one that does ("by"). They were drawn by a seed, of operators such as a dropped wait, a bound, an
index (the last 40 by benchmarks/measure/mutations.py); some are of the kinds that were once missed. They follow the
kernels when these change.
"""

import json
from pathlib import Path

import pytest
from slow import few, slow

from benchmarks.measure.mutations import KINDS, Target, find, sites, targets
from hw4cli.emulator.build import RACE
from hw4cli.emulator.check import CAUSAL_SOME, EQUAL, RANDOM_DATA, SCHEDULES, SOME, WHOLE, check_kernel
from hw4cli.plans.registry import VARIANTS
from hw4cli.problem.workload import Workload
from hw4cli.resources import data_path

MUTATIONS = json.loads(Path(__file__).with_name("mutations.json").read_text(encoding="utf-8"))
TAIL = (Workload.one_head(1, 131, 32),)
# Of those in kernels that compile fast, which trial shows them.
SHOWN = {
    "flash.cu": ("flash", (*TAIL, *WHOLE[:1])),
    "warp.cu": ("warp", TAIL),
    "shared.cu": ("shared", TAIL),
    "smallbr.cu": ("smallbr", TAIL),
    "paper.cu": ("paper", TAIL),
    "float4.cu": ("float4", TAIL),
    "block_softmax.cuh": ("shared", TAIL),
    "mask.cuh": ("warp", (*SOME, *CAUSAL_SOME)),
}
RUN = [one for one in MUTATIONS if one["file"] in SHOWN and one["found"] and one["kind"] != "extremum"]


def test_every_mutation_is_one_of_the_kernels_as_they_are():
    assert len(MUTATIONS) >= 170
    for one in MUTATIONS:
        assert data_path(f"kernels/{one['file']}").read_text(encoding="utf-8").count(one["old"]) == 1, one
        assert one["new"] != one["old"]
        assert one["found"] or one["why"]
        assert one.get("by", "warp") in VARIANTS


@pytest.mark.parametrize("mutation", few(RUN, 1), ids=lambda one: f"{one['file']} {one['kind']}")
def test_a_mutation_is_found(mutation, tmp_path):
    kernel, shapes = SHOWN[mutation["file"]]
    kernel = mutation.get("by", kernel)  # the one that calls the function
    for name in {f"{kernel}.cu", mutation["file"]}:
        text = data_path(f"kernels/{name}").read_text(encoding="utf-8")
        changed = text.replace(mutation["old"], mutation["new"]) if name == mutation["file"] else text
        (tmp_path / name).write_text(changed, encoding="utf-8")
    source = tmp_path / f"{kernel}.cu"
    how = {"shapes": shapes, "data": [RANDOM_DATA, EQUAL], "builds": [RACE]}
    # The first order of threads shows most.
    assert any(check_kernel(VARIANTS[kernel], source, orders=orders, **how) for orders in (SCHEDULES[:1], SCHEDULES))


def test_changes_are_drawn_of_every_kind_at_places_that_a_file_has_once():
    text = data_path("kernels/flash.cu").read_text(encoding="utf-8")
    drawn = [*sites("flash.cu")]
    assert {kind for kind, _, _ in drawn} <= {*KINDS}
    assert len({kind for kind, _, _ in drawn}) >= 6
    assert all(text.count(old) == 1 and new != old for _, old, new in drawn)
    assert {Target("flash", 80), Target("flash", 90)} == {*targets("stream.cuh")}


@slow
def test_a_change_is_made_in_a_copy_of_the_tree_and_what_it_breaks_is_told():
    old = "__syncwarp();  // a warp reads back only its own 32 rows of P"
    before = data_path("kernels/flash.cu").read_text(encoding="utf-8")
    assert "race: block 0" in find({"kind": "synchronisation", "file": "flash.cu", "old": old, "new": ";"}, few=True)
    assert data_path("kernels/flash.cu").read_text(encoding="utf-8") == before

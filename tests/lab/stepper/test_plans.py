"""The stepper's data: every kernel's plan, what its blocks hold, and the steps of their work."""

import json
import re
from dataclasses import replace

import numpy as np
import pytest
from ownership import owners

from hw4cli.errors import MachineError
from hw4cli.lab.stepper.plans import data
from hw4cli.lab.stepper.work import work
from hw4cli.plans.ladder import VARIANTS
from hw4cli.plans.plan import DEVICES, SECTION, UNITS
from hw4cli.problem.workload import Shape
from hw4cli.resources import data_path

SHAPES = [Shape(2, N, d) for N in (100, 400, 1000, 8192) for d in (4, 32, 36, 64, 96, 128)]


def plans():
    """Every plan that can start, with its device."""
    for variant in (variant for name, variant in VARIANTS.items() if variant.block.walk):
        for props in DEVICES.values():
            for shape in SHAPES:
                try:
                    yield variant, props, shape, variant.plan(shape, props)
                except MachineError:
                    continue


def test_batches_take_turns_as_in_the_kernels():
    assert f"SECTION = {SECTION};" in data_path("kernels/schedule.cuh").read_text()


def test_the_parts_of_shared_memory_add_up_to_what_a_block_is_launched_with():
    for variant, _, shape, plan in plans():
        parts = variant.regions(shape.d, plan.macros)
        assert sum(parts.values()) == plan.launches[plan.main].shared, (variant.name, shape)
        assert all(size >= 0 for size in parts.values())


def test_every_element_has_a_thread_and_every_thread_as_many_elements():
    seen = set()
    for variant, _, shape, plan in plans():
        m = plan.macros
        key = variant.name, m["BR"], m["BC"], m["THREADS"], shape.d
        if key in seen:
            continue
        seen.add(key)
        scores, outputs = variant.block.owns(m)
        of_scores = owners(scores, m["BR"], m["BC"], m["THREADS"])
        workers = m["THREADS"] - (128 if m.get("GROUPS") else 0)  # the others copy
        counts = np.bincount(of_scores.ravel(), minlength=workers)
        copies = getattr(scores, "copies", 1)
        assert counts[::copies].min() == counts.max() == m["BR"] * m["BC"] * copies // workers, key
        of_outputs = owners(outputs, m["BR"], shape.d, m["THREADS"])
        assert 0 <= of_outputs.min() <= of_outputs.max() < m["THREADS"], key
    assert {name for name, *_ in seen} >= {"naive", "shared", "flash", "split", "exact", "float64"}


def test_every_move_goes_to_a_part_that_there_is_and_every_phase_reads_one():
    for variant, props, shape, plan in plans():
        parts = {*variant.regions(shape.d, plan.macros), "registers", "device", "stage"}
        for part in work(variant.block, plan.macros, props.cc).parts:
            for phase in (*part.phases, *part.inner):
                assert {move.to for move in phase.moves} | {*phase.reads, *phase.come} <= parts, (variant.name, phase)
                assert all(unit in UNITS for move in phase.moves for unit in move.amount)


def test_so_many_tiles_are_asked_for_ahead_as_the_ring_does():
    text = data_path("kernels/split_mma.cuh").read_text()
    found = re.search(r"LEAD = SUBS > 1 \? STAGES - (\d) : STAGES - (\d);", text)
    several, one = map(int, found.groups())
    seen = set()
    for variant, props, _, plan in plans():
        m = plan.macros
        if variant.name in ("split", "split8", "exact") and not m["INBLOCK"]:
            begin, loop, _ = work(variant.block, m, props.cc).parts
            lead = m["STAGES"] - (several if m["BC"] > m["SUB"] or m.get("GROUPS") else one)
            assert [move.ahead for move in begin.phases[1].moves] == list(range(lead))
            assert loop.phases[0].moves[0].ahead == lead
            seen.add(lead)
    assert len(seen) > 1


def test_data_names_each_plan_and_says_why_a_kernel_cannot_start():
    shapes = {"a": Shape(4, 16384, 64), "b": Shape(1, 1000, 128)}
    found = data(shapes)
    assert json.loads(json.dumps(found))["cases"] == [["a", 4, 16384, 64], ["b", 1, 1000, 128]]
    for name, rows in zip(found["kernels"], found["plans"], strict=True):
        for props, row in zip(DEVICES.values(), rows, strict=True):
            both = [replace(shape, causal=causal) for shape in shapes.values() for causal in (False, True)]
            for shape, entry in zip(both, [one for pair in row for one in pair], strict=True):
                if isinstance(entry, str):
                    with pytest.raises(MachineError, match=re.escape(entry)):
                        VARIANTS[name].plan(shape, props)
                    continue
                plan, (number, splits, grids, *_) = VARIANTS[name].plan(shape, props), entry
                geometry = found["geometries"][number]
                launches = [[launch.symbol, launch.block, launch.shared] for launch in plan.launches]
                assert (splits, grids, geometry["launches"]) == (plan.splits, [x.grid for x in plan.launches], launches)
                assert [geometry[key] for key in ("BR", "BC")] == [plan.macros[key] for key in ("BR", "BC")]

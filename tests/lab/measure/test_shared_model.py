"""The accesses of shared memory of the model, without bank conflicts, against what profilers counted."""

from dataclasses import replace

import pytest
from recordings import counted_on_an_h200, models
from slow import slow

from hw4cli.lab.measure.model import launch_models
from hw4cli.plans.ladder import VARIANTS
from hw4cli.plans.plan import DEVICES
from hw4cli.problem.workload import Shape

# Kernels whose lanes meet in banks, and how many times more accesses were counted: rows of Q that lie whole banks
# apart; rows of K without padding; numbers that lie 16 bytes apart, one by one; rows that begin within a warp.
CONFLICTS = {"float4": 1.33, "halfwarp_unpadded": 4.45, "halfwarp_local": 2.14, "paper": 1.19}
BY_THREADS = ("flash", "half_mma", "half_split", "half_cores", "backward", "backward_mma")
BY_WARPGROUPS = ("split", "split8", "backward_once", "backward_wgmma")


@slow
def test_rungs_access_shared_memory_as_often_as_the_model_has_it_but_for_bank_conflicts():
    conflicts, seen = {**CONFLICTS, "halfwarp_local d=32": 1.06}, set()
    for line, model in counted_on_an_h200(*(name for name in VARIANTS if name not in ("flash", "split", "split8"))):
        if model.shared:
            d = int(line["workload"].rpartition(",")[2])
            seen |= {(line["kernel"], d)}
            factor = conflicts.get(f"{line['kernel']} d={d}", conflicts.get(line["kernel"], 1))
            assert 1e6 * float(line["shared_traffic"]) == pytest.approx(factor * model.shared, rel=0.05), line
    assert len(seen) > 20


@slow
def test_kernels_whose_threads_multiply_read_from_shared_memory_what_the_model_has():
    seen = set()
    for line, model in counted_on_an_h200(*BY_THREADS):
        counted = 1e6 * float(line["shared_traffic"])
        if model.tiles:
            seen.add(line["launch"])
            assert 0.999 < counted / model.shared < (1.003 if line["kernel"].endswith("_mma") else 1.08), line
    assert {"flash", "half_mma", "half_split", "half_cores", "backward_dq", "backward_dkdv", "backward_mma_dq"} <= seen


@slow
def test_beside_products_of_warpgroups_threads_access_no_less_than_the_model_has_and_the_tensor_cores_more():
    """Accesses are then counted again, up to four times; a launch whose threads have none counts none."""
    for line, model in counted_on_an_h200(*BY_WARPGROUPS):
        counted = 1e6 * float(line["shared_traffic"])
        if model.operands:
            assert model.shared <= counted <= 4 * model.shared, line
            assert model.shared < model.operands


def sums_of(stages, every, each):
    """Bytes that a thread stores and loads by the loop of kernels/split_mma.cuh, `each` at a time."""
    moved = 0
    for stage in range(stages):
        if (stage + 1) % every == 0 and stage + 1 < stages:
            moved += each * (2 if stage >= every else 1)
    return moved + each * (stages > every)


@pytest.mark.parametrize("N", [513, 1024, 1025, 5000, 8192])
def test_sums_of_split8_by_warps_pass_through_shared_memory_instead_of_the_l2_cache(N):
    shape = Shape(2, N, 64)
    plan = replace(VARIANTS["split8"], splits=lambda *_: 1).plan(shape, DEVICES[80])
    m = plan.macros
    assert (m["SHARED_SUMS"], m["WARPGROUPS"]) == (1, 0)
    inside = launch_models(plan, shape, DEVICES[80])[plan.main]
    without = replace(plan, macros={**m, "SHARED_SUMS": 0})
    outside = launch_models(without, shape, DEVICES[80])[plan.main]
    each = m["BR"] * 32 // (16 * m["THREADS"]) * (m["WIDTH"] // 8 + 1) * 16
    moved = sums_of(-(-N // m["BC"]), m["PROMOTION"] // m["BC"], each)
    blocks = plan.launches[plan.main].grid
    assert inside.shared - outside.shared == blocks * m["THREADS"] * moved
    assert inside.l2 == (outside.l2[0], 4 * (64 * shape.B * N))
    promotions = (-(-N // m["BC"]) - 1) * m["BC"] // m["PROMOTION"]
    assert outside.l2[1] - inside.l2[1] == 4 * (64 + 2) * shape.B * N * promotions


def test_every_kernel_on_nvidias_gpus_has_its_accesses_of_shared_memory_in_the_model():
    without = set()
    for name, variant in VARIANTS.items():
        for props in DEVICES.values():
            for shape in (Shape(3, 777, 36), Shape(1, 300, 128, causal=True), Shape(2, 1024, 32)):
                if props.cc >= variant.least_cc:
                    plan = variant.plan(shape, props)
                    model = launch_models(plan, shape, props)[plan.main]
                    without |= {name} if model.shared is None else set()
    assert without == set()


def test_a_causal_kernel_accesses_shared_memory_half_as_often():
    for name in ("warp", "float4", "flash", "paper"):
        full, causal = (models(name, Shape(1, 8192, 64, causal=mask)) for mask in (False, True))
        for symbol in full:
            if full[symbol].shared:
                assert causal[symbol].shared / full[symbol].shared == pytest.approx(0.5, abs=0.02), name

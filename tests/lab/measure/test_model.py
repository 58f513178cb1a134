"""The model of what a kernel moves and computes, against counting."""

import re
from dataclasses import replace

import pytest
from recordings import H200, models

from hw4cli.lab.measure.gpus import EXP2, TENSOR
from hw4cli.lab.measure.model import launch_models
from hw4cli.plans.ladder import VARIANTS
from hw4cli.plans.plan import DEVICES
from hw4cli.plans.tensorwork import POLYNOMIAL_FLOPS
from hw4cli.plans.work import tasks_of
from hw4cli.problem.workload import Shape
from hw4cli.resources import kernel_source


@pytest.mark.parametrize("kernel", ["shared", "flash", "split"])
@pytest.mark.parametrize("N", [128, 1000, 8192])
def test_causal_blocks_visit_each_key_that_a_row_sees_and_less_than_a_tile_more(kernel, N):
    shape = Shape(1, N, 64, causal=True)
    plan = VARIANTS[kernel].plan(shape, H200)
    blocks, BR = tasks_of(plan, shape), plan.macros["BR"]
    for place, end in enumerate(min(row + BR, N) for row in range(0, N, BR)):
        assert blocks.keys[place * plan.splits : (place + 1) * plan.splits].sum() == end


@pytest.mark.parametrize("splits", [1, 3, 8])
def test_splits_share_all_keys(splits):
    shape = Shape(1, 1000, 64)
    plan = VARIANTS["flash"].plan(shape, H200)
    divided = tasks_of(type(plan)(plan.variant, plan.macros, plan.launches, plan.layout, splits), shape)
    assert divided.keys.reshape(-1, splits).sum(axis=1).tolist() == [1000] * (len(divided.keys) // splits)


def test_a_causal_kernel_computes_about_half_of_the_tiles_of_a_long_sequence_and_all_of_a_single_tile():
    full, causal = (models("flash", Shape(1, 16384, 64, causal=mask))["flash"] for mask in (False, True))
    assert causal.tiles / full.tiles == pytest.approx(0.5, abs=0.01)
    assert causal.ffma_flops / full.ffma_flops == pytest.approx(0.5, abs=0.01)
    alone = [models("split", Shape(4, 128, 64, causal=mask))["split"].tiles for mask in (False, True)]
    assert alone[0] == alone[1]


def test_flops_are_those_of_the_definition_where_tiles_are_whole_and_tensor_cores_multiply_as_often_as_they_must():
    shape = Shape(4, 16384, 64)
    assert models("flash", shape)["flash"].ffma_flops == shape.flops
    assert models("split", Shape(4, 192 * 64, 64))["split"].tensor_flops == 2 * Shape(4, 192 * 64, 64).flops
    assert models("exact", shape)["exact"].tensor_flops == 3 * shape.flops
    naive = models("naive", shape)
    assert naive["naive_scores"].ffma_flops + naive["naive_values"].ffma_flops == shape.flops


def test_without_a_cache_that_loses_anything_q_k_and_v_come_from_dram_once():
    shape = Shape(16, 4096, 64)
    for name in ("shared", "flash", "exact"):
        assert models(name, shape)[name].dram[0] == 3 * 4 * 16 * 4096 * 64, name


def test_tensor_cores_read_shared_memory_themselves_only_where_warpgroups_multiply():
    shape = Shape(4, 16384, 64)
    by_warpgroups = {name for name in VARIANTS for model in models(name, shape).values() if model.operands}
    assert by_warpgroups == {"split", "split8"}


def test_two_of_split8s_products_are_of_integers_which_tensor_cores_multiply_in_half_the_time():
    whole = Shape(4, 192 * 64, 64)
    pairs, group_steps = whole.B * whole.N**2, whole.B * whole.N**2 // (64 * 64)
    found, split = models("split8", whole)["split8"], models("split", whole)["split"]
    assert found.tensor_flops == 2 * pairs * (64 + 64)
    assert found.int8_operations == 2 * pairs * 128
    assert found.amounts[TENSOR] == found.tensor_flops + found.int8_operations / 2
    assert found.amounts[TENSOR] / split.amounts[TENSOR] == pytest.approx(3 / 4, abs=0.01)
    # For 64 rows and 64 keys: rows of 128 bytes of K's halves, its integers and V; and of Q's integers.
    assert found.operands == group_steps * 128 * (3 * 64 + 64)
    assert models("split8", Shape(4, 512, 64))["split8"] == replace(
        models("split", Shape(4, 512, 64))["split"], symbol="split8"
    )


def test_one_exponential_in_sixteen_of_split_at_d_32_takes_fmas_instead_of_a_special_unit():
    whole, few = Shape(4, 192 * 64, 32), Shape(1, 192 * 64, 64)
    plan = VARIANTS["split"].plan(whole, H200)
    slice_of_a_row = [n * 4 + e + 1 for n in range(plan.macros["SUB"] // 8) for e in range(4)]  # split_wgmma.cuh
    by_polynomial = sum(number % 16 < plan.macros["POLYNOMIAL"] for number in slice_of_a_row) / len(slice_of_a_row)
    found, pairs = models("split", whole)["split"], whole.B * whole.N**2
    assert by_polynomial == 1 / 16
    assert found.exponentials == pairs * 15 / 16
    assert found.ffma_flops == pairs / 16 * POLYNOMIAL_FLOPS
    assert found.amounts[EXP2] == found.exponentials
    others = models("split", few)["split"], models("exact", whole)["exact"], models("split", Shape(9, 128, 32))["split"]
    assert [(one.ffma_flops, one.exponentials % one.tiles) for one in others] == [(0, 0)] * 3


def test_a_polynomial_takes_as_many_fmas_and_additions_as_the_kernel_has():
    text = kernel_source("split_wgmma").replace("INTEGER + LEAST", "LEAST")
    for first, after in (("float exp2_polynomial(float x) {", "const float n"), ("float of(float s) const {", "")):
        body = text.partition(first)[2].partition("}")[0]
        body = body.partition(after)[2] if after else body
        assert 2 * (len(re.findall(r"fmaf|fma_", body)) + len(re.findall(r" [-+] ", body))) == POLYNOMIAL_FLOPS


def test_every_kernel_has_a_model_on_every_gpu_that_starts_it():
    for name, variant in VARIANTS.items():
        for props in DEVICES.values():
            for shape in (Shape(2, 1, 4), Shape(3, 777, 36), Shape(1, 300, 128, causal=True), Shape(2, 128, 32)):
                if props.cc < variant.least_cc:
                    continue
                plan = variant.plan(shape, props)
                for model in launch_models(plan, shape, props):
                    assert model.dram[0] > 0 or model.dram[1] > 0, (name, model)
                    assert (model.l2 and min(model.l2) > 0) or model.symbol == "absmax", (name, model)


def test_blocks_that_convert_move_what_the_pass_before_does_not():
    found, alone = models("split", Shape(1000, 2048, 64)), models("split", Shape(10, 2048, 64))
    assert list(found) == list(alone) == ["split_convert", "split"]
    assert found["split_convert"].dram[0] < 5 * alone["split_convert"].dram[0]
    for name in ("tensor_flops", "exponentials", "operands", "tiles"):
        together, one = (sum(getattr(model, name) for model in all_of.values()) for all_of in (found, alone))
        assert together == pytest.approx(100 * one, rel=1e-6), name
    for name in ("dram", "l2"):
        read, one = (sum(getattr(model, name)[0] for model in all_of.values()) for all_of in (found, alone))
        assert read == pytest.approx(100 * one, rel=1e-3), name

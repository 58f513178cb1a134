"""The model of what a kernel moves and computes, against a profile, and against counting."""

import csv
from dataclasses import replace
from functools import cache

import numpy as np
import pytest
from helpers import ROOT

from hw4cli.arraylab.named import workload
from hw4cli.arraymodel.launches import array_models, plan_of
from hw4cli.compute.plan import DEVICES
from hw4cli.compute.variants import VARIANTS
from hw4cli.measure.counters import read_launches
from hw4cli.measure.gpus import model_named
from hw4cli.measure.metrics import MOVED, value_of
from hw4cli.measure.model import launch_models
from hw4cli.problem.shape import Shape
from hw4cli.stepper.blocks import blocks_of
from hw4cli.stepper.cache import AS_THEY_END, IN_ROUNDS, MOST_VISITS, Visit, read_again

PROFILED = Shape(16, 4096, 64)
H200 = DEVICES[90]
SECTOR, WAVEFRONT = 32, 128


def models(kernel, shape, props=H200):
    plan = VARIANTS[kernel].plan(shape, props)
    return {model.symbol: model for model in launch_models(plan, shape, props)}


@pytest.fixture(scope="module")
def profile():
    with (ROOT / "benchmarks/h200-ncu.csv").open() as file:
        return {
            row["kernel"]: {name: cell for name, cell in row.items() if "__" in name} for row in csv.DictReader(file)
        }


def test_flash_moved_what_the_model_has_when_it_was_profiled(profile):
    model, counters = models("flash", PROFILED)["flash"], profile["flash"]
    assert int(counters["dram__bytes_read.sum"]) == pytest.approx(model.dram[0], rel=0.02)
    assert SECTOR * int(counters["lts__t_sectors_op_read.sum"]) == pytest.approx(model.l2[0], rel=0.02)
    wavefronts = int(counters["l1tex__data_pipe_lsu_wavefronts_mem_shared.sum"])
    assert WAVEFRONT * wavefronts == pytest.approx(model.shared, rel=0.05)


RECORDINGS = {  # of an H100: the shape, and the kernels whose blocks are the same today
    "h100-ncu": (PROFILED, ("shared", "warp", "float4", "flash", "exact", "float64")),
    "h100-ncu-t28": (Shape(4, 16384, 64), ("flash", "exact")),
    "h100-ncu-t12": (Shape(9600, 128, 64), ("split", "flash")),
}


def counted(name):
    """Of each launch of a recording, MB by what moved them, and how many blocks it had."""
    tool, launches = read_launches((ROOT / f"benchmarks/{name}.csv").read_text())
    found = {one.kernel: {metric.name: value_of(metric, tool, one.values) for metric in MOVED} for one in launches}
    return found, {one.kernel: int(one.grid.strip("(").partition(",")[0]) for one in launches}


def recorded(name):
    """Launches of a recording, each with its model; not those of kernels that are launched otherwise today."""
    (shape, kernels), (found, blocks) = RECORDINGS[name], counted(name)
    for kernel in kernels:
        plan = VARIANTS[kernel].plan(shape, H200)
        if all(blocks[launch.symbol] == launch.grid for launch in plan.launches if launch.symbol in blocks):
            yield from (
                (model, found[model.symbol])
                for model in launch_models(plan, shape, H200, model_named("H100").cache)
                if model.symbol in found
            )


@pytest.mark.parametrize("name", RECORDINGS)
def test_kernels_move_what_the_model_has_between_the_l2_cache_and_the_multiprocessors(name):
    seen = set()
    for model, moved in recorded(name):
        seen.add(model.symbol)
        assert moved["l2_to_l1"] * 1e6 == pytest.approx(model.l2[0], rel=0.02), model.symbol
        assert moved["dram_read"] * 1e6 == pytest.approx(model.dram[0], rel=0.05), model.symbol
        if model.symbol == "flash":
            assert moved["shared_traffic"] * 1e6 == pytest.approx(model.shared, rel=0.02)
    assert "flash" in seen


@pytest.mark.parametrize("kernel", ["naive", "smallbr"])
def test_where_blocks_side_by_side_share_tiles_the_model_is_an_upper_limit(kernel):
    found, _ = counted("h100-ncu")
    for symbol, model in models(kernel, PROFILED).items():
        assert found[symbol]["l2_to_l1"] * 1e6 <= model.l2[0], symbol


def test_what_is_written_has_left_the_l2_cache_where_it_does_not_fit():
    (model, moved), *_ = (one for one in recorded("h100-ncu-t12") if one[0].symbol == "flash")
    assert moved["dram_written"] * 1e6 == pytest.approx(model.dram[1], rel=0.05)


@pytest.mark.parametrize("kernel", ["shared", "flash", "split"])
@pytest.mark.parametrize("N", [128, 1000, 8192])
def test_causal_blocks_visit_each_key_that_a_row_sees_and_less_than_a_tile_more(kernel, N):
    shape = Shape(1, N, 64, causal=True)
    plan = VARIANTS[kernel].plan(shape, H200)
    blocks, BR = blocks_of(plan, shape), plan.macros["BR"]
    for place, end in enumerate(min(row + BR, N) for row in range(0, N, BR)):
        assert blocks.keys[place * plan.splits : (place + 1) * plan.splits].sum() == end


@pytest.mark.parametrize("splits", [1, 3, 8])
def test_splits_share_all_keys(splits):
    shape = Shape(1, 1000, 64)
    plan = VARIANTS["flash"].plan(shape, H200)
    divided = blocks_of(type(plan)(plan.variant, plan.macros, plan.launches, plan.layout, splits), shape)
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


def test_launches_that_share_the_batches_move_and_compute_together_what_one_would():
    found, alone = models("split", Shape(1000, 2048, 64)), models("split", Shape(10, 2048, 64))
    assert list(found) == ["split_convert", "split_first", "split"]
    assert list(alone) == ["split_convert", "split"]
    for name in ("tensor_flops", "exponentials", "operands", "tiles"):
        together, one = (sum(getattr(model, name) for model in all_of.values()) for all_of in (found, alone))
        assert together == pytest.approx(100 * one, rel=1e-6), name
    for name in ("dram", "l2"):
        read, one = (sum(getattr(model, name)[0] for model in all_of.values()) for all_of in (found, alone))
        assert read == pytest.approx(100 * one, rel=1e-3), name


TRAFFIC = [*csv.DictReader((ROOT / "benchmarks/h200-traffic.csv").open())]  # benchmarks/traffic.py
L2_BYTES = model_named("H200").cache


@cache
def modelled(kernel, workload_text, causal, splits):
    """The models of a kernel's launches, with their grids and the splits of the keys, by symbol."""
    if kernel in ("flash", "split"):
        shape = Shape(*map(int, workload_text.split(",")), causal=causal == "1")
        plan = replace(VARIANTS[kernel], splits=lambda *_: int(splits)).plan(shape, H200)
        found = launch_models(plan, shape, H200, L2_BYTES)
    else:
        work = workload(workload_text).work
        plan = plan_of(kernel, work, H200)
        found = array_models(plan, work, H200, L2_BYTES)
    sizes = {launch.symbol: (str(launch.grid), str(plan.splits)) for launch in plan.launches}
    return {model.symbol: (model, sizes[model.symbol]) for model in found}


def counted_on_an_h200(*kernels):
    """The recorded launches that are of today's plan, each with its model."""
    for line in TRAFFIC:
        found = modelled(*(line[name] for name in ("kernel", "workload", "causal", "splits")))
        model, size = found.get(line["launch"], (None, None))
        if line["kernel"] in kernels and size == (line["grid"], line["splits"]):
            yield line, model


def test_what_blocks_ask_of_the_l2_cache_is_that_of_the_model_within_one_percent():
    seen = set()
    for line, model in counted_on_an_h200("flash", "split", "half", "half_mma", "half_split", "half_cores"):
        if model.l2 is None or line["launch"] == "split_first":  # whose blocks convert beside, and read what they made
            continue
        seen.add(line["kernel"])
        assert 1e6 * float(line["l2_to_l1"]) == pytest.approx(model.l2[0], rel=0.01, abs=2e4), line
    assert {"flash", "split", "half_mma"} <= seen


def test_what_is_written_to_the_l2_cache_is_that_of_the_model_but_for_stores_of_16_bit_rows():
    for line, model in counted_on_an_h200("flash", "split", "half_cores", "half_split"):
        if line["launch"] != "split_first":
            assert 1e6 * float(line["l1_to_l2"]) == pytest.approx(model.l2[1], rel=0.03), line


def test_without_a_mask_what_comes_from_dram_is_that_of_the_model_within_a_few_percent():
    ratios = {}
    for line, model in counted_on_an_h200("flash", "split", "half", "half_mma"):
        if line["causal"] == "0":
            ratios[line["kernel"], line["workload"], line["splits"]] = 1e6 * float(line["dram_read"]) / model.dram[0]
    assert len(ratios) > 20
    assert {key: ratio for key, ratio in ratios.items() if not 0.95 < ratio < 1.052} == {}


def test_with_a_mask_a_little_more_comes_from_dram_than_blocks_in_step_would_read():
    lines = [
        pair for pair in counted_on_an_h200("split", "half", "half_mma") if pair[0]["causal"] == "1" and pair[1].l2
    ]
    ratios = {
        (line["kernel"], line["workload"]): 1e6 * float(line["dram_read"]) / model.dram[0] for line, model in lines
    }
    assert len(ratios) > 8
    assert {key: ratio for key, ratio in ratios.items() if not 0.98 < ratio < 1.12} == {}


def test_gradients_on_hopper_move_the_bytes_of_the_model():
    seen = set()
    for line, model in counted_on_an_h200("backward_once", "backward_wgmma"):
        seen.add(line["launch"])
        assert 1e6 * float(line["l2_to_l1"]) == pytest.approx(model.l2[0], rel=0.015), line
        if line["kernel"] == "backward_once":  # backward_round stores rows of 16 bits, in pieces
            within = {"backward_once": 0.02, "backward_stats": 0.18}.get(line["launch"], 0.48)
            assert 1e6 * float(line["l1_to_l2"]) == pytest.approx(model.l2[1], rel=within), line
        if line["workload"] != "gqa":  # whose heads share keys
            assert 0.84 < 1e6 * float(line["dram_read"]) / model.dram[0] < 1.2, line
    assert len(seen) == 5


def causal(heads, together, tiles=40, keys=200, slots=132):
    """Tiles of rows of so many heads, some heads together, the longest first."""
    return [
        Visit(head, 0, keys * (tile + 1), 1000, 1000)
        for first in range(0, heads, together)
        for tile in reversed(range(tiles))
        for head in range(first, first + together)
    ]


def test_heads_that_are_worked_on_together_come_again_where_the_cache_does_not_hold_them():
    """A head has 4 MB: 16 are more than the cache holds, 8 are not."""
    read = {n: read_again(causal(32, n), 132, 512, 50 << 20) for n in (8, 16)}
    assert read[16] > 100e6 > 10 * read[8]
    assert read_again(causal(32, 16), 132, 512, 500 << 20) == 0


def test_the_order_in_which_blocks_take_tiles_decides_how_far_they_are_apart():
    """Blocks that get all the long tiles fall behind, and find the keys gone that others have used."""
    apart, together = (read_again(causal(32, 16), 132, 512, 50 << 20, order) for order in (IN_ROUNDS, AS_THEY_END))
    assert apart > 1.3 * together


def test_what_the_cache_holds_is_what_was_counted():
    """A buffer is read twice: from a size on, half of it comes again."""
    sizes = []
    for who in ("same blocks", "other blocks"):
        rows = [row for row in csv.DictReader((ROOT / "benchmarks/h200-cache.csv").open()) if row["pass"] == who]
        mib = [float(row["mib"]) for row in rows]
        again = [1e6 * float(row["dram_read"]) / 2**20 / size - 1 for row, size in zip(rows, mib, strict=True)]
        sizes.append(np.interp(0.5, again, mib))
    assert model_named("H200").cache / 2**20 == pytest.approx(np.mean(sizes), rel=0.01)


def test_keys_that_many_blocks_read_lie_in_both_halves_of_the_cache():
    """A buffer in 132 parts is held up to 43 MB, one that all blocks read up to 30 MB."""
    size, rows = model_named("H200").cache, 1 << 14

    def again(mib, readers):
        keys = [n % readers for n in range(2 * 132)]
        visits = [Visit(key, 0, rows // readers, 0, 0) for key in keys]
        return read_again(visits, 132, (mib << 20) // rows, size, IN_ROUNDS) / (mib << 20)

    assert again(36, 1) > 0.9 > 0.05 > again(26, 1)


def test_what_a_block_leaves_of_its_rows_comes_from_dram_again_where_much_was_touched_meanwhile():
    def again(between):
        mine = [Visit(0, 0, 64, 1000, 1000, rows=7)]
        last = [Visit(0, 64, 128, 1000, 1000, rows=7, adds=True)]
        return read_again([*mine, Visit(1, 0, 32, between, 0), *last], 1, 4, 1 << 20)

    assert again(0) == 0
    assert again(20 << 20) == 2000  # Q, and O


def test_what_no_two_blocks_visit_and_more_tasks_than_are_followed_are_read_once():
    assert read_again([Visit(n, 0, 4096, 0, 0) for n in range(100)], 10, 512, 1 << 20) == 0
    assert read_again([Visit(0, 0, 1, 0, 0)] * (MOST_VISITS + 1), 10, 512, 1) == 0

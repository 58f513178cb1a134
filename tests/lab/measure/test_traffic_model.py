"""The bytes of the model at DRAM and at the L2 cache, against what a profiler counted of every kernel."""

import pytest
from recordings import H200, counted_on_an_h200
from slow import slow

from hw4cli.lab.arrays.named import workload
from hw4cli.lab.candidates import plan_of
from hw4cli.lab.measure.model import launch_models
from hw4cli.plans.ladder import VARIANTS


@slow
def test_what_blocks_ask_of_the_l2_cache_is_that_of_the_model_within_one_percent():
    seen = set()
    for line, model in counted_on_an_h200("flash", "split", "half", "half_mma", "half_split", "half_cores"):
        if model.l2 is None:
            continue
        seen.add(line["kernel"])
        assert 1e6 * float(line["l2_to_l1"]) == pytest.approx(model.l2[0], rel=0.01, abs=2e4), line
    assert {"flash", "split", "half_mma"} <= seen


@slow
def test_what_is_written_to_the_l2_cache_is_that_of_the_model_but_for_stores_of_16_bit_rows():
    for line, model in counted_on_an_h200("flash", "split", "half_cores", "half_split"):
        assert 1e6 * float(line["l1_to_l2"]) == pytest.approx(model.l2[1], rel=0.03), line


@slow
def test_without_a_mask_what_comes_from_dram_is_that_of_the_model_within_a_few_percent():
    ratios = {}
    for line, model in counted_on_an_h200("flash", "split", "half", "half_mma"):
        if line["causal"] == "0":
            ratios[line["kernel"], line["workload"], line["splits"]] = 1e6 * float(line["dram_read"]) / model.dram[0]
    assert len(ratios) > 20
    assert {key: ratio for key, ratio in ratios.items() if not 0.95 < ratio < 1.052} == {}


@slow
def test_with_a_mask_a_little_more_comes_from_dram_than_blocks_in_step_would_read():
    lines = [pair for pair in counted_on_an_h200("split") if pair[0]["causal"] == "1" and pair[1].tiles]
    ratios = {
        (line["kernel"], line["workload"]): 1e6 * float(line["dram_read"]) / model.dram[0] for line, model in lines
    }
    assert len(ratios) > 6
    assert {key: ratio for key, ratio in ratios.items() if not 0.94 < ratio < 1.12} == {}


@slow
def test_flash_with_a_mask_reads_what_the_model_has_where_keys_are_not_split():
    ratios = {
        (line["workload"], line["splits"]): 1e6 * float(line["dram_read"]) / model.dram[0]
        for line, model in counted_on_an_h200("flash")
        if line["causal"] == "1" and model.tiles
    }
    assert len(ratios) > 2
    assert {key: ratio for key, ratio in ratios.items() if not 0.97 < ratio < 1.07} == {}


def test_paper_reads_all_of_q_and_o_again_for_each_tile_of_keys_once_they_outgrow_the_cache():
    """17 MB of them stay, of 34 a part goes, and of 51 the most: the bytes differ from run to run by a half."""
    seen = {}
    for line, model in counted_on_an_h200("paper"):
        counted, batches = 1e6 * float(line["dram_read"]), line["workload"]
        seen[batches] = counted
        assert 1e6 * float(line["l2_to_l1"]) == pytest.approx(model.l2[0], rel=0.001)
        assert 1e6 * float(line["l1_to_l2"]) == pytest.approx(model.l2[1], rel=0.001)
        if batches != "64,1024,64":  # few tiles of keys, of which half as much comes again
            assert counted == pytest.approx(model.dram[0], rel=0.25), batches
    assert seen["24,4096,64"] > 100 * seen["8,4096,64"]


@slow
def test_the_other_rungs_move_the_bytes_of_the_model():
    """Of naive's and smallbr's tiles, blocks side by side share a part in their own cache."""
    seen, shared, missing = set(), ("naive", "smallbr"), ("halfwarp_local", "halfwarp_strided")  # local, strided: more
    for line, model in counted_on_an_h200(*(name for name in VARIANTS if name not in ("flash", "split", "paper"))):
        kernel, measured = line["kernel"], 1e6 * float(line["l2_to_l1"])
        seen.add(kernel)
        assert 1e6 * float(line["dram_read"]) == pytest.approx(model.dram[0], rel=0.05), line
        if kernel in shared:
            assert 0.7 < measured / model.l2[0] < 1.001, line
        elif kernel not in missing:
            assert measured == pytest.approx(model.l2[0], rel=0.005), line
    assert len(seen) >= 16  # a rung may be younger than the record


def test_what_prepares_gradients_by_fragments_moves_the_bytes_of_the_model():
    (found,) = (pair for pair in counted_on_an_h200("backward_mma") if pair[0]["launch"] == "backward_pieces")
    line, model = found
    for name, bytes_ in (("dram_read", model.dram[0]), ("l2_to_l1", model.l2[0])):
        assert 1e6 * float(line[name]) == pytest.approx(bytes_, rel=0.01), name
    assert 1e6 * float(line["l1_to_l2"]) == pytest.approx(model.l2[1], rel=0.1)


def test_what_prepares_float32_gradients_writes_pieces_of_all_four_matrices():
    work = workload("B=1 H=4 N=1024 d=64 dtype=fp32").work
    bfloat = workload("B=1 H=4 N=1024 d=64 dtype=bf16").work
    pieces, short = (launch_models(plan_of("backward_mma", one, H200), one, H200)[0] for one in (work, bfloat))
    matrix = 4 * 4 * 1024 * 64
    assert 4 * matrix < pieces.dram[1] - 8 * 4096 < 4.01 * matrix  # and scales of tiles
    assert pieces.dram[0] - 4 * 4096 == 5 * matrix  # Q, K, V, O and dO
    assert short.dram[0] - 4 * 4096 == matrix  # O and dO, of half the bytes


@slow
def test_gradients_on_hopper_move_the_bytes_of_the_model():
    seen = set()
    for line, model in counted_on_an_h200("backward_once", "backward_wgmma"):
        seen.add(line["launch"])
        assert 1e6 * float(line["l2_to_l1"]) == pytest.approx(model.l2[0], rel=0.015), line
        if line["kernel"] == "backward_once":  # backward_round stores rows of 16 bits, in pieces
            within = {"backward_once": 0.02, "backward_stats": 0.18}.get(line["launch"], 0.48)
            assert 1e6 * float(line["l1_to_l2"]) == pytest.approx(model.l2[1], rel=within), line
        # One pass is not followed where heads share keys; of heads64, it was recorded with fewer heads together.
        if line["launch"] != "backward_once" or line["workload"] not in ("gqa", "heads64"):
            most = 1.75 if line["workload"] == "gqa" else 1.2
            assert 0.84 < 1e6 * float(line["dram_read"]) / model.dram[0] < most, line
    assert len(seen) == 5

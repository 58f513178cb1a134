"""Kernels for arrays, explained: their launches, what these move and compute, and what is refused."""

import json

import pytest
from helpers import csv_rows, fails, fits, on_a_terminal
from slow import quick_of_each, slow

from hw4cli.errors import MachineError
from hw4cli.lab.arrays.named import named, workload
from hw4cli.lab.candidates import plan_of
from hw4cli.lab.measure.model import launch_models
from hw4cli.plans.plan import DEVICES
from hw4cli.plans.registry import ARRAY_KERNELS
from hw4cli.problem.workload import Workload

H200 = DEVICES[90]
SPLIT_IN_TWO = "B=8 H=32 KVH=8 N=1 Nk=16384 d=128 dtype=bf16"  # of keys


def models(kernel, work, props=H200):
    return {model.symbol: model for model in launch_models(plan_of(kernel, work, props), work, props)}


@slow
def test_every_named_workload_has_a_model_on_every_gpu_that_computes_it():
    for text in named():
        work = workload(text).work
        for kernel in ARRAY_KERNELS:
            for props in DEVICES.values():
                try:
                    found = launch_models(plan_of(kernel, work, props), work, props)
                except MachineError:
                    continue
                for model in found:
                    if model.symbol == "half_start":  # which writes a number
                        continue
                    assert model.dram[0] > 0 and model.l2 is not None, (text, kernel, model)
                    assert model.l2[0] >= model.dram[0] * 0.99, (text, kernel, model)


def test_flops_are_those_of_the_definition_where_tiles_are_whole():
    work = Workload.square("float16", 2, 8, 4 * 192 * 8, 64)
    assert models("half", work)["half"].tensor_flops == pytest.approx(work.flops, rel=0.07)  # and sums of P
    assert models("half_mma", work)["half_mma"].tensor_flops == pytest.approx(work.flops, rel=0.07)
    assert models("half_cores", work)["half_cores"].ffma_flops == work.flops
    for kernel, kind in (("backward", "ffma_flops"), ("backward_mma", "tensor_flops")):
        flops = sum(getattr(model, kind) for model in models(kernel, work).values())
        assert flops == pytest.approx(3.5 * work.flops, rel=1e-3), kernel


@pytest.mark.parametrize(
    ("kernel", "products", "d"),
    [
        *(("backward_wgmma", 7, d) for d in (64, 128, 192, 256)),
        *((kernel, 5, d) for kernel in ("backward_once", "backward_atomic") for d in (64, 128)),
    ],
)
def test_gradients_on_hopper_compute_scores_and_dp_once_or_twice(kernel, products, d):
    work = Workload.square("float16", 2, 8, 3840, d)  # whole tiles of all passes
    flops = sum(model.tensor_flops for model in models(kernel, work).values())
    if products == 7:
        assert flops == products * work.flops / 2
    else:  # of each task, products of a tile are not used
        assert 0 < flops / (products * work.flops / 2) - 1 < 0.02


def test_one_pass_moves_sums_of_dq_to_the_l2_cache_where_two_passes_read_everything_twice():
    work = workload("lm16k").work
    once, twice = models("backward_once", work), models("backward_wgmma", work)
    chains = plan_of("backward_once", work, H200).cut[3]
    sums = chains * 4 * work.batch * work.heads * work.Nq * work.d
    assert chains == 3 and once["backward_round"].dram[0] == sums
    assert once["backward_once"].dram[1] == twice["backward_dkdv"].dram[1] + sums
    assert once["backward_once"].l2[1] > 10 * sums
    assert sum(model.l2[0] for model in once.values()) < 0.8 * sum(model.l2[0] for model in twice.values())


def test_parts_write_sums_in_place_of_dk_and_dv_which_the_last_launch_adds_up():
    work = Workload("bfloat16", 4, 32, 1, 2048, 2048, 64, True)
    parts = plan_of("backward_once", work, H200).cut[1]
    keys, sums = 2 * 2 * work.batch * work.Nk * work.d, 4 * work.batch * work.heads * work.Nq * work.d
    once, twice = models("backward_once", work), models("backward_wgmma", work)
    assert parts > 1 and twice["backward_dkdv"].dram[1] == keys
    assert once["backward_once"].dram[1] == sums + 2 * parts * keys  # float32 in place of 16 bits
    assert once["backward_round"].dram == (sums + 2 * parts * keys, sums // 2 + keys)


def test_what_a_small_l2_cache_loses_comes_from_dram_again_and_sums_of_dq_go_there_again():
    work = workload("lm8k-causal").work
    for kernel, symbol in (("backward_wgmma", "backward_dkdv"), ("backward_once", "backward_once")):
        plan = plan_of(kernel, work, H200)
        kept, lost = (
            next(model for model in launch_models(plan, work, H200, cache) if model.symbol == symbol)
            for cache in (1 << 34, 20 << 20)
        )
        assert kept.dram == models(kernel, work)[symbol].dram
        assert lost.dram[0] > 1.5 * kept.dram[0]
        assert (lost.dram[1] > kept.dram[1]) == (kernel == "backward_once")


@pytest.mark.parametrize(
    "kernel", ["half", "half_mma", "half_cores", "backward", "backward_mma", "backward_wgmma", "backward_once"]
)
def test_a_causal_kernel_visits_about_half_of_the_tiles(kernel):
    full, causal = (models(kernel, Workload.square("bfloat16", 1, 2, 16384, 64, mask)) for mask in (False, True))
    for symbol, model in full.items():
        assert causal[symbol].tiles == pytest.approx(model.tiles / 2, rel=0.03)
        assert causal[symbol].exponentials == pytest.approx(model.exponentials / 2, rel=0.03)


def test_heads_that_share_keys_read_them_once_from_dram_and_each_for_itself_from_the_l2_cache():
    alone, shared = (Workload("float16", 1, 8, heads, 4096, 4096, 128) for heads in (8, 2))
    first, second = (models("half", work)["half"] for work in (alone, shared))
    assert second.dram[0] < first.dram[0]
    assert second.l2 == first.l2


def test_splits_of_decoding_read_all_keys_once():
    work = workload(SPLIT_IN_TWO).work
    found = models("half_split", work)
    keys = 2 * 2 * 8 * 8 * 16384 * 128
    assert found["half_split"].l2[0] == pytest.approx(keys, rel=1e-3)
    assert found["half_split_combine"].dram[0] == found["half_split"].dram[1]


@slow
def test_a_page_and_records_of_arrays(hw4, tmp_path):
    result = hw4("explain", "half", "half_mma", "lm8k-causal", "--gpu", "H200")
    assert result.returncode == 0, result.stderr
    assert result.stdout.startswith("half on (B, H, N, d) = (2, 16, 8192, 128) bf16 causal: H200, compute capability")
    assert "nearest limit: tensor cores, at least" in result.stdout
    found = hw4("explain", "half_split", SPLIT_IN_TWO, "--gpu", "H200", "--json")
    first, second = json.loads(found.stdout)
    assert (first["launch"], second["launch"], first["roof"]) == ("half_split", "half_split_combine", "DRAM")
    options = ("lm16k", "--gpu", "H200", "--json")
    found = json.loads(hw4("explain", "backward_once", *options).stdout)
    assert [one["launch"] for one in found] == ["backward_stats", "backward_once", "backward_round"]
    assert [one["roof"] for one in found[::2]] == ["DRAM", "DRAM"]
    hw4("explain", "backward", "heads64", "--gpu", "A100", "-o", tmp_path / "a.csv")
    assert [row["launch"] for row in csv_rows(tmp_path / "a.csv")] == ["backward_delta", "backward_dq", "backward_dkdv"]


def test_it_fits_a_terminal_of_60_columns():
    code, shown = on_a_terminal(60, "explain", "half", "tilelang-causal", "--gpu", "H100")
    assert code == 0, shown
    assert fits(shown, 60), shown


@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [
        (["half", "t28"], 2, "half computes arrays: name a workload"),
        (["flash", "lm8k"], 2, "flash computes files: name a case or a shape"),
        (["half", "lm8k", "--causal"], 2, "--causal does not go with a workload"),
        (["half", "lm9k"], 2, "Did you mean 'lm8k'?"),
        (["half", "lm8k", "--gpu", "A100"], 3, "kernel half needs compute capability 9.0"),
        (["half", "fp32-gqa"], 3, "kernel half is for float16 and bfloat16"),
    ],
)
def test_a_wrong_request_is_refused_in_a_sentence(hw4, arguments, code, words):
    for command in ("explain", "profile") if code == 2 else ("explain",):
        fails(hw4(command, *arguments), code, words)


@quick_of_each(2)
@pytest.mark.parametrize("kernel", ["half_cores", "backward_once"])
@pytest.mark.parametrize("sizes", ["B=1 H=1 N=1073741824", "B=32768 H=128 N=9"])
def test_a_workload_that_would_take_minutes_to_count_is_refused(hw4, kernel, sizes):
    result = hw4("explain", kernel, f"{sizes} d=128 dtype=fp16 causal", "--gpu", "H200")
    fails(result, 3, f"{kernel} has more than 2,097,152 tiles of 64 rows or keys in all heads")

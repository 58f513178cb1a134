"""`hw4 explain`: launches, traffic and limits without a GPU."""

import json
import re
from dataclasses import replace

import pytest
from helpers import csv_rows, fits, on_a_terminal
from slow import slow

from hw4cli.lab.measure.explanation import formula_tile
from hw4cli.lab.measure.gpus import MODELS, model_like, model_named
from hw4cli.lab.measure.roofs import path_of
from hw4cli.plans.ladder import VARIANTS
from hw4cli.plans.plan import AMD_DEVICES
from hw4cli.problem.workload import Shape


@pytest.fixture
def no_gpu(monkeypatch, tmp_path):
    """Neither a GPU nor measured roofs."""
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


pytestmark = pytest.mark.usefixtures("no_gpu")


def rows(result):
    assert result.returncode == 0, result.stderr
    return json.loads(result.stdout)


def test_flash_is_explained_on_an_h100_as_it_was_measured_there(hw4):
    main, combine = rows(hw4("explain", "flash", "t28", "--gpu", "H100", "--json"))
    assert (main["launch"], main["grid"], main["threads"], main["tile"]) == ("flash", 2048, 128, "128x32")
    assert main["registers"] == 168
    assert main["spilled_bytes"] == 0
    assert main["blocks"] == 3
    assert main["limited_by"] == ["registers", "shared memory"]
    assert main["waves"] == pytest.approx(2048 / 396)
    assert main["last_wave"] == pytest.approx((2048 - 5 * 396) / 396)
    assert main["roof"] == "FFMA"
    assert main["least_seconds"]["FFMA"] == pytest.approx(Shape(4, 16384, 64).flops / 66.9e12, rel=1e-3)
    assert combine["launch"] == "flash_combine"
    assert combine["dram_read_bytes"] == main["dram_written_bytes"]


def test_the_page_for_people_ends_with_the_nearest_limit(hw4):
    result = hw4("explain", "split", "t28", "--gpu", "H100")
    assert result.returncode == 0, result.stderr
    assert re.search(r"^tile \d+x\d+ \(rows x keys\)", result.stdout, re.MULTILINE)
    assert "gives 48x48 for M = 48 KB" in result.stdout
    last = result.stdout.splitlines()[-1]
    assert last.startswith("nearest limit: tensor cores, at least 0.56")
    assert "989 TFLOP/s (data sheet)" in last


@slow
def test_reuse_is_how_often_a_byte_from_the_l2_cache_passes_shared_memory(hw4):
    """`halfwarp` with 128 rows a block: K and V once for all rows, each read by 128 half warps, and written once."""
    found = rows(hw4("explain", "halfwarp", "16,4096,64", "--gpu", "H100", "--json"))[0]
    assert found["shared_bytes_for_each_from_l2"] == pytest.approx(
        found["shared_bytes_moved"] / found["l2_to_sm_bytes"]
    )
    assert 60 < found["shared_bytes_for_each_from_l2"] < 70
    shown = hw4("explain", "halfwarp", "16,4096,64", "--gpu", "H100").stdout
    assert re.search(r"^reuse: bytes in shared memory for each from the L2 cache: halfwarp 6\d(\.\d)?$", shown, re.M)
    assert "reuse" not in hw4("explain", "global", "16,4096,64", "--gpu", "H100").stdout, "it has no shared memory"


@slow
def test_float64_units_are_what_limits_float64_where_there_are_few_of_them(hw4):
    few = rows(hw4("explain", "float64", "t28", "--gpu", "GTX 1080", "--json"))[0]
    flops = 1.5 * Shape(4, 16384, 64).flops  # QK^T is computed twice
    assert (few["roof"], few["dfma_flops"], few["ffma_flops"]) == ("DFMA", flops, 0)
    assert few["least_seconds"]["DFMA"] == pytest.approx(flops / 277.3e9, rel=1e-3)
    many = rows(hw4("explain", "float64", "t28", "--gpu", "H100", "--json"))[0]
    assert many["roof"] == "shared memory"
    assert "412.3  DFMA" in hw4("explain", "float64", "t28").stdout


@slow
def test_all_is_the_whole_ladder(hw4, tmp_path):
    found = rows(hw4("explain", "all", "1,128,64", "--gpu", "H100", "--json"))
    assert [*dict.fromkeys(row["kernel"] for row in found)] == [*VARIANTS]
    result = hw4("explain", "all", "1,128,64", "--gpu", "GTX 1080", "-o", tmp_path / "a.csv")
    assert (result.returncode, len(result.stderr.splitlines())) == (0, 4), result.stderr  # as of bench and profile
    assert "flash" in {row["kernel"] for row in csv_rows(tmp_path / "a.csv")}
    assert hw4("explain", "all", "split", "1,128,64", "--gpu", "GTX 1080").returncode == 3


def test_an_older_file_stays_where_the_gpu_can_start_nothing(hw4, tmp_path):
    older = tmp_path / "a.csv"
    older.write_text("kernel\n")
    assert hw4("explain", "split", "1,128,64", "--gpu", "GTX 1080", "-o", older).returncode == 3
    assert older.read_text() == "kernel\n"


@slow
def test_it_fits_a_terminal_of_60_columns(hw4):
    code, shown = on_a_terminal(60, "explain", "flash", "naive", "2,1000,64", "--causal", "--gpu", "7.5")
    assert code == 0, shown
    assert "causal" in shown
    assert fits(shown, 60), shown


@slow
def test_csv_has_a_line_for_each_launch(hw4, tmp_path):
    hw4("explain", "naive", "flash", "t28", "-o", tmp_path / "a.csv")
    assert [row["launch"] for row in csv_rows(tmp_path / "a.csv")] == [
        *("naive_scores", "naive_softmax", "naive_values"),
        *("flash", "flash_combine"),
    ]


@slow
def test_the_last_wave_is_what_is_left_of_the_blocks_and_full_where_nothing_is(hw4):
    found = hw4("explain", "flash", "split", "t28", "--gpu", "H200", "--json")
    waves = {row["launch"]: (row["grid"], row["blocks"], row["waves"], row["last_wave"]) for row in rows(found)}
    assert waves["split"] == (132, 1, 1.0, 1.0)
    grid, blocks, *shown = waves["flash"]
    assert shown == [pytest.approx(grid / (132 * blocks)), pytest.approx(grid % (132 * blocks) / (132 * blocks))]


@slow
def test_all_products_of_a_kernel_are_shown_with_the_units_that_multiply(hw4):
    shown = hw4("explain", "flash", "fp16qk", "split8", "4,12288,64", "--gpu", "H200").stdout
    lines = [line for line in shown.splitlines() if re.match(r"(flash|fp16qk|split8) .* (FFMA|tensor)", line)]
    gflop = 4 * 4 * 12288**2 * 64 / 1e9
    assert [f" {gflop:.1f}  FFMA " in lines[0], f" {gflop:.1f}  tensor, FFMA " in lines[1]] == [True, True], lines
    assert f" {2 * gflop:.1f}  tensor, int8 " in lines[2], lines


@slow
def test_a_kernel_of_ones_own_has_its_launch_and_its_least_traffic(hw4, tmp_path):
    source = hw4("new-kernel", tmp_path / "my_own", "--from", "shared")
    assert source.returncode == 0, source.stderr
    (row,) = rows(hw4("explain", tmp_path / "my_own.cu", "4,256,64", "--gpu", "8.0", "--json"))
    assert row["launch"] == "my_own"
    assert row["registers"] > 0
    assert row["dram_read_bytes"] == 3 * 4 * 4 * 256 * 64
    (formula,) = rows(hw4("explain", "shared", "4,256,64", "--gpu", "8.0", "--json"))
    assert row["l2_to_sm_bytes"] == formula["l2_to_sm_bytes"], "counted on the CPU, and by the registry's formula"


@slow
def test_a_kernel_that_cannot_start_there_is_named_and_the_others_are_shown(hw4):
    result = hw4("explain", "split", "flash", "t01", "--gpu", "T4")
    assert result.returncode == 3
    assert "kernel split needs compute capability 8.0" in result.stderr
    assert "flash on (B, N, d)" in result.stdout


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--gpu", "H100"], "name a case"),
        (["t01", "1,128,32"], "one case or shape is needed, and these are 2"),
        (["t01-t03"], "one case or shape is needed, and these are 3"),
        (["t01", "--gpu", "TNT2"], "there is no GPU 'TNT2' in the list"),
        (["t01", "--gpu", ""], "there is no GPU '' in the list"),
    ],
)
def test_a_wrong_request_is_refused_in_a_sentence(hw4, arguments, words):
    result = hw4("explain", "flash", *arguments)
    assert result.returncode == 2
    assert words in result.stderr
    assert len(result.stderr.splitlines()) == 1


def test_more_blocks_than_can_be_counted_soon_are_refused(hw4):
    result = hw4("explain", "flash", "naive", "1,2147483647,128", "--gpu", "H100")
    assert result.returncode == 3
    assert "has more than 1,048,576 blocks in a batch: give a shorter sequence" in result.stderr


@slow
def test_roofs_that_were_measured_on_a_gpu_replace_those_of_its_data_sheet(hw4):
    path = path_of("H100")
    path.parent.mkdir(parents=True)
    path.write_text(json.dumps({"kind": "roofs", "machine": {"gpu": "H100"}, "rates": {"FFMA": 50.0}}))
    result = hw4("explain", "flash", "t28", "--gpu", "H100")
    assert result.stdout.splitlines()[-1].startswith("nearest limit: FFMA, at least 5.498 ms at 50 TFLOP/s (measured)")
    path.write_text("{")
    assert "(data sheet)" in hw4("explain", "flash", "t28", "--gpu", "H100").stdout


def test_the_assignments_formula_for_48_kb():
    assert formula_tile(32) == (32, 96)
    assert formula_tile(64) == (48, 48)
    assert formula_tile(64, 16 << 10) == (16, 16)


def test_a_gpu_is_found_by_the_name_that_the_driver_gives():
    assert model_named("NVIDIA H100 80GB HBM3").name == "H100"
    assert model_named("NVIDIA H100 PCIe").name == "H100 PCIe"
    assert model_named("nvidia geforce gtx 1080").name == "GTX 1080"
    assert model_named("6.1").name == "GTX 1080"
    assert {model_named(model.name) for model in MODELS} == {*MODELS}


def test_an_unknown_gpu_is_taken_for_one_of_its_compute_capability_with_its_own_multiprocessors():
    props = model_named("8.9").props
    found = model_like("NVIDIA Unheard Of", type(props)(89, 10, props.shared_limit, props.shared_sm))
    assert (found.name, found.sms) == ("RTX 4090", 10)
    assert found.rates["FFMA"] == pytest.approx(10 * 256 * 2.52 / 1e3)


@slow
def test_amds_gpus_are_explained_too(hw4, no_gpu):
    result = hw4("explain", "flash", "t28", "--gpu", "mi210")
    assert result.returncode == 0, result.stderr
    assert result.stdout.startswith("flash on (B, N, d) = (4, 16384, 64): MI210, gfx90a, 104 multiprocessors")
    assert re.search(r"FFMA +45.26 TFLOP/s +6.07", result.stdout)
    assert model_like("AMD Instinct MI250X", AMD_DEVICES["gfx90a"]).name == "MI210"
    assert model_like("AMD Radeon RX 7900", replace(AMD_DEVICES["gfx1030"], gfx="gfx1100", sms=48)).sms == 48


def test_few_blocks_reach_the_rates_of_as_many_multiprocessors(hw4):
    text = hw4("explain", "paper", "t28", "--gpu", "H200").stdout
    assert "nearest limit: shared memory, at least 996.2 ms" in text  # 33 times as long as on all of them
    assert text.rstrip().endswith("paper has blocks for 4 of 132 multiprocessors alone")

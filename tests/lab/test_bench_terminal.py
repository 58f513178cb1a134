"""What `hw4 bench` and `hw4 explain` show on a terminal: bars where there is room, rows while they are measured; and
that a pipe gets neither."""

import json
import re
import subprocess
import sys

import pytest
from helpers import ROOT, fits, hw4_env, on_a_terminal
from slow import quick_of_each, slow

from hw4cli.text.bars import bar, shares
from hw4cli.text.tables import Bars, plain

NO_GPU = {"CUDA_VISIBLE_DEVICES": "-1"}
UTF8 = {"PYTHONUTF8": "1"}
ASCII = {"PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0", "LC_ALL": "C"}
FAKE = f"""
import sys
sys.path[:0] = [{str(ROOT / "tests/support")!r}, {str(ROOT)!r}]
import fakegpu, hw4cli.device.gpu, hw4cli.device.timing
fakegpu.install(hw4cli.device.gpu), fakegpu.install(hw4cli.device.timing)
from hw4cli.cli import run_command
sys.exit(run_command())
"""
BENCH = ("bench", "flash", "split", "naive", "2,64,8", "1,96,8")


def on_a_fake_gpu(width, *args, env=None):
    """Run `hw4 ARGS` on a terminal, with a GPU that is made up."""
    return on_a_terminal(width, *args, env=env, start=("-c", FAKE))


@quick_of_each(1)
@pytest.mark.parametrize("width", [60, 80, 130, 200])
def test_bench_draws_the_rates_as_bars(width):
    code, text = on_a_fake_gpu(width, *BENCH, env=UTF8)
    assert code == 0, text
    assert fits(text, width)
    bars = [line.count("█") for line in text.splitlines() if "█" in line]
    assert (max(bars, default=0) >= 8) == (width > 60), "of the fastest kernel; its last line has no room on 60 columns"


def test_a_terminal_without_blocks_gets_letters_that_it_has():
    _, text = on_a_fake_gpu(130, *BENCH, env=ASCII)
    assert not set(text) & set("▏▎▍▌▋▊▉█")
    assert re.search(r" ########+$", text, re.MULTILINE)


@pytest.mark.parametrize("width", [80, 120, 200])
def test_kernels_have_bars_of_their_shared_memory(width):
    _, text = on_a_terminal(width, "explain", env={**NO_GPU, **UTF8})
    assert fits(text, width)
    assert "of 227 KB" in text and "███████" in text
    assert "occupancy" not in text, "no GPU, no column for it"


def test_a_pipe_gets_neither_bars_nor_rows_that_change(hw4):
    command = [sys.executable, "-c", FAKE, *BENCH]
    result = subprocess.run(command, capture_output=True, text=True, env=hw4_env(**UTF8))
    assert result.returncode == 0, result.stderr
    assert "█" not in result.stdout and "\x1b" not in result.stdout + result.stderr
    assert result.stderr == "2x64x8 …\n1x96x8 …\n"
    assert result.stdout.splitlines()[0].endswith("occupancy")
    shown = hw4("explain", env={**NO_GPU, **UTF8}).stdout
    assert "█" not in shown and "occupancy" in shown


def test_bench_shows_rows_while_they_are_measured_and_takes_them_away():
    code, text = on_a_fake_gpu(130, *BENCH, env={**UTF8, "TERM": "xterm"})
    assert code == 0
    live, final = text.rpartition("\x1b[2K")[::2]
    assert re.search(r"kernel +case +median ms", live)
    assert re.search(r"flash +2x64x8 +1\.\d+ +\d\.\d% +\d+", live)
    assert "TFLOP/s" in final
    assert text.count("2x64x8 …") == text.count("1x96x8 …") == 1
    assert "\x1b[?25h" in text, "the cursor is shown again"


def test_bench_of_programs_shows_their_runs(folder):
    args = ("bench", "t01", "--dir", folder, "--samples", "1", "--program", "false")
    code, text = on_a_terminal(130, *args, env={**NO_GPU, **UTF8, "TERM": "xterm"})
    assert code == 1
    assert re.search(r"t01 +hw4 +\d+\.\d+ +1 of 1", text)
    assert re.search(r"t01 +false +failed", text)


def test_a_dumb_terminal_gets_a_line_for_each_case():
    _, text = on_a_fake_gpu(130, *BENCH, env=UTF8)
    assert text.startswith("2x64x8 …\n1x96x8 …\n")


def test_json_on_a_terminal_is_json():
    _, text = on_a_fake_gpu(130, *BENCH, "--json", env=UTF8)
    assert len(json.loads(text.partition("1x96x8 …\n")[2])["rows"]) == 6


def test_bars_take_no_further_line():
    rows, values = [["a", "x" * 60, "1"], ["b", "y" * 60, "2"]], Bars("time", [0.5, 1.0], False, 3)
    for width in range(20, 120):
        without, text = plain(["n", "text", "ms"], rows, width), plain(["n", "text", "ms"], rows, width, values)
        assert text.count("\n") == without.count("\n")
        assert fits(text, width)
    assert plain(["n", "text", "ms"], rows, 78, values).splitlines()[1].endswith("  1  ####")
    assert "#" not in plain(["n", "text", "ms"], rows, None, values)


def test_a_bars_length_is_its_share():
    assert [bar(share, 8, True) for share in (0, 1 / 64, 0.5, 0.55, 1, 2)] == [
        "",
        "▏",
        "████",
        "████▍",
        "█" * 8,
        "█" * 8,
    ]
    assert [bar(share, 10, False) for share in (0, 0.04, 0.5, 1)] == ["", "", "#####", "##########"]
    assert shares([2.0, None, 1.0]) == [1.0, None, 0.5]
    assert shares([None, 0.0]) == [None, None]


@slow
def test_runs_before_the_first_sample_are_as_many_as_asked_for_and_in_the_record():
    for asked in ([], ["--warm-up", "0"], ["--warm-up", "7"]):
        _, text = on_a_fake_gpu(130, *BENCH, *asked, "--json", env=UTF8)
        record = json.loads(text.partition("1x96x8 …\n")[2])
        assert record["method"]["warm_up"] == int((asked or [0, 3])[-1])
        assert {row["seed"] for row in record["rows"]} == {0}
        assert {"cpu", "cores", "ram", "disk", "linux", "glibc", "python"} <= set(record["machine"])

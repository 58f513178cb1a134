"""`hw4 bench` and `hw4 explain` on a GPU: right figures for right kernels, words for the others."""

import json
import time

import pytest
from helpers import ROOT

from hw4cli.device.timing import GpuTimer
from hw4cli.lab.cases import FileCase
from hw4cli.lab.contender import measure
from hw4cli.lab.kernels import FileKernel
from hw4cli.lab.sampling import Sampling
from hw4cli.plans.ladder import VARIANTS
from hw4cli.problem.workload import Shape

pytestmark = [pytest.mark.usefixtures("gpu"), pytest.mark.alone]
CASE = FileCase("2x512x64", Shape(2, 512, 64), 0)


@pytest.fixture(scope="module")
def timer(gpu):
    return GpuTimer(gpu)


def test_a_record_holds_every_kernels_figures_and_the_machines(hw4, tmp_path):
    result = hw4("bench", "all", "2,512,64", "--json", "--output", tmp_path / "record.json")
    assert result.returncode == 0, result.stderr
    record = json.loads(result.stdout)
    assert record == json.loads((tmp_path / "record.json").read_text())
    assert [row["kernel"] for row in record["rows"]] == list(VARIANTS)
    for row in record["rows"]:
        assert row["status"] == "ok"
        assert 0 < row["low"] <= row["median"] <= row["high"]
        assert row["tflops"] == pytest.approx(4 * 2 * 512**2 * 64 / row["median"] / 1e9)
        assert row["max_error"] <= VARIANTS[row["kernel"]].error_bound
        assert 16 <= row["registers"] <= 255
        assert 0 < row["occupancy"] <= 1
        assert 0 < row["host_ms"] < row["flush_ms"]
    assert record["copy_gb_per_s"] > 100
    assert record["machine"]["gpu"]
    assert bool(record["commit"]) == (ROOT / ".git").exists()


def test_runs_without_rest_take_the_power_that_the_driver_counts(hw4):
    pytest.importorskip("pynvml")
    result = hw4("bench", "flash", "float4", "4,8192,64", "--sustained", "--json")
    assert result.returncode == 0, result.stderr
    for row in json.loads(result.stdout)["rows"]:
        assert 0.8 * row["median"] < row["sustained_ms"] < 2 * row["median"]
        assert 100 < row["watts"] < 1200
        assert row["joules"] == pytest.approx(row["watts"] * row["sustained_ms"] / 1000)
        assert row["gflop_per_joule"] == pytest.approx(4 * 4 * 8192**2 * 64 / 1e9 / row["joules"])


def test_two_runs_of_one_kernel_are_not_told_apart(hw4, tmp_path):
    assert hw4("bench", "16,2048,64", "--output", tmp_path / "a.json").returncode == 0
    again = hw4("bench", "16,2048,64", "--compare", tmp_path / "a.json")
    assert again.returncode == 0, again.stderr
    assert "flash 16x2048x64: same" in again.stderr or "flash 16x2048x64: unsure" in again.stderr


def test_a_tile_that_does_not_fit_is_told_and_the_others_go_on(hw4):
    result = hw4("bench", "flash", "2,512,64", "--tile", "100000x32", "--tile", "128x32")
    assert result.returncode == 1
    assert "flash 100000x32 on 2x512x64 failed: " in result.stdout
    assert "flash 128x32  2x512x64" in result.stdout


def test_a_wrong_kernel_is_told_and_never_timed(gpu, timer):
    runs = []

    class Lazy(FileKernel):
        """Writes nothing: O is still NaN."""

        def run(self):
            runs.append(1)

    wrong = Lazy(timer, "naive", CASE)
    rows = measure(timer, [wrong, FileKernel(timer, "flash", CASE)], CASE)
    assert [row.status for row in rows] == ["wrong", "ok"]
    assert "NaN" in rows[0].reason
    assert rows[0].median is None
    assert len(runs) == 1


def test_warm_is_not_slower_than_cold_by_much(gpu, timer):
    flash = FileKernel(timer, "flash", CASE)
    (cold,), (warm,) = (measure(timer, [flash], CASE, Sampling(cold=cold)) for cold in (True, False))
    assert warm.median and cold.median and warm.median < 1.2 * cold.median


def test_peers_are_measured_in_the_same_run(hw4, tmp_path):
    pytest.importorskip("torch")
    result = hw4("bench", "flash", "4,1024,64", "--peers", "torch", "-o", tmp_path / "a.csv")
    assert result.returncode == 0, result.stdout + result.stderr
    kernels = [line.split(",")[0] for line in (tmp_path / "a.csv").read_text().splitlines()[1:]]
    assert kernels == ["flash", "torch efficient", "torch math"]
    assert "hold time of the host" not in result.stdout


def test_the_ladder_tells_registers_and_occupancy(hw4):
    entries = json.loads(hw4("explain", "--json").stdout)
    assert [entry["kernel"] for entry in entries] == list(VARIANTS)
    assert all(entry["registers"] and entry["occupancy"] for entry in entries)


def test_no_sample_of_a_short_kernel_holds_the_hosts_time(gpu, timer):
    """A millisecond of Python before each of three launches is longer than any single flush."""
    case = FileCase("1x128x64", Shape(1, 128, 64), 0)

    class Slow(FileKernel):
        def run(self):
            for _ in range(3):
                time.sleep(0.001)
                super().run()

    sleeping = Slow(timer, "flash", case)
    sleeping.name = "slow"
    fast, slow = measure(timer, [FileKernel(timer, "flash", case), sleeping], case)
    assert (fast.reason, slow.reason) == ("", "")
    assert slow.host_ms and slow.host_ms > 3
    assert slow.flush_ms and slow.flush_ms > slow.host_ms
    assert slow.median and slow.median < 0.5

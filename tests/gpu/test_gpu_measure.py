"""Roofs, profiles and the model of traffic on a GPU."""

import json
import shutil

import pytest

from hw4cli.device.timing import GpuTimer
from hw4cli.measure.gpus import model_like
from hw4cli.measure.roofkernels import measured_rates


def test_no_roof_is_far_above_the_data_sheet_or_far_below(gpu):
    rates, sheet = measured_rates(GpuTimer(gpu)), model_like(gpu.name, gpu.props).rates
    for name, rate in sheet.items():
        assert 0.5 < rates[name] / rate < 1.2, (name, rates[name], rate)


@pytest.mark.parametrize("kernel", ["flash", "split"])
def test_a_profile_has_the_bytes_of_the_model(hw4, gpu, kernel):
    if shutil.which("ncu") is None or gpu.props.cc < 75:
        pytest.skip("there is no ncu for this GPU")
    result = hw4("profile", kernel, "--shape", "16,4096,64", "--set", "memory", "--format", "json", timeout=300)
    if "ERR_NVGPUCTRPERM" in result.stderr:
        pytest.skip("counters are closed")
    assert result.returncode == 0, result.stderr
    for launch in json.loads(result.stdout)["launches"]:
        ratios = {one["name"]: one["ratio"] for one in launch["metrics"]}
        assert ratios["l2_to_l1"] == pytest.approx(1, abs=0.05), launch["kernel"]
        assert ratios["dram_read"] == pytest.approx(1, abs=0.05), launch["kernel"]

"""The rates of a machine with a GPU, and what they predict."""

import json

import pytest

from hw4cli.stream.gpus import count_here

pytestmark = [pytest.mark.usefixtures("gpu"), pytest.mark.alone]


def test_rates_are_measured_and_predict_files_on_more_gpus(hw4, gpu, tmp_path):
    result = hw4("doctor", "--measure", "--json", "--dir", tmp_path)
    assert result.returncode == 0, result.stdout + result.stderr
    document = json.loads(result.stdout)
    rates, rows = document["measured"], document["predicted"]["rows"]
    assert rates["by"].startswith(f"{gpu.name}, kernel ")
    assert min(rates[name] for name in ("cache_read", "cache_write", "to_gpu", "from_gpu", "flops")) > 1e8
    assert (rates["opening"] > 0) == (count_here() > 1)
    assert 0 < rates["starting"] < 1
    assert [(row["gpus"], row["nodes"]) for row in rows] == [(1, 1), (2, 1), (4, 1), (8, 1), (8, 4), (8, 16)]
    assert min(row["seconds"] for row in rows) > 0
    assert list(tmp_path.iterdir()) == []

"""`hw4 doctor` on a machine with a GPU."""

import json

import pytest

from hw4cli.doctor.probe import probe

pytestmark = pytest.mark.usefixtures("gpu")


@pytest.fixture
def document(hw4):
    result = hw4("doctor", "--json")
    assert result.returncode == 0, result.stdout + result.stderr
    return json.loads(result.stdout)


def test_hw4_will_run_on_the_gpu(document, gpu):
    assert document["runs"] == {"on": "gpu", "device": f"GPU 0, {gpu.name}", "because": ""}


def test_the_kernel_is_compiled_now_and_right(document, gpu):
    line = next(line for line in document["findings"] if line["name"] == "kernel")
    assert line["state"] == "ok"
    assert f"{gpu.name}, compute capability {gpu.props.cc / 10:.1f}: right within" in line["found"]


def test_driver_gpu_and_compiler_are_ok(document):
    states = {line["name"]: line["state"] for line in document["findings"]}
    assert {states[name] for name in ("NVIDIA driver", "GPU 0", "NVRTC", "CUDA headers")} == {"ok"}


def test_the_trial_writes_nothing_into_the_cache(tmp_path, monkeypatch):
    monkeypatch.setenv("CUPY_CACHE_DIR", str(tmp_path))
    monkeypatch.setenv("CUPY_CACHE_IN_MEMORY", "1")
    assert probe()["kernel error"] < 2e-5
    assert not list(tmp_path.iterdir())


def test_a_hidden_gpu_leaves_the_cpu(hw4):
    result = hw4("doctor", env={"CUDA_VISIBLE_DEVICES": "-1"})
    assert result.returncode == 0
    assert result.stdout.splitlines()[-1].startswith("hw4 will run on: the CPU")

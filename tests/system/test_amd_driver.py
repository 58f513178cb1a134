"""AMD's GPUs as /sys shows them: which one a program computes on, its lock, its memory and clock meanwhile."""

import os
import sys
import time

import pytest

from hw4cli.sandbox import gpu
from hw4cli.sandbox.gpu import first_gpu, gpu_lock, gpu_name, watch_gpu
from hw4cli.system import amd, nvidia


@pytest.fixture
def machine(tmp_path, monkeypatch):
    """A machine with a processor and two MI210, whose files a test writes."""
    for node, (version, unique, minor) in enumerate(((0, 0, 0), (90010, 0xA1, 128), (90010, 0xB2, 129))):
        folder = tmp_path / f"sys/class/kfd/kfd/topology/nodes/{node}"
        folder.mkdir(parents=True)
        facts = f"gfx_target_version {version}\nunique_id {unique}\ndrm_render_minor {minor}\n"
        (folder / "properties").write_text(facts)
        if version:
            device = tmp_path / f"sys/class/drm/renderD{minor}/device"
            (device / "hwmon/hwmon3").mkdir(parents=True)
            (device / "mem_info_vram_used").write_text("1073741824\n")
            (device / "hwmon/hwmon3/freq1_input").write_text("1700000000\n")
    monkeypatch.setattr(amd, "ROOT", tmp_path)
    monkeypatch.setattr(gpu, "LOCKS", tmp_path)
    monkeypatch.setattr(gpu, "PERIOD", 0.002)
    monkeypatch.setitem(sys.modules, "pynvml", None)
    monkeypatch.setenv("PATH", str(tmp_path))  # without nvidia-smi
    for known in (nvidia.nvml, nvidia.table):
        known.cache_clear()
    yield tmp_path / "sys/class/drm/renderD129/device"
    for known in (nvidia.nvml, nvidia.table):
        known.cache_clear()


@pytest.mark.parametrize(
    ("env", "uuid"),
    [
        ({}, "GPU-a1"),
        ({"HIP_VISIBLE_DEVICES": "1"}, "GPU-b2"),
        ({"CUDA_VISIBLE_DEVICES": "1,0"}, "GPU-b2"),
        ({"HIP_VISIBLE_DEVICES": "0", "CUDA_VISIBLE_DEVICES": "1"}, "GPU-a1"),
        ({"ROCR_VISIBLE_DEVICES": "GPU-b2"}, "GPU-b2"),
        ({"ROCR_VISIBLE_DEVICES": "1", "HIP_VISIBLE_DEVICES": "0"}, "GPU-b2"),
        ({"ROCR_VISIBLE_DEVICES": "1", "HIP_VISIBLE_DEVICES": "1"}, None),
        ({"HIP_VISIBLE_DEVICES": "-1"}, None),
        ({"HIP_VISIBLE_DEVICES": ""}, None),
    ],
)
def test_the_gpu_of_a_program_is_found_as_rocm_and_hip_find_it(machine, env, uuid):
    found = amd.first_visible(env)
    assert (found and found.uuid) == uuid
    assert gpu_name(env) == (uuid and f"amd-{uuid}")


def test_one_program_at_a_time_runs_on_a_gpu_whose_memory_and_clock_are_recorded(machine, tmp_path):
    env = {"HIP_VISIBLE_DEVICES": "1"}
    with gpu_lock(env, pytest.fail), watch_gpu(env) as usage:
        time.sleep(0.05)
        (machine / "mem_info_vram_used").write_text(str(3 << 30))
        (machine / "hwmon/hwmon3/freq1_input").write_text("800000000\n")
        time.sleep(0.2)
    assert (usage.memory, usage.clock, usage.note) == (2 << 30, 800, None)
    assert (tmp_path / "hw4-gpu-amd-GPU-b2.lock").exists()


def test_a_record_of_judging_names_the_gpu(machine, monkeypatch):
    for name in ("ROCR_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES", "CUDA_VISIBLE_DEVICES"):
        monkeypatch.delenv(name, raising=False)
    assert first_gpu() == {"name": "AMD gfx90a", "uuid": "GPU-a1"}


def test_files_that_are_not_there_are_unknown(machine):
    os.unlink(machine / "mem_info_vram_used")  # noqa: PTH108
    (machine / "hwmon/hwmon3/freq1_input").write_text("N/A\n")
    with watch_gpu({"HIP_VISIBLE_DEVICES": "1"}) as usage:
        time.sleep(0.05)
    assert (usage.memory, usage.clock) == (None, None)

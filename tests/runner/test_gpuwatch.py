"""The GPU during a run: one program at a time, and what a (made-up) NVML tells of it."""

import multiprocessing
import os
import stat
import sys
import time

import pytest
from fakenvml import FakeNvml

from hw4cli.errors import MachineError
from hw4cli.runner import gpulock, gpuwatch
from hw4cli.runner.gpulock import gpu_lock, gpu_name
from hw4cli.runner.gpuwatch import watched
from hw4cli.system import nvidia

GPU = {"CUDA_VISIBLE_DEVICES": "0"}


@pytest.fixture(autouse=True)
def own_locks(tmp_path, monkeypatch):
    monkeypatch.setattr(gpulock, "LOCKS", tmp_path)
    monkeypatch.setattr(gpuwatch, "PERIOD", 0.002)
    monkeypatch.setitem(sys.modules, "pynvml", None)
    for known in (nvidia.nvml, nvidia.table):
        known.cache_clear()
    yield
    for known in (nvidia.nvml, nvidia.table):
        known.cache_clear()


@pytest.fixture
def nvml(monkeypatch):
    fake = FakeNvml()
    monkeypatch.setitem(sys.modules, "pynvml", fake)
    return fake


def test_where_the_driver_cannot_be_asked_a_gpu_is_what_the_environment_calls_it():
    assert gpu_name(GPU) == "0"
    assert gpu_name({"CUDA_VISIBLE_DEVICES": "3,1"}) == "3"
    assert gpu_name({"CUDA_VISIBLE_DEVICES": "GPU-12-ab"}) == "GPU-12-ab"
    assert gpu_name({"CUDA_VISIBLE_DEVICES": "MIG-GPU-12-ab/1/0"}) == "MIG-GPU-12-ab/1/0"
    for none in ("", "-1", "../x"):
        assert gpu_name({"CUDA_VISIBLE_DEVICES": none}) is None


def test_without_a_gpu_there_is_no_lock_and_nothing_is_told(tmp_path):
    env = {"CUDA_VISIBLE_DEVICES": "-1"}
    with gpu_lock(env, pytest.fail), watched(env) as sight:
        pass
    assert not list(tmp_path.iterdir())
    assert (sight.memory, sight.clock, sight.note) == (None, None, None)


@pytest.mark.parametrize("works", [True, False])
def test_without_nvml_the_lock_goes_by_the_index(tmp_path, monkeypatch, works):
    if not works:
        monkeypatch.setitem(sys.modules, "pynvml", FakeNvml(works=False))
    with gpu_lock(GPU, pytest.fail), watched(GPU) as sight:
        [lock] = tmp_path.iterdir()
    assert lock.name == "hw4-gpu-0.lock"
    assert sight.memory is None


def test_nvml_tells_peak_memory_clock_and_what_disturbed(nvml):
    nvml.others = [object()]
    with watched(GPU) as sight:
        time.sleep(0.05)
        nvml.used, nvml.clock, nvml.throttled = 3 << 30, 1200, 0x4 | 0x1
        time.sleep(0.15)
        nvml.used = 2 << 30
        time.sleep(0.05)
    assert sight.memory == 2 << 30
    assert sight.clock == 1200
    assert sight.note == "1 other process was on the GPU; the GPU's clock was held down: power cap"


def test_what_nvml_does_not_know_is_left_out(nvml):
    nvml.clock = None
    with watched(GPU) as sight:
        time.sleep(0.05)
    assert (sight.memory, sight.clock, sight.note) == (0, None, None)
    with watched({"CUDA_VISIBLE_DEVICES": "7"}) as sight:
        pass
    assert sight.memory is None


def test_index_and_uuid_are_one_lock_where_nvml_answers(nvml, tmp_path):
    for name in ("0", "GPU-12-ab"):
        with gpu_lock({"CUDA_VISIBLE_DEVICES": name}, pytest.fail):
            pass
    assert [path.name for path in tmp_path.iterdir()] == ["hw4-gpu-GPU-12-ab.lock"]


def hold(folder, held, release):
    gpulock.LOCKS = folder
    with gpu_lock(GPU, print):
        held.set()
        release.wait(60)


@pytest.mark.parametrize("end", ["leaves", "is killed"])
def test_a_second_judge_waits_and_says_so_until_the_first_leaves_or_dies(tmp_path, end):
    context = multiprocessing.get_context("spawn")
    held, release = context.Event(), context.Event()
    other = context.Process(target=hold, args=(tmp_path, held, release))
    other.start()
    assert held.wait(60)
    said = []

    def say(words):
        said.append(words)
        assert other.is_alive()
        other.kill() if end == "is killed" else release.set()

    with gpu_lock(GPU, say):
        assert said == ["waiting for GPU 0: another judge is running a program on it"]
    other.join()


def test_other_gpus_are_not_waited_for(tmp_path):
    with gpu_lock(GPU, pytest.fail), gpu_lock({"CUDA_VISIBLE_DEVICES": "1"}, pytest.fail):
        assert len(list(tmp_path.iterdir())) == 2


def test_anyone_may_lock_and_nobody_can_write(tmp_path):
    old = os.umask(0o077)
    try:
        with gpu_lock(GPU, pytest.fail):
            pass
    finally:
        os.umask(old)
    [lock] = tmp_path.iterdir()
    assert stat.S_IMODE(lock.stat().st_mode) == 0o444
    with gpu_lock(GPU, pytest.fail):
        assert lock.stat().st_size == 0


@pytest.mark.parametrize("trap", ["link", "pipe", "folder"])
def test_what_someone_put_in_the_locks_place_is_not_touched(tmp_path, trap):
    victim, place = tmp_path / "victim", tmp_path / "hw4-gpu-0.lock"
    victim.write_text("mine")
    {"link": lambda: place.symlink_to(victim), "pipe": lambda: os.mkfifo(place), "folder": place.mkdir}[trap]()
    with pytest.raises(MachineError, match="lock"), gpu_lock(GPU, pytest.fail):
        pass
    assert victim.read_text() == "mine"

"""The GPU during a run: its lock, and its use as a fake NVML reports it."""

import errno
import fcntl
import multiprocessing
import os
import stat
import sys
import time

import pytest
from fakenvml import FakeNvml

from hw4cli.sandbox import gpu
from hw4cli.sandbox.gpu import gpu_lock, gpu_name, watch_gpu
from hw4cli.system import nvidia

GPU = {"CUDA_VISIBLE_DEVICES": "0"}


@pytest.fixture(autouse=True)
def own_locks(tmp_path, tmp_path_factory, monkeypatch):
    own = tmp_path_factory.mktemp("own")
    monkeypatch.setattr(gpu, "LOCKS", tmp_path)
    monkeypatch.setattr(gpu, "own_folder", lambda: own)
    monkeypatch.setattr(gpu, "_without", set())
    monkeypatch.setattr(gpu, "PERIOD", 0.002)
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


def test_without_a_driver_the_gpu_is_named_as_in_the_environment():
    assert gpu_name(GPU) == "0"
    assert gpu_name({"CUDA_VISIBLE_DEVICES": "3,1"}) == "3"
    assert gpu_name({"CUDA_VISIBLE_DEVICES": "GPU-12-ab"}) == "GPU-12-ab"
    assert gpu_name({"CUDA_VISIBLE_DEVICES": "MIG-GPU-12-ab/1/0"}) == "MIG-GPU-12-ab/1/0"
    for none in ("", "-1", "../x"):
        assert gpu_name({"CUDA_VISIBLE_DEVICES": none}) is None


def test_without_a_gpu_there_is_no_lock_and_no_usage(tmp_path):
    env = {"CUDA_VISIBLE_DEVICES": "-1"}
    with gpu_lock(env, pytest.fail), watch_gpu(env) as usage:
        pass
    assert not list(tmp_path.iterdir())
    assert (usage.memory, usage.clock, usage.note) == (None, None, None)


@pytest.mark.parametrize("works", [True, False])
def test_without_nvml_the_lock_is_named_by_the_index(tmp_path, monkeypatch, works):
    if not works:
        monkeypatch.setitem(sys.modules, "pynvml", FakeNvml(works=False))
    with gpu_lock(GPU, pytest.fail), watch_gpu(GPU) as usage:
        [lock] = tmp_path.iterdir()
    assert lock.name == "hw4-gpu-0.lock"
    assert usage.memory is None


def test_nvml_gives_peak_memory_clock_and_disturbances(nvml):
    nvml.others = [object()]
    with watch_gpu(GPU) as usage:
        time.sleep(0.05)
        nvml.used, nvml.clock, nvml.throttled = 3 << 30, 1200, 0x4 | 0x1
        time.sleep(0.15)
        nvml.used = 2 << 30
        time.sleep(0.05)
    assert usage.memory == 2 << 30
    assert usage.clock == 1200
    assert usage.note == "1 other process was on the GPU; the GPU's clock was throttled: power cap"


def test_values_that_nvml_does_not_know_are_none(nvml):
    nvml.clock = None
    with watch_gpu(GPU) as usage:
        time.sleep(0.05)
    assert (usage.memory, usage.clock, usage.note) == (0, None, None)
    with watch_gpu({"CUDA_VISIBLE_DEVICES": "7"}) as usage:
        pass
    assert usage.memory is None


def test_index_and_uuid_are_one_lock_where_nvml_answers(nvml, tmp_path):
    for name in ("0", "GPU-12-ab"):
        with gpu_lock({"CUDA_VISIBLE_DEVICES": name}, pytest.fail):
            pass
    assert [path.name for path in tmp_path.iterdir()] == ["hw4-gpu-GPU-12-ab.lock"]


def hold(folder, own, held, release):
    gpu.LOCKS, gpu.own_folder = folder, lambda: own
    with gpu_lock(GPU, print):
        held.set()
        release.wait(60)


@pytest.mark.parametrize("whose", ["ours", "another user's"])
@pytest.mark.parametrize("end", ["ends", "is killed"])
def test_a_second_judge_waits_with_a_message_until_the_first_ends_or_is_killed(tmp_path, end, whose):
    context = multiprocessing.get_context("spawn")
    held, release = context.Event(), context.Event()
    own = gpu.own_folder() if whose == "ours" else None
    other = context.Process(target=hold, args=(tmp_path, own, held, release))
    other.start()
    assert held.wait(60)
    messages = []

    def say(message):
        messages.append(message)
        assert other.is_alive()
        other.kill() if end == "is killed" else release.set()

    with gpu_lock(GPU, say):
        assert messages == ["waiting for GPU 0: another judge is running a program on it"]
    other.join()


def test_other_gpus_are_not_waited_for(tmp_path):
    with gpu_lock(GPU, pytest.fail), gpu_lock({"CUDA_VISIBLE_DEVICES": "1"}, pytest.fail):
        assert len(list(tmp_path.iterdir())) == 2


def test_every_user_may_lock_and_nobody_can_write(tmp_path):
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


@pytest.mark.parametrize("kind", ["link", "pipe", "folder"])
def test_another_file_under_the_name_of_all_users_lock_is_left_alone_and_not_waited_for(tmp_path, kind):
    victim, path = tmp_path / "victim", tmp_path / "hw4-gpu-0.lock"
    victim.write_text("mine")
    {"link": lambda: path.symlink_to(victim), "pipe": lambda: os.mkfifo(path), "folder": path.mkdir}[kind]()
    messages = []
    for _ in range(2):
        with gpu_lock(GPU, messages.append):
            assert list(gpu.own_folder().iterdir()), "our own judges wait for each other all the same"
    assert len(messages) == 1, "it is said once"
    assert str(path) in messages[0]
    assert messages[0].endswith("judges of other users are not waited for")
    assert victim.read_text() == "mine"


def test_where_a_file_system_has_no_locks_programs_run_without_one(monkeypatch):
    def refuses(file, operation):
        raise OSError(errno.EBADF, os.strerror(errno.EBADF))  # as NFS does

    monkeypatch.setattr(fcntl, "flock", refuses)
    with gpu_lock(GPU, pytest.fail):
        pass


def test_where_our_own_lock_cannot_be_made_that_of_all_users_serves(tmp_path, monkeypatch):
    monkeypatch.setattr(gpu, "own_folder", lambda: tmp_path / "removed meanwhile")
    with gpu_lock(GPU, pytest.fail):
        [lock] = tmp_path.iterdir()
        with lock.open() as file, pytest.raises(BlockingIOError):
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)


def test_another_user_who_keeps_the_lock_delays_the_judge_once_and_not_for_ever(tmp_path, monkeypatch):
    monkeypatch.setattr(gpu, "PATIENCE", 0.1)
    path, messages = tmp_path / "hw4-gpu-0.lock", []
    path.touch()
    with path.open() as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        for _ in range(2):
            with gpu_lock(GPU, messages.append):
                pass
    assert len(messages) == 2, "the second run does not wait again"
    assert messages[1].startswith(f"{path} has been held for ")
    assert "going on without it" in messages[1]


def test_the_folder_of_our_own_locks_is_closed_to_others(tmp_path, monkeypatch):
    monkeypatch.undo()
    monkeypatch.setenv("HOME", str(tmp_path))
    folder = gpu.own_folder()
    status = folder.stat()
    assert (status.st_uid, status.st_mode & 0o077) == (os.geteuid(), 0)
    cache = gpu._cache()
    assert os.uname().nodename in cache.name

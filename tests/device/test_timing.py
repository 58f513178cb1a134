"""What the benchmark's clock measures, on a GPU that is made up: the kernel's time, and never the host's."""

import json
import time
from types import SimpleNamespace

import pytest
from helpers import ROOT

import hw4cli.device.timing
from hw4cli.device.energy import PowerMeter, mean_watts
from hw4cli.device.timing import MOST_FLUSHES, GpuTimer
from hw4cli.lab.cases import FileCase
from hw4cli.lab.contender import finished
from hw4cli.lab.kernels import FileKernel
from hw4cli.lab.sampling import Measurement, without_rest
from hw4cli.problem.workload import Shape

CASE = FileCase("t01", Shape(320, 128, 32), 0)
FLUSH, KERNEL = 0.2, 0.01  # ms on the GPU


class FakeGpu:
    """A host and a GPU with a queue between them. Times in ms; `now` is the host's, `free` when the queue is empty."""

    def __init__(self):
        self.now = self.free = 0.0
        self.cupy = self
        self.cuda = self
        self.uint8 = "uint8"
        self.Stream = SimpleNamespace(null=None)

    def Device(self):  # noqa: N802
        return SimpleNamespace(attributes={"MaxThreadsPerMultiProcessor": 2048})

    def empty(self, size, dtype):
        return SimpleNamespace(data=SimpleNamespace(memset_async=lambda *_: self.launch(FLUSH, 0.002)))

    def launch(self, gpu, host):
        """Hand over something that the GPU needs `gpu` for, and the host `host` to say so."""
        self.now += host
        self.free = max(self.free, self.now) + gpu

    def Event(self):  # noqa: N802
        return FakeEvent(self)

    def get_elapsed_time(self, start, end):
        return end.at - start.at


class FakeEvent:
    def __init__(self, gpu):
        self.gpu = gpu

    def record(self):
        self.at = max(self.gpu.free, self.gpu.now)

    @property
    def done(self):
        return self.at <= self.gpu.now

    def synchronize(self):
        self.gpu.now = max(self.gpu.now, self.at)


@pytest.fixture
def gpu(monkeypatch):
    gpu = FakeGpu()
    monkeypatch.setattr(hw4cli.device.timing.time, "perf_counter", lambda: gpu.now / 1000)
    return gpu


def launches(gpu, count, host):
    """Work of so many kernels, each of which costs the host so much."""

    def work():
        for _ in range(count):
            gpu.launch(KERNEL, host)

    return work


@pytest.mark.parametrize("cold", [True, False])
@pytest.mark.parametrize("host", [0.001, 0.03, 0.5, 1.2])
def test_a_kernels_time_is_the_gpus_however_long_the_host_takes_to_launch_it(gpu, host, cold):
    """A framework's launches take many times as long as ours: its short rows would look slow, and ours fast."""
    sample = GpuTimer(gpu).sample(launches(gpu, 3, host), cold)
    assert sample.gpu == pytest.approx(3 * KERNEL)
    assert sample.host == pytest.approx(3 * host)
    assert sample.host < sample.flush
    assert not sample.late


def test_a_host_that_is_slower_than_the_longest_flush_is_reported(gpu):
    timer = GpuTimer(gpu)
    work = launches(gpu, 2, 2 * FLUSH * MOST_FLUSHES)
    sample = timer.sample(work, cold=True)
    assert sample.late
    measurement = Measurement("slow", lambda *_: None, {}, 0.0, [timer.sample(work, cold=True) for _ in range(3)])
    row = finished(measurement, CASE, FileKernel(timer, measurement.name, CASE))
    assert row.reason == "3 samples with time of the host, 51 ms to enqueue the work"
    assert row.host_ms > row.flush_ms


def test_a_row_tells_how_long_the_host_took_and_what_hid_it(gpu):
    timer = GpuTimer(gpu)
    measurement = Measurement("flash", lambda *_: None, {}, 0.0, [timer.sample(launches(gpu, 1, 0.03), cold=True)])
    row = finished(measurement, CASE, FileKernel(timer, measurement.name, CASE))
    assert (row.reason, row.median) == ("", pytest.approx(KERNEL))
    assert row.host_ms == pytest.approx(0.03)
    assert row.flush_ms == pytest.approx(FLUSH, rel=0.1)


def test_one_hiccup_of_the_system_makes_no_flush_longer(gpu):
    hiccups = iter([5.0])
    timer = GpuTimer(gpu)
    sample = timer.sample(lambda: gpu.launch(KERNEL, next(hiccups, 0.001)), cold=True)
    assert sample.gpu == pytest.approx(KERNEL)
    assert sample.flush == pytest.approx(FLUSH, rel=0.1)


def test_all_subjects_have_the_same_flush_once_one_needs_it(gpu):
    timer = GpuTimer(gpu)
    slow = timer.sample(launches(gpu, 1, 1.0), cold=True)
    fast = timer.sample(launches(gpu, 1, 0.001), cold=True)
    assert fast.flush == pytest.approx(slow.flush)


def test_no_record_holds_a_time_that_contains_the_hosts():
    for path in (ROOT / "benchmarks").glob("*.json"):
        for row in json.loads(path.read_text())["rows"]:
            assert "hold time of the host" not in row["reason"], (path.name, row["case"])
            assert (row.get("host_ms") or 0) <= (row.get("flush_ms") or 0), (path.name, row["case"])


def test_runs_without_rest_are_as_long_as_the_gpu_takes(gpu):
    found = GpuTimer(gpu).sustained(launches(gpu, 2, 0.001), 0.5)
    assert found == {"sustained_ms": pytest.approx(2 * KERNEL, rel=0.02), "watts": None, "sm_mhz": None}


def test_runs_that_the_host_hands_over_too_slowly_have_no_such_time(gpu):
    assert GpuTimer(gpu).sustained(launches(gpu, 1, 0.5), 0.5)["sustained_ms"] is None


def readings(step, seconds=1.0, every=0.01, ramp=0.2, watts=600.0):
    """Readings of a counter of energy that moves in steps, of work whose power grows at first."""

    def energy(now):
        return int(1000 * watts * (now - min(now, ramp) / 2))

    times = [every * n for n in range(1, round(seconds / every) + 1)]
    return [(now, energy(now // step * step) if step else energy(now)) for now in times]


@pytest.mark.parametrize("step", [0, 0.02, 0.1])
def test_power_is_what_the_counter_rises_by_from_step_to_step_once_it_is_steady(step):
    assert mean_watts(readings(step)) == pytest.approx(600, rel=0.01)


def test_too_few_steps_of_the_counter_or_none_are_no_power():
    assert mean_watts(readings(0.45)) is None
    assert mean_watts([(0.01 * n, 5) for n in range(100)]) is None
    assert mean_watts([]) is None


class Counter:
    """NVML's part about energy: 500 W, in steps of 20 ms, and an answer takes 10 ms."""

    NVML_CLOCK_SM = 1

    def nvmlDeviceGetTotalEnergyConsumption(self, _):  # noqa: N802
        time.sleep(0.01)
        return int(time.monotonic() // 0.02 * 0.02 * 500_000)

    def nvmlDeviceGetClockInfo(self, *_):  # noqa: N802
        return 1500


def test_power_is_read_beside_the_work_however_long_an_answer_takes():
    """Of a thread that does not run for a while, on a busy machine, readings come late, but not in four seconds."""

    def watts():
        with PowerMeter(lambda question: question(Counter(), None)) as meter:
            time.sleep(1)
        assert meter.sm_mhz == 1500
        return meter.watts

    assert any(watts() == pytest.approx(500, rel=0.1) for _ in range(4))


def test_a_run_without_rest_has_the_energy_that_nvml_counts(gpu, monkeypatch):
    monkeypatch.setattr(PowerMeter, "watts", 500.0)
    found = without_rest(GpuTimer(gpu), launches(gpu, 2, 0.001), flops=4e9)
    joules = 500 * 2 * KERNEL / 1000
    assert found["joules"] == pytest.approx(joules, rel=0.04)
    assert found["gflop_per_joule"] == pytest.approx(4 / joules, rel=0.04)


def test_without_nvml_a_run_has_a_time_and_no_energy(gpu):
    found = without_rest(GpuTimer(gpu), launches(gpu, 2, 0.001), flops=4e9)
    assert found["sustained_ms"] == pytest.approx(2 * KERNEL, rel=0.02)
    assert (found["watts"], found["joules"], found["gflop_per_joule"]) == (None, None, None)

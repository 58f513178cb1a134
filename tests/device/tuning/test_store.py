"""What was tuned: kept for a GPU, a driver, a compiler and a workload, and gone by for these alone."""

import json
import math
import os
import re
import subprocess
import sys
from types import SimpleNamespace

import pytest
from helpers import HANGS

import hw4cli
import hw4cli.device.tuning.store
import hw4cli.stream.cudadevice
from hw4cli.device.tuning.measured import TUNED
from hw4cli.device.tuning.store import Finding, Machine, found, keep, path_of, workload
from hw4cli.lab.measure.gpus import model_for, model_like
from hw4cli.plans.dispatch import AUTO, candidates
from hw4cli.plans.ladder import VARIANTS
from hw4cli.plans.plan import DEVICES
from hw4cli.problem.workload import Shape
from hw4cli.stream.cudadevice import CudaDevice
from hw4cli.stream.layout import Layout
from hw4cli.stream.timeline import Timeline
from hw4cli.stream.work import Part

MACHINE = Machine("NVIDIA H100 80GB HBM3", 13000, "123 456")
SHAPE = Shape(4, 1024, 64)
PART = Part(0, 2, 0, SHAPE.N)
FINDING = Finding(("flash", "split"), {"flash": {"BR": 128, "BC": 64}}, "2026-11-22")


@pytest.fixture(autouse=True)
def own_cache(monkeypatch, tmp_path):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))


def test_a_finding_is_kept_beside_others():
    assert found(MACHINE, SHAPE) is None
    keep(MACHINE, SHAPE, FINDING)
    keep(MACHINE, Shape(1, 128, 32), Finding(("split",), {}, "2026-11-23"))
    assert found(MACHINE, SHAPE) == FINDING
    assert found(MACHINE, Shape(1, 128, 32)).kernels == ("split",)


@pytest.mark.parametrize("other", [Machine("T4", 13000, "123 456"), Machine(MACHINE.gpu, 12090, "123 456")])
def test_with_another_gpu_or_driver_nothing_is_found(other):
    keep(MACHINE, SHAPE, FINDING)
    assert found(other, SHAPE) is None


def test_with_another_compiler_nothing_is_found_and_what_is_new_replaces_the_old():
    keep(MACHINE, SHAPE, FINDING)
    newer = Machine(MACHINE.gpu, MACHINE.driver, "789 1")
    assert found(newer, SHAPE) is None
    keep(newer, Shape(1, 128, 32), FINDING)
    assert found(newer, SHAPE) is None
    assert found(newer, Shape(1, 128, 32)) == FINDING


def test_workloads_are_alike_by_length_head_size_mask_and_rows_within_a_power_of_two():
    assert workload(Shape(4, 16384, 64)) == workload(Shape(7, 16384, 64))
    others = [Shape(8, 16384, 64), Shape(4, 16383, 64), Shape(4, 16384, 32), Shape(4, 16384, 64, causal=True)]
    assert workload(SHAPE) not in {workload(other) for other in others}


KEEPS_FINDINGS = """
import sys
from hw4cli.problem.workload import Shape
from hw4cli.device.tuning.store import Finding, Machine, keep

for N in range(int(sys.argv[1]), 60, 3):
    keep(Machine("T4", 13000, "1 2"), Shape(1, 128 + N, 32), Finding(("flash",)))
"""


def test_what_processes_keep_at_the_same_time_is_all_there():
    keepers = [subprocess.Popen([sys.executable, "-c", KEEPS_FINDINGS, str(n)]) for n in range(3)]
    assert [keeper.wait(HANGS) for keeper in keepers] == [0, 0, 0]
    assert len(json.loads(path_of("T4").read_text())["workloads"]) == 60


def test_what_another_version_of_hw4_found_does_not_count(monkeypatch):
    keep(MACHINE, SHAPE, FINDING)
    monkeypatch.setattr(hw4cli, "__version__", "99.0")
    assert found(MACHINE, SHAPE) is None
    keep(MACHINE, SHAPE, FINDING)
    assert found(MACHINE, SHAPE) == FINDING


def test_a_pipe_in_the_findings_place_is_as_if_there_were_none():
    path_of(MACHINE.gpu).parent.mkdir(parents=True)
    os.mkfifo(path_of(MACHINE.gpu))
    assert found(MACHINE, SHAPE) is None


@pytest.mark.parametrize(
    "text", ["", "{", "[]", "{}", "[" * 100_000, '{"schema": 1}', '{"schema": 1, "machine": null}']
)
def test_a_damaged_file_is_as_if_there_were_none(text):
    keep(MACHINE, SHAPE, FINDING)
    path = path_of(MACHINE.gpu)
    path.write_text(text)
    assert found(MACHINE, SHAPE) is None
    keep(MACHINE, SHAPE, FINDING)
    document = json.loads(path.read_text())
    for entry in (
        None,
        {},
        {"kernels": 3, "tiles": {}, "date": ""},
        {"kernels": "flash", "tiles": {}, "date": ""},
        {"kernels": [], "tiles": {"flash": 7}, "date": ""},
        {"kernels": ["flash"], "tiles": {"flash": {"BR": math.inf, "BC": 32}}, "date": ""},
        {"kernels": ["flash"], "tiles": {"flash": {"BR": 0, "BC": 32}}, "date": ""},
        {"kernels": ["flash"], "tiles": {"flash": {"BC": 32}}, "date": ""},
    ):
        path.write_text(json.dumps({**document, "workloads": {workload(SHAPE): entry}}))
        assert found(MACHINE, SHAPE) is None
    keep(MACHINE, SHAPE, FINDING)
    assert found(MACHINE, SHAPE) == FINDING


def test_auto_prefers_what_was_tuned_and_says_so():
    order, why = candidates(AUTO, DEVICES[90], "", 64, 1024, tuned=(FINDING.kernels, FINDING.why))
    assert order == ("flash", "split", "exact", "float64")
    assert why == "tuned on this GPU for this workload on 2026-11-22"
    assert candidates("exact", DEVICES[90], "", 64, 1024, tuned=(FINDING.kernels, FINDING.why))[0][0] == "exact"
    odd = candidates(AUTO, DEVICES[90], "", 64, 1024, tuned=(("gone", "./mine.cu"), "tuned"))[0]
    assert odd == ("split", "exact", "flash", "float64")


class RecordingGpu:
    """A GPU that only plans."""

    name, props = MACHINE.gpu, DEVICES[90]

    def __init__(self):
        self.code = SimpleNamespace(driver=MACHINE.driver, compiler_id=MACHINE.compiler, is_kept=lambda kernel: True)
        runtime = SimpleNamespace(memGetInfo=lambda: (1 << 34, 1 << 34))
        self.cupy = SimpleNamespace(cuda=SimpleNamespace(runtime=runtime))

    def plan(self, kernel, shape, tile=None):
        return VARIANTS[kernel].plan(shape, self.props, tile)


def test_a_run_takes_the_tuned_kernel_and_tile_where_it_chooses_itself(monkeypatch):
    monkeypatch.setattr(hw4cli.stream.cudadevice, "Gpu", RecordingGpu)
    monkeypatch.setattr(hw4cli.stream.cudadevice, "import_cupy", lambda: None)
    keep(MACHINE, SHAPE, FINDING)

    def device(kernel, shape):
        return CudaDevice(kernel, None, shape, Layout(2, 1, 1, 1, 1, shape.N), Timeline())

    tuned = device(AUTO, SHAPE)
    assert tuned.choice.first == "flash"
    assert tuned.choice.why == FINDING.why
    assert tuned.plan("flash", PART).macros["BC"] == 64
    assert tuned.plan("exact", PART).macros["BR"] == 256
    assert device("flash", SHAPE).plan("flash", PART).macros["BC"] == 32
    assert device(AUTO, Shape(4, 8192, 64)).choice.first == "split8"


def test_what_was_tuned_without_the_kernel_that_is_known_to_be_faster_says_nothing_of_it():
    without, both = ("split", "exact", "flash"), ("split", "split8", "exact", "flash")
    first = {
        kernels: candidates(AUTO, DEVICES[90], "", 64, 8192, tuned=(kernels, "tuned"))[0][0]
        for kernels in (without, both)
    }
    assert first == {without: "split8", both: "split"}


def test_where_nothing_was_tuned_what_was_found_on_a_gpu_of_this_name_counts(monkeypatch):
    known = {workload(SHAPE): (("exact", "flash"), {"exact": {"BR": 64, "BC": 64}}, "2026-11-20")}
    monkeypatch.setattr(hw4cli.device.tuning.store, "TUNED", {MACHINE.gpu: known})
    newer = Machine(MACHINE.gpu, 14000, "789 1")
    assert found(newer, SHAPE).kernels == ("exact", "flash")
    assert found(newer, SHAPE).tiles == {"exact": {"BR": 64, "BC": 64}}
    assert found(newer, SHAPE).why == "tuned on an NVIDIA H100 80GB HBM3 for this workload on 2026-11-20"
    assert found(newer, Shape(4, 8192, 64)) is None
    assert found(Machine("T4", 14000, "789 1"), SHAPE) is None
    keep(newer, SHAPE, FINDING)
    assert found(newer, SHAPE) == FINDING


def test_what_is_committed_can_be_planned_where_it_counts():
    for gpu, workloads in TUNED.items():
        props = model_like(gpu, DEVICES[model_for(gpu, 90).cc]).props
        for name, (kernels, tiles, _) in workloads.items():
            N, d, rows = (int(number) for number in re.fullmatch(r"N=(\d+) d=(\d+) rows=2\^(\d+).*", name).groups())
            shape = Shape(max(1, (1 << rows) // N), N, d, causal=name.endswith("causal"))
            assert {"split", "exact", "flash"} == {*kernels} - {"split8"}
            for kernel in kernels:
                plan = VARIANTS[kernel].plan(shape, props, tiles.get(kernel))
                assert all(launch.shared <= props.shared_limit for launch in plan.launches), (gpu, name, kernel)

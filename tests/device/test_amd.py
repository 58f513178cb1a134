"""On an AMD GPU, which is not there: cupy for ROCm is a fake one, but HIP's compiler is real, and kernels execute on
the CPU with 64 lanes."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from helpers import ROOT, definition, fails, random_block, read_output, write_case
from needs import COMPILER, needs
from slow import slow

from hw4cli.device.hip import hiprtc
from hw4cli.device.hip.device import properties
from hw4cli.errors import MachineError
from hw4cli.problem.workload import Shape

try:
    hiprtc.HipCompiler(hiprtc.find(), "gfx90a")
except MachineError as reason:
    pytestmark = pytest.mark.skip(reason=f"needs hiprtc: {reason}")


@pytest.fixture(scope="module")
def cache(tmp_path_factory):
    """A folder for compiled kernels, which these tests share: it has none, but the CPU's runtime, which takes 12 s,
    where other tests have compiled that."""
    folder = tmp_path_factory.mktemp("kernels")
    for path in Path(os.environ.get("CUPY_CACHE_DIR", folder)).glob("hw4-emulator-*.o"):
        shutil.copy(path, folder)
    return folder


@pytest.fixture
def amd(tmp_path, cache):
    """The environment with that cupy."""
    package = tmp_path / "site/cupy/__init__.py"
    package.parent.mkdir(parents=True)
    package.write_text("from fakerocm import *\nfrom fakerocm import __version__\n")
    path = [str(ROOT), str(ROOT / "tests/support"), str(tmp_path / "site")]
    return {"PYTHONPATH": os.pathsep.join(path), "CUPY_CACHE_DIR": str(cache)}


@slow
@needs(COMPILER)
def test_a_first_run_of_a_small_file_does_not_wait_for_the_compiler_of_its_kernel(hw4_started, tmp_path, amd, cache):
    """Real hipRTC, real processes: float64 answers, until somebody has compiled flash."""
    block, shape = random_block(2, 131, 36), Shape(2, 131, 36)
    source, target = write_case(tmp_path / "in", block), tmp_path / "out"

    def run(*words):
        result = hw4_started("--device", "cuda", "--timing", *words, source, target, env=amd)
        assert result.returncode == 0, result.stderr
        return " ".join(result.stderr.split()), np.abs(read_output(target, shape) - definition(block)).max()

    said, error = run()
    assert "2 batches by float64" in said
    assert "preferred flash: predicted to be the fastest on gfx90a, but not compiled (`hw4 doctor" in said
    assert error < 1e-6
    assert len(list(cache.glob("hw4-*.hsaco"))) == 1
    said, _ = run("--kernel", "flash")
    assert "2 batches by flash" in said
    said, error = run()
    assert "2 batches by flash" in said
    assert said.endswith("preferred flash: predicted to be the fastest on gfx90a")
    assert error < 1e-5


@slow
@needs(COMPILER)
def test_scores_that_are_too_large_are_computed_in_float64(hw4_started, tmp_path, amd):
    block = random_block(1, 40, 4)
    block[0, :2] *= 1e18
    source = write_case(tmp_path / "in", block)
    result = hw4_started("--device", "cuda", "--kernel", "flash", source, tmp_path / "out", env=amd)
    assert (result.returncode, result.stderr.count("1 in float64")) == (0, 1)
    assert np.isfinite(read_output(tmp_path / "out", Shape(1, 40, 4))).all()


def test_a_kernel_for_nvidias_tensor_cores_is_refused_in_one_sentence(hw4_started, tmp_path, amd):
    source = write_case(tmp_path / "in", random_block(1, 8, 32))
    result = hw4_started("--device", "cuda", "--kernel", "split", source, tmp_path / "out", env=amd)
    fails(result, 3, "kernel split needs compute capability 8.0, this GPU is gfx90a")
    assert not (tmp_path / "out").exists()


def test_without_a_gpu_auto_says_so_and_computes_on_the_cpu(hw4_started, tmp_path, amd):
    block, alone = random_block(2, 30, 8), {**amd, "FAKE_ROCM": "no GPU"}
    source, sentence = write_case(tmp_path / "in", block), "no GPU can be used: there is no AMD GPU here"
    fails(hw4_started("--device", "cuda", source, tmp_path / "out", env=alone), 3, sentence)
    result = hw4_started(source, tmp_path / "out", env=alone)
    assert (result.returncode, result.stderr) == (0, f"hw4: {sentence}; using the CPU\n")
    assert np.abs(read_output(tmp_path / "out", Shape(2, 30, 8)) - definition(block)).max() < 1e-5


@slow
@needs(COMPILER)
def test_the_doctor_compiles_and_runs_a_kernel_there(hw4_started, amd):
    document = json.loads(hw4_started("doctor", "--json", env=amd).stdout)
    lines = {line["name"]: line for line in document["findings"]}
    assert (lines["hiprtc"]["state"], lines["kernel"]["state"]) == ("ok", "ok")
    assert lines["kernel"]["found"].startswith("compiled and run on AMD Instinct MI210, gfx90a: right within")
    assert document["runs"]["on"] == "gpu"


@pytest.mark.parametrize(("name", "lanes"), [(b"gfx90a:sramecc+:xnack-", 64), ("gfx1100", 32), (b"gfx942", 64)])
def test_the_width_of_a_wavefront_is_the_architectures(name, lanes):
    facts = {"gcnArchName": name, "multiProcessorCount": 8, "sharedMemPerBlock": 65536}
    props = properties({**facts, "maxSharedMemoryPerMultiProcessor": 0})
    assert (props.vendor, props.lanes, props.cc, props.shared_sm) == ("AMD", lanes, 0, 65536)
    assert 48 << 10 <= props.shared_limit < 64 << 10


ASKED = """
import json
from hw4cli.device.gpu import Gpu
from hw4cli.device.timing import GpuTimer
from hw4cli.problem.workload import Shape
gpu = Gpu()
timer = GpuTimer(gpu)
found = timer.resources(gpu.plan("naive", Shape(1, 4096, 64)))
print(json.dumps([timer.machine(), found.registers, found.local_bytes, found.occupancy]))
"""


def test_a_record_names_rocm_and_no_compute_capability_and_has_what_the_code_object_says(amd):
    env = {**os.environ, **amd}
    done = subprocess.run([sys.executable, "-c", ASKED], env=env, capture_output=True, check=True)
    facts, registers, spilled, occupancy = json.loads(done.stdout)
    assert {key: facts[key] for key in ("gpu", "architecture", "hip", "multiprocessors")} == {
        **{"gpu": "AMD Instinct MI210", "architecture": "gfx90a", "hip": "7.0", "multiprocessors": 104}
    }
    assert not facts.keys() & {"compute_capability", "cuda", "nvrtc"}
    assert (registers > 16, spilled, occupancy) == (True, 0, 1.0)

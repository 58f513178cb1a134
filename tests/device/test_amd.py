"""With a cupy for AMD GPUs, which the kernels do not run on yet: one sentence, never a kernel taken for NVIDIA's."""

import json
import os

import numpy as np
import pytest
from helpers import ROOT, definition, fails, random_block, read_output, write_case

from hw4cli.problem.shape import Shape

SENTENCE = "no GPU can be used: this cupy is for AMD GPUs, on which hw4's kernels do not run yet"
# All of it that can be seen before a kernel is compiled: a gfx90a says that its compute capability is 9.0.
CUPY = """
from types import SimpleNamespace

__version__ = "14.2.0"
attributes = {"MultiProcessorCount": 104, "MaxSharedMemoryPerMultiprocessor": 65536}
cuda = SimpleNamespace(
    Device=lambda: SimpleNamespace(id=0, compute_capability="90", attributes=attributes),
    get_cuda_path=lambda: None,
    nvrtc=SimpleNamespace(getVersion=lambda: (7, 0)),
    runtime=SimpleNamespace(
        is_hip=True,
        CUDARuntimeError=RuntimeError,
        getDeviceCount=lambda: 1,
        getDeviceProperties=lambda _: {"name": b"AMD Instinct MI210"},
    ),
)
"""


@pytest.fixture
def amd(tmp_path):
    """The environment with that cupy."""
    package = tmp_path / "site/cupy/__init__.py"
    package.parent.mkdir(parents=True)
    package.write_text(CUPY)
    return {"PYTHONPATH": os.pathsep.join([str(ROOT), str(tmp_path / "site")])}


def test_the_gpu_alone_is_refused_in_one_sentence(hw4, tmp_path, amd):
    source = write_case(tmp_path / "in", random_block(1, 8, 4))
    fails(hw4("--device", "cuda", source, tmp_path / "out", env=amd), 3, SENTENCE)
    assert not (tmp_path / "out").exists()


def test_auto_says_so_and_computes_on_the_cpu(hw4, tmp_path, amd):
    block = random_block(2, 30, 8)
    result = hw4(write_case(tmp_path / "in", block), tmp_path / "out", env=amd)
    assert (result.returncode, result.stderr) == (0, f"hw4: {SENTENCE}; using the CPU\n")
    assert np.abs(read_output(tmp_path / "out", Shape(2, 30, 8)) - definition(block)).max() < 1e-5


def test_the_doctor_gives_the_reason(hw4, amd):
    document = json.loads(hw4("doctor", "--json", env=amd).stdout)
    assert (document["runs"]["on"], document["runs"]["because"]) == ("cpu", SENTENCE)
    (kernel,) = (line for line in document["findings"] if line["name"] == "kernel")
    assert (kernel["state"], kernel["found"]) == ("missing", f"not run: {SENTENCE}")

"""`make hw4`, the plain native program, on a GPU: built as a user builds it, right, and as right as the Python one."""

import shutil
import subprocess
import sys
from dataclasses import replace

import numpy as np
import pytest
from gpuexact import exact_attention
from helpers import ROOT, fails, random_block, read_output, write_case

from hw4cli.plans.native import configurations
from hw4cli.problem.workload import Shape

pytestmark = [
    pytest.mark.usefixtures("gpu"),
    pytest.mark.skipif(not shutil.which("nvcc"), reason="nvcc is not installed"),
]

# One row; odd rows and batches; many batches of one tile; parts to fill the GPU; parts to keep sums short.
SHAPES = [(1, 1, 32), (3, 129, 64), (7, 200, 32), (320, 128, 32), (160, 128, 64), (2, 2048, 64), (1, 8200, 32)]
SHAPES += [(5, 257, 32), (5, 300, 64), (200, 600, 64), (1, 5000, 64)]  # and around split's
SHAPES += [(3, 1199, 64), (3, 1200, 64), (67, 1301, 64), (2, 4097, 64), (1, 32768, 64)]  # and split8's
# Where elements are larger than what kernels on tensor cores are proven for, and which may answer nevertheless.
DATA = {"none": ("split8", "split", "flash"), "Q and K, small norms": ("split", "flash"), "V": ("flash",)}


@pytest.fixture(scope="module")
def program(gpu, run_folder, locked):
    """Built by the first of the processes that share the folder; the others wait for it."""
    folder = run_folder / "native"
    folder.mkdir(exist_ok=True)
    with locked(folder / "lock"):
        if not (folder / "hw4").exists():
            for part in ("kernels", "hw4cli"):
                shutil.copytree(ROOT / part, folder / part, dirs_exist_ok=True)
            shutil.copy(ROOT / "Makefile", folder)
            command = ["make", "hw4", f"NVCC_ARCH=sm_{gpu.props.cc}", f"PYTHON3={sys.executable}"]
            result = subprocess.run(command, cwd=folder, capture_output=True, text=True)
            assert result.returncode == 0, result.stderr
    return folder / "hw4"


def run(program, *arguments):
    return subprocess.run([program, *arguments], capture_output=True, text=True)


def data(shape, large):
    block = random_block(*shape)
    if large == "V":
        block[0, 2, 0, 0] = 3.01
    elif large != "none":
        block[:, :2] *= np.float32(0.5)
        block[:, :2, :, 5] = 7
    return block


def cases():
    """Every shape with data for the fastest kernel, and with data for one of the others in turn."""
    for n, shape in enumerate(SHAPES):
        yield shape, "none"
        yield shape, ("V", "Q and K, small norms")[n % 2]


@pytest.mark.parametrize(("shape", "large"), list(cases()), ids=str)
def test_it_agrees_with_the_definition_and_with_the_python_program(hw4, program, prepared, tmp_path, shape, large):
    prepared(Shape(*shape))
    block = data(shape, large)
    source = write_case(tmp_path / "in", block)
    result = run(program, source, tmp_path / "native")
    assert result.returncode == 0, result.stderr
    first, second = result.stdout.splitlines()
    assert first == f"(B, N, d): {Shape(*shape)}"
    assert second.startswith("Time: ")
    kernel = "flash" if large == "V" else "auto"  # whose bound allows a little more than 3
    assert hw4(source, tmp_path / "python", "--device", "cuda", "--kernel", kernel).returncode == 0
    native, python = (read_output(tmp_path / name, Shape(*shape)) for name in ("native", "python"))
    allowed = 2e-5 if large == "V" else 3e-3
    assert np.abs(native - exact_attention(block)).max() < allowed
    assert np.abs(native - python).max() < allowed


@pytest.mark.parametrize("shape", [(3, 300, 64), (3, 700, 32), (3, 1301, 64), (70, 1200, 64), (1, 5000, 64)], ids=str)
@pytest.mark.parametrize("large", DATA)
def test_the_kernel_that_auto_prefers_answers_as_it_does_in_python(program, tmp_path, gpu, monkeypatch, shape, large):
    block = data(shape, large)
    source = write_case(tmp_path / "in", block)
    assert run(program, source, tmp_path / "out").returncode == 0
    native = read_output(tmp_path / "out", Shape(*shape))
    monkeypatch.setattr(gpu, "props", replace(gpu.props, warpgroups=False))
    _, N, d = shape
    able = [entry.kernel for entry in configurations(gpu.props.cc) if entry.d == d and entry.least <= N <= entry.most]
    wanted = next(name for name in able if name in DATA[large])
    far = {name: np.abs(native - gpu.attention(block, name)).max() for name in able}
    assert far[wanted] == min(far.values()) < 1e-6, far
    assert len([name for name in able if far[name] < 1e-6]) == 1, far


def test_files_of_other_head_sizes_are_right(program, tmp_path):
    """Rows get zero columns up to 32, 64 or 128; elements are larger than what is proven in every second file."""
    for d in (1, 7, 31, 33, 59, 63, 65, 96, 111, 127, 128):
        for B, N in ((3, 67), (1, 1300)):
            block = data((B, N, d), "V" if B == 1 and d % 2 else "none")
            source = write_case(tmp_path / "in", block)
            result = run(program, source, tmp_path / "out")
            assert result.returncode == 0, result.stderr
            assert np.abs(read_output(tmp_path / "out", Shape(B, N, d)) - exact_attention(block)).max() < 4e-3, d


def test_large_scores_are_right(program, tmp_path):
    block = random_block(2, 300, 32)
    block[:, :2] *= 8  # the way with a running maximum
    source = write_case(tmp_path / "in", block)
    assert run(program, source, tmp_path / "out").returncode == 0
    assert np.abs(read_output(tmp_path / "out", Shape(2, 300, 32)) - exact_attention(block)).max() < 5e-3


def test_a_bad_file_is_one_sentence(program, tmp_path):
    source = write_case(tmp_path / "in", random_block(2, 40, 64))
    source.write_bytes(source.read_bytes()[:-1])
    fails(run(program, source, tmp_path / "out"), 2, "asks for 12 + 12*B*N*d")
    assert not (tmp_path / "out").exists()


def test_an_output_that_cannot_be_written_is_one_sentence(program, tmp_path):
    source = write_case(tmp_path / "in", random_block(1, 8, 32))
    fails(run(program, source, tmp_path / "none" / "out"), 3, "cannot write")

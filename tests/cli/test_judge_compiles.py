"""`hw4 judge` of hw4 itself has the kernels compiled before the first case, as a submission is built before."""

import sys

import pytest

from hw4cli.cli.judge import compile_kernels
from hw4cli.device import gpu
from hw4cli.problem.casefile import InputFile


@pytest.fixture
def runs(tmp_path, monkeypatch):
    """Where a kernel cache is, and the shapes of the files that a program was run on."""
    monkeypatch.setenv("CUPY_CACHE_DIR", str(tmp_path / "kernels"))
    monkeypatch.setattr(gpu, "nvidia_gpu_is_here", lambda: True)
    copy = "import os, shutil, sys; os.environ['HW4_WAIT_FOR_KERNELS'] and shutil.copy(sys.argv[1], sys.argv[3])"

    def run(number=0):
        seen = tmp_path / f"seen{number}"
        compile_kernels([sys.executable, "-c", copy.replace("sys.argv[3]", repr(str(seen)))], None)
        if not seen.exists():
            return None
        with InputFile(seen) as inputs:
            return str(inputs.shape)

    return run


def test_a_tiny_file_is_computed_once_where_no_kernel_is_compiled_by_a_run_that_waits_for_all(runs):
    assert runs() == "(1, 128, 64)"


def test_nothing_is_run_where_kernels_are_compiled(runs, tmp_path):
    (tmp_path / "kernels").mkdir()
    (tmp_path / "kernels/hw4-0123.cubin").touch()
    assert runs() is None


def test_nothing_is_run_without_a_gpu(runs, monkeypatch):
    monkeypatch.setattr(gpu, "nvidia_gpu_is_here", lambda: False)
    assert runs() is None


def test_a_program_that_fails_is_left_to_the_cases(runs):
    compile_kernels(["/nonexistent/hw4"], None)
    compile_kernels([sys.executable, "-c", "raise SystemExit(3)"], None)

"""`hw4` on a machine with a GPU, as a process of its own."""

import json
import os
import subprocess
import sys

import numpy as np
import pytest
from gpuexact import exact_attention
from helpers import ROOT, random_block, read_output, write_case

from hw4cli.plans.bounds import SAFE
from hw4cli.plans.ladder import VARIANTS
from hw4cli.problem.workload import Shape

pytestmark = pytest.mark.usefixtures("gpu")


@pytest.fixture
def case(tmp_path, prepared):
    block = random_block(7, 130, 64)
    prepared(Shape(7, 130, 64))
    return write_case(tmp_path / "in", block), block


def test_auto_uses_the_gpu_without_a_word(hw4, case, tmp_path):
    source, block = case
    result = hw4(source, tmp_path / "out", "--timing")
    assert result.returncode == 0, result.stderr
    *stages, kernel = result.stderr.splitlines()
    named = [line[:9].strip() for line in stages]
    assert named == ["start", "compile", "read", "copy in", "kernel", "copy out", "write", "total"]
    assert kernel.startswith("kernel: 7 batches by ")
    got = read_output(tmp_path / "out", Shape(7, 130, 64))
    assert np.abs(got - exact_attention(block)).max() < SAFE


@pytest.mark.parametrize("kernel", VARIANTS)
def test_every_kernel_can_be_named(gpu, hw4, case, tmp_path, kernel):
    if gpu.props.cc < VARIANTS[kernel].least_cc:
        pytest.skip(f"{kernel} needs compute capability {VARIANTS[kernel].least_cc / 10}")
    source, block = case
    assert hw4("--device", "cuda", "--kernel", kernel, source, tmp_path / "out").returncode == 0
    got = read_output(tmp_path / "out", Shape(7, 130, 64))
    assert np.abs(got - exact_attention(block)).max() <= VARIANTS[kernel].error_bound


def test_scores_beyond_float32_are_right_through_the_fallback(hw4, prepared, tmp_path):
    prepared(Shape(2, 200, 32))
    block = random_block(2, 200, 32) * np.float32(1e30)
    source = write_case(tmp_path / "in", block)
    result = hw4("--device", "cuda", source, tmp_path / "out")
    assert result.returncode == 0
    assert "float64" in result.stderr
    got = read_output(tmp_path / "out", Shape(2, 200, 32))
    assert np.abs(got / exact_attention(block) - 1).max() < 1e-6


def test_too_little_gpu_memory_is_one_sentence_and_leaves_the_old_output(hw4, case, tmp_path):
    (tmp_path / "out").write_bytes(b"old")
    result = hw4("--device", "cuda", case[0], tmp_path / "out", env={"CUPY_GPU_MEMORY_LIMIT": "100000"})
    assert result.returncode == 3
    assert len(result.stderr.splitlines()) == 1
    assert "the GPU has not enough memory for 7 batches of N=130, d=64" in result.stderr
    assert (tmp_path / "out").read_bytes() == b"old"


def test_the_answers_of_gpu_and_cpu_oracle_agree(hw4, tmp_path):
    assert hw4("gen", "5,200,36", "-o", tmp_path / "a").returncode == 0
    cpu = {"CUDA_VISIBLE_DEVICES": "-1"}
    assert hw4("gen", "5,200,36", "-o", tmp_path / "b", env=cpu).returncode == 0
    gpu_answer, cpu_answer = (np.fromfile(tmp_path / f"{name}.out", np.float32) for name in "ab")
    assert np.abs(gpu_answer - cpu_answer).max() < 1e-6


def test_a_nan_late_in_the_file_is_placed_and_leaves_the_old_output(hw4, tmp_path):
    block = random_block(300, 512, 64)  # four groups
    block[299, 2, 511, 63] = np.nan
    source = write_case(tmp_path / "in", block)
    (tmp_path / "out").write_bytes(b"old")
    result = hw4("--device", "cuda", source, tmp_path / "out")
    assert result.returncode == 2
    assert result.stderr.splitlines() == [
        f"hw4: {source} holds nan in V of batch 299, row 511, column 63: every element must be a finite number"
    ]
    assert (tmp_path / "out").read_bytes() == b"old"
    assert not list(tmp_path.glob(".*"))


def test_a_file_of_many_groups_streams_through_in_order(hw4, tmp_path):
    block = random_block(400, 512, 64)
    source = write_case(tmp_path / "in", block)
    assert hw4("--device", "cuda", source, tmp_path / "out").returncode == 0
    got = read_output(tmp_path / "out", Shape(400, 512, 64))
    assert np.abs(got - exact_attention(block)).max() < SAFE


def test_only_the_groups_that_need_it_are_computed_in_float64(hw4, tmp_path):
    block = random_block(300, 512, 64)
    block[5] *= np.float32(1e20)
    source = write_case(tmp_path / "in", block)
    result = hw4("--device", "cuda", source, tmp_path / "out")
    assert "85 batches" in result.stderr
    got, expected = read_output(tmp_path / "out", Shape(300, 512, 64)), exact_attention(block)
    assert np.abs(np.delete(got - expected, 5, axis=0)).max() < SAFE
    assert np.abs(got[5] / expected[5] - 1).max() < 1e-6


def test_a_read_only_home_is_no_obstacle(hw4, case, tmp_path):
    env = {"HOME": "/proc", "TMPDIR": str(tmp_path)}
    result = hw4("--device", "cuda", case[0], tmp_path / "out", env=env, prefix=["env", "-u", "CUPY_CACHE_DIR"])
    assert result.returncode == 0, result.stderr
    assert list(tmp_path.glob("hw4-kernels-*/*"))


def test_a_run_imports_no_more_of_cupy_than_it_needs(case, tmp_path):
    script = (
        "import sys; from hw4cli.cli import run_command\n"
        "assert run_command(['--device', 'cuda', *sys.argv[1:]]) == 0\n"
        "assert not {'cupy.fft', 'cupy.linalg', 'cupy.random'} & set(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", script, case[0], tmp_path / "out"], cwd=ROOT, check=True)


def test_where_all_is_prepared_no_file_of_the_assignments_kind_compiles_anything(hw4, tmp_path):
    env = {"CUPY_CACHE_DIR": str(tmp_path / "cache")}
    assert hw4("doctor", "--prepare", env=env, timeout=300).returncode == 0
    kept = sorted((tmp_path / "cache").iterdir())
    shapes = ((2, 128, 32), (2, 128, 64), (43, 1024, 32), (3, 2048, 32), (42, 2048, 32), (21, 2048, 64), (1, 8192, 64))
    for B, N, d in shapes:
        source = write_case(tmp_path / "in", random_block(B, N, d))
        result = hw4("--device", "cuda", source, tmp_path / "out", "--timing", env=env)
        assert result.returncode == 0, result.stderr
        assert "not compiled" not in result.stderr
    assert kept and kept == sorted((tmp_path / "cache").iterdir())


def test_a_first_run_of_a_small_file_is_computed_in_float64_and_leaves_no_process(hw4, gpu, tmp_path):
    block, env = random_block(5, 130, 64), {"CUPY_CACHE_DIR": str(tmp_path / "cache")}
    result = hw4("--device", "cuda", write_case(tmp_path / "in", block), tmp_path / "out", "--timing", env=env)
    assert "5 batches by float64" in result.stderr
    assert "not compiled (`hw4 doctor --prepare` does it)" in " ".join(result.stderr.split())
    assert np.abs(read_output(tmp_path / "out", Shape(5, 130, 64)) - exact_attention(block)).max() < 1e-6
    assert len(list((tmp_path / "cache").glob("hw4-*"))) == 1


def test_several_processes_may_compile_at_once(case, tmp_path):
    command = [sys.executable, "-m", "hw4cli", "--device", "cuda", str(case[0])]
    env = {**os.environ, "CUPY_CACHE_DIR": str(tmp_path / "cache")}
    runs = [subprocess.Popen([*command, str(tmp_path / f"out{i}")], cwd=ROOT, env=env) for i in range(6)]
    assert [run.wait() for run in runs] == [0] * 6
    assert len({(tmp_path / f"out{i}").read_bytes() for i in range(6)}) == 1


@pytest.mark.alone
def test_a_first_judging_takes_no_longer_than_a_second(hw4, tmp_path):
    """The kernels of all cases are compiled before the first. Beside other programs, a case may take more than 2 s."""
    assert hw4("gen", "t01,t07,t10", "--dir", tmp_path).returncode == 0
    options = ("t01,t07,t10", "--dir", tmp_path, "--limit", "t01,t07,t10=20", "--json")

    def seconds(cache):
        result = hw4("judge", *options, env={"CUPY_CACHE_DIR": str(tmp_path / cache)})
        assert result.returncode == 0, result.stdout + result.stderr
        return json.loads(result.stdout)["standings"][0]["time"]

    assert any(seconds(f"{turn}") < seconds(f"{turn}") + 0.3 for turn in range(3))

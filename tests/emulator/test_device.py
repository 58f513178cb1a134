"""`hw4 IN OUT --device emulate`: a GPU kernel's own answer, without a GPU."""

import re

import numpy as np
import pytest
from helpers import random_block, write_case
from slow import slow

from hw4cli.emulator.build import PLAIN, RACE, shared_object
from hw4cli.emulator.library import Library
from hw4cli.plans.ladder import VARIANTS
from hw4cli.plans.plan import DEVICES
from hw4cli.problem.oracle import exact_attention
from hw4cli.problem.workload import Shape
from hw4cli.resources import data_path


def answer(path, block):
    n, _, N, d = block.shape
    return np.fromfile(path, np.float32).reshape(n, N, d)


@pytest.mark.parametrize("kernel", ["flash", "float4", "naive", "float64"])
def test_the_emulated_gpu_answers_a_file(hw4, tmp_path, kernel):
    block = random_block(3, 70, 36)
    source = write_case(tmp_path / "in", block)
    done = hw4("--device", "emulate", "--kernel", kernel, "--timing", source, tmp_path / "out")
    assert done.returncode == 0, done.stderr
    assert f"3 batches by {kernel}" in done.stderr
    assert np.abs(answer(tmp_path / "out", block) - exact_attention(block)).max() < 2e-5


def test_the_emulated_gpu_answers_a_file_of_causal_attention(hw4, tmp_path):
    block = random_block(2, 70, 36)
    source = write_case(tmp_path / "in", block)
    done = hw4("--device", "emulate", "--kernel", "shared", "--causal", source, tmp_path / "out")
    assert done.returncode == 0, done.stderr
    assert np.abs(answer(tmp_path / "out", block) - exact_attention(block, causal=True)).max() < 2e-5


@slow
def test_the_emulated_tensor_cores_cut_off_what_real_ones_do(hw4, tmp_path):
    block = random_block(1, 70, 36)
    source = write_case(tmp_path / "in", block)
    done = hw4("--device", "emulate", "--kernel", "exact", source, tmp_path / "out")
    assert done.returncode == 0, done.stderr
    plan = VARIANTS["exact"].plan(Shape(1, 70, 36), DEVICES[80])
    library = Library(shared_object(data_path("kernels/exact.cu"), plan.macros, 80, 32, PLAIN))
    library.add_as(80)
    cut_off = library.run(plan, block, watched=False).o
    library.add_as(0)
    rounded = library.run(plan, block, watched=False).o
    np.testing.assert_array_equal(answer(tmp_path / "out", block), cut_off)
    assert (cut_off != rounded).any()


@slow
def test_large_elements_in_short_rows_are_no_reason_for_a_slower_kernel(hw4, tmp_path):
    block = random_block(1, 40, 32)
    block[:, :2] *= np.float32(0.1)
    block[:, :2, :, 3] = 9
    source = write_case(tmp_path / "in", block)
    done = hw4("--device", "emulate", "--kernel", "split", "--timing", source, tmp_path / "out")
    assert done.returncode == 0, done.stderr
    stated = re.search(r"1 batch by split, error at most ([\d.e-]+) \(([\d.e-]+) without norms\)", done.stderr)
    assert stated, done.stderr
    error = np.abs(answer(tmp_path / "out", block) - exact_attention(block)).max()
    assert error <= float(stated[1]) <= 4e-3 < float(stated[2])


@slow
def test_values_too_large_for_a_kernel_go_to_a_more_exact_one(hw4, tmp_path):
    block = random_block(1, 20, 32) * np.float32(1e20)
    source = write_case(tmp_path / "in", block)
    done = hw4("--device", "emulate", "--kernel", "flash", source, tmp_path / "out")
    assert done.returncode == 0, done.stderr
    assert "1 in float64" in done.stderr
    np.testing.assert_allclose(answer(tmp_path / "out", block), exact_attention(block), rtol=1e-6)


def test_a_file_that_would_take_hours_is_refused_with_an_estimate(hw4, tmp_path):
    source = tmp_path / "in"
    shape = Shape(400, 2048, 64)
    with source.open("wb") as file:
        np.array([shape.B, shape.N, shape.d], np.int32).tofile(file)
        file.truncate(shape.input_bytes)
    done = hw4("--device", "emulate", "--kernel", "float4", source, tmp_path / "out")
    assert done.returncode == 2
    assert re.search(r"would take about \d+ minutes for \(B, N, d\) = \(400, 2048, 64\)", done.stderr), done.stderr
    assert "--device cpu" in done.stderr
    assert not (tmp_path / "out").exists()


def test_without_a_compiler_it_says_what_is_missing(hw4, tmp_path):
    source = write_case(tmp_path / "in", random_block(1, 8, 4))
    done = hw4("--device", "emulate", source, tmp_path / "out", env={"CXX": "no-such-compiler"})
    assert done.returncode == 3
    assert "C++ compiler" in done.stderr
    assert "no-such-compiler" in done.stderr


@slow
@pytest.mark.parametrize("name", ["flash", "float4"])
def test_what_is_compiled_is_kept_and_its_answer_is_the_same_with_and_without_checks(name):
    shape = Shape(2, 33, 36)
    plan, block = VARIANTS[name].plan(shape, DEVICES[80]), random_block(2, 33, 36)
    path = shared_object(data_path(f"kernels/{name}.cu"), plan.macros, 80, 32, RACE)
    made = path.stat().st_mtime_ns
    assert shared_object(data_path(f"kernels/{name}.cu"), plan.macros, 80, 32, RACE).stat().st_mtime_ns == made
    library = Library(path)
    checked, plain = library.run(plan, block), library.run(plan, block, watched=False)
    assert checked.findings == plain.findings == ()
    assert np.array_equal(checked.o, plain.o)


@slow
def test_the_stated_error_holds_for_numbers_that_a_gpu_takes_for_zero(hw4, tmp_path):
    block = random_block(1, 70, 32) * np.float32(1e-40)
    source = write_case(tmp_path / "in", block)
    done = hw4("--device", "emulate", "--kernel", "flash", "--timing", source, tmp_path / "out")
    stated = re.search(r"1 batch by flash, error at most ([\d.e-]+)", done.stderr)
    assert stated, done.stderr
    error = np.abs(answer(tmp_path / "out", block) - exact_attention(block).astype(np.float64)).max()
    assert 0 < error <= float(stated[1]) < 1e-29

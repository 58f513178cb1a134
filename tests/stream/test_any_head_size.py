"""Files of every head size from 1 to 128: computed on the CPU, and by kernels that it executes; made and judged."""

import hashlib
import json

import numpy as np
import pytest
from helpers import definition, fails, random_block, read_output, write_case
from needs import COMPILER, needs
from slow import few, slow

from hw4cli.problem.workload import Shape
from hw4cli.stream import pipeline, work
from hw4cli.stream.timeline import Timeline

EMULATED = [("flash", 59), ("float64", 5), ("exact", 111), ("split8", 63), ("flash", 1), ("naive", 3), ("paper", 127)]
NO_GPU = {"CUDA_VISIBLE_DEVICES": "-1"}


def computed(source, target, causal=False):
    job = pipeline.Job(pipeline.alone(pipeline.cpu(None)), 2, causal)
    shape, _ = pipeline.run(source, target, job, Timeline(), lambda sentence: None)
    return read_output(target, shape)


def test_every_head_size_is_computed_on_the_cpu(tmp_path):
    for d in range(1, 129):
        block = random_block(2, 33, d, seed=d)
        source = write_case(tmp_path / "in", block)
        assert np.abs(computed(source, tmp_path / "out") - definition(block)).max() < 2e-5, d


@pytest.mark.parametrize("causal", [False, True])
def test_ranges_of_rows_of_a_large_batch_have_the_bytes_of_the_whole(tmp_path, monkeypatch, causal):
    source = write_case(tmp_path / "in", random_block(1, 2600, 7))
    whole = computed(source, tmp_path / "whole", causal)
    monkeypatch.setattr(work, "WHOLE_BYTES", 100_000)
    monkeypatch.setattr(work, "ROW_BYTES", 28 * 1024)
    shape = Shape(1, 2600, 7)
    assert len(work.parts_of(shape, 1, work.rows_of_a_part(shape))) == 3
    np.testing.assert_array_equal(computed(source, tmp_path / "parts", causal), whole)


@needs(COMPILER)
@pytest.mark.parametrize(("kernel", "d"), few(EMULATED))
def test_the_emulated_gpu_answers_a_file(hw4, tmp_path, kernel, d):
    block = random_block(2, 70, d)
    source = write_case(tmp_path / "in", block)
    done = hw4("--device", "emulate", "--kernel", kernel, source, tmp_path / "out", "--timing")
    assert done.returncode == 0, done.stderr
    error = np.abs(read_output(tmp_path / "out", Shape(2, 70, d)) - definition(block)).max()
    assert error < (3e-3 if kernel == "split8" else 2e-5)


@slow
@needs(COMPILER)
def test_a_kernel_is_checked_on_the_cpu_with_such_rows(hw4, tmp_path):
    done = hw4("check", "naive", "--run", "1,65,31", cwd=tmp_path)
    assert (done.returncode, done.stdout) == (0, "naive: no mistake found\n"), done.stderr


def test_a_case_is_made_described_judged_and_compared(hw4, tmp_path):
    case, out = tmp_path / "case", tmp_path / "out"
    assert hw4("gen", "3,70,59", "-o", case).returncode == 0
    assert json.loads(hw4("info", case, "--json").stdout)["shape"] == [3, 70, 59]
    assert hw4(case, out, "--device", "cpu", env=NO_GPU).returncode == 0
    assert hw4("verify", out, f"{case}.out").returncode == 0
    values = np.fromfile(out, np.float32).reshape(3, 70, 59)
    values[1, 5:, 58] += 1
    values.tofile(out)
    judged = hw4("verify", out, f"{case}.out")
    assert judged.returncode == 1
    assert "column 58" in judged.stdout
    fails(hw4("gen", "3,70,129", "-o", case), 2, "d is 129, but must be between 1 and 128")


def test_a_suite_of_such_cases_is_made_and_judged(hw4, tmp_path):
    assert hw4("gen", "2,40,7", "--seed", 1, "-o", tmp_path / "same").returncode == 0
    sha256 = hashlib.sha256((tmp_path / "same").read_bytes()).hexdigest()
    row = f'a = {{ shape = [2, 40, 7], seed = 1, limit = 60, sha256 = "{sha256}" }}'
    (tmp_path / "suite.toml").write_text(f"[cases]\n{row}\n")
    where = ("--suite", tmp_path / "suite.toml", "--dir", tmp_path, "a")
    assert hw4("gen", *where).returncode == 0
    judged = hw4("judge", *where, env=NO_GPU)
    assert judged.returncode == 0, judged.stdout + judged.stderr
    assert "(2, 40, 7)" in judged.stdout


@pytest.mark.parametrize("d", [0, -3, 129, 2**30])
def test_what_is_no_head_size_is_refused_in_one_sentence(hw4, tmp_path, d):
    case = tmp_path / "case"
    case.write_bytes(np.array([2, 8, d], "<i4").tobytes() + bytes(100))
    fails(hw4(case, tmp_path / "out", env=NO_GPU), 2, str(case), f"d is {d}, but must be between 1 and 128")
    assert not (tmp_path / "out").exists()

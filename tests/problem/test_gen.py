"""`hw4 gen`: the same bytes under the same name, answers that are right, and nothing half-made."""

import os
import resource
import shutil
import signal
import subprocess
import sys
from types import SimpleNamespace

import numpy as np
import pytest
from helpers import HANGS, ROOT, definition, fails, folder_is_clean, read_output, run_hw4, wait_until

from hw4cli.errors import MachineError
from hw4cli.problem import suite
from hw4cli.problem.casefile import InputFile
from hw4cli.problem.checksums import RECORD, file_sha256
from hw4cli.problem.generate import GenerationTask, check_space, file_tasks
from hw4cli.problem.oracle import exact_attention
from hw4cli.problem.workload import Shape

CPU = {"CUDA_VISIBLE_DEVICES": "-1"}


def test_named_cases_and_their_answers_are_written(hw4, tmp_path):
    result = hw4("gen", "t01", "t03", "--dir", tmp_path / "new", env=CPU)
    assert result.returncode == 0, result.stderr
    folder_is_clean(tmp_path / "new", RECORD, "t01", "t01.out", "t03", "t03.out")
    for name in ("t01", "t03"):
        case = suite.cases()[name]
        assert file_sha256(tmp_path / "new" / name) == case.sha256
        with InputFile(tmp_path / "new" / name) as inputs:
            expected = definition(inputs.batches(5, 7))
        got = read_output(tmp_path / "new" / f"{name}.out", case.shape)[5:7]
        assert np.abs(got - expected).max() < 1e-6


def test_what_is_there_is_kept_unless_it_is_damaged_or_forced(hw4, tmp_path):
    assert hw4("gen", "t02", "--dir", tmp_path, env=CPU).returncode == 0
    before = (tmp_path / "t02").stat().st_mtime_ns
    again = hw4("gen", "t02", "--dir", tmp_path, env=CPU)
    assert "1 of 1 case there already" in again.stderr
    assert (tmp_path / "t02").stat().st_mtime_ns == before
    with (tmp_path / "t02").open("r+b") as file:
        file.seek(1000)
        file.write(b"damage")
    assert hw4("gen", "t02", "--dir", tmp_path, env=CPU).returncode == 0
    assert file_sha256(tmp_path / "t02") == suite.cases()["t02"].sha256
    middle = (tmp_path / "t02").stat().st_mtime_ns
    assert hw4("gen", "t02", "--dir", tmp_path, "--force", env=CPU).returncode == 0
    assert (tmp_path / "t02").stat().st_mtime_ns > middle


def test_a_wrong_answer_of_the_right_size_is_made_again(hw4, tmp_path):
    assert hw4("gen", "t02", "--dir", tmp_path, env=CPU).returncode == 0
    right = (tmp_path / "t02.out").read_bytes()
    (tmp_path / "t02.out").write_bytes(bytes(len(right)))
    assert "already" not in hw4("gen", "t02", "--dir", tmp_path, env=CPU).stderr
    assert (tmp_path / "t02.out").read_bytes() == right


def test_an_answer_whose_making_is_not_recorded_is_made_again(hw4, tmp_path):
    assert hw4("gen", "t02", "--dir", tmp_path, env=CPU).returncode == 0
    (tmp_path / RECORD).unlink()
    assert "already" not in hw4("gen", "t02", "--dir", tmp_path, env=CPU).stderr
    assert "1 of 1 case there already" in hw4("gen", "t02", "--dir", tmp_path, env=CPU).stderr


def test_a_random_case_of_any_shape(hw4, tmp_path):
    assert hw4("gen", "3,129,20", "--seed", 5, "-o", tmp_path / "my", env=CPU).returncode == 0
    assert hw4("gen", "3,129,20", "--seed", 5, "-o", tmp_path / "twin", "--no-answers").returncode == 0
    assert hw4("gen", "3,129,20", "--seed", 6, "-o", tmp_path / "other", "--no-answers").returncode == 0
    folder_is_clean(tmp_path, "my", "my.out", "twin", "other")
    assert (tmp_path / "my").read_bytes() == (tmp_path / "twin").read_bytes() != (tmp_path / "other").read_bytes()
    with InputFile(tmp_path / "my") as inputs:
        expected = definition(inputs.batches(0, 3))
    assert np.abs(read_output(tmp_path / "my.out", Shape(3, 129, 20)) - expected).max() < 1e-6


def test_no_answers_makes_inputs_only(hw4, tmp_path):
    assert hw4("gen", "t01", "--no-answers", "--dir", tmp_path).returncode == 0
    folder_is_clean(tmp_path, RECORD, "t01")


def test_without_answers_no_gpu_is_opened(tmp_path):
    script = (
        "import sys; from hw4cli.cli import run_command\n"
        "assert run_command(['gen', 't01', '--no-answers', '--dir', sys.argv[1]]) == 0\n"
        "print(*sys.modules)"
    )
    result = subprocess.run(
        [sys.executable, "-c", script, str(tmp_path)], cwd=ROOT, capture_output=True, text=True, check=True
    )
    assert not {"cupy", "rich", "hw4cli.device.gpu"} & set(result.stdout.split())


def test_only_the_part_of_a_case_that_is_missing_is_made(hw4, tmp_path):
    assert hw4("gen", "t02", "--no-answers", "--dir", tmp_path).returncode == 0
    before = (tmp_path / "t02").stat().st_mtime_ns
    assert hw4("gen", "t02", "--dir", tmp_path, env=CPU).returncode == 0
    folder_is_clean(tmp_path, RECORD, "t02", "t02.out")
    assert (tmp_path / "t02").stat().st_mtime_ns == before
    (tmp_path / "t02").unlink()
    before = (tmp_path / "t02.out").stat().st_mtime_ns
    assert hw4("gen", "t02", "--dir", tmp_path, env=CPU).returncode == 0
    folder_is_clean(tmp_path, RECORD, "t02", "t02.out")
    assert (tmp_path / "t02.out").stat().st_mtime_ns == before


def test_the_progress_of_each_file_adds_up_in_units_that_take_equal_time(tmp_path):
    task = GenerationTask(tmp_path / "in", tmp_path / "out", Shape(3, 700, 32), 1)
    for step, total in zip(file_tasks(task, exact_attention), (task.shape.input_bytes, 3 * 700), strict=True):
        advances = []
        step.run(advances.append)
        assert sum(advances) == step.total == total
        assert len(advances) > 1


def test_bad_requests_are_one_sentence(hw4_here, tmp_path):
    fails(hw4_here("gen"), 2, "t01-t10", "B,N,d")
    fails(hw4_here("gen", "t77"), 2, "no case 't77'")
    fails(hw4_here("gen", "3,4"), 2, "three integers")
    fails(hw4_here("gen", "3,4,129", "-o", tmp_path / "x"), 2, "between 1 and 128")
    fails(hw4_here("gen", "3,4,8"), 2, "-o FILE")
    fails(hw4_here("gen", "t01", "3,4,8", "-o", tmp_path / "x"), 2, "either")
    fails(hw4_here("gen", "3,4,8", "-o", tmp_path / "none" / "x"), 2, "does not exist")
    (tmp_path / "file").write_text("")
    fails(hw4_here("gen", "t01", "--dir", tmp_path / "file"), 2, "is not a folder")


def test_a_disk_without_room_is_told_before_anything_is_written(hw4, tmp_path):
    fails(hw4("gen", "2147483647,2147483647,128", "-o", tmp_path / "x"), 3, "bytes free")
    folder_is_clean(tmp_path)


def test_a_small_disk_without_room_for_a_small_case_is_told_in_bytes(tmp_path, monkeypatch):
    monkeypatch.setattr(shutil, "disk_usage", lambda _: SimpleNamespace(free=100))
    with pytest.raises(MachineError, match=r"^12,300 bytes are to be written to .*, which has 100 bytes free$"):
        check_space([GenerationTask(tmp_path / "x", None, Shape(1, 32, 32), 0)])


def test_a_disk_that_fills_up_leaves_no_half_file(tmp_path):
    def small_files_only():
        resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 20, 1 << 20))

    result = run_hw4("gen", "t01", "--dir", tmp_path, preexec_fn=small_files_only)
    assert result.returncode == 3
    assert "cannot write" in result.stderr
    folder_is_clean(tmp_path)


def test_interrupted_it_leaves_no_half_file(tmp_path):
    process = subprocess.Popen(
        [sys.executable, "-m", "hw4cli", "gen", "t22", "--dir", str(tmp_path)],
        cwd=ROOT,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, **CPU},
    )
    wait_until(lambda: any(p.stat().st_size for p in tmp_path.glob(".t22*")))
    process.send_signal(signal.SIGINT)
    _, stderr = process.communicate(timeout=HANGS)
    assert process.returncode == 130
    assert stderr.strip().splitlines()[-1] == "hw4: interrupted"
    folder_is_clean(tmp_path)

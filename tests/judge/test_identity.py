"""What counts as the same program, run and GPU."""

from dataclasses import replace

import pytest

from hw4cli.judge.identity import program_sha256, run_key
from hw4cli.problem import suite
from hw4cli.resources import own_files


@pytest.fixture
def program(tmp_path):
    path = tmp_path / "hw4"
    path.write_text("#!/bin/sh\nexit 0\n")
    path.chmod(0o755)
    return path


def test_a_program_is_its_bytes_and_arguments_wherever_it_lies(program, tmp_path):
    first = program_sha256([str(program)])
    copy = tmp_path / "elsewhere"
    copy.write_bytes(program.read_bytes())
    copy.chmod(0o755)
    assert program_sha256([str(copy)]) == first
    assert program_sha256([str(program), "--fast"]) != first
    copy.write_text("#!/bin/sh\nexit 1\n")
    assert program_sha256([str(copy)]) != first


def test_a_script_that_is_an_argument_counts_by_its_bytes(tmp_path):
    script = tmp_path / "mine.py"
    script.write_text("1")
    first = program_sha256(["python3", str(script)])
    script.write_text("2")
    assert program_sha256(["python3", str(script)]) != first
    assert program_sha256(["no-such-program", "\0"])  # judged anyway, and told there


def test_hw4_itself_is_its_modules_and_kernels(tmp_path):
    names = [path.name for path in own_files()]
    assert {"judge.py", "pipeline.py", "flash.cu", "platform.cuh"} <= set(names)
    assert program_sha256(["sh"], own_files()) != program_sha256(["sh"], own_files()[1:])


def test_a_run_stands_for_another_of_the_same_case_limit_and_circumstances():
    case = suite.cases()["t01"]
    key = run_key("program", case, "GPU-1", 5e-3)
    assert run_key("program", case, "GPU-1", 5e-3) == key
    others = {
        run_key("other", case, "GPU-1", 5e-3),
        run_key("program", suite.cases()["t02"], "GPU-1", 5e-3),
        run_key("program", replace(case, limit=3.0), "GPU-1", 5e-3),
        run_key("program", replace(case, seed=7), "GPU-1", 5e-3),
        run_key("program", case, "GPU-2", 5e-3),
        run_key("program", case, "GPU-1", 1e-3),
        run_key("program", case, None, 5e-3),
    }
    assert len(others) == 7
    assert key not in others

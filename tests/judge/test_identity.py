"""The hashes that identify programs, runs and GPUs."""

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


def test_a_programs_hash_covers_its_bytes_and_arguments_but_not_its_folder(program, tmp_path):
    first = program_sha256([str(program)])
    copy = tmp_path / "elsewhere"
    copy.write_bytes(program.read_bytes())
    copy.chmod(0o755)
    assert program_sha256([str(copy)]) == first
    assert program_sha256([str(program), "--fast"]) != first
    copy.write_text("#!/bin/sh\nexit 1\n")
    assert program_sha256([str(copy)]) != first


def test_the_bytes_of_a_script_among_the_arguments_count(tmp_path):
    script = tmp_path / "mine.py"
    script.write_text("1")
    first = program_sha256(["python3", str(script)])
    script.write_text("2")
    assert program_sha256(["python3", str(script)]) != first
    assert program_sha256(["no-such-program", "\0"])  # it is judged, and refused there


def test_the_hash_of_hw4_itself_covers_modules_and_kernels(tmp_path):
    names = [path.name for path in own_files()]
    assert {"judge.py", "pipeline.py", "flash.cu", "platform.cuh"} <= set(names)
    assert program_sha256(["sh"], own_files()) != program_sha256(["sh"], own_files()[1:])


def test_runs_of_the_same_case_limit_and_conditions_have_the_same_key():
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

"""The environment variables of programs and builds: those they need, and no secret of the judge."""

import os
import subprocess

import pytest
from classes import judge_class, submit
from helpers import JUDGE_T01, fails, run_hw4
from needs import needs

from hw4cli.sandbox.environment import environment, is_passed
from hw4cli.sandbox.sandbox import LIBRARY_VARIABLES

SECRETS = {
    "GRADES_PASSWORD": "hush-1", "NVIDIA_API_KEY": "hush-2", "SLURM_JWT": "hush-3", "CUDA_TOKEN": "hush-4",
    "http_proxy": "http://ta:hush-5@proxy", "SSH_AUTH_SOCK": "/run/hush-6", "AWS_SECRET_ACCESS_KEY": "hush-7",
    "TMUX": "/tmp/hush-8", "HISTFILE": "/home/hush-9", "OLDPWD": "/home/hush-10", "LD_PRELOAD": "", "MAKEFLAGS": "",
}  # fmt: skip
NEEDED = {
    "LC_ALL": "C.UTF-8", "CUDA_VISIBLE_DEVICES": "0", "HIP_VISIBLE_DEVICES": "1", "ROCR_VISIBLE_DEVICES": "2",
    "NVIDIA_VISIBLE_DEVICES": "all", "LD_LIBRARY_PATH": "/opt/x/lib", "CUDA_HOME": "/opt/cuda", "OMP_NUM_THREADS": "3",
    "SLURM_JOB_ID": "7", "LOADEDMODULES": "cuda/12", "CPATH": "/opt/x/include", "CXX": "g++",
}  # fmt: skip
PRINT_SECRETS = "env | grep hush >&2; exit 3\n"


@needs("make")
def test_programs_and_builds_get_the_needed_variables_and_no_secret(workdir, folder):
    submit(workdir, "ann", hw4=f"#!/bin/sh\n{PRINT_SECRETS}")
    submit(workdir, "ben", Makefile="hw4:\n\t@env >&2; exit 3\n")
    result = judge_class(folder, env={**SECRETS, **NEEDED})
    assert result.returncode == 0, result.stderr
    for path in ("ann/journal.jsonl", "ben/build.txt"):
        assert "hush" not in (workdir / "out" / path).read_text(), path
    env = (workdir / "out" / "ben" / "build.txt").read_text().splitlines()
    assert {f"{name}={value}" for name, value in NEEDED.items()} <= set(env)
    own = {line.partition("=")[2] for line in env if line.startswith(("HOME=", "PWD="))}
    assert own == {str(workdir / "out" / "ben" / "build")}


@needs("make")
def test_pass_env_passes_a_variable_by_name(workdir, folder):
    submit(workdir, "ann", hw4='#!/bin/sh\necho "$MODEL $OTHER." >&2; exit 3\n')
    submit(workdir, "ben", Makefile='hw4:\n\t@echo "error: $$MODEL $$OTHER." >&2; exit 3\n')
    extra = {"MODEL": "small", "OTHER": "hush"}
    result = judge_class(folder, "--pass-env", "MODEL", env=extra)
    assert result.returncode == 0, result.stderr
    results = (workdir / "out" / "results.csv").read_text()
    assert "exit code 3: small ." in results
    assert "error: small ." in results
    fails(judge_class(folder, "--pass-env", "MODLE", env=extra), 2, "--pass-env MODLE: MODLE is not in the environment")
    fails(judge_class(folder, "--pass-env", "HOME", env=extra), 2, "HOME is set for each program")


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read every process's files outside the sandbox")
def test_the_judges_environment_cannot_be_read_through_proc(workdir, folder):
    program = submit(workdir, "ann", hw4="#!/bin/sh\ncat /proc/*/environ | grep -a hush >&2; exit 3\n") / "hw4"
    args = (*JUDGE_T01, "--dir", folder, "--program", program, "--output", "out")
    assert run_hw4(*args, env=SECRETS).returncode == 1
    assert "hush" not in (workdir / "out" / "results.csv").read_text()


def test_programs_behind_a_launcher_get_no_secret_either(workdir, folder):
    program = submit(workdir, "ann", hw4=f"#!/bin/sh\n{PRINT_SECRETS}") / "hw4"
    args = (
        "judge",
        "t01",
        "--limit",
        "t01=120",
        "--dir",
        folder,
        "--program",
        program,
        "--output",
        "out",
        "--launcher",
        "env A=hush-0",
    )
    assert run_hw4(*args, env=SECRETS).returncode == 1
    assert ",NA,exit code 3,120.0," in (workdir / "out" / "results.csv").read_text()


def test_the_library_variables_of_the_sandbox_are_passed():
    assert all(map(is_passed, LIBRARY_VARIABLES))


@pytest.mark.parametrize("name", ["CUDA_HOME", "MINE"])
def test_a_variable_that_names_the_answer_is_never_passed(tmp_path, name):
    answer = tmp_path / "t01.out"
    for value in (str(answer), f"x:{answer}", str(tmp_path)):
        assert name not in environment({name: value}, tmp_path / "run", answer, ["MINE"])
    assert environment({name: "/elsewhere"}, tmp_path / "run", answer, ["MINE"])[name] == "/elsewhere"


@needs("make")
def test_a_shell_and_make_work_with_the_passed_variables(tmp_path):
    """They get only the passed variables, as when the judge starts them."""
    env = environment(os.environ, tmp_path, tmp_path / "cases" / "t01.out")
    assert (
        subprocess.run(["sh", "-c", "cd && pwd"], env=env, capture_output=True, text=True).stdout.strip() == env["PWD"]
    )
    assert subprocess.run(["make", "--version"], env=env, capture_output=True).returncode == 0

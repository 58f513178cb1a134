"""Cases of your own, `--suite FILE`, and those for AMD's GPUs; also in a Slurm allocation of another partition."""

import hashlib
import json
import os

import pytest
from helpers import fails
from slow import slow

from hw4cli.problem import suite
from hw4cli.problem.workload import Shape
from hw4cli.resources import data_path

SHAPE, SEED = Shape(2, 16, 8), 5
# srun without a cluster: it notes its options, and starts the command behind them.
SRUN = """#!/bin/sh
echo "$*" >> {log}
while :; do case $1 in -p) shift 2;; -*) shift;; *) exec "$@";; esac; done
"""


@pytest.fixture
def own(tmp_path):
    """A suite of one small case."""
    digest = hashlib.sha256()
    for chunk in suite.input_chunks(SHAPE, SEED):
        digest.update(chunk.data)
    path = tmp_path / "own.toml"
    row = f'{{ shape = [2, 16, 8], seed = {SEED}, limit = 7, sha256 = "{digest.hexdigest()}" }}'
    path.write_text(f"[cases]\nsmall = {row}\n")
    return path


def test_the_cases_of_a_file_are_made_and_judged_by_its_limits(hw4, own, tmp_path):
    assert hw4("gen", "small", "--suite", own, "--dir", tmp_path / "cases").returncode == 0
    result = hw4("judge", "--suite", own, "--dir", tmp_path / "cases", "--json", env={"CUDA_VISIBLE_DEVICES": "-1"})
    assert result.returncode == 0, result.stderr
    (case,) = json.loads(result.stdout)["standings"][0]["results"]
    assert (case["case"], case["limit"], case["verdict"]) == ("small", 7.0, "AC")
    fails(hw4("gen", "t01", "--suite", own, "--dir", tmp_path / "cases"), 2, "there is no case 't01'")


@slow
def test_a_partition_of_amds_judges_the_same_cases(hw4, own, tmp_path):
    (tmp_path / "srun").write_text(SRUN.format(log=tmp_path / "log"))
    (tmp_path / "srun").chmod(0o755)
    env = {"PATH": f"{tmp_path}:{os.environ['PATH']}", "CUDA_VISIBLE_DEVICES": "-1"}
    assert hw4("gen", "small", "--suite", own, "--dir", tmp_path / "cases").returncode == 0
    options = ("--suite", own, "--dir", tmp_path / "cases", "--json", "--srun", "-p amd --gres=gpu:1")
    result = hw4("judge", *options, env=env)
    assert result.returncode == 0, result.stderr
    assert [case["case"] for case in json.loads(result.stdout)["standings"][0]["results"]] == ["small"]
    assert (tmp_path / "log").read_text().startswith("-N1 -n1 -p amd --gres=gpu:1 ")


def test_a_suite_that_is_not_there_is_one_sentence(hw4, tmp_path):
    fails(hw4("judge", "--suite", "vega"), 2, "there is no suite vega: give a folder of inputs, a file")
    (tmp_path / "bad.toml").write_text("[cases]\n")
    fails(hw4("gen", "t01", "--suite", tmp_path / "bad.toml"), 2, "bad.toml has no cases")


def test_the_cases_for_amds_gpus_are_some_of_the_assignments_with_longer_limits(hw4, tmp_path):
    found, known = suite.read(data_path("testcases/amd.toml")), suite.cases()
    assert {(case.shape.d, case.limit) for case in found.values()} == {(d, s) for d in (32, 64) for s in (4, 12, 20)}
    for name, case in found.items():
        assert (case.shape, case.seed, case.sha256) == (known[name].shape, known[name].seed, known[name].sha256)
        assert case.limit == 2 * known[name].limit
    fails(hw4("gen", "t03", "--suite", "amd", "--dir", tmp_path), 2, "there is no case 't03'")

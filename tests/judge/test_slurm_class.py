"""A class judged as an array of jobs on a real Slurm, which these tests start."""

import json
import shlex
import signal

import pytest
from cluster import answering_program, processes_naming, queue, shell_program
from helpers import HANGS, OPEN, fails, run_hw4, start_hw4
from needs import SLURM, needs

from hw4cli.judge.scoring import standings
from hw4cli.judge.scoring.record import Rules

pytestmark = [
    pytest.mark.slurm,
    needs(*SLURM),
]


@pytest.fixture
def folder(two):
    return two


@pytest.fixture(autouse=True)
def current_folder(tmp_path, monkeypatch):
    """The results lie in the current folder."""
    monkeypatch.chdir(tmp_path)


@pytest.fixture
def submissions(folder, tmp_path):
    """Six students: five whose programs copy the answers and log each run, and one whose program does not build."""
    root = tmp_path / "submissions"
    for user in ("ann", "ben", "cid", "o'neil $x", "eve"):
        answering_program(root / user / "hw4", folder, first=f"echo {shlex.quote(user)} >> {tmp_path}/runs; sleep 0.3")
    (root / "bad").mkdir()
    (root / "bad" / "Makefile").write_text("hw4:\n\t@echo 'hw4.cu(3): error: expected a ;' >&2; exit 1\n")
    return root


def class_args(folder, submissions, sandbox=OPEN):
    array = ("--slurm", "-p nvidia --gres=gpu:1", "--parallel", "2")
    return ("judge", "--class", submissions, "--output", "out", "--dir", folder, *array, *sandbox)


CASES = ("--", "t01", "t02")


def board(folder):
    return {one.user: one for one in standings.load(folder, Rules())}


def test_a_class_is_judged_as_one_array_even_with_broken_submissions(cluster, folder, submissions, tmp_path):
    result = run_hw4(*class_args(folder, submissions), *CASES, env=cluster.settings)
    assert result.returncode == 0, result.stderr
    found = board(tmp_path / "out")
    assert {user: one.passed for user, one in found.items()} == {
        **dict.fromkeys(("ann", "ben", "cid", "o'neil $x", "eve"), 2),
        "bad": 0,
    }
    assert found["bad"].note == "make hw4 failed: hw4.cu(3): error: expected a ;"
    assert {one.session["settings"]["slurm"]["partition"] for one in found.values() if not one.note} == {"nvidia"}
    assert "6 submissions, 2 at a time" in result.stderr
    assert len(json.loads((tmp_path / "out" / "results.json").read_text())["standings"]) == 6


def test_a_cancelled_class_is_resumed_without_running_anything_twice(cluster, folder, submissions, tmp_path):
    process = start_hw4(*class_args(folder, submissions), *CASES, env=cluster.settings)
    cluster.wait_for((tmp_path / "runs").exists)
    cluster.wait_for(lambda: len((tmp_path / "runs").read_text().splitlines()) >= 3)
    process.send_signal(signal.SIGINT)
    _, stderr = process.communicate(timeout=HANGS)
    assert process.returncode == 130, stderr
    assert "cancelling Slurm's job" in stderr
    assert queue(cluster) == []
    complete = {
        (user, case) for user, one in board(tmp_path / "out").items() for case in one.results if not one.note
    }  # the results in the journals
    assert len(complete) < 10
    before = (tmp_path / "runs").read_text().splitlines()
    result = run_hw4(*class_args(folder, submissions), "--resume", *CASES, env=cluster.settings)
    assert result.returncode == 0, result.stderr
    assert sum(one.passed for one in board(tmp_path / "out").values()) == 10
    after = (tmp_path / "runs").read_text().splitlines()
    assert len(after) - len(before) == 10 - len(complete)


def test_an_array_whose_judge_was_killed_is_waited_for(cluster, folder, submissions, tmp_path):
    eve, go = submissions / "eve", tmp_path / "go"
    (eve / "hw4").rename(eve / "solution")  # the array works until she is built
    (eve / "Makefile").write_text(f"hw4:\n\twhile [ ! -e {go} ]; do sleep 0.1; done; cp solution hw4\n")
    process = start_hw4(*class_args(folder, submissions), *CASES, env=cluster.settings)
    cluster.wait_for((tmp_path / "runs").exists)
    process.kill()
    process.communicate()
    again = run_hw4(*class_args(folder, submissions, ()), *CASES, env=cluster.settings)
    fails(again, 2, "still judges into out", "--resume")
    waiting = start_hw4(*class_args(folder, submissions), "--resume", *CASES, env=cluster.settings)
    lines = iter(waiting.stderr.readline, "")
    assert any("still judges: waiting for it" in line for line in lines)
    go.touch()
    _, stderr = waiting.communicate(timeout=HANGS)
    assert waiting.returncode == 0, stderr
    assert len((tmp_path / "runs").read_text().splitlines()) == 10


def test_a_student_whose_task_slurm_ends_is_reported_and_has_no_score(cluster, folder, submissions, tmp_path):
    for user in ("ann", "ben", "cid", "o'neil $x"):
        (submissions / user / "hw4").unlink()
        (submissions / user).rmdir()
    shell_program(submissions / "eve" / "hw4", f"touch {tmp_path}/started; sleep 98762")
    process = start_hw4(*class_args(folder, submissions), *CASES, env=cluster.settings)
    cluster.wait_for((tmp_path / "started").exists)
    cluster.run("scancel", "--partition=nvidia")
    stdout, stderr = process.communicate(timeout=HANGS)
    assert process.returncode == 3, stdout + stderr
    assert "eve: its task ended before all was judged: " in stderr
    assert "CANCELLED" in stderr
    assert board(tmp_path / "out")["bad"].note
    assert processes_naming("98762") == []


def test_an_array_that_slurm_refuses_is_reported_with_slurms_message(cluster, folder, submissions, tmp_path):
    args = [*class_args(folder, submissions, ()), *CASES]
    args[args.index("--slurm") + 1] = "-p nowhere"
    fails(run_hw4(*args, env=cluster.settings), 3, "sbatch failed: invalid partition specified: nowhere")

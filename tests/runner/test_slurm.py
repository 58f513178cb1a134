"""The judge on a real Slurm, which these tests start: in an allocation, behind a launcher, as an array for a class."""

import json
import shlex
import signal
import subprocess
import time
from dataclasses import replace

import psutil
import pytest
from cluster import Cluster, missing
from helpers import OPEN, fails, folder_is_clean, make_cases, run_hw4, start_hw4, tiny_case

from hw4cli.judge import runcase
from hw4cli.judge.runcase import Settings, judge_case
from hw4cli.problem.verdict import Verdict
from hw4cli.scoring import standings
from hw4cli.scoring.record import Rules, decide

pytestmark = [
    pytest.mark.slurm,
    pytest.mark.skipif(bool(missing()), reason=f"Slurm is not installed ({', '.join(missing())})"),
]
SRUN = ("srun", "-p", "nvidia", "-N1", "-n1", "--gres=gpu:1")


@pytest.fixture(scope="module")
def cluster(tmp_path_factory):
    with Cluster(tmp_path_factory.mktemp("slurm")) as cluster:
        yield cluster


@pytest.fixture
def folder(two):
    return two


@pytest.fixture(scope="module")
def tiny(tmp_path_factory):
    """A small case, and the folder it lies in."""
    case = tiny_case(limit=5.0)
    return case, make_cases(tmp_path_factory.mktemp("tiny"), case)


@pytest.fixture(autouse=True)
def here(tmp_path, monkeypatch):
    """Behind a launcher, private folders are made in the current one."""
    monkeypatch.chdir(tmp_path)


def script(path, body):
    """A program of the shell, which is given INPUT and OUTPUT."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!/bin/sh\n{body}\n")
    path.chmod(0o755)
    return path


def knowing(path, folder, more=":"):
    """A program that knows the answers by their inputs, and does something `more` before."""
    body = f'{more}\nfor case in {folder}/*.out; do cmp -s "$1" "${{case%.out}}" && cp "$case" "$2"; done; true'
    return script(path, body)


def judged(tiny, cluster, program, *launcher):
    """The verdict and the reason of a program's run behind a launcher."""
    case, folder = tiny
    settings = Settings(launcher=launcher or SRUN, env=cluster.env, say=lambda _: None)
    return decide(judge_case(case, [str(program)], folder, settings))


def results(folder):
    [one] = json.loads((folder / "results.json").read_text())["standings"]
    return one


def processes_with(word):
    return [one for one in psutil.process_iter(["cmdline"]) if word in " ".join(one.info["cmdline"] or ())]


def queue(cluster):
    return cluster.run("squeue", "--noheader").stdout.split("\n")[:-1]


@pytest.fixture
def held(cluster):
    """Both GPUs given to somebody else, for some seconds."""
    busy = subprocess.Popen(["srun", "-p", "nvidia", "--gres=gpu:2", "sleep", "4"], env=cluster.env)
    cluster.wait_for(lambda: any(" R " in line for line in queue(cluster)))
    yield
    busy.wait()


def judged_after_waiting(cluster, folder, program, *words):
    """A program that all goes well with, judged while the GPUs are held; and the seconds, with the queue."""
    start = time.monotonic()
    words = ("judge", "--dir", folder, "--program", program, "--output", "out", *words)
    result = run_hw4(*words, env=cluster.settings)
    assert result.returncode == 0, result.stderr
    assert "queued and waiting" in result.stderr
    return result, time.monotonic() - start


def test_in_an_allocation_the_judge_just_runs(cluster, folder, tmp_path):
    program = knowing(tmp_path / "hw4", folder)
    result = run_hw4(
        *("judge", "t01", "--dir", folder, "--program", program, "--output", "out"), prefix=SRUN, env=cluster.settings
    )
    assert result.returncode == 0, result.stderr
    assert results(tmp_path / "out")["session"]["settings"]["slurm"]["partition"] == "nvidia"


def test_srun_takes_one_allocation_for_all_cases_and_does_not_time_the_queue(cluster, folder, held, tmp_path):
    program = knowing(tmp_path / "hw4", folder, more=f"echo $SLURM_JOB_ID $CUDA_VISIBLE_DEVICES >> {tmp_path}/jobs")
    result, took = judged_after_waiting(cluster, folder, program, "t01", "t02", "--srun", "-p nvidia --gres=gpu:1")
    assert "2 of 2 cases AC" in result.stdout
    first, second = (tmp_path / "jobs").read_text().splitlines()
    assert first == second
    assert first.endswith(" 0")
    assert all(one["wall"] < took / 2 for one in results(tmp_path / "out")["results"])


def test_srun_passes_on_what_the_judge_finds_out(cluster, folder, tmp_path):
    program = script(tmp_path / "hw4", "exit 4")
    words = ("judge", "t01", "--dir", folder, "--program", program, "--srun=-p nvidia")
    result = run_hw4(*words, env=cluster.settings)
    assert result.returncode == 1
    assert "exit code 4" in result.stdout
    fails(run_hw4(*words[:-1], "--dir", tmp_path / "no", "--srun", "-p nvidia", env=cluster.settings), 3, "hw4 gen t01")


def test_an_allocation_that_slurm_refuses_is_told_in_its_words(cluster, folder):
    words = ("judge", "t01", "--dir", folder, "--srun")
    refused = run_hw4(*words, "-p nowhere", env=cluster.settings)
    fails(refused, 3, "Slurm did not run the judge", "invalid partition specified: nowhere")
    refused = run_hw4(*words, "-p nvidia --gres=gpu:9", env=cluster.settings)
    fails(refused, 3, "Requested node configuration is not available")
    refused = run_hw4(*words, "--no-such-option", env=cluster.settings)
    assert refused.returncode == 3
    assert "unrecognized option" in refused.stderr.splitlines()[-1]


def test_an_allocation_that_slurm_ends_is_told_in_its_words(cluster, folder, tmp_path):
    program = script(tmp_path / "hw4", f"touch {tmp_path}/started; sleep 98759")
    words = ("--dir", folder, "--program", program, "--srun", "-p nvidia")
    process = start_hw4("judge", "t01", *words, env=cluster.settings)
    cluster.wait_for((tmp_path / "started").exists)
    cluster.run("scancel", "--partition=nvidia")
    _, stderr = process.communicate(timeout=60)
    assert process.returncode == 3, stderr
    assert "CANCELLED" in stderr.splitlines()[-1]
    assert processes_with("98759") == []


def test_behind_a_launcher_the_clock_starts_in_the_step(cluster, folder, held, tmp_path):
    program = knowing(tmp_path / "hw4", folder, more="echo $CUDA_VISIBLE_DEVICES >&2")
    _, took = judged_after_waiting(cluster, folder, program, "t01", "--launcher", " ".join(SRUN))
    [one] = results(tmp_path / "out")["results"]
    assert one["wall"] < took / 2
    assert results(tmp_path / "out")["session"]["settings"]["input_cached"] is False
    folder_is_clean(tmp_path / "out", "journal.jsonl", *(f"results.{end}" for end in ("csv", "json", "md", "xml")))


@pytest.mark.parametrize(
    ("body", "verdict", "words"),
    [
        ("echo CUDA error: out of memory >&2; exit 3", Verdict.NA, "exit code 3: CUDA error: out of memory"),
        ("exit 125", Verdict.NA, "exit code 125"),
        ("exit 139", Verdict.NA, "exit code 139, a shell's report of signal 11 (SIGSEGV)"),
        ("kill -SEGV $$", Verdict.NA, "ended by signal 11 (SIGSEGV)"),
        ("true", Verdict.NA, "no output file"),
        ("echo hw4-report {} ; true", Verdict.NA, "no output file"),
    ],
)
def test_behind_a_launcher_a_program_fails_as_it_does_without(cluster, tiny, tmp_path, body, verdict, words):
    found = judged(tiny, cluster, script(tmp_path / "hw4", body))
    assert (found[0], found[1].partition(" (the GPU")[0]) == (verdict, words)


def test_behind_a_launcher_a_program_that_cannot_be_started_is_told(cluster, tiny, tmp_path):
    verdict, reason = judged(tiny, cluster, tmp_path / "nothing")
    assert verdict is Verdict.NA
    assert "there is no such file" in reason


def test_the_kill_is_in_the_step_and_leaves_nothing_alive(cluster, tiny, tmp_path, monkeypatch):
    case, folder = tiny
    monkeypatch.setattr(runcase, "KILL_AFTER", 0.5)
    program = script(tmp_path / "hw4", "trap '' TERM; setsid sleep 98765 & setsid sleep 98765 & sleep 98765")
    settings = Settings(launcher=SRUN, env=cluster.env, say=lambda _: None)
    start = time.monotonic()
    attempt = judge_case(replace(case, limit=0.5), [str(program)], folder, settings)
    assert attempt.killed
    assert decide(attempt)[0] is Verdict.TLE_PLUS
    assert 1 <= attempt.wall < 5
    assert time.monotonic() - start < 30, "srun waited for what was left behind"
    assert processes_with("98765") == []


@pytest.mark.parametrize(
    ("launcher", "words"),
    [
        ("srun -p nowhere", "invalid partition specified: nowhere"),
        ("srun -p nvidia --gres=gpu:9", "Requested node configuration is not available"),
        ("srun -p nvidia --gres=tpu:1", "Invalid generic resource (gres) specification"),
        ("srun --no-such-option", "unrecognized option"),
        ("no-such-launcher -x", "no-such-launcher cannot be started: there is no such program on PATH"),
        ("srun -p nvidia -n2 --overcommit", "the launcher started the program 2 times"),
        ("true", "true did not run the program (exit code 0): it said nothing"),
    ],
)
def test_a_failed_launch_is_the_judges_failure_in_slurms_words(cluster, tiny, tmp_path, launcher, words):
    verdict, reason = judged(tiny, cluster, script(tmp_path / "hw4", "true"), *launcher.split())
    assert verdict is Verdict.JE
    assert words in reason


def test_a_launch_that_must_be_immediate_and_cannot_is_the_judges_failure(cluster, tiny, held, tmp_path):
    verdict, reason = judged(tiny, cluster, script(tmp_path / "hw4", "true"), *SRUN, "--immediate=1")
    assert verdict is Verdict.JE
    assert "Unable to allocate resources" in reason


def test_a_run_that_slurm_cancels_is_the_judges_failure(cluster, folder, tmp_path):
    program = script(tmp_path / "hw4", f"touch {tmp_path}/started; sleep 98764")
    words = ("--dir", folder, "--program", program, "--launcher", " ".join(SRUN))
    process = start_hw4("judge", "t01", *words, "--output", "out", env=cluster.settings)
    cluster.wait_for((tmp_path / "started").exists)
    cluster.run("scancel", "--state=RUNNING", "--partition=nvidia")
    stdout, stderr = process.communicate(timeout=60)
    assert process.returncode == 3, stdout + stderr
    assert "CANCELLED" in results(tmp_path / "out")["results"][0]["reason"]
    assert processes_with("98764") == []


@pytest.mark.parametrize("how", ["--launcher", "--srun"])
def test_ctrl_c_ends_what_slurm_runs_for_the_judge(cluster, folder, tmp_path, how):
    program = script(tmp_path / "hw4", f"touch {tmp_path}/started; sleep 98763")
    options = " ".join(SRUN) if how == "--launcher" else " ".join(SRUN[1:])
    words = ("--dir", folder, "--program", program, how, options)
    process = start_hw4("judge", "t01", *words, "--output", "out", env=cluster.settings)
    cluster.wait_for((tmp_path / "started").exists)
    process.send_signal(signal.SIGINT)
    _, stderr = process.communicate(timeout=60)
    assert process.returncode == 130, stderr
    assert stderr.splitlines()[-1].startswith("hw4: interrupted")
    cluster.wait_for(lambda: not queue(cluster))
    assert processes_with("98763") == []
    assert not list((tmp_path / "out").glob("hw4-judge*"))


@pytest.fixture
def submissions(folder, tmp_path):
    """Six students: five whose programs know the answers and tell of each run, and one whose program does not build."""
    place = tmp_path / "submissions"
    for user in ("ann", "ben", "cid", "o'neil $x", "eve"):
        knowing(place / user / "hw4", folder, more=f"echo {shlex.quote(user)} >> {tmp_path}/runs; sleep 0.3")
    (place / "bad").mkdir()
    (place / "bad" / "Makefile").write_text("hw4:\n\t@echo 'hw4.cu(3): error: expected a ;' >&2; exit 1\n")
    return place


def class_words(folder, submissions, sandbox=OPEN):
    array = ("--slurm", "-p nvidia --gres=gpu:1", "--parallel", "2")
    return ("judge", "--class", submissions, "--output", "out", "--dir", folder, *array, *sandbox)


CASES = ("--", "t01", "t02")


def board(folder):
    return {one.user: one for one in standings.load(folder, Rules())}


def test_a_class_is_judged_as_one_array_whatever_is_broken(cluster, folder, submissions, tmp_path):
    result = run_hw4(*class_words(folder, submissions), *CASES, env=cluster.settings)
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
    process = start_hw4(*class_words(folder, submissions), *CASES, env=cluster.settings)
    cluster.wait_for((tmp_path / "runs").exists)
    cluster.wait_for(lambda: len((tmp_path / "runs").read_text().splitlines()) >= 3)
    process.send_signal(signal.SIGINT)
    _, stderr = process.communicate(timeout=90)
    assert process.returncode == 130, stderr
    assert "cancelling Slurm's job" in stderr
    assert queue(cluster) == []
    whole = {
        (user, case) for user, one in board(tmp_path / "out").items() for case in one.results if not one.note
    }  # what a journal holds already
    assert len(whole) < 10
    before = (tmp_path / "runs").read_text().splitlines()
    result = run_hw4(*class_words(folder, submissions), "--resume", *CASES, env=cluster.settings)
    assert result.returncode == 0, result.stderr
    assert sum(one.passed for one in board(tmp_path / "out").values()) == 10
    after = (tmp_path / "runs").read_text().splitlines()
    assert len(after) - len(before) == 10 - len(whole)


def test_an_array_whose_judge_was_killed_is_waited_for(cluster, folder, submissions, tmp_path):
    process = start_hw4(*class_words(folder, submissions), *CASES, env=cluster.settings)
    cluster.wait_for((tmp_path / "runs").exists)
    process.kill()
    process.communicate()
    again = run_hw4(*class_words(folder, submissions, ()), *CASES, env=cluster.settings)
    fails(again, 2, "still judges into out", "--resume")
    result = run_hw4(*class_words(folder, submissions), "--resume", *CASES, env=cluster.settings)
    assert result.returncode == 0, result.stderr
    assert "still judges: waiting for it" in result.stderr
    assert len((tmp_path / "runs").read_text().splitlines()) == 10


def test_students_whose_task_slurm_ends_are_told_and_stay_open(cluster, folder, submissions, tmp_path):
    for user in ("ann", "ben", "cid", "o'neil $x"):
        (submissions / user / "hw4").unlink()
        (submissions / user).rmdir()
    script(submissions / "eve" / "hw4", f"touch {tmp_path}/started; sleep 98762")
    process = start_hw4(*class_words(folder, submissions), *CASES, env=cluster.settings)
    cluster.wait_for((tmp_path / "started").exists)
    cluster.run("scancel", "--partition=nvidia")
    stdout, stderr = process.communicate(timeout=90)
    assert process.returncode == 3, stdout + stderr
    assert "eve: its task ended before all was judged: " in stderr
    assert "CANCELLED" in stderr
    assert board(tmp_path / "out")["bad"].note
    assert processes_with("98762") == []


def test_an_array_that_slurm_refuses_is_told_in_its_words(cluster, folder, submissions, tmp_path):
    words = [*class_words(folder, submissions, ()), *CASES]
    words[words.index("--slurm") + 1] = "-p nowhere"
    fails(run_hw4(*words, env=cluster.settings), 3, "sbatch: invalid partition specified: nowhere")

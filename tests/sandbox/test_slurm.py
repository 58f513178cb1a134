"""The judge on a real Slurm, which these tests start: in an allocation, and behind a launcher."""

import json
import signal
import subprocess
import time
from dataclasses import replace

import pytest
from cluster import answering_program, processes_naming, queue, shell_program
from helpers import HANGS, JUDGE_T01, fails, folder_is_clean, make_cases, run_hw4, start_hw4, tiny_case
from needs import SLURM, needs

from hw4cli.judge import runcase
from hw4cli.judge.plan import RunSettings
from hw4cli.judge.runcase import judge_case
from hw4cli.judge.scoring.record import decide
from hw4cli.problem.verdict import Verdict

pytestmark = [
    pytest.mark.slurm,
    needs(*SLURM),
]
SRUN = ("srun", "-p", "nvidia", "-N1", "-n1", "--gres=gpu:1")


@pytest.fixture
def folder(two):
    return two


@pytest.fixture(scope="module")
def tiny(tmp_path_factory):
    """A small case, and the folder it lies in."""
    case = tiny_case(limit=5.0)
    return case, make_cases(tmp_path_factory.mktemp("tiny"), case)


@pytest.fixture(autouse=True)
def current_folder(tmp_path, monkeypatch):
    """Behind a launcher, private folders are made in the current one."""
    monkeypatch.chdir(tmp_path)


def judged(tiny, cluster, program, *launcher):
    """The verdict and the reason of a program's run behind a launcher."""
    case, folder = tiny
    settings = RunSettings(launcher=launcher or SRUN, env=cluster.env)
    return decide(judge_case(case, [str(program)], folder, settings))


def results(folder):
    [one] = json.loads((folder / "results.json").read_text())["standings"]
    return one


@pytest.fixture
def held(cluster):
    """Both GPUs are allocated to another job for some seconds."""
    busy = subprocess.Popen(["srun", "-p", "nvidia", "--gres=gpu:2", "sleep", "4"], env=cluster.env)
    cluster.wait_for(lambda: any(" R " in line for line in queue(cluster)))
    yield
    busy.wait()


def judged_after_waiting(cluster, folder, program, *args):
    """A program that all goes well with, judged while the GPUs are held; and the seconds, with the queue."""
    start = time.monotonic()
    args = ("judge", "--dir", folder, "--program", program, "--output", "out", *args)
    result = run_hw4(*args, env=cluster.settings)
    assert result.returncode == 0, result.stderr
    assert "queued and waiting" in result.stderr
    return result, time.monotonic() - start


def test_in_an_allocation_the_judge_runs_directly(cluster, folder, tmp_path):
    program = answering_program(tmp_path / "hw4", folder)
    result = run_hw4(
        *JUDGE_T01,
        *("--dir", folder, "--program", program, "--output", "out"),
        prefix=SRUN,
        env=cluster.settings,
    )
    assert result.returncode == 0, result.stderr
    assert results(tmp_path / "out")["session"]["settings"]["slurm"]["partition"] == "nvidia"


def test_srun_takes_one_allocation_for_all_cases_and_does_not_time_the_queue(cluster, folder, held, tmp_path):
    log = f"echo $SLURM_JOB_ID $CUDA_VISIBLE_DEVICES >> {tmp_path}/jobs"
    program = answering_program(tmp_path / "hw4", folder, first=log)
    result, took = judged_after_waiting(cluster, folder, program, "t01", "t02", "--srun", "-p nvidia --gres=gpu:1")
    assert "2 of 2 cases AC" in result.stdout
    first, second = (tmp_path / "jobs").read_text().splitlines()
    assert first == second
    assert first.endswith(" 0")
    assert all(one["wall"] < took / 2 for one in results(tmp_path / "out")["results"])


def test_srun_passes_on_the_judges_output_and_exit_status(cluster, folder, tmp_path):
    program = shell_program(tmp_path / "hw4", "exit 4")
    args = (*JUDGE_T01, "--dir", folder, "--program", program, "--srun=-p nvidia")
    result = run_hw4(*args, env=cluster.settings)
    assert result.returncode == 1
    assert "exit code 4" in result.stdout
    fails(run_hw4(*args[:-1], "--dir", tmp_path / "no", "--srun", "-p nvidia", env=cluster.settings), 3, "hw4 gen t01")


def test_an_allocation_that_slurm_refuses_is_reported_with_slurms_message(cluster, folder):
    args = (*JUDGE_T01, "--dir", folder, "--srun")
    refused = run_hw4(*args, "-p nowhere", env=cluster.settings)
    fails(refused, 3, "Slurm did not run the judge", "invalid partition specified: nowhere")
    refused = run_hw4(*args, "-p nvidia --gres=gpu:9", env=cluster.settings)
    fails(refused, 3, "Requested node configuration is not available")
    refused = run_hw4(*args, "--no-such-option", env=cluster.settings)
    assert refused.returncode == 3
    assert "unrecognized option" in refused.stderr.splitlines()[-1]


def test_an_allocation_that_slurm_ends_is_reported_with_slurms_message(cluster, folder, tmp_path):
    program = shell_program(tmp_path / "hw4", f"touch {tmp_path}/started; sleep 98759")
    args = ("--dir", folder, "--program", program, "--srun", "-p nvidia")
    process = start_hw4("judge", "t01", *args, env=cluster.settings)
    cluster.wait_for((tmp_path / "started").exists)
    cluster.run("scancel", "--partition=nvidia")
    _, stderr = process.communicate(timeout=HANGS)
    assert process.returncode == 3, stderr
    assert "CANCELLED" in stderr.splitlines()[-1]
    assert processes_naming("98759") == []


def test_behind_a_launcher_the_clock_starts_in_the_step(cluster, folder, held, tmp_path):
    program = answering_program(tmp_path / "hw4", folder, first="echo $CUDA_VISIBLE_DEVICES >&2")
    _, took = judged_after_waiting(cluster, folder, program, "t01", "--launcher", " ".join(SRUN))
    [one] = results(tmp_path / "out")["results"]
    assert one["wall"] < took / 2
    assert results(tmp_path / "out")["session"]["settings"]["input_cached"] is False
    documents = (f"results.{end}" for end in ("csv", "json", "md", "xml"))
    folder_is_clean(tmp_path / "out", "journal.jsonl", "rules.json", *documents)


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
    found = judged(tiny, cluster, shell_program(tmp_path / "hw4", body))
    assert (found[0], found[1].partition(" (the GPU")[0]) == (verdict, words)


def test_behind_a_launcher_a_program_that_cannot_be_started_is_refused_with_the_cause(cluster, tiny, tmp_path):
    verdict, reason = judged(tiny, cluster, tmp_path / "nothing")
    assert verdict is Verdict.NA
    assert "there is no such file" in reason


def test_the_kill_happens_in_the_step_and_leaves_no_process(cluster, tiny, tmp_path, monkeypatch):
    case, folder = tiny
    monkeypatch.setattr(runcase, "KILL_AFTER", 0.5)
    program = shell_program(tmp_path / "hw4", "trap '' TERM; setsid sleep 98765 & setsid sleep 98765 & sleep 98765")
    settings = RunSettings(launcher=SRUN, env=cluster.env)
    start = time.monotonic()
    attempt = judge_case(replace(case, limit=0.5), [str(program)], folder, settings)
    assert attempt.killed
    assert decide(attempt)[0] is Verdict.TLE_PLUS
    assert 1 <= attempt.wall < 5
    assert time.monotonic() - start < 30, "srun waited for what was left behind"
    assert processes_naming("98765") == []


@pytest.mark.parametrize(
    ("launcher", "words"),
    [
        ("srun -p nowhere", "invalid partition specified: nowhere"),
        ("srun -p nvidia --gres=gpu:9", "Requested node configuration is not available"),
        ("srun -p nvidia --gres=tpu:1", "Invalid generic resource (gres) specification"),
        ("srun --no-such-option", "unrecognized option"),
        ("no-such-launcher -x", "no-such-launcher cannot be started: there is no such program on PATH"),
        ("srun -p nvidia -n2 --overcommit", "the launcher started the program 2 times"),
        ("true", "true did not run the program (exit code 0): it printed no message"),
    ],
)
def test_a_failed_launch_is_the_judges_failure_with_slurms_message(cluster, tiny, tmp_path, launcher, words):
    verdict, reason = judged(tiny, cluster, shell_program(tmp_path / "hw4", "true"), *launcher.split())
    assert verdict is Verdict.JE
    assert words in reason


def test_a_launch_that_must_be_immediate_and_cannot_is_the_judges_failure(cluster, tiny, held, tmp_path):
    verdict, reason = judged(tiny, cluster, shell_program(tmp_path / "hw4", "true"), *SRUN, "--immediate=1")
    assert verdict is Verdict.JE
    assert "Unable to allocate resources" in reason


def test_a_run_that_slurm_cancels_is_the_judges_failure(cluster, folder, tmp_path):
    program = shell_program(tmp_path / "hw4", f"touch {tmp_path}/started; sleep 98764")
    args = ("--dir", folder, "--program", program, "--launcher", " ".join(SRUN))
    process = start_hw4("judge", "t01", *args, "--output", "out", env=cluster.settings)
    cluster.wait_for((tmp_path / "started").exists)
    cluster.run("scancel", "--state=RUNNING", "--partition=nvidia")
    stdout, stderr = process.communicate(timeout=HANGS)
    assert process.returncode == 3, stdout + stderr
    assert "CANCELLED" in results(tmp_path / "out")["results"][0]["reason"]
    assert processes_naming("98764") == []


@pytest.mark.parametrize("how", ["--launcher", "--srun"])
def test_ctrl_c_cancels_the_judges_slurm_jobs(cluster, folder, tmp_path, how):
    program = shell_program(tmp_path / "hw4", f"touch {tmp_path}/started; sleep 98763")
    options = " ".join(SRUN) if how == "--launcher" else " ".join(SRUN[1:])
    args = ("--dir", folder, "--program", program, how, options)
    process = start_hw4("judge", "t01", *args, "--output", "out", env=cluster.settings)
    cluster.wait_for((tmp_path / "started").exists)
    process.send_signal(signal.SIGINT)
    _, stderr = process.communicate(timeout=HANGS)
    assert process.returncode == 130, stderr
    assert stderr.splitlines()[-1].startswith("hw4: interrupted")
    cluster.wait_for(lambda: not queue(cluster))
    assert processes_naming("98763") == []
    assert not list((tmp_path / "out").glob("hw4-judge*"))

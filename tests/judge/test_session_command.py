"""`hw4 judge` for one program, as a process: interrupts, a full disk, a busy GPU, options and their mistakes."""

import fcntl
import json
import os
import re
import resource
import signal
import subprocess
import sys

import psutil
import pytest
from helpers import HANGS, fails, hw4_env, run_here, run_hw4, wait_until
from sessions import contestant, folder, judge_args
from slow import slow

from hw4cli.judge.scoring import journal
from hw4cli.sandbox.gpu import LOCKS

__all__ = ["contestant", "folder"]


def start(*args, **kwargs):
    """hw4 as a process that tests can send signals to."""
    return subprocess.Popen([sys.executable, "-m", "hw4cli", *args], env=hw4_env(**kwargs.pop("env", {})), **kwargs)


@slow
def test_a_killed_session_is_resumed_with_only_the_missing_runs(folder, contestant, tmp_path):
    path, ran = contestant(folder, "if case.name == 't02' and not runs: time.sleep(300)")
    out = tmp_path / "out"
    process = start(*judge_args(folder, path, "--output", out), stdout=subprocess.DEVNULL)
    wait_until(lambda: "t02" in ran())
    process.send_signal(signal.SIGKILL)
    process.wait(HANGS)
    for stray in psutil.process_iter(["cmdline"]):  # a killed judge cannot
        if str(path) in (stray.info["cmdline"] or []):
            stray.kill()
    with (out / journal.NAME).open("a") as file:
        file.write('{"kind": "run", "key": "cut off he')
    result = run_here(*judge_args(folder, path, "--output", out, "--resume"))
    assert result.returncode == 0, result.stdout + result.stderr
    assert "3 of 3 cases AC, score at most 60 of 60" in result.stdout
    assert ran() == ["t01", "t02", "t02", "t03"]
    document = json.loads((out / "results.json").read_text())
    assert [one["case"] for one in document["standings"][0]["results"]] == ["t01", "t02", "t03"]


def test_ctrl_c_shows_and_writes_the_results_with_exit_status_130(folder, contestant, tmp_path):
    path, ran = contestant(folder, "if case.name == 't02': time.sleep(300)")
    out = tmp_path / "out"
    process = start(
        *judge_args(folder, path, "--output", out), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    wait_until(lambda: "t02" in ran())
    process.send_signal(signal.SIGINT)
    stdout, stderr = process.communicate(timeout=HANGS)
    message = "hw4: interrupted: 1 of 3 cases are judged, --resume continues"
    assert (process.returncode, stderr.strip()) == (130, message)
    assert re.search(r"^t01 .* AC ", stdout, re.MULTILINE)
    assert "2 cases not judged yet, counted as not accepted: t02 t03" in stdout
    assert sorted(p.name for p in out.iterdir()) == [
        "journal.jsonl", "results.csv", "results.json", "results.md", "results.xml", "rules.json",
    ]  # fmt: skip
    assert json.loads((out / "results.json").read_text())["standings"][0]["missing"] == ["t02", "t03"]


def test_a_judge_that_waits_for_the_gpu_prints_a_message_and_continues(folder, contestant):
    path, ran = contestant(folder)
    gpu = f"GPU-test-{os.getpid()}"
    lock = LOCKS / f"hw4-gpu-{gpu}.lock"
    try:
        with lock.open("w") as held:
            fcntl.flock(held, fcntl.LOCK_EX)
            process = start(*judge_args(folder, path), stderr=subprocess.PIPE, stdout=subprocess.DEVNULL, text=True,
                            env={"CUDA_VISIBLE_DEVICES": gpu})  # fmt: skip
            message = process.stderr.readline()
            assert ran() == []
        process.communicate(timeout=HANGS)
    finally:
        lock.unlink(missing_ok=True)
    assert message.startswith(f"hw4: waiting for GPU {gpu}")
    assert process.returncode == 0
    assert ran() == ["t01", "t02", "t03"]


def test_json_is_one_document_and_nothing_else(folder, contestant, tmp_path):
    path, _ = contestant(folder, "if case.name == 't02': sys.exit('no luck')")
    result = run_here(*judge_args(folder, path, "--json", "--user", "ann", "--output", tmp_path / "out"))
    assert (result.returncode, result.stderr) == (1, "")
    document = json.loads(result.stdout)
    assert result.stdout == (tmp_path / "out" / "results.json").read_text()
    [one] = document["standings"]
    assert (one["user"], one["passed"], one["score"], one["penalty"]) == ("ann", 2, 57, 60)
    assert one["results"][1]["reason"] == "exit code 1: no luck"


def test_options_change_the_rules(folder, contestant):
    path, _ = contestant(folder, "time.sleep(1)")
    result = run_here(*judge_args(folder, path, "--limit", "t01-t02=0.5", "--limit", "t02=20", "--penalty", 5))
    assert result.returncode == 1
    rows = {line.split()[0]: line for line in result.stdout.splitlines() if line.startswith("t0")}
    assert " TLE " in rows["t01"]
    assert " AC " in rows["t02"]
    assert "Penalty 5.00 s" in result.stdout
    shifted = (
        "import struct; data = (folder / (case.name + '.out')).read_bytes(); data = struct.pack('f', 9) + data[4:]"
    )
    path, _ = contestant(folder, f"{shifted}; pathlib.Path(sys.argv[2]).write_bytes(data); sys.exit()")
    assert run_here(*judge_args(folder, path)).returncode == 1
    result = run_here(*judge_args(folder, path, "--tolerance", 20))
    assert result.returncode == 0, result.stdout


def test_a_wrong_option_for_a_session_is_reported_in_one_sentence(folder, contestant, tmp_path):
    path, ran = contestant(folder)
    (tmp_path / "file").write_text("mine")
    for options, message in (
        (["--resume"], "--resume needs --output"),
        (["--restart"], "--restart needs --output"),
        (["--resume", "--restart", "--output", tmp_path / "out"], "--resume and --restart do not go together"),
        (["--output", tmp_path / "file"], "is a file"),
        (["--limit", "t01"], "--limit"),
        (["--limit", "t01=0"], "--limit"),
        (["--limit", "t01=nan"], "--limit"),
        (["--limit", "t01=1e9"], "--limit"),
        (["--limit", "t99=3"], "t99"),
        (["--repeat", "0"], "--repeat"),
        (["--tolerance", "nan"], "--tolerance"),
        (["--rank-by", "luck"], "--rank-by"),
    ):
        fails(run_here(*judge_args(folder, path, *options)), 2, message)
    assert ran() == []


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write anywhere")
def test_an_output_folder_without_permission_is_reported(folder, contestant, tmp_path):
    (tmp_path / "shut").mkdir(mode=0o500)
    fails(run_here(*judge_args(folder, contestant(folder)[0], "--output", tmp_path / "shut")), 3, "shut", "Permission")


def test_a_full_disk_gives_exit_status_3_and_keeps_the_results(folder, contestant, tmp_path):
    path, _ = contestant(folder)
    no_room = {"preexec_fn": lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (2000, resource.RLIM_INFINITY))}
    result = run_hw4(*judge_args(folder, path, "--output", tmp_path / "out"), **no_room)
    assert result.returncode == 3
    [sentence] = result.stderr.splitlines()
    assert sentence.startswith(f"hw4: cannot write {tmp_path / 'out' / journal.NAME}")
    assert "--resume" in sentence
    recorded = [attempt.case for _, attempt in journal.read(tmp_path / "out" / journal.NAME).runs]
    rows = [line.split()[0] for line in result.stdout.splitlines()[1:]]
    assert recorded == rows
    assert 0 < len(recorded) < 3


def test_a_missing_sandbox_is_reported_before_anything_runs(hw4, tmp_path):
    for name in ("t01", "t01.out"):
        (tmp_path / name).touch()
    (tmp_path / "bin").mkdir()
    judging = ("judge", "t01", "--dir", tmp_path, "--sandbox", "bwrap", "--program", "/bin/true")
    fails(hw4(*judging, env={"PATH": str(tmp_path / "bin")}), 3, "apt install bubblewrap")

"""A submission goes through three stages and is kept, whatever comes of it: kernels on a GPU that is made up, programs
for real."""

import fcntl
import json
import sys

import fakegpu
import pytest
from helpers import fails, folder_is_clean, run_here
from slow import slow

from hw4cli.sandbox import gpu as judged_gpu
from hw4cli.show.leaderboard import entries, stages
from hw4cli.show.leaderboard.entries import NAME, read

SHAPE = ("2,64,8",)
NO_GPU = {"CUDA_VISIBLE_DEVICES": "-1"}
RIGHT = """
import math, struct, sys
data = open(sys.argv[1], "rb").read()
B, N, d = struct.unpack_from("<3i", data)
rows = [struct.unpack_from(f"<{d}f", data, 12 + 4 * d * row) for row in range(3 * B * N)]
with open(sys.argv[2], "wb") as out:
    for batch in range(B):
        q, k, v = (rows[(3 * batch + part) * N:][:N] for part in range(3))
        for one in q:
            p = [math.exp(sum(map(float.__mul__, one, key)) / d**0.5) for key in k]
            out.write(struct.pack(f"<{d}f", *(sum(map(float.__mul__, p, column)) / sum(p) for column in zip(*v))))
"""  # attention, in a process that begins and ends in little time


@pytest.fixture
def gpu(monkeypatch):
    """A made-up GPU, in this process and in that of the ranked run."""

    def install(broken=False, broken_later=False):
        monkeypatch.setattr(stages, "Gpu", None)
        monkeypatch.setattr(stages, "GpuTimer", None)
        fakegpu.install(stages, broken)
        monkeypatch.setattr(stages, "python_command", lambda module, _: fakegpu.process(module, broken_later))

    install()
    return install


def lines(folder):
    return [json.loads(line) for line in (folder / NAME).read_text().splitlines()]


def test_a_kernel_goes_through_three_stages_a_line_each_and_gets_its_rank(gpu, hw4_here, tmp_path):
    first = hw4_here("leaderboard", "flash", *SHAPE, "--user", "ann", "--author", "ann", "--author", "ben")
    assert first.returncode == 0, first.stderr
    test, benchmark, ranked, rank = first.stdout.splitlines()
    assert test.startswith("test       right, largest error ")
    assert benchmark.startswith("benchmark  1.5") and " ms, fastest 1.4" in benchmark and "warm L2" in benchmark
    assert ranked.startswith("ranked     1.5") and ranked.endswith("; new process, new data, cold L2")
    assert rank == "rank 1 of 1 on (2, 64, 8) float32, no GPU"
    assert hw4_here("leaderboard", "split", *SHAPE, "--user", "ben").stdout.splitlines()[-1].startswith("rank 1 ")
    (one, two) = lines(tmp_path / "leaderboard")
    assert (one["user"], one["authors"], one["program"]) == ("ann", ["ann", "ben"], "flash")
    assert one["seed"] != two["seed"], "each ranked run has data of its own"
    assert len(one["benchmark"]) >= 10 and min(one["ranked"]) > max(one["benchmark"]), "the caches were cold"
    folder_is_clean(tmp_path / "leaderboard", NAME)


@slow
def test_two_whose_intervals_overlap_share_a_rank(gpu, hw4_here):
    hw4_here("leaderboard", "flash", *SHAPE, "--user", "ann")
    result = hw4_here("leaderboard", "flash", *SHAPE, "--user", "ben")
    assert result.stdout.splitlines()[-1].startswith("rank =1 of 2 on ")
    assert result.stdout.endswith(", shared with ann: the intervals overlap\n")


def test_a_wrong_kernel_ends_in_its_first_stage_and_is_kept(gpu, hw4_here, tmp_path):
    gpu(broken=True)
    result = hw4_here("leaderboard", "flash", *SHAPE, "--user", "ann")
    assert result.returncode == 1
    (line,) = result.stdout.splitlines()
    assert line.startswith("test       wrong: 8 of 1,024 elements are off by more than 0.005")
    (entry,) = read(tmp_path / "leaderboard").entries
    assert (entry.status, entry.ranked, entry.benchmark) == ("wrong", (), ())
    assert entry.reason.startswith("test: 8 of 1,024 elements")


def test_a_kernel_that_is_wrong_on_new_data_alone_is_not_ranked(gpu, hw4_here, tmp_path):
    gpu(broken_later=True)
    result = hw4_here("leaderboard", "flash", *SHAPE, "--user", "ann")
    assert result.returncode == 1
    assert [line.split()[0] for line in result.stdout.splitlines()] == ["test", "benchmark", "ranked"]
    (entry,) = read(tmp_path / "leaderboard").entries
    assert (entry.status, entry.ranked) == ("wrong", ()) and entry.benchmark


def test_a_kernel_that_does_not_run_here_has_failed(gpu, hw4_here, tmp_path):
    result = hw4_here("leaderboard", "shared", *SHAPE, "--user", "ann")
    assert result.returncode == 1
    assert result.stdout == "test       failed: kernel shared does not run here\n"


def test_a_ranked_run_whose_process_dies_has_failed(gpu, hw4_here, monkeypatch):
    crash = "import os, sys; print('cuda says no', file=sys.stderr, flush=True); os.kill(os.getpid(), 11)"
    monkeypatch.setattr(stages, "python_command", lambda *_: [sys.executable, "-c", crash])
    result = hw4_here("leaderboard", "flash", *SHAPE, "--user", "ann")
    assert result.returncode == 1
    assert "ranked     failed: its process ended by signal 11 (SIGSEGV)" in result.stdout
    assert "cuda says no" in result.stdout


def test_one_submission_at_a_time_runs_on_a_gpu(gpu, hw4_here, monkeypatch, tmp_path):
    monkeypatch.setattr(judged_gpu, "gpu_name", lambda env: "GPU-1")
    monkeypatch.setattr(judged_gpu, "LOCKS", tmp_path)
    locked = []

    def look(inputs, outputs):
        with (tmp_path / "hw4-gpu-GPU-1.lock").open() as file:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                locked.append(False)
            except BlockingIOError:
                locked.append(True)

    monkeypatch.setattr(stages, "Gpu", lambda: fakegpu.FakeGpu(look))
    assert hw4_here("leaderboard", "flash", *SHAPE, "--user", "ann").returncode == 0
    assert locked and all(locked)


def test_json_is_the_entry_and_the_stages_go_to_stderr(gpu, hw4_here, tmp_path):
    result = hw4_here("leaderboard", "flash", *SHAPE, "--user", "ann", "--json")
    assert json.loads(result.stdout) == lines(tmp_path / "leaderboard")[0]
    assert [line.split()[0] for line in result.stderr.splitlines()] == ["test", "benchmark", "ranked"]


@slow
def test_a_program_is_timed_as_whole_processes_and_stands_on_a_board_of_its_own(hw4, tmp_path):
    (tmp_path / "right.py").write_text(RIGHT)
    command = f"{sys.executable} -I -S {tmp_path / 'right.py'}"
    options = [*SHAPE, "--user", "ann", "--board", tmp_path / "board"]
    result = hw4("leaderboard", "--program", command, *options, env=NO_GPU)
    assert result.returncode == 0, result.stdout + result.stderr
    assert [line.split()[0] for line in result.stdout.splitlines()] == ["test", "benchmark", "ranked", "rank"]
    assert "whole programs" in result.stdout
    (entry,) = read(tmp_path / "board").entries
    assert entry.workload.timed == "program"
    assert min(entry.ranked) > 2, "milliseconds: Python does not start in less"
    assert result.stdout.count("10 samples") == 2


def test_a_wrong_program_is_kept_too(hw4, tmp_path):
    options = [*SHAPE, "--user", "ann", "--board", tmp_path]
    result = hw4("leaderboard", "--program", "true", *options, env=NO_GPU)
    assert (result.returncode, result.stdout) == (1, "test       wrong: no output file\n")
    assert read(tmp_path).entries[0].reason == "test: no output file"


def test_mistakes_are_one_sentence_before_anything_runs(hw4_here, tmp_path):
    run = ("leaderboard",)
    fails(hw4_here(*run, *SHAPE, "--author", "ann"), 2, "name a kernel or give --program")
    fails(hw4_here(*run, "flash", "--program", "x", *SHAPE, "--user", "ann"), 2, "not both")
    fails(hw4_here(*run, "flash", "--user", "ann"), 2, "name a case, as in t28, or a shape")
    fails(
        hw4_here(*run, "flash", "t01-t02", "--user", "ann"), 2, "a submission is on one case or shape, and these are 2"
    )
    fails(hw4_here(*run, "flash", "t99", "--user", "ann"), 2, "no case 't99'")
    fails(hw4_here(*run, "flash", *SHAPE, "--user", " "), 2, "--user is not a name")
    fails(hw4_here(*run, "flash", *SHAPE, "--user", "a" * 81), 2, "--user is not a name")
    fails(hw4_here(*run, "flash", *SHAPE, "--gpu", "H200"), 2, "--gpu goes with showing boards")
    fails(hw4_here(*run, "flush", *SHAPE, "--user", "ann"), 2, "Did you mean 'flash'?")
    fails(hw4_here(*run, "--program", "./none", *SHAPE, "--user", "ann"), 2, "./none")
    fails(hw4_here(*run, "--program", "", *SHAPE, "--user", "ann"), 2, "--program is empty")
    (tmp_path / "file").write_text("")
    fails(hw4_here(*run, "flash", *SHAPE, "--user", "ann", "--board", "file"), 2, "file is not a folder")


def test_a_folder_of_a_newer_hw4_is_refused_before_anything_runs(gpu, hw4_here, tmp_path):
    (tmp_path / "leaderboard").mkdir()
    (tmp_path / "leaderboard" / NAME).write_text('{"schema": 2}\n')
    fails(hw4_here("leaderboard", "flash", *SHAPE, "--user", "ann"), 2, "line 1", "newer hw4")
    shown = hw4_here("leaderboard")
    assert "is of a newer schema than 1, which this hw4 reads, in line 1" in shown.stderr


def test_without_a_gpu_a_kernel_is_no_submission(tmp_path):
    fails(run_here("leaderboard", "flash", *SHAPE, "--user", "ann", cwd=tmp_path, env=NO_GPU), 3, "no GPU")
    assert (tmp_path / "leaderboard" / NAME).read_text() == ""


def test_what_cannot_be_kept_is_not_measured(gpu, hw4_here, tmp_path):
    (tmp_path / "leaderboard" / entries.NAME).mkdir(parents=True)
    fails(hw4_here("leaderboard", "flash", *SHAPE, "--user", "ann"), 2, "cannot read")

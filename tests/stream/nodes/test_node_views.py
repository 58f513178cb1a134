"""What nodes see of a file: a folder that is not shared, parts and inputs that change beside the run, a busy Slurm."""

import os
import subprocess
import sys
import time

import pytest
from cluster import fake_srun, shell_program
from helpers import HANGS, fails, folder_is_clean, hw4_env, random_block, run_hw4, write_case
from slow import quick_of_each

import hw4cli
from hw4cli.stream.nodes import launch
from hw4cli.text.progress import Progress

# A srun that starts one process, as rank 0 of 1, and says how it ended.
RANK = 'while [ "${1#-}" != "$1" ]; do shift; done; SLURM_PROCID=0 SLURM_STEP_NUM_TASKS=1 "$@"; code=$?'
END = '[ $code = 0 ] || echo "srun: error: n1: task 0: Exited with exit code $code" >&2; exit $code'


@pytest.fixture
def source(tmp_path):
    return write_case(tmp_path / "in", random_block(3, 64, 32))


def run_by_srun(tmp_path, before, after=":", options=()):
    """`hw4 in out --srun`, where srun does something before and after its process."""
    env = fake_srun(tmp_path)
    shell_program(tmp_path / "bin" / "srun", "\n".join([f"cd {tmp_path}", before, RANK, after, END]))
    return run_hw4(tmp_path / "in", tmp_path / "out", "--device", "cpu", "--srun", "-N2", *options, env=env)


def test_a_node_that_does_not_see_the_outputs_folder_is_named_at_once_and_keeps_nothing(source, tmp_path):
    (tmp_path / "other").mkdir()
    began = time.monotonic()
    result = run_by_srun(tmp_path, "mv .out.* other", "ls -A > left; mv other/.out.* .")
    fails(result, 3, "rank 0 on ", " failed: ", "is not on this node", "a file system that all nodes share")
    assert time.monotonic() - began < 30
    assert (tmp_path / "left").read_text().split() == ["bin", "in", "left", "other"]
    folder_is_clean(tmp_path, "bin", "in", "left", "other")


def test_an_input_that_is_written_to_during_the_run_is_no_input(source, tmp_path):
    (tmp_path / "out").write_bytes(b"old")
    fails(run_by_srun(tmp_path, ":", "touch -d 2001-01-01 in"), 2, f"{source} has changed while it was read")
    assert (tmp_path / "out").read_bytes() == b"old"


@quick_of_each(1)
@pytest.mark.parametrize("words", ["queued and waiting for resources", "step creation temporarily disabled, retrying"])
def test_what_slurm_says_of_waiting_is_shown_and_the_job_has_hw4s_name(source, tmp_path, words):
    waiting = f"srun: job 7 {words}"
    for options, shown in (((), f"hw4: {waiting}\n"), (("--quiet",), "")):
        result = run_by_srun(tmp_path, f'echo "$1" > name; echo "{waiting}" >&2', options=options)
        assert (result.returncode, result.stderr) == (0, shown)
    assert (tmp_path / "name").read_text() == "--job-name=hw4\n"


def test_a_list_that_cannot_be_read_for_a_moment_is_no_failure(source, tmp_path):
    result = run_by_srun(tmp_path, "x=$(echo .out.*)/written-x; mkdir $x; sleep 1.5; rmdir $x")
    assert (result.returncode, result.stderr) == (0, "")


def test_a_part_that_lost_its_bytes_is_computed_anew(source, tmp_path):
    assert run_hw4(source, tmp_path / "one", "--device", "cpu").returncode == 0
    result = run_by_srun(tmp_path, ":", "code=1")  # all is written, and srun fails
    assert "100% of the output is written" in result.stderr
    [part] = tmp_path.glob(".out.*/output")
    os.truncate(part, 0)
    assert run_by_srun(tmp_path, ":", options=("--resume",)).returncode == 0
    assert (tmp_path / "out").read_bytes() == (tmp_path / "one").read_bytes()


@pytest.mark.parametrize("allocated", [True, False])
def test_in_an_allocation_it_is_said_that_no_process_has_begun(source, tmp_path, monkeypatch, allocated):
    """There srun waits for other steps to end, and does not say so."""
    monkeypatch.setenv("PATH", fake_srun(tmp_path)["PATH"])
    monkeypatch.setattr(launch, "SILENT", 0.3)
    monkeypatch.setattr(launch, "PERIOD", 0.1)
    if allocated:
        monkeypatch.setenv("SLURM_JOB_ID", "7")
    else:
        monkeypatch.delenv("SLURM_JOB_ID", raising=False)
    shell_program(tmp_path / "bin" / "srun", "\n".join(["sleep 1", RANK, END]))
    said = []
    options = (["-N2"], ["--device=cpu"], [hw4cli.__version__, "", "cpu", "auto", None, False], False)
    launch.compute_by_slurm(source, tmp_path / "out", *options, Progress(), said.append)
    assert ["--overlap" in sentence for sentence in said] == [True] * allocated


# `hw4 ARGS`, to which Ctrl-C comes when the part has just been made.
INTERRUPTED = """
import os, signal

def opened(path, *args, whole=os.open, **more):
    file = whole(path, *args, **more)
    if str(path).endswith("/output"):
        os.kill(os.getpid(), signal.SIGINT)
    return file

os.open = opened
from hw4cli.entry import main
main()
"""


@pytest.mark.parametrize("options", [("--srun", "-N2"), ("--ranks",)])
def test_ctrl_c_while_the_part_is_made_leaves_nothing(source, tmp_path, options):
    env = hw4_env(**fake_srun(tmp_path), RANK="0", WORLD_SIZE="2")
    words = [sys.executable, "-c", INTERRUPTED, str(source), str(tmp_path / "out"), "--device", "cpu", *options]
    done = subprocess.run(words, env=env, capture_output=True, text=True, timeout=HANGS)
    assert (done.returncode, done.stderr.strip()) == (130, "hw4: interrupted")
    folder_is_clean(tmp_path, "bin", "in")

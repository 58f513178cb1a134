"""One file over two nodes on a real Slurm, which these tests start: its bytes, and all that can go wrong on the way."""

import signal
import subprocess
import sys
from contextlib import suppress

import numpy as np
import psutil
import pytest
from cluster import Cluster, processes_naming, queue
from helpers import HANGS, fails, folder_is_clean, hw4_env, random_block, run_hw4, start_hw4, write_case
from needs import SLURM, needs

pytestmark = [
    pytest.mark.slurm,
    pytest.mark.timeout(180),
    needs(*SLURM),
]
RANKS = ("--device", "cpu", "--srun", "-N2 -n4 -O")
TWO = ("--device", "cpu", "--srun", "-N2 -n2")


@pytest.fixture(scope="module")
def nodes(tmp_path_factory):
    """A running Slurm of two nodes."""
    with Cluster(tmp_path_factory.mktemp("slurm"), nodes=2) as cluster:
        yield cluster


@pytest.fixture(scope="module")
def quick(tmp_path_factory):
    """A file of five parts, computed at once, and its output by one process."""
    return made(tmp_path_factory.mktemp("quick"), (700, 128, 128))


@pytest.fixture(scope="module")
def slow(tmp_path_factory):
    """The same, but parts take longer: of two ranks, the first has three of them."""
    return made(tmp_path_factory.mktemp("slow"), (50, 2560, 128))


def made(folder, sizes):
    source = write_case(folder / "in", random_block(*sizes))
    assert run_hw4(source, folder / "out", "--device", "cpu").returncode == 0
    return source, (folder / "out").read_bytes()


def ranks_of(source):
    """The processes by their ranks."""
    found = [one for one in processes_naming("--ranks") if str(source) in one.info["cmdline"]]
    return sorted((one for one in found if "srun" not in one.info["cmdline"][0]), key=rank_of)


def rank_of(process):
    with suppress(psutil.Error):  # it has ended meanwhile
        return int(process.environ().get("SLURM_PROCID", -1))
    return -1


def started(nodes, source, target):
    """A run whose ranks compute and have written something."""
    process = start_hw4(source, target, *TWO, env=nodes.settings)
    lists = f".{target.name}.*/written-*"
    nodes.wait_for(lambda: any(path.stat().st_size for path in target.parent.glob(lists)))
    return process


def suspended(source):
    """Those of its ranks that have not ended, which wait from now on."""
    stopped = []
    for rank in ranks_of(source):
        with suppress(psutil.NoSuchProcess):
            rank.suspend()
            stopped.append(rank)
    return stopped


def nothing_runs(nodes, source):
    nodes.wait_for(lambda: queue(nodes) == [])
    nodes.wait_for(lambda: ranks_of(source) == [])


def test_two_nodes_with_two_ranks_each_write_the_bytes_of_one_process(nodes, quick, tmp_path):
    source, expected = quick
    result = run_hw4(source, tmp_path / "out", *RANKS, env=nodes.settings)
    assert result.returncode == 0, result.stderr
    assert result.stdout.startswith("(B, N, d): (700, 128, 128)\nTime: ")
    assert result.stderr == ""
    assert (tmp_path / "out").read_bytes() == expected
    folder_is_clean(tmp_path, "out")


def test_inside_an_allocation_the_ranks_are_one_step_of_it(nodes, quick, tmp_path):
    source, expected = quick
    log = tmp_path / "steps"
    script = f'echo "$SLURM_JOB_ID.$SLURM_STEP_ID" >> {log}; exec "$@"'
    prefix = ("salloc", "--quiet", "-N2", "-n4", "-O", "sh", "-c", script, "sh")
    result = run_hw4(source, tmp_path / "out", *RANKS[:3], "-n4", env=nodes.settings, prefix=prefix)
    assert result.returncode == 0, result.stderr
    assert (tmp_path / "out").read_bytes() == expected
    assert len(log.read_text().splitlines()) == 1


def test_a_killed_rank_ends_the_step_and_a_later_run_computes_what_is_missing(nodes, slow, tmp_path):
    source, expected = slow
    target = tmp_path / "out"
    target.write_bytes(b"old")
    process = started(nodes, source, target)
    ranks_of(source)[0].kill()
    _, stderr = process.communicate(timeout=120)
    assert process.returncode == 3, stderr
    [line] = stderr.splitlines()
    assert "task" in line
    assert "Killed" in line
    assert "node" in line
    assert "--resume goes on with it" in line
    assert target.read_bytes() == b"old"
    nothing_runs(nodes, source)

    [part] = tmp_path.glob(".out.*/output")
    listed = next(line for path in part.parent.glob("written-*") for line in path.read_text().split("\n") if line)
    begin = int(listed.split()[0])
    with part.open("r+b") as file:  # what is written is not computed again
        file.seek(begin)
        file.write(b"mark")
    result = run_hw4(source, target, *TWO, "--resume", env=nodes.settings)
    assert result.returncode == 0, result.stderr
    got = bytearray(target.read_bytes())
    assert got[begin : begin + 4] == b"mark"
    got[begin : begin + 4] = expected[begin : begin + 4]
    assert bytes(got) == expected
    folder_is_clean(tmp_path, "out")


def test_a_node_that_is_lost_ends_the_step_and_one_that_is_left_computes_what_is_missing(nodes, slow, tmp_path):
    source, expected = slow
    process = started(nodes, source, tmp_path / "out")
    rank = ranks_of(source)[-1]
    node = rank.environ()["SLURMD_NODENAME"]
    for one in (rank.parent(), rank):  # as if without power; then Slurm finds that the node does not answer
        one.kill()
    nodes.run("scontrol", "update", f"NodeName={node}", "State=DOWN", "Reason=lost")
    try:
        _, stderr = process.communicate(timeout=120)
        assert process.returncode == 3, stderr
        assert len(stderr.splitlines()) == 1
        assert f"ode failure on {node}" in stderr
        assert "--resume goes on with it" in stderr
        nothing_runs(nodes, source)
        rest = ("--device", "cpu", "--srun", "-N1 -n1", "--resume")
        result = run_hw4(source, tmp_path / "out", *rest, env=nodes.settings)
        assert result.returncode == 0, result.stderr
    finally:
        nodes.run("scontrol", "update", f"NodeName={node}", "State=RESUME")
    assert (tmp_path / "out").read_bytes() == expected
    folder_is_clean(tmp_path, "out")


def test_a_run_that_is_terminated_leaves_no_rank_and_the_old_output(nodes, slow, tmp_path):
    source, expected = slow
    (tmp_path / "out").write_bytes(b"old")
    process = started(nodes, source, tmp_path / "out")
    process.terminate()
    _, stderr = process.communicate(timeout=120)
    assert process.returncode == 130, stderr
    nothing_runs(nodes, source)
    assert (tmp_path / "out").read_bytes() == b"old"
    [part] = tmp_path.glob(".out.*/output")
    assert part.stat().st_size == len(expected)


def test_ranks_that_outlive_a_killed_run_do_not_disturb_the_next_one(nodes, slow, tmp_path):
    source, expected = slow
    process = started(nodes, source, tmp_path / "out")
    left = suspended(source)
    process.kill()
    process.wait(HANGS)
    assert all(rank.is_running() for rank in left)
    result = run_hw4(source, tmp_path / "out", *TWO, env=nodes.settings)
    for rank in left:
        with suppress(psutil.NoSuchProcess):  # where the next run took longer than Slurm waits to end them
            rank.resume()
    assert result.returncode == 0, result.stderr
    assert (tmp_path / "out").read_bytes() == expected
    nothing_runs(nodes, source)
    assert (tmp_path / "out").read_bytes() == expected
    folder_is_clean(tmp_path, "out")


def test_ranks_that_srun_started_itself_end_together_and_the_next_launch_goes_on(nodes, slow, tmp_path):
    """As docs/scale.md has it: with -K, one that is killed ends the others."""
    source, expected = slow
    words = [sys.executable, "-m", "hw4cli", source, tmp_path / "out", "--device", "cpu", "--ranks"]
    command = ["srun", "-K", "-N2", "-n2", *map(str, words)]
    env = hw4_env(**nodes.settings)
    process = subprocess.Popen(command, env=env, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    lists = ".out.*/written-*"
    nodes.wait_for(lambda: any(path.stat().st_size for path in tmp_path.glob(lists)))
    ranks_of(source)[1].kill()
    process.communicate(timeout=HANGS)
    assert process.returncode
    nothing_runs(nodes, source)
    assert subprocess.run(command, env=env, timeout=120).returncode == 0
    assert (tmp_path / "out").read_bytes() == expected
    folder_is_clean(tmp_path, "out")


def test_a_second_run_does_not_write_where_one_is_writing(nodes, slow, tmp_path):
    source, expected = slow
    process = started(nodes, source, tmp_path / "out")
    stopped = suspended(source)
    busy = run_hw4(source, tmp_path / "out", *RANKS, env=nodes.settings)
    for rank in stopped:
        rank.resume()
    fails(busy, 3, "another run of hw4 is writing", "wait for its end")
    _, stderr = process.communicate(timeout=120)
    assert process.returncode == 0, stderr
    assert (tmp_path / "out").read_bytes() == expected


def test_ctrl_c_ends_all_ranks_and_without_resume_a_later_run_begins_anew(nodes, slow, tmp_path):
    source, expected = slow
    process = started(nodes, source, tmp_path / "out")
    process.send_signal(signal.SIGINT)
    _, stderr = process.communicate(timeout=120)
    assert process.returncode == 130, stderr
    assert stderr.splitlines()[-1].startswith("hw4: interrupted: ")
    assert "--resume goes on with it" in stderr
    nothing_runs(nodes, source)
    [part] = tmp_path.glob(".out.*/output")
    with part.open("r+b") as file:
        file.write(bytes(len(expected)))
    result = run_hw4(source, tmp_path / "out", *RANKS, env=nodes.settings)
    assert result.returncode == 0, result.stderr
    assert (tmp_path / "out").read_bytes() == expected
    folder_is_clean(tmp_path, "out")


def test_a_rank_that_cannot_write_is_reported_with_its_node(nodes, quick, tmp_path):
    source, expected = quick
    (tmp_path / "out").write_bytes(b"old")
    limited = ("bash", "-c", f'ulimit -f {len(expected) // 2048}; exec "$@"', "bash")  # Slurm hands the limit on
    result = run_hw4(source, tmp_path / "out", *RANKS, env=nodes.settings, prefix=limited)
    fails(result, 3, "rank ", " on node", " failed: cannot write ", "File too large")
    assert (tmp_path / "out").read_bytes() == b"old"
    nothing_runs(nodes, source)
    folder_is_clean(tmp_path, "out")


def test_a_bad_file_is_the_users_and_no_failure_of_the_nodes(nodes, tmp_path):
    block = random_block(700, 128, 128)
    block[650, 1, 3, 5] = np.nan
    source = write_case(tmp_path / "in", block)
    result = run_hw4(source, tmp_path / "out", *RANKS, env=nodes.settings)
    assert result.returncode == 2, result.stderr
    [line] = result.stderr.splitlines()
    assert "rank 3 on node1 failed: " in line
    assert "nan in K of batch 650, row 3, column 5" in line
    assert not (tmp_path / "out").exists()


def test_what_slurm_refuses_is_reported_with_its_message(nodes, quick, tmp_path):
    for srun, words in (("-p nowhere", "invalid partition specified: nowhere"), ("--no-such", "unrecognized option")):
        result = run_hw4(quick[0], tmp_path / "out", "--device", "cpu", "--srun", srun, env=nodes.settings)
        assert result.returncode == 3
        assert words in result.stderr
    folder_is_clean(tmp_path)

"""Several processes that write one file together, without Slurm: their places, shares and failures."""

import os
import time

import numpy as np
import pytest
from cluster import fake_srun, shell_program
from helpers import HANGS, fails, folder_is_clean, random_block, run_hw4, start_hw4, wait_until, write_case
from slow import slow

from hw4cli.errors import InputError, MachineError
from hw4cli.stream import pipeline, work
from hw4cli.stream.gpus import chosen, of_process
from hw4cli.stream.nodes.launch import LAG
from hw4cli.stream.nodes.place import Place, place
from hw4cli.stream.nodes.rank import compute_share
from hw4cli.stream.timeline import Timeline

SLURM = {"SLURM_PROCID": "3", "SLURM_STEP_NUM_TASKS": "4", "SLURM_LOCALID": "1", "SLURM_STEP_TASKS_PER_NODE": "2(x2)"}
TORCHRUN = {"RANK": "2", "WORLD_SIZE": "3", "LOCAL_RANK": "0", "LOCAL_WORLD_SIZE": "1"}
OPEN_MPI = {f"OMPI_COMM_WORLD_{name}": value for name, value in zip(("RANK", "SIZE", "LOCAL_RANK"), "130", strict=True)}


@pytest.mark.parametrize(
    ("env", "expected"),
    [
        ({**SLURM, "SLURM_NODEID": "1", "SLURMD_NODENAME": "n2"}, (3, 4, 1, 2)),
        ({**SLURM, "SLURM_STEP_TASKS_PER_NODE": "2(x2),1", "SLURM_NODEID": "2", "SLURM_LOCALID": "0"}, (3, 4, 0, 1)),
        # The one node of a step may be another than the first of its job.
        ({**SLURM, "SLURM_STEP_TASKS_PER_NODE": "4", "SLURM_NODEID": "1"}, (3, 4, 1, 4)),
        ({**SLURM, "SLURM_GPUS_PER_TASK": "1", "SLURMD_NODENAME": "n2"}, (3, 4, 0, 1)),
        ({**SLURM, **TORCHRUN}, (2, 3, 0, 1)),
        ({**SLURM, "SLURM_STEP_TASKS_PER_NODE": "2(x9999999999)"}, (3, 4, 1, 2)),
        ({**OPEN_MPI, "OMPI_COMM_WORLD_LOCAL_SIZE": "2"}, (1, 3, 0, 2)),
        ({"PMI_RANK": "0", "PMI_SIZE": "2"}, (0, 2, 0, 2)),
        # srun gives each its GPUs; torchrun, in one process of srun's, does not.
        ({**SLURM, "SLURM_TRES_PER_TASK": "cpu=2,gres/gpu:1"}, (3, 4, 0, 1)),
        ({**SLURM, "SLURM_TRES_PER_TASK": "cpu=2"}, (3, 4, 1, 2)),
        (
            {**SLURM, "SLURM_GPUS_PER_TASK": "8", "RANK": "9", "WORLD_SIZE": "16", "LOCAL_RANK": "1"}
            | {"LOCAL_WORLD_SIZE": "8"},
            (9, 16, 1, 8),
        ),
        # srun --mpi=pmi2 does not say who is on which node by PMI's variables, but by its own.
        ({**SLURM, "PMI_RANK": "3", "PMI_SIZE": "4", "SLURM_NODEID": "1"}, (3, 4, 1, 2)),
        ({**SLURM, "PMI_RANK": "1", "PMI_SIZE": "3", "MPI_LOCALRANKID": "1", "MPI_LOCALNRANKS": "3"}, (1, 3, 1, 3)),
    ],
)
def test_a_processs_place_is_what_its_launcher_says(env, expected):
    found = place(env)
    assert (found.rank, found.size, found.local, found.local_size) == expected
    assert found.node == env.get("SLURMD_NODENAME", os.uname().nodename)


def test_a_step_of_ours_has_slurms_place_whatever_was_around_it():
    assert place({**SLURM, **TORCHRUN}, by_slurm=True).rank == 3


@pytest.mark.parametrize(
    "env",
    [
        *({}, {"RANK": "1"}, {"RANK": "x", "WORLD_SIZE": "2"}, {"RANK": "2", "WORLD_SIZE": "2"}),
        {"RANK": "0", "WORLD_SIZE": "9" * 30},
        {"RANK": "0", "WORLD_SIZE": "1", "LOCAL_RANK": "-1"},
        {"RANK": "0", "WORLD_SIZE": "1", "LOCAL_RANK": "1"},
        {"RANK": "0", "WORLD_SIZE": "2", "LOCAL_RANK": "0", "LOCAL_WORLD_SIZE": "3"},
        {**SLURM, "SLURM_STEP_TASKS_PER_NODE": "2(x3),1", "SLURM_NODEID": "-9"},
    ],
)
def test_an_environment_without_a_place_is_refused(env):
    with pytest.raises(InputError):
        place(env)


def test_processes_of_a_node_divide_its_gpus():
    assert [of_process(chosen("all", 8), n, 3) for n in range(3)] == [[0, 1], [2, 3, 4], [5, 6, 7]]
    assert [of_process(chosen("ids:5,1", 8), n, 2) for n in range(2)] == [[5], [1]]
    assert [of_process(chosen("count:1", 1), n, 3) for n in range(3)] == [[0]] * 3
    with pytest.raises(MachineError, match="here is 1 GPU, number 0"):
        chosen("count:2", 1)
    with pytest.raises(MachineError, match="here are 2 GPUs, numbers 0 to 1"):
        chosen("ids:0,2", 2)
    with pytest.raises(MachineError, match="here are 2 GPUs"):
        chosen("count:100000000000000000000", 2)


def ranks(source, target, size, *numbers):
    """Start some of so many ranks, as torchrun does."""
    env = {"WORLD_SIZE": str(size), "LOCAL_WORLD_SIZE": str(size)}
    args = (source, target, "--device", "cpu", "--ranks")
    return [start_hw4(*args, env={**env, "RANK": str(n), "LOCAL_RANK": str(n)}) for n in numbers]


@pytest.fixture(scope="module")
def case(tmp_path_factory):
    folder = tmp_path_factory.mktemp("case")
    source = write_case(folder / "in", random_block(700, 128, 128))
    assert run_hw4(source, folder / "out", "--device", "cpu").returncode == 0
    return source, (folder / "out").read_bytes()


@slow
def test_ranks_of_any_launcher_write_the_bytes_of_one_process(case, tmp_path):
    source, expected = case
    (tmp_path / "out").write_bytes(b"old")
    for process in ranks(source, tmp_path / "out", 3, 1, 2):
        says_nothing(process)
        assert process.returncode == 0
    assert (tmp_path / "out").read_bytes() == b"old"  # a share is missing
    [first] = ranks(source, tmp_path / "out", 3, 0)
    says_nothing(first)
    assert (tmp_path / "out").read_bytes() == expected
    folder_is_clean(tmp_path, "out")


def test_more_ranks_than_parts_and_odd_sizes_write_the_bytes_of_one_process(tmp_path):
    source = write_case(tmp_path / "in", random_block(1, 1001, 36))
    assert run_hw4(source, tmp_path / "one", "--device", "cpu").returncode == 0
    (tmp_path / "real").write_bytes(b"old")
    (tmp_path / "out").symlink_to("real")
    for process in ranks(source, tmp_path / "out", 3, 2, 1, 0):
        says_nothing(process)
    assert (tmp_path / "out").is_symlink()
    assert (tmp_path / "real").read_bytes() == (tmp_path / "one").read_bytes()
    folder_is_clean(tmp_path, "in", "one", "out", "real")


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize(("sizes", "count"), [((1, 2601, 8), 2), ((1, 2601, 8), 5), ((3, 2077, 8), 4)])
def test_ranks_share_out_the_rows_of_a_large_batch_also_where_nothing_divides_them(
    tmp_path, monkeypatch, sizes, count, causal
):
    monkeypatch.setattr(work, "WHOLE_BYTES", 100_000)  # ranges of 1024 rows
    monkeypatch.setattr(work, "ROW_BYTES", 32 * 1024)
    source, one, target = write_case(tmp_path / "in", random_block(*sizes)), tmp_path / "one", tmp_path / "out"
    job = pipeline.Job(pipeline.alone(pipeline.cpu(None)), 1, causal)
    pipeline.run(source, one, job, Timeline(), pytest.fail)
    for rank in reversed(range(count)):
        here = Place(rank, count, rank, count, "n1")
        compute_share(source, target, job, [causal], Timeline(), pytest.fail, here, None)
    assert target.read_bytes() == one.read_bytes()
    folder_is_clean(tmp_path, "in", "one", "out")


@slow
def test_an_output_that_leads_to_the_input_or_into_a_folder_that_is_no_place_is_refused(case, tmp_path):
    (tmp_path / "out").symlink_to(case[0])
    for target, words in ((tmp_path / "out", "is the input file itself"), (tmp_path / "no" / "out", "does not exist")):
        for process in ranks(case[0], target, 2, 0, 1):
            _, stderr = process.communicate(timeout=HANGS)
            assert (process.returncode, stderr.count("\n")) == (2, 1)
            assert words in stderr
        fails(run_hw4(case[0], target, "--device", "cpu", "--srun", "-N2", env=fake_srun(tmp_path)), 2, words)
    folder_is_clean(tmp_path, "bin", "out")


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write anywhere")
def test_a_folder_that_may_not_be_written_is_named(case, tmp_path):
    target = tmp_path / "folder" / "out"
    target.parent.mkdir(mode=0o500)
    for process in ranks(case[0], target, 2, 0, 1):
        _, stderr = process.communicate(timeout=HANGS)
        assert process.returncode == 3
        assert f"cannot write {target}: Permission denied" in stderr
    fails(run_hw4(case[0], target, "--device", "cpu", "--srun", "-N2", env=fake_srun(tmp_path)), 3, "Permission denied")


@slow
def test_of_two_launches_at_once_the_second_ends_and_the_first_completes_the_output(case, tmp_path):
    source, expected = case
    [first] = ranks(source, tmp_path / "out", 2, 0)
    wait_until(lambda: written(tmp_path))
    [second] = ranks(source, tmp_path / "out", 2, 0)
    try:
        _, stderr = second.communicate(timeout=HANGS)
        assert second.returncode == 3, stderr
        assert "another run of hw4 is writing" in stderr
        [other] = ranks(source, tmp_path / "out", 2, 1)
        says_nothing(other)
        says_nothing(first)
    finally:
        first.kill()
    assert (tmp_path / "out").read_bytes() == expected
    folder_is_clean(tmp_path, "out")


@slow
def test_a_launch_whose_first_rank_was_killed_is_gone_on_with_by_the_next(case, tmp_path):
    source, expected = case
    [first] = ranks(source, tmp_path / "out", 2, 0)
    wait_until(lambda: written(tmp_path))
    first.kill()
    first.wait()
    for process in ranks(source, tmp_path / "out", 2, 1, 0):
        says_nothing(process)
    assert (tmp_path / "out").read_bytes() == expected
    folder_is_clean(tmp_path, "out")


def test_a_first_rank_that_fails_before_anything_is_written_leaves_nothing(tmp_path):
    block = random_block(5, 64, 32)
    block[0, 0, 0, 0] = np.nan
    source = write_case(tmp_path / "in", block)
    [process] = ranks(source, tmp_path / "out", 1, 0)
    _, stderr = process.communicate(timeout=HANGS)
    assert process.returncode == 2, stderr
    folder_is_clean(tmp_path, "in")


def says_nothing(process):
    """A rank prints nothing, but that it waits for others that a busy machine starts late."""
    stdout, stderr = process.communicate(timeout=HANGS)
    assert (stdout, [line for line in stderr.splitlines() if "waiting for the other ranks" not in line]) == ("", [])


def written(folder):
    """Whether a rank has listed something."""
    return any(path.stat().st_size for path in folder.glob(".out.*/written-*"))


def test_a_rank_that_fails_says_which_it_is(tmp_path):
    [process] = ranks(tmp_path / "missing", tmp_path / "out", 2, 1)
    _, stderr = process.communicate(timeout=HANGS)
    assert process.returncode == 2
    assert stderr.startswith(f"hw4: rank 1 on {os.uname().nodename} failed: ")
    assert "does not exist" in stderr


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (("--ranks",), "none has started this one"),
        (("--ranks", "--srun", "-N2"), "--ranks does not go with --srun"),
        (("--resume",), "--resume goes with --srun"),
        (("--srun", "-N2", "--timing"), "--timing"),
    ],
)
def test_options_that_do_not_go_together_are_refused(hw4, case, tmp_path, options, words):
    fails(hw4(case[0], tmp_path / "out", "--device", "cpu", *options), 2, words)
    folder_is_clean(tmp_path)


def test_without_slurm_srun_is_refused_and_nothing_stays(hw4, case, tmp_path):
    result = hw4(case[0], tmp_path / "out", "--srun", "-N2", env={"PATH": "/nowhere"})
    fails(result, 3, "the launcher srun cannot be started")
    folder_is_clean(tmp_path)


def test_a_place_reads_as_a_sentence_part():
    assert str(Place(2, 4, 0, 2, "n1")) == "rank 2 on n1"


def test_a_node_that_was_lost_is_named_though_srun_ended_well(case, tmp_path):
    env = fake_srun(tmp_path, "srun: error: Node failure on n2")
    began = time.monotonic()
    result = run_hw4(case[0], tmp_path / "out", "--device", "cpu", "--srun", "-N2", env=env)
    fails(result, 3, "parts of the output are missing: Node failure on n2")
    assert time.monotonic() - began < LAG
    folder_is_clean(tmp_path, "bin")


def test_a_failure_is_named_where_srun_labels_lines(case, tmp_path):
    lines = "1: hw4: rank 1 on n2 failed: it is broken", "srun: error: n2: task 1: Exited with exit code 2"
    env = fake_srun(tmp_path, "0: hw4: rank 0 on n1: a remark", *lines, code=3)
    result = run_hw4(case[0], tmp_path / "out", "--device", "cpu", "--srun", "-N2 --label", env=env)
    assert result.returncode == 2
    assert result.stderr.splitlines() == ["hw4: rank 0 on n1: a remark", "hw4: rank 1 on n2 failed: it is broken"]


@pytest.mark.parametrize("quiet", [False, True])
def test_processes_are_as_quiet_as_the_run(case, tmp_path, quiet):
    env = fake_srun(tmp_path, "srun: error: no", code=1)
    path = tmp_path / "bin" / "srun"
    path.write_text(path.read_text().replace("#!/bin/sh", f'#!/bin/sh\necho "$@" > {tmp_path}/words'))
    run_hw4(case[0], tmp_path / "out", "--srun", "-N2", *["--quiet"] * quiet, env=env)
    assert ("--quiet" in (tmp_path / "words").read_text().split()) == quiet


@slow
def test_an_input_that_changes_before_a_node_reads_it_is_named(tmp_path):
    source = write_case(tmp_path / "in", random_block(3, 64, 32))
    env = fake_srun(tmp_path)
    start = 'while [ "${1#-}" != "$1" ]; do shift; done; SLURM_PROCID=0 SLURM_STEP_NUM_TASKS=1 "$@"'
    end = 'code=$?; echo "srun: error: n1: task 0: Exited with exit code $code" >&2; exit $code'
    shell_program(tmp_path / "bin" / "srun", f"touch -d 2001-01-01 {source}; {start}; {end}")
    result = run_hw4(source, tmp_path / "out", "--device", "cpu", "--srun", "-N2", env=env)
    fails(result, 2, "rank 0 on ", f"{source} has changed since the run began, or is another file here")
    folder_is_clean(tmp_path, "bin", "in")
    result = run_hw4(source, tmp_path / "out", "--device", "cpu", "--srun", "-N2", env=env)
    assert result.returncode == 0, result.stderr

"""Several processes that write one file together, without Slurm: places, shares, what is written, and a later run."""

import fcntl
import os
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from helpers import fails, folder_is_clean, random_block, run_hw4, start_hw4, write_case

from hw4cli.errors import BusyError, InputError, MachineError
from hw4cli.nodes import jointfile
from hw4cli.nodes.jointfile import JointFile, covers, key_of
from hw4cli.nodes.place import Place, place
from hw4cli.nodes.writer import Writer
from hw4cli.stream.gpus import chosen, of_process

SLURM = {"SLURM_PROCID": "3", "SLURM_STEP_NUM_TASKS": "4", "SLURM_LOCALID": "1", "SLURM_STEP_TASKS_PER_NODE": "2(x2)"}
TORCHRUN = {"RANK": "2", "WORLD_SIZE": "3", "LOCAL_RANK": "0", "LOCAL_WORLD_SIZE": "1"}
OPEN_MPI = {f"OMPI_COMM_WORLD_{name}": value for name, value in zip(("RANK", "SIZE", "LOCAL_RANK"), "130", strict=True)}


@pytest.mark.parametrize(
    ("env", "expected"),
    [
        ({**SLURM, "SLURM_NODEID": "1", "SLURMD_NODENAME": "n2"}, (3, 4, 1, 2)),
        ({**SLURM, "SLURM_GPUS_PER_TASK": "1", "SLURMD_NODENAME": "n2"}, (3, 4, 0, 1)),
        ({**SLURM, **TORCHRUN}, (2, 3, 0, 1)),
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


@pytest.mark.parametrize("env", [{}, {"RANK": "1"}, {"RANK": "x", "WORLD_SIZE": "2"}, {"RANK": "2", "WORLD_SIZE": "2"}])
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


@pytest.fixture
def joint(tmp_path):
    return JointFile(tmp_path / "out", 100, "0123456789abcdef")


def test_what_is_listed_is_kept_and_what_was_cut_off_is_not(joint):
    with Writer(joint) as writer:
        writer.write_at(bytes(range(60)), 0)
        writer.note(0, 20)
        writer.note(20, 60)
    [path] = joint.folder.glob("written-*")
    for end, expected in ((1, [(0, 60)]), (2, [(0, 20)]), (7, [(0, 20)])):
        text = path.read_bytes()
        path.write_bytes(text[: len(text) - end])
        assert joint.written() == expected
        path.write_bytes(text)
    with path.open("ab") as file:  # a line cut off, and one behind it
        file.write(b"\n9" + b"\n90 95;\n")
    assert joint.written() == [(0, 60), (90, 95)]
    assert covers(joint.written(), 90, 94)
    assert not covers(joint.written(), 50, 91)


def test_lists_of_a_part_that_is_gone_do_not_count(joint):
    with Writer(joint) as writer:
        writer.note(0, 60)
    joint.part.unlink()
    assert joint.written() == []
    with Writer(joint) as writer:
        writer.note(50, 70)
    assert joint.written() == [(50, 70)]


def test_a_run_goes_on_with_what_is_written_or_throws_it_away_and_leaves_nothing_if_it_wrote_nothing(joint, tmp_path):
    with joint.begun(go_on=False), Writer(joint) as writer:
        writer.note(0, 60)
        assert joint.written_before() == []
    with joint.begun(go_on=True):
        assert joint.written() == joint.written_before() == [(0, 60)]
    with joint.begun(go_on=False):
        assert joint.written() == []
        with pytest.raises(BusyError, match="another run of hw4 is writing"), joint.begun(go_on=True):
            pass
    folder_is_clean(tmp_path)


def test_a_process_of_a_killed_run_cannot_list_what_a_later_run_has_thrown_away(joint):
    orphan = Writer(joint)
    orphan.note(0, 20)
    with joint.begun(go_on=False):  # the other's launcher was killed, and so its lock is free
        with pytest.raises(MachineError, match="another run of hw4 has begun"):
            orphan.note(20, 40)
            orphan.close()
        assert joint.written() == []
        with Writer(joint) as writer:
            writer.note(50, 60)
        assert joint.written() == [(50, 60)]


def test_a_process_that_writes_into_what_another_run_completes_says_so(joint):
    late = Writer(joint)
    with joint.begun(go_on=False), Writer(joint) as writer:
        writer.note(0, 100)
    joint.complete()
    with pytest.raises(MachineError, match="another run of hw4 has"), late:
        late.note(0, 20)
    assert not joint.folder.exists()


def test_processes_that_begin_at_once_lose_no_list(joint):
    ready = threading.Barrier(8)

    def write(number):
        ready.wait()
        with Writer(joint) as writer:
            writer.note(10 * number, 10 * number + 10)

    for _ in range(30):
        with ThreadPoolExecutor(8) as pool:
            list(pool.map(write, range(8)))
        assert joint.written() == [(0, 80)]
        joint.remove()


def test_the_part_is_not_opened_for_reading(joint):
    """NFS would read a page before it writes some bytes of it, and then write the whole: over another node's bytes."""
    file = joint.opened()
    assert fcntl.fcntl(file, fcntl.F_GETFL) & os.O_ACCMODE == os.O_WRONLY
    os.close(file)


def test_a_list_is_written_whole_or_the_disk_is_full(joint, monkeypatch):
    sizes, write = [], os.write

    def few(file, data):
        sizes.append(len(data))
        return write(file, bytes(data)[:3])

    with Writer(joint) as writer:
        monkeypatch.setattr(os, "write", few)
        writer.note(0, 60)
    assert len(sizes) > 1
    assert joint.written() == [(0, 60)]


def test_a_part_that_is_another_thing_is_not_touched(joint, tmp_path):
    joint.folder.mkdir()
    (tmp_path / "precious").write_bytes(b"precious")
    joint.part.symlink_to(tmp_path / "precious")
    with pytest.raises(MachineError):
        Writer(joint)
    assert (tmp_path / "precious").read_bytes() == b"precious"


def test_the_key_changes_with_the_input_and_the_options(tmp_path):
    source = write_case(tmp_path / "in", random_block(1, 4, 4))
    keys = {key_of(source, tmp_path / "out", ["flash"]), key_of(source, tmp_path / "out", ["split"])}
    keys.add(key_of(source, tmp_path / "other", ["flash"]))
    os.utime(source, ns=(1, 1))
    keys.add(key_of(source, tmp_path / "out", ["flash"]))
    assert len(keys) == 4


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


def test_ranks_of_any_launcher_write_the_bytes_of_one_process(case, tmp_path):
    source, expected = case
    (tmp_path / "out").write_bytes(b"old")
    for process in ranks(source, tmp_path / "out", 3, 1, 2):
        assert process.communicate(timeout=60) == ("", "")
        assert process.returncode == 0
    assert (tmp_path / "out").read_bytes() == b"old"  # a share is missing
    [first] = ranks(source, tmp_path / "out", 3, 0)
    assert first.communicate(timeout=60) == ("", "")
    assert (tmp_path / "out").read_bytes() == expected
    folder_is_clean(tmp_path, "out")


def test_of_two_launches_at_once_the_second_ends_and_the_first_completes_the_output(case, tmp_path):
    source, expected = case
    [first] = ranks(source, tmp_path / "out", 2, 0)
    wait_until(lambda: written(tmp_path))
    [second] = ranks(source, tmp_path / "out", 2, 0)
    try:
        _, stderr = second.communicate(timeout=60)
        assert second.returncode == 3, stderr
        assert "another run of hw4 is writing" in stderr
        [other] = ranks(source, tmp_path / "out", 2, 1)
        assert other.communicate(timeout=60) == ("", "")
        assert first.communicate(timeout=60) == ("", "")
    finally:
        first.kill()
    assert (tmp_path / "out").read_bytes() == expected
    folder_is_clean(tmp_path, "out")


def test_a_launch_whose_first_rank_was_killed_is_gone_on_with_by_the_next(case, tmp_path):
    source, expected = case
    [first] = ranks(source, tmp_path / "out", 2, 0)
    wait_until(lambda: written(tmp_path))
    first.kill()
    first.wait()
    for process in ranks(source, tmp_path / "out", 2, 1, 0):
        assert process.communicate(timeout=60) == ("", "")
    assert (tmp_path / "out").read_bytes() == expected
    folder_is_clean(tmp_path, "out")


def test_a_first_rank_that_fails_before_anything_is_written_leaves_nothing(tmp_path):
    block = random_block(5, 64, 32)
    block[0, 0, 0, 0] = np.nan
    source = write_case(tmp_path / "in", block)
    [process] = ranks(source, tmp_path / "out", 1, 0)
    _, stderr = process.communicate(timeout=60)
    assert process.returncode == 2, stderr
    folder_is_clean(tmp_path, "in")


def written(folder):
    """Whether a rank has listed something."""
    return any(path.stat().st_size for path in folder.glob(".out.*/written-*"))


def wait_until(condition):
    deadline = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.02)


def test_a_rank_that_fails_says_which_it_is(tmp_path):
    [process] = ranks(tmp_path / "missing", tmp_path / "out", 2, 1)
    _, stderr = process.communicate(timeout=60)
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
    assert jointfile.LINE.findall("\n12 30;\n1\n5 6;") == [("12", "30"), ("5", "6")]

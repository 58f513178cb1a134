"""Several processes that write one file together, without Slurm: places, shares, what is written, and a later run."""

import os

import pytest
from helpers import fails, folder_is_clean, random_block, run_hw4, start_hw4, write_case

from hw4cli.errors import BusyError, InputError, MachineError
from hw4cli.nodes import jointfile
from hw4cli.nodes.jointfile import JointFile, Writer, covers, key_of
from hw4cli.nodes.place import Place, place
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

"""Classes as large as a course, judged as arrays: what Slurm allows, and what is asked of the file system."""

import os

import pytest
from cluster import answering_program, shell_program
from helpers import OPEN, fails, run_here

from hw4cli.judge.submission import scan
from hw4cli.sandbox import slurm


@pytest.fixture
def commands(tmp_path, monkeypatch):
    """A folder for commands of a Slurm that there is not."""
    monkeypatch.setenv("PATH", f"{tmp_path}/bin:{os.environ['PATH']}")
    shell_program(tmp_path / "bin" / "sbatch", "cat > /dev/null; echo 7")
    shell_program(tmp_path / "bin" / "squeue", "true")
    shell_program(tmp_path / "bin" / "scancel", f'echo "$@" >> {tmp_path}/cancelled')
    return tmp_path / "bin"


@pytest.mark.parametrize(
    ("lines", "expected"),
    [
        (["MaxArraySize            = 1001"], 1001),
        (["MaxArraySize            = 1001", "SchedulerParameters     = bf_continue,max_array_tasks=200,x=1"], 200),
        (["MaxArraySize            = 50", "SchedulerParameters     = max_array_tasks=200"], 50),
        (["MaxJobCount             = 10000"], 1000),
    ],
)
def test_an_array_has_as_many_tasks_as_slurm_allows(commands, lines, expected):
    shell_program(commands / "scontrol", "\n".join(f"echo '{line}'" for line in lines))
    assert slurm.max_array_tasks() == expected


def test_an_array_that_nobody_could_wait_for_is_cancelled(commands, two, tmp_path):
    shell_program(commands / "scontrol", "echo MaxArraySize = 4")
    answering_program(tmp_path / "class" / "ann" / "hw4", two)
    (tmp_path / "out" / "slurm" / "job").mkdir(parents=True)  # in the way
    args = ("--class", tmp_path / "class", "--output", tmp_path / "out", "--dir", two, "--slurm", "-N1", *OPEN)
    fails(run_here("judge", *args, "t01"), 3, f"cannot write {tmp_path}/out/slurm/job: Is a directory")
    assert (tmp_path / "cancelled").read_text() == "7\n"


def test_a_student_whose_task_never_began_is_reported_with_what_the_task_printed(commands, two, tmp_path):
    shell_program(commands / "scontrol", "echo MaxArraySize = 4")
    answering_program(tmp_path / "class" / "ann" / "hw4", two)
    (tmp_path / "out" / "slurm").mkdir(parents=True)
    (tmp_path / "out" / "slurm" / "7_0.txt").write_text("slurmstepd: error: the node has no disk\n")
    args = ("--class", tmp_path / "class", "--output", tmp_path / "out", "--dir", two, "--slurm", "-N1", *OPEN)
    result = run_here("judge", *args, "t01")
    assert result.returncode == 3, result.stderr
    assert "ann: its task ended before all was judged: the node has no disk" in result.stderr


def test_students_are_found_without_a_question_for_each(tmp_path, monkeypatch):
    for number in range(50):
        (tmp_path / f"s{number:02}").mkdir()
    (tmp_path / "ann").symlink_to("s00")
    (tmp_path / "loop").symlink_to("loop")
    (tmp_path / "notes.txt").touch()
    asked, stat = [], os.stat
    monkeypatch.setattr(os, "stat", lambda *args, **more: asked.append(args) or stat(*args, **more))
    found = [member.user for member in scan(tmp_path)]
    monkeypatch.undo()
    assert found == ["ann", *(f"s{number:02}" for number in range(50))]
    assert len(asked) < 10

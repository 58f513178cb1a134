"""--resume and --restart where there is a journal already; and the locks of a class and of a student."""

import fcntl
import os
import shutil

import pytest
from classes import board, class_args, correct, judge_class, submit
from helpers import HANGS, JUDGE_T01, fails, run_hw4, start_hw4, wait_until

from hw4cli.judge.scoring import journal


def content(folder):
    """The bytes of all files in a folder, except the lock's."""
    return {path: path.read_bytes() for path in folder.rglob("*") if path.is_file() and path.name != ".lock"}


def test_without_resume_or_restart_an_older_journal_stops_the_judge_with_both_options(workdir, folder):
    program = submit(workdir, "ann", hw4=correct(folder, workdir / "runs")) / "hw4"
    args = (*JUDGE_T01, "--dir", folder, "--program", program, "--output", "out")
    assert run_hw4(*args).returncode == 0
    before = content(workdir)
    message = "out has a journal: --resume continues it, --restart keeps it and starts a new one"
    fails(run_hw4(*args), 2, message)
    assert content(workdir) == before
    assert run_hw4(*args, "--restart").returncode == 0
    assert (workdir / "out" / "journal-1.jsonl").read_bytes() == before[workdir / "out" / journal.NAME]
    assert (workdir / "runs").read_text().count("run") == 2


def test_without_resume_or_restart_older_journals_stop_the_judging_of_a_class(workdir, folder):
    for user in ("ann", "ben", "cid"):
        submit(workdir, user, hw4=correct(folder, workdir / "runs"))
    assert judge_class(folder, "--only", "ann", "--only", "ben").returncode == 0
    before = content(workdir)
    fails(judge_class(folder), 2, "out has journals of 2 of 3 students", "--resume continues", "--restart keeps")
    assert content(workdir) == before
    assert judge_class(folder, "--only", "cid").returncode == 0, "of whom there is no journal yet"
    assert judge_class(folder, "--restart").returncode == 0
    assert (workdir / "runs").read_text().count("run") == 6
    assert (workdir / "out" / "ben" / "journal-1.jsonl").exists()


def test_a_damaged_journal_is_not_overwritten_either(workdir, folder):
    submit(workdir, "ann", hw4=correct(folder, workdir / "runs"))
    (workdir / "out" / "ann").mkdir(parents=True)
    (workdir / "out" / "ann" / journal.NAME).write_text("{")
    fails(judge_class(folder), 2, "out has journals of 1 of 1 students")
    assert (workdir / "out" / "ann" / journal.NAME).read_text() == "{"
    assert judge_class(folder, "--resume").returncode == 0
    assert board(workdir)["ann"].score == 60


@pytest.mark.parametrize("more", [("--restart",), ("--only", "ben", "--resume")])
def test_a_second_judge_of_a_class_ends_with_a_message_and_writes_nothing(workdir, folder, more):
    slow = "while ! [ -e go ]; do sleep 0.05; done\n".replace("go", f"{workdir}/go")
    submit(workdir, "ann", hw4=f"#!/bin/sh\ntouch {workdir}/started\n{slow}cp {folder}/t01.out $2\n")
    submit(workdir, "ben", hw4=correct(folder, workdir / "runs"))
    first = start_hw4(*class_args(folder))
    wait_until(lambda: (workdir / "started").exists())
    before = content(workdir / "out")
    fails(judge_class(folder, *more), 3, f"another hw4 judge (process {first.pid} on ", ") works on out: wait for it")
    assert content(workdir / "out") == before
    (workdir / "go").touch()
    stdout, stderr = first.communicate(timeout=HANGS)
    assert first.returncode == 0, stdout + stderr
    assert [one.score for one in board(workdir).values()] == [60, 60]


def test_a_lock_ends_with_its_judge(workdir, folder):
    submit(workdir, "ann", hw4=f"#!/bin/sh\ntouch {workdir}/started; exec sleep 300\n")
    first = start_hw4(*class_args(folder))
    wait_until(lambda: (workdir / "started").exists())
    first.terminate()
    first.communicate(timeout=HANGS)
    shutil.rmtree(workdir / "submissions" / "ann")
    submit(workdir, "ann", hw4=correct(folder, workdir / "runs"))
    assert judge_class(folder, "--resume").returncode == 0


def test_a_student_locked_by_another_judge_is_reported_and_nothing_is_written(workdir, folder):
    """Such as a task of an array whose judge was killed."""
    submit(workdir, "ann", hw4=correct(folder, workdir / "runs"))
    submit(workdir, "ben", hw4=correct(folder, workdir / "runs"))
    (workdir / "out" / "ann").mkdir(parents=True)
    descriptor = os.open(workdir / "out" / "ann", os.O_RDONLY)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        result = judge_class(folder)
    finally:
        os.close(descriptor)
    assert result.returncode == 3
    assert "hw4: ann: another hw4 judge works in out/ann: wait for it" in result.stderr
    assert not list((workdir / "out" / "ann").iterdir())
    assert judge_class(folder, "--resume").returncode == 0

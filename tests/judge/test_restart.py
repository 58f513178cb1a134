"""A judging that is there already is gone on with or kept, as its owner says; one judge at a time works on a class."""

import fcntl
import os
import shutil
import time

import pytest
from classes import board, class_words, judge_class, knowing, submit
from helpers import fails, run_hw4, start_hw4

from hw4cli.scoring import journal


def content(folder):
    """The bytes of all files in a folder, but for the lock's."""
    return {path: path.read_bytes() for path in folder.rglob("*") if path.is_file() and path.name != ".lock"}


def test_a_forgotten_resume_changes_nothing_and_tells_what_there_is_to_choose(desk, folder):
    program = submit(desk, "ann", hw4=knowing(folder, desk / "runs")) / "hw4"
    words = ("judge", "t01", "--dir", folder, "--program", program, "--output", "out")
    assert run_hw4(*words).returncode == 0
    before = content(desk)
    told = "out holds a judging: --resume goes on with it, --restart keeps it and begins anew"
    fails(run_hw4(*words), 2, told)
    assert content(desk) == before
    assert run_hw4(*words, "--restart").returncode == 0
    assert (desk / "out" / "journal-1.jsonl").read_bytes() == before[desk / "out" / journal.NAME]
    assert (desk / "runs").read_text().count("run") == 2


def test_a_forgotten_resume_of_a_class_changes_nothing(desk, folder):
    for user in ("ann", "ben", "cid"):
        submit(desk, user, hw4=knowing(folder, desk / "runs"))
    assert judge_class(folder, "--only", "ann", "--only", "ben").returncode == 0
    before = content(desk)
    fails(judge_class(folder), 2, "out holds a judging of 2 of 3 students", "--resume goes on", "--restart keeps")
    assert content(desk) == before
    assert judge_class(folder, "--only", "cid").returncode == 0, "of whom there is no journal yet"
    assert judge_class(folder, "--restart").returncode == 0
    assert (desk / "runs").read_text().count("run") == 6
    assert (desk / "out" / "ben" / "journal-1.jsonl").exists()


def test_a_damaged_journal_is_a_judging_too(desk, folder):
    submit(desk, "ann", hw4=knowing(folder, desk / "runs"))
    (desk / "out" / "ann").mkdir(parents=True)
    (desk / "out" / "ann" / journal.NAME).write_text("{")
    fails(judge_class(folder), 2, "out holds a judging of 1 of 1 students")
    assert (desk / "out" / "ann" / journal.NAME).read_text() == "{"
    assert judge_class(folder, "--resume").returncode == 0
    assert board(desk)["ann"].score == 60


@pytest.mark.parametrize("more", [("--restart",), ("--only", "ben", "--resume")])
def test_a_second_judge_of_a_class_is_told_and_writes_nothing_about_anyone(desk, folder, more):
    slow = "while ! [ -e go ]; do sleep 0.05; done\n".replace("go", f"{desk}/go")
    submit(desk, "ann", hw4=f"#!/bin/sh\ntouch {desk}/started\n{slow}cp {folder}/t01.out $2\n")
    submit(desk, "ben", hw4=knowing(folder, desk / "runs"))
    first = start_hw4(*class_words(folder))
    deadline = time.monotonic() + 60
    while not (desk / "started").exists() and time.monotonic() < deadline:
        time.sleep(0.02)
    before = content(desk / "out")
    fails(judge_class(folder, *more), 3, f"another hw4 judge (process {first.pid} on ", ") works on out: wait for it")
    assert content(desk / "out") == before
    (desk / "go").touch()
    stdout, stderr = first.communicate(timeout=60)
    assert first.returncode == 0, stdout + stderr
    assert [one.score for one in board(desk).values()] == [60, 60]


def test_a_lock_goes_with_its_judge(desk, folder):
    submit(desk, "ann", hw4=f"#!/bin/sh\ntouch {desk}/started; exec sleep 300\n")
    first = start_hw4(*class_words(folder))
    deadline = time.monotonic() + 60
    while not (desk / "started").exists() and time.monotonic() < deadline:
        time.sleep(0.02)
    first.terminate()
    first.communicate(timeout=60)
    shutil.rmtree(desk / "submissions" / "ann")
    submit(desk, "ann", hw4=knowing(folder, desk / "runs"))
    assert judge_class(folder, "--resume").returncode == 0


def test_a_student_whom_another_judge_builds_is_told_of_and_nothing_is_written(desk, folder):
    """A task of an array, say, whose judge was killed."""
    submit(desk, "ann", hw4=knowing(folder, desk / "runs"))
    submit(desk, "ben", hw4=knowing(folder, desk / "runs"))
    (desk / "out" / "ann").mkdir(parents=True)
    descriptor = os.open(desk / "out" / "ann", os.O_RDONLY)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        result = judge_class(folder)
    finally:
        os.close(descriptor)
    assert result.returncode == 3
    assert "hw4: ann: another hw4 judge works in out/ann: wait for it" in result.stderr
    assert not list((desk / "out" / "ann").iterdir())
    assert judge_class(folder, "--resume").returncode == 0

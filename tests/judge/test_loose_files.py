"""What students hand in and a class's folder holds as it comes: nobody is missing, and each reason is so."""

import json

import pytest
from classes import board, correct, judge_class, submit
from helpers import run_hw4

from hw4cli.judge.submission import scan


def loose(workdir, *names):
    for name in names:
        (workdir / "submissions" / name).write_bytes(b"PK\3\4")


def test_students_with_loose_files_are_named_and_stand_on_the_board_without_a_score(workdir, folder):
    submit(workdir, "ann", hw4=correct(folder, workdir / "runs"))
    loose(workdir, "ben.zip", "112062123_hw4.cu", "cid.tar.gz", "Makefile", "roster.csv", "README", "ann.zip", ".x.zip")
    result = judge_class(folder)
    assert result.returncode == 3, "not everyone is judged"
    said = " ".join(result.stderr.split())
    assert "ben: not judged: ben.zip lies loose in submissions: unpack into a folder ben there" in said
    assert "112062123_hw4.cu lies loose in submissions: make a folder 112062123 there, with a Makefile" in said
    assert "cid: not judged: cid.tar.gz lies loose" in said and "roster" not in said and "ann.zip" not in said
    found = board(workdir)
    assert {user: one.score for user, one in found.items()} == {"ann": 60, "ben": None, "cid": None, "112062123": None}
    assert "unpack into a folder ben" in found["ben"].note
    page = workdir / "board.html"
    shown = run_hw4("scoreboard", workdir / "out", "-o", page, "--anonymous")
    assert shown.returncode == 0 and "handed in as a loose file" in page.read_text()
    assert "ben.zip" not in page.read_text() and "ben" not in shown.stdout
    names = [one["user"] for one in json.loads((workdir / "out" / "results.json").read_text())["standings"]]
    assert sorted(names) == sorted(found)


def test_once_unpacked_they_are_judged(workdir, folder):
    submit(workdir, "ann", hw4=correct(folder, workdir / "runs"))
    loose(workdir, "ben.zip")
    assert judge_class(folder).returncode == 3
    submit(workdir, "ben", hw4=correct(folder, workdir / "runs"))
    result = judge_class(folder, "--resume")
    assert result.returncode == 0, result.stderr
    assert {user: one.score for user, one in board(workdir).items()} == {"ann": 60, "ben": 60}


def test_a_class_of_loose_files_alone_is_refused_with_their_names(workdir, folder):
    loose(workdir, *(f"s{number}.zip" for number in range(9)))
    result = judge_class(folder)
    assert result.returncode == 2
    assert "but loose files (s0.zip, s1.zip, s2.zip, s3.zip, s4.zip, …): give each student a folder" in " ".join(
        result.stderr.split()
    )


def test_two_files_of_one_student_are_one_student_and_a_chosen_one_is_found(workdir, folder):
    submit(workdir, "ann", hw4="#!/bin/true\n")
    loose(workdir, "ben.cu", "ben.zip", "ben_HW4.cu", "a\nb.zip", "hw4.cu", "-rf.zip")
    found = {one.user: [path.name for path in one.loose] for one in scan(workdir / "submissions")}
    assert found.pop("ben") == ["ben.cu", "ben.zip", "ben_HW4.cu"]
    assert found == {"ann": [], "a\nb": ["a\nb.zip"], "hw4": ["hw4.cu"], "-rf": ["-rf.zip"]}
    assert [one.user for one in scan(workdir / "submissions", ["ben"])] == ["ben"]
    result = judge_class(folder, "--only", "ben")
    assert result.returncode == 3 and "ben" in result.stderr and "rf.zip" not in result.stderr


@pytest.mark.parametrize("name", ["slurm.zip", "results.json.zip", "pseudonyms.json.tar.gz"])
def test_a_loose_file_of_a_name_that_hw4_needs_is_refused(workdir, folder, name):
    submit(workdir, "ann", hw4="#!/bin/true\n")
    loose(workdir, name)
    result = judge_class(folder)
    assert (result.returncode, "no student's folder can be called" in result.stderr) == (2, True)


def test_the_reason_of_a_submission_without_a_program_is_what_its_author_did(workdir, folder):
    (workdir / "submissions").mkdir(exist_ok=True)
    texts = {
        "named": {"112062123_hw4.cu": ""},
        "nested": {"hw4/hw4.cu": "", "hw4/Makefile": "hw4:\n"},
        "other": {"submission/Makefile": "hw4:\n", "report.pdf": ""},
        "source": {"hw4.cu": "", "report.pdf": ""},
        "hip": {"hw4.hip": ""},
        "packed": {"hw4.zip": ""},
        "folder": {"hw4/notes.txt": ""},
        "prebuilt": {"ann/hw4": "#!/bin/sh\n"},
        "mention": {"not-hw4.cu.txt": ""},
    }
    for user, files in texts.items():
        for name, text in files.items():
            path = workdir / "submissions" / user / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
    result = judge_class(folder)
    assert result.returncode == 0, result.stderr
    assert {user: one.note for user, one in board(workdir).items()} == {
        "named": "there is a file 112062123_hw4.cu, but no Makefile to build it with",
        "nested": "its files lie one folder too deep: hw4/Makefile belongs beside hw4/",
        "other": "its files lie one folder too deep: submission/Makefile belongs beside submission/",
        "source": "there is an hw4.cu, but no Makefile to build it with",
        "hip": "there is an hw4.hip, but no Makefile to build it with",
        "packed": "there is an archive hw4.zip, but nothing unpacked: no hw4 and no Makefile",
        "folder": "hw4 is a folder, not a program",
        "prebuilt": "its files lie one folder too deep: ann/hw4 belongs beside ann/",
        "mention": "there is no hw4 and no Makefile: only not-hw4.cu.txt",
    }

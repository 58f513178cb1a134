"""A class on one machine: every submission gets its turn, and its reason, whatever is wrong with others."""

import fcntl
import json
import os
import subprocess
import time

import psutil
from classes import board, judge_class, knowing, submit
from helpers import OPEN, fails, run_hw4, start_hw4

from hw4cli.judge.submission import scan
from hw4cli.problem import suite
from hw4cli.scoring import journal
from hw4cli.scoring.record import Attempt


def test_broken_submissions_are_told_and_stop_nobody(desk, folder, request):
    log = desk / "runs"
    submit(desk, "ready", hw4=knowing(folder, log))
    submit(desk, "built", Makefile="hw4: solution\n\tcp solution hw4\n", solution=knowing(folder, log))
    submit(desk, "stale", Makefile="hw4:\n\tcp solution hw4\n", solution=knowing(folder, log), hw4="#!/bin/false\n")
    stale = submit(desk, "folder", Makefile="hw4:\n\tcp solution hw4\n", solution=knowing(folder, log))
    (stale / "hw4").mkdir()
    submit(desk, "typo", Makefile="hw4: hw4.cu\n\t@echo 'hw4.cu(7): error: no ;' >&2; exit 2\n", hw4_cu="int main(")
    submit(desk, "slow", Makefile="hw4:\n\tsetsid sleep 98761 & sleep 98761\n")
    submit(desk, "other", Makefile="hw4:\n\ttouch hw5\n")
    submit(desk, "norule", Makefile="all:\n\ttouch hw4\n")
    submit(desk, "alone", hw4_cu="int main() {}")
    submit(desk, "notes", readme="none yet")
    submit(desk, "empty")
    submit(desk, "<script>alert(1)<'$x", hw4=knowing(folder, log))
    os.mkfifo(submit(desk, "pipe", Makefile="hw4:\n\ttrue\n") / "fifo")
    huge = submit(desk, "huge", hw4=knowing(folder, log))
    with (huge / "data").open("wb") as file:
        file.truncate(3 << 30)
    (submit(desk, "copycat") / "hw4").symlink_to("../ready/hw4")
    submit(desk, "linker", Makefile=f"hw4:\n\tln -s {desk}/submissions/ready/hw4 hw4\n")
    submit(desk, "borrower", hw4=f"#!/usr/bin/env {desk}/submissions/ready/hw4\n")
    deep = submit(desk, "deep", Makefile="hw4:\n\ttrue\n")
    # Whatever fails below: pytest cannot remove what Python cannot count, and would break at the end of a later run.
    request.addfinalizer(lambda: subprocess.run(["rm", "-rf", deep], check=True))
    subprocess.run(["sh", "-c", "for i in $(seq 1500); do mkdir d; cd d; done"], cwd=deep, check=True)
    (desk / "submissions" / "a file.txt").touch()
    result = judge_class(folder, "--build-limit", "1")
    assert result.returncode == 0, result.stderr
    found = board(desk)
    right = {"ready", "built", "stale", "folder", "<script>alert(1)<'$x"}
    assert {user for user, one in found.items() if one.passed == 1 and not one.note} == right
    assert {user: one.note.partition("submissions")[0] for user, one in found.items() if user not in right} == {
        "typo": "make hw4 failed: hw4.cu(7): error: no ;",
        "slow": "make hw4 did not end within 1 s",
        "other": "make hw4 made no hw4",
        "norule": "make hw4 failed: make: *** No rule to make target 'hw4'.  Stop.",
        "alone": "there is an hw4.cu, but no Makefile to build it with",
        "notes": "there is no hw4 and no Makefile: only readme",
        "empty": "the folder is empty",
        "pipe": "it cannot be copied: `",
        "huge": "it is larger than 1,024 MB: 3,072 MB",
        "copycat": "hw4 is a link that leads elsewhere",
        "linker": "hw4 is a link that leads elsewhere",
        "borrower": "the first line of hw4 leads to a student's folder",
        "deep": "it cannot be copied: its folders are nested too deeply",
    }
    assert {one.penalty for user, one in found.items() if user not in right} == {60}
    assert "no ;" in (desk / "out" / "typo" / "build.txt").read_text()
    assert [one for one in psutil.process_iter(["cmdline"]) if "98761" in (one.info["cmdline"] or ())] == []
    assert sorted(path.name for path in (desk / "submissions" / "built").iterdir()) == ["Makefile", "solution"]


def test_a_class_is_gone_on_with_and_only_what_changed_is_judged_anew(desk, folder):
    log = desk / "runs"
    submit(desk, "ann", hw4=knowing(folder, log))
    ben = submit(desk, "ben", Makefile="hw4:\n\tdate +%N > hw4.h; cp solution hw4; cat hw4.h >> hw4\n")
    (ben / "solution").write_text(knowing(folder, log) + "exit 0\n")
    (ben / "solution").chmod(0o755)
    submit(desk, "cid", Makefile="hw4:\n\tfalse\n")
    assert judge_class(folder).returncode == 0
    assert log.read_text().count("run") == 2

    again = judge_class(folder, "--resume")
    assert again.returncode == 0
    assert log.read_text().count("run") == 2
    assert again.stdout.count("judged before") == 3

    (ben / "notes").write_text("new")
    assert judge_class(folder, "--resume").returncode == 0
    assert log.read_text().count("run") == 3

    assert judge_class(folder, "--resume", "--limit", "t01=9").returncode == 0
    assert log.read_text().count("run") == 5, "another limit is another judging"


def test_asked_to_begin_anew_a_class_is_judged_anew_and_the_old_journals_are_kept(desk, folder):
    submit(desk, "ann", hw4=knowing(folder, desk / "runs"))
    submit(desk, "ben", hw4=knowing(folder, desk / "runs"))
    assert judge_class(folder).returncode == 0
    assert judge_class(folder, "--only", "ann", "--restart").returncode == 0
    assert (desk / "runs").read_text().count("run") == 3
    assert (desk / "out" / "ann" / "journal-1.jsonl").exists()
    assert not (desk / "out" / "ben" / "journal-1.jsonl").exists()
    assert len(json.loads((desk / "out" / "results.json").read_text())["standings"]) == 2


def test_the_judges_failure_on_one_student_is_told_and_the_others_are_judged(desk, folder):
    for user in ("ann", "ben", "cid"):
        submit(desk, user, hw4=knowing(folder, desk / "runs"))
    (desk / "out").mkdir()
    (desk / "out" / "ann").write_text("in the way")
    (desk / "out" / "ben").mkdir()
    with (desk / "out" / "ben" / journal.NAME).open("ab") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        result = judge_class(folder)
    assert result.returncode == 3
    assert "hw4: ann: " in result.stderr
    assert "hw4: ben: another hw4 judge is writing" in result.stderr
    assert board(desk)["cid"].passed == 1


def test_a_students_files_do_not_end_the_judging_of_the_others(desk, folder):
    submit(desk, "ann", hw4=knowing(folder, desk / "runs"))
    submit(desk, "ben", hw4=knowing(folder, desk / "runs"))
    submit(
        desk, "cid", Makefile="hw4:\n\tprintf '\\377' > ../build.sha256; cp solution hw4\n", solution="#!/bin/true\n"
    )
    submit(desk, "dee", hw4="#!/bin/sh -e'\n")
    assert judge_class(folder).returncode == 0
    with (desk / "out" / "ann" / journal.NAME).open("a") as file:
        file.write('{"kind": "run", "shape": [1, 1, 1]}\n')
    (desk / "submissions" / "cid" / "notes").touch()
    os.mkfifo(desk / "out" / "eve")
    submit(desk, "eve", hw4=knowing(folder, desk / "runs"))
    result = judge_class(folder, "--resume")
    assert result.returncode == 3
    assert "Traceback" not in result.stderr
    assert "ann/journal.jsonl is damaged in line 3: what is missing is judged again" in result.stderr
    assert "hw4: eve: " in result.stderr
    assert board(desk)["ben"].passed == 1
    assert board(desk)["ann"].score == 60


def test_submissions_may_be_read_only_and_are_not_touched(desk, folder):
    """Students' programs may write beside themselves: that is in a copy, and nothing runs again for it."""
    place = submit(desk, "ann", hw4=knowing(folder, desk / "runs") + "date +%N >> ${0%/*}/log\n")
    other = submit(desk, "ben", Makefile="hw4:\n\tcp solution hw4\n", solution=knowing(folder, desk / "runs"))
    for path in (place, other):
        for file in path.iterdir():
            file.chmod(file.stat().st_mode & ~0o222)
        path.chmod(0o555)
    assert judge_class(folder).returncode == 0
    assert judge_class(folder, "--resume").stdout.count("judged before") == 2
    assert (desk / "runs").read_text().count("run") == 2
    assert [one.passed for one in board(desk).values()] == [1, 1]
    for path in (place, other):
        path.chmod(0o755)


def test_a_build_that_was_too_slow_is_tried_again_with_more_time(desk, folder):
    submit(desk, "ann", Makefile="hw4:\n\tsleep 1.5; cp solution hw4\n", solution=knowing(folder, desk / "runs"))
    assert judge_class(folder, "--build-limit", "1").returncode == 0
    assert board(desk)["ann"].note == "make hw4 did not end within 1 s"
    assert judge_class(folder, "--build-limit", "60", "--resume").returncode == 0
    assert board(desk)["ann"].passed == 1


def test_ctrl_c_leaves_what_was_judged(desk, folder, tmp_path):
    submit(desk, "ann", hw4=knowing(folder, desk / "runs"))
    submit(desk, "ben", hw4=f"#!/bin/sh\ntouch {desk}/started\nsleep 98760\n")
    words = ("--class", "submissions", "--output", "out", "--dir", folder, *OPEN)
    process = start_hw4("judge", "t01", *words)
    deadline = time.monotonic() + 60
    while not (desk / "started").exists() and time.monotonic() < deadline:
        time.sleep(0.05)
    process.terminate()
    stdout, stderr = process.communicate(timeout=60)
    assert process.returncode == 130, stderr
    assert stderr.splitlines()[-1] == "hw4: interrupted: 1 of 2 students are judged, --resume goes on"
    assert "ann" in stdout
    names = [one["user"] for one in json.loads((desk / "out" / "results.json").read_text())["standings"]]
    assert names == ["ann", "ben"]
    assert [one for one in psutil.process_iter(["cmdline"]) if "98760" in (one.info["cmdline"] or ())] == []


def test_what_a_class_needs_is_told(desk, folder):
    fails(judge_class(folder), 2, "submissions holds no submissions")
    submit(desk, "ann", hw4="#!/bin/true\n")
    fails(judge_class(folder, "--only", "zoe"), 2, "submissions holds no submission zoe")
    fails(judge_class(folder, "--program", "x"), 2, "--program and --class do not go together")
    fails(judge_class(folder, "--parallel", "2"), 2, "--parallel needs --slurm")
    fails(judge_class(folder, "--build-limit", "nan"), 2, "nan is not a number")
    fails(run_hw4("judge", "--class", "submissions"), 2, "--class needs --output DIR")
    fails(run_hw4("judge", "--slurm", "-p x"), 2, "--slurm needs --class")
    fails(
        run_hw4("judge", "--class", "nowhere", "--output", "out", "t01", "--dir", folder),
        2,
        "--class nowhere: there is no such folder",
    )
    for output in ("submissions", "submissions/ann", "submissions/ann/out"):
        words = ("--class", "submissions", "--output", output, "--dir", folder)
        fails(run_hw4("judge", "t01", *words), 2, "keep the results elsewhere")
    submit(desk, "results.json", hw4="#!/bin/true\n")
    fails(judge_class(folder), 2, "no student's folder can be called results.json")


def test_slurm_that_is_not_there_is_told(desk, folder, tmp_path):
    submit(desk, "ann", hw4="#!/bin/true\n")
    path = {"PATH": str(tmp_path)}
    words = ("judge", "t01", "--dir", folder)
    fails(run_hw4(*words, "--srun", "-p x", env=path), 3, "srun cannot be started: there is no such program on PATH")
    array = ("--class", "submissions", "--output", "out", "--slurm", "-p x")
    fails(run_hw4(*words, *array, env=path), 3, "scontrol cannot be started: there is no such program on PATH")


def test_any_launcher_that_runs_a_command_will_do(desk, folder):
    program = submit(desk, "ann", hw4=knowing(folder, desk / "runs")) / "hw4"
    words = ("judge", "t01", "--dir", folder, "--launcher", "env A=1 nice", "--program")
    result = run_hw4(*words, program)
    assert result.returncode == 0, result.stdout + result.stderr
    assert not list(desk.glob("hw4-judge-*"))
    program.write_text('#!/bin/sh\necho "A is $A" >&2\nexit 3\n')
    assert "exit code 3: A is\n" in run_hw4(*words, program, env={"A": "0"}).stdout
    assert "exit code 3: A is 1" in run_hw4(*words, program, "--pass-env", "A", env={"A": "0"}).stdout


def test_two_hundred_submissions_of_thirty_cases_are_looked_through_at_once(desk):
    """What --resume costs when all is done: a few milliseconds a student."""
    from hw4cli.judge.classroom import ClassPlan, Classroom
    from hw4cli.judge.session import SessionPlan

    cases = list(suite.cases().values())
    for number in range(200):
        submit(desk, f"student{number}", hw4="#!/bin/true\n")
    for one in scan(desk / "submissions"):
        path = desk / "out" / one.user / journal.NAME
        path.parent.mkdir(parents=True)
        settings = {"submission": one.sha256, "build_limit": 120.0, "sandbox": "none", "launcher": []}
        lines = [journal.header(user=one.user, cases=[case.name for case in cases], settings=settings)]
        lines += [
            journal.run("key", Attempt(case.name, (case.shape.B, case.shape.N, case.shape.d), case.limit, wall=1.0))
            for case in cases
        ]
        path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    plan = SessionPlan("", [], cases, desk, output=desk / "out", resume=True)
    start = time.process_time()
    room = Classroom(ClassPlan(desk / "submissions", desk / "out", plan))
    assert room.judge()
    assert len(room.write()) == 200
    assert time.process_time() - start < 6, "about 1 s on a machine of 2026"


def test_a_class_that_is_not_there_is_told_before_cases_that_are_missing(hw4, tmp_path):
    result = hw4("judge", "--class", tmp_path / "none", "--output", tmp_path / "out", "--dir", tmp_path)
    assert result.returncode == 2
    assert "there is no such folder" in result.stderr
    assert not (tmp_path / "out").exists()

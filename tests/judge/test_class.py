"""A class on one machine: every submission is judged, whatever is wrong with others."""

import fcntl
import json
import os
import subprocess
import time

import psutil
from classes import board, class_args, correct, judge_class, submit
from helpers import HANGS, JUDGE_T01, OPEN, fails, run_here, start_hw4, wait_until
from needs import needs
from slow import slow

from hw4cli.judge.scoring import journal
from hw4cli.judge.scoring.record import Attempt
from hw4cli.judge.submission import scan
from hw4cli.problem import suite


@needs("make")
def test_broken_submissions_get_their_reasons_and_the_others_are_judged(workdir, folder, request):
    log = workdir / "runs"
    submit(workdir, "ready", hw4=correct(folder, log))
    submit(workdir, "built", Makefile="hw4: solution\n\tcp solution hw4\n", solution=correct(folder, log))
    submit(workdir, "stale", Makefile="hw4:\n\tcp solution hw4\n", solution=correct(folder, log), hw4="#!/bin/false\n")
    stale = submit(workdir, "folder", Makefile="hw4:\n\tcp solution hw4\n", solution=correct(folder, log))
    (stale / "hw4").mkdir()
    submit(workdir, "typo", Makefile="hw4: hw4.cu\n\t@echo 'hw4.cu(7): error: no ;' >&2; exit 2\n", hw4_cu="int main(")
    submit(workdir, "slow", Makefile="hw4:\n\tsetsid sleep 98761 & sleep 98761\n")
    submit(workdir, "other", Makefile="hw4:\n\ttouch hw5\n")
    submit(workdir, "norule", Makefile="all:\n\ttouch hw4\n")
    submit(workdir, "alone", hw4_cu="int main() {}")
    submit(workdir, "notes", readme="none yet")
    submit(workdir, "empty")
    submit(workdir, "<script>alert(1)<'$x", hw4=correct(folder, log))
    os.mkfifo(submit(workdir, "pipe", Makefile="hw4:\n\ttrue\n") / "fifo")
    huge = submit(workdir, "huge", hw4=correct(folder, log))
    with (huge / "data").open("wb") as file:
        file.truncate(3 << 30)
    (submit(workdir, "copycat") / "hw4").symlink_to("../ready/hw4")
    submit(workdir, "linker", Makefile=f"hw4:\n\tln -s {workdir}/submissions/ready/hw4 hw4\n")
    submit(workdir, "borrower", hw4=f"#!/usr/bin/env {workdir}/submissions/ready/hw4\n")
    deep = submit(workdir, "deep", Makefile="hw4:\n\ttrue\n")
    # pytest cannot remove so deep a folder, and would fail at the end of a later run.
    request.addfinalizer(lambda: subprocess.run(["rm", "-rf", deep], check=True))
    subprocess.run(["sh", "-c", "for i in $(seq 1500); do mkdir d; cd d; done"], cwd=deep, check=True)
    (workdir / "submissions" / "a file.txt").touch()
    result = judge_class(folder, "--build-limit", "1", "--build", "false")
    assert result.returncode == 0, result.stderr
    found = board(workdir)
    right = {"ready", "built", "stale", "folder", "<script>alert(1)<'$x"}
    assert {user for user, one in found.items() if one.passed == 1 and not one.note} == right
    assert {user: one.note.partition("submissions")[0] for user, one in found.items() if user not in right} == {
        "typo": "make hw4 failed: hw4.cu(7): error: no ;",
        "slow": "make hw4 did not end within 1 s",
        "other": "make hw4 made no hw4",
        "norule": "make hw4 failed: make: *** No rule to make target 'hw4'.  Stop.",
        "alone": "false hw4.cu failed: it printed no message",
        "notes": "there is no hw4 and no Makefile, nor an hw4.cu: only readme",
        "empty": "the folder is empty",
        "pipe": "it cannot be copied: `",
        "huge": "it is larger than 1,024 MB: 3,072 MB",
        "copycat": "hw4 is a link that leads elsewhere",
        "linker": "hw4 is a link that leads elsewhere",
        "borrower": "the first line of hw4 leads to a student's folder",
        "deep": "it cannot be copied: its folders are nested too deeply",
    }
    assert {one.penalty for user, one in found.items() if user not in right} == {60}
    assert "no ;" in (workdir / "out" / "typo" / "build.txt").read_text()
    assert [one for one in psutil.process_iter(["cmdline"]) if "98761" in (one.info["cmdline"] or ())] == []
    assert sorted(path.name for path in (workdir / "submissions" / "built").iterdir()) == ["Makefile", "solution"]


@needs("make")
def test_a_resumed_class_judges_only_changed_submissions(workdir, folder):
    log = workdir / "runs"
    submit(workdir, "ann", hw4=correct(folder, log))
    ben = submit(workdir, "ben", Makefile="hw4:\n\tdate +%N > hw4.h; cp solution hw4; cat hw4.h >> hw4\n")
    (ben / "solution").write_text(correct(folder, log) + "exit 0\n")
    (ben / "solution").chmod(0o755)
    submit(workdir, "cid", Makefile="hw4:\n\tfalse\n")
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


def test_restart_judges_a_class_again_and_keeps_the_old_journals(workdir, folder):
    submit(workdir, "ann", hw4=correct(folder, workdir / "runs"))
    submit(workdir, "ben", hw4=correct(folder, workdir / "runs"))
    assert judge_class(folder).returncode == 0
    assert judge_class(folder, "--only", "ann", "--restart").returncode == 0
    assert (workdir / "runs").read_text().count("run") == 3
    assert (workdir / "out" / "ann" / "journal-1.jsonl").exists()
    assert not (workdir / "out" / "ben" / "journal-1.jsonl").exists()
    assert len(json.loads((workdir / "out" / "results.json").read_text())["standings"]) == 2


def test_a_failure_of_the_judge_on_one_student_is_reported_and_the_others_are_judged(workdir, folder):
    for user in ("ann", "ben", "cid"):
        submit(workdir, user, hw4=correct(folder, workdir / "runs"))
    (workdir / "out").mkdir()
    (workdir / "out" / "ann").write_text("in the way")
    (workdir / "out" / "ben").mkdir()
    with (workdir / "out" / "ben" / journal.NAME).open("ab") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        result = judge_class(folder)
    assert result.returncode == 3
    assert "hw4: ann: " in result.stderr
    assert "hw4: ben: another hw4 judge is writing" in result.stderr
    assert board(workdir)["cid"].passed == 1


@needs("make")
def test_a_students_odd_files_do_not_stop_the_judging_of_the_others(workdir, folder):
    submit(workdir, "ann", hw4=correct(folder, workdir / "runs"))
    submit(workdir, "ben", hw4=correct(folder, workdir / "runs"))
    submit(
        workdir, "cid", Makefile="hw4:\n\tprintf '\\377' > ../build.sha256; cp solution hw4\n", solution="#!/bin/true\n"
    )
    submit(workdir, "dee", hw4="#!/bin/sh -e'\n")
    assert judge_class(folder).returncode == 0
    with (workdir / "out" / "ann" / journal.NAME).open("a") as file:
        file.write('{"kind": "run", "shape": [1, 1, 1]}\n')
    (workdir / "submissions" / "cid" / "notes").touch()
    os.mkfifo(workdir / "out" / "eve")
    submit(workdir, "eve", hw4=correct(folder, workdir / "runs"))
    result = judge_class(folder, "--resume")
    assert result.returncode == 3
    assert "Traceback" not in result.stderr
    assert "ann/journal.jsonl is damaged in line 3: missing results are judged again" in result.stderr
    assert "hw4: eve: " in result.stderr
    assert board(workdir)["ben"].passed == 1
    assert board(workdir)["ann"].score == 60


@needs("make")
def test_submissions_may_be_read_only_and_are_not_changed(workdir, folder):
    """A program that writes into its own folder changes the copy, and is not judged again for it."""
    own = submit(workdir, "ann", hw4=correct(folder, workdir / "runs") + "date +%N >> ${0%/*}/log\n")
    other = submit(workdir, "ben", Makefile="hw4:\n\tcp solution hw4\n", solution=correct(folder, workdir / "runs"))
    for path in (own, other):
        for file in path.iterdir():
            file.chmod(file.stat().st_mode & ~0o222)
        path.chmod(0o555)
    assert judge_class(folder).returncode == 0
    assert judge_class(folder, "--resume").stdout.count("judged before") == 2
    assert (workdir / "runs").read_text().count("run") == 2
    assert [one.passed for one in board(workdir).values()] == [1, 1]
    for path in (own, other):
        path.chmod(0o755)


@needs("make")
def test_a_build_that_was_too_slow_is_repeated_with_a_longer_limit(workdir, folder):
    submit(workdir, "ann", Makefile="hw4:\n\tsleep 1.5; cp solution hw4\n", solution=correct(folder, workdir / "runs"))
    assert judge_class(folder, "--build-limit", "1").returncode == 0
    assert board(workdir)["ann"].note == "make hw4 did not end within 1 s"
    assert judge_class(folder, "--build-limit", "60", "--resume").returncode == 0
    assert board(workdir)["ann"].passed == 1


def test_ctrl_c_keeps_the_results_of_judged_students(workdir, folder, tmp_path):
    submit(workdir, "ann", hw4=correct(folder, workdir / "runs"))
    submit(workdir, "ben", hw4=f"#!/bin/sh\ntouch {workdir}/started\nsleep 98760\n")
    args = ("--class", "submissions", "--output", "out", "--dir", folder, *OPEN)
    process = start_hw4("judge", "t01", *args)
    wait_until(lambda: (workdir / "started").exists())
    process.terminate()
    stdout, stderr = process.communicate(timeout=HANGS)
    assert process.returncode == 130, stderr
    assert stderr.splitlines()[-1] == "hw4: interrupted: 1 of 2 students are judged, --resume continues"
    assert "ann" in stdout
    names = [one["user"] for one in json.loads((workdir / "out" / "results.json").read_text())["standings"]]
    assert names == ["ann", "ben"]
    assert [one for one in psutil.process_iter(["cmdline"]) if "98760" in (one.info["cmdline"] or ())] == []


def test_missing_and_conflicting_options_of_a_class_are_refused(workdir, folder, hw4_here):
    def judge_here(*options):
        return hw4_here(*class_args(folder), *options)

    fails(judge_here(), 2, "submissions holds no submissions")
    submit(workdir, "ann", hw4="#!/bin/true\n")
    fails(judge_here("--only", "zoe"), 2, "submissions holds no submission zoe")
    fails(judge_here("--program", "x"), 2, "--program and --class do not go together")
    fails(judge_here("--parallel", "2"), 2, "--parallel needs --slurm")
    fails(judge_here("--build-limit", "nan"), 2, "nan is not a number")
    fails(hw4_here("judge", "--class", "submissions"), 2, "--class needs --output DIR")
    fails(hw4_here("judge", "--slurm", "-p x"), 2, "--slurm needs --class")
    fails(
        hw4_here("judge", "--class", "nowhere", "--output", "out", "t01", "--dir", folder, *OPEN),
        2,
        "--class nowhere: there is no such folder",
    )
    for output in ("submissions", "submissions/ann", "submissions/ann/out"):
        args = ("--class", "submissions", "--output", output, "--dir", folder, *OPEN)
        fails(hw4_here("judge", "t01", *args), 2, "keep the results elsewhere")
    submit(workdir, "results.json", hw4="#!/bin/true\n")
    fails(judge_here(), 2, "no student's folder can be called results.json")


def test_a_missing_slurm_is_reported(workdir, folder, tmp_path):
    submit(workdir, "ann", hw4="#!/bin/true\n")
    path = {"PATH": str(tmp_path)}
    args = ("judge", "t01", "--dir", folder)
    fails(run_here(*args, "--srun", "-p x", env=path), 3, "srun cannot be started: there is no such program on PATH")
    array = ("--class", "submissions", "--output", "out", "--slurm", "-p x")
    fails(run_here(*args, *array, env=path), 3, "scontrol cannot be started: there is no such program on PATH")


def test_a_launcher_may_be_any_command_that_runs_a_command(workdir, folder):
    program = submit(workdir, "ann", hw4=correct(folder, workdir / "runs")) / "hw4"
    args = (*JUDGE_T01, "--dir", folder, "--launcher", "env A=1 nice", "--program")
    result = run_here(*args, program)
    assert result.returncode == 0, result.stdout + result.stderr
    assert not list(workdir.glob("hw4-judge-*"))
    program.write_text('#!/bin/sh\necho "A is $A" >&2\nexit 3\n')
    assert "exit code 3: A is\n" in run_here(*args, program, env={"A": "0"}).stdout
    assert "exit code 3: A is 1" in run_here(*args, program, "--pass-env", "A", env={"A": "0"}).stdout


@slow
def test_resuming_a_finished_class_of_two_hundred_takes_milliseconds_a_student(workdir):
    """--resume of a finished class takes a few milliseconds a student."""
    from hw4cli.judge.classroom import Classroom
    from hw4cli.judge.plan import Plan

    cases = list(suite.cases().values())
    for number in range(200):
        submit(workdir, f"student{number}", hw4="#!/bin/true\n")
    for one in scan(workdir / "submissions"):
        path = workdir / "out" / one.user / journal.NAME
        path.parent.mkdir(parents=True)
        settings = {"submission": one.sha256, "build_limit": 120.0, "sandbox": "none", "launcher": []}
        lines = [journal.header_line(user=one.user, cases=[case.name for case in cases], settings=settings)]
        lines += [journal.run_line("key", Attempt(case.name, case.shape.sizes, case.limit, wall=1.0)) for case in cases]
        path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    plan = Plan(cases, workdir, workdir / "out", resume=True, submissions=workdir / "submissions")
    start = time.process_time()
    room = Classroom(plan)
    assert room.judge()
    assert len(room.write()[0]) == 200
    assert time.process_time() - start < 6, "about 1 s on a machine of 2026"


def test_a_missing_class_folder_is_reported_before_missing_cases(hw4, tmp_path):
    result = hw4("judge", "--class", tmp_path / "none", "--output", tmp_path / "out", "--dir", tmp_path)
    assert result.returncode == 2
    assert "there is no such folder" in result.stderr
    assert not (tmp_path / "out").exists()
